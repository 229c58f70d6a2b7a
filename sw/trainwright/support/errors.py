"""Errors that the user can correct, and their messages."""

import errno
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from trainwright.support.text import shortened

MOST_LINE = 1000
"""Most characters of a message: lists of choices are shorter, values that were read may not be."""


class UserError(Exception):
    """Error that the command line reports in one line, without a traceback; a second base."""


class FileError(UserError, ValueError):
    """A file or a folder that cannot be read or written."""


Caught = type[Exception] | tuple[type[Exception], ...]


@contextmanager
def errors_as(what: str, kind: type[Exception], caught: Caught) -> Iterator[None]:
    """Report each error that is ``caught`` as a ``kind``, behind ``what`` and a colon if any."""
    try:
        yield
    except caught as error:
        reason = reason_of(error) if isinstance(error, OSError) else error
        raise kind(f"{what}: {reason}" if what else str(reason)) from None


def file_errors(action: str, kind: type[Exception] = FileError) -> AbstractContextManager[None]:
    """Report an ``OSError`` as a ``kind`` that names the action, such as "cannot write FILE"."""
    return errors_as(action, kind, OSError)


def reason_of(error: OSError) -> str:
    """Return why the system refused, without the name of the file.

    Libraries raise errors without a number (safetensors), or with the file and the system's own
    error in the text (pyserial): a message that names the file would say both twice.
    """
    number = error.errno or next((n for kind, n in _NUMBERS.items() if isinstance(error, kind)), 0)
    return os.strerror(number) if number else str(error)


_NUMBERS = {
    FileNotFoundError: errno.ENOENT,
    IsADirectoryError: errno.EISDIR,
    PermissionError: errno.EACCES,
}


def one_line(error: BaseException) -> str:
    """Return the message of an error on one line, shortened to ``MOST_LINE``."""
    return shortened(" ".join(str(error).split()), MOST_LINE) or type(error).__name__

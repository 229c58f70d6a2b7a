"""Errors that the user can correct, and their messages."""

from collections.abc import Iterator
from contextlib import contextmanager

from trainwright.support.text import shortened

MOST_LINE = 1000
"""Most characters of a message: lists of choices are shorter, values that were read may not be."""


class UserError(Exception):
    """Error that the command line reports in one line, without a traceback; a second base."""


class FileError(UserError, ValueError):
    """A file or a folder that cannot be read or written."""


@contextmanager
def file_errors(action: str, kind: type[Exception] = FileError) -> Iterator[None]:
    """Report an ``OSError`` as a ``kind`` that names the action, such as "cannot write FILE"."""
    try:
        yield
    except OSError as error:
        raise kind(f"{action}: {error.strerror or error}") from None


def one_line(error: BaseException) -> str:
    """Return the message of an error on one line, shortened to ``MOST_LINE``."""
    return shortened(" ".join(str(error).split()), MOST_LINE) or type(error).__name__

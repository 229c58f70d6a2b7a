"""Errors that the user can correct: one line and status 2, no traceback."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from trainwright.support.errors import UserError
from trainwright.support.text import shortened

MOST_LINE = 1000
"""Most characters of a message: lists of choices are shorter, values that were read may not be."""


class OptionError(UserError, ValueError):
    """An option with a value that cannot be, or two that do not go together."""


def require_packages(*names: str) -> None:
    """Raise ``OptionError`` for the first package that is not installed."""
    for name in names:
        if find_spec(name) is None:
            raise OptionError(f"this needs {name}: pip install 'trainwright[train]'")


@contextmanager
def file_errors(action: str) -> Iterator[None]:
    """Report an ``OSError`` as an ``OptionError`` of the action, such as "cannot write FILE"."""
    try:
        yield
    except OSError as error:
        raise OptionError(f"{action}: {error.strerror or error}") from None


def one_line(error: BaseException) -> str:
    """Return the message of an error on one line, shortened to ``MOST_LINE``."""
    return shortened(" ".join(str(error).split()), MOST_LINE) or type(error).__name__

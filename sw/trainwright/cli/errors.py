"""Errors of the command line: one line and status 2, no traceback."""

from importlib.util import find_spec

from trainwright.support.errors import UserError


class OptionError(UserError, ValueError):
    """An option with a value that cannot be, or two that do not go together."""


def require_packages(*names: str) -> None:
    """Raise ``OptionError`` for the first package that is not installed."""
    for name in names:
        if find_spec(name) is None:
            raise OptionError(f"this needs {name}: pip install 'trainwright[train]'")

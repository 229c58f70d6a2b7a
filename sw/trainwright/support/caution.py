"""Warnings that name a line of the user's code, whatever calls lie between."""

import sys
import warnings

_LIBRARIES = {
    *sys.stdlib_module_names, "torch",
    "trainwright", "trainwright_boards", "trainwright_hw", "trainwright_sim",
}  # fmt: skip
"""Top-level modules whose lines tell a user nothing. torch calls forward and backward passes, the
standard library context managers and threads."""
_COMMANDS = "trainwright.cli"
"""Package that stands for its user: ``support.streams`` prints its warnings without a place."""


def warn_user(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the innermost line outside of the libraries.

    A backward pass on a GPU runs in a thread without such a line: the warning names the caller.
    """
    caller = frame = sys._getframe(1)
    while frame is not None and _is_library(frame.f_globals.get("__name__", "")):
        frame = frame.f_back
    # No stacklevel: warnings.warn does not count the frames of imports.
    place = frame or caller
    warnings.warn_explicit(
        message, category, place.f_code.co_filename, place.f_lineno,
        module=place.f_globals.get("__name__", "<unknown>"),
        registry=place.f_globals.setdefault("__warningregistry__", {}),
    )  # fmt: skip


def _is_library(module: str) -> bool:
    return module.partition(".")[0] in _LIBRARIES and not f"{module}.".startswith(f"{_COMMANDS}.")

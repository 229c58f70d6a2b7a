"""Standard output and standard error of a command, whatever they were opened as."""

import io
import os
import sys
import warnings
from pathlib import Path

_format = warnings.formatwarning
_PACKAGE = str(Path(__file__).parents[1])


def prepare_streams() -> None:
    """Make printing safe: a closed stream takes everything, and no character is an error.

    Python has None for a stream that the caller closed (``>&-``). Characters that the terminal's
    encoding lacks are printed as escapes. Warnings of this package are one line, without the place
    in its source.
    """
    warnings.formatwarning = _formatted
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper) and stream.errors != "backslashreplace":
            stream.reconfigure(errors="backslashreplace")


def _formatted(
    message: Warning | str, category: type[Warning], filename: str, lineno: int,
    line: str | None = None,
) -> str:  # fmt: skip
    if filename.startswith(_PACKAGE):
        return f"trainwright: warning: {message}\n"
    return _format(message, category, filename, lineno, line)

"""Standard output and standard error of a command, whatever they were opened as."""

import io
import os
import sys


def prepare_streams() -> None:
    """Make printing safe: a closed stream takes everything, and no character is an error.

    Python has None for a stream that the caller closed (``>&-``). Characters that the terminal's
    encoding lacks are printed as escapes.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper) and stream.errors != "backslashreplace":
            stream.reconfigure(errors="backslashreplace")

"""The command line: ``trainwright train``, ``check``, and what other packages register."""

import sys
from collections.abc import Sequence

INTERRUPTED = 130
"""Exit status after Ctrl-C, by the shell's convention."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``trainwright`` with these arguments (default: the process's); the exit status.

    Imports are made here, so that Ctrl-C gives one line even during the slow imports.
    """
    try:
        from trainwright.cli import core

        status = core.main(argv)
    except KeyboardInterrupt:
        print("trainwright: interrupted", file=sys.stderr)
        status = INTERRUPTED
    if status == INTERRUPTED:
        # Python remembers an interrupt inside exec or eval of a text (dataclasses) as
        # unhandled, even once it is caught, and kills itself at exit. Another exec forgets it.
        exec("")
    return status

"""The command line: ``trainwright train``, ``check``, and what other packages register."""

import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``trainwright`` with these arguments (default: the process's); the exit status.

    Imports are made here, so that Ctrl-C is told in one line while they take their time too.
    """
    try:
        from trainwright.cli import core

        return core.main(argv)
    except KeyboardInterrupt:
        print("trainwright: interrupted", file=sys.stderr)
        return 130

"""The command line: ``trainwright train``, ``check``, and what other packages register."""

from trainwright.cli.core import main

__all__ = ["main"]

"""The command line: ``trainwright train``, ``check``, ``listing``, and what other rooms register."""

from trainwright.cli.core import main

__all__ = ["main"]

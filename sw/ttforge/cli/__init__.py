"""The command line: ``ttforge train``, ``check``, ``listing``, and what other rooms register."""

from ttforge.cli.core import main

__all__ = ["main"]

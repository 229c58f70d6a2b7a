"""``ttforge bench``: how fast and how accurate the number libraries are, beside their peers."""

import argparse

from ttforge.cli.bench import ape, posit, qr
from ttforge.cli.command import Command, SimpleCommand
from ttforge.cli.parts import add_parts, run_part

PARTS: tuple[Command, ...] = (qr.command, ape.command, posit.command)
"""What can be measured; each is a command of its own under ``ttforge bench``."""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = "Measure time and accuracy beside the libraries that do the same."
    add_parts(parser, PARTS)


command = SimpleCommand(
    "bench", "time and accuracy beside other libraries", _add_arguments, run_part
)

"""``trainwright reproduce``: the experiments of the papers."""

import argparse

from trainwright.cli.command import Command, CommandBody
from trainwright.cli.parts import add_parts, run_part
from trainwright.cli.reproduce import ape, formats, mctensor, posit, qr, table1

PARTS: tuple[Command, ...] = (
    table1.command,
    formats.command,
    qr.command,
    ape.command,
    posit.command,
    mctensor.command,
)
"""What can be reproduced; each is a command of its own under ``trainwright reproduce``."""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = "Repeat the experiments of a paper: tables, plots and the numbers as JSON."
    add_parts(parser, PARTS)


command = CommandBody(_add_arguments, run_part)

"""``trainwright bench``: cycles of the accelerator; number libraries beside their peers."""

import argparse

from trainwright.cli.bench import ape, compile, cycles, golden, loop, mcf, posit, qr
from trainwright.cli.command import BENCHES, Command, CommandBody, registered
from trainwright.cli.parts import add_parts, run_part

PARTS: tuple[Command, ...] = (
    cycles.command,
    compile.command,
    golden.command,
    loop.command,
    qr.command,
    ape.command,
    posit.command,
    mcf.command,
)
"""What can be measured; each is a command of its own under ``trainwright bench``. Others register
under the entry-point group ``BENCHES``."""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Measure cycles of the accelerator, and time and accuracy beside other libraries."
    )
    add_parts(parser, [*PARTS, *registered(group=BENCHES)])


command = CommandBody(_add_arguments, run_part)

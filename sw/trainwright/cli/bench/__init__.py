"""``trainwright bench``: cycles of the accelerator; number libraries next to their peers."""

from trainwright.cli.bench import libraries, mcf, steps
from trainwright.cli.command import BENCHES, registered
from trainwright.cli.parts import command_of_parts

PARTS = (*steps.COMMANDS, *libraries.COMMANDS, mcf.command)
"""Measurements, each a command below ``trainwright bench``. Other packages register theirs under
the entry-point group ``BENCHES``."""

command = command_of_parts(
    "Measure cycles of the accelerator, and time and accuracy next to other libraries.",
    lambda: [*PARTS, *registered(group=BENCHES)],
)

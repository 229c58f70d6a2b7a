"""``trainwright bench``: cycles of the accelerator; number libraries next to their peers."""

from trainwright.cli.bench import libraries, steps
from trainwright.cli.command import BENCHES, command_of_parts, registered

PARTS = (*steps.COMMANDS, *libraries.COMMANDS)
"""Measurements, each a command below ``trainwright bench``. Other packages register theirs under
the entry-point group ``BENCHES``."""

command = command_of_parts(
    "Measure cycles of the accelerator, and time and accuracy next to other libraries.",
    lambda: [*PARTS, *registered(group=BENCHES)],
)

"""``trainwright reproduce``: the experiments of the papers."""

from trainwright.cli.command import command_of_parts
from trainwright.cli.reproduce import ape, formats, mctensor, posit, qr, table1

PARTS = (
    table1.command, formats.command, qr.command, ape.command, posit.command, mctensor.command,
)  # fmt: skip
"""Papers, each a command below ``trainwright reproduce``."""

command = command_of_parts(
    "Repeat the experiments of a paper: tables, plots and the numbers as JSON.", lambda: PARTS
)

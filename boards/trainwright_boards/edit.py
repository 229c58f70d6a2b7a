"""Changes of a netlist of yosys' ``write_json``, or of a placed design of nextpnr's ``--write``."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def editing(path: Path, top: str, *, to: Path | None = None) -> Iterator[dict[str, Any]]:
    """Open the module ``top`` of a file for changes, which are written at the end.

    They are written to ``to``, by default the same file. Nothing is written if an error ends the
    change.
    """
    document: dict[str, Any] = json.loads(path.read_text())
    yield document["modules"][top]
    (to or path).write_text(json.dumps(document))


def free_bit(module: dict[str, Any]) -> int:
    """Return the lowest net number that is above all numbers in use."""
    nets = [net["bits"] for net in module["netnames"].values()]
    ports = [bits for cell in module["cells"].values() for bits in cell["connections"].values()]
    used = (bit for bits in (*nets, *ports) for bit in bits if isinstance(bit, int))
    return 1 + max(used, default=1)


def add_cell(module: dict[str, Any], name: str, cell: dict[str, Any], output: str) -> None:
    """Add a cell and a net with the cell's name at its output."""
    module["cells"][name] = cell
    module["netnames"][name] = {"bits": list(cell["connections"][output]), "attributes": {}}

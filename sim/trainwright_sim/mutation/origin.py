"""Find the source line of cells that have none: the multiplexers that yosys makes of ``If``.

Such a multiplexer is assigned to the line of what it feeds: the register or the cell that its
output reaches, possibly through more multiplexers. A fault at its select input is also assigned to
the line of the condition.
"""

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

MOST_CELLS = 200
"""Looked at for one cell: the nearest are what counts."""
_NAME = re.compile(r"[\\$][^\s\[\]{}:]+")
_OUTPUTS = ("Y", "Q", "DATA")


@dataclass
class _Cell:
    source: str
    inputs: dict[str, list[str]] = field(default_factory=dict)
    outputs: list[str] = field(default_factory=list)


class Origins:
    """Source lines of the cells in a flattened design, read from RTLIL with sources."""

    def __init__(self, rtlil: str):
        self._cells: dict[str, _Cell] = {}
        self._wires: dict[str, str] = {}
        """Sources of wires that have a name in the design."""
        self._readers: dict[str, list[str]] = defaultdict(list)
        self._drivers: dict[str, list[str]] = defaultdict(list)
        self._same: dict[str, list[str]] = defaultdict(list)
        """Wires that are connected to a wire."""
        self._read(rtlil)

    def _read(self, rtlil: str) -> None:
        source, cell, name = "", None, ""
        for line in rtlil.splitlines():
            words = line.split()
            match words[:1]:
                case ["attribute"] if words[1] == "\\src":
                    source = words[2].strip('"')
                case ["wire"]:
                    self._wires[words[-1]], source = source, ""
                case ["cell"]:
                    name, cell, source = words[2], _Cell(source), ""
                    self._cells[name] = cell
                case ["connect"]:
                    self._connect(words, name, cell)
                case ["end"]:
                    cell = None

    def _connect(self, words: list[str], name: str, cell: _Cell | None) -> None:
        wires = _NAME.findall(" ".join(words[2:]))
        if cell is None:
            ends = [*_NAME.findall(words[1]), *wires]
            for wire in ends:
                self._same[wire] += [other for other in ends if other != wire]
            return
        port = words[1].lstrip("\\")
        if port in _OUTPUTS:
            cell.outputs += wires
            users = self._drivers
        else:
            cell.inputs[port] = wires
            users = self._readers
        for wire in wires:
            users[wire].append(name)

    def of(self, cell: str, port: str) -> list[str]:
        """Return the files and lines of a cell; empty if none are known."""
        if cell not in self._cells:
            return []
        sources = self._after(cell)
        if port == "S":
            sources += self._conditions(self._cells[cell].inputs.get("S", ()))
        return sorted(set(sources))

    def _after(self, cell: str) -> list[str]:
        """Return the lines of the nearest cells or wires that a cell drives."""
        level, known = [cell], {cell}
        while level and len(known) < MOST_CELLS:
            wires = [wire for name in level for wire in self._cells[name].outputs]
            wires += [other for wire in wires for other in self._same[wire]]
            sources = [self._wires[w] for w in wires if self._wires.get(w)]
            behind = [name for wire in wires for name in self._readers[wire] if name not in known]
            sources += [self._cells[name].source for name in behind if self._cells[name].source]
            if sources:
                return sources
            level = list(dict.fromkeys(behind))
            known |= set(level)
        return []

    def _conditions(self, wires: Iterable[str]) -> list[str]:
        drivers = [name for wire in wires for name in self._drivers[wire]]
        return [self._cells[name].source for name in drivers if self._cells[name].source] + [
            self._wires[wire] for wire in wires if self._wires.get(wire)
        ]

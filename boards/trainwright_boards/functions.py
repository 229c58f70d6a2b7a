"""Prove that the LUTs of two netlists make the same functions, without knowing how they changed.

``equivalence`` compares cell by cell, and so rejects a function that is divided among other LUTs.
This proof requires that all cells except LUTs and multiplexers are the same, on the same nets. Each
net that LUTs drive in both netlists must be the same function of nets that both netlists have: the
two tables are compared for all values of these nets. Such nets then have equal values, as every
loop passes a register.
"""

from collections.abc import Sequence, Set

from trainwright.support.text import amount
from trainwright_boards.canonical import Cell, Machine, Net

LUT, PINS = "LUT4", "ABCD"
MULTIPLEXERS = {"PFUMX": ("C0", "ALUT", "BLUT"), "L6MUX21": ("SD", "D1", "D0")}
"""Pins: the select input, and the inputs for a select input of 1 and of 0."""
MOST_INPUTS = 16
"""Inputs of a function above which its tables are too long to be compared."""


def difference(before: Machine, after: Machine) -> str | None:
    """Return the first difference; ``None`` for netlists of the same functions.

    Raises ``ValueError`` for functions of too many inputs, inputs without a net, and loops.
    """
    if before.ports != after.ports:
        return "ports have other nets"
    for name, (_, nets) in before.ports.items():
        if any(net in before.drivers and net not in after.drivers for net in nets):
            return f"port {name} is not driven after"
    kept = [{c.name: c for c in m.cells if not _is_logic(c)} for m in (before, after)]
    for name in sorted(kept[0].keys() | kept[1].keys()):
        if kept[0].get(name) != kept[1].get(name):
            return f"{name} is another cell, or has other nets"
    both = (after.drivers.keys() & before.drivers.keys()) | before.sources.keys()
    for net, (number, _) in after.drivers.items():
        cell = after.cells[number]
        if _is_logic(cell) and net in both and cell not in _driver(before, net):
            leaves = [*dict.fromkeys(_leaves(before, net, both) + _leaves(after, net, both))]
            if len(leaves) > MOST_INPUTS:
                raise ValueError(f"{cell.name} is a function of {amount(len(leaves), 'input')}")
            old, new = (_table(machine, net, leaves) for machine in (before, after))
            if old != new:
                return f"{before.driver(net)} before, {after.driver(net)} after: other functions"
    return None


def _is_logic(cell: Cell) -> bool:
    return cell.kind[0] == LUT or cell.kind[0] in MULTIPLEXERS


def _driver(machine: Machine, net: Net) -> list[Cell]:
    """Return the cell that drives a net, if any does."""
    return [machine.cells[machine.drivers[net][0]]] if net in machine.drivers else []


def _leaves(machine: Machine, net: Net, both: Set[Net]) -> list[Net]:
    """Return the nearest nets before ``net`` that both netlists have."""
    leaves: list[Net] = []
    seen: set[Net] = {"0", "1"}
    ahead = [net]
    while ahead:
        for cell in _driver(machine, ahead.pop()):
            for _, source in cell.inputs:
                if source == net:
                    raise ValueError(f"{machine.driver(net)} reads itself through LUTs alone")
                if source not in seen:
                    seen.add(source)
                    (leaves if source in both else ahead).append(source)
    return leaves


def _table(machine: Machine, net: Net, leaves: Sequence[Net]) -> int:
    """Return the values of a net for all values of the leaves, a bit for each."""
    rows = range(1 << len(leaves))
    ones = (1 << len(rows)) - 1
    values: dict[Net, int] = {"0": 0, "1": ones}
    for n, leaf in enumerate(leaves):
        values[leaf] = sum(1 << row for row in rows if row >> n & 1)

    def value(net: Net) -> int:
        if net not in values:
            cell = machine.cells[machine.drivers[net][0]]
            sources = dict(cell.inputs)
            pins = MULTIPLEXERS.get(cell.kind[0], PINS)
            if missing := [pin for pin in pins if pin not in sources]:
                raise ValueError(f"{cell.name} has no net at {missing[0]}")
            tables = [value(sources[pin]) for pin in pins]
            if cell.kind[0] == LUT:
                values[net] = _lookup(int(dict(cell.kind[1])["INIT"], 2), tables, ones)
            else:
                select, high, low = tables
                values[net] = select & high | (ones ^ select) & low
        return values[net]

    return value(net)


def _lookup(init: int, tables: Sequence[int], ones: int) -> int:
    result = 0
    for number in range(1 << len(tables)):
        if init >> number & 1:
            rows = ones
            for n, table in enumerate(tables):
                rows &= table if number >> n & 1 else ones ^ table
            result |= rows
    return result

"""A proof that two netlists are the same machine, by code that knows of no change between them.

Cells of both are put into classes: at first all that do the same are in one, and a class is split
as long as the inputs of its cells are driven from different classes. What is in one class in the
end cannot be told apart: its cells begin in the same state, and get the same inputs in every cycle
(there are no loops without a register). So the netlists are the same machine where each output is
driven from the same class in both. Copies of a register are in its class; cells that drive nothing
do not count.

The classes are found by hashes, and then checked exactly.
"""

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from trainwright.support.text import amount
from trainwright_boards.canonical import Cell, Machine, Net

SEED = 1
_Words = npt.NDArray[np.uint64]


def difference(before: Machine, after: Machine) -> str | None:
    """Return the first difference, from the outputs inwards; ``None`` for equal machines."""
    return _different_ports(before, after) or _Classes(before, after).difference()


def _different_ports(before: Machine, after: Machine) -> str | None:
    for name in sorted(before.ports.keys() | after.ports.keys()):
        old, new = (
            f"{direction}, {amount(len(nets), 'bit')}"
            for direction, nets in (m.ports.get(name, ("absent", ())) for m in (before, after))
        )
        if old != new:
            return f"port {name}: {old} before, {new} after"
    return None


class _Classes:
    """Give equal numbers to cells and nets of two machines that cannot be told apart."""

    def __init__(self, before: Machine, after: Machine):
        self._machines = before, after
        cells = [*before.cells, *after.cells]
        pins: dict[str, int] = {}
        leaves: dict[str, int] = {}
        self._numbers: list[dict[Net, int]] = [
            {net: leaves.setdefault(source, len(leaves)) for net, source in machine.sources.items()}
            for machine in self._machines
        ]
        # of each net the number of the cell that drives it, and of that cell's pin
        driver, pin, first = [-1] * len(leaves), [0] * len(leaves), 0
        for machine, numbers in zip(self._machines, self._numbers, strict=True):
            for net, (cell, output) in machine.drivers.items():
                numbers[net] = len(driver)
                driver.append(first + cell)
                pin.append(pins.setdefault(output, len(pins)))
            first += len(machine.cells)
        self._driver, self._pin = np.array(driver), np.array(pin)
        # of each cell its kind, and where its inputs begin and end; of each input its net
        kinds: dict[object, int] = {}
        inputs = [cell.inputs + cell.pads for cell in cells]
        keys = [
            (cell.kind, *(pin for pin, _ in used)) for cell, used in zip(cells, inputs, strict=True)
        ]
        self._kind = np.array([kinds.setdefault(key, len(kinds)) for key in keys], int)
        counts = np.array([len(used) for used in inputs], int)
        self._stop = np.cumsum(counts)
        self._begin = self._stop - counts
        self._cell = np.repeat(np.arange(len(cells)), counts)
        self._place = np.arange(len(self._cell)) - self._begin[self._cell]
        halves = [self._numbers[n >= len(before.cells)] for n in range(len(cells))]
        self._net = np.array(
            [half[net] for half, used in zip(halves, inputs, strict=True) for _, net in used], int
        )
        self._of_cell = self._found()
        self._of_net = self._nets()
        self._look_again()

    def _found(self) -> npt.NDArray:
        """Return the class of each cell, with as few classes as possible."""
        random = np.random.default_rng(SEED)

        def words(count: int | np.integer) -> _Words:
            return random.integers(1, 1 << 63, count, np.uint64) * np.uint64(2) + np.uint64(1)

        kind, output = words(self._kind.max(initial=0) + 1), words(self._pin.max(initial=0) + 1)
        place = words(self._place.max(initial=0) + 1)[self._place]
        driven = self._driver >= 0
        net, classes = np.zeros(len(self._driver), np.uint64), 0
        net[~driven] = words(np.count_nonzero(~driven))
        while True:
            sums = np.r_[np.zeros(1, np.uint64), np.cumsum(net[self._net] * place)]
            cell = _mixed(kind[self._kind] + sums[self._stop] - sums[self._begin])
            net[driven] = _mixed(cell[self._driver[driven]] ^ output[self._pin[driven]])
            kinds_now, number = np.unique(cell, return_inverse=True)
            if len(kinds_now) == classes:
                return number
            classes = len(kinds_now)

    def _nets(self) -> npt.NDArray:
        """Return the class of each net: a source's own, else by its driver's class and pin."""
        pins, count = self._pin.max(initial=0) + 1, len(self._driver)
        of_driver = np.r_[self._of_cell, 0][self._driver]
        return np.where(self._driver >= 0, count + of_driver * pins + self._pin, np.arange(count))

    def _look_again(self) -> None:
        """Check the hashes: cells of one class do the same, with inputs of the same classes."""
        _, first = np.unique(self._of_cell, return_index=True)
        example = first[self._of_cell]
        same = (self._kind == self._kind[example]).all()
        if same:
            theirs = self._net[self._begin[example][self._cell] + self._place]
            same = (self._of_net[theirs] == self._of_net[self._net]).all()
        if not same:
            raise AssertionError("two cells that differ have one hash")

    def difference(self) -> str | None:
        """Compare what leaves the machines: outputs, and cells that drive no net."""
        before, after = self._machines
        pairs: deque[_Pair] = deque()
        for name, (direction, nets) in before.ports.items():
            if direction != "input":
                both = zip(nets, after.ports[name][1], strict=True)
                pairs += [_Pair(f"port {name}[{n}]", *pair) for n, pair in enumerate(both)]
        ends = [self._ends(machine) for machine in (0, 1)]
        names = [{cell.name: cell for cell in machine.cells} for machine in self._machines]
        for side in (0, 1):
            for number in ends[side].keys() - ends[1 - side].keys():
                name = ends[side][number].name
                if name not in names[1 - side]:
                    return f"{name} is only there {('before', 'after')[side]}"
                old, new = (by_name[name] for by_name in names)
                if told_locally := _local(old, new, *self._machines):
                    return told_locally
                pairs += _inputs(old, new)
        return self._search(pairs, names)

    def _search(self, pairs: "deque[_Pair]", names: list[dict[str, Cell]]) -> str | None:
        """Follow pairs of nets that should be equal back to the first difference."""
        before, after = self._machines
        seen: set[tuple[int, int]] = set()
        while pairs:
            where, *nets = pairs.popleft()
            classes = self._class(0, nets[0]), self._class(1, nets[1])
            if classes[0] == classes[1] or classes in seen:
                continue
            seen.add(classes)
            told = f"{where}: {before.driver(nets[0])} before, {after.driver(nets[1])} after"
            drivers = before.drivers.get(nets[0]), after.drivers.get(nets[1])
            if drivers[0] is None or drivers[1] is None or drivers[0][1] != drivers[1][1]:
                return told
            old, new = before.cells[drivers[0][0]], after.cells[drivers[1][0]]
            both_stay = old.name in names[1] and new.name in names[0]
            if old.kind[0] != new.kind[0] or (old.name != new.name and both_stay):
                return told
            if told_locally := _local(old, new, before, after):
                return told_locally
            pairs += _inputs(old, new)
        return None

    def _ends(self, machine: int) -> dict[int, Cell]:
        """Return the cells without outputs or with pads, by class."""
        first = machine * len(self._machines[0].cells)
        return {
            int(self._of_cell[first + n]): cell
            for n, cell in enumerate(self._machines[machine].cells)
            if cell.pads or not cell.outputs
        }

    def _class(self, machine: int, net: Net) -> int:
        """Return the class of a net; -1 where there is no net, or nothing drives it."""
        number = self._numbers[machine].get(net)
        return -1 if number is None else int(self._of_net[number])


def _mixed(words: _Words) -> _Words:
    """Return hashes of words, in which each bit depends on all bits of its word (SplitMix64)."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


class _Pair(NamedTuple):
    """Two nets at a place of both machines."""

    where: str
    before: Net
    after: Net


def _inputs(old: Cell, new: Cell) -> Iterator[_Pair]:
    for (pin, before), (_, after) in zip(old.inputs + old.pads, new.inputs + new.pads, strict=True):
        yield _Pair(f"{new.name}.{pin}", before, after)


def _local(old: Cell, new: Cell, before: Machine, after: Machine) -> str | None:
    """Return how two cells of a type differ by themselves, apart from what drives them."""
    settings = [dict(cell.kind[1]) | dict(cell.kind[2]) for cell in (old, new)]
    for name in sorted(settings[0].keys() | settings[1].keys()):
        values = [values_of.get(name, "nothing") for values_of in settings]
        if values[0] != values[1]:
            return f"{new.name}: {name} {values[0]} before, {values[1]} after"
    nets = [dict(cell.inputs + cell.pads) for cell in (old, new)]
    for pin in sorted(nets[0].keys() ^ nets[1].keys()):
        told = [m.driver(pins.get(pin, "")) for m, pins in zip((before, after), nets, strict=True)]
        return f"{new.name}.{pin}: {told[0]} before, {told[1]} after"
    return None

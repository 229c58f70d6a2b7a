"""Join the LUTs of an ECP5's netlist by the multiplexers of its slices.

A slice has two LUTs and a multiplexer, ``PFUMX``. The multiplexer selects one of two functions of
four inputs each. ``L6MUX21`` joins two slices in the same way. abc9 only counts inputs: a function
of six inputs takes four LUTs. So abc9 spends three LUTs on a choice of one in four, which two LUTs
and a ``PFUMX`` can make, and seven LUTs on a choice of one in eight, where four suffice. This
module merges a LUT with the LUTs that it alone reads, and makes the merged function anew if fewer
LUTs suffice. No path passes more LUTs than before.

Cells and nets that the design asks to keep, LUTs with a floating input, and LUTs of a loop stay.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, NamedTuple

from trainwright_boards.edit import add_cell, free_bit

LUT, PAIR, QUAD = "LUT4", "PFUMX", "L6MUX21"
PINS = "ABCD"
PARTS = {LUT: (), PAIR: ("ALUT", "BLUT"), QUAD: ("D1", "D0")}
"""Pins of each cell that its own slices drive: the inputs for a select input of 1 and of 0."""
SELECT = {PAIR: "C0", QUAD: "SD"}
MOST_INPUTS = 12
"""Inputs above which a function is not tried: a choice of one in eight has eleven, and an enable.
A bound of 9 saves 44 % less in ``ecp5-85f``; 14 saves 2,241 LUTs, 12 saves 2,239.
"""
MOST_CUTS = 48
"""Sets of cells that are tried for a net; 400 sets save as many LUTs."""
_MOST_OF = {1: 4, 2: 9, 4: 19}
"""Most inputs of one, two and four LUTs: a select input, and the inputs of both halves."""
Net = int
Cell = dict[str, Any]


class Shape(NamedTuple):
    """A function as LUTs: one LUT, or a select input and two shapes.

    ``inputs`` and ``select`` are places in the leaves of a cut, ``table`` is that of one LUT.
    """

    inputs: tuple[int, ...] = ()
    table: int = 0
    select: int = -1
    parts: tuple["Shape", ...] = ()
    """Shapes for a select input of 1 and of 0."""

    @property
    def luts(self) -> int:
        """LUTs of the shape."""
        return sum(part.luts for part in self.parts) or 1


@dataclass(frozen=True)
class _Cut:
    """Cells that make one function of the nets ``leaves``."""

    cells: frozenset[str]
    leaves: tuple[Net, ...]
    luts: int


def join_luts(module: dict[str, Any]) -> int:
    """Join LUTs of a module of yosys' ``write_json``; return the number of LUTs saved.

    The function that saves most LUTs comes first. Each cell is joined at most once.
    """
    logic, shapes = _Logic(module), _Shapes()
    best: list[tuple[int, Net, _Cut, Shape]] = []
    for root in logic.roots():
        choices = []
        for cut in logic.cuts(root):
            shape = shapes.of(logic, root, cut)
            if shape is not None and shape.luts < cut.luts:
                choices.append((cut.luts - shape.luts, root, cut, shape))
        best += [max(choices, key=lambda choice: choice[0])] if choices else []
    changed: set[str] = set()
    gone: set[Net] = set()
    saved, bit = 0, free_bit(module)
    for gain, root, cut, shape in sorted(best, key=lambda choice: -choice[0]):
        if not changed & cut.cells:
            changed |= cut.cells
            gone |= {logic.output(name) for name in cut.cells} - {root}
            bit = _replace(module, logic, root, cut, shape, bit)
            saved += gain
    _forget(module, gone)
    return saved


class _Logic:
    """LUTs and multiplexers of a module, by the nets that they drive."""

    def __init__(self, module: Mapping[str, Any]):
        self.users: dict[Any, set[str]] = defaultdict(set)
        known: set[Any] = {"0", "1"}
        for name, cell in module["cells"].items():
            for port, bits in cell["connections"].items():
                if cell["port_directions"][port] != "output":
                    for bit in bits:
                        self.users[bit].add(name)
                if cell["port_directions"][port] != "input":
                    known.update(bits)
        kept = [net for net in module["netnames"].values() if _is_kept(net)]
        for holder in (*module["ports"].values(), *kept):
            for bit in holder["bits"]:
                self.users[bit].add("")
        for port in module["ports"].values():
            known.update(port["bits"] if port["direction"] != "output" else ())
        logic = {name: cell for name, cell in module["cells"].items() if cell["type"] in PARTS}
        self._in_slices = {
            bit for cell in logic.values() for pin in _parts(cell) for bit in _bits(cell, pin)
        }
        """Nets that a multiplexer reads from its own slice."""
        self.cells: dict[str, Cell] = {
            name: cell for name, cell in logic.items() if _is_plain(cell, known)
        }
        self.driver = {self.output(name): name for name in self.cells}
        while apart := [name for name in self.cells if not self._has_own_parts(name)]:
            for name in apart:
                del self.driver[self.output(name)], self.cells[name]
        self._whole: dict[str, tuple[frozenset[str], tuple[Any, ...]]] = {}
        self.depth: dict[Any, int] = {}
        """LUTs in front of a net, at most."""

    def output(self, name: str) -> Net:
        """Return the net that a cell drives."""
        return self.cells[name]["connections"]["Z"][0]

    def roots(self) -> Iterator[Net]:
        """Yield the nets that leave their slices."""
        yield from (net for net in self.driver if net not in self._in_slices)

    def _has_own_parts(self, name: str) -> bool:
        """Return whether a cell is a LUT, or alone reads the cells that its slices join."""
        cell = self.cells[name]
        nets = [cell["connections"][pin][0] for pin in _parts(cell)]
        if not all(net in self.driver and self.users[net] == {name} for net in nets):
            return False
        return not nets or cell["connections"][SELECT[cell["type"]]][0] not in nets

    def whole(self, name: str) -> tuple[frozenset[str], tuple[Any, ...]]:
        """Return a cell with the cells of its slices that drive it, and the nets that they read."""
        if name not in self._whole:
            cell = self.cells[name]
            pins = cell["connections"]
            if cell["type"] == LUT:
                parts, leaves = [], [pins[pin][0] for pin in PINS]
            else:
                parts = [self.whole(self.driver[pins[pin][0]]) for pin in _parts(cell)]
                leaves = [pins[SELECT[cell["type"]]][0], *(n for part in parts for n in part[1])]
            cells = frozenset([name]).union(*(part[0] for part in parts))
            self._whole[name] = cells, tuple(n for n in dict.fromkeys(leaves) if isinstance(n, int))
        return self._whole[name]

    def cuts(self, root: Net) -> Iterator[_Cut]:
        """Yield sets of cells that may take fewer LUTs, and of which others read only ``root``.

        Leaves of equal depth are in the order of the search: bits of a word have equal tables.
        """
        cells, leaves = self.whole(self.driver[root])
        front = [(cells, leaves)]
        seen = {cells}
        for cells, leaves in front:
            luts = sum(self.cells[name]["type"] == LUT for name in cells)
            # A cut that reads its own output is a latch, which has no table.
            if root not in leaves and len(leaves) <= MOST_INPUTS and luts > _least(len(leaves)):
                # Late inputs last: they become select inputs, or the fastest pin of a LUT.
                yield _Cut(cells, tuple(sorted(leaves, key=self.levels)), luts)
            for place, leaf in enumerate(leaves):
                if leaf not in self.driver or not self.users[leaf] <= cells:
                    continue
                more, theirs = self.whole(self.driver[leaf])
                if (both := cells | more) not in seen and len(seen) < MOST_CUTS:
                    seen.add(both)
                    nets = dict.fromkeys((*leaves[:place], *theirs, *leaves[place + 1 :]))
                    front.append((both, tuple(nets)))

    def table(self, net: Any, given: dict[Any, int], ones: int) -> int:
        """Return the values of a net for all values of the ``given`` nets, a bit for each."""
        if net not in given:
            cell = self.cells[self.driver[net]]
            pins = cell["connections"]
            if cell["type"] == LUT:
                values = [self.table(pins[pin][0], given, ones) for pin in PINS]
                given[net] = _lookup(int(cell["parameters"]["INIT"], 2), values, ones)
            else:
                select = self.table(pins[SELECT[cell["type"]]][0], given, ones)
                high, low = (self.table(pins[pin][0], given, ones) for pin in _parts(cell))
                given[net] = select & high | ~select & low & ones
        return given[net]

    def levels(self, net: Any) -> int:
        """Return how many LUTs a path to a net passes at most."""
        if net not in self.depth:
            name = self.driver.get(net)
            leaves = () if name is None else self.whole(name)[1]
            self.depth[net] = 0  # a loop, which would be a fault, ends here
            self.depth[net] = max((1 + self.levels(leaf) for leaf in leaves), default=0)
        return self.depth[net]


def _parts(cell: Cell) -> tuple[str, ...]:
    return PARTS[cell["type"]]


def _bits(cell: Cell, pin: str) -> list[Any]:
    """Return the nets at a pin, which may not be there."""
    return cell["connections"].get(pin, [])


def _is_kept(item: Mapping[str, Any]) -> bool:
    """Return whether the design asks for a cell or a net to stay."""
    return "1" in str(item.get("attributes", {}).get("keep", "0"))


def _is_plain(cell: Cell, known: Set[Any]) -> bool:
    """Return whether a cell may be joined: driven at all pins, with a table if it is a LUT.

    Other cells stay as they are: the function of a floating input is the device's own.
    """
    kind = cell["type"]
    pins = PINS if kind == LUT else (*_parts(cell), SELECT[kind])
    table = str(cell["parameters"].get("INIT", "")) if kind == LUT else "0" * 16
    return (
        not _is_kept(cell)
        and len(_bits(cell, "Z")) == 1
        and all(len(bits := _bits(cell, pin)) == 1 and bits[0] in known for pin in pins)
        and len(table) == 16
        and set(table) <= {"0", "1"}
    )


def _least(inputs: int) -> int:
    """Return the least LUTs of a function that needs so many inputs."""
    return next(luts for luts, most in _MOST_OF.items() if inputs <= most)


def _lookup(init: int, inputs: Sequence[int], ones: int) -> int:
    """Return the output of a LUT for inputs that are tables, by a tree of choices."""
    level = [ones if init >> n & 1 else 0 for n in range(1 << len(inputs))]
    for value in inputs:
        off = value ^ ones
        pairs = zip(level[::2], level[1::2], strict=True)
        level = [low if low == high else low & off | high & value for low, high in pairs]
    return level[0]


def variables(count: int) -> list[int]:
    """Return tables of the inputs of a function: bit i of table n is bit n of i."""
    # Table n repeats 2^n zeros and 2^n ones. All ones / (2^(2^n) + 1) has a one in every other
    # block of 2^n bits, filled from below; the shift moves these blocks up.
    ones = (1 << (1 << count)) - 1
    return [ones // ((1 << (1 << n)) + 1) << (1 << n) for n in range(count)]


class _Shapes:
    """Shapes by their tables: the bits of a word have the same function."""

    def __init__(self):
        self._known: dict[tuple[int, int], Shape | None] = {}

    def of(self, logic: _Logic, root: Net, cut: _Cut) -> Shape | None:
        """Return the cut's function as up to four LUTs; ``None`` if they do not suffice."""
        count = len(cut.leaves)
        ones = (1 << (1 << count)) - 1
        given: dict[Any, int] = {"0": 0, "1": ones}
        given |= dict(zip(cut.leaves, variables(count), strict=True))
        key = logic.table(root, given, ones), count
        if key not in self._known:
            self._known[key] = _Function(*key).shape()
        return self._known[key]


class _Function:
    """A function by its table. Sets of the table's rows are masks with a bit for each row."""

    def __init__(self, table: int, count: int):
        self._table = table
        self._inputs = variables(count)
        self._all = (1 << (1 << count)) - 1
        self._changes: list[int] = []
        """For each input, the rows with a 0 there in which the function changes with the input."""
        for n, value in enumerate(self._inputs):
            self._changes.append((table >> (1 << n) ^ table) & ~value & self._all)

    def shape(self) -> Shape | None:
        """Return the function as one, two or four LUTs."""
        for luts in _MOST_OF:
            if (shape := self._joined(self._all, luts, frozenset())) is not None:
                return shape
        return None

    def _joined(self, rows: int, luts: int, chosen: frozenset[int]) -> Shape | None:
        """Return the function in ``rows``, all of which have equal ``chosen`` inputs."""
        names = [n for n, here in enumerate(self._changes) if here & rows and n not in chosen]
        if len(names) > _MOST_OF[luts]:
            return None
        if luts == 1:
            return self._lut(rows, names)
        for name in reversed(names):
            parts = []
            for half in (rows & self._inputs[name], rows & ~self._inputs[name]):
                if (part := self._joined(half, luts // 2, chosen | {name})) is None:
                    break
                parts.append(part)
            else:
                return Shape(select=name, parts=tuple(parts))
        return None

    def _lut(self, rows: int, names: list[int]) -> Shape:
        table = 0
        for row in range(1 << len(names)):
            matching = rows
            for n, name in enumerate(names):
                matching &= self._inputs[name] if row >> n & 1 else ~self._inputs[name]
            # Other inputs do not change the value, so all matching rows agree: read the lowest one.
            table |= bool(self._table & matching & -matching) << row
        return Shape(tuple(names), table)


def _replace(
    module: dict[str, Any], logic: _Logic, root: Net, cut: _Cut, shape: Shape, bit: int
) -> int:
    """Replace a cut by its shape, under the name of the root's cell; return the next free net."""
    for name in cut.cells:
        del module["cells"][name]

    def build(shape: Shape, output: Net, name: str) -> None:
        nonlocal bit
        if shape.parts:
            kind, parameters = QUAD if shape.luts == 4 else PAIR, {}
            pins: dict[str, Any] = {SELECT[kind]: cut.leaves[shape.select]}
            for pin, part in zip(PARTS[kind], shape.parts, strict=True):
                pins[pin], bit = bit, bit + 1
                build(part, pins[pin], f"{name}_joined_{pin}")
        else:
            nets = [cut.leaves[n] for n in shape.inputs]
            rows = [shape.table >> n % (1 << len(nets)) & 1 for n in range(1 << len(PINS))]
            kind, parameters = LUT, {"INIT": "".join(map(str, reversed(rows)))}
            pins = dict(zip(PINS, [*nets, *["0"] * (len(PINS) - len(nets))], strict=True))
        cell = {
            "hide_name": 0,
            "type": kind,
            "parameters": parameters,
            "attributes": {},
            "port_directions": dict.fromkeys(pins, "input") | {"Z": "output"},
            "connections": {pin: [net] for pin, net in (pins | {"Z": output}).items()},
        }
        if output == root:
            module["cells"][name] = cell
        else:
            add_cell(module, name, cell, "Z")

    build(shape, root, logic.driver[root])
    return bit


def _forget(module: dict[str, Any], gone: set[Net]) -> None:
    """Remove nets without a driver from the names of nets."""
    nets = module["netnames"]
    for name, net in list(nets.items()):
        if gone.intersection(bits := net["bits"]):
            net["bits"] = ["x" if bit in gone else bit for bit in bits]
            if set(net["bits"]) == {"x"}:
                del nets[name]

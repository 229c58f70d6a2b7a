"""Estimate the energy of multiplications from toggles in the cells of a liberty file.

yosys maps a multiplier of the arrays to the file's cells. All multiplications are then evaluated at
once, without delays: the value of a net is an integer with one bit for each multiplication. Bits
that differ from the next are the toggles that Verilator counts in a SAIF file. Glitches, wires and
registers are omitted.
"""

import json
import re
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from graphlib import TopologicalSorter
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import numpy.typing as npt

from trainwright.support.errors import UserError
from trainwright_hw.build.convert import yosys_command

Operands = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]
"""First and second operand of each multiplication of an array."""
_TOKEN = re.compile(r'"(?P<text>[^"]*)"|(?P<mark>[(){}:;,])|(?P<word>[^\s(){}:;,"]+)')
_COMMENT = re.compile(r"/\*.*?\*/|\\\r?\n", re.S)
_UNIT = {"ff": 1e-15, "pf": 1e-12}
"""Farads of each unit of capacitance."""
_PRODUCT = """module product(input signed [{top}:0] a, b, output signed [{top2}:0] y);
assign y = a * b;
endmodule
"""
_SCRIPT = (
    "read_verilog product.v; synth -flatten -top product; abc -liberty cells.lib; opt_clean; "
    "write_json product.json"
)


class LibertyError(UserError, ValueError):
    """Error in reading a liberty file, or in building or pricing a multiplier from its cells."""


@dataclass
class Group:
    """Group of a liberty file, ``kind (arguments) { ... }``: a library, a cell, a pin."""

    kind: str
    arguments: list[str]
    attributes: dict[str, list[str]] = field(default_factory=dict)
    groups: list["Group"] = field(default_factory=list)

    def of_kind(self, *kinds: str) -> Iterator["Group"]:
        """Yield the direct subgroups of these kinds."""
        return (group for group in self.groups if group.kind in kinds)

    def number(self, name: str) -> float | None:
        """Return a numeric attribute, or None if it is missing."""
        return float(self.attributes[name][0]) if name in self.attributes else None


def parse(text: str) -> Group:
    """Return the outermost group of a liberty file. Raises ``LibertyError``."""
    tokens = [(m.lastgroup, m[m.lastgroup or 0]) for m in _TOKEN.finditer(_COMMENT.sub(" ", text))]
    root, place = Group("", []), 0
    open_groups = [root]
    while place < len(tokens):
        kind, name = tokens[place]
        if (kind, name) == ("mark", "}") and len(open_groups) > 1:
            open_groups.pop()
        elif (kind, name) != ("mark", ";"):
            # A name stands before `(arguments)`, with `{` behind them if it opens a group, or
            # before `: value ;`.
            values = []
            place += 1
            closing = ")" if tokens[place : place + 1] == [("mark", "(")] else ";"
            while place + 1 < len(tokens) and tokens[place + 1] != ("mark", closing):
                place += 1
                if tokens[place][0] != "mark":
                    values.append(tokens[place][1])
            place += 1
            if tokens[place + 1 : place + 2] == [("mark", "{")]:
                place += 1
                group = Group(name, values)
                open_groups[-1].groups.append(group)
                open_groups.append(group)
            else:
                open_groups[-1].attributes[name] = values
        place += 1
    libraries = [group for group in root.of_kind("library")]
    if len(open_groups) > 1 or len(libraries) != 1:
        raise LibertyError("is no liberty file: it needs one `library (NAME) { ... }`, closed")
    return libraries[0]


@dataclass(frozen=True)
class Cell:
    """Combinational cell of a library."""

    functions: dict[str, str]
    """Function of each output pin."""
    farads: dict[str, float]
    """Capacitance of each input pin."""
    joules: dict[str, tuple[float, float]]
    """Least and largest internal energy of a transition of each output pin."""


@dataclass(frozen=True)
class Library:
    """Cells of a liberty file, and its supply voltage."""

    cells: dict[str, Cell]
    volts: float

    @classmethod
    def read(cls, text: str) -> "Library":
        """Read the combinational cells. Raises ``LibertyError``."""
        library = parse(text)
        volts = library.number("nom_voltage")
        load, unit = library.attributes.get("capacitive_load_unit", ["1", "pf"])
        if volts is None or unit.lower() not in _UNIT:
            raise LibertyError("has no nom_voltage, or a capacitive_load_unit other than ff and pf")
        farad = float(load) * _UNIT[unit.lower()]
        cells = {
            cell.arguments[0]: _cell(cell, farad)
            for cell in library.of_kind("cell")
            if not any(cell.of_kind("ff", "latch", "statetable"))
        }
        if not any(max(ends) > 0 for cell in cells.values() for ends in cell.joules.values()):
            raise LibertyError("gives no energies: no output pin has internal_power above 0")
        return cls(cells, volts)


def _cell(cell: Group, farad: float) -> Cell:
    functions, farads, joules = {}, {}, {}
    for pin in cell.of_kind("pin"):
        energies = [
            # Liberty gives energies in the unit of capacitance times V^2.
            farad * float(number)
            for power in pin.of_kind("internal_power")
            for table in power.of_kind("rise_power", "fall_power", "power")
            for row in table.attributes.get("values", [])
            for number in row.replace(",", " ").split()
        ]
        for name in pin.arguments:
            farads[name] = farad * (pin.number("capacitance") or 0.0)
            if "function" in pin.attributes:
                functions[name] = pin.attributes["function"][0]
                joules[name] = (min(energies), max(energies)) if energies else (0.0, 0.0)
    return Cell(functions, farads, joules)


def evaluated(function: str, pins: dict[str, int], ones: int) -> int:
    """Evaluate a liberty function on integers that have one bit for each multiplication.

    ``pins`` are the values of input pins by name; ``ones`` has all bits set.
    """
    # Recursive descent, by a function for each precedence: NOT, then XOR, AND, OR.
    tokens = re.findall(r"[A-Za-z_]\w*|[01]|[!'^&*|+()]", function)

    def unary() -> int:
        token = tokens.pop(0)
        if token == "!":
            return unary() ^ ones
        if token == "(":
            value = either()
            tokens.pop(0)
        else:
            value = {"0": 0, "1": ones}[token] if token in "01" else pins[token]
        while tokens and tokens[0] == "'":
            tokens.pop(0)
            value ^= ones
        return value

    def differing() -> int:
        value = unary()
        while tokens and tokens[0] == "^":
            tokens.pop(0)
            value ^= unary()
        return value

    def both() -> int:
        value = differing()
        while tokens and tokens[0] not in ("|", "+", ")"):
            if tokens[0] in ("&", "*"):  # operands with only a space between are ANDed, too
                tokens.pop(0)
            value &= differing()
        return value

    def either() -> int:
        value = both()
        while tokens and tokens[0] in ("|", "+"):
            tokens.pop(0)
            value |= both()
        return value

    return either()


@dataclass(frozen=True)
class Multiplier:
    """Multiplier of two signed operands of ``width`` bits, in cells of a library."""

    library: Library
    width: int
    ports: dict[str, list[int]]
    """Nets of a, b and y, the lowest bit first."""
    gates: list[tuple[Cell, dict[str, int | str]]]
    """Cells, each with the net of every pin."""

    @classmethod
    def of(cls, liberty: Path, width: int) -> "Multiplier":
        """Map a multiplier to a liberty file. Raises ``LibertyError``."""
        try:
            text = liberty.read_text(errors="replace")
        except OSError as error:
            raise LibertyError(f"cannot read {liberty}: {error.strerror}") from error
        try:
            library = Library.read(text)
        except LibertyError as error:
            raise LibertyError(f"{liberty} {error}") from None
        except (ValueError, IndexError) as error:
            raise LibertyError(f"{liberty} has a value that cannot be read: {error}") from None
        with TemporaryDirectory(prefix="trainwright-liberty-") as name:
            folder = Path(name)
            (folder / "cells.lib").write_text(text)
            design = _PRODUCT.format(top=width - 1, top2=2 * width - 1)
            (folder / "product.v").write_text(design)
            done = subprocess.run(
                [*yosys_command(), "-q", "-p", _SCRIPT], cwd=folder, capture_output=True, text=True
            )
            netlist = folder / "product.json"
            if done.returncode or not netlist.exists():
                said = (done.stderr + done.stdout).strip().splitlines() or ["no message"]
                raise LibertyError(
                    f"yosys cannot map a multiplier to {liberty}, which needs a buffer, an "
                    f"inverter and a NAND or NOR at least: {said[-1]}"
                )
            module = json.loads(netlist.read_text())["modules"]["product"]
        gates = []
        for gate in module["cells"].values():
            if gate["type"] not in library.cells:
                raise LibertyError(
                    f"yosys needs the cell {gate['type']}: add it to {liberty} as a combinational "
                    "cell"
                )
            nets = {pin: bits[0] for pin, bits in gate["connections"].items()}
            gates.append((library.cells[gate["type"]], nets))
        ports = {name: port["bits"] for name, port in module["ports"].items()}
        return cls(library, width, ports, gates)

    def waves(
        self, left: npt.NDArray[np.int64], right: npt.NDArray[np.int64]
    ) -> dict[int | str, int]:
        """Return the value of each net, an integer with one bit for each pair of operands."""
        ones = (1 << len(left)) - 1
        values: dict[int | str, int] = {"0": 0, "1": ones, "x": 0}  # unused bits count as 0
        for port, words in (("a", left), ("b", right)):
            for place, net in enumerate(self.ports[port]):
                bits = np.packbits((words >> place & 1).astype(np.uint8), bitorder="little")
                values[net] = int.from_bytes(bits.tobytes(), "little")
        drivers = {
            nets[pin]: n for n, (cell, nets) in enumerate(self.gates) for pin in cell.functions
        }
        needs = {
            n: {drivers[net] for net in nets.values() if net in drivers} - {n}
            for n, (_, nets) in enumerate(self.gates)
        }
        # Each cell is evaluated after the cells that drive its inputs.
        for n in TopologicalSorter(needs).static_order():
            cell, nets = self.gates[n]
            pins = {pin: values[net] for pin, net in nets.items() if pin not in cell.functions}
            for pin, function in cell.functions.items():
                if pin in nets:
                    values[nets[pin]] = evaluated(function, pins, ones)
        return values

    def energy(
        self, left: npt.NDArray[np.int64], right: npt.NDArray[np.int64]
    ) -> tuple[float, float]:
        """Return the mean joules of a multiplication, low and high, for operands in this order.

        A toggle takes the internal energy of its cell, and charges the pins that the cell drives.
        """
        values, moves = self.waves(left, right), len(left) - 1
        loads: dict[int | str, float] = {}
        for cell, nets in self.gates:
            for pin, net in nets.items():
                if pin not in cell.functions:
                    loads[net] = loads.get(net, 0.0) + cell.farads.get(pin, 0.0)
        low = high = 0.0
        for cell, nets in self.gates:
            for pin in cell.functions.keys() & nets.keys():
                value = values[nets[pin]]
                # The last multiplication has no next one, and so no toggle.
                toggles = ((value ^ value >> 1) & ((1 << moves) - 1)).bit_count()
                charge = loads.get(nets[pin], 0.0) * self.library.volts**2 / 2
                low += toggles * (cell.joules[pin][0] + charge)
                high += toggles * (cell.joules[pin][1] + charge)
        return low / max(1, moves), high / max(1, moves)


def multiplication_energy(
    liberty: Path, width: int, operands: Sequence[Operands]
) -> tuple[float, float, int]:
    """Return joules of a multiplication, low and high, and the number of cells.

    ``operands`` has the pairs of each array; an array weighs by its number of pairs.
    """
    multiplier = Multiplier.of(liberty, width)
    low, high = np.average(
        [multiplier.energy(left, right) for left, right in operands],
        axis=0, weights=[len(left) for left, _ in operands],
    )  # fmt: skip
    return float(low), float(high), len(multiplier.gates)

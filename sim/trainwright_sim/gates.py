"""Estimate the energy of multiplications from toggles in the cells of a liberty file.

yosys maps a multiplier of the arrays to the file's cells. Verilator simulates it, without delays,
and writes a SAIF file with the toggles of every net. Glitches, wires and registers are omitted.
"""

import ctypes
import json
import os
import re
import subprocess
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt

from trainwright.support.errors import UserError
from trainwright_hw.build.convert import TOP, yosys_command
from trainwright_sim.build import build
from trainwright_sim.engines import SAIF

Operands = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]
"""First and second operand of each multiplication of an array."""
_TOKEN = re.compile(r'"(?P<text>[^"]*)"|(?P<mark>[(){}:;,])|(?P<word>[^\s(){}:;,"]+)')
_COMMENT = re.compile(r"/\*.*?\*/|\\[ \t]*\r?\n", re.S)
_OPEN_END = re.compile(r'(:[ \t]*(?:"[^"\n]*"|[\w.+-]+))[ \t\r]*$', re.M)
"""Value at the end of a line that lacks its semicolon, as in files of ASAP7."""
_UNIT = {"ff": 1e-15, "pf": 1e-12}
"""Farads of each unit of capacitance."""
_PRODUCT = """module {name}(input signed [{top}:0] a, b, output signed [{top2}:0] y);
assign y = a * b;
endmodule
"""
_SCRIPT = (
    f"read_verilog product.v; synth -flatten -top {TOP}; abc -liberty cells.lib; opt_clean; "
    "rename -enumerate -pattern g%; read_liberty -ignore_miss_func -ignore_miss_dir "
    f"-ignore_miss_data_latch -ignore_buses cells.lib; hierarchy -top {TOP}; "
    "write_rtlil product.il; write_json product.json"
)
"""Mapping; ``read_liberty`` makes a module of each cell from its functions."""
_SAIF_LINE = re.compile(r"\(INSTANCE (\S+)|\((\S+) \(T0.*\(TC (\d+)\)\)")
"""Line of a SAIF file: an instance, or a pin with its number of toggles."""


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
    text = _OPEN_END.sub(r"\1;", _COMMENT.sub(" ", text))
    tokens = [(m.lastgroup, m[m.lastgroup or 0]) for m in _TOKEN.finditer(text)]
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
    libraries = list(root.of_kind("library"))
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
    """Least and largest internal energy of a toggle of each output pin."""


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
        scale = re.fullmatch(
            r"([\d.]+) *(m?)V", library.attributes.get("voltage_unit", ["1V"])[0], re.I
        )
        if scale is None:
            raise LibertyError("has a voltage_unit other than V and mV")
        volt = float(scale[1]) * (1e-3 if scale[2] else 1)
        pin_farads = library.number("default_input_pin_cap") or 0.0
        cells = {
            cell.arguments[0]: _cell(cell, farad, volt, pin_farads)
            for cell in library.of_kind("cell")
            if not any(cell.of_kind("ff", "latch", "statetable"))
        }
        if not any(max(ends) > 0 for cell in cells.values() for ends in cell.joules.values()):
            raise LibertyError("gives no energies: no output pin has internal_power above 0")
        return cls(cells, volts * volt)


def _cell(cell: Group, farad: float, volt: float, pin_farads: float) -> Cell:
    functions, farads, joules = {}, {}, {}
    for pin in cell.of_kind("pin"):
        # A toggle is a rise or a fall, in turn, and takes their mean. One table may have the
        # energy to charge the load, which the other table subtracts (SKY130).
        energies: dict[tuple[str, ...], Any] = defaultdict(float)
        for power in pin.of_kind("internal_power"):
            key = tuple(power.attributes.get(name, [""])[0] for name in ("related_pin", "when"))
            # Each supply pin has its own group: their energies add up.
            energies[key] += sum(
                np.array(" ".join(table.attributes["values"]).replace(",", " ").split(), float)
                / (1 if table.kind == "power" else 2)
                for table in power.of_kind("rise_power", "fall_power", "power")
            )
        ends = [
            farad * volt**2 * float(f(table))
            for table in energies.values()
            for f in (np.min, np.max)
        ]
        for name in pin.arguments:
            capacitance = pin.number("capacitance")
            farads[name] = farad * (pin_farads if capacitance is None else capacitance)
            if "function" in pin.attributes:
                functions[name] = pin.attributes["function"][0]
                joules[name] = (min(ends), max(ends)) if ends else (0.0, 0.0)
    return Cell(functions, farads, joules)


@dataclass(frozen=True)
class Multiplier:
    """Multiplier of two signed operands of ``width`` bits, in cells of a library."""

    library: Library
    width: int
    gates: dict[str, tuple[Cell, dict[str, int | str]]]
    """Cells by instance, each with the net of every pin."""
    rtlil: str = field(repr=False)
    """Design of these instances, with a module for each cell."""
    build: Callable[..., Path] = build
    """``trainwright_sim.build.build``, with its options."""

    @classmethod
    def of(cls, liberty: Path, width: int, build: Callable[..., Path] = build) -> "Multiplier":
        """Map a multiplier to a liberty file. Raises ``LibertyError``."""
        try:
            text = liberty.read_text(errors="replace")
        except OSError as error:
            raise LibertyError(f"cannot read {liberty}: {error.strerror}") from error
        try:
            library = Library.read(text)
        except LibertyError as error:
            raise LibertyError(f"{liberty} {error}") from None
        except (ValueError, LookupError) as error:
            raise LibertyError(f"{liberty} has a value that cannot be read: {error}") from None
        with TemporaryDirectory(prefix="trainwright-liberty-") as name:
            folder = Path(name)
            (folder / "cells.lib").write_text(text)
            design = _PRODUCT.format(name=TOP, top=width - 1, top2=2 * width - 1)
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
            module = json.loads(netlist.read_text())["modules"][TOP]
            rtlil = (folder / "product.il").read_text()
        gates = {}
        for name, gate in module["cells"].items():
            if gate["type"] not in library.cells:
                raise LibertyError(
                    f"yosys needs the cell {gate['type']}: add it to {liberty} as a combinational "
                    "cell"
                )
            nets = {pin: bits[0] for pin, bits in gate["connections"].items()}
            gates[name] = library.cells[gate["type"]], nets
        return cls(library, width, gates, rtlil, build)

    def saif(self, left: npt.NDArray[np.int64], right: npt.NDArray[np.int64]) -> str:
        """Simulate these pairs in their order; return the SAIF file that Verilator writes."""
        a, b = (np.array(side & (1 << self.width) - 1, np.uint32) for side in (left, right))
        library = ctypes.CDLL(str(self.build(self.rtlil, engine=SAIF.name)))
        with TemporaryDirectory(prefix="trainwright-saif-") as folder:
            path = Path(folder) / "product.saif"
            library.trainwright_saif(
                os.fsencode(path), ctypes.c_uint64(len(a)),
                a.ctypes.data_as(ctypes.c_void_p), b.ctypes.data_as(ctypes.c_void_p),
            )  # fmt: skip
            return path.read_text()

    def toggles(
        self, left: npt.NDArray[np.int64], right: npt.NDArray[np.int64]
    ) -> tuple[dict[tuple[str, str], int], str]:
        """Return the toggles of each instance's pins between these pairs, and the SAIF file."""
        saif = self.saif(left, right)
        # Verilator also counts a net whose first value is 1 as a toggle.
        initial = _counts(self.saif(left[:1], right[:1]))
        return {pin: count - initial[pin] for pin, count in _counts(saif).items()}, saif

    def energy(
        self, left: npt.NDArray[np.int64], right: npt.NDArray[np.int64]
    ) -> tuple[float, float, str]:
        """Return the mean joules of a multiplication, low and high, and the SAIF file.

        A toggle takes the internal energy of its cell, and charges the pins that the cell drives.
        """
        toggles, saif = self.toggles(left, right)
        loads: dict[int | str, float] = defaultdict(float)
        for cell, nets in self.gates.values():
            for pin in nets.keys() - cell.functions.keys():
                loads[nets[pin]] += cell.farads.get(pin, 0.0)
        energies = [0.0, 0.0]
        for instance, (cell, nets) in self.gates.items():
            for pin in cell.functions.keys() & nets.keys():
                charge = loads[nets[pin]] * self.library.volts**2 / 2
                for end, joules in enumerate(cell.joules[pin]):
                    energies[end] += toggles[instance, pin] * (joules + charge)
        # The last multiplication has no next one, and so no toggle.
        low, high = (joules / max(1, len(left) - 1) for joules in energies)
        return low, high, saif


def _counts(saif: str) -> dict[tuple[str, str], int]:
    """Return the toggle counts (TC) of a SAIF file by instance and pin."""
    counts, instance = {}, ""
    for name, pin, count in _SAIF_LINE.findall(saif):
        if name:
            instance = name
        else:
            counts[instance, pin] = int(count)
    return counts


def multiplication_energy(
    liberty: Path, width: int, operands: Sequence[Operands], build: Callable[..., Path] = build
) -> tuple[float, float, int, list[str]]:
    """Return joules of a multiplication, low and high, the number of cells, and SAIF files.

    ``operands`` has the pairs of each array; an array weighs by its number of pairs.
    """
    multiplier = Multiplier.of(liberty, width, build)
    measured = [multiplier.energy(left, right) for left, right in operands]
    low, high = np.average(
        [(low, high) for low, high, _ in measured],
        axis=0, weights=[len(left) for left, _ in operands],
    )  # fmt: skip
    return float(low), float(high), len(multiplier.gates), [saif for _, _, saif in measured]

"""Check a synthesised netlist: known clocks only, and every crossing guarded."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

GOWIN_FLIP_FLOPS = tuple(
    f"DFF{edge}{reset}{enable}"
    for edge in ("", "N")
    for reset in ("", "S", "R", "P", "C")
    for enable in ("", "E")
)
"""Registers of a Gowin part, whose names tell enable and reset."""
NEXUS_FLIP_FLOPS = ("FD1P3BX", "FD1P3DX", "FD1P3IX", "FD1P3JX")
XC7_FLIP_FLOPS = tuple(f"FD{kind}E{edge}" for kind in ("R", "S", "C", "P") for edge in ("", "_1"))
FLIP_FLOPS = {"TRELLIS_FF": ("DI", "M")} | dict.fromkeys(
    (*GOWIN_FLIP_FLOPS, *NEXUS_FLIP_FLOPS, *XC7_FLIP_FLOPS), ("D",)
)
"""Registers, and the inputs that are stored."""
CLOCK_PORTS = {
    **dict.fromkeys(("TRELLIS_FF", *GOWIN_FLIP_FLOPS), ("CLK",)),
    **dict.fromkeys(NEXUS_FLIP_FLOPS, ("CK",)),
    **dict.fromkeys(XC7_FLIP_FLOPS, ("C",)),
    "TRELLIS_DPR16X4": ("WCK",),
    "DP16KD": ("CLKA", "CLKB"),
    "MULT18X18D": ("CLK0", "CLK1", "CLK2", "CLK3"),
    "IDDRX1F": ("SCLK",),
    "ODDRX1F": ("SCLK",),
    **dict.fromkeys(("RAM16SDP1", "RAM16SDP2", "RAM16SDP4", "SP", "SPX9"), ("CLK",)),
    **dict.fromkeys(("SDPB", "SDPX9B", "DPB", "DPX9B"), ("CLKA", "CLKB")),
    "MULTALU27X18": ("CLK",),
    "DPR16X4": ("WCK",),
    "PDP16K": ("CLKW", "CLKR"),
    "PDPSC16K": ("CLK",),
    "DP16K": ("CLKA", "CLKB"),
    **dict.fromkeys(("MULT9X9", "MULT18X18", "MULT18X36", "MULT36X36"), ("CLK",)),
    **dict.fromkeys(("RAM32M", "RAM64M", "RAM32X1D", "RAM64X1D", "RAM128X1D"), ("WCLK",)),
    **dict.fromkeys(("RAMB18E1", "RAMB36E1"), ("CLKARDCLK", "CLKBWRCLK")),
    **dict.fromkeys(("SRL16E", "SRLC32E", "DSP48E1"), ("CLK",)),
}
"""Clock inputs of the cells of an ECP5, a GW5A, a CrossLink-NX and an Artix-7."""
CONSTANTS = {"GND": ("G",), "VCC": ("V",), "VLO": ("Z",), "VHI": ("Z",)}
LATCH = re.compile(r".*LATCH.*|DLN?[CP]?E?", re.IGNORECASE)
PLL_OUTPUTS = {"EHXPLLL": ("CLKOP", "CLKOS", "CLKOS2", "CLKOS3"), "MMCME2_BASE": ("CLKOUT0",)}
CLOCK_BUFFERS = {"BUFG"}
INPUT_BUFFERS = {"IBUF", "IB"}


@dataclass(frozen=True)
class Crossing:
    """An input that is not clocked by the design, and what takes it."""

    source: str
    register: str
    guarded: bool
    """Whether the register is a synchroniser, or the register in a bidirectional pad.

    A synchroniser feeds exactly one other register. Data at a bidirectional pad is in time with a
    clock that the design itself sends, and the sampling edge was chosen to match (``SdramTiming``).
    """


class Netlist:
    """A flat netlist of a part's cells, as yosys writes it in JSON."""

    def __init__(self, document: Mapping[str, Any], top: str):
        module = document["modules"][top]
        self.cells: dict[str, Any] = module["cells"]
        self.ports: dict[str, Any] = module["ports"]
        self._names: dict[int | str, str] = {
            bit: name
            for name, net in sorted(module["netnames"].items(), key=lambda n: -len(n[0]))
            for bit in net["bits"]
            if isinstance(bit, int)  # a net with a constant bit does not name the constant
        }

    @classmethod
    def read(cls, path: Path, top: str) -> "Netlist":
        """Read a netlist from a file of yosys' ``write_json``."""
        return cls(json.loads(path.read_text()), top)

    def name(self, bit: int | str) -> str:
        """Return the shortest name of a net."""
        return self._names.get(bit, str(bit))

    def clocks(self) -> set[str]:
        """Return the names of the nets that clock anything; a constant is named by its digit."""
        names = set()
        for cell in self.cells.values():
            for port in CLOCK_PORTS.get(cell["type"], ()):
                names |= {self.name(bit) for bit in cell["connections"].get(port, ())}
        constants = {self.name(bit) for bit in self._constants()}
        return names - constants - {"0", "1", "x"}

    def _constants(self) -> Iterator[int | str]:
        """Yield nets that cells drive with a constant, as in a Gowin part."""
        for cell in self.cells.values():
            for port in CONSTANTS.get(cell["type"], ()):
                yield from cell["connections"][port]

    def constrained(self, clock_inputs: set[str]) -> set[str]:
        """Return the names of clocks with a known frequency: some inputs, and PLL outputs."""
        bits = [self._inside(bit) for port in clock_inputs for bit in self.ports[port]["bits"]]
        for cell in self.cells.values():
            for port in PLL_OUTPUTS.get(cell["type"], ()):
                bits += cell["connections"].get(port, ())
        for cell in self.cells.values():
            if cell["type"] in CLOCK_BUFFERS and cell["connections"]["I"][0] in bits:
                bits += cell["connections"]["O"]
        return {self.name(bit) for bit in bits}

    def latches(self) -> list[str]:
        """Return the names of the cells that are latches."""
        return [name for name, cell in self.cells.items() if LATCH.fullmatch(cell["type"])]

    def crossings(self, clock_inputs: set[str]) -> list[Crossing]:
        """Return the registers that take an input of the top other than a clock."""
        readers = self._readers()
        crossings = []
        for port, data in self.ports.items():
            if data["direction"] == "output" or port in clock_inputs:
                continue
            both = data["direction"] == "inout"
            for bit in data["bits"]:
                for cell, pin in readers.get(
                    self._buffered(bit) if both else self._inside(bit), ()
                ):
                    guarded = (
                        self.cells[cell]["type"] == "IDDRX1F" and pin == "D"
                        if both
                        else self._guards(cell, pin, readers)
                    )
                    crossings.append(Crossing(port, cell, guarded))
        return crossings

    def _buffered(self, bit: int) -> int | None:
        """Return the net that the input buffer of a bidirectional pin drives."""
        for cell in self.cells.values():
            if cell["type"] == "TRELLIS_IO" and cell["connections"]["B"] == [bit]:
                return next(iter(cell["connections"].get("O", ())), None)
        return None

    def _inside(self, bit: int) -> int:
        """Return the net that an input pin's buffer drives, or the pin's own net."""
        for cell in self.cells.values():
            if cell["type"] in INPUT_BUFFERS and cell["connections"]["I"] == [bit]:
                return cell["connections"]["O"][0]
        return bit

    def _stores(self, cell: str, pin: str) -> bool:
        return pin in FLIP_FLOPS.get(self.cells[cell]["type"], ())

    def _guards(self, cell: str, pin: str, readers: Mapping[Any, list]) -> bool:
        if not self._stores(cell, pin):
            return False
        outputs = self.cells[cell]["connections"]["Q"]
        followers = [reader for bit in outputs for reader in readers.get(bit, ())]
        return len(followers) == 1 and all(self._stores(name, pin) for name, pin in followers)

    def _readers(self) -> dict[Any, list[tuple[str, str]]]:
        readers: dict[Any, list[tuple[str, str]]] = {}
        for name, pin, bit in self._inputs():
            readers.setdefault(bit, []).append((name, pin))
        return readers

    def _inputs(self) -> Iterator[tuple[str, str, Any]]:
        for name, cell in self.cells.items():
            for pin, direction in cell["port_directions"].items():
                if direction == "input":
                    for bit in cell["connections"].get(pin, ()):
                        if not isinstance(bit, str):
                            yield name, pin, bit


def complaints(netlist: Netlist, *, clock_inputs: set[str]) -> list[str]:
    """Return what is wrong with a netlist.

    That is: latches, clocks of unknown frequency, more than one clock, and inputs other than
    ``clock_inputs`` that reach anything without a synchroniser.
    """
    clocks = netlist.clocks()
    messages = [f"latch {name}" for name in netlist.latches()]
    unknown = sorted(clocks - netlist.constrained(clock_inputs))
    messages += [f"unconstrained clock {name}" for name in unknown]
    if len(clocks) > 1:
        messages.append(
            f"{len(clocks)} clocks ({', '.join(sorted(clocks))}), and no check of paths"
        )
    messages += [
        f"input {c.source} reaches {c.register} without a synchroniser"
        for c in netlist.crossings(clock_inputs)
        if not c.guarded
    ]
    return messages

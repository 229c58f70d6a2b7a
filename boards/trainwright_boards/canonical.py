"""Netlists reduced to functions and connections, the form in which two of them are compared.

The form omits places, names of nets, undefined nets at unused inputs, settings that have no effect
on a register, and the tools' notes on the origin of a cell. A register inside a block RAM becomes a
cell behind the block RAM, as an ECP5's works: the RAM's output passes it in every cycle, and it
begins as 0.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

NOTES = frozenset(
    ("src", "hdlname", "module_not_derived", "BEL", "NEXTPNR_BEL", "BEL_STRENGTH", "keep")
)
"""Attributes that say nothing of what a cell does."""
NOTHING = "$scopeinfo"
"""Type of cells that are mere notes."""
REGISTER = "TRELLIS_FF"
_DEFAULTS = {
    "CEMUX": "1",
    "CLKMUX": "CLK",
    "GSR": "ENABLED",
    "LSRMUX": "LSR",
    "REGSET": "RESET",
    "SRMODE": "LSR_OVER_CE",
}
BLOCK_RAM = "DP16KD"
PARITY_WORD, HALF = 36, 18
"""The width at which both ports' outputs belong to port B; pins of a port."""
_OFF, _ON = ("0",), ("1",)

Net = int | str
"""A number, "0" or "1"; or the name of a net that is in this form alone."""


class Cell(NamedTuple):
    """A cell's type and the nets at its pins, in the order of the pin names."""

    name: str
    kind: tuple
    """Type, parameters and attributes; equal for cells that do the same."""
    inputs: tuple[tuple[str, Net], ...]
    """Input pins with their nets; pins without a net are left out."""
    outputs: tuple[tuple[str, Net], ...]
    pads: tuple[tuple[str, Net], ...]
    """Pins that are input and output."""


class Machine:
    """A netlist as cells and nets, read from yosys' ``write_json`` or nextpnr's ``--write``.

    ``ports`` maps each port to its direction and nets. ``drivers`` maps a net to the number of the
    cell and the pin that drive it. ``sources`` maps nets that come from outside to names that are
    the same in every netlist. The module is copied, so it may change afterwards. Raises
    ``ValueError`` for a net with two drivers.
    """

    def __init__(self, module: Mapping[str, Any]):
        self.ports: dict[str, tuple[str, tuple[Net, ...]]] = {
            name: (port["direction"], tuple(port["bits"]))
            for name, port in sorted(module["ports"].items())
        }
        self.cells = [
            cell
            for name, raw in module["cells"].items()
            if raw["type"] != NOTHING
            for cell in _cells(name, raw)
        ]
        pads = {net for cell in self.cells for _, net in cell.pads}
        self.sources: dict[Net, str] = {"0": "0", "1": "1"}
        for name, (direction, nets) in self.ports.items():
            for n, net in enumerate(nets):
                if direction != "output" or net in pads:
                    self.sources[net] = f"{name}[{n}]"
        self.drivers: dict[Net, tuple[int, str]] = {}
        for number, cell in enumerate(self.cells):
            for pin, net in cell.outputs:
                if net in self.drivers or net in self.sources:
                    raise ValueError(f"{self.driver(net)} and {cell.name}.{pin} drive one net")
                self.drivers[net] = number, pin
        known = self.drivers.keys() | self.sources.keys()
        for number, cell in enumerate(self.cells):
            inputs, pads = (tuple(p for p in pins if p[1] in known) for pins in cell[2:5:2])
            self.cells[number] = cell._replace(inputs=inputs, pads=pads)

    def driver(self, net: Net) -> str:
        """Return what drives a net, as text for people."""
        if net in self.sources:
            return self.sources[net]
        if net not in self.drivers:
            return "nothing"
        number, pin = self.drivers[net]
        return f"{self.cells[number].name}.{pin}"


def _cells(name: str, raw: Mapping[str, Any]) -> Iterator[Cell]:
    """Yield one cell, and another cell for each register inside a block RAM."""
    parameters = {key: str(value).strip() for key, value in raw["parameters"].items()}
    notes = {key: str(value) for key, value in raw["attributes"].items() if key not in NOTES}
    pins: dict[str, dict[str, Net]] = {"input": {}, "output": {}, "inout": {}}
    for port, bits in raw["connections"].items():
        nets = pins[raw["port_directions"][port]]
        for place, bit in enumerate(bits):
            if bit not in ("x", "z"):
                nets[port if len(bits) == 1 else f"{port}[{place}]"] = bit
    if raw["type"] == REGISTER:
        _without_what_is_unused(parameters, pins["input"])
    elif raw["type"] == BLOCK_RAM:
        yield from _registers_inside(name, parameters, pins)
    yield _cell(name, raw["type"], parameters, notes, pins)


def _cell(name: str, kind: str, parameters: Mapping, notes: Mapping, pins: Mapping) -> Cell:
    what = kind, tuple(sorted(parameters.items())), tuple(sorted(notes.items()))
    nets = (tuple(sorted(pins[way].items())) for way in ("input", "output", "inout"))
    return Cell(name, what, *nets)


def _without_what_is_unused(parameters: dict[str, str], inputs: dict[str, Net]) -> None:
    """Remove a register's enable if it is always on, and its reset if it is always off."""
    parameters |= {name: parameters.get(name, value) for name, value in _DEFAULTS.items()}
    if parameters["CEMUX"] == "1" or (parameters["CEMUX"] == "CE" and inputs.get("CE") == "1"):
        parameters["CEMUX"] = "1"
        inputs.pop("CE", None)
    if parameters["LSRMUX"] == "LSR" and inputs.get("LSR", "0") == "0":
        del parameters["LSRMUX"], parameters["SRMODE"]
        inputs.pop("LSR", None)


def _registers_inside(name: str, parameters: dict[str, str], pins: dict) -> Iterator[Cell]:
    """Yield the output registers inside a block RAM as cells, and take them out of it.

    Only registers without an enable and without a reset are taken out.
    """
    inputs = pins["input"]
    if any(inputs.get(f"RST{side}") != "0" for side in "AB"):
        return
    modes = [parameters.get(f"REGMODE_{side}") for side in "AB"]
    wide = int(parameters.get("DATA_WIDTH_B", "0"), 2) == PARITY_WORD
    for sides in ("AB",) if wide else ("A", "B"):
        clock, enable = (inputs.get(f"{pin}{sides[-1]}") for pin in ("CLK", "OCE"))
        mode = {modes["AB".index(side)] for side in sides}
        if mode != {"OUTREG"} or enable != "1" or clock is None:
            continue
        parameters |= {f"REGMODE_{side}": "NOREG" for side in sides}
        settings = _DEFAULTS | {
            "GSR": parameters.get("GSR", _DEFAULTS["GSR"]),
            "CLKMUX": "CLK" if parameters.get(f"CLK{sides[-1]}MUX") == f"CLK{sides[-1]}" else "?",
        }
        for pin in [f"DO{side}{n}" for side in sides for n in range(HALF)]:
            if (delayed := pins["output"].get(pin)) is not None:
                pins["output"][pin] = early = f"{name}.{pin}"
                register = {"input": {"CLK": clock, "DI": early}, "output": {"Q": delayed}}
                own = dict(settings)
                _without_what_is_unused(own, register["input"])
                yield _cell(f"{name}.{pin}'s register", REGISTER, own, {}, register | {"inout": {}})

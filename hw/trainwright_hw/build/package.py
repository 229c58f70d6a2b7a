"""The accelerator as an IP core: AXI ports complete, grouped by interface, marked for tools."""

import re
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import count

from amaranth.hdl import ClockDomain, Const, Elaboratable, Module, Signal
from amaranth.lib.wiring import Flow, In, Out

from trainwright.parameters import AcceleratorParameters
from trainwright.support.waiting import waiting
from trainwright_hw.accelerator import Accelerator, accelerator_signature
from trainwright_hw.arith.multiplier import DevicePlatform
from trainwright_hw.build.convert import (
    TOP,
    design_to_rtlil,
    flat_ports,
    rtlil_to_verilog,
)

REQUEST_CONSTANTS = {"lock": (1, 0), "cache": (4, 0b0011), "prot": (3, 0), "qos": (4, 0)}
"""Width and value of the AXI4 request signals that never change.

No exclusive access, bufferable but not cached, data access of the lowest privilege, no priority.
"""
INTERRUPT = "irq"
"""Name of the interrupt port.

The component calls it ``interrupt``, a word of C++ that Verilator warns of.
"""
INTERFACES = {
    "clk": ("signal:clock", "CLK", "ASSOCIATED_BUSIF m_axi:s_axil, ASSOCIATED_RESET rst"),
    "rst": ("signal:reset", "RST", "POLARITY ACTIVE_HIGH"),
    INTERRUPT: ("signal:interrupt", "INTERRUPT", "SENSITIVITY LEVEL_HIGH"),
    "s_axil": ("interface:aximm", "AWADDR", "PROTOCOL AXI4LITE, DATA_WIDTH 32, ADDR_WIDTH 16"),
    "m_axi": ("interface:aximm", "AWADDR", "PROTOCOL AXI4"),
}
"""Interfaces in the order of the ports.

For each: its type in Vivado's library, the signal that carries the parameters, and the parameters.
"""
LINT = {
    "DECLFILENAME": "the file has all modules and is named by the user",
    "PROCASSINIT": "registers have a value at power-up, which FPGAs configure, and change after it",
    "UNUSEDSIGNAL": "carries, AXI's protection bits and address bits within a word, fields of a "
    "command that go to other engines",
    "WIDTHEXPAND": "sums and comparisons of unequal widths: Verilog extends the shorter operand",
    "WIDTHTRUNC": "sums and shifts whose upper bits are not needed: Verilog cuts them",
}
"""Warnings of ``verilator --lint-only -Wall`` that the Verilog keeps, with the reason of each."""
CHANNELS = ("aw", "w", "b", "ar", "r")
"""Channels of AXI, in the order of the ports."""
_WIRE = re.compile(
    r"(?P<head>  wire (?:width \d+ )?(?:input|output) )\d+(?P<tail> +\\(?P<name>\w+))"
)

_MEMORY = re.compile(
    r"^  reg (?:\[\d+:0\] )?(?P<name>\\\S+ |\w+ )\[(?P<last>\d+):0\];\n(?!  initial begin)",
    re.MULTILINE,
)
"""Declaration of a memory in Verilog that no contents follow."""


@dataclass(frozen=True)
class Port:
    """A port of the packaged accelerator."""

    name: str
    flow: Flow
    width: int
    constant: int | None = None
    """Value of an output that never changes."""

    @property
    def direction(self) -> str:
        """Direction in Verilog: input or output."""
        return "input" if self.flow == In else "output"

    @property
    def interface(self) -> str:
        """Member of ``INTERFACES`` that the port belongs to."""
        return next(name for name in INTERFACES if f"{self.name}_".startswith(f"{name}_"))

    @property
    def signal(self) -> str:
        """Name of the signal in its interface, in lower case."""
        return self.name.removeprefix(self.interface).removeprefix("_")


def package_ports(parameters: AcceleratorParameters) -> list[Port]:
    """List every port, interface by interface and channel by channel."""
    signature = accelerator_signature(parameters)
    ports = [Port("clk", In, 1), Port("rst", In, 1)]
    for name, (flow, value) in flat_ports(signature, signature.create()).items():
        ports.append(Port(INTERRUPT if name == "interrupt" else name, flow, len(value)))
    for channel in ("aw", "ar"):
        for field, (width, value) in REQUEST_CONSTANTS.items():
            ports.append(Port(f"m_axi_{channel}{field}", Out, width, value))
    return sorted(ports, key=_place)


def _place(port: Port) -> tuple[int, int]:
    """Return interface and channel of a port as sort keys."""
    channels = [n for n, name in enumerate(CHANNELS) if port.signal.startswith(name)]
    return [*INTERFACES].index(port.interface), channels[0] if channels else 0


def port_list(parameters: AcceleratorParameters) -> list[dict]:
    """List ``name``, ``direction`` ("input" or "output") and ``width`` of the module's ports."""
    return [
        {"name": p.name, "direction": p.direction, "width": p.width}
        for p in package_ports(parameters)
    ]


class PackagedAccelerator(Elaboratable):
    """The accelerator behind ``package_ports``; ``ports`` holds their signals by name.

    As in ``RegisteredReset``, ``rst`` takes effect a cycle later, and the first cycle is a reset.
    Bits of ``memory_base`` are set in every address of ``m_axi``: the accelerator's memory, from
    address 0 for its programs, is a part of the bus' address space.
    """

    def __init__(self, parameters: AcceleratorParameters, memory_base: int = 0):
        self._parameters, self._memory_base = parameters, memory_base
        self.ports = {p.name: Signal(p.width, name=p.name) for p in package_ports(parameters)}

    def elaborate(self, platform) -> Module:
        m = Module()
        m.domains.pin = pin = ClockDomain("pin", reset_less=True)
        m.domains.sync = sync = ClockDomain("sync")
        pin.clk = sync.clk = self.ports["clk"]
        sync.rst = Signal(init=1, name="reset")
        m.d.pin += sync.rst.eq(self.ports["rst"])
        m.submodules.accelerator = accelerator = Accelerator(self._parameters)
        inner = {n: v for n, (_, v) in flat_ports(accelerator.signature, accelerator).items()}
        inner[INTERRUPT] = inner.pop("interrupt")
        for port in package_ports(self._parameters):
            outer = self.ports[port.name]
            if port.constant is not None:
                m.d.comb += outer.eq(Const(port.constant, port.width))
            elif port.name in inner:
                to, source = (
                    (inner[port.name], outer) if port.flow == In else (outer, inner[port.name])
                )
                # OR, as constant bits take no LUTs, where an adder would.
                is_address = port.name in ("m_axi_araddr", "m_axi_awaddr")
                m.d.comb += to.eq(source | self._memory_base if is_address else source)
        return m


def package_rtlil(
    parameters: AcceleratorParameters,
    *,
    target: DevicePlatform | None = None,
    memory_base: int = 0,
) -> str:
    """Convert the packaged accelerator to RTLIL text, top module ``TOP``, with marked ports.

    Raises ``ValueError`` for a ``memory_base`` that is no multiple of 4 KiB within the addresses.
    """
    if not 0 <= memory_base < 1 << parameters.address_width or memory_base % 4096:
        raise ValueError(
            f"a base of the memory is a multiple of 4096 below 2^{parameters.address_width}, not "
            f"{memory_base:#x}"
        )
    top = PackagedAccelerator(parameters, memory_base)
    text = design_to_rtlil(top, [*top.ports.values()], name=TOP, target=target)
    return _with_marked_ports(text, package_ports(parameters))


def package_verilog(
    parameters: AcceleratorParameters,
    *,
    target: DevicePlatform | None = None,
    memory_base: int = 0,
    system: bool = False,
    progress: Callable[[str], None] | None = None,
) -> str:
    """Write the packaged accelerator as Verilog text.

    See ``package_rtlil`` and ``rtlil_to_verilog`` for the options.
    """
    said = nullcontext() if progress is None else waiting(progress, "converting the accelerator")
    with said:
        rtlil = package_rtlil(parameters, target=target, memory_base=memory_base)
    return _with_zeros(rtlil_to_verilog(rtlil, system=system, progress=progress))


def _with_zeros(text: str) -> str:
    """Let memories without contents start as zeros in simulators.

    No result depends on them, but a simulator of four states computes unknown values from them.
    Synthesis, for which tools define ``SYNTHESIS``, is free to choose.
    """
    numbers, stem = count(), "row"
    while f"\\{stem}." in text:  # words of an array that the design calls so
        stem += "_"

    def zeros(memory: re.Match[str]) -> str:
        row = f"\\{stem}.{next(numbers)} "
        steps = f"{row}= 0; {row}<= {memory['last']}; {row}= {row}+ 1"
        return (
            f"{memory[0]}`ifndef SYNTHESIS\n  integer {row};\n"
            f"  initial for ({steps}) {memory['name']}[{row}] = 0;\n`endif\n"
        )

    return _MEMORY.sub(zeros, text)


def _attributes(port: Port) -> Iterator[str]:
    """Yield lines of RTLIL that tell Vivado which signal of which interface a port is."""
    kind, first, values = INTERFACES[port.interface]
    library, name = kind.split(":")
    signal = port.signal.upper() or first
    info = f"xilinx.com:{library}:{name}:1.0 {port.interface} {signal}"
    yield f'  attribute \\X_INTERFACE_INFO "{info}"'
    if signal == first:
        yield f'  attribute \\X_INTERFACE_PARAMETER "{values}"'


def _with_marked_ports(text: str, ports: list[Port]) -> str:
    """Number the top module's ports in the given order, and add ``_attributes`` to each.

    Amaranth numbers inputs before outputs, which would split every interface.
    """
    number = {port.name: n for n, port in enumerate(ports, 1)}
    by_name = {port.name: port for port in ports}
    begin = text.index(f"\nmodule \\{TOP}\n")
    end = text.index("\nend\n", begin)
    lines, wires = [], {}
    for line in text[begin:end].split("\n"):
        if wire := _WIRE.fullmatch(line):
            name = wire["name"]
            wires[name] = [
                *_attributes(by_name[name]),
                f"{wire['head']}{number[name]}{wire['tail']}",
            ]
        else:
            lines.append(line)
    declared = [line for port in ports for line in wires[port.name]]
    # the module's own line comes first, after the empty string before its line break
    return text[:begin] + "\n".join([*lines[:2], *declared, *lines[2:]]) + text[end:]

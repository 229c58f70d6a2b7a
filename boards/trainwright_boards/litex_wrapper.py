"""Place the accelerator into a LiteX SoC; `trainwright export --for litex` writes this file.

from trainwright_litex import add_trainwright
add_trainwright(soc, origin=0x90000000, memory_base=0x44000000)
"""

from pathlib import Path

from litex.gen import LiteXModule
from litex.soc.integration.soc import SoCRegion
from litex.soc.interconnect import axi
from litex.soc.interconnect.csr_eventmanager import EventManager, EventSourceLevel
from migen import ClockSignal, Instance, ResetSignal, Signal

PORTS: tuple[tuple[str, str, int], ...] = ()
"""Name, direction and width of the Verilog's ports, as the export wrote them."""
EXPORTED_BASE = 0
"""Base of the memory that ``--memory-base`` put into the Verilog."""
REGISTER_BYTES = 0x10000


def _width(name):
    return next(width for port, _, width in PORTS if port == name)


class Trainwright(LiteXModule):
    """The accelerator: its registers ``bus`` (AXI4-Lite), its ``memory`` port (AXI4), its ``irq``.

    The memory of the accelerator's programs, from address 0, is at ``memory_base`` of the bus: a
    multiple of the memory's size, so that both addresses join without a carry. The reset is the
    SoC's, for at least one cycle; the interrupt is high from the end of a run until CONTROL.CLEAR.
    """

    def __init__(self, platform, memory_base=0):
        if memory_base % 4096:
            raise ValueError(f"memory_base must be a multiple of 4096, not {memory_base:#x}")
        if memory_base and memory_base | EXPORTED_BASE != memory_base:
            # both bases are ORed to addresses: neither memory would be the accelerator's
            raise ValueError(
                f"memory_base={memory_base:#x}, but the Verilog was exported with --memory-base "
                f"{EXPORTED_BASE:#x}: omit one of both"
            )
        self.bus = axi.AXILiteInterface(data_width=32, address_width=32)
        self.memory = axi.AXIInterface(
            data_width=_width("m_axi_wdata"), address_width=_width("m_axi_araddr"),
            id_width=_width("m_axi_arid"),
        )  # fmt: skip
        self.irq = Signal()
        signals = {"clk": ClockSignal("sys"), "rst": ResetSignal("sys"), "irq": self.irq}
        for interface, bus in (("s_axil", self.bus), ("m_axi", self.memory)):
            for name, _, width in PORTS:
                if name.startswith(f"{interface}_"):
                    signals[name] = _signal(bus, name.removeprefix(f"{interface}_"))[:width]
        for name, channel in (("m_axi_araddr", self.memory.ar), ("m_axi_awaddr", self.memory.aw)):
            signals[name] = address = Signal(_width(name))
            self.comb += channel.addr.eq(address | memory_base)
        directions = {"input": "i", "output": "o"}
        # migen declares no types: `specials` collects what is added to it.
        self.specials += Instance(  # type: ignore[operator]
            "trainwright", **{f"{directions[way]}_{name}": signals[name] for name, way, _ in PORTS}
        )
        platform.add_source(str(Path(__file__).with_name("trainwright.v")))
        self.ev = EventManager()
        self.ev.done = EventSourceLevel(description="a run is over")
        self.ev.finalize()
        self.comb += self.ev.done.trigger.eq(self.irq)


def _signal(bus, name):
    """Return the signal of a bus of LiteX for the name that AXI has for it, such as ``arlen``."""
    channel = next(channel for channel in ("aw", "ar", "w", "b", "r") if name.startswith(channel))
    return getattr(getattr(bus, channel), name.removeprefix(channel))


def add_trainwright(soc, origin, memory_base=0, name="trainwright", memory_bus=None):
    """Add the accelerator to a SoC: registers at ``origin``, memory through ``memory_bus``.

    ``memory_bus`` is a bus handler of LiteX, by default the SoC's DMA bus, or its main bus.
    """
    core = Trainwright(soc.platform, memory_base)
    soc.add_module(name, core)
    soc.bus.add_slave(name, core.bus, SoCRegion(origin=origin, size=REGISTER_BYTES, cached=False))
    bus = memory_bus or getattr(soc, "dma_bus", soc.bus)
    bus.add_master(name, master=core.memory)
    if getattr(soc, "irq", None) is not None and soc.irq.enabled:
        soc.irq.add(name, use_loc_if_exists=True)
    return core

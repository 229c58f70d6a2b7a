"""SDRAM chip as the accelerator's external memory, with a port for the host."""

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import Out, connect, flipped

from trainwright.parameters import AcceleratorParameters
from trainwright_hw.external.sdram.bus import SdramBus
from trainwright_hw.external.sdram.engine import SdramEngine
from trainwright_hw.external.sdram.pads import SdramPads, SdramPins
from trainwright_hw.external.sdram.timing import SdramCycles, SdramTiming


class SdramMemory(wiring.Component):
    """Controller for one chip, in the accelerator's clock, in which ``cycles`` are counted.

    Bursts are those of ``SdramBus``, rows and times those of ``SdramEngine``. Every access waits
    until the chip is powered up.

    Members: ``axi``; ``host``, a ``HostPort``; ``pins``, the chip's (``SdramPads``).
    """

    def __init__(
        self, parameters: AcceleratorParameters, *, timing: SdramTiming, cycles: SdramCycles
    ):
        self.memory_bytes = timing.memory_bytes
        self.timing = timing
        self._bus = SdramBus(parameters, timing)
        self._engine = SdramEngine(timing, cycles, beat_width=parameters.data_width)
        self._pads = SdramPads(timing, late_capture=cycles.late_capture)
        members = self._bus.signature.members
        super().__init__(
            {"axi": members["axi"], "host": members["host"], "pins": Out(SdramPins(timing))}
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.bus = bus = self._bus
        m.submodules.engine = engine = self._engine
        m.submodules.pads = pads = self._pads
        connect(m, flipped(self.axi), bus.axi)
        connect(m, flipped(self.host), bus.host)
        connect(m, bus.request, engine.request)
        m.d.comb += [
            bus.read_valid.eq(engine.read_valid),
            bus.read_data.eq(engine.read_data),
            bus.read_tag.eq(engine.read_tag),
        ]
        connect(m, engine.pins, pads.controller)
        connect(m, pads.chip, flipped(self.pins))
        return m

"""The system on a board: accelerator, memory and host link."""

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from trainwright.parameters import AcceleratorParameters
from trainwright_hw.accelerator import Accelerator
from trainwright_hw.build.convert import component_to_rtlil
from trainwright_hw.external.on_chip_memory import OnChipMemory
from trainwright_hw.external.sdram.controller import SdramMemory
from trainwright_hw.external.sdram.pads import SdramPins
from trainwright_hw.link.link import HostLink


class Soc(wiring.Component):
    """The accelerator with its memory and a serial host link.

    Members: ``rx`` (asynchronous) and ``tx``, the serial line of ``divisor`` cycles per bit;
    ``interrupt`` of the accelerator, for a lamp; with an ``SdramMemory``, ``sdram``, the pins of
    its chip. ``accelerator`` may be another component with the accelerator's ports.
    """

    def __init__(
        self,
        parameters: AcceleratorParameters,
        *,
        memory: OnChipMemory | SdramMemory,
        divisor: int,
        clock_hz: int,
        accelerator: wiring.Component | None = None,
    ):
        self._accelerator = accelerator or Accelerator(parameters)
        self._memory = memory
        self._divisor = divisor
        self._clock_hz = clock_hz
        members = {"rx": In(1, init=1), "tx": Out(1, init=1), "interrupt": Out(1)}
        if isinstance(memory, SdramMemory):
            members["sdram"] = Out(SdramPins(memory.timing))
        super().__init__(members)

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.accelerator = accelerator = self._accelerator
        m.submodules.memory = memory = self._memory
        m.submodules.link = link = HostLink(
            divisor=self._divisor, memory_bytes=memory.memory_bytes, clock_hz=self._clock_hz
        )
        connect(m, accelerator.m_axi, memory.axi)
        connect(m, link.registers, accelerator.s_axil)
        connect(m, link.memory, memory.host)
        if isinstance(memory, SdramMemory):
            connect(m, memory.pins, flipped(self.sdram))
        m.d.comb += [
            link.rx.eq(self.rx),
            self.tx.eq(link.tx),
            self.interrupt.eq(accelerator.interrupt),
        ]
        return m


def soc_to_rtlil(
    parameters: AcceleratorParameters,
    *,
    memory: OnChipMemory | SdramMemory,
    divisor: int,
    clock_hz: int,
    accelerator: wiring.Component | None = None,
) -> str:
    """Convert the whole system to RTLIL text.

    Its ports are ``clk``, ``rst``, ``rx``, ``tx`` and ``interrupt``; with an ``SdramMemory`` also
    ``sdram_cke`` and the other pins of ``SdramPins``.
    """
    soc = Soc(
        parameters,
        memory=memory,
        divisor=divisor,
        clock_hz=clock_hz,
        accelerator=accelerator,
    )
    return component_to_rtlil(soc, registered_reset=True)

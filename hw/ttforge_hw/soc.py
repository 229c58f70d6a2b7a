"""What a board holds: accelerator, memory and host link."""

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect

from ttforge.parameters import AcceleratorParameters
from ttforge_hw.convert import component_to_rtlil
from ttforge_hw.link.link import HostLink
from ttforge_hw.memory import OnChipMemory
from ttforge_hw.top import Accelerator


class Soc(wiring.Component):
    """The accelerator with ``memory_bytes`` of on-chip memory and a serial host link.

    Members: ``rx`` (asynchronous) and ``tx``, the serial line of ``divisor`` cycles a bit;
    ``interrupt`` of the accelerator, for a lamp. ``accelerator`` may be another component with its
    ports.
    """

    def __init__(
        self,
        parameters: AcceleratorParameters,
        *,
        memory_bytes: int,
        divisor: int,
        clock_hz: int,
        accelerator: wiring.Component | None = None,
    ):
        self._accelerator = accelerator or Accelerator(parameters)
        self._parameters = parameters
        self._memory_bytes = memory_bytes
        self._divisor = divisor
        self._clock_hz = clock_hz
        super().__init__({"rx": In(1, init=1), "tx": Out(1, init=1), "interrupt": Out(1)})

    def elaborate(self, platform) -> Module:
        m = Module()
        size = self._memory_bytes
        m.submodules.accelerator = accelerator = self._accelerator
        m.submodules.memory = memory = OnChipMemory(self._parameters, memory_bytes=size)
        m.submodules.link = link = HostLink(
            divisor=self._divisor, memory_bytes=size, clock_hz=self._clock_hz
        )
        connect(m, accelerator.m_axi, memory.axi)
        connect(m, link.registers, accelerator.s_axil)
        connect(m, link.memory, memory.host)
        m.d.comb += [
            link.rx.eq(self.rx),
            self.tx.eq(link.tx),
            self.interrupt.eq(accelerator.interrupt),
        ]
        return m


def soc_to_rtlil(
    parameters: AcceleratorParameters,
    *,
    memory_bytes: int,
    divisor: int,
    clock_hz: int,
    accelerator: wiring.Component | None = None,
) -> str:
    """The whole as RTLIL text, with ports ``clk``, ``rst``, ``rx``, ``tx`` and ``interrupt``."""
    soc = Soc(
        parameters,
        memory_bytes=memory_bytes,
        divisor=divisor,
        clock_hz=clock_hz,
        accelerator=accelerator,
    )
    return component_to_rtlil(soc, registered_reset=True)

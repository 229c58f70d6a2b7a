"""The top of a design on a board: clock, reset, pins around the system."""

from abc import ABC, abstractmethod

from amaranth.hdl import ClockDomain, ClockSignal, Elaboratable, IOPort, Module, ResetSignal, Signal
from amaranth.lib.cdc import ResetSynchronizer

from trainwright_hw.soc import Soc

CLOCK = "clk_in"
RX, TX, LAMP = "rx", "tx", "lamp"
RESET_CYCLES = 16
"""Cycles of reset after the clock has become steady."""


class BoardTop(Elaboratable, ABC):
    """A system behind a clock: the same for all boards, except for the source of the clock.

    Its ports are ``clk_in``, ``rx``, ``tx`` and ``lamp``. The reset comes from registers. It ends
    ``RESET_CYCLES`` plus two cycles after the clock is known to be steady, or after the device was
    configured.
    """

    def __init__(self, soc: Soc):
        self.soc = soc
        self.ports: dict[str, Signal | IOPort] = {
            name: Signal(name=name) for name in (CLOCK, RX, TX, LAMP)
        }

    @abstractmethod
    def clocking(self, m: Module, clock: Signal) -> Signal | None:
        """Drive ``clock``, and return the signal that says it is steady, if there is one."""

    def elaborate(self, platform) -> Module:
        m = Module()
        m.domains.pll = ClockDomain("pll")
        m.domains.sync = ClockDomain("sync")
        clock = Signal(name="clock", attrs={"keep": "true"})
        steady, ports = self.clocking(m, clock), self.ports
        m.d.comb += [ClockSignal("pll").eq(clock), ClockSignal("sync").eq(clock)]
        if steady is None:
            m.d.comb += ResetSignal("pll").eq(0)
        else:
            m.submodules.lock = ResetSynchronizer(~steady, domain="pll")
        left = Signal(range(RESET_CYCLES + 1), init=RESET_CYCLES)
        # the second goes all over the device, and has copies: nothing but the first comes before it
        held, reset = Signal(init=1), Signal(init=1, reset_less=True)
        with m.If(left != 0):
            m.d.pll += left.eq(left - 1)
        m.d.pll += [held.eq(left != 0), reset.eq(held)]
        m.d.comb += ResetSignal("sync").eq(reset)
        m.submodules.soc = soc = self.soc
        m.d.comb += [
            soc.rx.eq(ports[RX]),
            ports[TX].eq(soc.tx),
            ports[LAMP].eq(soc.interrupt),
        ]
        return m


class PinClockTop(BoardTop):
    """The system at the clock that comes in, for parts whose PLL the open tools do not know.

    The reset ends some cycles after configuration.
    """

    def clocking(self, m: Module, clock: Signal) -> None:
        """Drive the clock directly from the pin."""
        m.d.comb += clock.eq(self.ports[CLOCK])

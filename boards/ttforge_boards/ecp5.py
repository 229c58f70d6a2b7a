"""The top of a design on an ECP5: PLL, reset, pins."""

from amaranth.hdl import (
    C,
    ClockDomain,
    ClockSignal,
    Elaboratable,
    Instance,
    Module,
    ResetSignal,
    Signal,
)
from amaranth.lib.cdc import ResetSynchronizer

from ttforge_boards.pll import PllSettings
from ttforge_hw.soc import Soc

CLOCK = "clk_in"
RX, TX, LAMP = "rx", "tx", "lamp"
RESET_CYCLES = 16
"""In which everything stays in reset after the PLL has locked."""


class Ecp5Top(Elaboratable):
    """The system behind a PLL. Ports: ``clk_in``, ``rx``, ``tx``, ``lamp``.

    The reset is released by the PLL's lock, through a synchroniser, and leaves from a register.
    """

    def __init__(self, soc: Soc, pll: PllSettings):
        self._soc = soc
        self._pll = pll
        self.ports = {name: Signal(name=name) for name in (CLOCK, RX, TX, LAMP)}

    def elaborate(self, platform) -> Module:
        m = Module()
        m.domains.pll = ClockDomain("pll")
        m.domains.sync = ClockDomain("sync")
        clock = Signal(name="clock", attrs={"keep": "true"})
        locked, ports = Signal(), self.ports
        self._instantiate_pll(m, clock, locked)
        m.d.comb += [ClockSignal("pll").eq(clock), ClockSignal("sync").eq(clock)]
        m.submodules.lock = ResetSynchronizer(~locked, domain="pll")
        left = Signal(range(RESET_CYCLES + 1), init=RESET_CYCLES)
        reset = Signal(init=1)
        with m.If(left != 0):
            m.d.pll += left.eq(left - 1)
        m.d.pll += reset.eq(left != 0)
        m.d.comb += ResetSignal("sync").eq(reset)
        m.submodules.soc = soc = self._soc
        m.d.comb += [
            soc.rx.eq(ports[RX]),
            ports[TX].eq(soc.tx),
            ports[LAMP].eq(soc.interrupt),
        ]
        return m

    def _instantiate_pll(self, m: Module, clock: Signal, locked: Signal) -> None:
        settings = self._pll
        m.submodules.pll = Instance(
            "EHXPLLL",
            p_CLKI_DIV=settings.input_divider,
            p_CLKFB_DIV=settings.feedback,
            p_CLKOP_DIV=settings.output_divider,
            p_CLKOP_ENABLE="ENABLED",
            p_CLKOP_CPHASE=settings.output_divider // 2,
            p_CLKOP_FPHASE=0,
            p_FEEDBK_PATH="CLKOP",
            a_ICP_CURRENT="12",
            a_LPF_RESISTOR="8",
            a_MFG_ENABLE_FILTEROPAMP="1",
            a_MFG_GMCREF_SEL="2",
            i_CLKI=self.ports[CLOCK],
            i_CLKFB=clock,
            i_RST=C(0),
            i_STDBY=C(0),
            i_PHASESEL0=C(0),
            i_PHASESEL1=C(0),
            i_PHASEDIR=C(1),
            i_PHASESTEP=C(1),
            i_PHASELOADREG=C(1),
            i_PLLWAKESYNC=C(0),
            i_ENCLKOP=C(0),
            o_CLKOP=clock,
            o_LOCK=locked,
        )

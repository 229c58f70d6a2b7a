"""The top of a design on an ECP5: PLL, reset, pins."""

from amaranth.hdl import (
    C,
    ClockDomain,
    ClockSignal,
    Elaboratable,
    Instance,
    IOPort,
    Module,
    ResetSignal,
    Signal,
)
from amaranth.lib.cdc import ResetSynchronizer

from ttforge_boards.pll import PllSettings
from ttforge_hw.soc import Soc

CLOCK = "clk_in"
RX, TX, LAMP = "rx", "tx", "lamp"
SDRAM_OUTPUTS = ("clk", "cke", "cs_n", "ras_n", "cas_n", "we_n", "ba", "a", "dqm")
RESET_CYCLES = 16
"""In which everything stays in reset after the PLL has locked."""


class Ecp5Top(Elaboratable):
    """The system behind a PLL. Ports: ``clk_in``, ``rx``, ``tx``, ``lamp``; with an SDRAM
    ``sdram_dq``, which is bidirectional, and ``sdram_clk`` and so on (``SdramPins``).

    The reset is released by the PLL's lock, through a synchroniser, and leaves from a register.
    """

    def __init__(self, soc: Soc, pll: PllSettings):
        self._soc = soc
        self._pll = pll
        self.ports: dict[str, Signal | IOPort] = {
            name: Signal(name=name) for name in (CLOCK, RX, TX, LAMP)
        }
        self._sdram = getattr(soc, "sdram", None)
        if self._sdram is not None:
            self._add_sdram_ports(self._sdram)

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
        if self._sdram is not None:
            self._connect_sdram(m, self._sdram)
        return m

    def _add_sdram_ports(self, pins) -> None:
        for name in SDRAM_OUTPUTS:
            port = f"sdram_{name}"
            self.ports[port] = Signal(len(getattr(pins, name)), name=port)
        self.ports["sdram_dq"] = IOPort(len(pins.dq_o), name="sdram_dq")

    def _connect_sdram(self, m: Module, pins) -> None:
        for name in SDRAM_OUTPUTS:
            m.d.comb += self.ports[f"sdram_{name}"].eq(getattr(pins, name))
        port = self.ports["sdram_dq"]
        for n in range(len(pins.dq_o)):
            m.submodules[f"dq{n}"] = Instance(
                "BB", i_I=pins.dq_o[n], i_T=~pins.dq_oe, o_O=pins.dq_i[n], io_B=port[n]
            )

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

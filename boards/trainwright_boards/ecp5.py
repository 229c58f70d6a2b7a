"""The top of a design on an ECP5: PLL, and the pins of an SDRAM."""

from amaranth.hdl import C, Instance, IOPort, Module, Signal

from trainwright_boards.pll import PllSettings
from trainwright_boards.top import CLOCK, BoardTop
from trainwright_hw.soc import Soc

SDRAM_OUTPUTS = ("clk", "cke", "cs_n", "ras_n", "cas_n", "we_n", "ba", "a", "dqm")


class Ecp5Top(BoardTop):
    """A system behind a PLL; the PLL's lock releases the reset through a synchroniser.

    Its ports are those of ``BoardTop``. With an SDRAM there are also ``sdram_dq``, which is
    bidirectional, and ``sdram_clk`` and the other pins of ``SdramPins``.
    """

    def __init__(self, soc: Soc, pll: PllSettings):
        super().__init__(soc)
        self._pll = pll
        self._sdram = getattr(soc, "sdram", None)
        if self._sdram is not None:
            self._add_sdram_ports(self._sdram)

    def elaborate(self, platform) -> Module:
        m = super().elaborate(platform)
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

    def clocking(self, m: Module, clock: Signal) -> Signal:
        """Drive the clock from the PLL, and return the PLL's lock."""
        settings, locked = self._pll, Signal()
        inner = settings.inner_divider
        second = {} if inner is None else {"ENABLE": "ENABLED", "DIV": inner, "CPHASE": 0}
        m.submodules.pll = Instance(
            "EHXPLLL",
            p_CLKI_DIV=settings.input_divider,
            p_CLKFB_DIV=settings.feedback,
            p_CLKOP_DIV=settings.output_divider,
            p_CLKOP_ENABLE="ENABLED",
            p_CLKOP_CPHASE=settings.output_divider // 2,
            p_CLKOP_FPHASE=0,
            p_FEEDBK_PATH="CLKOP" if inner is None else "INT_OS",
            **{f"p_CLKOS_{name}": value for name, value in second.items()},
            a_ICP_CURRENT="12",
            a_LPF_RESISTOR="8",
            a_MFG_ENABLE_FILTEROPAMP="1",
            a_MFG_GMCREF_SEL="2",
            i_CLKI=self.ports[CLOCK],
            i_CLKFB=clock if inner is None else C(0),
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
        return locked

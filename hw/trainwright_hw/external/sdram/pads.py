"""Pins between an SDRAM controller and the chip, and the registers next to them."""

from amaranth.hdl import C, Cat, ClockSignal, Instance, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from trainwright_hw.arith.multiplier import DevicePlatform
from trainwright_hw.external.sdram.timing import SdramTiming

COMMAND_PINS = ("cke", "cs_n", "ras_n", "cas_n", "we_n", "ba", "a", "dqm", "dq_o")
"""Pins that the FPGA drives, besides the clock and ``dq_oe``."""


class SdramPins(wiring.Signature):
    """Pins of a chip from its controller's side.

    Members: ``clk``, the chip's clock; ``cke``, ``cs_n``, ``ras_n``, ``cas_n``, ``we_n``, ``ba``,
    ``a`` and ``dqm``; ``dq_o``, driven while ``dq_oe``; ``dq_i``, driven by the chip.
    """

    def __init__(self, timing: SdramTiming):
        width = timing.data_width
        super().__init__(
            {
                "clk": Out(1),
                "cke": Out(1, init=1),
                "cs_n": Out(1),
                "ras_n": Out(1, init=1),
                "cas_n": Out(1, init=1),
                "we_n": Out(1, init=1),
                "ba": Out(timing.bank_bits),
                "a": Out(timing.row_bits),
                "dqm": Out(width // 8),
                "dq_o": Out(width),
                "dq_oe": Out(1),
                "dq_i": In(width),
            }
        )


class SdramPads(wiring.Component):
    """Registers at every pin except ``dq_oe``, which is therefore a cycle ahead of the data.

    The clock of the chip is the inverted clock of the design, so an output that changes at a rising
    edge has half a period of setup and half of hold. ``dq_i`` is sampled at the falling edge and
    valid in the next cycle. With ``late_capture`` it is sampled at the rising edge after that, and
    valid a cycle later. In simulation (without a ``DevicePlatform``) the chip answers within its
    cycle, and ``clk`` is not driven.

    Members: ``controller``, the pins as the controller drives them, a cycle before; ``chip``, the
    pins themselves.
    """

    def __init__(self, timing: SdramTiming, *, late_capture: bool):
        self._late_capture = late_capture
        pins = SdramPins(timing)
        super().__init__({"controller": In(pins), "chip": Out(pins)})

    def elaborate(self, platform) -> Module:
        m = Module()
        inner, outer = self.controller, self.chip
        m.d.comb += outer.dq_oe.eq(inner.dq_oe)
        if isinstance(platform, DevicePlatform):
            self._ecp5(m)
            return m
        for name in COMMAND_PINS:
            m.d.sync += getattr(outer, name).eq(getattr(inner, name))
        taken = outer.dq_i
        for _ in range(2 if self._late_capture else 1):
            before, taken = taken, Signal.like(inner.dq_i)
            m.d.sync += taken.eq(before)
        m.d.comb += inner.dq_i.eq(taken)
        return m

    def _ecp5(self, m: Module) -> None:
        inner, outer, clock = self.controller, self.chip, ClockSignal()
        driven = [getattr(inner, name) for name in COMMAND_PINS]
        pins = [getattr(outer, name) for name in COMMAND_PINS]
        for n, (bit, pin) in enumerate(zip(Cat(driven), Cat(pins), strict=True)):
            m.submodules[f"output{n}"] = Instance(
                "OFS1P3BX", i_D=bit, i_SP=C(1), i_SCLK=clock, i_PD=C(0), o_Q=pin
            )
        m.submodules.clock = Instance(
            "ODDRX1F", i_D0=C(0), i_D1=C(1), i_SCLK=clock, i_RST=C(0), o_Q=outer.clk
        )
        taken = "o_Q0" if self._late_capture else "o_Q1"
        for n in range(len(outer.dq_i)):
            m.submodules[f"input{n}"] = Instance(
                "IDDRX1F",
                i_D=outer.dq_i[n],
                i_SCLK=clock,
                i_RST=C(0),
                **{taken: inner.dq_i[n]},
            )

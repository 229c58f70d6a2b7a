"""How often a resident program runs, and the number of its step."""

from amaranth.hdl import C, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from trainwright.fixed.random_bits import STREAM_STEP
from trainwright_hw.control.engine_ports import write_bytes

STEP_WIDTH = 32
SEED_STEP = 2 * STREAM_STEP % (1 << STEP_WIDTH)
"""What a step adds to seeds of SET that ask for it."""


class Repetition(wiring.Component):
    """Counts the times that a program runs, and the steps.

    ``start`` begins ``times`` runs of a program (0 is as 1), ``advance`` ends one; the present one
    is the ``first``, the ``last``. ``step`` is its number, also set by the host through ``write``
    between runs, with the bytes of ``value`` that ``keep`` has not; ``seed`` is
    2 x STREAM_STEP x step, but while it is ``busy``, 32 cycles from ``start`` on.
    """

    def __init__(self):
        super().__init__(
            {
                "start": In(1),
                "advance": In(1),
                "times": In(STEP_WIDTH),
                "first": Out(1),
                "last": Out(1, init=1),
                "step": Out(STEP_WIDTH),
                "write": In(1),
                "keep": In(STEP_WIDTH),
                "value": In(STEP_WIDTH),
                "seed": Out(STEP_WIDTH),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        left = Signal(STEP_WIDTH)
        bit = Signal(range(STEP_WIDTH))
        rest = Signal(STEP_WIDTH, reset_less=True)  # of the step's bits, those still to come
        write_bytes(m, self.write, self.step, self.keep, self.value)
        with m.If(self.advance):
            m.d.sync += [
                self.step.eq(self.step + 1),
                left.eq(left - 1),
                self.first.eq(0),
                self.last.eq(left <= 2),
            ]
        # seed = step x SEED_STEP, the highest bit of the step first; then one SEED_STEP a step
        add = rest[-1] | ~self.busy
        before = Mux(self.busy, self.seed << 1, self.seed)
        with m.If(self.busy | self.advance):
            m.d.sync += self.seed.eq(before + Mux(add, C(SEED_STEP, STEP_WIDTH), 0))
        with m.If(self.busy):
            m.d.sync += [rest.eq(rest << 1), bit.eq(bit - 1), self.busy.eq(bit != 0)]
        with m.If(self.start):
            m.d.sync += [
                left.eq(self.times),
                self.last.eq(self.times <= 1),
                self.first.eq(1),
                self.seed.eq(0),
                self.busy.eq(1),
                rest.eq(self.step),
                bit.eq(STEP_WIDTH - 1),
            ]
        return m

"""Repetition of a resident program, and the number of the training step."""

from amaranth.hdl import C, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from trainwright.fixed.random_bits import STREAM_STEP
from trainwright_hw.control.engine_ports import write_bytes

STEP_WIDTH = 32
SEED_STEP = 2 * STREAM_STEP % (1 << STEP_WIDTH)
"""Increment per step of seeds of SET that ask for it."""


class Repetition(wiring.Component):
    """Counter of a program's runs and of training steps; each run is a step.

    ``start`` begins ``times`` runs of a program (0 counts as 1), ``advance`` ends a run; ``last``
    tells whether the present run is the last. ``step`` is the number of the present step. The host
    may ``write`` it between runs: it takes the bytes of ``value`` that ``keep`` does not mask.
    ``seed`` is 2 x STREAM_STEP x step, except while ``busy``, for 32 cycles from ``start`` on.
    """

    def __init__(self):
        super().__init__(
            {
                "start": In(1),
                "advance": In(1),
                "times": In(STEP_WIDTH),
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
        rest = Signal(STEP_WIDTH, reset_less=True)  # bits of the step still to be multiplied
        write_bytes(m, self.write, self.step, self.keep, self.value)
        with m.If(self.advance):
            m.d.sync += [
                self.step.eq(self.step + 1),
                left.eq(left - 1),
                self.last.eq(left <= 2),
            ]
        # A start computes seed = step x SEED_STEP by shift and add, highest bit first, which needs
        # no multiplier; each advance then adds one SEED_STEP.
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
                self.seed.eq(0),
                self.busy.eq(1),
                rest.eq(self.step),
                bit.eq(STEP_WIDTH - 1),
            ]
        return m

"""Element-wise operations of PE2's engine: bias with activation, and the ReLU mask."""

import itertools

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ttforge.parameters import AcceleratorParameters
from ttforge.program.fields import Operation
from ttforge_hw.in_flight import by_turn
from ttforge_hw.ports import COMPUTE_LAYOUT, row_layout

VECTOR_CYCLES = 3
"""Cycles from two rows at the input to the values at the output."""


class VectorUnit(wiring.Component):
    """BIAS and MASK of ``ttforge.program.descriptors.Compute``, up to the requantiser.

    In a cycle of ``valid``: ``act((x << x_shift) + (g << g_shift))`` with ``act`` max(0, .) when
    ``relu``, or with ``mask`` ``x if g > 0 else 0``, on signed words. ``value``: ``lanes`` signed
    values of ``2 * word_width`` bits, ``VECTOR_CYCLES`` later; a pair of rows a cycle, never
    stalled. A cycle of ``configure`` takes the settings from ``command`` for the rows of one of two
    turns (``in_flight``); ``turn`` is that of the rows.
    """

    def __init__(self, parameters: AcceleratorParameters):
        self._lanes = parameters.lanes
        self._word_width = parameters.word_width
        super().__init__(
            {
                "valid": In(1),
                "turn": In(1),
                "configure": In(1),
                "configure_turn": In(1),
                "command": In(COMPUTE_LAYOUT),
                "x_row": In(row_layout(parameters)),
                "g_row": In(row_layout(parameters)),
                "value": Out(signed(2 * parameters.word_width)).array(parameters.lanes),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        is_mask = self.command.operation == Operation.MASK
        fields = {
            "mask": is_mask,
            "rectify": self.command.relu & ~is_mask,
            "x_shift": self.command.x_shift,
            "g_shift": self.command.g_shift,
        }
        settings = {
            name: by_turn(m, self.configure, self.configure_turn, value, name)
            for name, value in fields.items()
        }
        valid = [self.valid, Signal(name="valid_1"), Signal(name="valid_2")]
        turn = [self.turn, Signal(name="turn_1"), Signal(name="turn_2")]
        for stages in (valid, turn):
            m.d.sync += [later.eq(earlier) for earlier, later in itertools.pairwise(stages)]
        mask, rectify = Signal(), Signal()
        x_shift, g_shift = Signal(4), Signal(4)
        m.d.comb += [
            mask.eq(settings["mask"](turn[1])),
            x_shift.eq(settings["x_shift"](turn[1])),
            g_shift.eq(settings["g_shift"](turn[1])),
            rectify.eq(settings["rectify"](turn[2])),
        ]
        for lane in range(self._lanes):
            word = signed(self._word_width)
            wide = signed(2 * self._word_width - 1)
            x, g = (
                Signal(word, name=f"x_{lane}", reset_less=True),
                Signal(word, name=f"g_{lane}", reset_less=True),
            )
            x_wide = Signal(wide, name=f"x_wide_{lane}", reset_less=True)
            g_wide = Signal(wide, name=f"g_wide_{lane}", reset_less=True)
            total = Signal(signed(2 * self._word_width), name=f"total_{lane}")
            with m.If(valid[0]):
                m.d.sync += [x.eq(self.x_row[lane]), g.eq(self.g_row[lane])]
            with m.If(valid[1]):
                with m.If(mask):
                    m.d.sync += [x_wide.eq(Mux(g > 0, x, 0)), g_wide.eq(0)]
                with m.Else():
                    m.d.sync += [x_wide.eq(x << x_shift), g_wide.eq(g << g_shift)]
            m.d.comb += total.eq(x_wide + g_wide)
            with m.If(valid[2]):
                m.d.sync += self.value[lane].eq(Mux(rectify & (total < 0), 0, total))
        return m

"""Element-wise operations of PE2's engine: bias with activation, and the ReLU mask."""

from amaranth.hdl import C, Module, Mux, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from trainwright.parameters import AcceleratorParameters
from trainwright.program.fields import Operation
from trainwright_hw.arith.multiplier import registered_product
from trainwright_hw.control.command_contexts import derived, per_context
from trainwright_hw.control.engine_ports import COMPUTE_LAYOUT
from trainwright_hw.storage.ports import row_layout
from trainwright_hw.stream.delay_line import delay_line, skew

VECTOR_CYCLES = 3
"""Cycles from two rows at the input to the value of lane 0 at the output."""


class VectorUnit(wiring.Component):
    """BIAS and MASK of ``trainwright.program.descriptors.Compute``, up to the requantiser.

    ``act((x << x_shift) + (g << g_shift))`` with ``act`` max(0, .) when
    ``relu``, or with ``mask`` ``x if g > 0 else 0``, on signed words. ``value``: ``lanes`` signed
    values of ``2 * word_width`` bits, ``VECTOR_CYCLES`` after their rows where these are ``valid``,
    and 0 otherwise; a pair of rows a cycle, never stalled. A cycle of ``configure`` takes the
    settings from ``command`` for the rows of one of two contexts, two cycles before the first of
    them or earlier; ``context`` is that of the rows. ``value[n]`` comes n cycles after
    ``value[0]`` (``skew``).
    """

    def __init__(self, parameters: AcceleratorParameters):
        self._lanes = parameters.lanes
        self._word_width = parameters.word_width
        super().__init__(
            {
                "valid": In(1),
                "context": In(1),
                "configure": In(1),
                "configure_context": In(1),
                "command": In(COMPUTE_LAYOUT),
                "x_row": In(row_layout(parameters)),
                "g_row": In(row_layout(parameters)),
                "value": Out(signed(2 * parameters.word_width)).array(parameters.lanes),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        width = self._word_width
        is_mask = self.command.operation == Operation.MASK
        # a shift is a product with a power of two; the mask's operand counts for its sign alone
        fields = {
            "mask": is_mask,
            "rectify": self.command.relu & ~is_mask,
            "x_shift": self.command.x_shift,
            "g_shift": self.command.g_shift,
        }
        settings = {
            name: per_context(m, self.configure, self.configure_context, value, name)
            for name, value in fields.items()
        }
        masked, x_shift, g_shift = (settings[name] for name in ("mask", "x_shift", "g_shift"))
        settings |= {
            "x_factor": derived(
                m, lambda context: C(1) << Mux(masked(context), 0, x_shift(context)), "x_factor"
            ),
            "g_factor": derived(
                m, lambda context: Mux(masked(context), 0, C(1) << g_shift(context)), "g_factor"
            ),
        }
        context = delay_line(m, self.context, VECTOR_CYCLES, "context")
        valid = delay_line(m, self.valid, 2 + self._lanes, "valid", reset_less=False)
        mask, rectify = (
            delay_line(m, settings[name](context[2]), self._lanes, name)
            for name in ("mask", "rectify")
        )
        factors, rows = {}, {}
        for name, row in (("x", self.x_row), ("g", self.g_row)):
            factor = Signal(signed(width + 1), name=f"{name}_factor")
            m.d.comb += factor.eq(settings[f"{name}_factor"](context[0]))
            factors[name] = delay_line(m, factor, self._lanes, f"{name}_factor")
            rows[name] = skew(m, list(row), f"{name}_row")
        for lane in range(self._lanes):
            words = {name: row[lane].as_signed() for name, row in rows.items()}
            wide = {
                name: registered_product(
                    m, platform, f"{name}_{lane}_wide", factors[name][lane], word
                )
                for name, word in words.items()
            }
            positive = [Signal(name=f"positive_{lane}_{n}", reset_less=True) for n in (1, 2)]
            m.d.sync += [positive[0].eq(words["g"] > 0), positive[1].eq(positive[0])]
            total = Signal(signed(2 * width), name=f"total_{lane}")
            m.d.comb += total.eq(wide["x"] + wide["g"])
            zero = (rectify[lane] & total[-1]) | (mask[lane] & ~positive[1])
            m.d.sync += self.value[lane].eq(Mux(zero | ~valid[2 + lane], 0, total))
        return m

"""Requantiser: hardware of ``trainwright.fixed.requantise.requantise``."""

from amaranth.hdl import C, Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from trainwright.fixed.random_bits import RANDOM_WIDTH
from trainwright_hw.control.command_contexts import derived, per_context
from trainwright_hw.stream.delay_line import delay_line, deskew, skew

LANE_CYCLES = 3
"""Cycles of a lane from its value to its word."""

WORD_WIDTH = 16
FLOOR_WIDTH = WORD_WIDTH + 1
"""Bits of value / 2^shift that are kept: enough to tell a rounded one that has to be saturated."""
SHIFT_WIDTH = 6
OUT_WIDTH_WIDTH = 5


def requantise_cycles(lanes: int) -> int:
    """Cycles from the value of lane 0 at the requantiser's input to the words at the output."""
    return LANE_CYCLES + lanes - 1


def thermometer(value: Value) -> Value:
    """Bit n: ``value`` > n, for every n that ``value`` can be. Two LUTs deep; a comparison with
    each of the numbers would be a carry chain."""
    half = len(value) // 2
    low, high = value[:half], value[half:]
    are_low, are_high = [[part == n for n in range(1 << len(part))] for part in (low, high)]
    over_low, over_high = (
        [Cat(*one[n + 1 :]).any() if one[n + 1 :] else C(0, 1) for n in range(len(one))]
        for one in (are_low, are_high)
    )
    return Cat(
        above | (same & over)
        for above, same in zip(over_high, are_high, strict=True)
        for over in over_low
    )


class Requantiser(wiring.Component):
    """``lanes`` values a cycle: shift, round half to even, saturate.

    Value n is due n cycles after value 0 (``skew``); the words come all together.

    ``q = saturate(round_half_even(value / 2^shift), out_width)``, sign-extended to 16 bits.
    ``shift`` (0 to 63) and ``out_width`` (4 to 16) are taken in a cycle of ``configure``, not later
    than three cycles before the first value, for the values of one of two contexts.
    ``valid`` is that of value 0, ``context`` the one that it has in the next cycle.
    Latency ``requantise_cycles``, one set of values a cycle, no back-pressure: who feeds it has
    taken credit for the results.

    Members: ``configure``, ``configure_context``, ``shift``, ``out_width``; in ``valid``,
    ``context`` and ``value`` (an array of ``lanes`` signed values of ``value_width`` bits); out
    ``result_valid``, ``next_valid`` (the same of the next cycle), ``word`` (``lanes`` signed 16-bit
    words) and ``saturated`` (a bit a lane).

    With ``with_random`` also ``stochastic``, taken as ``shift`` is: the rounding is that of
    ``trainwright.fixed.stochastic.stochastic_requantise``, ``random`` (a byte a lane) being due in
    the cycle after value 0.
    """

    def __init__(self, *, lanes: int, value_width: int, with_random: bool = False):
        if not WORD_WIDTH <= value_width <= 64:
            raise ValueError(f"value_width must be from 16 to 64, not {value_width!r}")
        self._lanes = lanes
        self._value_width = value_width
        self._with_random = with_random
        random = {"stochastic": In(1), "random": In(RANDOM_WIDTH).array(lanes)}
        super().__init__(
            {
                "configure": In(1),
                "configure_context": In(1),
                "shift": In(SHIFT_WIDTH),
                "out_width": In(OUT_WIDTH_WIDTH),
                "valid": In(1),
                "context": In(1),
                "value": In(signed(value_width)).array(lanes),
                "next_valid": Out(1),
                "result_valid": Out(1),
                "word": Out(signed(WORD_WIDTH)).array(lanes),
                "saturated": Out(1).array(lanes),
                **(random if with_random else {}),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        # One bit below the binary point stays in the shifted value: the half. The bits under it
        # only matter as "any of them set", found with a mask that a command sets once; those above
        # the floor that is kept as "any of them not the sign".
        taken = {"shift": self.shift, "out_width": self.out_width}
        if self._with_random:
            taken["stochastic"] = self.stochastic
        settings = {
            name: per_context(m, self.configure, self.configure_context, value, name)
            for name, value in taken.items()
        }
        shift, out_width = settings["shift"], settings.pop("out_width")
        width, under = self._value_width, FLOOR_WIDTH - 1
        settings |= {
            # bit n: shift > n + 1; shift <= n - under; out_width > n + 1
            "sticky_mask": derived(
                m, lambda context: thermometer(shift(context))[1 : width + 1], "sticky_mask"
            ),
            "beyond_mask": derived(
                m,
                lambda context: Cat(C(0, under), ~thermometer(shift(context))[: width - under]),
                "beyond_mask",
            ),
            "greatest": derived(
                m, lambda context: thermometer(out_width(context))[1:WORD_WIDTH], "greatest"
            ),
        }
        stages = requantise_cycles(self._lanes) + 1
        # stage n of lane l is stage n + l of lane 0
        valid = delay_line(m, self.valid, stages, "valid", reset_less=False)
        context = delay_line(m, self.context, LANE_CYCLES, "context", reset_less=False)
        m.d.comb += [self.next_valid.eq(valid[-2]), self.result_valid.eq(valid[-1])]
        # registers, so that their loads and the shifters behind have the cycle to themselves
        when = {"shift": 0, "sticky_mask": 0, "beyond_mask": 0, "stochastic": 1, "greatest": 2}
        passed = {}
        for name, setting in settings.items():
            value = setting(context[when[name]])
            register = Signal(len(value), name=name, reset_less=True)
            m.d.sync += register.eq(value)
            passed[name] = delay_line(m, register, self._lanes, name)
        random = skew(m, list(self.random), "random") if self._with_random else None
        words, flags = [], []
        for lane in range(self._lanes):
            of_lane = {name: values[lane] for name, values in passed.items()}
            draw = random[lane] if random else None
            word, saturated = self._lane(m, lane, valid[lane:], draw, **of_lane)
            words.append(word)
            flags.append(saturated)
        for name, to, late in (("word", self.word, words), ("saturated", self.saturated, flags)):
            together = deskew(m, late, name)
            m.d.comb += [port.eq(value) for port, value in zip(to, together, strict=True)]
        return m

    def _shifted(self, shift, below: int, value) -> Value:
        """Bits ``-below`` to ``FLOOR_WIDTH`` - 1 of value / 2^shift; a stage cuts what no later
        one can bring there."""
        width = FLOOR_WIDTH + below
        shifted = Cat(C(0, below), value).as_signed()
        for stage in reversed(range(SHIFT_WIDTH)):
            far = shifted >> (1 << stage)
            shifted = Mux(shift[stage], far, shifted)[: width + (1 << stage) - 1].as_signed()
        return shifted[:width]

    def _lane(
        self,
        m: Module,
        lane: int,
        valid,
        random,
        *,
        shift,
        sticky_mask,
        beyond_mask,
        greatest,
        stochastic=None,
    ) -> tuple[Signal, Signal]:
        """Its word, and whether that is saturated."""
        value = self.value[lane]
        # with random bits as many as they, and one more, stay below the binary point
        below = RANDOM_WIDTH + 1 if self._with_random else 1
        shifted = Signal(signed(FLOOR_WIDTH + below), name=f"shifted_{lane}", reset_less=True)
        sticky = Signal(name=f"sticky_{lane}", reset_less=True)
        # of the value, and then of what is rounded: whether it is far outside, and its sign then
        beyond = [Signal(name=f"beyond_{lane}_{n}", reset_less=True) for n in (1, 2)]
        sign = [Signal(name=f"sign_{lane}_{n}", reset_less=True) for n in (1, 2)]
        with m.If(valid[0]):
            m.d.sync += [
                shifted.eq(self._shifted(shift, below, value)),
                sticky.eq((value & sticky_mask).any()),
                beyond[0].eq(((value ^ value[-1].replicate(len(value))) & beyond_mask).any()),
                sign[0].eq(value[-1]),
            ]
        half, odd = shifted[below - 1], shifted[below]
        up = half & (sticky | odd)
        rounded = Signal(signed(FLOOR_WIDTH + 1), name=f"rounded_{lane}", reset_less=True)
        if self._with_random:
            # the half once more carries into the floor: it is added only where it is set
            addend = Mux(stochastic, Cat(C(1, 1), random), Cat(C(0, below - 1), up))
            total = (shifted + addend) >> below
        else:
            total = (shifted >> 1) + up
        with m.If(valid[1]):
            m.d.sync += [rounded.eq(total), beyond[1].eq(beyond[0]), sign[1].eq(sign[0])]
        magnitude = rounded[:-1] ^ rounded[-1].replicate(FLOOR_WIDTH)
        # greatest is all ones, so this holds for both signs
        outside = beyond[1] | (magnitude > greatest)
        negative = Mux(beyond[1], sign[1], rounded[-1])
        limit = Cat(greatest ^ negative.replicate(WORD_WIDTH - 1), negative)
        word = Signal(signed(WORD_WIDTH), name=f"word_of_{lane}", reset_less=True)
        saturated = Signal(name=f"saturated_of_{lane}", reset_less=True)
        with m.If(valid[2]):
            m.d.sync += [
                word.eq(Mux(outside, limit, rounded[:WORD_WIDTH]).as_signed()),
                saturated.eq(outside),
            ]
        return word, saturated

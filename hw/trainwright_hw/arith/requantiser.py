"""Requantiser: the hardware of ``trainwright.formats.rounding.requantise``."""

from amaranth.hdl import C, Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from trainwright.formats.rounding import RANDOM_WIDTH
from trainwright_hw.stream.delay_line import delay_line

LANE_CYCLES = 3
"""Cycles of a lane from its value to its word."""

WORD_WIDTH = 16
"""Bits of a word, unless an accelerator's words are narrower."""
SHIFT_WIDTH = 6
OUT_WIDTH_WIDTH = 5


def thermometer(value: Value) -> Value:
    """Return bit n: ``value`` > n, for every n that ``value`` can be.

    Two LUTs deep, where a comparison with each number would be a carry chain.
    """
    half = len(value) // 2
    low, high = value[:half], value[half:]
    are_low, are_high = [[part == n for n in range(1 << len(part))] for part in (low, high)]
    over_low, over_high = (
        [Cat(*bits[n + 1 :]).any() if bits[n + 1 :] else C(0, 1) for n in range(len(bits))]
        for bits in (are_low, are_high)
    )
    return Cat(
        above | (same & over)
        for above, same in zip(over_high, are_high, strict=True)
        for over in over_low
    )


class Requantiser(wiring.Component):
    """Rounding of ``lanes`` values per cycle: shift, round half to even, saturate.

    ``q = saturate(round_half_even(value / 2^shift), out_width)``, sign-extended to ``word_width``
    bits. ``shift`` (0 to 63) and ``out_width`` (4 to ``word_width``) are due in the cycle before
    value 0. Value n is due n cycles after value 0, and its word appears with the same offset
    (``skew``), each ``LANE_CYCLES`` after its value. Accepts a set of values per cycle, without
    back-pressure.

    Members: in ``shift``, ``out_width`` and ``value`` (an array of ``lanes`` signed values of
    ``value_width`` bits); out ``word`` (``lanes`` signed words) and ``saturated`` (one bit per
    lane).

    With ``with_random`` there is also ``stochastic``, due with ``shift``: the rounding is then that
    of ``trainwright.formats.rounding.stochastic_requantise``, with ``random`` (a byte per lane) due
    in the cycle after the lane's value.
    """

    def __init__(
        self,
        *,
        lanes: int,
        value_width: int,
        word_width: int = WORD_WIDTH,
        with_random: bool = False,
    ):
        if not word_width <= value_width <= 64:
            raise ValueError(f"value_width must be from {word_width} to 64, not {value_width!r}")
        self._word_width = word_width
        # Bits of value / 2^shift that are kept: one more than a word, to detect saturation of the
        # rounded value.
        self._floor_width = word_width + 1
        self._lanes = lanes
        self._value_width = value_width
        self._with_random = with_random
        random = {"stochastic": In(1), "random": In(RANDOM_WIDTH).array(lanes)}
        super().__init__(
            {
                "shift": In(SHIFT_WIDTH),
                "out_width": In(OUT_WIDTH_WIDTH),
                "value": In(signed(value_width)).array(lanes),
                "word": Out(signed(word_width)).array(lanes),
                "saturated": Out(1).array(lanes),
                **(random if with_random else {}),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        # The shifted value keeps one bit below the binary point: the half. Lower bits only matter
        # as "any of them set", found with a mask on the unshifted value; bits above the kept floor
        # as "any of them differs from the sign". Masks are faster than a wider shifter.
        width, under = self._value_width, self._floor_width - 1
        over = thermometer(self.shift)
        # bit n of the three masks: shift > n + 1; shift <= n - under; out_width > n + 1
        settings = {
            "shift": self.shift,
            "sticky_mask": over[1 : width + 1],
            "beyond_mask": Cat(C(0, under), ~over[: width - under]),
            "greatest": thermometer(delay_line(m, self.out_width, 3, "out_width")[-1])[
                1 : self._word_width
            ],
        }
        if self._with_random:
            settings["stochastic"] = delay_line(m, self.stochastic, 2, "stochastic")[-1]
        # Registers: the settings drive many loads, and the shifters behind need a whole cycle.
        passed = {}
        for name, value in settings.items():
            register = Signal(len(value), name=name, reset_less=True)
            m.d.sync += register.eq(value)
            passed[name] = delay_line(m, register, self._lanes, name)
        for lane in range(self._lanes):
            of_lane = {name: values[lane] for name, values in passed.items()}
            self._lane(m, lane, self.random[lane] if self._with_random else None, **of_lane)
        return m

    def _shifted(self, m: Module, lane: int, shift, below: int) -> Value:
        """Return bits ``-below`` to ``_floor_width`` - 1 of value / 2^shift.

        Each stage drops bits that no later stage can bring into the result, and has its own Signal,
        because Amaranth writes an expression out at every use.
        """
        width = self._floor_width + below
        shifted = Signal(signed(below + self._value_width), name=f"shifted_{lane}_by_0")
        m.d.comb += shifted.eq(Cat(C(0, below), self.value[lane]))
        for stage in reversed(range(SHIFT_WIDTH)):
            kept = min(len(shifted), width + (1 << stage) - 1)
            to = Signal(signed(kept), name=f"shifted_{lane}_by_{1 << stage}")
            m.d.comb += to.eq(Mux(shift[stage], shifted >> (1 << stage), shifted))
            shifted = to
        return shifted

    def _lane(
        self,
        m: Module,
        lane: int,
        random,
        *,
        shift,
        sticky_mask,
        beyond_mask,
        greatest,
        stochastic=None,
    ) -> None:
        value, floor_width, word_width = self.value[lane], self._floor_width, self._word_width
        # stochastic rounding keeps one bit more below the binary point than there are random bits
        below = RANDOM_WIDTH + 1 if self._with_random else 1
        shifted = Signal(signed(floor_width + below), name=f"shifted_{lane}", reset_less=True)
        sticky = Signal(name=f"sticky_{lane}", reset_less=True)
        # pipelined with the value: whether it is far outside the word, and the sign it then has
        beyond = [Signal(name=f"beyond_{lane}_{n}", reset_less=True) for n in (1, 2)]
        sign = [Signal(name=f"sign_{lane}_{n}", reset_less=True) for n in (1, 2)]
        m.d.sync += [
            shifted.eq(self._shifted(m, lane, shift, below)),
            sticky.eq((value & sticky_mask).any()),
            beyond[0].eq(((value ^ value[-1].replicate(len(value))) & beyond_mask).any()),
            sign[0].eq(value[-1]),
        ]
        half, odd = shifted[below - 1], shifted[below]
        up = half & (sticky | odd)
        rounded = Signal(signed(floor_width + 1), name=f"rounded_{lane}", reset_less=True)
        if self._with_random:
            # adding the half to itself carries into the floor exactly where the half is set
            addend = Mux(stochastic, Cat(C(1, 1), random), Cat(C(0, below - 1), up))
            total = (shifted + addend) >> below
        else:
            total = (shifted >> 1) + up
        m.d.sync += [rounded.eq(total), beyond[1].eq(beyond[0]), sign[1].eq(sign[0])]
        magnitude = Signal(floor_width, name=f"magnitude_{lane}")
        # `greatest` is all ones, so the comparison holds for both signs
        outside, negative = Signal(name=f"outside_{lane}"), Signal(name=f"negative_{lane}")
        m.d.comb += [
            magnitude.eq(rounded[:-1] ^ rounded[-1].replicate(floor_width)),
            outside.eq(beyond[1] | (magnitude > greatest)),
            negative.eq(Mux(beyond[1], sign[1], rounded[-1])),
        ]
        limit = Cat(greatest ^ negative.replicate(word_width - 1), negative)
        word = Signal(signed(word_width), name=f"word_of_{lane}", reset_less=True)
        saturated = Signal(name=f"saturated_of_{lane}", reset_less=True)
        m.d.sync += [
            word.eq(Mux(outside, limit, rounded[:word_width])),
            saturated.eq(outside),
        ]
        m.d.comb += [self.word[lane].eq(word), self.saturated[lane].eq(saturated)]

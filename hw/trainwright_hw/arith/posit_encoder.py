"""Encoder: the requantiser of an accelerator that has posits beside fixed point."""

from collections.abc import Callable, Sequence

from amaranth.hdl import C, Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from trainwright.formats import Posit
from trainwright_hw.arith.posit_classes import largest_integer, posit_classes
from trainwright_hw.arith.requantiser import (
    OUT_WIDTH_WIDTH,
    SHIFT_WIDTH,
    WORD_WIDTH,
    thermometer,
)
from trainwright_hw.stream.delay_line import delay_line

LANE_CYCLES = 5
"""Cycles of a lane from its value to its word."""
COARSE_STAGES = 3
"""Of the shifter, 32 to 8 places, in the first cycle; the others follow in the second."""


def encode_cycles(lanes: int) -> int:
    """Cycles from the value of lane 0 at the encoder's input to the words at the output."""
    return LANE_CYCLES + lanes - 1


def integer_width(formats: Sequence[Posit], word_width: int) -> int:
    """Bits of an integer's magnitude that tell all words of the formats and of fixed point."""
    return max(word_width, *(largest_integer(fmt).bit_length() for fmt in formats))


def check_encoder(value_width: int, formats: Sequence[Posit], word_width: int = WORD_WIDTH) -> None:
    """Raises ``ValueError`` where there is no posit, and for values of fewer bits than the integers
    of a format have, or of more than 64.
    """
    if not formats:
        raise ValueError("an encoder without posits is a Requantiser")
    least = integer_width(formats, word_width) + 1
    if not least <= value_width <= 64:
        raise ValueError(f"value_width must be from {least} to 64, not {value_width!r}")


class PositEncoder(wiring.Component):
    """``lanes`` values a cycle: shift, one rounding, ties to even, saturate. Fixed point or posit.

    ``format`` 0 is fixed point of ``out_width`` bits, the very function of ``Requantiser``; n > 0
    is ``formats[n - 1]``, ``trainwright.formats.Posit.encode``, where ``zero`` lets what is no more
    than half the smallest posit become 0 and else nothing does. ``shift``, ``out_width`` (4 to
    ``word_width``), ``format`` and ``zero`` are due in the cycle before value 0, as of
    ``Requantiser``; value n is due n cycles after value 0, and so are its word and flags
    (``skew``), each ``LANE_CYCLES`` after its value. A set of values a cycle, no back-pressure.

    Members: in ``shift``, ``out_width``, ``format``, ``zero`` and ``value`` (an array of ``lanes``
    signed values of ``value_width`` bits); out ``word`` (``lanes`` words, sign-extended to
    ``word_width``), ``saturated`` and ``underflow`` (a bit a lane each).

    Raises ``ValueError`` as ``check_encoder`` does.
    """

    def __init__(
        self,
        *,
        lanes: int,
        value_width: int,
        formats: Sequence[Posit],
        word_width: int = WORD_WIDTH,
    ):
        check_encoder(value_width, formats, word_width)
        self._word_width = word_width
        self._lanes = lanes
        self._value_width = value_width
        self._formats = tuple(formats)
        super().__init__(
            {
                "shift": In(SHIFT_WIDTH),
                "out_width": In(OUT_WIDTH_WIDTH),
                "format": In(range(len(formats) + 1)),
                "zero": In(1),
                "value": In(signed(value_width)).array(lanes),
                "word": Out(signed(word_width)).array(lanes),
                "saturated": Out(1).array(lanes),
                "underflow": Out(1).array(lanes),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        passed = self._settings(m)
        for lane in range(self._lanes):
            of_lane = {name: values[lane] for name, values in passed.items()}
            unit = EncoderLane(m, self._formats, self._word_width, f"{lane}", **of_lane)
            word, saturated, underflow = unit.encode(self.value[lane])
            m.d.comb += [
                self.word[lane].eq(word),
                self.saturated[lane].eq(saturated),
                self.underflow[lane].eq(underflow),
            ]
        return m

    def _settings(self, m: Module) -> dict[str, list[Value]]:
        """What the lanes go by, for each lane."""
        taken = {
            name: delay_line(m, getattr(self, name), LANE_CYCLES, name)
            for name in ("shift", "out_width", "format", "zero")
        }
        formats, word_width = self._formats, self._word_width
        width = integer_width(formats, word_width)

        def chosen(fixed: Value, posit: Callable[[Posit], int], size: int, after: int) -> Value:
            """``size`` bits: those of fixed point, or what a function of the posit gives."""
            value = fixed
            for number, fmt in enumerate(formats, 1):
                value = Mux(taken["format"][after] == number, C(posit(fmt), size), value)
            return value[:size]

        def greatest(after: int) -> Value:
            return Cat(thermometer(taken["out_width"][after])[1:word_width], C(0, width))

        least = Cat(
            *(taken["out_width"][2] == place + 1 for place in range(word_width)), C(0, width)
        )
        settings = {
            "shift": taken["shift"][0],
            # what the shifted value must not exceed, and the word of what does
            "most": chosen(greatest(2), lambda fmt: largest_integer(fmt) - 1, width, 2),
            # what it may be, complemented, where it is rounded to the least word of fixed point
            "least": chosen(least, lambda fmt: 0, width, 2),
            "limit": chosen(greatest(4), lambda fmt: fmt.largest, word_width, 4),
            "is_format": Cat(taken["format"][2] == number for number in range(1, len(formats) + 1)),
            "never": ~taken["zero"][3],
        }
        passed = {}
        for name, value in settings.items():
            register = Signal(len(value), name=f"{name}_of_lanes", reset_less=True)
            m.d.sync += register.eq(value)
            passed[name] = delay_line(m, register, self._lanes, f"{name}_of_lanes")
        return passed


class EncoderLane:
    """One lane, in place: from a value to its word in ``LANE_CYCLES`` cycles.

    ``shift`` is due with the value; ``is_format``, ``most`` and ``least`` two cycles, ``never``
    three and ``limit`` four cycles later.
    """

    def __init__(
        self,
        m: Module,
        formats: Sequence[Posit],
        word_width: int,
        name: str,
        *,
        shift: Value,
        most: Value,
        least: Value,
        limit: Value,
        is_format: Value,
        never: Value,
    ):
        self._m, self._formats, self._name = m, formats, name
        self._shift, self._most, self._least, self._limit = shift, most, least, limit
        self._is_format, self._never = is_format, never
        self._word_width, self._width = word_width, integer_width(formats, word_width)

    def _register(self, name: str, value: Value) -> Signal:
        register = Signal(value.shape(), name=f"{name}_{self._name}", reset_less=True)
        self._m.d.sync += register.eq(value)
        return register

    def _wire(self, name: str, value: Value) -> Signal:
        """A Signal of its own: an expression is written out wherever it is used."""
        wire = Signal(Value.cast(value).shape(), name=f"{name}_{self._name}")
        self._m.d.comb += wire.eq(value)
        return wire

    def encode(self, value: Value) -> tuple[Signal, Signal, Signal]:
        """Its word, whether that is saturated, and whether the value underflows."""
        integer, half, sticky, beyond, sign = self._shifted(value)
        # --- third cycle: the class of the integer, and whether it is beyond the largest
        from_place = self._from_place(integer)
        cut, prefix, lost = self._class(from_place)
        is_posit = self._is_format.any()
        up = self._wire("up_fixed", half & (sticky | integer[0] ^ sign) & ~sign & ~is_posit)
        exceeds = self._wire("exceeds", Cat(up, integer) > Cat(C(0, 1), self._most))
        # below the least word by half of the last place at most, which rounding makes that word
        rounds_in = self._wire("rounds_in", sign & half & (integer == self._least) & ~is_posit)
        longer = Cat(
            flag & from_place[bits]
            for flag, fmt in zip(self._is_format, self._formats, strict=True)
            if (bits := largest_integer(fmt).bit_length()) < self._width
        )
        tiny = is_posit & ~from_place[0] & ~beyond & (half | sticky)
        register = self._register
        cut, prefix = register("cut", cut), register("prefix", prefix)
        outside = register("outside", beyond | exceeds & ~rounds_in)
        far = register("far", ~is_posit | beyond | longer.any())
        tiny = register("tiny", tiny)
        lost = register("lost", lost & ~sign)
        posit = register("posit", is_posit)
        integer, half = register("integer_3", integer), register("half_3", half)
        sticky, sign = register("sticky_3", sticky), register("sign_3", sign)
        # --- fourth cycle: the word in front of its rounding
        kept, half, dropped = self._cut(integer, half, cut, sign)
        size = len(prefix)
        word = Cat(kept ^ prefix, integer[size : self._word_width])
        word = register("floor", word)
        half, sticky = register("half_4", half), register("sticky_4", sticky | lost | dropped)
        up_tiny = register("up_tiny", tiny & self._never & ~sign)
        flat = register("flat", tiny & self._never)
        tiny = register("tiny_4", tiny)
        outside, far = register("outside_4", outside), register("far_4", far)
        posit, sign = register("posit_4", posit), register("sign_4", sign)
        # --- fifth cycle: rounding
        up_nearest = half & (sticky | word[0] ^ sign) & ~flat
        up = self._wire("up", Mux(outside, posit & sign, up_nearest | up_tiny))
        upper = self._wire("upper", outside | posit)
        floor = Cat(
            Mux(outside if place < size else upper, self._limit[place], word[place]) ^ sign
            for place in range(self._word_width)
        )
        floor = self._wire("before", floor)
        return (
            register("word", (floor + up)[: self._word_width]),
            register("saturated", outside & (sign | half | sticky | far)),
            register("underflow", tiny),
        )

    def _shifted(self, value: Value) -> tuple[Signal, Signal, Signal, Signal, Signal]:
        """Two cycles: value / 2^shift, complemented where it is negative.

        The integer (``self._width`` bits) is complemented, and so is what is above it: whether any
        of these bits is set. The half below the point and the bits below that are the value's own.
        A stage drops what no later one can bring into these bits. The sign comes last.
        """
        width = self._width + 1  # with the half
        shift, sign, value = self._shift, value[-1], Cat(C(0, 1), value)
        under, over = [], []
        for stage in reversed(range(SHIFT_WIDTH)):
            if stage == SHIFT_WIDTH - COARSE_STAGES - 1:
                value, sign = self._register("coarse", value), self._register("sign_1", sign)
                under = [self._register("under_1", Cat(under).any())]
                over = [self._register("over_1", Cat(over).any())]
                shift = self._register("fine", shift[: stage + 1])
            first, by = stage == SHIFT_WIDTH - 1, 1 << stage
            dropped = value[:by]
            # the stage of the longest shift complements as it shifts: four inputs, one LUT a bit
            fill = sign if first else C(0, 1)
            flip = C(0, 1) if first else sign
            under.append(shift[stage] & (dropped ^ flip.replicate(len(dropped))).any())
            far = Cat(value[by:], fill.replicate(len(dropped)))
            value = Mux(shift[stage], far, value)
            if first:
                value = value ^ sign.replicate(len(value))
            value = self._wire(f"by_{by}", value)
            keep = width + by - 1
            if len(value) > keep:
                over.append(value[keep:].any())
                value = value[:keep]
        return (
            self._register("integer", value[1:]),
            self._register("half", value[0] ^ sign),
            self._register("sticky", Cat(under).any()),
            self._register("beyond", Cat(over).any()),
            self._register("sign_2", sign),
        )

    def _from_place(self, integer: Value) -> list[Value]:
        """Bit p: whether a place from p on is set."""
        found = []
        for place in range(self._width):
            end = (place // 4 + 1) * 4  # two levels of LUTs: within four places, and above them
            above = integer[end:].any() if end < self._width else C(0, 1)
            found.append(self._wire(f"from_{place}", integer[place:end].any() | above))
        return found

    def _class(self, from_place: list[Value]) -> tuple[Signal, Signal, Signal]:
        """``cut``, ``prefix`` and ``sticky`` of the class; 0 in fixed point."""

        def table(name: str, number: Callable) -> Signal:
            rows = [[number(one) for one in posit_classes(fmt)] for fmt in self._formats]
            bits = max(value.bit_length() for row in rows for value in row)
            return self._wire(
                name,
                Cat(
                    Cat(
                        flag & _in_runs([value >> bit & 1 for value in row], from_place)
                        for flag, row in zip(self._is_format, rows, strict=True)
                    ).any()
                    for bit in range(bits)
                )
                if bits
                else C(0, 1),
            )

        return (
            table("class_cut", lambda one: one.cut),
            table("class_prefix", lambda one: one.prefix),
            table("class_sticky", lambda one: int(one.sticky)),
        )

    def _cut(self, integer: Value, half: Value, cut: Value, sign: Value):
        """The integer shifted by ``cut``, the bit below it, and whether others are below that."""
        bits = max(fmt.n for fmt in self._formats) - 1
        # bit 0 is the half, complemented as the rest is
        value = Cat(half ^ sign, integer)
        width = bits + 1
        dropped = []
        for stage in reversed(range(len(cut))):
            by, on = 1 << stage, cut[stage]
            dropped.append(on & (value[:by] ^ sign.replicate(len(value[:by]))).any())
            keep = width + by - 1
            value = self._wire(f"cut_{by}", Mux(on, value[by:], value)[:keep])
        return value[1:], value[0] ^ sign, Cat(dropped).any()


def _in_runs(bits: Sequence[int], from_place: Sequence[Value]) -> Value:
    """Whether the leading place is one where ``bits`` has a 1; of places beyond, as its last."""
    runs = []
    start = None
    for place, bit in enumerate([*bits, None]):
        if bit and start is None:
            start = place
        if not bit and start is not None:
            inside = from_place[start]
            runs.append(inside if bit is None else inside & ~from_place[place])
            start = None
    return Cat(runs).any() if runs else C(0, 1)

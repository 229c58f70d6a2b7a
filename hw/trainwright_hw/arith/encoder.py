"""Encoder: the requantiser of an accelerator with coded formats and fixed point."""

from collections.abc import Callable, Sequence

from amaranth.hdl import C, Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from trainwright.formats import Binade, Coded
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
"""Shifter stages in the first cycle (32 to 8 places); the remaining ones follow in the second."""


def encode_cycles(lanes: int) -> int:
    """Return the cycles from lane 0's value at the encoder to the words of all lanes."""
    return LANE_CYCLES + lanes - 1


def integer_width(formats: Sequence[Coded], word_width: int) -> int:
    """Return the magnitude bits that distinguish all words of the formats and of fixed point."""
    return max(word_width, *(fmt.most.bit_length() for fmt in formats))


def check_encoder(value_width: int, formats: Sequence[Coded], word_width: int = WORD_WIDTH) -> None:
    """Raise ``ValueError`` without coded formats, or for a value width that does not fit them.

    Values need the bits of the formats' integers and at most 64.
    """
    if not formats:
        raise ValueError("an encoder without coded formats is a Requantiser")
    least = integer_width(formats, word_width) + 1
    if not least <= value_width <= 64:
        raise ValueError(f"value_width must be from {least} to 64, not {value_width!r}")


class Encoder(wiring.Component):
    """Encoder of ``lanes`` values per cycle: shift, round once to nearest even, saturate.

    ``format`` 0 is fixed point of ``out_width`` bits, exactly the function of ``Requantiser``. n >
    0 is ``formats[n - 1]``, exactly ``trainwright.formats.Coded.encode``, where ``zero`` lets
    magnitudes up to half the smallest number become 0; without ``zero`` nothing underflows to 0,
    except in a format that always rounds to 0 (``zero_only``).
    ``shift``, ``out_width`` (4 to ``word_width``), ``format`` and ``zero`` are due in the cycle
    before value 0, as for ``Requantiser``. Value n is due n cycles after value 0, and its word and
    flags appear with the same offset (``skew``), each ``LANE_CYCLES`` after its value. Accepts a
    set of values per cycle, without back-pressure.

    Members: in ``shift``, ``out_width``, ``format``, ``zero`` and ``value`` (an array of ``lanes``
    signed values of ``value_width`` bits); out ``word`` (``lanes`` words, sign-extended to
    ``word_width``), ``saturated`` and ``underflow`` (one bit per lane each).

    Raises ``ValueError`` like ``check_encoder``.
    """

    def __init__(
        self,
        *,
        lanes: int,
        value_width: int,
        formats: Sequence[Coded],
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
        """Delay the settings for each lane, decoded into the lanes' own signals."""
        taken = {
            name: delay_line(m, getattr(self, name), LANE_CYCLES, name)
            for name in ("shift", "out_width", "format", "zero")
        }
        formats, word_width = self._formats, self._word_width
        width = integer_width(formats, word_width)

        def chosen(fixed: Value, coded: Callable[[Coded], int], size: int, after: int) -> Value:
            """Choose ``size`` bits: ``fixed``, or ``coded`` of the command's coded format."""
            value = fixed
            for number, fmt in enumerate(formats, 1):
                value = Mux(taken["format"][after] == number, C(coded(fmt), size), value)
            return value[:size]

        def greatest(after: int) -> Value:
            return Cat(thermometer(taken["out_width"][after])[1:word_width], C(0, width))

        # One-hot: the magnitude, complemented, of the least fixed-point word of each width.
        least = Cat(
            *(taken["out_width"][2] == place + 1 for place in range(word_width)), C(0, width)
        )
        settings = {
            "shift": taken["shift"][0],
            # Magnitudes above `most` take the word `limit`. A complemented magnitude is less by 1,
            # and so is `most` in coded formats: one comparison serves both signs. The largest
            # positive number then takes `limit`, its own word, and counts as saturated only if
            # lower bits are set.
            "most": chosen(greatest(2), lambda fmt: fmt.most - 1, width, 2),
            # complemented magnitude that rounding brings back to the least fixed-point word
            "least": chosen(least, lambda fmt: 0, width, 2),
            "limit": chosen(greatest(4), lambda fmt: fmt.largest, word_width, 4),
            "is_format": Cat(taken["format"][2] == number for number in range(1, len(formats) + 1)),
            "never": self._never(taken["zero"][3], taken["format"][3]),
        }
        passed = {}
        for name, value in settings.items():
            register = Signal(len(value), name=f"{name}_of_lanes", reset_less=True)
            m.d.sync += register.eq(value)
            passed[name] = delay_line(m, register, self._lanes, f"{name}_of_lanes")
        return passed

    def _never(self, zero: Value, number: Value) -> Value:
        """Tell whether underflows become the smallest number and never 0."""
        always = [n for n, fmt in enumerate(self._formats, 1) if fmt.zero_only]
        return ~(zero | Cat(number == n for n in always).any() if always else zero)


class EncoderLane:
    """Logic of one lane, in place: from a value to its word in ``LANE_CYCLES`` cycles.

    ``shift`` is due with the value; ``is_format``, ``most`` and ``least`` two cycles later,
    ``never`` three and ``limit`` four cycles later.
    """

    def __init__(
        self,
        m: Module,
        formats: Sequence[Coded],
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
        """Give an expression a Signal: Amaranth writes an expression out at every use."""
        wire = Signal(Value.cast(value).shape(), name=f"{name}_{self._name}")
        self._m.d.comb += wire.eq(value)
        return wire

    def encode(self, value: Value) -> tuple[Signal, Signal, Signal]:
        """Return the value's word, whether it is saturated, and whether the value underflows."""
        integer, half, sticky, beyond, sign = self._shifted(value)
        # --- third cycle: binade of the integer, and comparison with the largest
        from_place = self._from_place(integer)
        cut, prefix, lost = self._binade(from_place)
        is_coded = self._is_format.any()
        up = self._wire("up_fixed", half & (sticky | integer[0] ^ sign) & ~sign & ~is_coded)
        # Compare integer + up with the largest magnitude, without an adder: append up as a low bit.
        exceeds = self._wire("exceeds", Cat(up, integer) > Cat(C(0, 1), self._most))
        # at most half a place below the least word: rounding makes it that word, no saturation
        rounds_in = self._wire("rounds_in", sign & half & (integer == self._least) & ~is_coded)
        longer = Cat(
            flag & from_place[bits]
            for flag, fmt in zip(self._is_format, self._formats, strict=True)
            if (bits := fmt.most.bit_length()) < self._width
        )
        tiny = is_coded & ~from_place[0] & ~beyond & (half | sticky)
        register = self._register
        cut, prefix = register("cut", cut), register("prefix", prefix)
        outside = register("outside", beyond | exceeds & ~rounds_in)
        far = register("far", ~is_coded | beyond | longer.any())
        tiny = register("tiny", tiny)
        lost = register("lost", lost & ~sign)
        coded = register("posit", is_coded)
        integer, half = register("integer_3", integer), register("half_3", half)
        sticky, sign = register("sticky_3", sticky), register("sign_3", sign)
        # --- fourth cycle: the word before rounding
        kept, half, dropped = self._cut(integer, half, cut, sign)
        size = len(prefix)
        word = Cat(kept ^ prefix, integer[size : self._word_width])
        word = register("floor", word)
        half, sticky = register("half_4", half), register("sticky_4", sticky | lost | dropped)
        up_tiny = register("up_tiny", tiny & self._never & ~sign)
        flat = register("flat", tiny & self._never)
        tiny = register("tiny_4", tiny)
        outside, far = register("outside_4", outside), register("far_4", far)
        coded, sign = register("posit_4", coded), register("sign_4", sign)
        # --- fifth cycle: rounding

        # A negative value is still complemented. The complement of `limit` is the least word of
        # fixed point; coded formats are symmetric, and add 1 to get -limit.
        up_nearest = half & (sticky | word[0] ^ sign) & ~flat
        up = self._wire("up", Mux(outside, coded & sign, up_nearest | up_tiny))
        # Coded words have no bits from `size` on: `limit` is 0 there, so the XOR extends the sign.
        upper = self._wire("upper", outside | coded)
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
        """Divide the value by 2^shift in two cycles, complementing negative values.

        The integer (``self._width`` bits) is complemented, and so are the bits above it, of which
        "beyond" tells whether any is set. The half below the point and the sticky bits below it are
        the value's own. Each stage drops bits that no later stage can bring into the result. The
        sign is returned last.
        """
        width = self._width + 1  # the half included
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
            # The longest shift also complements: four inputs, so still one LUT per bit.
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
        """Return for each place p whether a bit from p on is set."""
        reached = []
        for place in range(self._width):
            end = (place // 4 + 1) * 4  # two LUT levels: in the group of four, and above
            above = integer[end:].any() if end < self._width else C(0, 1)
            reached.append(self._wire(f"from_{place}", integer[place:end].any() | above))
        return reached

    def _binade(self, from_place: list[Value]) -> tuple[Signal, Signal, Signal]:
        """Return ``cut``, ``prefix`` and ``sticky`` of the integer's binade; 0 in fixed point."""

        def table(name: str, number: Callable[[Binade], int]) -> Signal:
            rows = [[number(binade) for binade in fmt.binades] for fmt in self._formats]
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
            table("class_cut", lambda binade: binade.cut),
            table("class_prefix", lambda binade: binade.prefix),
            table("class_sticky", lambda binade: int(binade.sticky)),
        )

    def _cut(self, integer: Value, half: Value, cut: Value, sign: Value):
        """Shift the integer by ``cut``; return it, the bit below, and any lower bit."""
        bits = max(fmt.width for fmt in self._formats) - 1
        # bit 0 is the half, complemented like the integer
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
    """Return whether ``bits`` has a 1 at the leading place; places beyond count as the last."""
    # A run of ones takes one AND: a bit from its first place on is set, and none behind its end.
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

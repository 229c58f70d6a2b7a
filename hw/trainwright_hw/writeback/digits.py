"""Results wider than a word: places of their digits, and the digits of a row."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import DIGIT_WIDTH, digit_count
from trainwright.program.fields import LOCAL_WIDTH
from trainwright_hw.arith.fixed import integer
from trainwright_hw.storage.ports import banks_asked
from trainwright_hw.stream.registered_queue import RegisteredQueue

LEVEL_WIDTH = 2
"""Bits of a digit's level, the number of lower digits of its value."""

PLACE_LAYOUT = data.StructLayout(
    {"address": LOCAL_WIDTH, "final": 1, "kind": 1, "highest": LEVEL_WIDTH}
)
"""Place of a row of values.

Its address, whether it is the last row of its command, its kind of array, and the level of its
highest digit.
"""


def digit_layout(parameters: AcceleratorParameters) -> data.StructLayout:
    """Lay out a digit's place.

    One bit per bank, the address's bank or none; whether it is the last digit of a command; and
    which digit of the row it is.
    """
    return data.StructLayout(
        {
            "banks": parameters.scratchpad_banks,
            "address": LOCAL_WIDTH,
            "final": 1,
            "kind": 1,
            "level": LEVEL_WIDTH,
            "is_highest": 1,
        }
    )


def whole_row_layout(parameters: AcceleratorParameters) -> data.ArrayLayout:
    """Lay out a row of results before they are cut: ``lanes`` values of ``result_width``."""
    return data.ArrayLayout(parameters.result_width, parameters.lanes)


def highest_level(out_width: Value, parameters: AcceleratorParameters) -> Value:
    """Return the level of the highest digit of values of ``out_width`` bits: 0 for words."""
    level: Value = Const(0, LEVEL_WIDTH)
    # Digits below the highest carry DIGIT_WIDTH bits each, the highest one a sign in addition.
    for number in range(1, digit_count(parameters.result_width)):
        level = Mux(out_width > 1 + DIGIT_WIDTH * number, number, level)
    return level


def digits_of(
    m: Module, parameters: AcceleratorParameters, row: data.View, level: Value, is_highest: Value
) -> Value:
    """Select a digit of each value of a whole row, as a row of words.

    The highest digit is signed; lower digits are never negative.
    """
    assert parameters.word_width == DIGIT_WIDTH + 1
    levels = digit_count(parameters.result_width)
    words: list[Value] = []
    for lane in range(parameters.lanes):
        value = integer(Value.cast(row[lane]))
        word = Signal(signed(parameters.word_width), name=f"digit_{lane}")
        # Fixed shifts behind a switch instead of a shifter by a variable distance.
        with m.Switch(level):
            for number in range(levels):
                with m.Default() if number == levels - 1 else m.Case(number):
                    m.d.comb += word.eq(value >> DIGIT_WIDTH * number)
        # The top bit is the sign for the highest digit, and belongs to the next digit elsewhere.
        words += [word[:DIGIT_WIDTH], word[DIGIT_WIDTH] & is_highest]
    return Cat(*words)


class DigitPlaces(wiring.Component):
    """Expander of rows' places to their digits' places.

    The highest digit has the row's address, lower digits the following addresses. ``push`` brings a
    ``place``; there is always room, because the pusher has credit for ``depth`` places. The oldest
    ``digit`` is valid while ``valid``, until ``ready``; its ``banks`` are 0 otherwise. Throughput
    is a digit per cycle, the first digit in the cycle after its push at the earliest.
    """

    def __init__(self, parameters: AcceleratorParameters, *, depth: int):
        self._parameters = parameters
        self._depth = depth
        self._layout = digit_layout(parameters)
        super().__init__(
            {
                "push": In(1),
                "place": In(PLACE_LAYOUT),
                "valid": Out(1),
                "ready": In(1),
                "digit": Out(self._layout),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.places = places = RegisteredQueue(
            width=PLACE_LAYOUT.size, depth=self._depth, counted=True
        )
        # this short queue takes the arbiters' late grants
        m.submodules.ahead = ahead = RegisteredQueue(
            width=self._layout.size, depth=2, flags=self._parameters.scratchpad_banks
        )
        oldest, digit = Signal(PLACE_LAYOUT), Signal(self._layout)
        given = Signal(LEVEL_WIDTH)  # digits of the oldest place already sent ahead
        has_place, is_last = Signal(), Signal()
        m.d.comb += [
            has_place.eq(self.push | places.r_rdy),
            oldest.eq(Mux(places.r_rdy, places.r_data, self.place.as_value())),
            is_last.eq(given == oldest.highest),
            # a place that finds the queue empty goes ahead at once, except for its further digits
            places.w_en.eq(self.push & (places.r_rdy | ~ahead.w_rdy | ~is_last)),
            places.w_data.eq(self.place),
            places.r_en.eq(ahead.w_rdy & is_last),
            digit.address.eq(oldest.address + given),
            digit.banks.eq(banks_asked(self._parameters, Const(1), digit.address)),
            digit.final.eq(oldest.final & is_last),
            digit.kind.eq(oldest.kind),
            digit.level.eq(oldest.highest - given),
            digit.is_highest.eq(given == 0),
            ahead.w_en.eq(has_place),
            ahead.w_data.eq(digit),
            self.valid.eq(ahead.r_rdy),
            self.digit.as_value().eq(ahead.r_data),
            ahead.r_en.eq(self.ready),
        ]
        with m.If(has_place & ahead.w_rdy):
            m.d.sync += given.eq(Mux(is_last, 0, given + 1))
        return m

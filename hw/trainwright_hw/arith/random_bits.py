"""Random bits of stochastic rounding: the hardware of ``trainwright.fixed.random_bits``."""

from amaranth.hdl import C, Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from trainwright.fixed.random_bits import (
    CONSTANT,
    KEY_ROTATIONS,
    KEYS_A_ROW,
    ROTATIONS,
    ROUNDS,
    STREAM_ROTATION,
    TWIST,
    UNITS,
)
from trainwright.formats.rounding import RANDOM_WIDTH
from trainwright.program.fields import LOCAL_WIDTH
from trainwright_hw.arith.select import select

RANDOM_CYCLES = 2
"""Cycles from a key to its random bits."""

STREAM_WIDTH = 32
LANE_WIDTH = (KEYS_A_ROW - 1).bit_length()
KEY_WIDTH = LOCAL_WIDTH + LANE_WIDTH


class RandomBits(wiring.Component):
    """Generator of ``units`` (up to 16) random bytes per key, a key per cycle.

    Implements ``mixed`` and ``unit_bytes``. Each of the ``RANDOM_CYCLES`` cycles does half of the
    rounds; a round maps four bits to each bit.

    Members: in ``stream`` and ``key``; out, ``RANDOM_CYCLES`` later, ``random`` (``units`` bytes)
    and ``state``, the bits from which ``unit_byte`` makes the bytes.
    """

    def __init__(self, *, units: int):
        self._units = units
        super().__init__(
            {
                "stream": In(STREAM_WIDTH),
                "key": In(KEY_WIDTH),
                "random": Out(RANDOM_WIDTH).array(units),
                "state": Out(2 * STREAM_WIDTH),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        low, high = _begin(m, self.stream, self.key)
        # Two cycles, half of the rounds each: all rounds in one would be the longest path of the
        # lanes.
        for cycle in range(RANDOM_CYCLES):
            rounds = range(cycle * ROUNDS // RANDOM_CYCLES, (cycle + 1) * ROUNDS // RANDOM_CYCLES)
            for _ in rounds:
                low, high = _round(m, low, high)
            state = Signal(2 * STREAM_WIDTH, name=f"state_{cycle}", reset_less=True)
            m.d.sync += state.eq(Cat(low, high))
            low, high = state[:STREAM_WIDTH], state[STREAM_WIDTH:]
        places = Cat(low, high)
        m.d.comb += [
            self.state.eq(places),
            # Eight bytes are the state, eight more the state XOR a rotation of itself: sixteen
            # lanes without a second generator.
            Cat(self.random).eq(Cat(places, places ^ places.rotate_right(TWIST))),
        ]
        return m


class RandomState(wiring.Component):
    """Generator of the state of one key at a time, in ``cycles`` cycles, a divisor of ``ROUNDS``.

    Implements ``mixed`` with the logic of ``ROUNDS / cycles`` rounds.

    Members: in ``step``, which counts the cycles of a key from 0; ``stream`` and ``key``, in cycle
    0; out ``state``, ``cycles`` later and until the next key's state.
    """

    def __init__(self, *, cycles: int):
        self._cycles = cycles
        super().__init__(
            {
                "step": In(range(max(ROUNDS, 2 * cycles))),
                "stream": In(STREAM_WIDTH),
                "key": In(KEY_WIDTH),
                "state": Out(2 * STREAM_WIDTH),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        so_far = Signal(2 * STREAM_WIDTH, reset_less=True)
        begin = Cat(_begin(m, self.stream, self.key))
        words = Signal(2 * STREAM_WIDTH)
        # Step 0 mixes stream and key in; afterwards the words circulate.
        m.d.comb += words.eq(Mux(self.step == 0, begin, so_far))
        low, high = words[:STREAM_WIDTH], words[STREAM_WIDTH:]
        for _ in range(ROUNDS // self._cycles):
            low, high = _round(m, low, high)
        m.d.sync += so_far.eq(Cat(low, high))
        with m.If(self.step == self._cycles - 1):
            m.d.sync += self.state.eq(Cat(low, high))
        return m


def unit_byte(state: Value, first: int, width: int, place: Value) -> Value:
    """Select byte ``first`` + ``width`` * ``place`` of a ``state``'s random bits.

    The byte is selected before the twist, so that only one byte is twisted.
    """
    plain, twisted = (
        [word.word_select(n, RANDOM_WIDTH) for n in range(UNITS // 2)]
        for word in (state, state.rotate_right(TWIST))
    )
    # With one byte a thread the place is fixed and no multiplexer is needed.
    if width == UNITS:
        byte = plain[first % len(plain)]
        return byte ^ twisted[first % len(plain)] if first >= len(plain) else byte
    choice, upper = place[:-1], place[-1]
    byte, twist = (select(half[first::width], choice) for half in (plain, twisted))
    return byte ^ Mux(upper, twist, 0)


def _begin(m: Module, for_stream: Value, for_key: Value) -> tuple[Value, Value]:
    """Return the state before the first round."""
    stream, key = Signal(STREAM_WIDTH, name="stream"), Signal(STREAM_WIDTH, name="key")
    m.d.comb += [stream.eq(for_stream), key.eq(for_key)]
    # Rotations spread a small key, an address, over all 32 bits before the first round.
    first, second = KEY_ROTATIONS
    low = stream ^ _sum(key.rotate_left(bits) for bits in first)
    high = stream.rotate_left(STREAM_ROTATION) ^ C(CONSTANT, STREAM_WIDTH)
    return low, high ^ _sum(key.rotate_left(bits) for bits in second)


def _sum(words) -> Value:
    """Combine all words by XOR."""
    total, *rest = words
    for word in rest:
        total = total ^ word
    return total


def _round(m: Module, low: Value, high: Value) -> tuple[Value, Value]:
    # The round of Simon, without a round key: AND of two rotations is its only nonlinear part.
    single, eight, two = (low.rotate_left(bits) for bits in ROTATIONS)
    mixed = Signal(STREAM_WIDTH, name="mixed")
    m.d.comb += mixed.eq(high ^ (single & eight) ^ two)
    return mixed, low

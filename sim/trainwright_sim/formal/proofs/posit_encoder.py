"""The posit encoder against ``trainwright.formats``: every value of the accumulators, every shift.

Bounds between words of posit(8,0) have one bit below the point. So a word depends on twice the size
of the value, cut off to an integer, and on whether anything was cut off. The first half of the
definition computes both; the second half counts the bounds that they reach.
"""

from typing import Any

from amaranth.hdl import C, Cat, Mux, Signal, signed

from trainwright.formats import Posit
from trainwright_hw.arith.encoder import LANE_CYCLES, Encoder
from trainwright_sim.formal.bench import ProofBench
from trainwright_sim.formal.mutant import Mutant
from trainwright_sim.formal.proof import Proof

FORMAT = Posit(8, 0)
WIDTH = 44
"""Bits of the values: the width of the accumulators in an accelerator for posits."""
FRACTION = 64
"""Bits below the point that no shift goes beyond."""
TWICE = FORMAT.decoded_width + 1
"""Bits of twice a size, all that the bounds tell apart."""


def bounds() -> list[tuple[int, bool]]:
    """Return for each word the smallest doubled size that rounds to it.

    The flag says whether that size is a tie, which goes to the word below.
    """
    limits = []
    for word in range(1, FORMAT.largest + 1):
        sizes = range(1 << TWICE)
        low, high = 0, len(sizes) - 1
        while low < high:  # the least whose word is at least this one
            middle = (low + high) // 2
            if int(FORMAT.encode(middle, 1)[0]) >= word:
                high = middle
            else:
                low = middle + 1
        # with more bits below: does what is a little more than the size before reach the word?
        less = int(FORMAT.encode(2 * (low - 1) + 1, 2)[0]) >= word
        limits.append((low - less, less))
    return limits


def every_value(bench: ProofBench, block: Any) -> None:
    """Claim the word for every value in one lane, under either underflow rule."""
    dut = block(lanes=1, value_width=WIDTH, formats=(FORMAT,))
    bench.add(dut)
    m = bench.m
    shift, zero = bench.past(dut.shift), bench.past(dut.zero)
    is_posit = bench.past(dut.format) == 1
    value = dut.value[0]
    size, exact = Signal(WIDTH), Signal(WIDTH + FRACTION)
    twice, rest = Signal(TWICE), Signal()
    whole = exact[FRACTION - 1 :]
    m.d.comb += [
        size.eq(Mux(value < 0, -value, value)),
        exact.eq(Cat(C(0, FRACTION), size) >> shift),
        twice.eq(Mux(whole[TWICE:].any(), (1 << TWICE) - 1, whole)),
        rest.eq(exact[: FRACTION - 1].any()),
    ]
    held = {name: bench.past(v) for name, v in (("twice", twice), ("rest", rest), ("zero", zero),
            ("negative", value < 0), ("is", is_posit))}  # fmt: skip
    word = Signal(8)
    for number, (least, tie) in enumerate(bounds(), 1):
        reached = (held["twice"] >= least + tie) | ((held["twice"] == least) & held["rest"] & tie)
        if number == 1:  # never rounds to 0, or from more than a half on
            nonzero = (held["twice"] != 0) | held["rest"]
            more = (held["twice"] > 1) | ((held["twice"] == 1) & held["rest"])
            reached = Mux(held["zero"], more, nonzero)
        with m.If(reached):
            m.d.comb += word.eq(number)
    expected = Signal(signed(9))
    m.d.comb += expected.eq(Mux(held["negative"], -word, word))
    due = bench.settled(LANE_CYCLES + 2) & bench.past(held["is"], LANE_CYCLES - 1)
    bench.goal(~due | (dut.word[0] == bench.past(expected, LANE_CYCLES - 1)))


PROOFS = (
    Proof(
        name="posit-encoder.definition",
        claim=f"the word of {FORMAT} equals the definition, for {WIDTH} bits, every shift and rule",
        block=Encoder,
        build=every_value,
        mutant=Mutant(
            "up_nearest = half & (sticky | word[0] ^ sign)",
            "up_nearest = half & (sticky | word[0])",
        ),
        depth=LANE_CYCLES + 3,
    ),
)

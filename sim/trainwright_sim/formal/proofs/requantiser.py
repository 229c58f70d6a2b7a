"""The requantiser against its definition, for every value, shift and width."""

from typing import Any

from amaranth.hdl import C, Cat, Mux, Signal, signed

from trainwright.parameters import AcceleratorParameters
from trainwright_hw.arith.requantiser import LANE_CYCLES, WORD_WIDTH, Requantiser
from trainwright_sim.formal.bench import ProofBench
from trainwright_sim.formal.mutant import Mutant
from trainwright_sim.formal.proof import Proof

WIDTH = AcceleratorParameters().vector_width
FRACTION = 64
"""Bits below the point that no shift goes beyond."""
LEAST_WIDTH = 4


def definition(bench: ProofBench, value: Any, shift: Any, out_width: Any) -> tuple[Signal, Signal]:
    """Return the rounded and saturated quotient as defined, and whether it saturates.

    The quotient is q = saturate(round_half_even(value / 2^shift), out_width).
    """
    exact = Signal(signed(WIDTH + FRACTION), name="exact")
    rounded = Signal(signed(WIDTH + 1), name="rounded")
    most = Signal(signed(WORD_WIDTH + 1), name="most")
    word, saturated = Signal(signed(WORD_WIDTH), name="q"), Signal(name="saturates")
    floor, rest, half = exact[FRACTION:].as_signed(), exact[:FRACTION], 1 << (FRACTION - 1)
    up = (rest > half) | ((rest == half) & floor[0])
    bench.m.d.comb += [
        exact.eq(Cat(C(0, FRACTION), value).as_signed() >> shift),
        rounded.eq(floor + up),
        most.eq((1 << (out_width - 1).as_unsigned()[:4]) - 1),
        saturated.eq((rounded > most) | (rounded < -1 - most)),
        word.eq(Mux(rounded > most, most, Mux(rounded < -1 - most, -1 - most, rounded))),
    ]
    return word, saturated


def every_value(bench: ProofBench, block: Any) -> None:
    """Claim the result for every value in lane 1 of two, with the skew of that lane."""
    dut = block(lanes=2, value_width=WIDTH)
    bench.add(dut)
    shift, width = bench.past(dut.shift, 2), bench.past(dut.out_width, 2)
    bench.assume((dut.out_width >= LEAST_WIDTH) & (dut.out_width <= WORD_WIDTH))
    word, saturated = definition(bench, dut.value[1], shift, width)
    settled = bench.settled(LANE_CYCLES + 2)
    bench.goal(~settled | (dut.word[1] == bench.past(word, LANE_CYCLES)))
    bench.goal(~settled | (dut.saturated[1] == bench.past(saturated, LANE_CYCLES)))


PROOFS = (
    Proof(
        name="requantiser.definition",
        claim="word and flag equal the definition, for every value, shift and width",
        block=Requantiser,
        build=every_value,
        mutant=Mutant("up = half & (sticky | odd)", "up = half & (sticky | ~odd)"),
        depth=LANE_CYCLES + 3,
    ),
)

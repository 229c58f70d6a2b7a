"""Delay lines: skew and deskew together delay, and do nothing else."""

from typing import Any

from trainwright_hw.stream.delay_line import delay_line, deskew, skew
from trainwright_sim.formal.bench import ProofBench
from trainwright_sim.formal.mutant import Mutant
from trainwright_sim.formal.proof import Proof

UNITS = 6


def each_unit(bench: ProofBench, block: Any) -> None:
    """Claim that unit n delays its value by n cycles."""
    value = bench.free(2, "value")
    passed = block(bench.m, value, UNITS, "passed")
    for unit, delayed in enumerate(passed):
        bench.goal(~bench.settled(unit + 1) | (delayed == bench.past(value, unit)))


def together(bench: ProofBench, block: Any) -> None:
    """Claim that words that are skewed and then deskewed arrive in one cycle again."""
    words = [bench.free(2, f"word_{unit}") for unit in range(UNITS)]
    straight = block(bench.m, skew(bench.m, words, "skewed"), "deskewed")
    for word, delayed in zip(words, straight, strict=True):
        bench.goal(~bench.settled(UNITS) | (delayed == bench.past(word, UNITS - 1)))


PROOFS = (
    Proof(
        name="delay-line.units",
        claim="unit n gets a value n cycles after the first",
        block=delay_line,
        build=each_unit,
        mutant=Mutant("register.eq(passed[-1])", "register.eq(passed[0])"),
        depth=UNITS + 1,
    ),
    Proof(
        name="delay-line.deskew",
        claim="deskewing brings skewed words back into one cycle",
        block=deskew,
        build=together,
        mutant=Mutant("skew(m, words[::-1], name)[::-1]", "skew(m, words, name)"),
        depth=UNITS + 1,
    ),
)

"""The posit decoders against ``trainwright.formats``: every word of every format."""

from typing import Any

from amaranth.hdl import Array, C, Signal, signed

from trainwright.formats import Posit
from trainwright_hw.arith.decoder import SHIFT_DECODE_CYCLES, ShiftDecoder
from trainwright_sim.formal.bench import ProofBench
from trainwright_sim.formal.mutant import Mutant
from trainwright_sim.formal.proof import Proof

FORMATS = (Posit(8, 0), Posit(8, 1, clamped=True), Posit(6, 1))


def table(fmt: Posit, word: Any, width: int) -> tuple[Any, Any]:
    """Return whether the format has the word, and the integer it stands for."""
    words = range(-fmt.largest, fmt.largest + 1)
    integers = fmt.decode(words).tolist()
    value = Array(C(integer, signed(width)) for integer in integers)
    return (word >= -fmt.largest) & (word <= fmt.largest), value[(word + fmt.largest)[: fmt.n]]


def every_word(bench: ProofBench, block: Any) -> None:
    """Claim the integer of every word in every format; fixed-point words are unchanged."""
    dut = block(FORMATS)
    bench.add(dut)
    width = len(dut.value)
    has, integer = Signal(name="has"), Signal(signed(width), name="integer")
    bench.m.d.comb += [has.eq(dut.format == 0), integer.eq(dut.word)]
    for number, fmt in enumerate(FORMATS, 1):
        known, value = table(fmt, dut.word, width)
        with bench.m.If(dut.format == number):
            bench.m.d.comb += [has.eq(known), integer.eq(value)]
    delay = SHIFT_DECODE_CYCLES
    due = bench.settled(delay + 1) & bench.past(has, delay)
    bench.goal(~due | (dut.value == bench.past(integer, delay)))


PROOFS = (
    Proof(
        name="posit-decoder.shifts",
        claim=f"the integer of every word of {', '.join(map(str, FORMATS))} and fixed point",
        block=ShiftDecoder,
        build=every_word,
        mutant=Mutant("(integer >> cut) - negative", "(integer >> cut) - 0"),
        depth=SHIFT_DECODE_CYCLES + 2,
    ),
)

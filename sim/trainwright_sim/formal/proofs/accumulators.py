"""The sums of both arrays: those of their products, exactly, wherever a complete sum fits.

Partial sums may leave the accumulator's range and come back, so accumulator and reference are both
kept modulo 2^width. The compiler proves that complete sums fit. Operands and accumulators are
narrow here, so that accumulators leave their range soon; the source is the same for all widths.
"""

from functools import reduce
from operator import add, or_
from typing import Any

from amaranth.hdl import Cat, Mux, Signal, Value, signed

from trainwright.parameters import AcceleratorParameters
from trainwright_hw.arith.fixed import FixedArithmetic
from trainwright_hw.compute.pe1.dot_array import DotProductArray, dot_cycles
from trainwright_hw.compute.pe2.outer_array import OuterProductArray, outer_cycles
from trainwright_sim.formal.bench import ProofBench
from trainwright_sim.formal.mutant import Mutant
from trainwright_sim.formal.proof import Proof

PARAMETERS = AcceleratorParameters(lanes=4, pe1_rows=2, pe2_rows=2)
OPERAND, ACCUMULATOR = 3, 9
FORMAT = FixedArithmetic(
    left_width=OPERAND, right_width=OPERAND, accumulator_width=ACCUMULATOR, word_width=16
)
LANES = PARAMETERS.lanes


def sums(
    bench: ProofBench, term: Value, taken: Value, first: Value, last: Value
) -> tuple[Any, Any]:
    """Return the expected sum of the terms with ``taken``, modulo 2^``ACCUMULATOR``.

    The first value is the sum before this cycle, the second one includes this cycle's term.
    """
    before = Signal(signed(ACCUMULATOR), name="sum")
    after = Signal(signed(ACCUMULATOR), name="sum_with_it")
    bench.m.d.comb += after.eq(Mux(first, 0, before) + term)
    with bench.m.If(taken):
        bench.m.d.sync += before.eq(Mux(last, 0, after))
    return before, after


def outer(bench: ProofBench, block: Any) -> None:
    """Claim the sums of the last row and lane of PE2, from its operands to the drain buffer."""
    dut = block(PARAMETERS, arithmetic=FORMAT)
    inside = bench.add(dut)
    lane, row = LANES - 1, PARAMETERS.pe2_rows - 1
    term = dut.x_row[lane].as_signed() * dut.g_row[row].as_signed()
    before, after = sums(bench, term, dut.valid, Value.cast(0), dut.last)
    cycles = outer_cycles(FORMAT) + lane
    # the accumulator holds the sum so far, and zero after a complete sum
    bench.lemma(~bench.settled(1) | (inside["accumulator"] == bench.past(before, cycles - 1)))
    complete = bench.past(dut.valid & dut.last, cycles)
    asked = bench.past(dut.row == row, lane)
    bench.goal(~(complete & asked) | (dut.value[lane] == bench.past(after, cycles)))


def rows_at_work(bench: ProofBench, dut: Any, inside: Any, row: int) -> tuple[list[Value], Value]:
    """Return the operands that a row uses in this cycle, and whether they are known."""
    m = bench.m
    shape = signed(OPERAND)
    loaded = [Signal(shape, name=f"loaded_{n}") for n in range(LANES)]
    active = [Signal(shape, name=f"active_{n}") for n in range(LANES)]
    is_loaded, is_active = Signal(name="is_loaded"), Signal(name="is_active")
    with m.If(dut.swap):
        m.d.sync += [is_active.eq(is_loaded), Cat(*active).eq(Cat(*loaded))]
    with m.If(dut.load & (dut.load_row == row)):
        m.d.sync += [is_loaded.eq(1), Cat(*loaded).eq(dut.row.as_value())]
    for held, own in zip(inside["shadow"][row], loaded, strict=True):
        bench.lemma(~bench.past(is_loaded, row) | (held == bench.past(own, row)))
    operands = [Mux(dut.swap, new, old) for new, old in zip(loaded, active, strict=True)]
    return operands, Mux(dut.swap, is_loaded, is_active)


def dot(bench: ProofBench, block: Any) -> None:
    """Claim the sums of PE1's last row, for one arbitrary number of an entry.

    This covers the accumulator, which is kept in a memory, and the result. Entries of a step follow
    its swap within as many cycles as there are lanes, as PE1 guarantees.
    """
    dut = block(PARAMETERS, arithmetic=FORMAT)
    inside = bench.add(dut)
    row = PARAMETERS.pe1_rows - 1
    chosen = bench.constant(2, "chosen")
    operands, known = rows_at_work(bench, dut, inside, row)
    swaps = [dut.swap, *(bench.past(dut.swap, n) for n in range(1, LANES))]
    bench.assume(~dut.valid | reduce(or_, swaps))
    mine = dut.valid & (dut.number == chosen)
    bench.assume(~(mine & (bench.past(mine, 1) | bench.past(mine, 2))))
    bench.assume(~mine | known)
    begun = Signal(name="begun")
    with bench.m.If(mine & dut.first):
        bench.m.d.sync += begun.eq(1)
    bench.assume(~mine | dut.first | begun)
    term = reduce(add, (a * b for a, b in zip(operands, dut.entry, strict=True)))
    before, after = sums(bench, term, mine, dut.first, Value.cast(0))
    cycles = dot_cycles(FORMAT) + row
    kept = inside.memory(f"accumulators_{row}", chosen, ACCUMULATOR).as_signed()
    bench.lemma(~bench.past(begun, cycles - 1) | (kept == bench.past(before, cycles - 1)))
    bench.goal(~bench.past(mine, cycles) | (dut.value[row] == bench.past(after, cycles)))


PROOFS = (
    Proof(
        name="accumulators.outer",
        claim="a complete sum of PE3 is the sum of its products, if it fits the accumulator",
        block=OuterProductArray,
        build=outer,
        mutant=Mutant("drain.eq(total), accumulator.eq(arithmetic.zero)", "drain.eq(total)"),
        depth=outer_cycles(FORMAT) + LANES + 1,
        mutant_depth=16,
    ),
    Proof(
        name="accumulators.dot",
        claim="a complete sum of PE4 is the sum of its products, if it fits the accumulator",
        block=DotProductArray,
        build=dot,
        mutant=Mutant("arithmetic.sum_shape(4)", "arithmetic.sum_shape(2)"),
        depth=dot_cycles(FORMAT) + LANES,
        mutant_depth=10,
    ),
)

"""The sequencer's loops: each is run as often as it says."""

from typing import Any

from amaranth.hdl import Array, Signal

from trainwright.parameters import AcceleratorParameters
from trainwright_hw.control.loop_stack import LoopStack
from trainwright_sim.formal.bench import ProofBench
from trainwright_sim.formal.mutant import Mutant
from trainwright_sim.formal.opened import Opened
from trainwright_sim.formal.proof import Proof

PARAMETERS = AcceleratorParameters()
NUMBER_WIDTH = 9


def stack(bench: ProofBench, block: Any) -> tuple[Any, Opened, Signal]:
    """Add a stack with a sequencer that respects ``full`` and ``empty``, and count open loops."""
    dut, deepest = block(PARAMETERS, number_width=NUMBER_WIDTH), PARAMETERS.loop_depth
    inside = bench.add(dut)
    depth = Signal(range(deepest + 1), name="depth")
    bench.assume(~(dut.push & (depth == deepest)) & ~(dut.end & (depth == 0)))
    bench.assume(~(dut.push & dut.end))
    with bench.m.If(dut.clear):
        bench.m.d.sync += depth.eq(0)
    with bench.m.Else():
        bench.m.d.sync += depth.eq(depth + dut.push - (dut.end & ~dut.again))
    bench.lemma(depth <= deepest)
    for place, loop in enumerate(inside["loops"]):
        bench.lemma(loop.used == (depth > place))
    return dut, inside, depth


def limits(bench: ProofBench, block: Any) -> None:
    """Claim that ``full`` and ``empty`` agree with the number of open loops."""
    dut, _, depth = stack(bench, block)
    bench.goal(dut.full == (depth == PARAMETERS.loop_depth))
    bench.goal(dut.empty == (depth == 0))


def outermost(bench: ProofBench, block: Any) -> None:
    """Claim that ``first`` is where the outermost open loop begins."""
    dut, _, depth = stack(bench, block)
    number = Signal(NUMBER_WIDTH, name="number")
    with bench.m.If(dut.push & (depth == 0)):
        bench.m.d.sync += number.eq(dut.number)
    bench.lemma((depth == 0) | (dut.first == number))
    bench.goal(dut.empty | (dut.first == number))


def iterations(bench: ProofBench, block: Any) -> None:
    """Claim the iterations of any one loop, from entering it to leaving it."""
    dut, inside, depth = stack(bench, block)
    m, chosen, is_inside = bench.m, bench.free(1, "chosen"), Signal(name="there")
    above = Signal(4, name="above")  # loops entered within it
    number, left = Signal(NUMBER_WIDTH, name="number"), Signal(16, name="left")
    with m.If(dut.clear):
        m.d.sync += is_inside.eq(0)
    with m.Elif(dut.push & is_inside):
        m.d.sync += above.eq(above + 1)
    with m.Elif(dut.push & chosen):
        m.d.sync += [is_inside.eq(1), above.eq(0), number.eq(dut.number), left.eq(dut.iterations)]
    with m.Elif(dut.end & (above == 0)):
        m.d.sync += [left.eq(left - 1), is_inside.eq(is_inside & (left > 1))]
    with m.Elif(dut.end & ~dut.again):
        m.d.sync += above.eq(above - 1)
    innermost = is_inside & (above == 0)
    bench.goal(~innermost | ((dut.body == number) & (dut.again == (left > 1))))
    bench.lemma(~is_inside | (above < depth))
    loop = Array(inside["loops"])[above[:2]]
    bench.lemma(~is_inside | ((loop.body == number) & (loop.left == left)))


PROOFS = (
    Proof(
        name="loop-stack.limits",
        claim="`full` and `empty` follow the depth, for every order of entries and exits",
        block=LoopStack,
        build=limits,
        mutant=Mutant("loops[-1].used.eq(0)", "loops[-1].used.eq(loops[-1].used)"),
    ),
    Proof(
        name="loop-stack.outermost",
        claim="`first` is the start of the outermost loop's body until that loop is left",
        block=LoopStack,
        build=outermost,
        mutant=Mutant("self.push & self.empty", "self.push"),
    ),
    Proof(
        name="loop-stack.iterations",
        claim="a loop runs its body as often as it says, for every nesting of loops",
        block=LoopStack,
        build=iterations,
        mutant=Mutant("self.again.eq(top.left > 1)", "self.again.eq(top.left > 2)"),
    ),
)

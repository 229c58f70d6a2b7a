"""The queue of results: a place for each row that was reserved, and rows with their addresses."""

from typing import Any, NamedTuple

from amaranth.hdl import Cat, Signal

from trainwright.parameters import AcceleratorParameters
from trainwright_hw.writeback.result_queue import ResultQueue
from trainwright_sim.formal.bench import ProofBench
from trainwright_sim.formal.mutant import Mutant
from trainwright_sim.formal.opened import Opened
from trainwright_sim.formal.proof import Proof
from trainwright_sim.formal.proofs.registered_queue import structure

PARAMETERS = AcceleratorParameters(lanes=4, pe1_rows=4, pe2_rows=4)
DEPTH = 12


class Results(NamedTuple):
    """The queue; ``started``, rows reserved and not pushed; ``inside``."""

    dut: Any
    inside: Opened
    started: Signal


def results(bench: ProofBench, block: Any) -> Results:
    """Add a queue with arrays that reserve only free rows and push only what they reserved."""
    dut = block(PARAMETERS, depth=DEPTH)
    inside = bench.add(dut)
    free, started = inside["free"], Signal(8, name="started")
    rows = Signal(8, name="reserved")
    with bench.m.If(dut.reserve):
        bench.m.d.comb += rows.eq(dut.reserve_rows + dut.reserve_row)
    with bench.m.Else():
        bench.m.d.comb += rows.eq(dut.reserve_row)
    bench.assume(rows <= free)
    bench.assume(~dut.push | (started != 0))
    bench.m.d.sync += started.eq(started + rows - dut.push)
    places, ahead, queued = (inside[name] for name in ("places", "ahead", "rows"))
    for queue, path in ((places, "places."), (ahead, "ahead."), (queued, "rows.")):
        structure(bench, queue, inside, path)
    bench.lemma(queued.level == places.level + ahead.level + inside["returned"])
    bench.lemma((places.level == 0) | (ahead.level != 0))
    bench.lemma(free + started + queued.level == DEPTH)
    return Results(dut, inside, started)


def credits(bench: ProofBench, block: Any) -> None:
    """Claim that no queue is written when full or read when empty."""
    _, inside, started = results(bench, block)
    for name in ("places", "rows"):
        queue = inside[name]
        bench.goal(~queue.w_en | (queue.level != queue.depth))
    rows = inside["rows"]
    bench.goal(~rows.r_en | rows.r_rdy)
    bench.goal(started + rows.level <= DEPTH)


def offered(bench: ProofBench, block: Any) -> None:
    """Claim that a request stays until it is taken, and names the bank of its address."""
    dut, _, _ = results(bench, block)
    request = dut.z.request
    waits = bench.past(request.valid & ~request.ready)
    same = Cat(request.payload, dut.z.banks, dut.writer)
    bench.goal(~waits | (request.valid & (same == bench.past(same))))
    bench.goal(request.valid | (dut.z.banks == 0))


PROOFS = (
    Proof(
        name="results.credits",
        claim="every row with credit has a place for its address and one for its words",
        block=ResultQueue,
        build=credits,
        mutant=Mutant("+ returned - self.reserve_row", "+ accepted + returned - self.reserve_row"),
        mutant_depth=16,
    ),
    Proof(
        name="results.offered",
        claim="a row's request stays until it is taken; no bank is asked without a request",
        block=ResultQueue,
        build=offered,
        mutant=Mutant("depth=2, flags=banks", "depth=2"),
    ),
)

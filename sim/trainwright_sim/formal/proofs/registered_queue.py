"""The registered queue: first in, first out, nothing lost."""

from typing import Any

from amaranth.hdl import Mux

from trainwright_hw.stream.registered_queue import RegisteredQueue
from trainwright_sim.formal.bench import ProofBench
from trainwright_sim.formal.follow import Followed, follow
from trainwright_sim.formal.mutant import Mutant
from trainwright_sim.formal.opened import Opened
from trainwright_sim.formal.proof import Proof

WIDTH = 2
DEPTHS = (2, 3, 5)


def structure(bench: ProofBench, queue: Any, inside: Opened, path: str = "") -> None:
    """State lemmas on how level, flags and pointers agree."""
    depth, level = queue.depth, queue.level
    produce, consume, more = (inside[path + name] for name in ("produce", "consume", "more"))
    distance = Mux(produce >= consume, produce - consume, produce + depth - consume)
    bench.lemma(level <= depth)
    bench.lemma(produce < depth)
    bench.lemma(consume < depth)
    bench.lemma(queue.w_rdy == (level != depth))
    bench.lemma(queue.r_rdy == (level != 0))
    bench.lemma(more == (level > 1))
    bench.lemma((level == 0) | (distance == level - 1))
    bench.lemma((level != 0) | (distance == 0))


def place(
    bench: ProofBench, queue: Any, inside: Opened, followed: Followed, path: str = ""
) -> None:
    """State a lemma on where the word that is followed lies."""
    consume = inside[path + "consume"]
    address = consume + followed.ahead - 1
    wrapped = Mux(address >= queue.depth, address - queue.depth, address)[: len(consume)]
    stored = inside.memory(path + "storage", wrapped, queue.width)
    bench.lemma(
        ~followed.is_inside | (Mux(followed.ahead == 0, queue.r_data, stored) == followed.word)
    )


def queues(bench: ProofBench, block: Any) -> list[tuple[Any, Opened]]:
    """Add a queue of each kind; writers of a counted queue keep count themselves."""
    queues = []
    for depth in DEPTHS:
        for counted in (False, True):
            dut = block(width=WIDTH, depth=depth, counted=counted, flags=1)
            inside = bench.add(dut, f"depth_{depth}_{'counted' if counted else 'asked'}")
            if counted:
                bench.assume(~dut.w_en | (dut.level != depth))
            structure(bench, dut, inside)
            queues.append((dut, inside))
    return queues


def level(bench: ProofBench, block: Any) -> None:
    """Claim that the level counts the words inside, and that the flags agree with it."""
    for dut, _ in queues(bench, block):
        write, read = dut.w_en & dut.w_rdy, dut.r_en & dut.r_rdy
        before = bench.past(dut.level)
        bench.goal(dut.level == before + bench.past(write) - bench.past(read))
        bench.goal(dut.w_rdy == (dut.level != dut.depth))
        bench.goal(dut.r_rdy == (dut.level != 0))
        bench.goal(dut.r_rdy | ~dut.r_data[0])


def order(bench: ProofBench, block: Any) -> None:
    """Claim that words leave in the order in which they entered, by following any one."""
    for dut, inside in queues(bench, block):
        write, read = dut.w_en & dut.w_rdy, dut.r_en & dut.r_rdy
        followed = follow(
            bench, write=write, data=dut.w_data, read=read, out=dut.r_data, level=dut.level
        )
        place(bench, dut, inside, followed)


PROOFS = (
    Proof(
        name="registered-queue.level",
        claim="levels never wrap; readable unless empty, writable unless full",
        block=RegisteredQueue,
        build=level,
        mutant=Mutant("self.level != self.depth - 1", "self.level != self.depth"),
    ),
    Proof(
        name="registered-queue.order",
        claim="every word written is read once, in order and unchanged",
        block=RegisteredQueue,
        build=order,
        mutant=Mutant("self.level > 2", "self.level > 1"),
    ),
)

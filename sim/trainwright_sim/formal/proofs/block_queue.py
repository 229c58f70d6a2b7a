"""The queue in block RAM: first in, first out, and no word without a place."""

from typing import Any

from amaranth.hdl import Mux, Signal

from trainwright_hw.stream.block_queue import WORDS_AHEAD, BlockQueue
from trainwright_sim.formal.bench import ProofBench
from trainwright_sim.formal.follow import follow
from trainwright_sim.formal.mutant import Mutant
from trainwright_sim.formal.opened import Opened
from trainwright_sim.formal.proof import Proof
from trainwright_sim.formal.proofs.registered_queue import structure

DEPTH = 10


def structure_of_block(bench: ProofBench, queue: Any, inside: Opened, path: str = "") -> Any:
    """State lemmas on how counts and pointers agree, and return the number of words inside."""
    depth, ahead = queue.depth, inside[path + "ahead"]
    names = ("stored", "more", "reading", "arrived", "free", "credit", "produce", "consume")
    stored, more, reading, arrived, free, credit, produce, consume = (
        inside[path + name] for name in names
    )
    structure(bench, ahead, inside, f"{path}ahead.")
    distance = Mux(produce >= consume, produce - consume, produce + depth - consume)
    bench.lemma(stored <= depth)
    bench.lemma((produce < depth) & (consume < depth))
    bench.lemma(Mux(stored == depth, distance == 0, distance == stored))
    bench.lemma(more == (stored != 0))
    bench.lemma(free + ahead.level + reading == WORDS_AHEAD)
    bench.lemma(credit == (free != 0))
    words = Signal(range(depth + WORDS_AHEAD + 3))
    bench.m.d.comb += words.eq(arrived + stored + reading + ahead.level)
    return words


def queue(bench: ProofBench, block: Any) -> tuple[Any, Opened, Any]:
    """Add a queue whose writer respects its credit of ``DEPTH`` words."""
    dut = block(width=1, depth=DEPTH)
    inside = bench.add(dut)
    held = Signal(range(DEPTH + 1))
    bench.m.d.sync += held.eq(held + dut.w_en - (dut.r_en & dut.r_rdy))
    bench.assume(~dut.w_en | (held != DEPTH))
    words = structure_of_block(bench, dut, inside)
    bench.lemma((words == held) & (held <= DEPTH))
    return dut, inside, held


def places(bench: ProofBench, block: Any) -> None:
    """Claim that neither the block RAM nor the queue in front of it is written when full."""
    _, inside, _ = queue(bench, block)
    ahead, stored = inside["ahead"], inside["stored"]
    bench.goal(~inside["keep"] | (stored != DEPTH))
    bench.goal(~ahead.w_en | ahead.w_rdy)
    bench.goal(~inside["fetch"] | (stored != 0))


def order(bench: ProofBench, block: Any) -> None:
    """Claim the order of any one word, in front of the block RAM, in it, or at its ports."""
    dut, inside, held = queue(bench, block)
    ahead, reading, stored = inside["ahead"], inside["reading"], inside["stored"]
    word = follow(
        bench,
        write=dut.w_en,
        data=dut.w_data,
        read=dut.r_en & dut.r_rdy,
        out=dut.r_data,
        level=held,
    )
    wide = Signal(8)
    bench.m.d.comb += wide.eq(word.ahead)
    first = inside["ahead.consume"] + wide - 1
    in_front = inside.memory(
        "ahead.storage", Mux(first >= WORDS_AHEAD, first - WORDS_AHEAD, first)[:3], 1
    )
    beyond = wide - ahead.level - reading
    place = inside["consume"] + beyond[:4]
    in_ram = inside.memory("storage", Mux(place >= DEPTH, place - DEPTH, place)[:4], 1)
    is_inside = Mux(
        wide < ahead.level,
        Mux(wide == 0, dut.r_data, in_front),
        Mux(
            reading & (wide == ahead.level),
            inside["reader"].data,
            Mux(beyond[:4] < stored, in_ram, inside["word"]),
        ),
    )
    bench.lemma(~word.is_inside | (is_inside == word.word))


PROOFS = (
    Proof(
        name="block-queue.places",
        claim="every word has a place, in the block RAM or in front of it",
        block=BlockQueue,
        build=places,
        mutant=Mutant("free.eq(free - 1), credit.eq(free != 1)", "free.eq(free - 1), credit.eq(1)"),
        mutant_depth=16,
    ),
    Proof(
        name="block-queue.order",
        claim="every word written is read once, in order and unchanged",
        block=BlockQueue,
        build=order,
        mutant=Mutant("keep.eq(arrived & ~pass_by)", "keep.eq(arrived)"),
        mutant_depth=10,
    ),
)

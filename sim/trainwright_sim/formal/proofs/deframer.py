"""Frames of the link: which bytes are a frame, and what its CRC is taken of.

The account of the bytes knows nothing of the block's registers. The CRC itself is abstract here: it
is claimed that its unit gets every byte of a frame once, in order, unescaped, and a start before
them. What the unit makes of these is proven in ``frame_crc``.
"""

from typing import Any

from amaranth.hdl import Mux, Signal

from trainwright.link.protocol import ESCAPE, ESCAPE_XOR, FLAG, WORD_BYTES
from trainwright_hw.link.framing import MOST_FRAME_WORDS, Deframer
from trainwright_sim.formal.bench import ProofBench
from trainwright_sim.formal.mutant import Mutant
from trainwright_sim.formal.proof import Proof


def frames(bench: ProofBench, block: Any) -> None:
    """Claim the deframer's outputs for any bytes and any ``enable``.

    A byte arrives at most every other cycle; a real line is far slower.
    """
    dut = block()
    inside = bench.add(dut)
    m = bench.m
    came = bench.past(dut.valid)
    bench.assume(~(dut.valid & came))
    comes = bench.past(dut.valid & dut.enable)
    bench.lemma(~comes | came)
    byte = bench.past(dut.byte)
    hunting, escaped, anything = Signal(init=1), Signal(), Signal()
    count = Signal(range(WORD_BYTES * (MOST_FRAME_WORDS + 3)))
    most = WORD_BYTES * (MOST_FRAME_WORDS + 2)
    flag, escape = comes & (byte == FLAG), (byte == ESCAPE) & ~escaped
    taken, data = comes & ~(byte == FLAG) & ~hunting & ~escape, Signal(8, name="data_of_frame")
    m.d.comb += data.eq(Mux(escaped, byte ^ ESCAPE_XOR, byte))
    with m.If(taken):
        m.d.sync += [
            count.eq(Mux(count == most, most - WORD_BYTES + 1, count + 1)),
            escaped.eq(0),
            anything.eq(1),
        ]
    with m.Elif(comes & ~flag):
        m.d.sync += [anything.eq(1), escaped.eq(1)]
    with m.If(flag):
        m.d.sync += [hunting.eq(0), escaped.eq(0), anything.eq(0), count.eq(0)]
    with m.If(~dut.enable):
        m.d.sync += hunting.eq(1)
    words = Signal(range(MOST_FRAME_WORDS + 3))
    m.d.comb += words.eq(count >> 2)
    ends = flag & ~hunting & anything & dut.enable
    whole = (count[:2] == 0) & (words <= MOST_FRAME_WORDS) & (words != 0) & ~escaped
    crc = inside["crc"]
    right = crc.match_detected
    bench.goal(crc.valid == taken)
    bench.goal(~taken | (crc.data == data))
    bench.goal(crc.start == flag)
    settled = bench.settled(2)
    bench.goal(~settled | (dut.good == bench.past(ends & whole & right)))
    bench.goal(~settled | (dut.bad == bench.past(ends & ~(whole & right))))
    bench.goal(~dut.good | (dut.index == bench.past(words)))
    lemmas(bench, inside, locals())


def lemmas(bench: ProofBench, inside: Any, spec: dict[str, Any]) -> None:
    """State how the block's registers correspond to the bench's own account of the frame."""
    hunting, count, anything = spec["hunting"], spec["count"], spec["anything"]
    dut = spec["dut"]
    bench.lemma(inside["hunting"] == hunting)
    bench.lemma(hunting | (inside["escaped"] == spec["escaped"]))
    bench.lemma(hunting | (inside["anything"] == anything))
    bench.lemma(hunting | (inside["place"] == count[:2]))
    bench.lemma(count <= spec["most"])
    # a word counts a cycle after it is complete
    due = Mux(spec["words"] > MOST_FRAME_WORDS, MOST_FRAME_WORDS + 1, spec["words"])
    uncounted = dut.word_valid & (dut.index <= MOST_FRAME_WORDS)
    answered = dut.good | dut.bad
    bench.lemma(hunting | answered | (dut.index + uncounted == due))
    bench.lemma(hunting | ~answered | (count == 0))
    bench.lemma(~answered | (bench.past(spec["ends"])))
    bench.lemma(hunting | ~dut.word_valid | bench.past(spec["taken"]))
    bench.lemma(hunting | (anything == ((count != 0) | spec["escaped"])))


PROOFS = (
    Proof(
        name="deframer.frames",
        claim="a frame is good if it has whole words and the CRC of its bytes, else bad",
        block=Deframer,
        build=frames,
        mutant=Mutant("crc.start.eq(flag)", "crc.start.eq(end)"),
        depth=2,
    ),
)  # fmt: skip

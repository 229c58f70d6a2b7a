"""Follow one arbitrary word on its way through a queue: what holds for it holds for all words."""

from typing import Any, NamedTuple

from amaranth.hdl import Mux, Signal

from trainwright_sim.formal.bench import ProofBench


class Followed(NamedTuple):
    """The word that is followed, and where it is.

    ``there`` is high from the cycle after the word went in until it is taken; ``ahead`` counts the
    words still in front of it.
    """

    is_inside: Signal
    word: Signal
    ahead: Signal


def follow(
    bench: ProofBench, *, write: Any, data: Any, read: Any, out: Any, level: Any
) -> Followed:
    """Claim that the word is taken after all words before it, and unchanged.

    ``level`` counts the words inside: one enters in each cycle with ``write``, and one leaves in
    each cycle with ``read``.
    """
    m = bench.m
    chosen = bench.free(1, "chosen")
    is_inside, word = Signal(name="there"), Signal(len(data), name="word")
    ahead = Signal(len(level), name="words_ahead")
    m.d.sync += ahead.eq(Mux(is_inside, ahead, level) - read)
    with m.If(is_inside & read & (ahead == 0)):
        m.d.sync += is_inside.eq(0)
    with m.Elif(chosen & write & ~is_inside):
        m.d.sync += [is_inside.eq(1), word.eq(data)]
    bench.goal(~(is_inside & read & (ahead == 0)) | (out == word))
    bench.goal(~is_inside | (level != 0))
    bench.lemma(~is_inside | (ahead < level))
    return Followed(is_inside, word, ahead)

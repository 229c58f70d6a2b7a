"""One word on its way through a queue, whichever it is: what holds of it holds of all."""

from typing import Any, NamedTuple

from amaranth.hdl import Mux, Signal

from trainwright_sim.formal.bench import Bench


class Followed(NamedTuple):
    """``there``, from the cycle after the word went in until it is taken; ``word``; ``ahead``, how
    many words are still in front of it.
    """

    there: Signal
    word: Signal
    ahead: Signal


def follow(bench: Bench, *, write: Any, data: Any, read: Any, out: Any, level: Any) -> Followed:
    """Claims that the word is taken when all before it were, and no other in its place.

    ``level``: the words inside, of which one enters in a cycle of ``write`` and one leaves in a
    cycle of ``read``.
    """
    m = bench.m
    chosen = bench.free(1, "chosen")
    there, word = Signal(name="there"), Signal(len(data), name="word")
    ahead = Signal(len(level), name="words_ahead")
    m.d.sync += ahead.eq(Mux(there, ahead, level) - read)
    with m.If(there & read & (ahead == 0)):
        m.d.sync += there.eq(0)
    with m.Elif(chosen & write & ~there):
        m.d.sync += [there.eq(1), word.eq(data)]
    bench.goal(~(there & read & (ahead == 0)) | (out == word))
    bench.goal(~there | (level != 0))
    bench.lemma(~there | (ahead < level))
    return Followed(there, word, ahead)

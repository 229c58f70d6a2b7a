"""Queue in block RAM whose outputs are registers."""

from amaranth.hdl import Elaboratable, Module, Mux, Signal
from amaranth.lib.memory import Memory

from trainwright_hw.stream.registered_queue import RegisteredQueue

WORDS_AHEAD = 8
"""Words in front of the block RAM: more than its latency, for a throughput of a word per cycle."""


class BlockQueue(Elaboratable):
    """First-in first-out queue of ``depth`` words of ``width`` bits, and ``WORDS_AHEAD`` more.

    A block RAM answers slowly, so the oldest words are read ahead into a short queue with
    registered outputs. A word that finds a place there, and nothing waiting behind it, goes there
    at once: it can be read two cycles after it was written, as in
    ``amaranth.lib.fifo.SyncFIFOBuffered``. Throughput is a word per cycle in and out.

    Members: ``w_en``, ``w_data`` (the writer counts credit: there is no ``w_rdy``); ``r_en``,
    ``r_rdy``, ``r_data``. ``r_data`` is unspecified while ``r_rdy`` is low.
    """

    def __init__(self, *, width: int, depth: int):
        if depth < 2:
            raise ValueError(f"depth must be at least 2, not {depth!r}")
        self.width = width
        self.depth = depth
        self.w_data = Signal(width)
        self.w_en = Signal()
        self.r_data = Signal(width)
        self.r_en = Signal()
        self.r_rdy = Signal()

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.storage = storage = Memory(shape=self.width, depth=self.depth, init=[])
        m.submodules.ahead = ahead = RegisteredQueue(width=self.width, depth=WORDS_AHEAD)
        writer, reader = storage.write_port(), storage.read_port()
        produce, consume = Signal(range(self.depth)), Signal(range(self.depth))
        stored = Signal(range(self.depth + 1))
        more = Signal()  # the block RAM holds a word
        reading = Signal()  # a word is at the block RAM's output
        arrived, word = Signal(), Signal(self.width, reset_less=True)
        # Places ahead that no word in flight will take.
        free = Signal(range(WORDS_AHEAD + 1), init=WORDS_AHEAD)
        credit = Signal(init=1)
        pass_by, keep, fetch, taken = Signal(), Signal(), Signal(), Signal()
        last = self.depth - 1
        m.d.comb += [
            pass_by.eq(arrived & ~more & ~reading & credit),
            keep.eq(arrived & ~pass_by),
            fetch.eq(more & credit),
            taken.eq(self.r_en & self.r_rdy),
            writer.en.eq(keep),
            writer.addr.eq(produce),
            writer.data.eq(word),
            reader.en.eq(fetch),
            reader.addr.eq(consume),
            ahead.w_en.eq(pass_by | reading),
            ahead.w_data.eq(Mux(reading, reader.data, word)),
            self.r_rdy.eq(ahead.r_rdy),
            self.r_data.eq(ahead.r_data),
            ahead.r_en.eq(self.r_en),
        ]
        m.d.sync += [arrived.eq(self.w_en), word.eq(self.w_data), reading.eq(fetch)]
        with m.If(keep):
            m.d.sync += produce.eq(Mux(produce == last, 0, produce + 1))
        with m.If(fetch):
            m.d.sync += consume.eq(Mux(consume == last, 0, consume + 1))
        with m.If(keep & ~fetch):
            m.d.sync += [stored.eq(stored + 1), more.eq(1)]
        with m.If(fetch & ~keep):
            m.d.sync += [stored.eq(stored - 1), more.eq(stored != 1)]
        goes = pass_by | fetch
        with m.If(goes & ~taken):
            m.d.sync += [free.eq(free - 1), credit.eq(free != 1)]
        with m.If(taken & ~goes):
            m.d.sync += [free.eq(free + 1), credit.eq(1)]
        return m

"""Shallow queue whose every output is a register."""

from amaranth.hdl import Cat, Elaboratable, Module, Mux, Signal
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.memory import Memory


class RegisteredQueue(Elaboratable):
    """First-in first-out queue, equal to ``amaranth.lib.fifo.SyncFIFO`` except for timing.

    The outputs of ``SyncFIFO`` come from a LUT memory and from comparisons of its level. Here the
    oldest word, ``r_rdy`` and ``w_rdy`` are registers, so that the arbiters behind have the whole
    cycle. A word that is written to an empty queue goes to the output register at once.

    ``depth`` (at least 2) words of ``width`` bits; members as in ``SyncFIFO``. ``r_data`` is
    unspecified while ``r_rdy`` is low, except for its lowest ``flags`` bits, which are 0.
    ``counted``: the writer writes only with credit, so that ``w_rdy`` need not be checked.
    """

    def __init__(self, *, width: int, depth: int, counted: bool = False, flags: int = 0):
        if depth < 2:
            raise ValueError(f"depth must be at least 2, not {depth!r}")
        self.width = width
        self.depth = depth
        self.counted = counted
        self.w_data = Signal(width)
        self.w_en = Signal()
        self.w_rdy = Signal(init=1)
        self._flags = Signal(flags, name="r_flags")
        self._rest = Signal(width - flags, name="r_data", reset_less=True)
        self.r_data = Cat(self._flags, self._rest)
        self.r_en = Signal()
        self.r_rdy = Signal()
        self.level = Signal(range(depth + 1))

    def elaborate(self, platform) -> Module:
        m = Module()
        # The storage holds all words except the oldest, which is in the output register.
        # Registers can be placed anywhere on the device.
        style = {"ram_style": "registers"} if self.depth == 2 else {}
        m.submodules.storage = storage = Memory(
            shape=self.width, depth=self.depth, init=[], attrs=style
        )
        writer, reader = storage.write_port(), storage.read_port(domain="comb")
        produce, consume = Signal(range(self.depth)), Signal(range(self.depth))
        more = Signal()  # the storage holds a word
        write, read, pass_by, refill = Signal(), Signal(), Signal(), Signal()
        oldest = Mux(more, reader.data, self.w_data)  # of the words that are not at the output
        last = self.depth - 1
        m.d.comb += [
            write.eq(self.w_en if self.counted else self.w_en & self.w_rdy),
            read.eq(self.r_en & self.r_rdy),
            pass_by.eq(write & ~more & (read | ~self.r_rdy)),
            refill.eq(read & more),
            # Store every word, also one that goes to the output register: the next word overwrites
            # it, because `produce` does not move.
            writer.en.eq(write),
            writer.addr.eq(produce),
            writer.data.eq(self.w_data),
            reader.addr.eq(consume),
        ]
        with m.If(write & ~pass_by):
            m.d.sync += produce.eq(Mux(produce == last, 0, produce + 1))
        with m.If(refill):
            m.d.sync += consume.eq(Mux(consume == last, 0, consume + 1))
        with m.If(read | ~self.r_rdy):
            has_next = more | write
            m.d.sync += [
                self._flags.eq(Mux(has_next, oldest[: len(self._flags)], 0)),
                self._rest.eq(oldest[len(self._flags) :]),
                self.r_rdy.eq(has_next),
            ]
        with m.If(write & ~read):
            m.d.sync += [
                self.level.eq(self.level + 1),
                self.w_rdy.eq(self.level != self.depth - 1),
                more.eq(self.level != 0),
            ]
        with m.If(read & ~write):
            m.d.sync += [
                self.level.eq(self.level - 1),
                self.w_rdy.eq(1),
                more.eq(self.level > 2),
            ]
        return m


def counted_queue(*, width: int, depth: int, unregistered: bool) -> RegisteredQueue | SyncFIFO:
    """Make a queue whose writer counts credit.

    The outputs are registers; ``unregistered`` outputs save a LUT per bit.
    """
    if unregistered:
        return SyncFIFO(width=width, depth=depth)
    return RegisteredQueue(width=width, depth=depth, counted=True)

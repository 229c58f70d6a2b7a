"""Issue of a pass's instructions: one part of a row per cycle, as rows and room allow."""

from amaranth.hdl import C, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from trainwright.program.fields import LOCAL_WIDTH
from trainwright.program.vector import CODE_DEPTH, THREADS
from trainwright.program.vector import Memory as Rows
from trainwright_hw.compute.vector.lane import INSTRUCTION_LAYOUT
from trainwright_hw.compute.vector.prefetch import PLACE_WIDTH, ROWS_WIDTH, Blocks


class Issue(wiring.Component):
    """Store of instructions, with the choice of the one that runs.

    Each instruction takes ``THREADS`` x ``parts`` cycles, of which ``valid`` marks those with a
    row: first the parts of the first thread's row, then those of the next thread's. An instruction
    that reads rows begins when all rows of its block have arrived (``level``); one that writes
    begins when there is room for them (``room``), and ``reserve`` then takes ``size`` places.
    ``key`` is the row's number for its random bits, counted from ``first_key``. ``active`` lasts
    from ``start`` to the last instruction.

    Members: also those of ``Prefetch`` that write instructions and start a pass; ``instruction``
    and ``turn`` of this cycle, where ``turn`` counts the parts of all threads; ``last_part``,
    whether the part is its row's last; ``waits_rows`` and ``waits_room``, for the counters.
    """

    def __init__(self, depth: int, *, parts: int):
        self._part_width = (parts - 1).bit_length()
        super().__init__(
            {
                "write": In(1),
                "place": In(PLACE_WIDTH),
                "written": In(INSTRUCTION_LAYOUT),
                "start": In(1),
                "entry": In(PLACE_WIDTH),
                "final": In(PLACE_WIDTH),
                "rows": In(ROWS_WIDTH),
                "first_key": In(LOCAL_WIDTH),
                "level": In(range(depth + 1)),
                "room": In(1),
                "reserve": Out(1),
                "size": Out(range(THREADS + 1)),
                "active": Out(1),
                "valid": Out(1),
                "instruction": Out(INSTRUCTION_LAYOUT),
                "turn": Out(range(THREADS * parts)),
                "last_part": Out(1),
                "key": Out(LOCAL_WIDTH),
                "waits_rows": Out(1),
                "waits_room": Out(1),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.blocks = blocks = Blocks()
        m.submodules.code = code = Memory(
            # Block RAM: an instruction is read a cycle before it runs, which `fresh` covers at the
            # start.
            shape=INSTRUCTION_LAYOUT,
            depth=CODE_DEPTH,
            init=[],
            attrs={"ram_style": "block"},
        )
        writer, reader = code.write_port(), code.read_port()
        at, following = Signal(PLACE_WIDTH), Signal(PLACE_WIDTH)
        fresh = Signal()  # the memory is still reading the instruction at `at`
        begin, end, last = Signal(), Signal(), Signal()
        instruction = self.instruction
        m.d.comb += [
            writer.en.eq(self.write),
            writer.addr.eq(self.place),
            writer.data.eq(self.written),
            # The next instruction's address goes to the memory in the last cycle of the present
            # one: no gap.
            reader.addr.eq(Mux(end, following, at)),
            instruction.eq(reader.data),
            following.eq(Mux(last, self.entry, at + C(1))),
            last.eq(at == self.final),
            blocks.start.eq(self.start),
            blocks.rows.eq(self.rows),
            blocks.next.eq(end & last),
            self.size.eq(blocks.size),
            # An instruction waits for all rows of its block at once: within it nothing can stall,
            # and parts of a row need no handshake.
            self.waits_rows.eq((instruction.memory == Rows.READ) & (self.level < blocks.size)),
            self.waits_room.eq((instruction.memory == Rows.WRITE) & ~self.room),
        ]
        running, block_key = Signal(), Signal(LOCAL_WIDTH)  # within an instruction; thread 0's key
        thread = self.turn[self._part_width :]
        m.d.comb += [
            begin.eq(self.active & ~fresh & ~running & ~self.waits_rows & ~self.waits_room),
            # The number of cycles is a power of two and the same for short blocks: the last
            # thread's turn ends an instruction, `valid` masks threads without a row.
            end.eq(running & self.turn.all()),
            self.valid.eq((begin | running) & (thread < blocks.size)),
            # Room is reserved at the beginning, for rows that leave the lanes many cycles later.
            self.reserve.eq(begin & (instruction.memory == Rows.WRITE)),
            self.key.eq(block_key + thread),
            self.last_part.eq(self.turn[: self._part_width].all() if self._part_width else 1),
        ]
        m.d.sync += fresh.eq(0)
        with m.If(begin | running):
            m.d.sync += [self.turn.eq(self.turn + 1), running.eq(~end)]
        with m.If(end):
            m.d.sync += at.eq(following)
            with m.If(last):
                m.d.sync += block_key.eq(block_key + THREADS)
                with m.If(blocks.last):
                    m.d.sync += self.active.eq(0)
        with m.If(self.start):
            m.d.sync += [
                self.active.eq(1),
                fresh.eq(1),
                at.eq(self.entry),
                self.turn.eq(0),
                block_key.eq(self.first_key),
            ]
        return m

"""The vector engine: CODE and VECTOR descriptors (``trainwright.program.vector``)."""

from dataclasses import dataclass

from amaranth.hdl import C, Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out, connect, flipped

from trainwright.parameters import AcceleratorParameters
from trainwright.program.exponents import (
    MOST_POWER,
    MOST_SHIFT,
    SCALARS,
    SHIFTS,
    ScalarKind,
)
from trainwright.program.fields import (
    DESCRIPTOR_BITS,
    INSTRUCTION_WIDTH,
    LOCAL_WIDTH,
    Operation,
)
from trainwright.program.vector import (
    CODE_WORDS,
    CONSTANTS,
    FACTOR_WIDTH,
    STREAMS,
    THREADS,
    WIDTH,
    Code,
    Kind,
    ShiftBy,
    Total,
    Vector,
)
from trainwright.program.vector import (
    Memory as Rows,
)
from trainwright_hw.arith.lanes import lane_format
from trainwright_hw.arith.select import at_most, one_hot, select
from trainwright_hw.compute.readers import FETCH_DEPTH, RowReader
from trainwright_hw.compute.vector.chain import combined
from trainwright_hw.compute.vector.issue import Issue
from trainwright_hw.compute.vector.lane import INSTRUCTION_LAYOUT, TERMS, Lane, Stages
from trainwright_hw.compute.vector.prefetch import PLACE_WIDTH, Prefetch
from trainwright_hw.compute.vector.random_bytes import random_bytes
from trainwright_hw.compute.vector.walker import STREAM_LAYOUT, STREAM_WIDTH, StreamWalker
from trainwright_hw.control.engine_ports import (
    SATURATIONS_WIDTH,
    SCALAR_WIDTH,
    SUM_WIDTH,
    EngineStatus,
    StatisticsPort,
    command_layout,
    slot_width,
    whole_layout,
)
from trainwright_hw.control.exponent_file import PLACE_WIDTH as WORD_PLACE_WIDTH
from trainwright_hw.control.exponent_file import SHIFT_WIDTH, held
from trainwright_hw.storage.banks import granted
from trainwright_hw.storage.ports import ReadPort, WritePort
from trainwright_hw.stream.delay_line import delay_line
from trainwright_hw.stream.skid_buffer import SkidBuffer
from trainwright_hw.writeback.result_queue import ResultQueue

HELD = ("entry", "rows", "inner", "key", "slot")
"""Fields of a VECTOR that are kept while its pass runs."""
DRAINED = 2
"""Cycles from the last stage of the last instruction to its row in the result queue."""
RESULTS = 16
"""Rows in flight to the scratchpad: the rows of two instructions."""


@dataclass(frozen=True)
class _Copy:
    """Copy of a command's words into the engine, a word per cycle."""

    is_code: Signal
    """Whether instructions are copied, and not streams."""
    count: Signal
    """Words copied so far. DRAIN counts its cycles in the same register."""
    copying: Signal
    start: Signal
    """High in the cycle in which a pass starts."""
    is_word: Signal
    """Number of the word, one-hot."""
    is_stream: Signal
    """Number of the stream, one-hot."""
    by_file: Signal
    """Constant by the exponent file; 0 while the command's own constants are written."""


class VectorEngine(wiring.Component):
    """Engine of passes, one at a time; instructions take ``THREADS`` x ``engine_parts`` cycles.

    A command is held at the port while its instructions or its streams are copied, one per cycle,
    and is taken then. ``THREADS`` rows are processed at a time: an instruction takes one part of a
    row per cycle, and its result is ready when the next instruction begins. Instructions that read
    wait for all rows of their block, which are requested ahead; instructions that write wait for
    room in the result queue.

    Members: ``command``, descriptors as stored in memory; ``status``; ``read`` and ``z``, ports of
    the scratchpad; ``statistics``, one item per pass; ``stream`` of random bits for the command at
    the port. With an exponent file also ``scalars``, the value of each scalar of the command at the
    port, which replace constants and shifts after the streams were copied; and ``place`` and
    ``word``, which read that word of CODE, a cycle later, while no command is offered.
    """

    def __init__(self, parameters: AcceleratorParameters):
        self._parameters = parameters
        self._stages = Stages(parameters.engine_parts)
        # Rows of several parts leave time for one walker to serve reads and writes in turn.
        self._sides = 1 if parameters.engine_parts == 1 else 2
        # a row leaves, and the stream that it belongs to
        self._puts, self._put_stream = Signal(), Signal(STREAM_WIDTH)
        self._puts_next = Signal()  # a row leaves in the next cycle
        self._address = Signal(LOCAL_WIDTH)  # destination of the row
        self._value = Signal(signed(WIDTH), reset_less=True)  # lane 0's result
        self._total = Signal(Total)
        self._shifts = [
            Signal(SHIFT_WIDTH, name=f"shift_{n}", reset_less=True) for n in range(SHIFTS)
        ]
        self._by_file = bool(parameters.exponents)
        of_file = {
            "scalars": In(signed(SCALAR_WIDTH)).array(SCALARS),
            "place": In(WORD_PLACE_WIDTH),
            "word": Out(INSTRUCTION_WIDTH),
        }
        super().__init__(
            {
                "command": In(stream.Signature(DESCRIPTOR_BITS)),
                "status": Out(EngineStatus()),
                "read": Out(ReadPort(parameters)),
                "z": Out(WritePort(parameters)),
                "statistics": Out(StatisticsPort(parameters)),
                "stream": In(32),
                **(of_file if self._by_file else {}),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.prefetch = prefetch = Prefetch(FETCH_DEPTH)
        m.submodules.issue = issue = Issue(FETCH_DEPTH, parts=self._parameters.engine_parts)
        m.submodules.reader = reader = RowReader(self._parameters, unregistered=True)
        m.submodules.results = results = ResultQueue(
            self._parameters, depth=RESULTS, unregistered=True
        )
        m.submodules.asked = asked = StreamWalker(sides=self._sides)
        # A skid buffer: whether the statistics slots accept an item is known late in a cycle.
        m.submodules.item = skid = SkidBuffer(self.statistics.item.payload.shape())
        self._item = skid.i
        connect(m, skid.o, flipped(self.statistics.item))
        m.d.comb += self.status.busy.eq(skid.holding)
        walkers = [asked]
        if self._sides == 1:
            m.submodules.put = put = StreamWalker()
            walkers.append(put)
        m.submodules.constants = constants = Memory(
            shape=signed(FACTOR_WIDTH), depth=CONSTANTS, init=[]
        )
        connect(m, reader.port, flipped(self.read))
        connect(m, results.z, flipped(self.z))
        self._take(m, prefetch, issue, results, walkers, constants.write_port())
        self._walk(m, prefetch, walkers)
        m.d.comb += [
            reader.start.eq(prefetch.take),
            reader.address.eq(asked.address),
            issue.level.eq(reader.level),
            reader.ready.eq(
                issue.valid & issue.last_part & (issue.instruction.memory == Rows.READ)
            ),
            results.reserve.eq(issue.reserve),
            results.reserve_rows.eq(issue.size),
        ]
        m.d.sync += [
            issue.room.eq(results.left >= THREADS),
            prefetch.used.eq(reader.valid & reader.ready),
        ]
        constant = constants.read_port(domain="comb")
        m.d.comb += constant.addr.eq(issue.instruction.k)
        self._lanes(m, platform, issue, reader, constant.data, results)
        return m

    def _walk(self, m: Module, prefetch, walkers) -> None:
        """Step the streams of requested rows and of written rows.

        A single walker for both sides makes no request in the cycle of a write.
        """
        asked, put = walkers[0], walkers[-1]
        with m.If(~asked.load):
            m.d.comb += asked.number.eq(prefetch.number)
        m.d.comb += [
            prefetch.may.eq(~self._puts_next if put is asked else 1),
            asked.take.eq(prefetch.take),
            self._address.eq(put.address),
        ]
        with m.If(self._puts):
            side = C(self._sides - 1, 1)
            m.d.comb += [put.take.eq(1), put.number.eq(Cat(self._put_stream, side))]

    def _take(self, m: Module, prefetch, issue, results, walkers, constant) -> None:
        """Copy a command's instructions or streams, start its pass, and await its end."""
        bits = self.command.payload
        code, given = (
            data.View(layout, bits[: layout.size])
            for layout in (command_layout(Code.layout), command_layout(Vector.layout))
        )
        is_code = Signal()
        # The layout of the command decides what COPY copies. The bit is valid when COPY begins: the
        # command is at the port for a cycle by then.
        m.d.sync += is_code.eq(given.operation == Operation.CODE)
        count = Signal(PLACE_WIDTH)
        copying, start = Signal(), Signal()
        widths = {name: len(given[name]) for name in HELD} | {"slot": slot_width(self._parameters)}
        held = {name: Signal(width, name=name) for name, width in widths.items()}
        final = Signal(PLACE_WIDTH)
        with m.If(copying):
            m.d.sync += [
                count.eq(count + 1),
                final.eq(given.entry + given.length - 1),
                *(to.eq(given[name]) for name, to in held.items()),
            ]
        # Select the next word and stream by one-hot bits decoded a cycle ahead: fewer LUTs.
        idle = Mux(self.command.valid, 0, self.place) if self._by_file else C(0, PLACE_WIDTH)
        place, word = Signal(PLACE_WIDTH), Signal(INSTRUCTION_WIDTH)
        is_word, is_stream = Signal(CODE_WORDS), Signal(STREAMS)
        m.d.sync += [
            is_word.eq(Cat(place == n for n in range(CODE_WORDS))),
            is_stream.eq(Cat(place[:STREAM_WIDTH] == n for n in range(STREAMS))),
        ]
        m.d.comb += [
            place.eq(Mux(copying, count + 1, idle)),
            word.eq(granted(is_word, [code[f"word{n}"] for n in range(CODE_WORDS)])),
        ]
        m.d.comb += [
            prefetch.write.eq(copying & is_code),
            prefetch.place.eq(code.first + count),
            prefetch.instruction.eq(word),
            *([self.word.eq(word)] if self._by_file else []),
            issue.write.eq(prefetch.write),
            issue.place.eq(prefetch.place),
            issue.written.eq(word),
            issue.first_key.eq(held["key"]),
        ]
        for part in (prefetch, issue):
            m.d.comb += [
                part.start.eq(start),
                part.entry.eq(held["entry"]),
                part.final.eq(final),
                part.rows.eq(held["rows"]),
            ]
        by_file = Signal(signed(FACTOR_WIDTH))
        copy = _Copy(is_code, count, copying, start, is_word, is_stream, by_file)
        copied = self._load_streams(m, copy, given, held["inner"], walkers, constant)
        m.d.comb += [
            self._item.payload.slot.eq(held["slot"]),
            self.status.stall_operand.eq(issue.active & issue.waits_rows),
            self.status.stall_result.eq(issue.active & issue.waits_room),
        ]
        if self._by_file:
            self._put_scalars(m, copy, constant)
        last = Mux(is_code, code.instructions - 1, copied - 1)
        self._pass_states(m, copy, last, issue, results)
        self._count(m, start)

    def _load_streams(self, m: Module, copy: _Copy, given, inner, walkers, constant) -> int:
        """Copy streams and constants; return the words of a copy, with those of scalars."""
        of_stream = [
            Cat(given[f"{name}{n}"] for name in STREAM_LAYOUT.members) for n in range(STREAMS)
        ]
        of_constant = [given[f"constant{n}"] for n in range(CONSTANTS)]
        load = copy.copying & ~copy.is_code
        copied = STREAMS * self._sides
        is_first = copy.count < STREAMS
        # With an exponent file, scalars follow the streams in the same counter.
        if self._by_file:
            copied = max(copied, STREAMS + SCALARS)
        if copied > STREAMS * self._sides:
            load &= is_first
        # streams reach the walkers a cycle later, the last one in START
        loads, number = Signal(), Signal(range(STREAMS * self._sides), reset_less=True)
        of_number = Signal(STREAM_LAYOUT, reset_less=True)
        m.d.sync += [
            loads.eq(load),
            number.eq(copy.count),
            of_number.eq(granted(copy.is_stream, of_stream)),
        ]
        for walker in walkers:
            m.d.comb += [
                walker.load.eq(loads),
                walker.stream.eq(of_number),
                walker.inner.eq(inner),
            ]
            with m.If(loads):
                m.d.comb += walker.number.eq(number)
        m.d.comb += [
            constant.en.eq(load & is_first),
            constant.addr.eq(copy.count),
            constant.data.eq(granted(copy.is_word[:CONSTANTS], of_constant) | copy.by_file),
        ]
        return copied

    def _pass_states(self, m: Module, copy: _Copy, last: Value, issue, results) -> None:
        """Add the states of a command; ``last`` is the number of the last word to copy."""
        item = self._item
        with m.FSM():
            with m.State("IDLE"):
                with m.If(self.command.valid):
                    m.d.sync += copy.count.eq(0)
                    m.next = "COPY"
            # Copy the command's words into the engine, one per cycle, so that the sequencer can go
            # on while the pass runs.
            with m.State("COPY"):
                m.d.comb += copy.copying.eq(1)
                with m.If(copy.count == last):
                    m.d.comb += self.command.ready.eq(1)
                    m.next = "TAKEN"
                    with m.If(~copy.is_code):
                        m.next = "START"
            with m.State("TAKEN"):  # wait for the command to be withdrawn
                m.d.comb += self.status.busy.eq(1)
                m.next = "IDLE"
            # The last stream reaches the walkers in this cycle.
            with m.State("START"):
                m.d.comb += [copy.start.eq(1), self.status.busy.eq(1)]
                m.next = "RUN"
            with m.State("RUN"):
                m.d.comb += self.status.busy.eq(1)
                m.d.sync += copy.count.eq(0)
                with m.If(~issue.active):
                    m.next = "DRAIN"
            # The last instructions are still in the pipeline: wait for as many cycles as it has
            # stages, then until all rows are written.
            with m.State("DRAIN"):
                m.d.comb += self.status.busy.eq(1)
                with m.If(copy.count != self._stages.count + DRAINED):
                    m.d.sync += copy.count.eq(copy.count + 1)
                with m.Elif(results.left == RESULTS):
                    m.next = "ITEM"
            # Hand the totals over; a command ends only after its statistics are stored.
            with m.State("ITEM"):
                m.d.comb += [self.status.busy.eq(1), item.valid.eq(1)]
                with m.If(item.ready):
                    m.next = "IDLE"

    def _put_scalars(self, m: Module, copy: _Copy, constant) -> None:
        """Write the scalars of the command at the port, after its streams, one per cycle.

        A scalar replaces a constant or a shift. If streams take longer, each scalar is written
        twice.
        """
        copying, count = copy.copying & ~copy.is_code, copy.count
        layout = whole_layout(Vector.layout)
        given = data.View(layout, self.command.payload[: layout.size])
        number = count[: (SCALARS - 1).bit_length()]
        kind, to = (
            select([given[f"{name}{n}"] for n in range(SCALARS)], number)
            for name in ("scalar", "to")
        )
        value = Signal(signed(SCALAR_WIDTH))
        m.d.comb += value.eq(select(list(self.scalars), number))
        with m.If(copying & (count == 0)):
            m.d.sync += [shift.eq(0) for shift in self._shifts]
        with m.If(copying & (count >= STREAMS)):
            m.d.comb += [
                constant.en.eq((kind == ScalarKind.VALUE) | (kind == ScalarKind.POWER)),
                constant.addr.eq(to),
            ]
            with m.If(kind == ScalarKind.POWER):
                m.d.comb += copy.by_file.eq(
                    one_hot(m, held(value, MOST_POWER), MOST_POWER + 1, "power")
                )
            with m.Else():
                m.d.comb += copy.by_file.eq(value)
            for n, shift in enumerate(self._shifts):
                with m.If((kind == ScalarKind.SHIFT) & (to == n)):
                    m.d.sync += shift.eq(held(value, MOST_SHIFT))

    def _shifted_by_file(self, m: Module, instruction) -> Value:
        """Replace an instruction's shift by the shift of the pass that it names."""
        changed = Signal(INSTRUCTION_LAYOUT)
        m.d.comb += changed.eq(instruction)
        with m.If(instruction.shift_by == ShiftBy.SCALAR):
            m.d.comb += [
                changed.shift_by.eq(ShiftBy.FIELD),
                changed.shift.eq(
                    select(self._shifts, instruction.shift[: (SHIFTS - 1).bit_length()])
                ),
            ]
        return changed

    def _lanes(self, m: Module, platform, issue, reader, constant, results) -> None:
        """Build the pipeline of all lanes."""
        p, instruction = self._parameters, issue.instruction
        if self._by_file:
            instruction = self._shifted_by_file(m, instruction)
        at, width = self._stages, (p.engine_parts - 1).bit_length()
        passed = delay_line(
            m, Cat(instruction, issue.turn), at.count, "instruction", reset_less=True
        )
        size = INSTRUCTION_LAYOUT.size
        stages = [data.View(INSTRUCTION_LAYOUT, entry[:size]) for entry in passed]
        turns = [entry[size:] for entry in passed]
        parts = [count[:width] for count in turns]
        # Only `valid` needs a reset: whatever the other delay lines hold is ignored without it.
        valid = delay_line(m, issue.valid, at.count, "valid", reset_less=False)
        constants = delay_line(m, constant, TERMS + 1, "constant")
        taken = self.command.valid & self.command.ready
        random = random_bytes(m, p, issue.key, stages, parts, self.stream, taken)
        limits, top = (Signal(WIDTH, name=name, reset_less=True) for name in ("limits", "top"))
        width = stages[at.result - 1].width
        at_or_above = Signal(WIDTH)
        m.d.comb += at_or_above.eq(at_most(m, width, WIDTH + 1, "width")[1:])
        # A thermometer code of the word's width: bits from the sign bit up, and the sign bit alone.
        m.d.sync += [limits.eq(at_or_above), top.eq(at_or_above & ~(at_or_above << 1))]
        lanes, arithmetic = [], lane_format(p)
        for number in range(p.engine_width):
            m.submodules[f"lane{number}"] = lane = Lane(
                number, lanes=p.engine_width, parts=p.engine_parts
            )
            lanes.append(lane)
            word = Signal.like(reader.row[number], name=f"word_{number}", reset_less=True)
            m.d.sync += word.eq(select(list(reader.row)[number :: p.engine_width], parts[0]))
            m.d.comb += [
                *(to.eq(value) for to, value in zip(lane.stages, stages, strict=True)),
                *(to.eq(value) for to, value in zip(lane.turns, turns, strict=True)),
                *(to.eq(value) for to, value in zip(lane.constants, constants, strict=True)),
                lane.word.eq(arithmetic.word(word)),
                lane.random.eq(random[number]),
                lane.limits.eq(limits),
                lane.top.eq(top),
                lane.write.eq(valid[at.result]),
            ]
        greatest = stages[TERMS].kind == Kind.GREATEST
        kind = stages[TERMS + 1].kind
        wanted = (kind == Kind.SUM) | (kind == Kind.GREATEST)
        operands = [lane.operand for lane in lanes]
        chained = combined(m, operands, greatest, wanted, turns[TERMS + 1], p.engine_parts)
        m.d.comb += [lane.chained.eq(chained) for lane in lanes]
        self._collect(m, lanes, stages, parts, valid, results)

    def _collect(self, m: Module, lanes, stages, parts, valid, results) -> None:
        """Collect the results of all lanes in rows, and the value of lane 0 for the totals."""
        p, at = self._parameters, self._stages
        last, part = stages[at.result], parts[at.result]
        whole = Signal()  # the result completes a row, known a cycle before
        before = at.result - 1
        m.d.comb += self._puts_next.eq(
            valid[before]
            & (stages[before].memory == Rows.WRITE)
            & (parts[before] == p.engine_parts - 1)
        )
        m.d.sync += whole.eq(self._puts_next)
        m.d.comb += [self._puts.eq(whole), self._put_stream.eq(last.stream)]
        for n in range(p.engine_parts):
            with m.If(part == n):
                words = list(results.row)[n * p.engine_width :]
                m.d.sync += [to.eq(lane.result) for to, lane in zip(words, lanes, strict=False)]
        m.d.sync += [
            results.push.eq(whole),
            results.address.eq(self._address),
            self._value.eq(lanes[0].result),
            self._total.eq(Mux(valid[at.result] & (part == 0), last.total, Total.NONE)),
        ]

    def _count(self, m: Module, start) -> None:
        """Count the totals of a pass."""
        item = self._item.payload
        total, count = Signal(SUM_WIDTH), Signal(SATURATIONS_WIDTH)
        m.d.comb += [item.sum.eq(total), item.saturations.eq(count)]
        with m.If(self._total == Total.SUM):
            m.d.sync += total.eq(total + self._value)
        with m.If(self._total == Total.COUNT):
            m.d.sync += count.eq(count + self._value)
        with m.If(start):
            m.d.sync += [total.eq(0), count.eq(0)]

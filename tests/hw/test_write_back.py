"""The write-back unit between two engines that keep to their ports' contracts and a slow port."""

from collections import deque
from dataclasses import dataclass, field
from itertools import pairwise, product
from random import Random

import pytest
from amaranth.hdl import Elaboratable, Module, ResetInserter, Signal
from kept import Inputs, simulated
from slowly import mostly_slow

from trainwright.fixed.random_bits import mixed, unit_bytes
from trainwright.parameters import AcceleratorParameters
from trainwright_hw.arith.lanes import lane_format
from trainwright_hw.writeback.ports import column_lead, row_lead
from trainwright_hw.writeback.slots import BLIND, least_credit
from trainwright_hw.writeback.unit import WriteBack

PARAMETERS = {
    "4x2": AcceleratorParameters(lanes=4, pe1_rows=2, pe2_rows=4, accumulator_width=24),
    "4x4": AcceleratorParameters(lanes=4, pe1_rows=4, pe2_rows=2, accumulator_width=36),
    "8x4": AcceleratorParameters(lanes=8, pe1_rows=4, pe2_rows=8, accumulator_width=36),
    "8x8": AcceleratorParameters(lanes=8, pe1_rows=8, pe2_rows=8, accumulator_width=48),
    "16x8": AcceleratorParameters(),
    "4x2-byte-posits": AcceleratorParameters(
        lanes=4,
        pe1_rows=2,
        pe2_rows=2,
        word_width=8,
        accumulator_width=44,
        formats="posit(8,0),posit(8,1)c",
    ),
    "8x4-digits": AcceleratorParameters(
        lanes=8,
        pe1_rows=4,
        pe2_rows=4,
        word_width=8,
        accumulator_width=36,
        scratchpad_rows=256,
        wide_tensors=1,
    ),
    "4x2-digits-random": AcceleratorParameters(
        lanes=4,
        pe1_rows=2,
        pe2_rows=4,
        word_width=8,
        scratchpad_rows=256,
        wide_tensors=1,
        stochastic_rounding=True,
    ),
    "8x4-random": AcceleratorParameters(
        lanes=8, pe1_rows=4, pe2_rows=4, accumulator_width=36, stochastic_rounding=True
    ),
    "8x4-posits": AcceleratorParameters(
        lanes=8,
        pe1_rows=4,
        pe2_rows=8,
        accumulator_width=44,
        formats="posit(8,0),posit(8,1)c,posit(10,0)",
    ),
}
COMMANDS_IN_FLIGHT = 2
SETTINGS = ("shift", "out_width", "slot", "z_row_stride", "z_format", "underflow_zero")
TILE = ("z", "rows", "final", "context")
ITEM = ("slot", "sum", "saturations", "underflows")


@dataclass
class Tile:
    z: int
    rows: int
    final: bool
    context: int
    kept: bool
    """Whether its values stay until they are taken."""
    values: list[list[int]]
    """Values by row and lane; those of PE1 include the rows that are not written."""


@dataclass
class Command:
    shift: int
    out_width: int
    slot: int
    z_row_stride: int
    stochastic: bool
    z_format: int
    underflow_zero: bool
    stream: int
    tiles: list[Tile]


@dataclass
class Source:
    """Stand-in for one engine: pending commands, pending tiles, and rows that must come out."""

    port: object
    commands: deque[Command]
    eager: float
    """Chance that it goes on in a cycle."""
    tiles: deque[Tile] = field(default_factory=deque)
    begun: int = 0
    rows_done: int = 0
    items_done: int = 0
    wanted: list[tuple[int, list[int]]] = field(default_factory=list)
    items: list[tuple[int, int, int, int]] = field(default_factory=list)
    got: list[tuple[int, list[int]]] = field(default_factory=list)
    got_items: list[tuple[int, int, int, int]] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    row_cycles: list[int] = field(default_factory=list)

    @property
    def in_flight(self) -> int:
        return self.begun - min(self.rows_done, self.items_done)

    @property
    def done(self) -> bool:
        return not self.commands and not self.tiles and not self.in_flight


def random_value(random: Random, width: int) -> int:
    return random.getrandbits(width) - (1 << (width - 1)) >> random.randrange(width)


def random_command(random: Random, p: AcceleratorParameters, engine: int, context: int) -> Command:
    tile_rows, tiles = (p.pe1_rows, p.pe2_rows)[engine], random.choice((1, 1, 2, 5))
    kept = engine == 0 or random.random() < 0.6
    height = p.pe1_rows if engine == 0 else tile_rows if kept else 1
    bases = random.sample(range(64), tiles)
    return Command(
        shift=random.choice((0, 5, random.randrange(64))),
        out_width=random.choice((8, p.result_width, random.randint(4, p.result_width))),
        slot=random.randrange(256),
        z_row_stride=random.choice((1, 3, (1 << 20) - 1)),
        stochastic=bool(p.stochastic_rounding) and random.random() < 0.7,
        z_format=random.randrange(len(p.number_formats)),
        underflow_zero=bool(p.formats) and random.random() < 0.5,
        stream=random.getrandbits(32),
        tiles=[
            Tile(
                z=4096 + 64 * base,
                rows=random.randint(1, height),
                final=number == tiles - 1,
                context=context,
                kept=kept,
                values=[
                    [random_value(random, p.vector_width) for _ in range(p.lanes)]
                    for _ in range(height)
                ],
            )
            for number, base in enumerate(bases)
        ],
    )


class Bench:
    """Both engines, the scratchpad's port and the host, a cycle at a time."""

    def __init__(self, engines, dut, p, random, sources, stall):
        self.engines, self.dut, self.p, self.random = engines, dut, p, random
        self.sources, self.stall, self.takes = sources, stall, 0.4
        self.cycle = 0
        self.row_lead, self.column_lead = (lead(lane_format(p)) for lead in (row_lead, column_lead))
        self.due: list[dict[int, list[tuple[int, int]]]] = [{}, {}]
        """For either port, the (lane, value) pairs due in each cycle."""
        self.window = 0  # cycles of PE1's slot to come
        self.drain: deque[list] = deque()  # tiles of PE2: [tile, start, rows taken]
        self.landed = 0
        self.address: int | None = None
        self.writer = 0
        self.waited: int | None = None  # the engine whose row waited for the port a cycle ago
        self.given, self.inputs = [{}, {}], []
        """Values of the inputs of PE1, and of PE2, the port and the host, by input."""
        for values, signals in zip(self.given, self.signals(), strict=True):
            values.update(dict.fromkeys(signals, 0))
            self.inputs.append(Inputs(*signals.values()))

    def signals(self) -> list[dict[str, object]]:
        """Return the inputs by name: of PE1, and of PE2, the port and the host."""
        signals = []
        for port in (self.dut.columns, self.dut.rows):
            given = {name: port.command[name] for name in SETTINGS}
            given |= {name: port.tile[name] for name in TILE}
            given |= {lane: value for lane, value in enumerate(port.value)}
            given |= {n: getattr(port, n) for n in ("start", "configure", "configure_context")}
            if self.p.stochastic_rounding:
                given |= {"stochastic": port.command.stochastic, "stream": port.stream}
            signals.append(given)
        z, item = self.dut.z, self.dut.statistics.item
        signals[1] |= {"offered": port.offered, "row": z.request.ready, "item": item.ready}
        return signals

    def give(self, ctx, engine: int) -> None:
        self.inputs[engine].set(ctx, *self.given[engine].values())

    def expect(self, engine: int, command: Command) -> None:
        total, saturations, underflows = 0, 0, 0
        for tile in command.tiles:
            for r in range(tile.rows):
                address, row = (tile.z + r * command.z_row_stride) % (1 << 20), []
                for lane, value in enumerate(tile.values[r]):
                    if command.z_format:
                        rule = "zero" if command.underflow_zero else "never"
                        fmt = self.p.number_formats[command.z_format]
                        rounded = [
                            int(field) for field in fmt.encode(value, command.shift, underflow=rule)
                        ]
                        underflows += rounded[2]
                    elif command.stochastic:
                        key, unit = (16 * tile.z + lane, r) if engine == 0 else (16 * address, lane)
                        byte = int(unit_bytes(mixed(command.stream, [key]), 16)[0, unit])
                        rounded = self.engines.stochastically(
                            value, command.shift, command.out_width, byte
                        )
                    else:
                        rounded = self.engines.requantise(value, command.shift, command.out_width)
                    row.append(rounded[0])
                    total += abs(rounded[0])
                    saturations += rounded[1]
                self.sources[engine].wanted += self.digits(address, row, command.out_width)
        self.sources[engine].items.append((command.slot, total, saturations, underflows))

    def digits(self, address: int, row: list[int], width: int) -> list[tuple[int, list[int]]]:
        """Return the words written for a row: the row, or its digits at successive addresses."""
        words = [self.engines.result_digits(value, width, self.p) for value in row]
        return [
            ((address + number) % (1 << 20), list(digits))
            for number, digits in enumerate(zip(*words, strict=True))
        ]

    def begin(self, engine: int) -> None:
        """Set up the next command once a context is free."""
        source, given = self.sources[engine], self.given[engine]
        given["configure"] = 0
        for name in SETTINGS:
            bits = min(4, len(source.port.command[name]))
            given[name] = self.random.getrandbits(bits)
        if source.tiles or not source.commands or source.in_flight == COMMANDS_IN_FLIGHT:
            return
        command = source.commands.popleft()
        given |= {name: getattr(command, name) for name in SETTINGS}
        given |= {"configure": 1, "configure_context": source.begun % 2}
        if self.p.stochastic_rounding:
            given |= {"stochastic": command.stochastic, "stream": command.stream}
        self.expect(engine, command)
        source.tiles.extend(command.tiles)
        source.begun += 1

    def offer(self, engine: int, tile: Tile) -> None:
        self.given[engine] |= {name: getattr(tile, name) for name in TILE}

    def columns(self, credit: bool, configured: bool) -> None:
        """Start a tile of PE1 in the cycle after ``credit``, column by column."""
        source = self.sources[0]
        starts = (
            credit
            and self.window <= 1
            and bool(source.tiles)
            and not configured
            and self.random.random() < source.eager
        )
        self.window = self.p.lanes if starts else max(0, self.window - 1)
        self.given[0]["start"] = starts
        if starts:
            tile = source.tiles.popleft()
            self.offer(0, tile)
            source.starts.append(self.cycle)
            for row, values in enumerate(tile.values):
                for lane, value in enumerate(values):
                    at = self.cycle + self.column_lead + lane + row
                    self.due[0].setdefault(at, []).append((row, value))
        self.values(0)

    def rows(self, ctx) -> None:
        """Start tiles of PE2 while ready, and give rows when asked."""
        source, port = self.sources[1], self.sources[1].port
        if ctx.get(port.next_due):
            assert self.drain, "a row of no tile"
            tile, start, taken = self.drain[0]
            assert ctx.get(port.next_row) == taken
            assert ctx.get(port.next_context) == tile.context
            at = self.cycle + 1
            assert at >= start + self.row_lead + taken
            assert tile.kept or at == start + self.row_lead
            if len(self.drain) > 1:  # the next tile is not there yet
                assert at < self.drain[1][1] + self.row_lead
            for lane, value in enumerate(tile.values[taken]):
                self.due[1].setdefault(at + lane, []).append((lane, value))
            source.row_cycles.append(at)
            self.drain[0][2] += 1
            if self.drain[0][2] == tile.rows:
                self.drain.popleft()
        wants = bool(source.tiles) and self.random.random() < source.eager
        may = ctx.get(port.ready) and (ctx.get(port.prompt) or (wants and source.tiles[0].kept))
        self.given[1] |= {"start": wants and may, "offered": wants}
        if wants and may:
            tile = source.tiles.popleft()
            self.offer(1, tile)
            source.starts.append(self.cycle)
            self.drain.append([tile, self.cycle, 0])

    def values(self, engine: int) -> None:
        now = dict(self.due[engine].pop(self.cycle, ()))
        for lane in range(len(self.sources[engine].port.value)):
            other = self.random.getrandbits(20) if engine == 0 else 0
            self.given[engine][lane] = now.get(lane, other)

    def collect(self, ctx) -> None:
        """Collect rows at the write port and items at the host's."""
        z, item = self.dut.z, self.dut.statistics.item
        ready, take = self.random.random() >= self.stall, self.random.random() < self.takes
        self.given[1] |= {"row": ready, "item": take}
        self.give(ctx, 1)
        if self.address is not None:
            bits = ctx.get(z.row.as_value())
            width = self.p.word_width
            words = [bits >> width * n & (1 << width) - 1 for n in range(self.p.lanes)]
            row = [word - (word >> width - 1 << width) for word in words]
            source = self.sources[self.writer]
            source.got.append((self.address, row))
            assert source.got[-1] == source.wanted[len(source.got) - 1]
        taken = ready and ctx.get(z.request.valid)
        self.address = ctx.get(z.request.payload) if taken else None
        for engine, source in enumerate(self.sources):
            assert ctx.get(source.port.back_pressured) == (self.waited == engine)
        waits = ctx.get(z.request.valid) and not ready
        self.waited = ctx.get(self.dut.writer) if waits else None
        bank = ctx.get(z.request.payload) % self.p.scratchpad_rows // self.p.bank_rows
        assert ctx.get(z.banks) == ctx.get(z.request.valid) << bank
        self.writer = ctx.get(self.dut.writer)
        handed = [ctx.get(source.port.item) for source in self.sources]
        assert sum(handed) == (take and ctx.get(item.valid))
        for source in self.sources:
            source.rows_done += ctx.get(source.port.final_row)
            assert source.rows_done <= source.begun
            if ctx.get(source.port.item):
                got = {n: ctx.get(item.payload[n]) for n in item.payload.shape().members}
                source.got_items.append(tuple(({"underflows": 0} | got)[n] for n in ITEM))
                assert source.got_items[-1] == source.items[len(source.got_items) - 1]
                source.items_done += 1

    async def run(self, ctx, cycles: int | None = None) -> None:
        credit = configured = 0
        while not all(source.done for source in self.sources) or self.address is not None:
            before = len(self.sources[0].tiles)
            self.begin(0)
            configured = before != len(self.sources[0].tiles)
            fresh = len(self.sources[1].tiles)
            self.columns(credit, configured)
            self.give(ctx, 0)
            self.rows(ctx)
            self.values(1)
            if not fresh:  # its tiles start after its settings
                self.begin(1)
            else:
                self.given[1]["configure"] = 0
            self.collect(ctx)
            credit = ctx.get(self.sources[0].port.credit)
            await ctx.tick()
            self.cycle += 1
            if cycles is not None and self.cycle >= cycles:
                return
            assert self.cycle < 60_000, "nothing more comes"

    def check(self) -> None:
        for source in self.sources:
            assert source.got == source.wanted
            assert source.got_items == source.items
            assert source.rows_done == source.items_done == source.begun


class Resettable(Elaboratable):
    def __init__(self, p):
        self.dut, self.reset = WriteBack(p), Signal()

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.dut = ResetInserter(self.reset)(self.dut)
        return m


def sources_of(dut, random, p, counts, eager) -> list[Source]:
    return [
        Source(
            port,
            deque(random_command(random, p, engine, n % 2) for n in range(counts[engine])),
            eager[engine],
        )
        for engine, port in enumerate((dut.columns, dut.rows))
    ]


EAGER, STALLS = ((1, 1), (0.3, 1), (1, 0.3), (0.1, 0.1)), (0, 0.5, 0.9)
LARGE = {"8x8", "16x8"}
"""Sizes of the slow tests."""
PLAIN = {"4x4", "8x4"}
"""Sizes whose random commands are slow tests: sizes with more options have theirs."""
QUICK = ((1, 0.3), 0), ((1, 1), 0.9), ((0.1, 0.1), 0.5), ((0.3, 1), 0.5)
"""Pairs that the default suite has: sizes take turns."""


def is_quick(name: str, pair: tuple) -> bool:
    """Return whether the default suite has a size with a pair: each size has one pair."""
    sizes = [size for size in PARAMETERS if size not in LARGE]
    return name in {*sizes} - PLAIN and pair == QUICK[sizes.index(name) % len(QUICK)]


@pytest.mark.parametrize(
    "name, eager, stall",
    [
        pytest.param(
            name,
            *pair,
            id=f"{name}-{pair[0]}-stall{pair[1]}",
            marks=[] if is_quick(name, pair) else [pytest.mark.slow],
        )
        for name, pair in product(PARAMETERS, product(EAGER, STALLS))
    ],
)
def test_write_back_keeps_order_on_random_commands(engines, name, eager, stall):
    """Rows in the order of each engine, its statistics, whatever the other one does."""
    p = PARAMETERS[name]
    random = Random(f"write back {name} {eager} {stall}")
    top = simulated(WriteBack, p)
    dut = top.design
    sources = sources_of(dut, random, p, (12, 16), eager)

    async def testbench(ctx):
        bench = Bench(engines, dut, p, random, sources, stall)
        await bench.run(ctx)
        bench.check()

    top.run(testbench)


@mostly_slow(
    "cycles, name",
    product((40, 77, 130), ("8x8", "8x4-posits", "8x4-digits")),
    quick=[(40, "8x4-posits"), (130, "8x4-digits")],
)
def test_reset_in_the_middle_of_work(engines, cycles, name):
    """Nothing of what was on its way is left."""
    p = PARAMETERS[name]
    random = Random(f"write back reset {cycles}")
    top = simulated(Resettable, p)
    dut, reset = top.design.dut, top.design.reset

    async def testbench(ctx):
        before = sources_of(dut, random, p, (12, 12), (1, 1))
        await Bench(engines, dut, p, random, before, 0.5).run(ctx, cycles)
        for port in (dut.columns, dut.rows):
            for name in ("start", "configure"):
                ctx.set(getattr(port, name), 0)
        ctx.set(reset, 1)
        await ctx.tick()
        ctx.set(reset, 0)
        bench = Bench(engines, dut, p, random, sources_of(dut, random, p, (8, 8), (1, 1)), 0.3)
        await bench.run(ctx)
        bench.check()

    top.run(testbench)


@mostly_slow(
    "name, stall, kept",
    product(("4x2", *sorted(LARGE), "8x4-posits"), (0, 0.5), (True, False)),
    quick=[("4x2", 0.5, True), ("4x2", 0.5, False), ("8x4-posits", 0.5, True)],
)
def test_neither_engine_starves(engines, name, stall, kept):
    """Both ask for as much as they can.

    PE2 has ``pe2_rows`` slots for each tile of PE1, but for a quarter at most where the queue lacks
    credit; PE1 gets a tile in the cycles of its own slots and PE2's, or of its columns.
    """
    p = PARAMETERS[name]
    random = Random(f"write back fair {name} {stall} {kept}")
    top = simulated(WriteBack, p)
    dut = top.design
    sources = sources_of(dut, random, p, (1, 1), (1, 1))
    rows = p.pe2_rows if kept else 1
    heights, counts = (p.pe1_rows, rows), (30, 30 * p.pe2_rows // rows)
    for engine, source in enumerate(sources):
        command, height = source.commands[0], heights[engine]
        command.tiles = [
            Tile(
                64 * n,
                height,
                n == counts[engine] - 1,
                0,
                kept or engine == 0,
                [[n] * p.lanes] * height,
            )
            for n in range(counts[engine])
        ]

    async def testbench(ctx):
        bench = Bench(engines, dut, p, random, sources, stall)
        await bench.run(ctx)
        bench.check()

    top.run(testbench)
    if stall:
        return  # what each has had is then the queue's credit
    period = max(p.lanes, p.pe1_rows + p.pe2_rows)
    starts = sources[0].starts
    distances = [b - a for a, b in pairwise(starts)]
    assert max(distances) <= period
    # but for the first tiles, and the last ones, which PE2 has nothing to do beside
    assert {*distances[3:-8]} == {period}, distances
    served = [c for c in sources[1].row_cycles if c < starts[-1]]
    assert len(served) >= 0.75 * (starts[-1] - starts[0]) // period * p.pe2_rows


def tiles_of(engine: int, p, count: int) -> list[Tile]:
    """Return the tallest tiles of one command."""
    rows = (p.pe1_rows, p.pe2_rows)[engine]
    values = [[[n] * p.lanes] * rows for n in range(count)]
    return [Tile(64 * n, rows, n == count - 1, 0, True, values[n]) for n in range(count)]


@pytest.mark.parametrize("engine", (0, 1))
@pytest.mark.parametrize("name", ("8x8", "4x2"))
def test_write_back_of_one_engine_sustains_full_rate(engines, name, engine):
    """The other engine has no results, and the port takes a row a cycle."""
    p, count = PARAMETERS[name], 40
    random = Random(f"write back rate {engine}")
    top = simulated(WriteBack, p)
    dut = top.design
    sources = sources_of(dut, random, p, (engine == 0, engine == 1), (1, 1))
    sources[engine].commands[0].tiles = tiles_of(engine, p, count)

    async def testbench(ctx):
        bench = Bench(engines, dut, p, random, sources, 0)
        await bench.run(ctx)
        bench.check()

    top.run(testbench)
    starts = sources[engine].starts
    assert starts[-1] - starts[1] == (p.lanes, p.pe2_rows)[engine] * (count - 2)


BUSY = {"pe1": (1, 0), "pe2": (0, 1), "both": (1, 1)}


@mostly_slow(
    "name, writers",
    product(("8x4-posits", "4x2", "8x4-digits"), BUSY),
    # PE2 alone has the bounds of both, for which the sizes differ in nothing else.
    lambda *case: case[0] == "4x2" or case in (("8x4-posits", "both"), ("8x4-digits", "pe1")),
)
def test_write_back_keeps_rows_while_port_is_shut(engines, name, writers):
    """Both fill the queue as far as there is credit, and no further; nothing is lost."""
    p, busy = PARAMETERS[name], BUSY[writers]
    random = Random(f"write back shut {name} {busy}")
    top = simulated(WriteBack, p)
    dut = top.design
    sources = sources_of(dut, random, p, busy, (1, 1))
    for engine, source in enumerate(sources):
        if source.commands:
            source.commands[0].tiles = tiles_of(engine, p, 40)
    least = least_credit(p)

    async def testbench(ctx):
        bench = Bench(engines, dut, p, random, sources, 1)
        await bench.run(ctx, 40 * p.lanes)
        rows = [
            len(source.starts) * n
            for source, n in zip(sources, (p.pe1_rows, p.pe2_rows), strict=True)
        ]
        if busy == (1, 0):  # the last tile that starts finds as many places as there must be
            alone = least - BLIND + 2
            assert rows[0] == ((dut.depth - alone) // p.pe1_rows + 1) * p.pe1_rows
        else:  # PE2's rows have credit each, when they are due; of its last tile none has
            started = rows[0] + len(sources[1].row_cycles)
            assert dut.depth - least < started <= dut.depth
        bench.stall = 0
        await bench.run(ctx)
        bench.check()

    top.run(testbench)


@pytest.mark.parametrize("name", (pytest.param("8x4", marks=pytest.mark.slow), "4x2", "8x4-posits"))
def test_statistics_that_nobody_takes(engines, name):
    """Keep statistics of as many commands as can be in flight."""
    p = PARAMETERS[name]
    random = Random(f"write back statistics {name}")
    top = simulated(WriteBack, p)
    dut = top.design
    sources = sources_of(dut, random, p, (6, 6), (1, 1))

    async def testbench(ctx):
        bench = Bench(engines, dut, p, random, sources, 0)
        bench.takes = 0
        await bench.run(ctx, 400)
        assert [source.begun for source in sources] == [COMMANDS_IN_FLIGHT] * 2
        assert ctx.get(dut.statistics.item.valid)
        bench.takes = 1
        await bench.run(ctx)
        bench.check()

    top.run(testbench)

"""A bench for PE1 and PE2 alone: memories that stall, and what descriptors mean in plain Python.

Helpers beside these tests can be imported by name.
"""

import sys
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import product
from pathlib import Path
from random import Random
from types import SimpleNamespace

import fast_pysim
import numpy as np
import pytest

from trainwright.fixed.random_bits import mixed, unit_bytes
from trainwright.formats.rounding import stochastic_requantise
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Compute, Level
from trainwright.program.fields import Operation
from trainwright_hw.storage.ports import ROW_LATENCY
from trainwright_sim.amaranth_peers import fields_of

sys.path.append(str(Path(__file__).parent))
from kept import Inputs, simulated

fast_pysim.install()

ROWS = 1024
"""Scratchpad rows of the bench; operands lie in the lower half, results in the upper."""


def requantise(value: int, shift: int, width: int) -> tuple[int, bool]:
    floor, remainder = value >> shift, value & ((1 << shift) - 1)
    half = (1 << shift) >> 1
    up = shift > 0 and (remainder > half or (remainder == half and floor & 1))
    rounded = floor + up
    q = max(-(1 << (width - 1)), min((1 << (width - 1)) - 1, rounded))
    return q, q != rounded


@dataclass
class Scratchpad:
    """Rows, as lists of signed integers."""

    rows: list[list[int]]

    @classmethod
    def random(cls, parameters: AcceleratorParameters, random: Random):
        least = -(1 << (parameters.word_width - 1))

        def value() -> int:
            return random.choice((random.randint(least, ~least),) * 4 + (least, ~least, 0))

        return cls([[value() for _ in range(parameters.lanes)] for _ in range(ROWS)])

    def copy(self) -> "Scratchpad":
        return Scratchpad([list(row) for row in self.rows])

    def row(self, address: int) -> list[int]:
        return self.rows[address % ROWS]


def _value(d: Compute, p: AcceleratorParameters, pad: Scratchpad, x, g, r: int, lane: int):
    """Return one term of the sum of a result word."""
    if d.operation is Operation.PE4:
        left, right = pad.row(x + r * d.x_row_stride), pad.row(g + lane * d.g_row_stride)
        return sum(a * b for a, b in zip(left, right, strict=True))
    n = p.lanes // p.pe2_rows
    return pad.row(x)[lane] * pad.row(g // n)[g % n * p.pe2_rows + r]


ELEMENTWISE = (Operation.BIAS, Operation.MASK)
DIGIT = 1 << 7


def element(d: Compute, x: list[int], g: list[int]) -> int:
    """Compute a result of BIAS or MASK from the digits of both operands, highest first."""
    whole = [reduce(lambda so_far, digit: so_far * DIGIT + digit, digits) for digits in (x, g)]
    if d.operation is Operation.MASK:
        return whole[0] if next((digit for digit in g if digit), 0) > 0 else 0
    total = (whole[0] << d.x_shift) + (whole[1] << d.g_shift)
    return max(0, total) if d.relu else total


def result_digits(q: int, out_width: int, p: AcceleratorParameters) -> list[int]:
    """Split a result into the words that hold it, highest first."""
    digits = []
    for _ in range(-(-(out_width - 1) // 7) - 1 if p.wide_tensors else 0):
        digits.append(q % DIGIT)
        q //= DIGIT
    return [q, *digits[::-1]]


def random_byte(d: Compute, stream: int, z: int, r: int, lane: int) -> int:
    """Return the random bits of a result of the tile at ``z``."""
    if d.operation is Operation.PE4:
        key, unit = 16 * z + lane, r
    else:
        key, unit = 16 * (z + r * d.z_row_stride), lane
    return int(unit_bytes(mixed(stream, [key]), 16)[0, unit])


def stochastically(value: int, shift: int, width: int, byte: int) -> tuple[int, bool]:
    q, saturated = stochastic_requantise(np.array([value]), shift, width, np.array([byte]))
    return int(q[0]), bool(saturated[0])


def execute(
    d: Compute, p: AcceleratorParameters, pad: Scratchpad, stream: int = 0
) -> tuple[int, int]:
    """Write the results of ``d``; return the sum of |q| and the saturations."""
    tile_rows = {Operation.PE3: p.pe2_rows, Operation.PE4: p.pe1_rows}
    total, saturations, written = 0, 0, []
    for outer in product(*(range(level.count) for level in d.outer)):
        rows = tile_rows.get(d.operation, 1)
        if d.operation in tile_rows and outer[d.tile_level] == d.outer[d.tile_level].count - 1:
            rows = d.last_rows
        z = d.z + sum(i * level.z for i, level in zip(outer, d.outer, strict=True))
        for r, lane in product(range(rows), range(p.lanes)):
            value, elements = 0, ([], [])
            for inner in product(*(range(level.count) for level in d.reduction)):
                index = list(zip((*outer, *inner), d.levels, strict=True))
                x = d.x + sum(i * level.x for i, level in index)
                g = d.g + sum(i * level.g for i, level in index)
                if d.operation in ELEMENTWISE:
                    for words, address in zip(elements, (x, g), strict=True):
                        words.append(pad.row(address)[lane])
                    continue
                if d.digits and inner[d.digits - 1] and not any(inner[d.digits :]):
                    value *= DIGIT
                value += _value(d, p, pad, x, g, r, lane)
            if d.operation in ELEMENTWISE:
                value = element(d, *elements)
            q, saturated = requantise(value, d.shift, d.out_width)
            if d.stochastic:
                byte = random_byte(d, stream, z, r, lane)
                q, saturated = stochastically(value, d.shift, d.out_width, byte)
            for number, digit in enumerate(result_digits(q, d.out_width, p)):
                written.append((z + r * d.z_row_stride + number, lane, digit))
            total += abs(q)
            saturations += saturated
    for address, lane, word in written:
        pad.row(address)[lane] = word
    return total, saturations


@dataclass
class Run:
    """Outcome of a simulation: final rows, statistics items, busy and stalled cycles."""

    pad: Scratchpad
    items: list[tuple[int, int, int]] = field(default_factory=list)
    cycles: int = 0
    stalls: tuple[int, int] = (0, 0)
    writes: int = 0


def _signed(value: int, width: int) -> int:
    return value - (value >> (width - 1) << width)


def _packed(values: list[int], width: int) -> int:
    return sum((value & ((1 << width) - 1)) << (width * i) for i, value in enumerate(values))


class _Bench:
    """Drives every port of one engine, cycle by cycle."""

    def __init__(self, engine, parameters, pad, random, stall):
        self.engine, self.parameters, self.random, self.stall = engine, parameters, random, stall
        self.run = Run(pad)
        self.written: int | None = None  # where to, of the row that comes next
        self.reads = [engine.x, engine.g]
        self.pending = {id(port): [None] * ROW_LATENCY for port in self.reads}
        self.inputs = Inputs(
            *(
                signal
                for port in self.reads
                for signal in (port.valid, port.row.as_value(), port.request.ready)
            ),
            engine.z.request.ready,
            engine.statistics.item.ready,
            engine.command.valid,
        )

    def ready(self) -> bool:
        return self.random.random() >= self.stall

    def drive(self, ctx, offered: bool) -> None:
        """Set the inputs of this cycle: responses that are due, and random readiness."""
        values = []
        for port in self.reads:
            address = self.pending[id(port)].pop(0)
            row = _packed(self.run.pad.row(address or 0), self.parameters.word_width)
            values += [address is not None, row, self.ready()]
        self.inputs.set(ctx, *values, self.ready(), self.ready(), offered)

    def sample(self, ctx) -> None:
        """Read the outputs of this cycle."""
        engine = self.engine
        for port in self.reads:
            taken = ctx.get(port.request.valid) and ctx.get(port.request.ready)
            self.pending[id(port)].append(ctx.get(port.request.payload) if taken else None)
        write = engine.z.request
        if self.written is not None:  # its row is due
            bits = ctx.get(engine.z.row.as_value())
            lanes, width = self.parameters.lanes, self.parameters.word_width
            row = [_signed(bits >> width * i & (1 << width) - 1, width) for i in range(lanes)]
            self.run.pad.row(self.written)[:] = row
            self.run.writes += 1
        bank = ctx.get(write.payload) // self.parameters.bank_rows
        asked = ctx.get(write.valid) << bank % self.parameters.scratchpad_banks
        assert ctx.get(engine.z.banks) == asked
        taken = ctx.get(write.valid) and ctx.get(write.ready)
        self.written = ctx.get(write.payload) if taken else None
        item = engine.statistics.item
        if ctx.get(item.valid) and ctx.get(item.ready):
            names = ("slot", "sum", "saturations")
            self.run.items.append(tuple(ctx.get(item.payload[name]) for name in names))

    async def execute(self, ctx, commands: list[Compute], streams: list[int]) -> None:
        """Offer each command as soon as its predecessor is taken, or somewhat later."""
        engine, waiting, since = self.engine, list(commands), 0
        streams = list(streams)
        operand, result = 0, 0
        while waiting or ctx.get(engine.status.busy):
            since += 1
            assert since < 200_000, "the engine hangs"
            was_offered = ctx.get(engine.command.valid)
            offered = bool(waiting) and (was_offered or self.ready())
            if offered and not was_offered:
                ctx.set(engine.command.payload, fields_of(waiting[0], engine.command.payload))
                if self.parameters.stochastic_rounding:
                    ctx.set(engine.stream, streams[0])
            self.drive(ctx, offered)
            if offered and ctx.get(engine.command.ready):
                waiting.pop(0)
                streams.pop(0)
                since = 0
                taken = True
            else:
                taken = False
            self.run.cycles += ctx.get(engine.status.busy)
            operand += ctx.get(engine.status.stall_operand)
            result += ctx.get(engine.status.stall_result)
            self.sample(ctx)
            await ctx.tick()
            if taken:
                ctx.set(engine.command.valid, 0)
                if self.parameters.stochastic_rounding:
                    ctx.set(engine.stream, self.random.getrandbits(32))
        self.sample(ctx)  # the row that follows the last request
        self.run.stalls = operand, result


def simulate(
    make, parameters, commands, pad: Scratchpad, *, random: Random, stall=0.0, streams=()
) -> Run:
    """Execute ``commands`` on ``make(parameters)``; ``stall`` is the chance of not being ready."""
    streams = streams or [0] * len(commands)
    engine = simulated(make, parameters)
    bench = _Bench(engine.design, parameters, pad.copy(), random, stall)

    async def testbench(ctx):
        await bench.execute(ctx, commands, streams)

    engine.run(testbench)
    return bench.run


def check(make, parameters, commands, pad: Scratchpad, *, random: Random, stall=0.0) -> Run:
    """Simulate, and compare memory and statistics with ``execute``."""
    expected = pad.copy()
    streams = [random.getrandbits(32) if d.stochastic else 0 for d in commands]
    given = zip(commands, streams, strict=True)
    items = [(d.slot, *execute(d, parameters, expected, stream)) for d, stream in given]
    options = {"random": random, "stall": stall, "streams": streams}
    run = simulate(make, parameters, commands, pad, **options)
    assert run.items == items
    for address, (got, want) in enumerate(zip(run.pad.rows, expected.rows, strict=True)):
        assert got == want, f"row {address}"
    return run


def random_command(operation: Operation, p: AcceleratorParameters, random: Random) -> Compute:
    """Draw a random nest whose operands lie in their half and whose tiles do not overlap."""
    if p.wide_tensors:
        return random_wide(operation, p, random)
    elementwise = operation in ELEMENTWISE
    by_entries = operation is Operation.PE4
    tile_rows = p.pe1_rows if by_entries else 1 if elementwise else p.pe2_rows
    counts = [random.choice((1, 1, 2, 3, 4)) for _ in range(random.randint(1, 3))]
    reduction = [] if elementwise else [random.randint(1, 4) for _ in range(random.randint(0, 2))]
    # z: the outer levels and the row within a tile, in any order, fill one block of rows
    z_strides, span = {}, 1
    for level in random.sample((*range(len(counts)), "row"), len(counts) + 1):
        z_strides[level] = span
        span *= tile_rows if level == "row" else counts[level]
    sign = random.choice((1, -1))
    z = random.randint(0, ROWS // 2 - span) + ROWS // 2 + (span - 1 if sign < 0 else 0)
    levels = tuple(
        Level(
            count,
            x=random.randint(-8, 8),
            g=random.randint(-8, 8),
            z=0 if index >= len(counts) else sign * z_strides[index],
        )
        for index, count in enumerate((*counts, *reduction))
    )
    return Compute(
        operation=operation,
        levels=levels,
        x=250,
        g=250,
        z=z,
        reduce_levels=len(reduction),
        tile_level=random.randrange(len(counts)),
        last_rows=random.randint(1, tile_rows),
        x_row_stride=random.randint(-9, 9),
        g_row_stride=random.randint(-9, 9) if by_entries else 0,
        z_row_stride=sign * z_strides["row"],
        shift=random.choice((0, 3, 7, random.randint(0, 40))),
        out_width=random.choice((p.word_width, 8, random.randint(4, p.word_width))),
        slot=random.randrange(256),
        relu=random.random() < 0.5,
        x_shift=random.randrange(p.most_alignment + 1),
        g_shift=random.randrange(p.most_alignment + 1),
        stochastic=p.stochastic_rounding and random.random() < 0.7,
        digits=p.narrow and bool(reduction) and random.random() < 0.6,
    )


def random_wide(operation: Operation, p: AcceleratorParameters, random: Random) -> Compute:
    """Draw a random nest with operands by digits and results of up to 16 bits."""
    while True:
        d = random_command(operation, replace(p, wide_tensors=0), random)
        out_width = random.choice((8, 9, 12, 15, 16, random.randint(4, 16)))
        digits = len(result_digits(0, out_width, p))
        reach = sum((level.count - 1) * level.z for level in d.outer)
        reach += (max(p.pe1_rows, p.pe2_rows) - 1) * d.z_row_stride
        spare = ROWS // 2 - (abs(reach) + 1) * digits
        if spare < 0:
            continue
        summed, number = list(d.reduction), int(d.digits)
        if operation in ELEMENTWISE:
            number = random.randint(0, 1)
            summed = [Level(random.randint(1, 3), x=1, g=random.randint(0, 1))] * number
        elif random.random() < 0.5:
            number = 2
            summed[:2] = [Level(random.randint(1, 3), x=1), Level(2, g=random.choice((1, 5)))]
        outer = [replace(v, z=v.z * digits) for v in d.outer]
        return replace(
            d,
            levels=(*outer, *summed),
            reduce_levels=len(summed),
            digits=number,
            z=ROWS // 2 + max(0, -reach) * digits + random.randint(0, spare),
            z_row_stride=d.z_row_stride * digits,
            out_width=out_width,
        )


@pytest.fixture(scope="session")
def engines() -> SimpleNamespace:
    """Collect the functions of this file."""
    return SimpleNamespace(
        Scratchpad=Scratchpad,
        check=check,
        simulate=simulate,
        random_command=random_command,
        result_digits=result_digits,
        element=element,
        requantise=requantise,
        stochastically=stochastically,
    )

"""Exponent file with statistics against its definition; repetition of programs."""

from dataclasses import dataclass
from itertools import product
from random import Random

import pytest
from amaranth.hdl import Array, Elaboratable, Module, Signal
from amaranth.lib import data
from amaranth.lib.wiring import connect
from kept import simulated
from slowly import mostly_slow

from trainwright.accelerator.registers import Error
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Compute, Level
from trainwright.program.encoding import encode_descriptor
from trainwright.program.errors import ProgramError
from trainwright.program.exponents import (
    ENTRIES,
    ExponentFile,
    MoveScales,
    Scalar,
    ScalarKind,
    ScaleEntry,
)
from trainwright.program.fields import DESCRIPTOR_BITS, Operation
from trainwright.program.vector import CODE_WORDS, Code, Vector
from trainwright_hw.control import exponent_file as hardware
from trainwright_hw.control.engine_ports import command_layout
from trainwright_hw.control.repetition import SEED_STEP, Repetition
from trainwright_hw.control.statistics_slots import StatisticsSlots

PARAMETERS = {
    "1024": AcceleratorParameters(exponents=1024, vector_engine=1),
    "16": AcceleratorParameters(exponents=16, vector_engine=1, statistics_depth=16),
    "bytes": AcceleratorParameters(exponents=16, word_width=8, statistics_depth=16),
    "posits": AcceleratorParameters(exponents=32, formats=("posit(8,0)",)),
}
MOST_CYCLES = 150
CONTRACTIONS = Operation.PE3, Operation.PE4
TEXTS = {
    Error.EXPONENT: "is not from",
    Error.ALIGNMENT: "apart",
    Error.NEGATIVE: "beyond the range",
}


class Bench(Elaboratable):
    """The file, the statistics that SCALES takes, and the selector of a CODE's words."""

    def __init__(self, p: AcceleratorParameters):
        self.file, self.statistics = hardware.ExponentFile(p), StatisticsSlots(p, engines=1)
        self.descriptor = Signal(DESCRIPTOR_BITS)

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.file, m.submodules.statistics = file, statistics = self.file, self.statistics
        layout = command_layout(Code.layout)
        code = data.View(layout, self.descriptor[: layout.size])
        connect(m, file.sums, statistics.taken)
        words = Array([code[f"word{n}"] for n in range(CODE_WORDS)])
        m.d.comb += file.descriptor.eq(self.descriptor)
        m.d.sync += file.word.eq(words[file.place])
        return m


@dataclass
class Model:
    """Contents of file and statistics by definition."""

    file: ExponentFile
    sums: list[int]
    p: AcceleratorParameters

    def execute(self, d):
        """Return the results of ``d``, or the error's text if ``d`` is refused."""
        try:
            if isinstance(d, Compute):
                by = self.file.shifts(d, self.p.most_alignment)
                return by.result, by.x, by.g
            if isinstance(d, Vector):
                self.file.scalars(d)
                e = self.file.exponents
                return tuple(
                    e[scalar.plus] - e[scalar.minus] + scalar.offset for scalar in d.scalars
                )
            for entry in d.entries:
                self.file.move(entry, self.sums[entry.statistics])
                self.sums[entry.statistics] = 0
            return ()
        except ProgramError as error:
            return str(error)


def random_compute(random: Random, slots: int) -> Compute:
    operation = random.choice((*CONTRACTIONS, Operation.MASK, *[Operation.BIAS] * 4))
    x, g, z = (random.randrange(slots) for _ in range(3))
    g = 0 if operation is Operation.MASK else g
    return Compute(
        operation=operation, levels=(Level(1),), x=0, g=0, z=0, x_exponent=x, g_exponent=g,
        z_exponent=z or 1, exact=random.random() < 0.2,
        grows=operation is Operation.BIAS and random.random() < 0.4,
    )  # fmt: skip


def random_pass(random: Random, slots: int) -> Vector:
    scalars = tuple(
        Scalar(
            random.choice(list(ScalarKind)[1:]), random.randrange(4), random.randrange(slots),
            random.randrange(slots), random.choice((-64, -1, 0, 5, 63)), random.random() < 0.1,
        )
        for _ in range(random.randint(1, 4))
    )  # fmt: skip
    return Vector(
        entry=0, length=1, outer=1, inner=1, streams=(), reads=0, writes=0, scalars=scalars
    )


def random_scales(random: Random, slots: int, sums: list[int]) -> MoveScales:
    entries = []
    for _ in range(random.randint(1, ENTRIES)):
        statistics = random.randrange(8)
        near = [max(sums[statistics] + n, 0) for n in (-1, 0, 1)]
        near.append(sums[statistics] ^ 1 << random.randrange(48))
        entries.append(
            ScaleEntry(
                random.choice((0, *range(1, slots))), statistics,
                random.choice((0, 1, (1 << 48) - 1, *near)),
                random.choice((0, (1 << 48) - 1, *near)),
                random.choice((0, random.randrange(slots))),
            )
        )  # fmt: skip
    return MoveScales(entries=tuple(entries))


class Driver:
    """Drives the bench's ports."""

    def __init__(self, ctx, bench: Bench, random: Random):
        self.ctx, self.bench, self.random = ctx, bench, random
        coded = bench.statistics.parameters.formats
        self.counts = ("saturations", "underflows") if coded else ("saturations",)

    async def put_exponents(self, values) -> None:
        host = self.bench.file.host
        for slot, value in enumerate(values):
            self.ctx.set(host.slot, slot)
            self.ctx.set(host.data, value)
            self.ctx.set(host.write, 1)
            await self.ctx.tick()
        self.ctx.set(host.write, 0)

    async def exponents(self, slots: int) -> list[int]:
        host, values = self.bench.file.host, []
        self.ctx.set(host.read, 1)
        for slot in range(slots):
            self.ctx.set(host.slot, slot)
            value, done = await self.ctx.tick().sample(host.value, host.done).repeat(2)
            assert done
            values.append(value)
        self.ctx.set(host.read, 0)
        return values

    async def add(self, slot: int, total: int) -> None:
        item = self.bench.statistics.ports[0].item
        self.ctx.set(item.payload, {"slot": slot, "sum": total} | dict.fromkeys(self.counts, 1))
        self.ctx.set(item.valid, 1)
        await self.ctx.tick().until(item.ready)
        self.ctx.set(item.valid, 0)
        await self.ctx.tick().repeat(4)

    async def total(self, slot: int) -> tuple[int, int]:
        statistics = self.bench.statistics
        self.ctx.set(statistics.slot, slot)
        self.ctx.set(statistics.read, 1)
        while True:
            totals = [statistics.totals[name] for name in ("sum", *self.counts)]
            sampled = await self.ctx.tick().sample(*totals, statistics.read_done)
            if sampled[-1]:
                self.ctx.set(statistics.read, 0)
                total, *counts = sampled[-1 - len(totals) : -1]
                assert len({*counts}) == 1, "each item has one of each count"
                return total, counts[0]

    async def execute(self, d, *, watched: bool):
        """Return error and results; if ``watched``, the host reads a statistics slot meanwhile."""
        file, statistics = self.bench.file, self.bench.statistics
        self.ctx.set(self.bench.descriptor, int.from_bytes(encode_descriptor(d), "little"))
        start = file.move if isinstance(d, MoveScales) else file.resolve
        self.ctx.set(start, 1)
        for cycle in range(MOST_CYCLES):
            read = watched and self.random.random() < 0.5
            self.ctx.set(statistics.read, read)
            self.ctx.set(statistics.slot, self.random.randrange(8))
            done, error = (await self.ctx.tick().sample(file.done, file.error))[-2:]
            self.ctx.set(start, 0)
            if done:
                self.ctx.set(statistics.read, 0)
                await self.ctx.tick().repeat(4)
                if isinstance(d, Compute):
                    assert cycle == 8
                    results = (file.shift, file.x_shift, file.g_shift)
                elif isinstance(d, Vector):
                    results = file.scalars[: len(d.scalars)]
                else:
                    results = ()
                values = tuple(self.ctx.get(result) for result in results)
                await self.ctx.tick()
                assert values == tuple(self.ctx.get(result) for result in results)
                return Error(error), values
        raise AssertionError(f"{d} is not done after {MOST_CYCLES} cycles")


def run(p: AcceleratorParameters, test) -> None:
    top = simulated(Bench, p)

    async def process(ctx):
        await test(ctx, top.design)

    top.run(process)


@mostly_slow(
    "seed, name", product((0, 1), PARAMETERS), lambda seed, name: seed == 0 and name != "1024"
)
def test_exponent_file_matches_model_on_random_descriptors(name, seed):
    p = PARAMETERS[name]
    random = Random(f"{name} {seed}")
    refused = set()

    async def test(ctx, bench):
        driver = Driver(ctx, bench, random)
        model = Model(ExponentFile(p.exponents), [0] * p.statistics_depth, p)
        saturations = [0] * 8
        for round in range(12):
            most = random.choice((2, 10, 128))
            values = [0, *(random.randint(-most, most - 1) for _ in range(p.exponents - 1))]
            values = [random.choice((v, v, 127, -128)) if round % 3 == 0 else v for v in values]
            values[0] = 0
            await driver.put_exponents(values)
            model.file.set(values)
            for _ in range(12):
                kind = random.randrange(3)
                if kind == 0:
                    for _ in range(random.randrange(4)):
                        large = random.getrandbits(random.randint(1, 48))
                        slot, total = random.randrange(8), random.choice((0, 1, 1 << 47, large))
                        await driver.add(slot, total)
                        model.sums[slot] = (model.sums[slot] + total) % (1 << 48)
                        saturations[slot] += 1
                make = (
                    lambda: random_scales(random, p.exponents, model.sums),
                    lambda: random_pass(random, p.exponents),
                    lambda: random_compute(random, p.exponents),
                )
                d = make[kind]()
                expected = model.execute(d)
                error, outputs = await driver.execute(d, watched=random.random() < 0.3)
                if isinstance(expected, str):
                    assert TEXTS[error] in expected
                    refused.add(error)
                else:
                    assert error is Error.NONE and outputs == expected
            assert await driver.exponents(p.exponents) == model.file.exponents
            totals = [await driver.total(slot) for slot in range(8)]
            assert totals == list(zip(model.sums[:8], saturations, strict=True))

    run(p, test)
    assert refused


def test_every_error_is_met():
    """Give each error one descriptor at its limit and one just below.

    Refused descriptors leave no sum behind.
    """
    p = PARAMETERS["16"]
    limit = (1 << 48) - 1
    nest = {"levels": (Level(1),), "x": 0, "g": 0, "z": 0}
    by = {"x_exponent": 1, "g_exponent": 2, "z_exponent": 3}
    product = Compute(operation=Operation.PE4, **nest, **by)
    total = Compute(operation=Operation.BIAS, **nest, **by)
    exact = Compute(operation=Operation.PE4, **nest, **by, exact=True)
    strict = random_pass(Random(0), 4)
    strict = Vector(**{**vars(strict), "scalars": (Scalar(ScalarKind.SHIFT, 0, 1, 2, 0, True),)})
    up = MoveScales(entries=(ScaleEntry(1, 1, 0, 4),))
    down = MoveScales(entries=(ScaleEntry(3, 1, limit, limit),))
    cases = (
        ((product,), (100, 27), Error.NONE), ((product,), (100, 28), Error.EXPONENT),
        ((exact,), (-100, -28), Error.NONE), ((exact,), (-100, -29), Error.EXPONENT),
        ((total,), (9, -6), Error.NONE), ((total,), (9, -7), Error.ALIGNMENT),
        ((total,), (-6, 9), Error.NONE), ((total,), (-7, 9), Error.ALIGNMENT),
        *(((total,), (n - 8, -8), Error.ALIGNMENT) for n in (16, 32, 64, 128)),
        *(((total,), (-8, n - 8), Error.ALIGNMENT) for n in (16, 32, 64, 128)),
        ((strict,), (5, 5), Error.NONE), ((strict,), (4, 5), Error.NEGATIVE),
        ((up,), (126, 0), Error.NONE), ((up,), (127, 0), Error.EXPONENT),
        ((product, down), (-100, -28), Error.NONE),  # at its floor, -128
        ((product, down), (-100, -29), Error.EXPONENT),  # above it
    )  # fmt: skip

    async def test(ctx, bench):
        driver, left = Driver(ctx, bench, Random(1)), 0
        for descriptors, (x, g), expected in cases:
            await driver.put_exponents([0, x, g, -128 if down in descriptors else 0])
            await driver.add(1, 5)
            errors = [(await driver.execute(d, watched=False))[0] for d in descriptors]
            assert errors[-1] is expected, (descriptors, x, g)
            moved = isinstance(descriptors[-1], MoveScales) and expected is Error.NONE
            left = 0 if moved else left + 5
            assert (await driver.total(1))[0] == left

    run(p, test)


@pytest.mark.parametrize("name", ("16", "bytes"))
def test_exponent_of_growing_sum_stays_near_operands(name):
    """Exponent is at most what the accelerator aligns above that of g, wherever x is."""
    p = PARAMETERS[name]
    d = Compute(
        operation=Operation.BIAS, levels=(Level(1),), x=0, g=0, z=0, x_exponent=1, g_exponent=2,
        z_exponent=3, grows=True,
    )  # fmt: skip

    async def test(ctx, bench):
        driver = Driver(ctx, bench, Random(1))
        for x, g in ((-5, 0), (0, -5), (0, 0), (2, 9)):
            for z in (g + p.most_alignment + n for n in (-1, 0, 1, 40)):
                model = Model(ExponentFile(p.exponents), [], p)
                model.file.set([0, x, g, z, *[0] * (p.exponents - 4)])
                await driver.put_exponents([0, x, g, z])
                expected = model.execute(d)
                assert await driver.execute(d, watched=False) == (Error.NONE, expected)
                assert await driver.exponents(4) == model.file.exponents[:4]

    run(p, test)


def test_exponent_written_by_host_does_not_fall_to_floor():
    """Exponent falls after a contraction that left it above, and not after a write."""
    p = PARAMETERS["16"]
    product = Compute(
        operation=Operation.PE4, levels=(Level(1),), x=0, g=0, z=0, x_exponent=1, g_exponent=2,
        z_exponent=3,
    )  # fmt: skip
    down = MoveScales(entries=(ScaleEntry(3, 1, 9, 9),))

    async def test(ctx, bench):
        driver = Driver(ctx, bench, Random(1))
        for written, after in ((False, 4), (True, 5)):
            await driver.put_exponents([0, 1, 1, 5])
            await driver.execute(product, watched=False)
            if written:
                await driver.put_exponents([0, 1, 1, 5])
            await driver.add(1, 5)
            await driver.execute(down, watched=False)
            assert await driver.exponents(4) == [0, 1, 1, after]

    run(p, test)


def test_host_read_waits_for_descriptor_in_same_cycle():
    product = Compute(
        operation=Operation.PE4, levels=(Level(1),), x=0, g=0, z=0, x_exponent=1, g_exponent=2,
        z_exponent=3,
    )  # fmt: skip

    async def test(ctx, bench):
        file, driver = bench.file, Driver(ctx, bench, Random(1))
        await driver.put_exponents([0, 1, 1, 5])
        ctx.set(bench.descriptor, int.from_bytes(encode_descriptor(product), "little"))
        ctx.set(file.host.slot, 3)
        for signal in (file.resolve, file.host.read):
            ctx.set(signal, 1)
        await ctx.tick()
        assert ctx.get(file.host.done) and ctx.get(file.host.value) == 5
        for signal in (file.resolve, file.host.read):
            ctx.set(signal, 0)
        await ctx.tick()
        ctx.set(file.host.read, 1)
        while not ctx.get(file.done):
            assert not ctx.get(file.host.done)
            await ctx.tick()
        (value,) = await ctx.tick().sample(file.host.value).until(file.host.done)
        assert value == ctx.get(file.shift) + 2  # the floor is 1 + 1

    run(PARAMETERS["16"], test)


MOST = (1 << 48) - 1
"""Greatest sum."""


def above_its_floor(slot: int) -> Compute:
    """Leave ``slot`` above its floor if its sum exceeds those of slots 1 and 2 together."""
    return Compute(
        operation=Operation.PE4, levels=(Level(1),), x=0, g=0, z=0, x_exponent=1, g_exponent=2,
        z_exponent=slot,
    )  # fmt: skip


def test_every_limit_to_the_unit():
    """An exponent rises by a sum over its upper limit and falls by a sum under its lower one.

    Limits and sums differ in each bit once.
    """
    p, random = PARAMETERS["16"], Random("limits")
    cases = [(0, MOST, MOST), (MOST, MOST, MOST), *((1 << n, MOST, MOST) for n in range(48))]
    for bit in range(48):
        total = random.getrandbits(48) >> random.randrange(40) | 1 << bit
        limits = total, total ^ 1 << bit
        cases += [(total, low, MOST) for low in limits] + [(total, 0, high) for high in limits]

    async def test(ctx, bench):
        driver = Driver(ctx, bench, Random(1))
        for number, (total, low, high) in enumerate(cases):
            slot, before = number % p.statistics_depth, 2 + (1 << number % 6)  # a shift of one bit
            await driver.put_exponents([0, 1, 1, before])
            await driver.execute(above_its_floor(3), watched=False)
            await driver.add(slot, total)
            move = MoveScales(entries=(ScaleEntry(3, slot, low, high),))
            await driver.execute(move, watched=False)
            moved = 1 if total > high else -1 if total < low else 0
            assert await driver.exponents(4) == [0, 1, 1, before + moved], (total, low, high)

    run(p, test)


def test_every_entry_has_its_own_limits():
    """Each of many entries moves, up or down, by one sum that they share."""
    p = PARAMETERS["16"]
    values = [0, 1, 1, *[5] * ENTRIES]

    async def test(ctx, bench):
        driver = Driver(ctx, bench, Random(1))
        for moved in range(ENTRIES):
            for move, limits in ((1, (0, 8)), (-1, (10, MOST))):
                await driver.put_exponents(values)
                for n in range(ENTRIES):
                    await driver.execute(above_its_floor(3 + n), watched=False)
                    await driver.add(n, 9)
                entries = [ScaleEntry(3 + n, n, 0, MOST) for n in range(ENTRIES)]
                entries[moved] = ScaleEntry(3 + moved, moved, *limits)
                await driver.execute(MoveScales(entries=tuple(entries)), watched=False)
                expected = [value + move * (n == 3 + moved) for n, value in enumerate(values)]
                assert await driver.exponents(len(values)) == expected

    run(p, test)


def test_every_slot_is_above_its_floor_by_itself():
    """Only the slot above its floor falls, not slots whose number differs by a bit."""
    p = PARAMETERS["16"]
    values = [0, 1, 1, *[5] * 13]

    async def test(ctx, bench):
        driver = Driver(ctx, bench, Random(1))
        for slot in range(3, p.exponents):
            await driver.put_exponents(values)
            await driver.execute(above_its_floor(slot), watched=False)
            for other in (slot, *(slot ^ 1 << bit for bit in range(4))):
                await driver.add(1, 9)
                move = MoveScales(entries=(ScaleEntry(other, 1, MOST, MOST),))
                await driver.execute(move, watched=False)
            expected = [value - (n == slot) for n, value in enumerate(values)]
            assert await driver.exponents(p.exponents) == expected

    run(p, test)


def repetition(_: None) -> Repetition:
    return Repetition()


@pytest.mark.parametrize("first", (0, 1, 5, 0x80000001, 0xFFFFFFFF))
@pytest.mark.parametrize("times", (0, 1, 3))
def test_repetition_counter_matches_definition(first, times):
    top = simulated(repetition, None)
    dut = top.design

    async def test(ctx):
        ctx.set(dut.value, first)
        ctx.set(dut.write, 1)
        ctx.set(dut.times, times)
        await ctx.tick()
        ctx.set(dut.write, 0)
        for start in range(2):
            ctx.set(dut.start, 1)
            await ctx.tick()
            ctx.set(dut.start, 0)
            assert ctx.get(dut.busy)
            await ctx.tick().until(~dut.busy)
            for number in range(max(times, 1)):
                step = (first + start * max(times, 1) + number) % (1 << 32)
                assert ctx.get(dut.step) == step
                assert ctx.get(dut.seed) == step * SEED_STEP % (1 << 32)
                assert ctx.get(dut.last) == (number == max(times, 1) - 1)
                ctx.set(dut.advance, 1)
                await ctx.tick()
                ctx.set(dut.advance, 0)

    top.run(test)

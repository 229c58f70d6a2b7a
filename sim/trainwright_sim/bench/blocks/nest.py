"""LoopNest against a walk over the levels in Python: addresses modulo 2^20 and every flag."""

from itertools import product
from random import Random

import cocotb

from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Compute, Level
from trainwright.program.fields import LOCAL_WIDTH, Operation
from trainwright_hw.compute.loop_nest import step_layout
from trainwright_sim.bench.commands import command_bits
from trainwright_sim.bench.streams import StreamSink
from trainwright_sim.bench.testbench import STALLS, TestBench

Step = tuple[int, ...]
COUNT_BITS = 10
"""Bits of counts tested, of 16.

More would take too many cycles; the proof ``loop-nest.steps`` covers all.
"""


def walk(d: Compute, p: AcceleratorParameters) -> list[Step]:
    """List a descriptor's steps as tuples in the order of ``step_layout``."""
    outer, steps = len(d.outer), []
    for index in product(*(range(level.count) for level in d.levels)):
        addresses = [
            sum(
                (i * getattr(level, name) for i, level in zip(index, d.levels, strict=True)),
                getattr(d, name),
            )
            % (1 << LOCAL_WIDTH)
            for name in ("x", "g", "z")
        ]
        at_end = [i == level.count - 1 for i, level in zip(index, d.levels, strict=True)]
        first, last = not any(index[outer:]), all(at_end[outer:])
        flags = (first, last, at_end[d.tile_level], all(at_end))
        if p.wide_tensors:  # the level that goes over digits has advanced with this step
            summed = index[outer:]
            begins = d.digits and summed[d.digits - 1] and not any(summed[d.digits :])
            flags = (*flags, bool(begins))
        steps.append((*addresses, *map(int, flags)))
    return steps


def random_nest(p: AcceleratorParameters, random: Random) -> Compute:
    """Draw counts and strides, also negative and wrapping; at most about 300 steps."""
    depth = random.choice((1, 2, 3, p.nest_levels))
    steps, levels = 1, []
    for _ in range(depth):
        count = random.choice((1, 2, 3, random.randint(1, 40)))
        count = min(count, max(1, 300 // steps))
        steps *= count
        reach = random.choice((10, 1 << (LOCAL_WIDTH - 2)))
        levels.append(Level(count, *(random.randint(-reach, reach) for _ in range(3))))
    random.shuffle(levels)
    reduce_levels = random.randint(0, depth - 1)
    x, g, z = (random.getrandbits(LOCAL_WIDTH) for _ in range(3))
    return Compute(
        operation=Operation.PE3,
        levels=tuple(levels),
        x=x,
        g=g,
        z=z,
        reduce_levels=reduce_levels,
        tile_level=random.randrange(depth - reduce_levels),
        digits=min(reduce_levels, random.randint(0, 2)) if p.wide_tensors else 0,
    )


class NestBench(TestBench):
    """Loads commands and collects their steps; ``free`` is low until the last was taken."""

    def __init__(self, dut, seed: object, stall: str):
        super().__init__(dut, seed)
        self.set(load=0, command=0)
        self.steps = StreamSink(self, "step", stall=stall)
        self._left: int | None = None
        self._is_free = True
        self.agents.append(self)

    def cycle(self) -> None:
        if self._left is not None:
            assert self.get("free") == self._is_free
            self._is_free = len(self.steps.items) >= self._left

    async def check(self, d: Compute) -> None:
        expected = walk(d, self.parameters)
        self.steps.items.clear()
        self._left = None
        self.set(load=1, command=command_bits(d))
        await self.run()
        self._left, self._is_free = len(expected), False
        self.set(load=0, command=self.random.getrandbits(64))
        await self.until(lambda: len(self.steps.items) >= len(expected))
        await self.run(self.random.randint(1, 8))
        layout = step_layout(self.parameters)
        names = [name for name, _ in layout]
        got = []
        for bits in self.steps.items:
            fields = {n: bits >> f.offset & ((1 << f.width) - 1) for n, f in layout}
            got.append(tuple(fields[name] for name in names))
        assert got == expected


@cocotb.test()
@cocotb.parametrize(seed=range(2), stall=STALLS)
async def random_nests(dut, seed: int, stall: str):
    """Run ten nests, one after another."""
    tb = NestBench(dut, f"{seed} {stall}", stall)
    await tb.start()
    for _ in range(10):
        await tb.check(random_nest(tb.parameters, tb.random))


@cocotb.test()
async def corners(dut):
    """Run a single step, a long innermost level, each level alone, and all levels at once."""
    tb = NestBench(dut, "corners", "none")
    await tb.start()
    depth = tb.parameters.nest_levels
    single = Level(1)
    nests = [(single,), (Level(700, 1, -1, 3),), (Level(2, 3, 5, 7),) * min(depth, 8)]
    nests += [
        (single,) * n + (Level(3, 1, 2, 3),) + (single,) * (depth - 1 - n) for n in range(depth)
    ]
    for levels in nests:
        for reduce_levels in {0, len(levels) - 1}:
            last = (1 << LOCAL_WIDTH) - 1
            nest = {"levels": levels, "x": 0, "g": last, "z": 5, "reduce_levels": reduce_levels}
            await tb.check(Compute(operation=Operation.PE4, **nest))


@cocotb.test()
async def every_bit_of_a_count(dut):
    """Give each level counts of two bits, and again with one level around it not at 1."""
    tb = NestBench(dut, "counts", "none")
    await tb.start()
    depth = tb.parameters.nest_levels
    for level in range(depth):
        for bit in range(COUNT_BITS):
            levels = [Level(1)] * depth
            levels[level] = Level((1 << bit) + 1, 1, 1 << bit, -1)
            neighbours = {level - 1, (level + 1 + bit) % depth} - {-1, level}
            for other in neighbours if bit < 6 else ():
                levels[other] = Level(2, 5, 7, 11)
            summed = bit % depth
            nest = Compute(
                operation=Operation.PE4, levels=tuple(levels), x=1, g=2, z=3,
                reduce_levels=summed, tile_level=level if level < depth - summed else 0,
            )  # fmt: skip
            await tb.check(nest)


@cocotb.test()
async def one_step_a_cycle(dut):
    """Check two cycles from ``load`` to the first step, then a step per cycle."""
    tb = NestBench(dut, "throughput", "none")
    await tb.start()
    levels = (Level(4, 1, 1, 1), Level(5, 2, 3, 4), Level(6, 1))
    before = tb.cycles
    nest = Compute(operation=Operation.PE4, levels=levels, x=0, g=0, z=0)
    tb.set(load=1, command=command_bits(nest))
    await tb.run()
    tb.set(load=0)
    await tb.until(lambda: len(tb.steps.items) == nest.steps)
    assert tb.cycles - before <= nest.steps + 4

from itertools import product
from random import Random

import pytest
from amaranth.sim import Simulator

from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Compute, Level
from trainwright.program.fields import LOCAL_WIDTH, Operation
from trainwright_hw.compute.loop_nest import LoopNest
from trainwright_sim.amaranth_peers import fields_of


def steps(d: Compute, p: AcceleratorParameters):
    """Compute by nested loops what the hardware must give, step by step."""
    reduction = len(d.levels) - d.reduce_levels
    total = d.steps
    for number, index in enumerate(product(*(range(level.count) for level in d.levels))):
        address = {
            name: getattr(d, name)
            + sum(i * getattr(lv, name) for i, lv in zip(index, d.levels, strict=True))
            for name in ("x", "g", "z")
        }
        ends = [i == level.count - 1 for i, level in zip(index, d.levels, strict=True)]
        yield {name: value % (1 << LOCAL_WIDTH) for name, value in address.items()} | {
            "first": not any(index[reduction:]),
            "last": all(ends[reduction:]),
            "tile_last": ends[d.tile_level],
            "final": number == total - 1,
            **({"digit": _digit(d, index[reduction:])} if p.wide_tensors else {}),
        }


def _digit(d: Compute, index: tuple[int, ...]) -> bool:
    """Return whether the level over digits advances with this step."""
    return bool(d.digits and index[d.digits - 1]) and not any(index[d.digits :])


def random_nest(levels: int, random: Random, *, digits: bool) -> Compute:
    def stride() -> int:
        return random.choice((0, 1, -1, random.randrange(1 << LOCAL_WIDTH), -random.randrange(999)))

    count = random.randint(1, levels)
    reduce_levels = random.randint(0, count)
    return Compute(
        operation=Operation.PE3,
        levels=tuple(
            Level(random.choice((1, 1, 2, 3)), x=stride(), g=stride(), z=stride())
            for _ in range(count)
        ),
        x=random.randrange(1 << LOCAL_WIDTH),
        g=random.randrange(1 << LOCAL_WIDTH),
        z=random.randrange(1 << LOCAL_WIDTH),
        reduce_levels=reduce_levels,
        tile_level=random.randrange(count),
        digits=min(reduce_levels, random.randint(0, 2)) if digits else 0,
    )


@pytest.mark.parametrize("levels", (3, 6, 10))
@pytest.mark.parametrize("seed", range(3), ids=lambda seed: f"seed{seed}")
@pytest.mark.parametrize("digits", (False, True), ids=("words", "digits"))
def test_nest_steps_match_definition(levels, seed, digits):
    random = Random(f"nest {levels} {seed} {digits}")
    p = AcceleratorParameters(
        nest_levels=levels, word_width=8 if digits else 16, wide_tensors=digits
    )
    dut = LoopNest(p)
    nests = [random_nest(levels, random, digits=digits) for _ in range(6)]
    nests.append(Compute(operation=Operation.PE4, levels=(Level(300, x=3),), x=1, g=2, z=3))
    step = dut.step

    async def testbench(ctx):
        for number, d in enumerate(nests):
            ready = 1.0 if number % 2 else 0.6
            ctx.set(dut.load, 1)
            ctx.set(dut.command, fields_of(d, dut.command))
            await ctx.tick()
            ctx.set(dut.load, 0)
            ctx.set(dut.command.as_value(), random.getrandbits(900))
            assert not ctx.get(step.valid)
            await ctx.tick()
            for expected in steps(d, p):
                while True:  # a step a cycle: valid in every cycle until the last was taken
                    assert ctx.get(step.valid)
                    taken = random.random() < ready
                    ctx.set(step.ready, taken)
                    got = {name: ctx.get(step.payload[name]) for name in expected}
                    await ctx.tick()
                    if taken:
                        break
                assert got == expected
            assert not ctx.get(step.valid)

    simulator = Simulator(dut)
    simulator.add_clock(1e-8)
    simulator.add_testbench(testbench)
    simulator.run()

"""The vector unit by itself: BIAS and MASK of words and of digits, and 0 where nothing is due."""

from random import Random
from typing import Any

import pytest
from amaranth.sim import Simulator

from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Compute, Level
from trainwright.program.fields import Operation
from trainwright_hw.arith.lanes import lane_format
from trainwright_hw.compute.pe2.vector import VectorUnit, vector_cycles
from trainwright_sim.amaranth_peers import fields_of

LANES = 4
SMALL: dict[str, Any] = {"lanes": LANES, "pe1_rows": 2, "pe2_rows": 2}
PARAMETERS = {
    "words": AcceleratorParameters(**SMALL),
    "bytes": AcceleratorParameters(**SMALL, word_width=8),
    "digits": AcceleratorParameters(**SMALL, word_width=8, wide_tensors=True),
}


def random_settings(random: Random, p: AcceleratorParameters, operation: Operation) -> Compute:
    return Compute(
        operation=operation, levels=(Level(1),), x=0, g=0, z=0,
        relu=random.random() < 0.5,
        x_shift=random.randrange(p.most_alignment + 1),
        g_shift=random.randrange(p.most_alignment + 1),
    )  # fmt: skip


def packed(words: list[int], width: int) -> int:
    return sum((word & (1 << width) - 1) << width * n for n, word in enumerate(words))


@pytest.mark.parametrize("name", PARAMETERS)
@pytest.mark.parametrize("seed", range(2))
def test_vector_unit_values_match_definition(engines, name, seed):
    """Values of either context in turn, with gaps between their digits and between them."""
    p, random = PARAMETERS[name], Random(f"vector {name} {seed}")
    dut, width = VectorUnit(p), p.word_width
    commands = [
        random_settings(random, p, operation) for operation in (Operation.BIAS, Operation.MASK)
    ]
    least, greatest = -(1 << (width - 1)), (1 << (width - 1)) - 1
    latency = vector_cycles(lane_format(p))
    due: dict[tuple[int, int], int] = {}

    def word() -> int:
        return random.choice((0, 0, least, greatest, random.randint(least, greatest)))

    async def testbench(ctx):
        cycle = 0

        async def step(*, valid: bool) -> None:
            nonlocal cycle
            ctx.set(dut.valid, valid)
            for lane in range(LANES):
                assert ctx.get(dut.value[lane]) == due.pop((cycle, lane), 0)
            await ctx.tick()
            cycle += 1

        for context, command in enumerate(commands):
            ctx.set(dut.configure, 1)
            ctx.set(dut.configure_context, context)
            ctx.set(dut.command, fields_of(command, dut.command))
            await step(valid=False)
        ctx.set(dut.configure, 0)
        await step(valid=False)
        for _ in range(300):
            context = random.randrange(2)
            digits = random.randint(1, 3) if p.wide_tensors else 1
            x, g = ([[word() for _ in range(LANES)] for _ in range(digits)] for _ in range(2))
            for number in range(digits):
                while random.random() < 0.3:
                    ctx.set(dut.x_row.as_value(), random.getrandbits(LANES * width))
                    await step(valid=False)
                ctx.set(dut.context, context)
                ctx.set(dut.x_row.as_value(), packed(x[number], width))
                ctx.set(dut.g_row.as_value(), packed(g[number], width))
                is_last = number == digits - 1
                if p.wide_tensors:
                    ctx.set(dut.last, is_last)
                for lane in range(LANES if is_last else 0):
                    columns = [[row[lane] for row in rows] for rows in (x, g)]
                    value = engines.element(commands[context], *columns)
                    due[cycle + latency + lane, lane] = value
                await step(valid=True)
        for _ in range(latency + LANES):
            await step(valid=False)
        assert not due

    simulator = Simulator(dut)
    simulator.add_clock(1e-8)
    simulator.add_testbench(testbench)
    simulator.run()

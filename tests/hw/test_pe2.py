from random import Random

import pytest

from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Compute, Level
from trainwright.program.fields import Operation
from trainwright_sim.bench.designs import pe2

SMALL = {"lanes": 4, "pe1_rows": 2, "pe2_rows": 2}
PARAMETERS = {
    "4x2": AcceleratorParameters(**SMALL),
    "4x4": AcceleratorParameters(lanes=4, pe1_rows=4, pe2_rows=4),
    "8x4": AcceleratorParameters(lanes=8, pe1_rows=8, pe2_rows=4, accumulator_width=48),
    "4x4-random": AcceleratorParameters(lanes=4, pe1_rows=4, pe2_rows=4, stochastic_rounding=True),
    "4x2-narrow": AcceleratorParameters(**SMALL, accumulator_width=24, nest_levels=5),
    "4x2-bytes": AcceleratorParameters(**SMALL, word_width=8, accumulator_width=48),
    "4x2-digits": AcceleratorParameters(
        **SMALL, word_width=8, accumulator_width=44, wide_tensors=1
    ),
    "8x4-digits-random": AcceleratorParameters(
        lanes=8, pe1_rows=4, pe2_rows=4, word_width=8, wide_tensors=1, stochastic_rounding=True
    ),
}
OPERATIONS = (Operation.PE3, Operation.BIAS, Operation.MASK)
SLOW = {"8x4-digits-random", "8x4", "4x4"}
"""Sizes of the slow tests, as are benches of them under Verilator."""


@pytest.mark.parametrize(
    "stall",
    (*(pytest.param(chance, marks=pytest.mark.slow) for chance in (0, 0.3)), 0.8),
    ids=lambda stall: f"stall{stall}",
)
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in PARAMETERS],
)
@pytest.mark.parametrize("seed", (0, pytest.param(1, marks=pytest.mark.slow)))
def test_pe2_matches_definition_on_random_commands(engines, name, stall, seed):
    parameters = PARAMETERS[name]
    random = Random(f"pe2 {name} {stall} {seed}")
    pad = engines.Scratchpad.random(parameters, random)
    if (
        parameters.accumulator_width < 2 * parameters.word_width
    ):  # the compiler's part: no sum may overflow
        pad.rows = [[word >> 8 for word in row] for row in pad.rows]
    elif parameters.accumulator_width == 32:
        pad.rows = [[word >> 2 for word in row] for row in pad.rows]
    commands = [
        engines.random_command(random.choice(OPERATIONS), parameters, random) for _ in range(7)
    ]
    engines.check(pe2, parameters, commands, pad, random=random, stall=stall)


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("stochastic", (False, pytest.param(True, marks=pytest.mark.slow)))
def test_pe2_of_default_size_matches_definition(engines, operation, stochastic):
    parameters = AcceleratorParameters(stochastic_rounding=stochastic)
    random = Random(f"pe2 full {operation}")
    pad = engines.Scratchpad.random(parameters, random)
    pad.rows = [[word >> 2 for word in row] for row in pad.rows]
    command = engines.random_command(operation, parameters, random)
    engines.check(pe2, parameters, [command], pad, random=random, stall=0.2)


def test_pe2_without_stalls_takes_one_cycle_per_step(engines):
    """Without stalls a step a cycle, a short reduction at a row a cycle."""
    parameters = AcceleratorParameters(lanes=4, pe1_rows=4, pe2_rows=4)
    random = Random("pe2 throughput")
    pad = engines.Scratchpad.random(parameters, random)
    pad.rows = [[word >> 4 for word in row] for row in pad.rows]
    latency = 24 + parameters.lanes
    for reduction in (1, 3, 4, 5, 16):
        command = Compute(
            operation=Operation.PE3,
            levels=(Level(20, z=4), Level(reduction, x=1, g=1)),
            x=0,
            g=0,
            z=512,
            reduce_levels=1,
            last_rows=4,
            z_row_stride=1,
        )
        run = engines.check(pe2, parameters, [command], pad, random=random)
        assert run.cycles <= 20 * max(reduction, 4) + latency


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("out_width", (8, 12, pytest.param(16, marks=pytest.mark.slow)))
def test_throughput_by_digits(engines, operation, out_width):
    """Without stalls a step a cycle, or a digit written, whichever takes longer."""
    parameters = PARAMETERS["4x2-digits"]
    random = Random(f"pe2 digits {operation} {out_width}")
    pad = engines.Scratchpad.random(parameters, random)
    digits, tiles, summed = len(engines.result_digits(0, out_width, parameters)), 30, 3
    elementwise = operation in (Operation.BIAS, Operation.MASK)
    rows = 1 if elementwise else parameters.pe2_rows
    command = Compute(
        operation=operation,
        levels=(Level(tiles, x=summed, g=summed, z=rows * digits), Level(summed, x=1, g=1)),
        x=0,
        g=100,
        z=512,
        reduce_levels=1,
        last_rows=rows,
        z_row_stride=digits,
        shift=4,
        out_width=out_width,
        digits=1,
    )
    run = engines.check(pe2, parameters, [command], pad, random=random)
    assert run.cycles <= tiles * max(summed, rows * digits) + 28


@pytest.mark.parametrize("operation", OPERATIONS)
def test_commands_follow_without_a_gap(engines, operation):
    """Four cycles at most from the last step of a command to the first of the next."""
    parameters = AcceleratorParameters(lanes=4, pe1_rows=4, pe2_rows=4)
    random = Random(f"pe2 gap {operation}")
    pad = engines.Scratchpad.random(parameters, random)
    pad.rows = [[word >> 4 for word in row] for row in pad.rows]
    elementwise = operation in (Operation.BIAS, Operation.MASK)
    steps, count, latency, gap = 24, 6, 24 + parameters.lanes, 4
    level = Level(steps, x=1, g=1, z=1) if elementwise else Level(steps // 2, x=1, g=1)
    commands = [
        Compute(
            operation=operation,
            levels=(level,) if elementwise else (Level(2, z=4), level),
            x=10 * n,
            g=40 + n,
            z=512 + 24 * n,
            reduce_levels=0 if elementwise else 1,
            last_rows=1 if elementwise else 4,
            z_row_stride=1,
            shift=n,
            out_width=16 - n,
            slot=n,
            relu=n % 2 == 0,
            x_shift=n,
            g_shift=5 - n,
        )
        for n in range(count)
    ]
    run = engines.check(pe2, parameters, commands, pad, random=random)
    assert run.cycles <= count * (steps + gap) + latency

from random import Random

import pytest

from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Compute, Level
from trainwright.program.fields import Operation
from trainwright_sim.bench.designs import pe1

PARAMETERS = {
    "4x2": AcceleratorParameters(lanes=4, pe1_rows=2, pe2_rows=2),
    "4x4": AcceleratorParameters(lanes=4, pe1_rows=4, pe2_rows=2, accumulator_width=36),
    "8x8": AcceleratorParameters(lanes=8, pe1_rows=8, pe2_rows=2, accumulator_width=48),
    "4x4-random": AcceleratorParameters(
        lanes=4, pe1_rows=4, pe2_rows=2, accumulator_width=36, stochastic_rounding=True
    ),
    "8x4-random": AcceleratorParameters(
        lanes=8, pe1_rows=4, pe2_rows=2, accumulator_width=48, stochastic_rounding=True
    ),
    "8x2-narrow": AcceleratorParameters(
        lanes=8, pe1_rows=2, pe2_rows=2, accumulator_width=24, nest_levels=5
    ),
    "4x2-bytes": AcceleratorParameters(
        lanes=4, pe1_rows=2, pe2_rows=2, word_width=8, accumulator_width=48
    ),
    "4x2-digits": AcceleratorParameters(
        lanes=4, pe1_rows=2, pe2_rows=2, word_width=8, wide_tensors=1
    ),
    "8x4-digits-random": AcceleratorParameters(
        lanes=8, pe1_rows=4, pe2_rows=2, word_width=8, wide_tensors=1, stochastic_rounding=True
    ),
}
SLOW = {"8x4-digits-random", "8x4-random", "8x8", "4x4", "4x2", "8x2-narrow"}
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
def test_pe1_matches_definition_on_random_commands(engines, name, stall, seed):
    parameters = PARAMETERS[name]
    random = Random(f"pe1 {name} {stall} {seed}")
    pad = engines.Scratchpad.random(parameters, random)
    # the compiler's part: no sum may overflow; there are sums of up to 2^7 products of 2^30 here
    spare = max(0, 2 * parameters.word_width + 7 - parameters.accumulator_width)
    pad.rows = [[word >> (spare + 1) // 2 for word in row] for row in pad.rows]
    commands = [engines.random_command(Operation.PE4, parameters, random) for _ in range(3)]
    engines.check(pe1, parameters, commands, pad, random=random, stall=stall)


@pytest.mark.parametrize("rows", (8, pytest.param(16, marks=pytest.mark.slow)))
@pytest.mark.parametrize("stochastic", (False, pytest.param(True, marks=pytest.mark.slow)))
def test_pe1_of_default_size_matches_definition(engines, rows, stochastic):
    parameters = AcceleratorParameters(pe1_rows=rows, stochastic_rounding=stochastic)
    random = Random(f"pe1 full {rows}")
    pad = engines.Scratchpad.random(parameters, random)
    command = engines.random_command(Operation.PE4, parameters, random)
    engines.check(pe1, parameters, [command], pad, random=random, stall=0.2)


@pytest.mark.parametrize(
    "lanes, rows",
    [(4, 2), *(pytest.param(*size, marks=pytest.mark.slow) for size in ((8, 4), (4, 4), (8, 8)))],
)
def test_pe1_without_stalls_takes_lanes_cycles_per_step(engines, lanes, rows):
    """Without stalls a step takes as many cycles as there are lanes, whatever the reduction."""
    parameters = AcceleratorParameters(lanes=lanes, pe1_rows=rows, pe2_rows=2)
    random = Random(f"pe1 throughput {lanes} {rows}")
    pad = engines.Scratchpad.random(parameters, random)
    pad.rows = [[word >> 2 for word in row] for row in pad.rows]
    for reduction in (1, 4):
        command = Compute(
            operation=Operation.PE4,
            levels=(Level(20, x=rows, z=rows), Level(reduction, x=1, g=lanes)),
            x=0,
            g=0,
            z=512,
            reduce_levels=1,
            last_rows=rows,
            x_row_stride=1,
            z_row_stride=1,
            g_row_stride=3,
            shift=8,
        )
        run = engines.check(pe1, parameters, [command], pad, random=random)
        assert run.cycles <= 20 * reduction * lanes + max(rows, lanes) + 2 * rows + lanes + 26


def test_commands_follow_without_a_gap(engines):
    """A command's first step comes at once after the last one of the command before."""
    parameters = AcceleratorParameters(lanes=8, pe1_rows=4, pe2_rows=2)
    random = Random("pe1 gap")
    pad = engines.Scratchpad.random(parameters, random)
    pad.rows = [[word >> 2 for word in row] for row in pad.rows]
    steps, count = 6, 5
    commands = [
        Compute(
            operation=Operation.PE4,
            levels=(Level(2, x=4, z=4), Level(steps // 2, x=8, g=8)),
            x=10 * n,
            g=40 + n,
            z=512 + 8 * n,
            reduce_levels=1,
            last_rows=4,
            x_row_stride=1,
            z_row_stride=1,
            g_row_stride=1,
            shift=n,
            out_width=16 - n,
            slot=n,
        )
        for n in range(count)
    ]
    run = engines.check(pe1, parameters, commands, pad, random=random)
    assert run.cycles <= count * steps * parameters.lanes + 8 + 2 * 4 + 8 + 26

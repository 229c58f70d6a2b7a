"""What a descriptor touches, by its footprint and exactly."""

import random

import pytest
from hazards import touched_by_compute

from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Compute, Level
from trainwright.program.fields import Operation
from trainwright.program.footprint import footprint

P = AcceleratorParameters(lanes=8, pe1_rows=4, pe2_rows=2)
COMPUTE = (
    Operation.PE1,
    Operation.PE2,
    Operation.PE3,
    Operation.PE4,
    Operation.BIAS,
    Operation.MASK,
)


def random_compute(operation: Operation, rng: random.Random) -> Compute:
    rows = {Operation.PE1: 4, Operation.PE4: 4, Operation.PE2: 2, Operation.PE3: 2}.get(operation)
    levels = [
        Level(rng.randint(1, 4), *(rng.randint(-9, 9) for _ in range(3)))
        for _ in range(rng.randint(1, 4))
    ]
    reduce_levels = 0 if rows is None else rng.randrange(len(levels))
    return Compute(
        operation=operation,
        levels=tuple(levels),
        x=500,
        g=700,
        z=900,
        reduce_levels=reduce_levels,
        tile_level=rng.randrange(len(levels) - reduce_levels),
        last_rows=rng.randint(1, rows or 1),
        x_row_stride=rng.randint(-9, 9),
        z_row_stride=rng.randint(-9, 9),
        g_row_stride=rng.randint(-9, 9),
    )


@pytest.mark.parametrize("operation", COMPUTE)
@pytest.mark.parametrize("seed", range(20))
def test_footprint_is_the_span_of_what_is_touched(operation, seed):
    """The least and the greatest address of each operand, in the memory where it lies."""
    d = random_compute(operation, random.Random(f"{operation} {seed}"))
    exact = touched_by_compute(d, [0] * 8, P)
    for touch, (space, addresses, written) in zip(footprint(d, P), exact, strict=True):
        assert touch.space == {"pad": "SCRATCHPAD"}.get(space, space)
        assert touch.write == written
        assert (touch.start, touch.stop) == (addresses.min(), addresses.max() + 1)

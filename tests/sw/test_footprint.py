"""Footprints of descriptors cover the addresses that the descriptors touch."""

import random
from dataclasses import replace

import pytest
from folded import each
from hazards import touched_by_compute, touched_by_transfer

from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Compute, Level, Transfer, TransferLevel
from trainwright.program.fields import Operation
from trainwright.program.footprint import Touch, footprint

P = AcceleratorParameters(lanes=8, pe1_rows=4, pe2_rows=2)
COMPUTE = (Operation.PE3, Operation.PE4, Operation.BIAS, Operation.MASK)


def random_compute(operation: Operation, rng: random.Random) -> Compute:
    rows = {Operation.PE4: 4, Operation.PE3: 2}.get(operation)
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
@each("seed", range(20))
def test_footprint_is_span_of_touched_rows(operation, seed):
    """The least and the greatest row of each operand."""
    d = random_compute(operation, random.Random(f"{operation} {seed}"))
    exact = touched_by_compute(d, [0] * 8, P)
    for touch, (space, addresses, written) in zip(footprint(d, P), exact, strict=True):
        assert (touch.space, space) == ("SCRATCHPAD", "pad")
        assert touch.write == written
        assert (touch.start, touch.stop) == (addresses.min(), addresses.max() + 1)
        for row in range(touch.start - 2, touch.stop + 2):
            single = Touch(touch.space, row, row + 1, not written, ((row, ()),))
            # a second operand of PE3 whose words are no whole rows counts from first to last
            assert touch.meets(single) == (
                row in addresses if touch.grids else touch.overlaps(single)
            )
        assert touch.grids or (operation is Operation.PE3 and not written)


@each("seed", range(10))
def test_transfers_touch_the_rows_of_their_runs_alone(seed):
    rng = random.Random(seed)
    levels = [
        TransferLevel(rng.randint(1, 4), 64, rng.randint(-9, 9)) for _ in range(rng.randint(0, 2))
    ]
    d = Transfer(
        operation=rng.choice((Operation.LOAD, Operation.STORE)),
        address=0, local=300, beats=2 * rng.randint(1, 5), levels=tuple(levels),
        element_bytes=rng.choice((1, 2)), tensor="x",
    )  # fmt: skip
    (touch,) = footprint(d, P)
    ((_, addresses, written),) = (
        access for access in touched_by_transfer(d, [0] * 8, P) if access[0] == "pad"
    )
    assert (touch.space, touch.write) == ("SCRATCHPAD", written)
    reached = {
        row
        for row in range(touch.start, touch.stop)
        if touch.meets(Touch("SCRATCHPAD", row, row + 1, True, ((row, ()),)))
    }
    assert reached == set(addresses)


def test_ranges_that_overlap_may_not_meet():
    even = Touch("SCRATCHPAD", 0, 7, True, ((0, ((4, 2),)),))
    odd = Touch("SCRATCHPAD", 1, 8, False, ((1, ((4, 2),)),))
    assert even.overlaps(odd) and not even.meets(odd)
    assert even.meets(Touch("SCRATCHPAD", 3, 4, False)) and not even.meets(replace(odd, start=7))
    assert not even.meets(replace(even, space="memory"))
    after = Touch("SCRATCHPAD", even.stop, even.stop + 1, False)
    assert not even.overlaps(after) and not after.overlaps(even)

"""Random operands and compute descriptors, in the patterns of the golden model."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt

from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Compute, Level, digit_count
from trainwright.program.encoding import encode_descriptor
from trainwright.program.engines import tile_rows
from trainwright.program.fields import Operation
from trainwright_hw.control.engine_ports import COMPUTE_LAYOUT

SPACE = 1024
"""Scratchpad rows: operands below ``RESULTS``, results above."""
RESULTS = 512
SMALL_WORDS = 256
"""Rows from here to ``RESULTS`` have words so small that sums of their products do not overflow."""


def command_bits(d: Compute) -> int:
    """Encode a descriptor as the payload of an engine's command stream."""
    word = int.from_bytes(encode_descriptor(d), "little")
    return word & ((1 << COMPUTE_LAYOUT.size) - 1)


Rows = npt.NDArray[np.int64]
"""(SPACE, lanes) signed words: what lies in the scratchpad."""


def random_rows(p: AcceleratorParameters, random: Random) -> Rows:
    """Draw uniform values with many extremes and zeros."""
    numbers = np.random.default_rng(random.getrandbits(64))

    def values(count: int, bits: int) -> Rows:
        least, greatest, shape = -(1 << (bits - 1)), (1 << (bits - 1)) - 1, (count, p.lanes)
        uniform = numbers.integers(least, greatest + 1, shape)
        special = numbers.choice([least, greatest, 0], shape)
        return np.where(numbers.random(shape) < 0.3, special, uniform)

    rows = values(SPACE, p.word_width)
    rows[SMALL_WORDS:RESULTS] = values(RESULTS - SMALL_WORDS, min(11, p.word_width))
    return rows


def _results(random: Random, counts: list[int], tile: int, rows: int, last: int):
    """Draw strides of z that give every row of a command its own place.

    Returns the stride of each level, the stride of a tile's rows, and the rows spanned. Levels and
    rows are in a random order, with the row innermost or not, and sometimes with gaps.
    """
    strides, row_stride, span = [0] * len(counts), 0, random.choice((1, 1, 1, 2))
    for index in random.sample(range(len(counts)), len(counts)):
        if index == tile:
            row_stride, strides[index] = span, rows * span
            span *= (counts[index] - 1) * rows + last
        else:
            strides[index] = span
            span *= counts[index]
    return strides, row_stride, span


@dataclass(frozen=True)
class _Places:
    """Range of an operand: ``size`` addresses from ``start``, with strides up to ``stride``."""

    start: int
    size: int
    stride: int = 9

    def base(self, random: Random, reach: int) -> int:
        return self.start + random.randrange(self.size - reach)


def _operand_places(operation: Operation, p: AcceleratorParameters) -> tuple[_Places, _Places]:
    """Return the ranges in which x and g of an operation may be."""
    groups = p.lanes // p.pe2_rows
    x = _Places(0, RESULTS)
    if operation is Operation.PE3:
        return _Places(0, RESULTS), _Places(SMALL_WORDS * groups, (RESULTS - SMALL_WORDS) * groups)
    if operation is Operation.PE4:  # its entries are as far apart as those of a row and more
        return x, _Places(SMALL_WORDS, RESULTS - SMALL_WORDS - 3 * (p.lanes - 1), 4)
    return x, x


def random_compute(operation: Operation, p: AcceleratorParameters, random: Random) -> Compute:
    """Draw a descriptor with a random nest of up to ``p.nest_levels`` levels and few steps."""
    elementwise = operation in (Operation.BIAS, Operation.MASK)
    by_entries = operation is Operation.PE4
    rows = tile_rows(operation, p)
    counts = [random.choice((1, 2, 2, 3, 4)) for _ in range(random.randint(1, 3))]
    reduction = [random.randint(1, 4) for _ in range(random.randint(0, 0 if elementwise else 2))]
    if p.wide_tensors:
        reduction = _reduction_of_digits(reduction, random, elementwise=elementwise)
    tile, last = random.randrange(len(counts)), random.randint(1, rows)
    strides, row_stride, span = _results(random, counts, tile, rows, last)
    x_places, g_places = _operand_places(operation, p)
    x_row = random.randint(1, 6) if by_entries else 0
    levels, x_reach, g_reach = [], (rows - 1) * x_row, 0
    for index, count in enumerate((*counts, *reduction)):
        x = random.choice((0, random.randint(1, x_places.stride)))
        g = random.choice((0, random.randint(1, g_places.stride)))
        if index == tile and not elementwise:  # the tile's rows and its level form one axis
            x, g = (rows * x_row, 0) if by_entries else (0, g)
        levels.append(Level(count, x, g, strides[index] if index < len(counts) else 0))
        x_reach, g_reach = x_reach + (count - 1) * x, g_reach + (count - 1) * g
    digits = digit_count(p.result_width) if p.wide_tensors else 1  # rows of a row, at most
    if g_reach >= g_places.size or span * digits > SPACE - RESULTS:
        return random_compute(operation, p, random)
    d = Compute(
        operation=operation,
        levels=tuple(levels),
        x=x_places.base(random, x_reach),
        g=g_places.base(random, g_reach),
        z=RESULTS + random.randrange(SPACE - RESULTS - span * digits + 1),
        reduce_levels=len(reduction),
        tile_level=tile,
        last_rows=last,
        x_row_stride=x_row,
        z_row_stride=row_stride,
        g_row_stride=random.randint(0, 3) if by_entries else 0,
        shift=random.choice((0, 3, 8, random.randrange(64))),
        out_width=random.choice((p.result_width, 8, random.randint(4, p.result_width))),
        slot=random.randrange(256),
        relu=random.random() < 0.5,
        x_shift=random.randrange(p.most_alignment + 1),
        g_shift=random.randrange(p.most_alignment + 1),
        **random_formats(p, random, reduction, elementwise=elementwise),
    )
    return replace(
        d,
        levels=tuple(replace(level, z=level.z * digits) for level in d.levels),
        z_row_stride=d.z_row_stride * digits,
    )


def _reduction_of_digits(counts: list[int], random: Random, *, elementwise: bool) -> list[int]:
    """Draw counts of reduction levels that may walk over digits.

    Three at most, or two with the digits' level inside.
    """
    if elementwise:
        return random.choice(([], [1], [2], [3]))
    return [random.randint(1, 3), 2, *counts[:1]] if random.random() < 0.5 else counts


def random_formats(
    p: AcceleratorParameters,
    random: Random,
    reduction: Sequence[int] = (),
    *,
    elementwise: bool = False,
) -> dict[str, Any]:
    """Draw formats of operands and result, or with narrow words the ``digits`` of the sum.

    Nothing is drawn if the accelerator has neither.
    """
    if p.wide_tensors and elementwise:
        return {"digits": len(reduction)}
    if p.narrow:
        digits = bool(reduction) and random.random() < 0.6
        two = p.wide_tensors and reduction[1:2] == [2] and random.random() < 0.7
        return {"digits": 2 if two else digits}
    if not p.formats:
        return {}
    numbers = range(len(p.number_formats))
    formats: dict[str, Any] = {
        name: random.choice(numbers) for name in ("x_format", "g_format", "z_format")
    }
    return formats | {"underflow_zero": random.random() < 0.5}

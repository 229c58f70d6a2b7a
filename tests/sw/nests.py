"""Random descriptors of any legal nest, and programs around them, for the golden model's tests."""

from dataclasses import replace
from random import Random

import numpy as np
import numpy.typing as npt
from format_kinds import SAMPLES

from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import (
    Compute,
    Descriptor,
    End,
    Halt,
    Level,
    Loop,
    Program,
    Set,
    Transfer,
)
from trainwright.program.fields import Operation

ROWS = 512
"""Rows of the scratchpad: operands below ``RESULTS``."""
RESULTS = 256
CONTRACTIONS = (Operation.PE3, Operation.PE4)
MAGNITUDES = (3, 8, 12, 16)
"""Bits of words: from sums that fit 32 bits by far to such that only a split fits."""


def random_parameters(random: Random) -> AcceleratorParameters:
    """Draw accelerators of every number of lanes and rows; 16 lanes more often."""
    lanes = random.choice((4, 8, 16, 16, 16))
    rows = [n for n in (2, 4, 8, 16) if n <= lanes]
    return AcceleratorParameters(
        lanes=lanes,
        pe1_rows=random.choice(rows),
        pe2_rows=random.choice(rows),
        accumulator_width=48,
        scratchpad_rows=ROWS,
    )


def random_coded(random: Random, p: AcceleratorParameters) -> AcceleratorParameters:
    """Give the accelerator one coded format, so that words may be any of its, or several."""
    count = random.choice((1, 1, 2, 3))
    return replace(p, formats=tuple(random.sample([*map(str, SAMPLES)], count)))


def largest_word(p: AcceleratorParameters) -> int:
    """Return the greatest word that all coded formats of an accelerator have."""
    return min(fmt.largest for fmt in p.coded_formats)


def with_formats(random: Random, d: Compute, p: AcceleratorParameters) -> Compute:
    """Return the descriptor with formats of any kind, at shifts that use the result's words."""
    x, g, z = (random.randrange(len(p.formats) + 1) for _ in range(3))
    known = [fmt.scale for fmt in p.coded_formats]
    shift = random.choice((0, d.shift, random.randrange(3 * max(known) + 12)))
    return replace(
        d, x_format=x, g_format=g, z_format=z, shift=shift, underflow_zero=random.random() < 0.5
    )


def words(random: Random, shape: tuple[int, ...], width: int) -> npt.NDArray[np.int64]:
    """Draw signed integers of ``width`` bits, many of them extremes."""
    numbers = np.random.default_rng(random.getrandbits(64))
    least, greatest = -(1 << (width - 1)), (1 << (width - 1)) - 1
    ordinary = numbers.integers(least, greatest + 1, shape)
    special = numbers.choice([least, greatest, 0], shape)
    return np.where(numbers.random(shape) < random.choice((0.1, 0.9)), special, ordinary)


def _reach(counts: list[int], strides: list[int]) -> tuple[int, int]:
    spans = [(count - 1) * stride for count, stride in zip(counts, strides, strict=True)]
    return sum(min(s, 0) for s in spans), sum(max(s, 0) for s in spans)


def _base(random: Random, counts: list[int], strides: list[int], low: int, high: int) -> int | None:
    """Draw a base with each address from ``low`` to ``high`` - 1; None if there is none."""
    below, above = _reach(counts, strides)
    if high - low <= above - below:
        return None
    return random.randrange(low - below, high - above)


def random_nest(
    random: Random, operation: Operation, p: AcceleratorParameters, *, crossing: bool = False
) -> Compute:
    """Draw a descriptor with any strides, negative and 0 too.

    Results lie above ``RESULTS``, and now and then on each other; with ``crossing`` among the
    operands, all close together.
    """
    elementwise = operation not in CONTRACTIONS
    entries = operation is Operation.PE4
    rows = 1 if elementwise else p.pe1_rows if entries else p.pe2_rows
    while True:
        outer = [random.choice((1, 1, 2, 3, 4)) for _ in range(random.randint(1, 4))]
        summed = [random.choice((1, 2, 5, 9)) for _ in range(random.randint(0, 2))]
        counts = [*outer, *([] if elementwise else summed)]

        def strides(most: int, n: int) -> list[int]:
            return [random.choice((0, 0, random.randint(-most, most))) for _ in range(n)]

        x, g = strides(6, len(counts)), strides(6, len(counts))
        z = strides(3 if random.random() < 0.1 else 30, len(outer))
        x_row, z_row, g_row = random.randint(-4, 4), random.randint(-9, 9), random.randint(-3, 3)
        groups = p.lanes // p.pe2_rows
        operands, results = (120, (0, 120)) if crossing else (RESULTS, (RESULTS, ROWS))
        g_counts, g_strides, g_high = counts, g, operands
        if operation is Operation.PE3:
            g_high = operands * groups
        elif entries:
            g_counts, g_strides = [*counts, p.lanes], [*g, g_row]
        reads = rows if entries else 1
        bases = (
            _base(random, [*counts, reads], [*x, x_row], 0, operands),
            _base(random, g_counts, g_strides, 0, g_high),
            _base(random, [*outer, rows], [*z, z_row], *results),
        )
        if None not in bases:
            break
    return Compute(
        operation=operation,
        levels=tuple(
            Level(count, x[i], g[i], z[i] if i < len(outer) else 0)
            for i, count in enumerate(counts)
        ),
        x=bases[0],
        g=bases[1],
        z=bases[2],
        reduce_levels=len(counts) - len(outer),
        tile_level=random.randrange(len(outer)),
        last_rows=random.randint(1, rows),
        x_row_stride=x_row if entries else 0,
        z_row_stride=z_row,
        g_row_stride=g_row if entries else 0,
        shift=random.choice((0, 3, 8, 20, random.randrange(64))),
        out_width=random.choice((16, 16, 8, random.randint(2, 16))),
        slot=random.randrange(p.statistics_depth),
        relu=random.random() < 0.5,
        x_shift=random.choice((0, random.randrange(16))),
        g_shift=random.choice((0, random.randrange(16))),
        tensor=operation.name,
    )


def filling(
    random: Random, p: AcceleratorParameters, width: int, most: int = 1 << 15
) -> tuple[npt.NDArray[np.uint8], Transfer, Transfer]:
    """Return memory, a load that fills the scratchpad, and a store of all rows.

    No word is greater than ``most``.
    """
    rows = words(random, (ROWS, p.lanes), width).clip(-most, most)
    size = p.word_width // 8
    rows = rows.astype(f"<i{size}").view(np.uint8).ravel()
    load = Transfer(
        operation=Operation.LOAD, address=0, local=0, beats=size * ROWS, element_bytes=size,
        tensor="rows",
    )  # fmt: skip
    return rows, load, replace(load, operation=Operation.STORE, tensor="all")


def program_of(p: AcceleratorParameters, *descriptors: Descriptor) -> Program:
    """Return a program of the given descriptors and HALT."""
    return Program((*descriptors, Halt()), p.fingerprint)


def looped(random: Random, d: Compute) -> list[Descriptor]:
    """Return ``d`` in two loops, with operands and result moved by registers and back."""
    steps = ((1, random.randint(-1, 1)), (2, random.randint(-1, 1)), (3, random.randint(-2, 2)))
    back = tuple((register, -3 * step) for register, step in steps)
    moved = Compute(**{**vars(d), "x_register": 1, "g_register": 2, "z_register": 3})
    return [
        Set(values=((1, 0), (2, 0), (3, 0))),
        Loop(iterations=2),
        Loop(iterations=3),
        moved,
        End(steps=steps),
        End(steps=back),
    ]

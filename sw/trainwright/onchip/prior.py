"""The rank prior in integers: sums of squares, coefficients of the pull, columns to cut.

The prior is ``trainwright.train.storage_prior``: an element W of column r of a bond is pulled by
c W / S, S the column's sum of squares on W's side and c = weight * cost / 2, the cost being the
elements that a column takes on both sides. In units of the gradient's 2^g, with W = w * 2^e and S
from the 8 highest bits of w (S = s * 4^(e + TOP_SHIFT)):

    pull = w * c / s * 2^(-e - 2 TOP_SHIFT - g) = (w * coefficient) >> shift, halves up

with a coefficient of 8 bits. A column is cut where the product of the sums on its two sides is at
most 2^-distance of the bond's largest.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, log2

import numpy as np
import numpy.typing as npt

from trainwright.formats.rounding import clamp
from trainwright.onchip.layout import LANES, WEIGHT_WIDTH, WeightLayout

TOP_SHIFT = WEIGHT_WIDTH - 8
"""The sums are over the squares of w / 2^TOP_SHIFT, rounded down: bytes of the state."""
COEFFICIENT_WIDTH = 8
EXPONENT_WIDTH = 8
"""Bits in which the exponents of coefficients and prior weights are kept."""
PULL_WIDTH = 18
"""Bits of a pull."""
WORD_WIDTH = 16
"""Bits of a coefficient that is shifted to the left."""
MOST_SHIFT = 40
INTERVAL = 8
"""Steps that a coefficient serves."""

Words = npt.NDArray[np.int64]
Kept = Sequence[npt.NDArray[np.int64]]
"""The columns left of each bond of a layout."""


def sums_of_squares(layout: WeightLayout, weights: Words) -> Words:
    """Return S, the sum of squares, of every column of every side (columns,)."""
    top = weights.ravel() >> TOP_SHIFT
    squares = top * top
    sums = np.zeros(layout.columns, np.int64)
    for bond in layout.bonds:
        for side in (bond.left, bond.right):
            part = layout.parts[side.part]
            rest = tuple(axis for axis in range(4) if axis != side.axis)
            sums[side.first : side.first + side.columns] = (
                squares[part.places].reshape(part.shape).sum(rest)
            )
    return sums


def column_costs(layout: WeightLayout, kept: Kept) -> list[int]:
    """Return the elements of a column of each bond in its two factors, at the ranks left."""
    ranks = {
        (bond.layer, bond.index): len(own) for bond, own in zip(layout.bonds, kept, strict=True)
    }
    costs = []
    for bond in layout.bonds:
        left, right = layout.parts[bond.left.part].shape, layout.parts[bond.right.part].shape
        before = ranks.get((bond.layer, bond.index - 1), 1)
        after = ranks.get((bond.layer, bond.index + 1), 1)
        costs.append(before * left[1] * left[2] + right[1] * right[2] * after)
    return costs


@dataclass(frozen=True)
class Pulls:
    """Coefficients of every column: pull = w * coefficient * 2^(exponent - g)."""

    coefficients: Words
    """(columns,), 0 or 8 bits with the highest one."""
    exponents: Words
    """(columns,), the weight's own exponent included."""


def no_pulls(layout: WeightLayout) -> Pulls:
    """Return the pulls of a run without a prior."""
    return Pulls(*np.zeros((2, layout.columns), np.int64))


def pull_words(
    layout: WeightLayout, pulls: Pulls, gradient_exponents: Words
) -> tuple[Words, Words]:
    """Return (coefficient, right shift) of every column (columns,), as words of the scratchpad."""
    exponents = pulls.exponents - gradient_exponents[layout.part_of_column]
    shifts = np.clip(-exponents, 0, MOST_SHIFT)
    return clamp(pulls.coefficients << np.clip(exponents, 0, WORD_WIDTH), WORD_WIDTH), shifts


def pull_rows(layout: WeightLayout, pulls: Pulls, gradient_exponents: Words) -> tuple[Words, Words]:
    """Return coefficients and shifts by element, as streams of the update: (sides, rows, LANES).

    An element has a pull from each side of its factor: of columns along axis 0, then along axis 3.
    """
    numbers = layout.column_of.reshape(2, -1, LANES)
    raised, shifts = pull_words(layout, pulls, gradient_exponents)
    return raised[numbers], shifts[numbers]


def cut_distance(threshold: float) -> int:
    """Return how many powers of two below the largest a column is cut, for a ``threshold``.

    The threshold is of strengths; a strength is the root of the product of both sums.
    """
    return ceil(-2 * log2(threshold))

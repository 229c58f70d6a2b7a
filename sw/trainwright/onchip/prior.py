"""The rank prior in integers: sums of squares, coefficients of the pull, columns to cut.

The prior is ``trainwright.train.storage_prior``: an element W of column r of a bond is pulled by
c W / S, S the column's sum of squares on W's side and c = weight * cost / 2, the cost being the
elements that a column takes on both sides. In units of the gradient's 2^g, with W = w * 2^e and S
from the 8 highest bits of w (S = s * 4^(e + TOP_SHIFT)):

    pull = w * c / s * 2^(-e - 2 TOP_SHIFT - g) = (w * coefficient) >> shift, halves up

with a coefficient of 8 bits. A column is cut where the product of the sums on its two sides is at
most 2^-distance of the bond's largest.
"""

from dataclasses import dataclass
from math import ceil, log2, prod

import numpy as np

from trainwright.formats.rounding import clamp
from trainwright.onchip.layout import LANES, WEIGHT_WIDTH, Kept, WeightLayout, Words

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
SIDES = ("left shift", "left"), ("right shift", "right")
"""Streams of the update: shift and coefficient of each column on the left, the same in all lanes,
and on the right, along the lanes."""


def sums_of_squares(layout: WeightLayout, weights: Words) -> Words:
    """Return S, the sum of squares, of every column of every side (columns,)."""
    top = weights.ravel() >> TOP_SHIFT
    sums = np.zeros(layout.columns, np.int64)
    for numbers in layout.column_of:
        np.add.at(sums, numbers, top * top)
    sums[0] = 0  # of elements that belong to no column
    return sums


def elements_met(layout: WeightLayout) -> Words:
    """Return the elements that a column of each bond meets, (3, bonds).

    Before and behind are those for each column of the neighbouring bonds; its own are the ends of a
    layer.
    """
    met = [(0, 0, 0)] * len(layout.bonds)
    for number, bond in enumerate(layout.bonds):
        before, after = (
            prod(layout.parts[side.part].shape[1:3]) for side in (bond.left, bond.right)
        )
        first, last = not bond.index, bond.index + 1 == len(layout.network.ranks[bond.layer])
        own = before * first + after * last
        met[number] = before * (not first), after * (not last), own
    return np.array(met, np.int64).reshape(-1, 3).T


def column_costs(layout: WeightLayout, kept: Kept) -> Words:
    """Return the elements of a column of each bond in its two factors, at the ranks left."""
    before, after, own = elements_met(layout)
    ranks = np.array([0, *map(len, kept), 0])
    return before * ranks[:-2] + after * ranks[2:] + own


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


def pull_rows(layout: WeightLayout, pulls: Pulls, gradient_exponents: Words) -> dict[str, Words]:
    """Return SIDES by element, (rows, LANES).

    An element has a pull from each side of its factor: of columns along axis 0, then along axis 3.
    """
    raised, shifts = pull_words(layout, pulls, gradient_exponents)
    sides = zip(SIDES, layout.column_of.reshape(2, -1, LANES), strict=True)
    return {
        name: words[numbers]
        for names, numbers in sides
        for name, words in zip(names, (shifts, raised), strict=True)
    }


def cut_distance(threshold: float) -> int:
    """Return how many powers of two below the largest a column is cut, for a ``threshold``.

    The threshold is of strengths; a strength is the root of the product of both sums.
    """
    return ceil(-2 * log2(threshold))

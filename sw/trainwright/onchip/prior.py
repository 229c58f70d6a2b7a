"""The rank prior in integers: sums of squares, coefficients of the pull, columns to cut.

The prior is that of ``trainwright.train.storage_prior``. It pulls an element W of column r of a
bond by c W / S: S is the sum of the squares of the column on W's side of the bond, c = weight *
cost / 2, and cost is the number of elements that a column takes on both sides. With W = w * 2^e, S
= s * 4^(e + TOP_SHIFT) from the 8 highest bits of w, and the pull in units of the gradient's 2^g:

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
"""Bits of w below the 8 highest: sums are over squares of w / 2^TOP_SHIFT, rounded down."""
COEFFICIENT_WIDTH = 8
EXPONENT_WIDTH = 8
"""Bits in which the exponents of coefficients and prior weights are kept."""
PULL_WIDTH = 18
"""Bits of a pull."""
WORD_WIDTH = 16
"""Bits of a coefficient that is shifted to the left."""
MOST_SHIFT = 40
"""Greatest right shift of a pull."""
INTERVAL = 8
"""Steps from one computation of the coefficients to the next."""
SIDES = ("left shift", "left"), ("right shift", "right")
"""Names of the update's streams: shift and coefficient of each column of the bond on a factor's
left (one value in all lanes), and of the bond on its right (a column a lane)."""


def sums_of_squares(layout: WeightLayout, weights: Words) -> Words:
    """Return s, the sum of squares, of every column of every side, (columns,)."""
    top = weights.ravel() >> TOP_SHIFT
    sums = np.zeros(layout.columns, np.int64)
    for numbers in layout.column_of:
        np.add.at(sums, numbers, top * top)
    sums[0] = 0  # number 0 stands for elements that belong to no column
    return sums


def elements_per_column(layout: WeightLayout) -> Words:
    """Return the numbers that ``column_costs`` adds up for each bond, (3, bonds).

    The three rows are the elements that a column of a bond has for each column of the bond before,
    for each column of the bond behind, and, in a layer's first and last factor, whatever the ranks.
    """
    elements = [(0, 0, 0)] * len(layout.bonds)
    for number, bond in enumerate(layout.bonds):
        before, after = (
            prod(layout.parts[side.part].shape[1:3]) for side in (bond.left, bond.right)
        )
        first, last = not bond.index, bond.index + 1 == len(layout.network.ranks[bond.layer])
        own = before * first + after * last
        elements[number] = before * (not first), after * (not last), own
    return np.array(elements, np.int64).reshape(-1, 3).T


def column_costs(layout: WeightLayout, kept: Kept) -> Words:
    """Return the elements of a column of each bond in both factors, at the ranks that are left."""
    before, after, own = elements_per_column(layout)
    ranks = np.array([0, *map(len, kept), 0])
    return before * ranks[:-2] + after * ranks[2:] + own


@dataclass(frozen=True)
class Pulls:
    """Coefficients of every column: pull = w * coefficient * 2^(exponent - g)."""

    coefficients: Words
    """(columns,): 0, or 8 bits of which the highest is 1."""
    exponents: Words
    """(columns,), with the exponent of the column's weights included."""


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
    """Return the streams of ``SIDES``, a word for each element, (rows, LANES).

    Two columns pull an element: one along axis 0 of its factor, one along axis 3.
    """
    raised, shifts = pull_words(layout, pulls, gradient_exponents)
    sides = zip(SIDES, layout.column_of.reshape(2, -1, LANES), strict=True)
    return {
        name: words[numbers]
        for names, numbers in sides
        for name, words in zip(names, (shifts, raised), strict=True)
    }


def cut_distance(threshold: float) -> int:
    """Return the distance d for a ``threshold``: a column is cut 2^d below the largest of its bond.

    Distances compare products of a column's two sums, thresholds compare roots of these products.
    """
    return ceil(-2 * log2(threshold))

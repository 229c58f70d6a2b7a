"""Lay out the rank prior's rows in external memory and in the scratchpad.

Both have one layout, so that a field is moved by one transfer.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np
import numpy.typing as npt

from trainwright.onchip.cut_pass import CUT
from trainwright.onchip.layout import LANES, Bond, WeightLayout, WeightPart
from trainwright.onchip.prior import Pulls, column_costs
from trainwright.onchip.prior_pass import (
    FIELDS,
    KEPT,
    LOW_WIDTH,
    MOST_WORD,
    offset_of,
    require_cost,
)
from trainwright.program.vector import THREADS

Words = npt.NDArray[np.int64]

LEFT, BEFORE_COST, AFTER_COST, OWN_COST, COST = range(5)
"""Fields of bonds, three of them with the elements that a column meets."""
BOND_FIELDS = 5


@dataclass(frozen=True)
class PriorRows:
    """Layout of ``PRIOR``: fields of side rows, then fields of bonds.

    A bond has a *block* of side rows: a line of columns for its left side, then a row for each
    column of its right side. Rows of bonds are padded to whole groups of threads, as a thread takes
    a bond.
    """

    layout: WeightLayout

    @property
    def bonds(self) -> int:
        """Bonds of all layers."""
        return len(self.layout.bonds)

    @cached_property
    def columns(self) -> int:
        """Most columns of any bond."""
        return max((bond.left.columns for bond in self.layout.bonds), default=0)

    @property
    def line_rows(self) -> int:
        """Rows with a column in each lane."""
        return -(-self.columns // LANES)

    @property
    def block(self) -> int:
        """Side rows of a bond."""
        return self.line_rows + self.columns

    @property
    def side_rows(self) -> int:
        """Side rows of all bonds."""
        return self.bonds * self.block

    @property
    def groups(self) -> int:
        """Groups of THREADS bonds."""
        return -(-self.bonds // THREADS)

    @property
    def spread(self) -> int:
        """Side rows of all groups, including those of bonds that only pad a group."""
        return self.groups * THREADS * self.block

    def field(self, number: int) -> int:
        """Return the first row of a field of the side rows."""
        return number * self.side_rows

    def of_bonds(self, number: int) -> int:
        """Return the first row of a field of bonds.

        The fields are columns left (with a row before), elements that a column meets before its
        bond, behind it, and at its own ends, and costs. Passes also read fields of bonds that only
        pad a group, so these rows begin behind the last such row.
        """
        # A pass over eight bonds reads flag rows of bonds that do not exist, where there are fewer;
        # those reads must not leave the buffer.
        fields = max(FIELDS * self.side_rows, KEPT * self.side_rows + self.spread)
        return fields + number * (self.groups * THREADS + 2)

    @property
    def rows(self) -> int:
        """Rows of the whole buffer."""
        return self.of_bonds(BOND_FIELDS)

    def sides_of(self, part: WeightPart) -> tuple[int | None, int | None]:
        """Return the first side rows of a part's left bond and of its right one."""
        number, left, right = self.layout.parts.index(part), None, None
        for n, bond in enumerate(self.layout.bonds):
            if bond.right.part == number:
                left = n * self.block + self.line_rows
            if bond.left.part == number:
                right = n * self.block
        return left, right

    @cached_property
    def numbers(self) -> Words:
        """Column number, (side rows, LANES), that each word of a side row belongs to."""
        numbers = np.zeros((self.bonds, self.block, LANES), np.int64)
        for own, bond in zip(numbers, self.layout.bonds, strict=True):
            left, right = (side.first + np.arange(side.columns) for side in (bond.left, bond.right))
            own[: self.line_rows].reshape(-1)[: len(left)] = left
            own[self.line_rows :][: len(right)] = right[:, None]
        return numbers.reshape(-1, LANES)

    def words(self, sums: Words, pulls: Pulls, kept: Sequence[Words]) -> Words:
        """Return all rows from the sums of each column, and the columns left of each bond."""
        layout = self.layout
        flags, offsets = np.full(layout.columns, CUT), np.zeros(layout.columns, np.int64)
        words = np.zeros((self.rows, LANES), np.int64)
        costs = column_costs(layout, kept)
        for number, (bond, cost) in enumerate(zip(layout.bonds, costs, strict=True)):
            require_cost(cost)
            for side in (bond.left, bond.right):
                offsets[side.first :][: side.columns] = offset_of(layout.parts[side.part])
                # Columns that were cut before keep the flag CUT; those still there start at 0.
                flags[side.first + kept[number]] = 0
            fields = {**_met(layout, bond), COST: cost}
            for place, elements in fields.items():
                words[self.of_bonds(place) + number] = elements
        # A sum of squares has more bits than a word: its low and high parts are fields of their
        # own.
        fields = (sums & MOST_WORD, sums >> LOW_WIDTH, pulls.coefficients, pulls.exponents, flags,
                  offsets)  # fmt: skip
        sides = np.concatenate([field[self.numbers] for field in fields])
        words[: len(sides)] = sides
        return words

    def values(self, words: Words, field: int) -> Words:
        """Return a field of each column from all rows; 0 of the column that no element has."""
        result = np.zeros(self.layout.columns, np.int64)
        result[self.numbers] = words[self.field(field) :][: self.side_rows]
        result[0] = 0
        return result


def _met(layout: WeightLayout, bond: Bond) -> dict[int, int]:
    """Return the elements that a column of a bond meets, by field.

    Before and behind are those for each column of the neighbouring bonds; its own are the ends of a
    layer.
    """
    bonds = {(other.layer, other.index) for other in layout.bonds}
    sides = ((bond.left.part, -1), (bond.right.part, 1))
    elements = [prod(layout.parts[part].shape[1:3]) for part, _ in sides]
    inner = [(bond.layer, bond.index + by) in bonds for _, by in sides]
    before, after = (n if has else 0 for n, has in zip(elements, inner, strict=True))
    return {BEFORE_COST: before, AFTER_COST: after, OWN_COST: sum(elements) - before - after}

"""Lay out the rows of the rank prior, in external memory and in the scratchpad alike.

With one layout for both, a single transfer moves a field.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from trainwright.onchip import cut_pass
from trainwright.onchip import prior as by
from trainwright.onchip.layout import Kept, WeightLayout, WeightPart, Words, line_rows
from trainwright.program.vector import THREADS


@dataclass(frozen=True)
class PriorRows:
    """Layout of ``PRIOR``: fields of side rows, then fields of bonds.

    A bond has a *block* of side rows for its two sides: first a line, with the columns of the left
    side along the lanes, then a row for each column of the right side. Each thread of the vector
    engine takes a bond, so rows of bonds are padded to whole groups of threads.
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
        """Rows of a line, which has a column in each lane."""
        return line_rows(self.columns, self.layout.lanes)

    @property
    def block(self) -> int:
        """Side rows of a bond."""
        return self.line_rows + self.columns

    @property
    def side_rows(self) -> int:
        """Side rows of all bonds."""
        return self.bonds * self.block

    @property
    def padded(self) -> int:
        """Bonds of whole groups of THREADS, including those that only pad a group."""
        return -(-self.bonds // THREADS) * THREADS

    def field(self, name: str) -> int:
        """Return the first row of a field of the side rows."""
        return by.FIELDS.index(name) * self.side_rows

    def of_bonds(self, name: str) -> int:
        """Return the first row of a field of bonds.

        The fields are the number of columns that are left (with a row before), the three rows of
        ``elements_per_column``, and the costs. Passes also read fields of bonds that only pad a
        group, so the rows begin behind the last row of such a bond.
        """
        # A pass over eight bonds also reads the flags of bonds that do not exist: these reads must
        # stay within the buffer.
        flags = self.field(by.KEPT) + self.padded * self.block
        fields = max(len(by.STORED) * self.side_rows, flags)
        return fields + cut_pass.BOND_FIELDS.index(name) * (self.padded + 2)

    @property
    def rows(self) -> int:
        """Rows of the whole buffer."""
        return self.of_bonds(cut_pass.BOND_FIELDS[-1]) + self.padded + 2

    def sides_of(self, part: WeightPart) -> tuple[int | None, int | None]:
        """Return the first side rows of the bonds on the left and on the right of a part."""
        number, bonds = self.layout.parts.index(part), list(enumerate(self.layout.bonds))
        left = {bond.right.part: n * self.block + self.line_rows for n, bond in bonds}
        right = {bond.left.part: n * self.block for n, bond in bonds}
        return left.get(number), right.get(number)

    @cached_property
    def numbers(self) -> Words:
        """Column number, (side rows, lanes), that each word of a side row belongs to."""
        numbers = np.zeros((self.bonds, self.block, self.layout.lanes), np.int64)
        for rows, bond in zip(numbers, self.layout.bonds, strict=True):
            left, right = (side.first + np.arange(side.columns) for side in (bond.left, bond.right))
            rows[: self.line_rows].reshape(-1)[: len(left)] = left
            rows[self.line_rows :][: len(right)] = right[:, None]
        return numbers.reshape(-1, self.layout.lanes)

    def words(self, sums: Words, pulls: by.Pulls, kept: Kept) -> Words:
        """Return all rows; ``sums`` has a sum for each column, ``kept`` the columns left."""
        layout = self.layout
        words = np.zeros((self.rows, layout.lanes), np.int64)
        costs = by.column_costs(layout, kept)
        by.require_cost(int(costs.max(initial=0)))
        elements = (*by.elements_per_column(layout), costs)
        for name, values in zip(cut_pass.BOND_FIELDS[1:], elements, strict=True):
            words[self.of_bonds(name) :][: self.bonds] = values[:, None]
        # Columns that were cut keep the flag CUT; the flags of other columns start at 0.
        flags = np.where(layout.marks(kept), 0, cut_pass.CUT)
        # A sum of squares has more bits than a word, and takes two fields, low and high.
        low, high = sums & by.MOST_WORD, sums >> by.LOW_WIDTH
        fields = low, high, pulls.coefficients, pulls.exponents, flags, by.offsets(layout)
        sides = np.concatenate([field[self.numbers] for field in fields])
        words[: len(sides)] = sides
        return words

    def values(self, words: Words, field: str) -> Words:
        """Return a field of each column from all rows; 0 of the column that no element has."""
        result = np.zeros(self.layout.columns, np.int64)
        result[self.numbers] = words[self.field(field) :][: self.side_rows]
        result[0] = 0
        return result

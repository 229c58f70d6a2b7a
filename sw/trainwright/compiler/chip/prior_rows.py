"""Lay out the rank prior's rows in external memory and in the scratchpad.

Both have one layout, so that a field is moved by one transfer.
"""

from dataclasses import dataclass
from math import prod

from trainwright.onchip.layout import LANES, Bond, WeightLayout
from trainwright.onchip.prior_pass import FIELDS, KEPT
from trainwright.program.vector import THREADS


@dataclass(frozen=True)
class SideRows:
    """First side row of a part's left bond, and that of its right bond."""

    left: int | None
    right: int | None


@dataclass(frozen=True)
class PriorRows:
    """Layout of ``PRIOR``: fields of side rows, then fields of bonds.

    A bond has a *block* of side rows: a line of columns for its left side, then a row for each
    column of its right side. Rows of bonds are padded to whole groups of threads, as a thread takes
    a bond.
    """

    bonds: int
    columns: int
    """Most columns of any bond."""

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


LEFT, BEFORE_COST, AFTER_COST, OWN_COST, COST = range(5)
MET = BEFORE_COST, AFTER_COST, OWN_COST
"""Fields of bonds with the elements that a column meets."""
BOND_FIELDS = 5


def prior_rows(layout: WeightLayout) -> PriorRows:
    """Return the layout of ``PRIOR`` for a state."""
    most = max((bond.left.columns for bond in layout.bonds), default=0)
    return PriorRows(len(layout.bonds), most)


def side_rows(layout: WeightLayout) -> tuple[SideRows, ...]:
    """Return the side rows of each part."""
    rows = prior_rows(layout)
    right = {bond.left.part: n * rows.block for n, bond in enumerate(layout.bonds)}
    left = {bond.right.part: n * rows.block + rows.line_rows for n, bond in enumerate(layout.bonds)}
    return tuple(SideRows(left.get(n), right.get(n)) for n in range(len(layout.parts)))


def met(layout: WeightLayout, bond: Bond) -> tuple[int, int, int]:
    """Return the elements that a column of a bond meets, as (before, behind, at ends).

    Before and behind are those for each column of the neighbouring bonds; ends are ends of a layer.
    """
    bonds = {(other.layer, other.index) for other in layout.bonds}
    sides = ((bond.left.part, -1), (bond.right.part, 1))
    elements = [prod(layout.parts[part].shape[1:3]) for part, _ in sides]
    inner = [(bond.layer, bond.index + by) in bonds for _, by in sides]
    before, after = (n if has else 0 for n, has in zip(elements, inner, strict=True))
    return before, after, sum(elements) - before - after

"""Where the rank prior's rows lie in external memory and in the scratchpad."""

from dataclasses import dataclass
from math import prod

from trainwright.onchip.layout import Bond, WeightLayout
from trainwright.onchip.prior_pass import FIELDS, KEPT
from trainwright.program.vector import THREADS


@dataclass(frozen=True)
class SideRows:
    """Among the side rows: the first of a part's left bond, and that of its right one."""

    left: int | None
    right: int | None


@dataclass(frozen=True)
class PriorRows:
    """The rows of ``PRIOR``: fields of side rows, then those of bonds.

    A bond has a *block* of side rows, first that of its left side, then those of its right side;
    rows of bonds are for whole groups of threads.
    """

    bonds: int
    block: int
    """Side rows of a bond: 1, and the most columns of any."""

    @property
    def side_rows(self) -> int:
        """Of all bonds."""
        return self.bonds * self.block

    @property
    def groups(self) -> int:
        """Of THREADS bonds."""
        return -(-self.bonds // THREADS)

    @property
    def spread(self) -> int:
        """Side rows of all groups, those of bonds that are not there among them."""
        return self.groups * THREADS * self.block

    def field(self, number: int) -> int:
        """First row of a field of the side rows."""
        return number * self.side_rows

    def of_bonds(self, number: int) -> int:
        """First row of a field of bonds: columns left (with a row before), what a column meets
        before and behind its bond, and beside; costs. Passes that read fields of bonds that are
        not there read rows before these.
        """
        fields = max(FIELDS * self.side_rows, KEPT * self.side_rows + self.spread)
        return fields + number * (self.groups * THREADS + 2)

    @property
    def rows(self) -> int:
        """All of them."""
        return self.of_bonds(BOND_FIELDS)


LEFT, BEFORE_COST, AFTER_COST, OWN_COST, COST = range(5)
MET = BEFORE_COST, AFTER_COST, OWN_COST
"""Fields of bonds."""
BOND_FIELDS = 5


def prior_rows(layout: WeightLayout) -> PriorRows:
    """The rows of ``PRIOR``."""
    most = max((bond.left.columns for bond in layout.bonds), default=0)
    return PriorRows(len(layout.bonds), 1 + most)


def side_rows(layout: WeightLayout) -> tuple[SideRows, ...]:
    """Of each part."""
    block = prior_rows(layout).block
    left = {bond.right.part: 1 + n * block for n, bond in enumerate(layout.bonds)}
    right = {bond.left.part: n * block for n, bond in enumerate(layout.bonds)}
    return tuple(SideRows(left.get(n), right.get(n)) for n in range(len(layout.parts)))


def met(layout: WeightLayout, bond: Bond) -> tuple[int, int, int]:
    """Elements of a column of a bond for each column of the bond before, of the one behind, and
    those at the ends of a layer.
    """
    there = {(one.layer, one.index) for one in layout.bonds}
    sides = ((bond.left.part, -1), (bond.right.part, 1))
    elements = [prod(layout.parts[part].shape[1:3]) for part, _ in sides]
    inner = [(bond.layer, bond.index + by) in there for _, by in sides]
    before, after = (n if has else 0 for n, has in zip(elements, inner, strict=True))
    return before, after, sum(elements) - before - after

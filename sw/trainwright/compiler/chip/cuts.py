"""Cuts in a resident step, at the begin of its update: which columns are left, and their costs.

What is cut here the passes of the update clear, as its shifts are under 0 (``onchip.cut_pass``).
"""

from dataclasses import dataclass

from trainwright.compiler.chip.memory import PRIOR
from trainwright.compiler.chip.passes import Passes
from trainwright.compiler.chip.prior_rows import (
    AFTER_COST,
    BEFORE_COST,
    COST,
    LEFT,
    OWN_COST,
    PriorRows,
)
from trainwright.compiler.chip.schedule import mask, rows_pass
from trainwright.compiler.row_images import Arrangement
from trainwright.onchip import cut_pass as by
from trainwright.onchip import prior_pass
from trainwright.program.vector import THREADS, Stream


@dataclass(frozen=True)
class Looks:
    """When columns are cut, and which."""

    interval: int
    """Steps from one look to the next."""
    distance: int
    """Powers of two below the strongest of a bond (``onchip.prior.cut_distance``)."""


class Cuts:
    """Flags of all columns in the scratchpad, in the places of side rows."""

    def __init__(self, work: Passes, layout: PriorRows, rows: int) -> None:
        """``rows`` is the first row of PRIOR; ``Schedule.look`` came before."""
        self._work, self._layout, self._rows = work, layout, rows
        self._flags = work.b.pad.allocate(f"{PRIOR} flags", layout.spread).start
        self._identity = work.constant(Arrangement.IDENTITY.value).start

    def decide(self, distance: int) -> int:
        """The columns that are left, and the costs at these ranks; the first row of the flags."""
        for group in range(self._layout.groups):
            self._decide(group * THREADS, distance)
        for group in range(self._layout.groups):
            self._cost(group * THREADS)
        return self._flags

    def _side(self, base: int, bond: int, row: int = 0) -> Stream:
        """Rows of eight bonds, from ``row`` of each one's block on."""
        block = self._layout.block
        return Stream(base + bond * block + row, 1, block)

    def _pass(self, code, streams, **fields) -> None:
        rows_pass(self._work, code, streams, tensor="cuts", **fields)

    def _decide(self, bond: int, distance: int) -> None:
        low, high, kept = (
            self._rows + self._layout.field(number)
            for number in (prior_pass.LOW, prior_pass.HIGH, prior_pass.KEPT)
        )
        identity, columns = Stream(self._identity, 1), self._layout.block - 1
        self._pass(
            by.gather_code(), (identity, self._side(low, bond, 1), self._side(high, bond, 1)),
            reads=mask(by.IDENTITY, by.LOW, by.HIGH), outer=columns,
        )  # fmt: skip
        left = self._rows + self._layout.of_bonds(LEFT) + 1
        firsts = [self._side(base, bond) for base in (low, high, kept, self._flags)]
        self._pass(
            by.decide_code(), (*firsts, Stream(left + bond, 0, 1)),
            reads=mask(by.RIGHT_LOW, by.RIGHT_HIGH, by.FLAGS), writes=mask(by.NEW_FLAGS, by.LEFT),
            constants=by.decide_constants(distance),
        )  # fmt: skip
        self._pass(
            by.spread_code(), (identity, self._side(self._flags, bond, 1)),
            reads=mask(by.IDENTITY), writes=mask(by.SPREAD), outer=columns,
        )  # fmt: skip

    def _cost(self, bond: int) -> None:
        rows = self._layout
        left, *others = (
            self._rows + rows.of_bonds(number) + bond
            for number in (LEFT, BEFORE_COST, AFTER_COST, OWN_COST, COST)
        )
        streams = [Stream(first, 0, 1) for first in (left, left + 2, *others)]
        self._pass(
            by.cost_code(), streams, writes=mask(by.COST),
            reads=mask(by.BEFORE, by.AFTER, by.BEFORE_COST, by.AFTER_COST, by.OWN_COST),
        )  # fmt: skip

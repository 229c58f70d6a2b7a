"""Share of an array's multipliers that a product of two keeps busy, to rank contraction orders."""

from dataclasses import dataclass
from functools import cache
from itertools import combinations, product
from math import prod

from trainwright.parameters import AcceleratorParameters
from trainwright.program.engines import ARRAYS


@dataclass(frozen=True)
class Arrays:
    """Arrays of an accelerator, which compute products.

    A product of two operands sums over their ``inner`` axes; ``first`` axes belong to the first
    operand alone, ``second`` axes to the second. An array that sums along the lanes is full with as
    many entries of the first operand as it has rows, ``lanes`` of the second and ``lanes`` summed
    values. The other array is full with ``lanes`` entries of the first, as many of the second as it
    has rows, and at least that many summed values a tile.
    """

    p: AcceleratorParameters

    def fill(
        self, first: tuple[int, ...], second: tuple[int, ...], inner: tuple[int, ...]
    ) -> float:
        """Return the share of the multipliers at work, 0 to 1, in the better array and layout.

        Arguments are sizes of axes; whether axes are adjacent in memory is not considered.
        """
        lanes, best = self.p.lanes, 0.0
        # Either operand may play either part: the compiler swaps them freely.
        for (a, b), spec in product(((first, second), (second, first)), ARRAYS.values()):
            rows = spec.rows(self.p)
            if spec.along_lanes:
                share = filled(a, rows) * filled(b, lanes) * filled(inner, lanes)
            else:
                # An array drains a tile while the next one is summed: shorter sums leave it waiting
                # for the drain.
                share = filled(a, lanes) * filled(b, rows) * min(1.0, prod(inner) / rows)
            best = max(best, share)
        return best


@cache
def filled(sizes: tuple[int, ...], unit: int) -> float:
    """Return the best share of whole units that some of the sizes, multiplied, fill."""
    best = 0.0
    for count in range(len(sizes) + 1):
        # Layouts can join any axes into lanes, so every subset is tried; a handful of axes has few.
        for chosen in combinations(sizes, count):
            size = prod(chosen)
            best = max(best, size / (-(-size // unit) * unit))
    return best

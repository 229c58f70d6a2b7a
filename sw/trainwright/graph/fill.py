"""Share of the arrays that products of two fill: a contraction order's worth in array cycles."""

from dataclasses import dataclass
from functools import cache
from itertools import combinations, product
from math import prod

from trainwright.parameters import AcceleratorParameters
from trainwright.program.engines import ARRAYS


@dataclass(frozen=True)
class Arrays:
    """Arrays of an accelerator, which compute products.

    A product of two sums over ``inner`` axes, and has ``first`` and ``second`` axes of one operand
    alone. An array that sums along the lanes takes rows of the first operand, ``lanes`` values of
    an inner axis and ``lanes`` entries of the second; any other one ``lanes`` values of the first
    and a row's of the second, and at least as many summed values a tile as it has rows.
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

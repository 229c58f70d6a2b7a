"""Share of the arrays that products of two fill: a contraction order's worth in array cycles."""

from dataclasses import dataclass
from functools import cache
from itertools import combinations
from math import prod


@dataclass(frozen=True)
class Arrays:
    """Sizes of the arrays that compute products.

    A product of two sums over ``inner`` axes, and has ``first`` and ``second`` axes of one operand
    alone. The dot-product array takes rows of the first operand, ``lanes`` values of an inner axis
    and ``lanes`` entries of the second; the outer-product array ``lanes`` values of the first and
    ``outer_rows`` of the second, and at least ``outer_rows`` summed values a tile.
    """

    lanes: int
    dot_rows: int
    outer_rows: int

    def fill(
        self, first: tuple[int, ...], second: tuple[int, ...], inner: tuple[int, ...]
    ) -> float:
        """Return the share of the multipliers at work, 0 to 1, in the better array and layout.

        Arguments are sizes of axes; whether axes are adjacent in memory is not considered.
        """
        lanes, best = self.lanes, 0.0
        # Either operand may play either part: the compiler swaps them freely.
        for a, b in ((first, second), (second, first)):
            dot = filled(a, self.dot_rows) * filled(b, lanes) * filled(inner, lanes)
            outer = filled(a, lanes) * filled(b, self.outer_rows)
            # The outer-product array drains a tile while the next one is summed: shorter sums leave
            # it waiting for the drain.
            best = max(best, dot, outer * min(1.0, prod(inner) / self.outer_rows))
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

"""Divide an operation along an axis between both arrays: where, and what each array then takes.

``Pair.middles`` proposes places, ``Pair.divided`` gives cycles and works for one of them.
``divisions`` builds the pairs and ``choose`` tries them.
"""

from collections.abc import Callable, Sequence

from trainwright.compiler.choose.clocks import SearchState
from trainwright.compiler.forms.choices import Cut, Work
from trainwright.compiler.forms.impls import Impl
from trainwright.graph.ir import Einsum

Cycles = Callable[[Einsum, Impl, Cut], float]
"""Cycles of an array for an operation, or for its values in a cut."""


class Pair:
    """Implementations of both arrays for an operation that is divided along an axis."""

    def __init__(
        self, op: Einsum, impls: tuple[Impl, Impl], axis: str, size: int, lanes: int, cycles: Cycles
    ):
        self.op, self.impls, self.axis, self.size, self.cycles = op, impls, axis, size, cycles
        self.unit = lanes if any(axis in impl.along for impl in impls) else 1
        self._known: dict[int, tuple[float, float, tuple[Work, Work]]] = {}

    def middles(
        self, state: SearchState, due: tuple[float, float], fixed: set[Cut]
    ) -> Sequence[int]:
        """Return where to divide the axis: at a place that ends both arrays together.

        Operands that lie in parts impose their own place.
        """
        size, unit = self.size, self.unit
        if fixed:
            if any(cut[0] != self.axis for cut in fixed if cut):
                return ()
            places = {cut[2] for cut in fixed if cut and cut[1] == 0}
            return sorted(m for m in places if m % unit == 0)
        dot, outer = self.impls
        # Solve dots + due[0] + m * dot = outers + due[1] + (1 - m) * outer for the share m: both
        # arrays are done at the same time, with what only one of them can do later.
        ahead = state.outers + due[1] - state.dots - due[0]
        share = (outer.cycles + ahead) / (dot.cycles + outer.cycles)
        best = round(size * min(1.0, max(0.0, share)) / unit) * unit
        middle = min(max(best, unit), (size - 1) // unit * unit)
        return (middle,) if middle else ()

    def divided(self, middle: int) -> tuple[float, float, tuple[Work, Work]]:
        """Return the cycles of each array and the work of each, PE1 first."""
        if middle not in self._known:
            dot, outer = self.impls
            first = Work(dot, (self.axis, 0, middle))
            second = Work(outer, (self.axis, middle, self.size))
            self._known[middle] = (
                self.cycles(self.op, dot, first.cut), self.cycles(self.op, outer, second.cut),
                (first, second),
            )  # fmt: skip
        return self._known[middle]

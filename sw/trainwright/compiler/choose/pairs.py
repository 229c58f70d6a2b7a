"""Operations that both arrays compute, divided along an axis: where, and what each then takes."""

from collections.abc import Callable, Sequence

from trainwright.compiler.choose.clocks import State
from trainwright.compiler.forms.choices import Cut, Work
from trainwright.compiler.forms.impls import Impl
from trainwright.graph.ir import Einsum

Cycles = Callable[[Einsum, Impl, Cut], float]
"""Cycles of an array for an operation, or for its values in a cut."""


class Pair:
    """Both arrays' implementations of an operation, divided along an axis."""

    def __init__(
        self, op: Einsum, impls: tuple[Impl, Impl], axis: str, size: int, lanes: int, cycles: Cycles
    ):
        self.op, self.impls, self.axis, self.size, self.cycles = op, impls, axis, size, cycles
        self.unit = lanes if any(axis in impl.along for impl in impls) else 1
        self._known: dict[int, tuple[float, float, tuple[Work, Work]]] = {}

    def middles(self, state: State, due: tuple[float, float], fixed: set[Cut]) -> Sequence[int]:
        """Where the axis is divided: so that both arrays are done at the same time, or as operands
        are that lie in parts.
        """
        size, unit = self.size, self.unit
        if fixed:
            if any(cut[0] != self.axis for cut in fixed if cut):
                return ()
            found = {cut[2] for cut in fixed if cut and cut[1] == 0}
            return sorted(m for m in found if m % unit == 0)
        dot, outer = self.impls
        ahead = state.outers + due[1] - state.dots - due[0]
        share = (outer.cycles + ahead) / (dot.cycles + outer.cycles)
        best = round(size * min(1.0, max(0.0, share)) / unit) * unit
        middle = min(max(best, unit), (size - 1) // unit * unit)
        return (middle,) if middle else ()

    def divided(self, middle: int) -> tuple[float, float, tuple[Work, Work]]:
        """Cycles of each array, and what each computes: PE1 first."""
        if middle not in self._known:
            dot, outer = self.impls
            first = Work(dot, (self.axis, 0, middle))
            second = Work(outer, (self.axis, middle, self.size))
            self._known[middle] = (
                self.cycles(self.op, dot, first.cut), self.cycles(self.op, outer, second.cut),
                (first, second),
            )  # fmt: skip
        return self._known[middle]

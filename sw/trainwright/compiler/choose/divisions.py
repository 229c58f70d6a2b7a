"""List how an operation can be computed: by which array, from which layouts, divided how.

``Divisions`` has the implementations of every contraction of a program, and the pairs of one of
each array that can divide it; ``choose.Chooser`` searches among them.
"""

from collections.abc import Iterator, Mapping

from trainwright.compiler.choose.clocks import OperandSources
from trainwright.compiler.choose.divide import divides
from trainwright.compiler.choose.huge import Sliced, sliced_implementations
from trainwright.compiler.choose.pairs import Pair
from trainwright.compiler.forms.choices import Cut, ProgramSpec, SearchMode
from trainwright.compiler.forms.impls import Impl, contraction_cycles
from trainwright.compiler.forms.layout import Axes
from trainwright.graph.ir import Einsum
from trainwright.graph.network import SAMPLES
from trainwright.program.fields import Engine

MOST_OF_AN_ARRAY = 4
"""Implementations of an array that are tried where the arrays' results have different layouts."""
MOST_STEADY = 12
"""Limit in place of ``MOST_OF_AN_ARRAY`` for programs of blocks, where no array waits for another.
"""
MOST_AXES = 4
"""Axes along which an operation is divided between the arrays that are tried."""


class Divisions:
    """Implementations of the contractions of one program, and pairs for both arrays."""

    def __init__(self, spec: ProgramSpec):
        self.graph, self.given, self.p, self.parted = spec.graph, spec.given, spec.p, spec.parted
        self.mode = SearchMode(weight=0.0, due=False, apart=False)
        self.operands = OperandSources(self.graph, self.given, self.p)
        self.sliced: Mapping[str, Sliced] = {}
        self.kept = set(spec.stored)
        """Tensors that end up whole in one layout, as later programs read them, except for
        ``parted`` ones."""
        self._pairs: dict[tuple[str, bool, bool], list[list[Pair]]] = {}
        self._known: dict[str, tuple[list[Impl], list[Impl]]] = {}
        self._lanes: dict[tuple[str, int], set[Axes]] = {}
        self._times: dict[tuple[int, Cut], float] = {}

    def _slice(self, sliced: Mapping[str, Sliced]) -> None:
        """Leave these axes to slices, and forget implementations that use them."""
        if sliced != self.sliced:
            self.sliced = sliced
            for known in (self._pairs, self._known, self._lanes, self._times):
                known.clear()

    def _impls(self, op: Einsum) -> tuple[list[Impl], list[Impl]]:
        if op.out not in self._known:
            axes = self.sliced.get(op.out, Sliced()).cut
            every = sliced_implementations(self.graph, op, self.p, axes)
            dots, outers = (
                [i for i in every if i.engine is engine] for engine in (Engine.PE1, Engine.PE2)
            )
            self._known[op.out] = self._varied(dots), self._varied(outers)
        return self._known[op.out]

    @staticmethod
    def _varied(impls: list[Impl]) -> list[Impl]:
        """Return the fastest implementation for each layout of the result and of the operands."""
        fastest: dict[tuple, Impl] = {}
        for impl in impls:
            # Slower ones would only fill the beam: transposing operands for a faster one mostly
            # costs less.
            if impl.cycles <= 2.5 * impls[0].cycles:
                fastest.setdefault((impl.along, impl.inner or impl.rows), impl)
        return list(fastest.values())

    def cycles(self, op: Einsum, impl: Impl, cut: Cut) -> float:
        """Return an array's cycles for an operation, or for its values in a cut."""
        if cut is None:
            return impl.cycles
        key = id(impl), cut
        if key not in self._times:
            sizes = self.operands.sizes(cut)
            self._times[key] = contraction_cycles(self.graph, op, impl, self.p, sizes)
        return self._times[key]

    def _every_pair(self, op: Einsum) -> list[list[Pair]]:
        """Return pairs of implementations with axes to divide, grouped by the layouts they lead to.

        A group has one pair of implementations and several axes.
        """
        alike, parts = self._alike(op), self._pairs
        if (op.out in self.kept and op.out not in self.parted) or not self.mode.apart:
            return alike
        key = op.out, True, self.mode.sums
        if key not in parts:
            parts[key] = [*alike, *self._parted(op)]
        return parts[key]

    def _alike(self, op: Einsum) -> list[list[Pair]]:
        """Return the pairs of ``_every_pair`` whose parts have the same layout."""
        key = op.out, False, False
        if key not in self._pairs:
            self._pairs[key] = list(self._joined(op))
        return self._pairs[key]

    def _joined(self, op: Einsum) -> Iterator[list[Pair]]:
        """Find pairs whose parts have the same layout."""
        dots, outers = self._impls(op)
        for dot in dots:
            for outer in (o for o in outers if o.along == dot.along):
                axes = self._axes(op, dot, outer)
                # Samples last: slices are mostly of samples, and along another axis both arrays
                # have a share of every slice.
                axes.sort(key=lambda axis: axis == SAMPLES)
                yield [self._pair(op, dot, outer, axis) for axis in axes]

    def _parted(self, op: Einsum) -> Iterator[list[Pair]]:
        """Find pairs whose parts have different layouts, each read by its own array later."""
        most = MOST_STEADY if self.mode.steady else MOST_OF_AN_ARRAY
        dots, outers = (
            [impl for impl in impls if impl.along in self._read_along(op.out, number)]
            for number, impls in enumerate(self._impls(op))
        )
        for dot in dots[:most]:
            for outer in outers[:most]:
                if dot.along != outer.along:
                    for axis in self._axes(op, dot, outer):
                        if self._goes_on(op.out, axis):
                            yield [self._pair(op, dot, outer, axis)]

    def _read_along(self, name: str, array: int) -> set[Axes]:
        """Return the axes along the lanes with which an array's implementations read a tensor."""
        if (name, array) not in self._lanes:
            self._lanes[name, array] = {
                need.lanes
                for op in self.graph.ops
                if isinstance(op, Einsum) and name in op.operands
                for impl in self._impls(op)[array]
                for need in impl.needs
                if need.tensor == name
            }
        return self._lanes[name, array]

    def _pair(self, op: Einsum, dot: Impl, outer: Impl, axis: str) -> Pair:
        size, lanes = self.graph.sizes[axis], self.p.lanes
        return Pair(op, (dot, outer), axis, size, lanes, self.cycles)

    def _goes_on(self, name: str, axis: str) -> bool:
        """Return whether every reader of a tensor can be divided along the axis, too.

        With ``SearchMode.sums`` a reader may also sum over the axis: each array sums its own part.
        """
        sums = self.mode.sums and name not in self.kept
        return all(
            isinstance(op, Einsum) and (sums or axis in self.graph.tensors[op.out].axes)
            for op in self.graph.ops
            if name in op.operands
        )

    def _axes(self, op: Einsum, dot: Impl, outer: Impl) -> list[str]:
        """Return axes along which both arrays can divide an operation."""
        sizes, divided = self.graph.sizes, self.sliced.get(op.out, Sliced()).divided
        axes = [
            axis
            for axis in divided or self.graph.tensors[op.out].axes
            if sizes[axis] > 1 and divides(axis, dot) and divides(axis, outer)
        ]
        if self.mode.steady:
            # A block of samples is the unit of work: divided along samples, one array would wait
            # for the other one's share of each block.
            axes = [axis for axis in axes if axis != SAMPLES]
            axes = [axis for axis in axes if self._goes_on(op.out, axis)] or axes
        # Long axes can be divided more evenly; beyond 16 values the gain is below 1/16.
        return sorted(axes, key=lambda axis: -min(sizes[axis], 16))[:MOST_AXES]

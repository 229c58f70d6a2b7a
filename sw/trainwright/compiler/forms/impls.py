"""The ways in which an array can compute a contraction: which axes lie where.

- ``dot``, PE1's array: both operands have the same summed axes along their lanes; the result has
  free axes of the second operand along its lanes.
- ``outer``, PE2's array: each operand has free axes along its lanes; those of the first are the
  result's lanes, those of the second its rows.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod

from trainwright.compiler.forms.layout import Axes
from trainwright.compiler.forms.windows import slid
from trainwright.graph.ir import Einsum, Graph
from trainwright.parameters import AcceleratorParameters

MOST_RUNS = 3
"""Groups of axes tried for each purpose."""


def up(value: int, unit: int) -> int:
    """Units that hold ``value``."""
    return -(-value // unit)


@dataclass(frozen=True)
class Roles:
    """The axes of a product of two, by what becomes of them."""

    first: Axes
    second: Axes
    both: Axes
    summed: Axes

    @classmethod
    def of(cls, graph: Graph, op: Einsum) -> "Roles":
        """Of a contraction of two operands."""
        a, b = (graph.tensors[name].axes for name in op.operands)
        z = graph.tensors[op.out].axes
        return cls(
            tuple(x for x in a if x not in b),
            tuple(x for x in b if x not in a),
            tuple(x for x in a if x in b and x in z),
            tuple(x for x in a if x in b and x not in z),
        )


@dataclass(frozen=True)
class Need:
    """An operand in a layout: axes along the lanes, and axes of the rows that are padded."""

    tensor: str
    lanes: Axes
    padded: Axes = ()


@dataclass(frozen=True)
class Impl:
    """One way to compute a contraction. ``x`` and ``g`` are the operands of the descriptor."""

    dot: bool
    x: str
    g: str
    z: str
    rows: Axes
    """Of a tile: free axes of x (dot) or of g (outer)."""
    along: Axes
    """Along the lanes of the result: free axes of g (dot) or of x (outer)."""
    inner: Axes
    """Summed along the lanes (dot)."""
    cycles: float
    pads: bool
    """Whether ``along`` needs rows of zeros behind it (dot)."""

    @cached_property
    def needs(self) -> tuple[Need, Need]:
        """The operands."""
        if self.dot:
            padded = self.along if self.pads else ()
            return Need(self.x, self.inner), Need(self.g, self.inner, padded)
        return Need(self.x, self.along), Need(self.g, self.rows)


def runs(axes: Axes, sizes: Mapping[str, int], unit: int) -> list[Axes]:
    """Groups of adjacent axes that fill units well, the best first.

    Of two that are the same rows (the inner axes fill whole units) only the shorter is given.
    """
    found: list[tuple[float, int, Axes]] = []
    for stop in range(1, len(axes) + 1):
        for start in reversed(range(stop)):
            group = axes[start:stop]
            size = prod(sizes[a] for a in group)
            found.append((-size / (up(size, unit) * unit), len(group), group))
            if size % unit == 0:
                break
    found.sort()
    well = [group for filled, _, group in found if filled <= 0.6 * found[0][0]][:MOST_RUNS]
    alone = [group for filled, count, group in found if count == 1 and filled <= 0.2 * found[0][0]]
    return list(dict.fromkeys([*well, *alone[:MOST_RUNS]]))


def adjacent(graph: Graph, tensor: str, lanes: Axes, group: Axes) -> bool:
    """Whether a group of axes is one even index in the rows of a tensor, others along the lanes."""
    if len([a for a in group if graph.sizes[a] > 1]) > 1 and slid(graph, tensor) & set(group):
        return False  # a position and what lies beside it have strides of their own
    wide = [a for a in graph.tensors[tensor].axes if a not in lanes and graph.sizes[a] > 1]
    asked = [a for a in group if graph.sizes[a] > 1]
    if not asked:
        return True
    if asked[0] not in wide:
        return False
    start = wide.index(asked[0])
    return wide[start : start + len(asked)] == asked


def even(graph: Graph, impl: Impl) -> bool:
    """Whether the rows and entries of a descriptor have one stride each.

    The axes along the lanes of the result have to be adjacent in it, to be transposed.
    """
    if not adjacent(graph, impl.z, (), impl.along):
        return False
    if any(slid(graph, need.tensor) & {*need.lanes, *need.padded} for need in impl.needs):
        return False  # there are no rows of zeros behind one window
    if not impl.dot:
        return adjacent(graph, impl.z, impl.along, impl.rows)
    return (
        adjacent(graph, impl.x, impl.inner, impl.rows)
        and adjacent(graph, impl.z, impl.along, impl.rows)
        and adjacent(graph, impl.g, impl.inner, impl.along)
    )


def dot_cycles(
    p: AcceleratorParameters,
    sizes: Mapping[str, int],
    free: int,
    summed: int,
    impl: tuple,
    digits: int = 1,
) -> float:
    """Cycles of PE1's array; ``free`` and ``summed`` are products of all such sizes, the passes
    over digits of operands among the summed ones; ``digits`` are those of the result.
    """
    rows, along, inner = (prod(sizes[a] for a in axes) for axes in impl)
    tiles = free / (rows * along) * up(rows, p.pe1_rows) * up(along, p.lanes)
    return max(
        tiles * summed / inner * up(inner, p.lanes) * p.lanes,
        tiles * p.pe1_rows * digits if digits > 1 else 0.0,
    )


def outer_cycles(
    p: AcceleratorParameters,
    sizes: Mapping[str, int],
    free: int,
    summed: int,
    impl: tuple,
    digits: int = 1,
) -> float:
    """Cycles of PE2's array, as ``dot_cycles``."""
    rows, along = (prod(sizes[a] for a in axes) for axes in impl)
    tiles = free / (rows * along) * up(rows, p.pe2_rows) * up(along, p.lanes)
    return tiles * max(summed, p.pe2_rows * digits)


def cycles(graph: Graph, op: Einsum, impl: Impl, p: AcceleratorParameters) -> float:
    """Cycles of an implementation of an operation."""
    free, digits = graph.count(op.out), graph.tensors[op.out].digits
    summed = prod(graph.sizes[a] for a in graph.summed(op)) * graph.passes(op)
    if impl.dot:
        axes = impl.rows, impl.along, impl.inner
        return dot_cycles(p, graph.sizes, free, summed, axes, digits)
    return outer_cycles(p, graph.sizes, free, summed, (impl.rows, impl.along), digits)


def implementations(graph: Graph, op: Einsum, p: AcceleratorParameters) -> list[Impl]:
    """All ways worth trying, the fastest first."""
    roles = Roles.of(graph, op)
    found: list[Impl] = []
    for still in (False, True):
        found += _both_ways(graph, op, p, roles, still=still)
        if found:  # few samples fill lanes less than positions do, which cannot lie there
            break
    return sorted(found, key=lambda impl: impl.cycles)


def _both_ways(
    graph: Graph, op: Einsum, p: AcceleratorParameters, roles: Roles, *, still: bool
) -> Iterator[Impl]:
    """The ways with either operand as the first; ``still``: without positions and offsets of
    windows in groups of axes that fill lanes or tiles.
    """
    sizes = graph.sizes
    free = prod(sizes[a] for a in (*roles.first, *roles.second, *roles.both))
    summed = prod(sizes[a] for a in roles.summed) * graph.passes(op)
    a, b = op.operands
    moving = slid(graph, a) | slid(graph, b) if still else frozenset[str]()
    first, second, reduced = (
        tuple(axis for axis in axes if axis not in moving)
        for axes in (roles.first, roles.second, roles.summed)
    )
    for x, g, mine, other in ((a, b, first, second), (b, a, second, first)):
        names = (x, g, op.out)
        yield from _dots(graph, p, names, (mine, other, reduced), free, summed)
        yield from _outers(graph, p, names, (mine, other), free, summed)


def _dots(
    graph: Graph,
    p: AcceleratorParameters,
    names: tuple[str, str, str],
    axes: tuple[Axes, Axes, Axes],
    free: int,
    summed: int,
) -> Iterator[Impl]:
    (mine, other, reduced), sizes = axes, graph.sizes
    for inner in runs(reduced, sizes, p.lanes):
        for along in runs(other, sizes, p.lanes):
            pads = prod(sizes[a] for a in along) % p.lanes != 0
            every = []
            for rows in [*runs(mine, sizes, p.pe1_rows), ()]:
                axes_of = rows, along, inner
                cycles = dot_cycles(p, sizes, free, summed, axes_of, graph.tensors[names[2]].digits)
                every.append(Impl(True, *names, rows, along, inner, cycles, pads))
            fitting = [impl for impl in every if even(graph, impl)]
            if fitting:
                yield min(fitting, key=lambda impl: impl.cycles)


def _outers(
    graph: Graph,
    p: AcceleratorParameters,
    names: tuple[str, str, str],
    axes: tuple[Axes, Axes],
    free: int,
    summed: int,
) -> Iterator[Impl]:
    (mine, other), sizes = axes, graph.sizes
    for along in runs(mine, sizes, p.lanes):
        for rows in runs(other, sizes, p.pe2_rows) or [()]:
            digits = graph.tensors[names[2]].digits
            cycles = outer_cycles(p, sizes, free, summed, (rows, along), digits)
            impl = Impl(False, *names, rows, along, (), cycles, False)
            if even(graph, impl):
                yield impl

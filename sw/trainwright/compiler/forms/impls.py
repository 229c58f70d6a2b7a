"""List the implementations of a contraction on an array: which axes lie where.

- PE1, whose sums run along the lanes: both operands have the same summed axes along their lanes;
  the result has free axes of the second operand along its lanes, and the rows of a tile are free
  axes of the first one.
- PE2: each operand has free axes along its lanes; those of the first are the result's lanes, those
  of the second the rows of a tile.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

from trainwright.compiler.base.tuning import TUNING
from trainwright.compiler.forms.layout import Axes
from trainwright.compiler.forms.windows import slid
from trainwright.graph.ir import Einsum, Graph
from trainwright.parameters import AcceleratorParameters
from trainwright.program.engines import EVERY_ARRAY, EngineSpec
from trainwright.program.fields import Engine


def up(value: int, unit: int) -> int:
    """Return the number of units that hold ``value``."""
    return -(-value // unit)


@dataclass(frozen=True)
class Need:
    """Operand in a layout: axes along the lanes, and axes of the rows that are padded."""

    tensor: str
    lanes: Axes
    padded: Axes = ()
    entries: Axes = ()
    """Axes of the rows that the array reads entry by entry, so that they are one even index."""


@dataclass(frozen=True)
class Impl:
    """Implementation of a contraction. ``x`` and ``g`` are the operands of the descriptor."""

    array: EngineSpec
    x: str
    g: str
    z: str
    rows: Axes
    """Axes of a tile's rows: free axes of x on PE1, of g on PE2."""
    along: Axes
    """Axes along the lanes of the result: free axes of g on PE1, of x on PE2."""
    inner: Axes
    """Axes summed along the lanes; none on PE2."""
    cycles: float
    pads: bool
    """Whether ``along`` needs rows of zeros behind it; never on PE2."""

    @property
    def engine(self) -> Engine:
        """Engine of the array."""
        return self.array.engine

    @cached_property
    def number(self) -> int:
        """Number of the array among all."""
        return EVERY_ARRAY.index(self.array.engine)

    @cached_property
    def needs(self) -> tuple[Need, Need]:
        """Layouts of both operands."""
        if self.array.along_lanes:
            padded = self.along if self.pads else ()
            return Need(self.x, self.inner), Need(self.g, self.inner, padded, self.along)
        return Need(self.x, self.along), Need(self.g, self.rows)


def runs(axes: Axes, sizes: Mapping[str, int], unit: int) -> list[Axes]:
    """List groups of adjacent axes that fill units well, the best first.

    Two groups are the same rows where their inner axes fill whole units: only the shorter is given.
    """
    groups: list[tuple[float, int, Axes]] = []
    for stop in range(1, len(axes) + 1):
        for start in reversed(range(stop)):
            group = axes[start:stop]
            size = prod(sizes[a] for a in group)
            groups.append((-size / (up(size, unit) * unit), len(group), group))
            if size % unit == 0:
                break
    groups.sort()
    # Groups that fill at least 60 % as well as the best; and single axes that fill 20 %, which
    # leave the other axes to the rows, where slices can cut them.
    best, most = groups[0][0] if groups else 0.0, TUNING.choose.groups
    well = [group for filled, _, group in groups if filled <= 0.6 * best]
    alone = [group for filled, count, group in groups if count == 1 and filled <= 0.2 * best]
    return list(dict.fromkeys([*well[:most], *alone[:most]]))


def adjacent(graph: Graph, tensor: str, lanes: Axes, group: Axes) -> bool:
    """Return whether axes are one even index in a tensor's rows, with ``lanes`` along the lanes."""
    if len([a for a in group if graph.sizes[a] > 1]) > 1 and slid(graph, tensor) & set(group):
        return False  # a position has another stride than the axis next to it
    wide = [a for a in graph.tensors[tensor].axes if a not in lanes and graph.sizes[a] > 1]
    asked = [a for a in group if graph.sizes[a] > 1]
    if not asked:
        return True
    if asked[0] not in wide:
        return False
    start = wide.index(asked[0])
    return wide[start : start + len(asked)] == asked


def even(graph: Graph, impl: Impl) -> bool:
    """Return whether the rows and entries of a descriptor have one stride each.

    The axes along the lanes of the result have to be adjacent in it, to be transposed.
    """
    if not adjacent(graph, impl.z, (), impl.along):
        return False
    if any(slid(graph, need.tensor) & {*need.lanes, *need.padded} for need in impl.needs):
        return False  # there are no rows of zeros behind one window
    if not adjacent(graph, impl.z, impl.along, impl.rows):
        return False
    return not impl.array.along_lanes or (
        adjacent(graph, impl.x, impl.inner, impl.rows)
        and adjacent(graph, impl.g, impl.inner, impl.along)
    )


def contraction_cycles(
    graph: Graph,
    op: Einsum,
    impl: Impl,
    p: AcceleratorParameters,
    sizes: Mapping[str, int] | None = None,
) -> float:
    """Return an array's cycles for an operation; ``sizes`` are those of a slice of it.

    Axes that are no whole index of the tiles count as if they were: the estimate of a call, before
    its nest is known, is at most that of the cycle model.
    """
    sizes = sizes or graph.sizes
    free = prod(sizes[a] for a in graph.tensors[op.out].axes)
    # Each pair of digits of the operands is a pass of its own, summed like the products.
    summed = prod(sizes[a] for a in graph.summed(op)) * graph.passes(op)
    rows, along, inner = (
        prod(sizes[a] for a in axes) for axes in (impl.rows, impl.along, impl.inner)
    )
    tiles = free / (rows * along) * up(rows, impl.array.rows(p)) * up(along, p.lanes)
    steps = summed / inner * up(inner, p.lanes)
    return impl.array.cycles(tiles, steps, graph.tensors[op.out].digits, p)


def timed(graph: Graph, op: Einsum, impl: Impl, p: AcceleratorParameters) -> Impl:
    """Return an implementation with its cycles."""
    return replace(impl, cycles=contraction_cycles(graph, op, impl, p))


def implementations(graph: Graph, op: Einsum, p: AcceleratorParameters) -> list[Impl]:
    """List the implementations worth a try, the fastest first."""
    impls: list[Impl] = []
    for still in (False, True):
        impls += _in_both_orders(graph, op, p, still=still)
        if impls:  # few samples fill lanes less than positions do, which cannot lie there
            break
    return sorted(impls, key=lambda impl: impl.cycles)


def _in_both_orders(
    graph: Graph, op: Einsum, p: AcceleratorParameters, *, still: bool
) -> Iterator[Impl]:
    """Yield the implementations with either operand as the first.

    ``still``: positions and offsets of windows are left out of lanes and tiles.
    """
    a, b = op.operands
    moving = slid(graph, a) | slid(graph, b) if still else frozenset[str]()
    axes = {name: [x for x in graph.tensors[name].axes if x not in moving] for name in (a, b)}
    summed = [x for x in axes[a] if x in axes[b] and x not in graph.tensors[op.out].axes]
    for x, g in ((a, b), (b, a)):
        of_x, of_g = (
            tuple(axis for axis in axes[name] if axis not in graph.tensors[partner].axes)
            for name, partner in ((x, g), (g, x))
        )
        for array in op.engines:
            yield from _on_array(graph, op, p, array, (x, g), (of_x, of_g, tuple(summed)))


def _on_array(
    graph: Graph,
    op: Einsum,
    p: AcceleratorParameters,
    array: EngineSpec,
    operands: tuple[str, str],
    axes: tuple[Axes, Axes, Axes],
) -> Iterator[Impl]:
    """Yield the implementations of an array; ``axes`` are free ones of x and g, and summed ones."""
    (first, second, summed), sizes = axes, graph.sizes
    tiled, wide = (first, second) if array.along_lanes else (second, first)
    for inner in runs(summed, sizes, p.lanes) if array.along_lanes else [()]:
        for along in runs(wide, sizes, p.lanes):
            pads = array.along_lanes and prod(sizes[a] for a in along) % p.lanes != 0
            tiles = runs(tiled, sizes, array.rows(p))
            if array.along_lanes or not tiles:
                tiles.append(())
            impls = (Impl(array, *operands, op.out, rows, along, inner, 0, pads) for rows in tiles)
            fitting = [timed(graph, op, impl, p) for impl in impls if even(graph, impl)]
            # PE1's tiles are of rows, which lie as one likes: only the fastest are worth a try.
            best = array.along_lanes and fitting
            yield from [min(fitting, key=lambda impl: impl.cycles)] if best else fitting

"""Choose the axes along which tensors many times as large as the scratchpad are cut to slices.

An array keeps whole axes in its tiles and along its lanes, and such an axis cannot be cut. If a
tensor has to be consumed in many slices, its small axes stay out of tiles and lanes. ``divisions``
takes its implementations from here for ``SearchMode.sliced``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from trainwright.compiler.base.tuning import TUNING
from trainwright.compiler.forms.impls import Impl, implementations, timed, up
from trainwright.graph.ir import Einsum, Graph, axes_of
from trainwright.parameters import AcceleratorParameters


@dataclass(frozen=True)
class Sliced:
    """Axes of an operation that are to be cut."""

    cut: frozenset[str] = frozenset()
    divided: tuple[str, ...] = ()
    """Axes among ``cut`` that no operation sums.

    Along these the arrays divide the slices. Each makes its own from end to end, unless
    ``SearchMode.piped`` says that one array reads slices of the other.
    """


def sliced_axes(
    graph: Graph, p: AcceleratorParameters, *, large: bool = False
) -> Mapping[str, Sliced]:
    """Return the axes to cut of each contraction that makes or reads a huge tensor.

    Tensors are huge above ``TUNING.choose.huge`` scratchpads, with ``large`` above its ``large``.
    Operations that share such a tensor form a group, and have to be cut along the same axes: those
    with fewer values than lanes that all of the group have. Longer axes fill lanes well, and can be
    cut there by whole rows.
    """
    most = (TUNING.choose.large if large else TUNING.choose.huge) * p.scratchpad_rows
    groups: dict[str, set[str]] = {}
    for op in graph.ops:
        for name in (op.out, *op.operands):
            rows = up(graph.count(name), p.lanes) * graph.tensors[name].digits
            if not op.sums or rows <= most:
                continue
            # Union of the groups that share a huge tensor: all of them have to be cut along the
            # same axes.
            joined = groups.get(op.out, {op.out}) | groups.get(name, {name})
            groups |= dict.fromkeys(joined, joined)
    makers, sliced = graph.makers, dict[str, Sliced]()
    for name, group in groups.items():
        ops = [makers[member] for member in sorted(group) if member in makers]
        axes = set.intersection(*(axes_of(graph, op) for op in ops))
        cut = frozenset(a for a in axes if 1 < graph.sizes[a] < p.lanes)
        free = set.intersection(*({*graph.tensors[op.out].axes} for op in ops))
        # Names break ties: in the order of a set, programs differed from process to process.
        even_first = sorted(cut & free, key=lambda axis: (graph.sizes[axis] % 2, axis))
        sliced[name] = Sliced(cut, tuple(even_first))
    return sliced


def sliced_implementations(
    graph: Graph, op: Einsum, p: AcceleratorParameters, axes: frozenset[str]
) -> list[Impl]:
    """Return ``implementations`` that keep these axes out of tiles and lanes, the fastest first.

    Where there are none, implementations of PE1 with the axes in its tiles are returned, as tiles
    can be refitted to slices; failing that, all of them.
    """
    mine = axes & axes_of(graph, op)
    # Axes of size 1 fill nothing, so the enumeration does not choose them.
    small = replace(graph, sizes={**graph.sizes, **dict.fromkeys(mine, 1)})
    outside = [
        timed(graph, op, impl, p)
        for impl in implementations(small, op, p)
        if not mine & {*impl.rows, *impl.along, *impl.inner}
    ]
    if outside:
        return sorted(outside, key=lambda impl: impl.cycles)
    every = implementations(graph, op, p)
    return [i for i in every if i.array.along_lanes and not mine & {*i.along, *i.inner}] or every

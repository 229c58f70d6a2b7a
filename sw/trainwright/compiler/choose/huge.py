"""Axes that are to be cut where a tensor is many times as large as the scratchpad.

An array keeps whole axes in its tiles and lanes, so that what lies there cannot be cut. Where a
tensor has to be used up in many slices, small axes are left to the slices.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from trainwright.compiler.forms.impls import Impl, cycles, implementations, up
from trainwright.graph.ir import Einsum, Graph, Op
from trainwright.parameters import AcceleratorParameters

HUGE = 2
"""Times the scratchpad from which on a tensor is."""
LARGE = 0.5
"""The same where nothing fits otherwise."""


@dataclass(frozen=True)
class Sliced:
    """Axes of an operation that are to be cut."""

    cut: frozenset[str] = frozenset()
    divided: tuple[str, ...] = ()
    """Those of them that no operation sums: along these the arrays divide the slices, so that each
    makes its own from end to end."""


def axes_of(graph: Graph, op: Op) -> set[str]:
    """The axes of an operation: of its result, and those that it sums."""
    summed = graph.summed(op) if isinstance(op, Einsum) else ()
    return {*graph.tensors[op.out].axes, *summed}


def sliced_axes(
    graph: Graph, p: AcceleratorParameters, *, large: bool = False
) -> Mapping[str, Sliced]:
    """For each contraction that makes or reads a huge tensor, or one that is ``large``, its axes of
    fewer values than lanes that all have which make or read it, and those that hang together with
    them.
    """
    most = (LARGE if large else HUGE) * p.scratchpad_rows
    groups: dict[str, set[str]] = {}
    for op in graph.ops:
        for name in (op.out, *op.operands):
            rows = up(graph.count(name), p.lanes) * graph.tensors[name].digits
            if not isinstance(op, Einsum) or rows <= most:
                continue
            joined = groups.get(op.out, {op.out}) | groups.get(name, {name})
            groups |= dict.fromkeys(joined, joined)
    makers, found = graph.makers, dict[str, Sliced]()
    for name, group in groups.items():
        ops = [makers[one] for one in sorted(group) if one in makers]
        axes = set.intersection(*(axes_of(graph, op) for op in ops))
        cut = frozenset(a for a in axes if 1 < graph.sizes[a] < p.lanes)
        free = set.intersection(*({*graph.tensors[op.out].axes} for op in ops))
        found[name] = Sliced(cut, tuple(sorted(cut & free, key=lambda a: graph.sizes[a] % 2)))
    return found


def sliced_implementations(
    graph: Graph, op: Einsum, p: AcceleratorParameters, axes: frozenset[str]
) -> list[Impl]:
    """As ``implementations``, with these axes neither in tiles nor along lanes; where there are no
    others, with some in PE1's tiles, which can be refitted to slices, or as they are.
    """
    mine = axes & axes_of(graph, op)
    small = replace(graph, sizes={**graph.sizes, **dict.fromkeys(mine, 1)})
    found = [
        replace(impl, cycles=cycles(graph, op, impl, p))
        for impl in implementations(small, op, p)
        if not mine & {*impl.rows, *impl.along, *impl.inner}
    ]
    if found:
        return sorted(found, key=lambda impl: impl.cycles)
    every = implementations(graph, op, p)
    return [i for i in every if i.dot and not mine & {*i.along, *i.inner}] or every

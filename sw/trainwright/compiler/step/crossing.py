"""Say what lies in external memory between the two programs of a step, and what the host writes.

The functions rewrite the graphs of both passes for ``step.compile``: they drop views that the host
can write directly, and find out which tensors may lie in two layouts.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from trainwright.compiler.forms.choices import Given
from trainwright.compiler.forms.layout import Layout
from trainwright.compiler.tile.tile import Lowered
from trainwright.fixed.scale import TensorClass
from trainwright.formats import Fixed
from trainwright.graph.ir import Einsum, Graph, Op, Tensor, View
from trainwright.graph.step import StepGraph


def with_ones(graph: Graph) -> Graph:
    """Return a graph with sums of one tensor written as products with ones.

    Arrays compute products of two only.
    """
    tensors, ops, given = dict(graph.tensors), list[Op](), list(graph.given)
    for op in graph.ops:
        if isinstance(op, Einsum) and len(op.operands) == 1:
            axes = graph.summed(op)
            # One constant for each set of axes: sums over equal axes share it.
            name = f"ones {' '.join(axes)}"
            tensors[name] = Tensor(name, axes, TensorClass.INTERMEDIATE, Fixed(2), constant=(1, 0))
            given += [name] if name not in given else []
            op = replace(op, operands=(name, *op.operands))
        ops.append(op)
    return Graph(graph.sizes, tensors, tuple(ops), tuple(given), graph.results)


def direct(graph: Graph, host: Sequence[str]) -> Graph:
    """Return a graph without views of what the host writes: it writes the views themselves.

    A tensor that also has other readers is written as it is.
    """
    ops, given = [], list(graph.given)
    readers = Counter(name for op in graph.ops for name in op.operands)
    for op in graph.ops:
        # The host writes the axes of the view at no cost; with a second reader it would write both
        # forms.
        if isinstance(op, View) and op.x in host and op.x in given and readers[op.x] == 1:
            given[given.index(op.x)] = op.out
        else:
            ops.append(op)
    return graph.part(ops, given, graph.results)


def may_part(step: StepGraph, origins: Mapping[str, str]) -> set[str]:
    """Return the tensors of the forward pass that may be stored in two layouts.

    Only contractions of the backward pass may read them: each array then reads the part that it
    wrote.
    """
    names = {
        name
        for name, origin in origins.items()
        if name == origin
        and name not in step.forward.results
        and isinstance(step.forward.makers.get(name), Einsum)
    }
    for op in step.backward.ops:
        # Element-wise operations and views read a tensor whole, in one layout.
        if not isinstance(op, Einsum):
            names -= set(op.operands)
    return names


def lying(lowered: Lowered, name: str) -> Given:
    """Return how a tensor lies that a program stores."""
    stored = [outer for outer in lowered.outer.values() if outer.tensor == name]
    # Each stored range is a part; a tensor stored whole has no cut.
    parts = [
        Given(outer.layout, next(((a, *r) for a, r in outer.ranges.items()), None))
        for outer in stored
    ]
    return parts[0] if len(parts) == 1 else Given(parts=tuple(parts))


def viewed(
    backward: Graph, origins: Mapping[str, str], layouts: Mapping[str, Layout]
) -> tuple[Graph, dict[str, str]]:
    """Return the backward pass, and the tensor in memory that each tensor given to it is a view of.

    A view of a tensor whose lanes have an axis that the view lacks cannot be read from memory: it
    becomes an operation of the backward pass.
    """
    sources = {}
    views: list[Op] = []
    for name, origin in origins.items():
        if set(layouts[origin].lanes) <= set(backward.tensors[name].axes):
            sources[name] = origin
        else:
            sources[origin] = origin
            views.append(View(name, origin))
    moved = {op.out for op in views}
    given = dict.fromkeys([*(name for name in backward.given if name not in moved), *sources])
    return backward.part((*views, *backward.ops), given, backward.results), sources

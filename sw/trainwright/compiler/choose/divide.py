"""Divide operations between both arrays along an axis that slices are cut along.

Each array then has slices of its own, and the arrays do not read the same rows at the same time.
``step.drafts`` takes the variants of a cut that come out.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from trainwright.compiler.cut.slices import Stage
from trainwright.compiler.forms.choices import Choice, Work
from trainwright.compiler.forms.impls import Impl
from trainwright.graph.ir import Einsum, Graph

UNEVEN = 0.1
"""Share of an operation that may move to the other array so that the division falls between slices.
"""


def divides(axis: str, impl: Impl) -> bool:
    """Return whether an implementation can have some values of an axis of its result."""
    # Rows of a tile are one even index over their axes. Any axis but the outermost that is cut
    # leaves gaps in it; PE2 takes the rows from one operand's lanes, so none of them can be cut.
    if axis in impl.rows[1:] or (axis in impl.rows and not impl.array.along_lanes):
        return False
    return axis not in impl.along or impl.along == (axis,)


def variants(graph: Graph, stages: Sequence[Stage], lanes: int) -> Iterator[list[Stage]]:
    """Yield the stages unchanged, then with operations divided along axes of slices."""
    yield list(stages)
    for number, stage in enumerate(stages):
        # Innermost first: its slices alternate most often between the arrays.
        for axis, _ in reversed(stage.loops):
            choices = tuple(_along(graph, choice, axis, lanes) for choice in stage.choices)
            if choices != stage.choices:
                new = list(stages)
                new[number] = replace(stage, choices=choices)
                yield new
                break


def _along(graph: Graph, choice: Choice, axis: str, lanes: int) -> Choice:
    """Return an operation divided along an axis, or unchanged where that is impossible."""
    if len(choice.works) != 2 or not isinstance(choice.op, Einsum):
        return choice
    first, second = choice.works
    if not (first.impl and second.impl and first.cut) or first.impl.along != second.impl.along:
        return choice
    impls = first.impl, second.impl
    axes = graph.tensors[choice.op.out].axes
    if first.cut[0] not in axes:  # parts of a sum: their operands lie for one array each
        return choice
    if axis not in axes or not all(divides(axis, impl) for impl in impls):
        return choice
    size, share = graph.sizes[axis], first.cut[2] / graph.sizes[first.cut[0]]
    unit = lanes if axis in first.impl.along else 1
    middle = round(share * size / unit) * unit
    # The arrays were balanced for ``share``: a coarse axis that moves more work than ``UNEVEN``
    # would undo that.
    if not 0 < middle < size or abs(middle / size - share) > UNEVEN:
        return choice
    works = Work(first.impl, (axis, 0, middle)), Work(second.impl, (axis, middle, size))
    return replace(choice, works=works)

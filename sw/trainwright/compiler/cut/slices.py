"""Stages, and the slices in which stages are computed.

A ``Stage``, the result of ``cut``, has operations and loops. The functions here prepare a stage for
``tile``: the ranges of each slice, sums in parts, and tiles of rows that fill the slices.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product, zip_longest
from math import prod

from trainwright.compiler.forms.choices import Choice
from trainwright.compiler.forms.impls import Impl, even, runs, up
from trainwright.compiler.forms.layout import CutError, Ranges
from trainwright.graph.ir import Cell, Einsum, Graph
from trainwright.graph.network import SAMPLES, SEQUENCES
from trainwright.parameters import AcceleratorParameters


@dataclass(frozen=True)
class Stage:
    """Operations that are computed together, one slice of their results at a time.

    ``loops`` are the axes that are cut, each with its number of values in a slice, outermost first.
    """

    choices: tuple[Choice, ...]
    loops: tuple[tuple[str, int], ...] = ()
    together: int = 1
    """Slices for which an operation is computed before the next operation begins.

    With two, the arrays can read different slices of a tensor that both need.
    """
    kept: tuple[tuple[str, int], ...] = ()
    """Tensors of external memory, each with the number of outer loops whose iteration keeps it
    loaded.

    A tensor that is not listed is loaded again whenever a slice needs other values of it.
    """
    blocked: bool = False
    """Whether the stage is computed for one block of samples after the other.

    Neighbouring blocked stages share the loop over the blocks.
    """

    @property
    def results(self) -> set[str]:
        """Tensors that the stage computes."""
        return {choice.op.out for choice in self.choices}


Block = tuple[int, int]
"""Block of samples: the first sample, and the one after the last."""


def block_axis(graph: Graph) -> str:
    """Return the axis that blocks divide: sequences, or samples if the graph has no sequences."""
    return SEQUENCES if SEQUENCES in graph.sizes else SAMPLES


def overlap(first: Ranges, second: Ranges) -> dict[str, tuple[int, int]] | None:
    """Return the intersection of ranges; ``None`` if it is empty."""
    common = dict(first)
    for axis, (lo, hi) in second.items():
        a, b = common.get(axis, (lo, hi))
        common[axis] = max(a, lo), min(b, hi)
        if common[axis][0] >= common[axis][1]:
            return None
    return common


def slices_of(
    graph: Graph, stage: Stage, lanes: int, block: Block | None = None
) -> Iterator[dict[str, tuple[int, int]]]:
    """Yield the slices of a stage, restricted to the samples of ``block`` if one is given.

    If the arrays divide an axis, their slices alternate.
    """
    loops = [chunks_of(graph, stage, axis, step, lanes, block) for axis, step in stage.loops]
    for chunks in product(*loops):
        yield {**({block_axis(graph): block} if block else {}), **dict(chunks)}


def chunks_of(
    graph: Graph, stage: Stage, axis: str, step: int, lanes: int, block: Block | None = None
) -> list[tuple[str, tuple[int, int]]]:
    """Return the parts of an axis; no part crosses a place where the arrays divide the axis."""
    first, stop = block if block and axis == block_axis(graph) else (0, graph.sizes[axis])
    cuts = {w.cut[1] for c in stage.choices for w in c.works if w.cut and w.cut[0] == axis}
    edges = sorted({first, stop, *cuts})
    parts = []
    for lo, hi in pairwise(edges):
        unit = lanes if (lo % lanes, step % lanes) == (0, 0) else 1
        # Equal parts rather than full parts and a short rest, which would cost a start like them.
        count = up(hi - lo, step)
        each = up(up(hi - lo, count), unit) * unit
        parts.append([(axis, (n, min(n + each, hi))) for n in range(lo, hi, each)])
    # Interleaved, so that both arrays have work from the first slices on.
    return [part for round_ in zip_longest(*parts) for part in round_ if part]


def divided_sum(graph: Graph, choice: Choice, stage: Stage) -> list[tuple[str, tuple[int, int]]]:
    """Return the parts of a summed axis that the arrays divide, in order, or an empty list.

    The list is empty if no sum is divided, or if slices already cut the axis.
    """
    summed = graph.summed(choice.op)
    cuts = [work.cut for work in choice.works if work.cut]
    return [(a, (lo, hi)) for a, lo, hi in cuts if a in summed and a not in dict(stage.loops)]


def in_parts(graph: Graph, stage: Stage, lanes: int, blocks: Sequence[Block] = ()) -> Stage:
    """Return the stage with sums in parts wherever its slices or ``blocks`` of samples cut them.

    ``Einsum.parts`` records the cells in the order of computation: the rounding of each part is
    part of the result's definition, so the graph, the golden model and the hardware all need it.
    """
    choices, along = [], block_axis(graph)
    for choice in stage.choices:
        summed = graph.summed(choice.op)
        # Each block adds its own parts to a sum over samples, which is complete only after the last
        # block. Other sums are complete in each block, and have the same parts in all of them.
        cells: dict[Cell, None] = {}
        for block in blocks if stage.blocked else (None,):
            cut = [
                chunks_of(graph, stage, axis, step, lanes, block)
                for axis, step in stage.loops
                if axis in summed
            ]
            if block and along in summed and along not in dict(stage.loops):
                cut.insert(0, [(along, block)])
            if both := divided_sum(graph, choice, stage):
                cut.append(both)
            cells |= dict.fromkeys(product(*cut) if cut else ())
        if len(cells) > 1 and isinstance(choice.op, Einsum):
            choice = replace(choice, op=replace(choice.op, parts=tuple(cells)))
        choices.append(choice)
    return replace(stage, choices=tuple(choices))


def refitted(
    graph: Graph, stage: Stage, p: AcceleratorParameters, blocks: Sequence[Block] = ()
) -> Stage:
    """Return the stage with tiles whose rows suit the slices."""
    block = {block_axis(graph): blocks[0][1] - blocks[0][0]} if blocks and stage.blocked else {}
    choices = []
    for choice in stage.choices:
        works = []
        for work in choice.works:
            if work.impl and work.impl.array.along_lanes:
                # Tiles were chosen for whole axes; a slice of an axis may fill a tile badly.
                sizes = dict(graph.sizes) | block | dict(stage.loops)
                if work.cut:
                    sizes[work.cut[0]] = min(sizes[work.cut[0]], work.cut[2] - work.cut[1])
                work = replace(work, impl=_rows_of(graph, work.impl, sizes, p))
            works.append(work)
        choices.append(replace(choice, works=tuple(works)))
    return replace(stage, choices=tuple(choices))


def _rows_of(graph: Graph, impl: Impl, sizes: Mapping[str, int], p: AcceleratorParameters) -> Impl:
    """Return the implementation with the rows that fill tiles best. Raises ``CutError``."""
    unit = impl.array.rows(p)
    z = graph.tensors[impl.z].axes
    other = graph.tensors[impl.g].axes
    free = tuple(a for a in graph.tensors[impl.x].axes if a in z and a not in other)
    candidates = [impl, *(replace(impl, rows=rows) for rows in runs(free, sizes, unit))]
    sliced = replace(graph, sizes=sizes)
    fitting = [tiled for tiled in candidates if even(sliced, tiled)]
    if not fitting:
        raise CutError(f"no rows of a slice of {impl.z} lie evenly for {impl.engine.name}")
    return min(fitting, key=lambda i: up(size := prod(sizes[a] for a in i.rows), unit) / size)

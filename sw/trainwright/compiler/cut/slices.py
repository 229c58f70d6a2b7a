"""Stages and their slices: the ranges of each, sums in parts, and tiles that suit them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product, zip_longest
from math import prod

from trainwright.compiler.forms.choices import Choice
from trainwright.compiler.forms.impls import Impl, even, runs, up
from trainwright.compiler.forms.layout import CutError, Ranges
from trainwright.graph.ir import Cell, Einsum, Graph
from trainwright.graph.network import SAMPLES
from trainwright.parameters import AcceleratorParameters


@dataclass(frozen=True)
class Stage:
    """Operations that are computed for a slice of their results at a time.

    ``loops`` are axes and how many values a slice has, outermost first.
    """

    choices: tuple[Choice, ...]
    loops: tuple[tuple[str, int], ...] = ()
    together: int = 1
    """Slices of which each operation is computed before the next: then the arrays can read
    different slices of what they both need."""
    kept: tuple[tuple[str, int], ...] = ()
    """Tensors of outer memory, and how many of the loops there are, from the outermost, in an
    iteration of which what is loaded stays; others are loaded again where a slice is another."""
    blocked: bool = False
    """Whether it is computed for one block of samples after the other, with its neighbours of which
    the same is so."""


Block = tuple[int, int]
"""Samples that are computed before others: the first, and the one after the last."""


def overlap(first: Ranges, second: Ranges) -> dict[str, tuple[int, int]] | None:
    """The values within both; ``None`` where there are none."""
    found = dict(first)
    for axis, (lo, hi) in second.items():
        a, b = found.get(axis, (lo, hi))
        found[axis] = max(a, lo), min(b, hi)
        if found[axis][0] >= found[axis][1]:
            return None
    return found


def slices_of(
    graph: Graph, stage: Stage, lanes: int, block: Block | None = None
) -> Iterator[dict[str, tuple[int, int]]]:
    """The slices, those of both arrays in turn where an axis is divided between them; with a
    ``block``, those of its samples.
    """
    loops = [chunks_of(graph, stage, axis, step, lanes, block) for axis, step in stage.loops]
    for one in product(*loops):
        yield {**({SAMPLES: block} if block else {}), **dict(one)}


def chunks_of(
    graph: Graph, stage: Stage, axis: str, step: int, lanes: int, block: Block | None = None
) -> list[tuple[str, tuple[int, int]]]:
    """The parts of an axis: none across a place where the arrays divide it."""
    first, stop = block if block and axis == SAMPLES else (0, graph.sizes[axis])
    cuts = {w.cut[1] for c in stage.choices for w in c.works if w.cut and w.cut[0] == axis}
    edges = sorted({first, stop, *cuts})
    parts = []
    for lo, hi in pairwise(edges):
        unit = lanes if (lo % lanes, step % lanes) == (0, 0) else 1
        count = up(hi - lo, step)
        each = up(up(hi - lo, count), unit) * unit
        parts.append([(axis, (n, min(n + each, hi))) for n in range(lo, hi, each)])
    return [one for some in zip_longest(*parts) for one in some if one]


def divided_sum(graph: Graph, choice: Choice, stage: Stage) -> list[tuple[str, tuple[int, int]]]:
    """The parts of an axis that is summed, each by one array, in order; nothing where the arrays
    do not divide a sum, or slices along this axis do.
    """
    summed = graph.summed(choice.op) if isinstance(choice.op, Einsum) else ()
    cuts = [work.cut for work in choice.works if work.cut]
    return [(a, (lo, hi)) for a, lo, hi in cuts if a in summed and a not in dict(stage.loops)]


def in_parts(graph: Graph, stage: Stage, lanes: int, blocks: Sequence[Block] = ()) -> Stage:
    """The stage with the parts of the sums that it cuts; ``blocks`` of samples cut those over
    samples, too.
    """
    choices = []
    for choice in stage.choices:
        summed = graph.summed(choice.op) if isinstance(choice.op, Einsum) else ()
        cells: list[Cell] = []
        for block in blocks if stage.blocked else (None,):
            cut = [
                chunks_of(graph, stage, axis, step, lanes, block)
                for axis, step in stage.loops
                if axis in summed
            ]
            if block and SAMPLES in summed and SAMPLES not in dict(stage.loops):
                cut.insert(0, [(SAMPLES, block)])
            if both := divided_sum(graph, choice, stage):
                cut.append(both)
            cells += product(*cut) if cut else ()
        if len(cells) > 1 and isinstance(choice.op, Einsum):
            choice = replace(choice, op=replace(choice.op, parts=tuple(cells)))
        choices.append(choice)
    return replace(stage, choices=tuple(choices))


def refitted(
    graph: Graph, stage: Stage, p: AcceleratorParameters, blocks: Sequence[Block] = ()
) -> Stage:
    """The stage with the rows of PE1's tiles that suit its slices."""
    whole = {SAMPLES: blocks[0][1] - blocks[0][0]} if blocks and stage.blocked else {}
    choices = []
    for choice in stage.choices:
        works = []
        for work in choice.works:
            if work.impl and work.impl.dot:
                sizes = dict(graph.sizes) | whole | dict(stage.loops)
                if work.cut:
                    sizes[work.cut[0]] = min(sizes[work.cut[0]], work.cut[2] - work.cut[1])
                work = replace(work, impl=_rows_of(graph, work.impl, sizes, p))
            works.append(work)
        choices.append(replace(choice, works=tuple(works)))
    return replace(stage, choices=tuple(choices))


def _rows_of(graph: Graph, impl: Impl, sizes: Mapping[str, int], p: AcceleratorParameters) -> Impl:
    """The implementation with the rows that fill tiles best. Raises ``CutError`` where none do."""
    z = graph.tensors[impl.z].axes
    other = graph.tensors[impl.g].axes
    free = tuple(a for a in graph.tensors[impl.x].axes if a in z and a not in other)
    best = [impl, *(replace(impl, rows=rows) for rows in runs(free, sizes, p.pe1_rows))]
    sliced = replace(graph, sizes=sizes)
    fitting = [one for one in best if even(sliced, one)]
    if not fitting:
        raise CutError(f"no rows of a slice of {impl.z} lie evenly for PE1's array")
    return min(fitting, key=lambda one: up(size := prod(sizes[a] for a in one.rows),
                                           p.pe1_rows) / size)  # fmt: skip

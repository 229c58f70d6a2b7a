"""Transfers that the emitter makes of a move: which row of outer memory goes to which local row."""

import random
from dataclasses import replace
from itertools import product
from math import prod

import numpy as np
import pytest
from folded import each

from trainwright.compiler.base.memory import Buffer
from trainwright.compiler.emit.emit import Emitter
from trainwright.compiler.forms.calls import Elementwise, Move
from trainwright.compiler.forms.external import External
from trainwright.compiler.forms.layout import ROW, Layout, Part, Piece, Storage, counts_of
from trainwright.compiler.forms.nests import nests
from trainwright.fixed.scale import TensorClass
from trainwright.formats import Fixed
from trainwright.graph.ir import Graph, Tensor
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Halt, Transfer
from trainwright.program.fields import COUNT_WIDTH, TRANSFER_LEVELS, Engine, Operation

LANES, BASE, ADDRESS = 4, 100, 4096
P = AcceleratorParameters(lanes=LANES, pe1_rows=2, pe2_rows=2, scratchpad_rows=1 << 17)


def emitted(sizes, here, outside, ranges, *, load, element_bytes=2, digits=1):
    """Emit the transfers of ``ranges`` of a tensor between two layouts.

    ``here`` and ``outside`` are (layout, ranges of the values that have rows).
    """
    layout, cut = here
    counts = counts_of((*layout.rows, *layout.lanes), sizes, cut)
    storage = Storage("t", 0)
    piece = Piece("t", layout, counts, cut, LANES, storage, digits=digits)
    axes = (*layout.rows, *layout.lanes)
    graph = Graph(sizes, {"t": Tensor("t", axes, TensorClass.ACTIVATION, Fixed(8))}, (), ("t",), ())
    outer = External.of(graph, "t", *outside, LANES, digits=digits)
    outer = replace(outer, element_bytes=element_bytes)
    rows = len(literal(sizes, outside, {}, digits))
    buffer = Buffer(outer.name, ADDRESS, (rows, LANES), element_bytes)
    emitter = Emitter(graph, P, {outer.name: buffer})
    engine = Engine.LOAD if load else Engine.STORE
    part = (Part(piece, ranges),)
    touched = {"writes": part} if load else {"reads": part}
    move = Move(engine=engine, cycles=0, outer=outer, **touched)
    emitter.run([move], {storage: BASE})
    *transfers, end = emitter.descriptors
    assert isinstance(end, Halt)
    return transfers


def literal(sizes, lies, ranges, digits):
    """List the rows of ``ranges`` in the order of the axes by name, blocks and digits."""
    layout, cut = lies
    counts = counts_of((*layout.rows, *layout.lanes), sizes, cut)
    blocks = -(-prod(counts[a] for a in layout.lanes) // LANES)
    shape = [counts[a] for a in layout.rows]
    rows = np.arange(prod(shape) * blocks * digits).reshape(*shape, blocks, digits)
    for n, axis in enumerate(layout.rows):
        low, high = ranges.get(axis, cut.get(axis, (0, sizes[axis])))
        first = cut.get(axis, (0, 0))[0]
        rows = rows.take(range(low - first, high - first), axis=n)
    order = [layout.rows.index(axis) for axis in sorted(layout.rows)]
    return rows.transpose(*order, len(shape), len(shape) + 1).ravel()


def walked(transfers, element_bytes):
    """List pairs (row of outer memory, local row) in order of the former."""
    row_bytes, pairs = LANES * element_bytes, []
    for d in transfers:
        assert isinstance(d, Transfer) and len(d.levels) <= TRANSFER_LEVELS
        assert d.beats < 1 << COUNT_WIDTH and d.element_bytes == element_bytes
        for index in product(*(range(level.count) for level in d.levels)):
            address = d.address + sum(
                n * level.address for n, level in zip(index, d.levels, strict=True)
            )
            local = d.local + sum(n * level.local for n, level in zip(index, d.levels, strict=True))
            rows, rest = divmod(d.beats * P.beat_bytes, row_bytes)
            assert rest == (address - ADDRESS) % row_bytes == 0
            first = (address - ADDRESS) // row_bytes
            pairs += [(first + n, local + n) for n in range(rows)]
    return sorted(pairs)


def wanted(sizes, here, outside, ranges, digits=1):
    far, near = (literal(sizes, lies, ranges, digits) for lies in (outside, here))
    return sorted(zip(far.tolist(), (BASE + near).tolist(), strict=True))


@each("seed", range(60))
def test_rows_go_where_both_layouts_say(seed):
    """Whole tensors and parts of them, in one layout or from one to another."""
    rng = random.Random(seed)
    rows = tuple("abcd"[: rng.randint(1, 4)])
    sizes = {axis: rng.randint(1, 4) for axis in rows} | {"l": rng.randint(1, 9)}

    def cut(spans):
        cuts = {}
        for axis, (low, high) in spans.items():
            first = rng.randint(low, high - 1)
            cuts[axis] = (first, rng.randint(first + 1, high))
        return cuts

    whole = {axis: (0, sizes[axis]) for axis in rows}
    far = cut({axis: whole[axis] for axis in rows if rng.random() < 0.3})
    near = cut({axis: far.get(axis, whole[axis]) for axis in rows if rng.random() < 0.4})
    inside = {**whole, **far, **near}
    ranges = {**near, **cut({axis: inside[axis] for axis in rows if rng.random() < 0.4})}
    ranges = {axis: ranges.get(axis, inside[axis]) for axis in {*near, *far, *ranges}}
    order = tuple(rng.sample(rows, len(rows))) if rng.random() < 0.6 else rows
    here, outside = (Layout(order, ("l",)), near), (Layout(rows, ("l",)), far)
    digits, bytes_ = rng.choice((1, 1, 2)), rng.choice((1, 2))
    load = rng.random() < 0.5
    descriptors = emitted(
        sizes, here, outside, ranges, load=load, element_bytes=bytes_, digits=digits
    )
    assert {d.operation for d in descriptors} == {Operation.LOAD if load else Operation.STORE}
    assert walked(descriptors, bytes_) == wanted(sizes, here, outside, ranges, digits)


def test_emitter_whole_tensor_in_one_layout_is_one_run():
    sizes = {"a": 6, "b": 5, "l": 8}
    lies = Layout(("a", "b"), ("l",)), {}
    (d,) = emitted(sizes, lies, lies, {}, load=True)
    assert d.levels == () and d.beats == 6 * 5 * 2 * 2


@pytest.mark.parametrize(("count", "runs"), [(32767, 1), (40000, 2)])
def test_runs_that_are_too_long_to_count_are_several(count, runs):
    """Two beats a row: a descriptor counts 65,535."""
    sizes = {"a": count, "l": 3}
    lies = Layout(("a",), ("l",)), {}
    descriptors = emitted(sizes, lies, lies, {}, load=False)
    assert sum(d.runs for d in descriptors) == runs
    assert walked(descriptors, 2) == [(n, BASE + n) for n in range(count)]


@pytest.mark.parametrize(
    ("counts", "levels"),
    [((6, 5), [30]), ((6, 5, 4), [120]), ((255, 257), [65535]), ((256, 256), [256, 256])],
)
def test_axes_that_go_on_evenly_are_one_level(counts, levels):
    """A level holds as many steps as its counter can count."""
    layout = Layout(tuple("abc"[: len(counts)]), ("l",))
    sizes = {**dict(zip(layout.rows, counts, strict=True)), "l": LANES}
    x, z = (Part(Piece("t", layout, sizes, {}, LANES, Storage("t", 0)), {}) for _ in range(2))
    zeros = Part(Piece.new("zeros", ROW, {"row": 1, "lane": LANES}, {}, LANES), {})
    bases = (0, 1 << 18, 1 << 19)
    at = {part.piece.storage: base for part, base in zip((x, z, zeros), bases, strict=True)}
    copy = Elementwise(engine=Engine.PE2, cycles=0, reads=(x, zeros), writes=(z,), broadcast=True)
    (d,) = nests(copy, AcceleratorParameters(), at)
    assert [level.count for level in d.levels] == levels
    assert d.levels[-1].x == d.levels[-1].z == 1

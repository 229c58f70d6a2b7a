"""Shared by both contraction orders backward: sums over slices, outputs for the factors' chains."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import prod

from trainwright.compiler.blocks import Block
from trainwright.compiler.builder import Builder, Written
from trainwright.compiler.layout import storage_bytes
from trainwright.compiler.memory import Region
from trainwright.compiler.merged import Split
from trainwright.compiler.names import right_name
from trainwright.compiler.workspace import Operand, Workspace
from trainwright.fixed.scale import TensorClass
from trainwright.formats import Posit
from trainwright.program.descriptors import TransferLevel
from trainwright.program.fields import TRANSFER_LEVELS

SubAxes = list[tuple[str, int]]
"""Names and sizes of the axes that one axis is split into, outermost first."""


def left_target(split: Split) -> str:
    """Buffer of the gradient of Left: (j_1, i_1, .., j_m, i_m, k), or the first factor's own."""
    n = split.bond
    return right_name(split.number + 1, n) if n > 1 else split.name("dG1")


def right_level(split: Split, n: int) -> str:
    """Gradient of Right with factors n + 1 .. d contracted: (k, j_{m+1}, i_{m+1}, .., j_n, i_n)."""
    return split.name(f"d{n}") if n > split.bond + 1 else split.name(f"dG{n}")


class RunningSum:
    """The sum of parts that are made one after the other: one tensor.

    Two parts are held: one is added, by PE2, while the next is made. Parts and sums have as many
    bits as a word of the scratchpad; gradients of a posit, or of a byte, are rounded to that with
    the last part. ``banks`` are those of the parts and of the sum.
    """

    def __init__(
        self,
        w: Workspace,
        name: str,
        count: int,
        parts: int,
        *,
        banks: tuple[int, int],
        **sizes: int,
    ):
        self.w, self.parts, self._added = w, parts, 0
        kind, fmt = TensorClass.GRADIENT, w.b.formats.of_class(TensorClass.GRADIENT)
        narrow = isinstance(fmt, Posit) or storage_bytes(fmt.width) == 1
        self._last = partial(w.written, name, kind, fmt.width, count) if narrow else None
        wide = partial(w.written, kind=kind, width=w.p.word_width, count=count * parts, fixed=True)
        whole = name if parts == 1 else f"{name}.part"
        self.part = self._last() if parts == 1 and self._last else wide(whole)
        self._blocks = [w.block(whole, bank=banks[0], **sizes) for _ in range(min(2, parts))]
        self.total: Written = self.part
        if parts > 1:
            self.total = wide(f"{name}.sum" if narrow else name)
            self._sum = w.block(name, bank=banks[1], **sizes)

    def block(self, t: int) -> Block:
        """Where part ``t`` is to be written."""
        return self._blocks[t % 2]

    def add(self, t: int) -> None:
        """Add part ``t``, which is complete; parts are added in order."""
        assert t == self._added
        self._added += 1
        if self.parts == 1:
            return
        part = Operand(self.block(t), self.part.name, self.part.width)
        sofar = Operand(self._sum, self.total.name, self.total.width)
        if t == 0:
            part, sofar = part.view(self.w.zero), part
        if self._last and self._added == self.parts:
            self.total = self._last()
        self.w.bias(sofar, part, self._sum, self.total, relu=False)

    @property
    def result(self) -> Operand:
        """The sum of all parts."""
        assert self._added == self.parts
        block = self._blocks[0] if self.parts == 1 else self._sum
        return Operand(block, self.total.name, self.total.width)

    def last(self) -> Block:
        """The block of the sum, all other rows given back."""
        result = self.result.block
        self.w.free(*(block for block in self._blocks if block is not result))
        return result

    def free(self) -> None:
        """Give all rows back."""
        self.w.free(*self._blocks, *([self._sum] if self.parts > 1 else []))


def _move_strided(
    move: Callable[..., None],
    w: Workspace,
    name: str,
    block: Block,
    strides: Mapping[str, int],
    offset: int = 0,
) -> None:
    """Move rows of ``block`` from or to row ``offset`` plus index x ``strides`` of a buffer."""
    buffer = w.memory.buffers[name]
    row_bytes = buffer.element_bytes * w.p.lanes
    axes = sorted((a for a in block.axes if a.size > 1), key=lambda a: -strides[a.name])
    run = 1
    while axes and axes[-1].stride == run == strides[axes[-1].name]:
        run *= axes.pop().size
    outer, levels = axes[:-TRANSFER_LEVELS], axes[-TRANSFER_LEVELS:]

    def emit(rest: Sequence, local: int, first: int) -> None:
        if rest:
            for index in range(rest[0].size):
                step = strides[rest[0].name]
                emit(rest[1:], local + index * rest[0].stride, first + index * step)
            return
        move(
            w.b,
            replace(buffer, address=buffer.address + first * row_bytes),
            Region(name, local, run),
            run,
            levels=[TransferLevel(a.size, strides[a.name] * row_bytes, a.stride) for a in levels],
        )

    emit(outer, block.base, offset)


store_strided = partial(_move_strided, Builder.store)
load_strided = partial(_move_strided, Builder.load)


def row_major(sizes: Sequence[tuple[str, int]]) -> dict[str, int]:
    """Rows from one value of an axis to the next, outermost first."""
    strides, stride = {}, 1
    for name, size in reversed(sizes):
        strides[name] = stride
        stride *= size
    return strides


def _sub_ranges(first: int, count: int, sizes: Sequence[int]) -> list[tuple[int, int]]:
    """``count`` values from ``first`` of an index made of sub-axes: (start, count) on each.

    ``count`` must be some values of one sub-axis and all of those inside it.
    """
    ranges, inner = [], prod(sizes)
    for size in sizes:
        inner //= size
        start, rest = divmod(first, inner)
        some = max(1, count // inner)
        assert count % inner == 0 or inner % count == 0, (first, count, sizes)
        assert start + some <= size, (first, count, sizes)
        ranges.append((start, some))
        first, count = rest, min(count, inner)
    return ranges


def ordered_left(w: Workspace, split: Split, left: Operand) -> Block:
    """The gradient of Left (p, u, k/) in the order of its factors' chains, as a new block."""
    layer, m = split.layer, split.bond
    js = [(f"j{n}", layer.outputs[n]) for n in range(m)]
    iz = [(f"i{n}", layer.inputs[n]) for n in range(m)]
    sizes = dict([*_pairs(js, iz), ("k/", left.block.size("k/"))])
    z = w.block(left_target(split), **sizes)
    w.copy(left.view(left.block.split("p", js).split("u", iz)), z, left_target(split))
    return z


def ordered_right(w: Workspace, split: Split, right: Operand) -> Block:
    """The gradient of Right (k, q, v/) in the order of its factors' chains, as a new block."""
    z = right_block(w, split)
    name = right_level(split, split.layer.order)
    w.copy(right.view(by_sub_axes(w, split, right.block, 0)), z, name)
    return z


def right_block(w: Workspace, split: Split, *, bank: int | None = None) -> Block:
    """Rows for the gradient of Right (k, j_{m+1}, i_{m+1}, .., j_d, i_d/)."""
    sizes = dict([("k", split.k), *_pairs(*_right_sub_axes(split, w.p.lanes))])
    return w.block(right_level(split, split.layer.order), bank=bank, **sizes)


def right_slice(w: Workspace, split: Split, z: Block, q: int, count: int) -> Block:
    """The values from ``q`` of a block of ``right_block``: axes k, and those of q and of v."""
    js, _ = _right_sub_axes(split, w.p.lanes)
    ranges = _sub_ranges(q, count, [size for _, size in js])
    for (name, _), (start, some) in zip(js, ranges, strict=True):
        z = z.part(name, start, some)
    return z


def by_sub_axes(w: Workspace, split: Split, x: Block, q: int) -> Block:
    """``x`` with axes q, from ``q``, and v/ by the sub-axes of ``right_block``."""
    js, iz = _right_sub_axes(split, w.p.lanes)
    ranges = _sub_ranges(q, x.size("q"), [size for _, size in js])
    parts = [(name, some) for (name, _), (_, some) in zip(js, ranges, strict=True)]
    return x.split("q", parts).split("v/", iz)


def _right_sub_axes(split: Split, lanes: int) -> tuple[SubAxes, SubAxes]:
    layer, m, d = split.layer, split.bond, split.layer.order
    inputs = [*layer.inputs[m : d - 1], layer.inputs[-1] // lanes]
    js = [(f"j{n}", layer.outputs[n]) for n in range(m, d)]
    return js, [(f"i{n}", size) for n, size in zip(range(m, d), inputs, strict=True)]


def _pairs(js: SubAxes, iz: SubAxes) -> SubAxes:
    """j_1, i_1, j_2, i_2 .."""
    return [axis for pair in zip(js, iz, strict=True) for axis in pair]


def bias_gradient(w: Workspace, split: Split, dy: Operand, batch: int) -> None:
    """Sum of the gradient (j, s/) over the batch, by PE1's array."""
    layer, lanes = split.layer, w.p.lanes
    tensor = w.written(
        split.name("db"), TensorClass.GRADIENT, split.network.widths.gradient, layer.output_size
    )
    rows = dy.block.size("s/")
    ones = Block(w.ones.base, (*w.ones.axes, *Block.dense(Region("", 0, rows), s_=rows).axes))
    ones = Block(ones.base, tuple(replace(a, stride=0) if a.name == "s/" else a for a in ones.axes))
    z = w.block(tensor.name, one=1, j_=layer.output_size // lanes)
    w.dot(
        Operand(ones, "", 2),
        dy,
        z,
        tensor,
        rows="one",
        entries="j",
        summed=("s/",),
        macs=layer.output_size * batch,
    )
    w.store_later(tensor.name, w.taken(z))

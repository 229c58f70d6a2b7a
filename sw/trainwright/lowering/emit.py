"""From commands with addresses to descriptors, with what each has to wait for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from trainwright.compiler.hazards import exact_hazards
from trainwright.compiler.limits import MOST_COUNT, require_accumulator
from trainwright.compiler.memory import Buffer, largest_divisor
from trainwright.compiler.nests import fitted
from trainwright.graph.ir import Add, Graph
from trainwright.lowering.calls import (
    Accumulate,
    Call,
    Clear,
    Contract,
    Copy,
    Elementwise,
    External,
    Move,
    Transpose,
)
from trainwright.lowering.impls import up
from trainwright.lowering.layout import CutError, Part, Piece, Storage
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import (
    Compute,
    Descriptor,
    Halt,
    Level,
    Transfer,
    TransferLevel,
)
from trainwright.program.fields import ENGINE_OF, TRANSFER_LEVELS, Operation, Target
from trainwright.program.footprint import Touch, footprint

MEMORY = "memory"
COPIES = "copies"
"""The name of the statistics of copies and of parts of sums, which nobody reads."""


@dataclass(frozen=True)
class Made:
    """What a descriptor makes: its tensor; the operation's own tensors are in the graph."""

    tensor: str
    exact: bool = False
    """A copy of the tensor, or two parts of it added: both at its exponent."""


def _merged(levels: Sequence[Level], tile: Level | None = None) -> list[Level]:
    """Fewer levels for the same addresses, in another order; the tile level stays."""
    found = [level for level in levels if level.count > 1 or level is tile]
    again = True
    while again:
        again = False
        for outer in found:
            for inner in found:
                if outer is inner or tile in (outer, inner):
                    continue
                steps = ((outer.x, inner.x), (outer.g, inner.g), (outer.z, inner.z))
                if all(a == b * inner.count for a, b in steps) and (
                    outer.count * inner.count <= MOST_COUNT
                ):
                    joined = replace(inner, count=outer.count * inner.count)
                    found = [v for v in found if v is not outer]
                    found = [joined if v is inner else v for v in found]
                    again = True
                    break
            if again:
                break
    return found


def _address(part: Part) -> int:
    base = part.piece.storage.base
    assert base >= 0, part.piece.tensor
    return base + part.offset


def _joint(part: Part, axes: tuple[str, ...]) -> int:
    stride = part.joint(axes)
    if stride is None:
        piece = part.piece
        raise CutError(f"{piece.tensor} has no even index {axes} in {piece.layout.text}")
    return stride


def _nest(
    operation: Operation,
    outer: list[Level],
    tile: Level,
    summed: list[Level],
    **fields: Any,
) -> Compute:
    free = _merged([*outer, tile], tile)
    reduction = _merged(summed)
    return Compute(
        operation=operation,
        levels=(*free, *reduction),
        reduce_levels=len(reduction),
        tile_level=next(n for n, level in enumerate(free) if level is tile),
        **fields,
    )


def outer_nest(call: Contract, p: AcceleratorParameters) -> Compute:
    """PE2's array."""
    x, g, z, impl = call.x, call.g, call.z, call.impl
    groups = p.lanes // p.pe2_rows
    count = prod(z.counts[a] for a in impl.rows)
    tiles, step = up(count, p.pe2_rows), _joint(z, impl.rows)
    outer = [
        Level(z.counts[a], x=x.stride(a), g=g.stride(a) * groups, z=z.stride(a))
        for a in z.piece.layout.rows
        if a not in impl.rows
    ]
    outer.append(Level(z.blocks, x=1, z=1))
    tile = Level(tiles, g=1, z=p.pe2_rows * step)
    summed = [
        Level(x.counts[a], x=x.stride(a), g=g.stride(a) * groups)
        for a in x.counts
        if a not in z.counts
    ]
    return _nest(
        Operation.PE3, outer, tile, summed,
        x=_address(x), g=_address(g) * groups, z=_address(z),
        last_rows=count - (tiles - 1) * p.pe2_rows, z_row_stride=step,
    )  # fmt: skip


def dot_nest(call: Contract, p: AcceleratorParameters) -> Compute:
    """PE1's array."""
    x, g, z, impl = call.x, call.g, call.z, call.impl
    count = prod(z.counts[a] for a in impl.rows)
    tiles, from_, to = up(count, p.pe1_rows), _joint(x, impl.rows), _joint(z, impl.rows)
    entry = _joint(g, impl.along)
    outer = [
        Level(z.counts[a], x=x.stride(a), g=g.stride(a), z=z.stride(a))
        for a in z.piece.layout.rows
        if a not in impl.rows
    ]
    outer.append(Level(z.blocks, g=p.lanes * entry, z=1))
    tile = Level(tiles, x=p.pe1_rows * from_, z=p.pe1_rows * to)
    summed = [
        Level(x.counts[a], x=x.stride(a), g=g.stride(a))
        for a in x.counts
        if a not in z.counts and a not in impl.inner
    ]
    summed.append(Level(x.blocks, x=1, g=1))
    return _nest(
        Operation.PE4, outer, tile, summed,
        x=_address(x), g=_address(g), z=_address(z),
        last_rows=count - (tiles - 1) * p.pe1_rows,
        x_row_stride=from_, z_row_stride=to, g_row_stride=entry,
    )  # fmt: skip


def transpose_nests(call: Transpose, identity: Piece, p: AcceleratorParameters) -> list[Compute]:
    """PE1's array with the identity: whole rows of lanes of the operand, then the last one."""
    x, z = call.x, call.z
    old, new = x.piece.layout.lanes, z.piece.layout.lanes
    entry, step = _joint(x, new), _joint(z, old)
    whole, rest = divmod(prod(x.counts[a] for a in old), p.lanes)
    others = [
        Level(z.counts[a], g=x.stride(a), z=z.stride(a))
        for a in z.piece.layout.rows
        if a not in old
    ]
    others.append(Level(z.blocks, g=p.lanes * entry, z=1))
    found = []
    for first, blocks, rows in ((0, whole, p.lanes), (whole, 1, rest)):
        if not blocks or not rows:
            continue
        tiles = up(rows, p.pe1_rows)
        tile = Level(tiles, x=p.pe1_rows, z=p.pe1_rows * step)
        found.append(
            _nest(
                Operation.PE4, [*others, Level(blocks, g=1, z=p.lanes * step)], tile, [],
                x=identity.storage.base, g=_address(x) + first,
                z=_address(z) + first * p.lanes * step,
                last_rows=rows - (tiles - 1) * p.pe1_rows,
                x_row_stride=1, z_row_stride=step, g_row_stride=entry,
            )
        )  # fmt: skip
    return found


def elementwise_nest(call: Elementwise) -> Compute:
    """PE2's array, a row a cycle."""
    x, g, z = call.x, call.g, call.z
    first, blocks = call.blocks
    levels = [
        Level(z.counts[a], x=x.stride(a), g=g.stride(a), z=z.stride(a)) for a in z.piece.layout.rows
    ]
    levels.append(Level(blocks, x=1, g=0 if call.broadcast else 1, z=1))
    levels = _merged(levels) or [Level(1)]
    add = isinstance(call.op, Add)
    return Compute(
        operation=Operation.BIAS if add else Operation.MASK,
        levels=tuple(levels),
        x=_address(x) + first,
        g=_address(g) + (0 if call.broadcast else first),
        z=_address(z) + first,
        relu=isinstance(call.op, Add) and call.op.relu,
    )


def copy_nest(call: Copy) -> Compute:
    """PE2's array: the operand and a row of zeros, a row a cycle."""
    x, z = call.x, call.z
    levels = [Level(z.counts[a], x=x.stride(a), z=z.stride(a)) for a in z.piece.layout.rows]
    levels.append(Level(z.blocks, x=1, z=1))
    return Compute(
        operation=Operation.BIAS,
        levels=tuple(_merged(levels) or [Level(1)]),
        x=_address(x),
        g=call.reads[1].storage.base,
        z=_address(z),
    )


def sum_nest(call: Accumulate) -> Compute:
    """PE2's array: a row of each a cycle."""
    x, z = call.x, call.z
    levels = [
        Level(z.counts[a], x=z.stride(a), g=x.stride(a), z=z.stride(a)) for a in z.piece.layout.rows
    ]
    levels.append(Level(z.blocks, x=1, g=1, z=1))
    return Compute(
        operation=Operation.BIAS,
        levels=tuple(_merged(levels) or [Level(1)]),
        x=_address(z),
        g=_address(x),
        z=_address(z),
    )


class Emitter:
    """The descriptors of one program."""

    def __init__(self, graph: Graph, p: AcceleratorParameters, buffers: Mapping[str, Buffer]):
        self.graph, self.p, self.buffers = graph, p, buffers
        self.descriptors: list[Descriptor] = []
        self.made: dict[int, Made] = {}
        """By the index of the descriptor."""
        self.slots: dict[str, int] = {}
        self._hazards = exact_hazards()

    def run(self, calls: Sequence[Call]) -> None:
        """Emit all commands and the end of the program."""
        for call in calls:
            match call:
                case Contract():
                    self._check(call)
                    d = (dot_nest if call.impl.dot else outer_nest)(call, self.p)
                    name = COPIES if call.part else call.op.out
                    self._compute(d, Made(call.op.out), (call.impl.x, call.impl.g), name)
                case Transpose():
                    name = call.x.piece.tensor
                    for d in transpose_nests(call, call.reads[1], self.p):
                        self._compute(d, Made(name, exact=True), ("", name), COPIES)
                case Copy():
                    name = call.x.piece.tensor
                    self._compute(copy_nest(call), Made(name, exact=True), (name, ""), COPIES)
                case Accumulate():
                    name = call.z.piece.tensor
                    slot = name if call.last else COPIES
                    self._compute(sum_nest(call), Made(name, exact=True), (name, name), slot)
                case Elementwise():
                    x, g = call.op.operands
                    made = Made(call.op.out)
                    self._compute(elementwise_nest(call), made, (x, g), call.op.out)
                case Move():
                    self._move(call)
                case Clear():
                    self._clear(call)
        self.descriptors.append(Halt())

    def _check(self, call: Contract) -> None:
        widths = self.graph.tensors[call.impl.x].width, self.graph.tensors[call.impl.g].width
        terms = prod(call.x.counts[a] for a in call.x.counts if a not in call.z.counts)
        require_accumulator(terms, widths, self.p, call.op.out)

    def _emit(self, d: Compute | Transfer, memory: Sequence[Touch] = ()) -> None:
        waits = self._hazards.issue(ENGINE_OF[d.operation], (*footprint(d, self.p), *memory))
        self.descriptors.append(replace(d, **waits._asdict()))

    def _format(self, name: str) -> int:
        """The number of a tensor's format; a constant, without a name, is in fixed point."""
        return self.p.format_number(self.graph.tensors[name].format) if name else 0

    def _compute(self, d: Compute, made: Made, operands: tuple[str, str], counted: str) -> None:
        """Emit what makes ``made`` of two tensors, or of one and a constant without a name.

        ``counted`` names its statistics.
        """
        z = self.graph.tensors[made.tensor]
        slot = self.slots.setdefault(counted, len(self.slots))
        copied = made.exact and "" in operands
        label = f"{made.tensor} copy" if copied else made.tensor
        d = replace(
            d,
            tensor=label,
            slot=slot,
            out_width=self.p.word_width if copied else z.format.width,
            x_format=self._format(operands[0]),
            g_format=self._format(operands[1]),
            z_format=self._format(made.tensor),
            underflow_zero=z.zero,
        )
        for part in fitted(d, self.p.nest_levels):
            self.made[len(self.descriptors)] = made
            self._emit(part)

    def _move(self, call: Move) -> None:
        part, outer = call.part, call.outer
        operation = Operation.LOAD if call.writes else Operation.STORE
        buffer = self.buffers[outer.name]
        sizes = {a: self.graph.sizes.get(a, part.piece.counts.get(a, 1)) for a in part.counts}
        sizes |= {a: hi - lo for a, (lo, hi) in outer.ranges.items()}
        if "row" in sizes:
            sizes = dict(part.piece.counts)
        there = Piece(
            outer.tensor, outer.layout, sizes, outer.ranges, self.p.lanes, Storage("", 0, 0)
        )
        self._transfer(operation, buffer, outer, there, part)

    def _transfer(
        self, operation: Operation, buffer: Buffer, outer: External, there: Piece, part: Part
    ) -> None:
        """Runs of rows between a buffer and a piece."""
        source = Part(there, part.ranges)
        row_bytes = outer.element_bytes * self.p.lanes
        same = there.rows == part.piece.rows and source.offset == 0
        same &= (there.layout.rows, there.layout.padded) == (
            part.piece.layout.rows,
            part.piece.layout.padded,
        )
        if same and part.counts == dict(part.piece.counts):
            axes = [(there.rows, 1, 1)]
        else:
            axes = [
                (part.counts[a], source.stride(a), part.stride(a)) for a in part.piece.layout.rows
            ]
            axes.append((part.blocks, 1, 1))
        run = 1
        axes = [axis for axis in axes if axis[0] > 1]
        axes.sort(key=lambda axis: -axis[2])
        while axes and axes[-1][1] == axes[-1][2] == run:
            run *= axes.pop()[0]
        axes = _joined(axes)
        first = source.offset
        most = largest_divisor(run, MOST_COUNT // outer.element_bytes)
        if most != run:
            axes.append((run // most, most, most))
            run = most
        self._runs(operation, buffer, outer, axes, run, row_bytes, first, _address(part))

    def _runs(
        self,
        operation: Operation,
        buffer: Buffer,
        outer: External,
        axes: list[tuple[int, int, int]],
        run: int,
        row_bytes: int,
        first: int,
        local: int,
    ) -> None:
        if len(axes) > TRANSFER_LEVELS:
            count, far, near = axes[0]
            for n in range(count):
                self._runs(
                    operation, buffer, outer, axes[1:], run, row_bytes,
                    first + n * far, local + n * near,
                )  # fmt: skip
            return
        address = buffer.address + first * row_bytes
        reach = sum((count - 1) * far for count, far, _ in axes) + run
        stop = address + reach * row_bytes
        assert stop <= buffer.stop, (outer.name, stop, buffer)
        self._emit(
            Transfer(
                operation=operation,
                address=address,
                local=local,
                beats=run * outer.element_bytes,
                levels=tuple(TransferLevel(n, far * row_bytes, near) for n, far, near in axes),
                element_bytes=outer.element_bytes,
                tensor=outer.tensor,
            ),
            (Touch(MEMORY, address, stop, operation is Operation.STORE),),
        )

    def _clear(self, call: Clear) -> None:
        buffer, lanes = self.buffers["zeros"], self.p.lanes
        first, gap, step, places = call.places
        base, (whole, rest) = call.piece.storage.base + first, divmod(gap, lanes)
        for start, times, rows in ((0, whole, lanes), (whole * lanes, 1, rest)):
            if times and rows:
                counts = ((places, step), (times, lanes))
                levels = tuple(TransferLevel(n, 0, by) for n, by in counts if n > 1)
                self._emit(
                    Transfer(
                        operation=Operation.LOAD,
                        address=buffer.address,
                        local=base + start,
                        beats=rows,
                        levels=levels,
                        target=Target.SCRATCHPAD,
                        element_bytes=1,
                        tensor="zeros",
                    ),
                    (Touch(MEMORY, buffer.address, buffer.stop, False),),
                )


def _joined(axes: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Adjacent axes as one where both addresses go on evenly."""
    found: list[tuple[int, int, int]] = []
    for count, far, near in axes:
        if found and found[-1][1] == count * far and found[-1][2] == count * near:
            found[-1] = (found[-1][0] * count, far, near)
        else:
            found.append((count, far, near))
    return found

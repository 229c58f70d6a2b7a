"""From commands with addresses to loop nests: what each array computes, row by row."""

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

from trainwright.compiler.limits import MOST_COUNT
from trainwright.graph.ir import Add
from trainwright.lowering.calls import Accumulate, Contract, Copy, Elementwise, Transpose
from trainwright.lowering.impls import up
from trainwright.lowering.layout import CutError, Part, Piece
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Compute, Level
from trainwright.program.fields import Operation


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


def address_of(part: Part) -> int:
    """The first row of a part."""
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
        x=address_of(x), g=address_of(g) * groups, z=address_of(z),
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
        x=address_of(x), g=address_of(g), z=address_of(z),
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
                x=identity.storage.base, g=address_of(x) + first,
                z=address_of(z) + first * p.lanes * step,
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
        x=address_of(x) + first,
        g=address_of(g) + (0 if call.broadcast else first),
        z=address_of(z) + first,
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
        x=address_of(x),
        g=call.reads[1].storage.base,
        z=address_of(z),
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
        x=address_of(z),
        g=address_of(x),
        z=address_of(z),
    )

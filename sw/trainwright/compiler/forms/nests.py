"""From commands with addresses to loop nests: what each array computes, row by row."""

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

from trainwright.compiler.base.digits import digit_levels, element_levels
from trainwright.compiler.base.limits import MOST_COUNT
from trainwright.compiler.forms.calls import Accumulate, Contract, Copy, Elementwise, Transpose
from trainwright.compiler.forms.impls import up
from trainwright.compiler.forms.layout import CutError, Part, Piece
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Compute, Level
from trainwright.program.fields import Engine, Operation


def merged(levels: Sequence[Level], tile: Level | None = None) -> list[Level]:
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
    over: Sequence[Level] = (),
    **fields: Any,
) -> Compute:
    """A nest whose summed levels begin with those ``over`` digits."""
    free = merged([*outer, tile], tile)
    reduction = [*over, *merged(summed)]
    return Compute(
        operation=operation,
        levels=(*free, *reduction),
        reduce_levels=len(reduction),
        digits=len(over),
        tile_level=next(n for n, level in enumerate(free) if level is tile),
        **fields,
    )


def _elements(
    operation: Operation, levels: list[Level], over: list[Level], **fields: Any
) -> Compute:
    """A nest without tiles, a row at a time."""
    return Compute(
        operation=operation,
        levels=(*(merged(levels) or [Level(1)]), *over),
        reduce_levels=len(over),
        digits=len(over),
        **fields,
    )


def _over(x: Part, g: Part, step: int) -> list[Level]:
    """The levels over the digits of the operands of a contraction."""
    return digit_levels(x.digits, g.digits, step)


def _whole_and_rest(count: int, lanes: int) -> list[tuple[int, int, int]]:
    """Values along the lanes as rows: the first row, rows, and values of each; those of the last
    row apart where it is not full.
    """
    whole, rest = divmod(count, lanes)
    return [one for one in ((0, whole, lanes), (whole, 1, rest)) if one[1] and one[2]]


def _outer_nests(call: Contract, p: AcceleratorParameters) -> list[Compute]:
    """Make the nests of PE2's array.

    They are two where g is cut into digits and its last row is not full: its groups are not one
    even index over several rows.
    """
    x, g, z, impl = call.x, call.g, call.z, call.impl
    groups = p.lanes // p.pe2_rows
    count = prod(z.counts[a] for a in impl.rows)
    step = _joint(z, impl.rows)
    outer = [
        Level(z.counts[a], x=x.stride(a), g=g.stride(a) * groups, z=z.stride(a))
        for a in z.piece.layout.rows
        if a not in impl.rows
    ]
    outer.append(Level(z.blocks, x=x.digits, z=z.digits))
    summed = [
        Level(x.counts[a], x=x.stride(a), g=g.stride(a) * groups)
        for a in x.counts
        if a not in z.counts
    ]
    parts = [(0, 1, count)] if g.digits == 1 else _whole_and_rest(count, p.lanes)
    found = []
    for first, blocks, rows in parts:
        tiles = up(rows, p.pe2_rows)
        tile = Level(tiles, g=1, z=p.pe2_rows * step)
        over_rows = Level(blocks, g=groups * g.digits, z=p.lanes * step)
        found.append(
            _nest(
                Operation.PE3, [*outer, over_rows], tile, summed, _over(x, g, groups),
                x=address_of(x), g=(address_of(g) + first * g.digits) * groups,
                z=address_of(z) + first * p.lanes * step,
                last_rows=rows - (tiles - 1) * p.pe2_rows, z_row_stride=step,
            )
        )  # fmt: skip
    return found


def _dot_nests(call: Contract, p: AcceleratorParameters) -> list[Compute]:
    """Make the nest of PE1's array."""
    x, g, z, impl = call.x, call.g, call.z, call.impl
    count = prod(z.counts[a] for a in impl.rows)
    tiles, from_, to = up(count, p.pe1_rows), _joint(x, impl.rows), _joint(z, impl.rows)
    entry = _joint(g, impl.along)
    outer = [
        Level(z.counts[a], x=x.stride(a), g=g.stride(a), z=z.stride(a))
        for a in z.piece.layout.rows
        if a not in impl.rows
    ]
    outer.append(Level(z.blocks, g=p.lanes * entry, z=z.digits))
    tile = Level(tiles, x=p.pe1_rows * from_, z=p.pe1_rows * to)
    summed = [
        Level(x.counts[a], x=x.stride(a), g=g.stride(a))
        for a in x.counts
        if a not in z.counts and a not in impl.inner
    ]
    summed.append(Level(x.blocks, x=x.digits, g=g.digits))
    return [
        _nest(
            Operation.PE4, outer, tile, summed, _over(x, g, 1),
            x=address_of(x), g=address_of(g), z=address_of(z),
            last_rows=count - (tiles - 1) * p.pe1_rows,
            x_row_stride=from_, z_row_stride=to, g_row_stride=entry,
        )
    ]  # fmt: skip


_NESTS = {Engine.PE1: _dot_nests, Engine.PE2: _outer_nests}


def contraction_nests(call: Contract, p: AcceleratorParameters) -> list[Compute]:
    """Make the nests of a contraction on its array."""
    return _NESTS[call.engine](call, p)


def transpose_nests(call: Transpose, identity: Piece, p: AcceleratorParameters) -> list[Compute]:
    """PE1's array with the identity: whole rows of lanes of the operand, then the last one; digits
    are words like others.
    """
    x, z = call.x, call.z
    old, new = x.piece.layout.lanes, z.piece.layout.lanes
    entry, step = _joint(x, new), _joint(z, old)
    others = [
        Level(z.counts[a], g=x.stride(a), z=z.stride(a))
        for a in z.piece.layout.rows
        if a not in old
    ]
    others.append(Level(z.blocks, g=p.lanes * entry, z=z.digits))
    others.append(Level(x.digits, g=1, z=1))
    found = []
    for first, blocks, rows in _whole_and_rest(prod(x.counts[a] for a in old), p.lanes):
        tiles = up(rows, p.pe1_rows)
        tile = Level(tiles, x=p.pe1_rows, z=p.pe1_rows * step)
        found.append(
            _nest(
                Operation.PE4, [*others, Level(blocks, g=x.digits, z=p.lanes * step)], tile, [],
                x=identity.storage.base, g=address_of(x) + first * x.digits,
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
    levels.append(Level(blocks, x=x.digits, g=0 if call.broadcast else g.digits, z=z.digits))
    assert call.op.instruction is not None
    return _elements(
        call.op.instruction, levels, element_levels(x.digits, g.digits),
        x=address_of(x) + first * x.digits,
        g=address_of(g) + (0 if call.broadcast else first * g.digits),
        z=address_of(z) + first * z.digits,
        relu=call.op.relu,
    )  # fmt: skip


def copy_nest(call: Copy) -> Compute:
    """PE2's array: the operand and a row of zeros, a row a cycle. Digits are words like others,
    but where the result has more of them: then values are cut anew.
    """
    x, z = call.x, call.z
    levels = [Level(z.counts[a], x=x.stride(a), z=z.stride(a)) for a in z.piece.layout.rows]
    levels.append(Level(z.blocks, x=x.digits, z=z.digits))
    widened = x.digits != z.digits
    if not widened:
        levels.append(Level(x.digits, x=1, z=1))
    return _elements(
        Operation.BIAS, levels, element_levels(x.digits, 1) if widened else [],
        x=address_of(x), g=call.reads[1].storage.base, z=address_of(z),
    )  # fmt: skip


def sum_nest(call: Accumulate) -> Compute:
    """PE2's array: a row of each a cycle."""
    x, z = call.x, call.z
    levels = [
        Level(z.counts[a], x=z.stride(a), g=x.stride(a), z=z.stride(a)) for a in z.piece.layout.rows
    ]
    levels.append(Level(z.blocks, x=z.digits, g=x.digits, z=z.digits))
    return _elements(
        Operation.BIAS, levels, element_levels(z.digits, x.digits),
        x=address_of(z), g=address_of(x), z=address_of(z),
    )  # fmt: skip

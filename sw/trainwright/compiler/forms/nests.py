"""Turn commands with addresses into loop nests: what each array computes, row by row.

A nest has levels, each with a count and a step of every operand. The *tile* level counts the tiles
of rows that an array holds at once; summed levels come last. ``emit`` is the user.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import product
from math import prod
from typing import Any

from trainwright.compiler.base.commands import unrolled
from trainwright.compiler.base.digits import digit_levels, element_levels
from trainwright.compiler.base.errors import ResourceError
from trainwright.compiler.base.limits import MOST_COUNT
from trainwright.compiler.forms.calls import ArrayCall, Contract, Elementwise, Transpose
from trainwright.compiler.forms.impls import up
from trainwright.compiler.forms.layout import Addresses, CutError, Part
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Compute, Level
from trainwright.program.engines import TRANSPOSER, EngineSpec


def merged(levels: Sequence[Level], tile: Level | None = None) -> list[Level]:
    """Return fewer levels for the same addresses, in another order; the tile level stays."""
    rest = [level for level in levels if level.count > 1 or level is tile]

    def goes_on(outer: Level, inner: Level) -> bool:
        # An outer level that goes on where the inner one ends is the same walk as one longer level.
        # Fewer levels leave room for nests of many axes, and the hardware starts fewer loops.
        steps = ((outer.x, inner.x), (outer.g, inner.g), (outer.z, inner.z))
        even = all(a == b * inner.count for a, b in steps)
        count = outer.count * inner.count
        return even and outer is not inner and tile not in (outer, inner) and count <= MOST_COUNT

    while pair := next((pair for pair in product(rest, rest) if goes_on(*pair)), None):
        outer, inner = pair
        joined = replace(inner, count=outer.count * inner.count)
        rest = [joined if level is inner else level for level in rest if level is not outer]
    return rest


def address_of(part: Part, at: Addresses) -> int:
    """Return the first row of a part."""
    return at[part.piece.storage] + part.offset


def _joint(part: Part, axes: tuple[str, ...]) -> int:
    stride = part.joint(axes)
    if stride is None:
        piece = part.piece
        raise CutError(f"{piece.tensor} has no even index {axes} in {piece.layout.text}")
    return stride


def _levels(
    axes: Iterable[str], x: Part | None, g: Part, z: Part, groups: int = 1
) -> list[Level]:  # fmt: skip
    """Return a level for each of some axes; without an ``x`` its address stays.

    A row of g has as many addresses as ``groups``.
    """
    counts = {**g.counts, **(x.counts if x else {}), **z.counts}
    return [
        Level(counts[a], x=x.stride(a) if x else 0, g=g.stride(a) * groups, z=z.stride(a))
        for a in axes
    ]


def _nest(
    array: EngineSpec,
    p: AcceleratorParameters,
    outer: list[Level],
    tile: tuple[int, Level],
    summed: list[Level],
    over: Sequence[Level] = (),
    **fields: Any,
) -> Compute:
    """Return a nest; its summed levels are ``over``, which count digits, then ``summed``.

    ``tile`` has the rows that tiles divide, and the addresses from one tile to the next.
    """
    (rows, level), high = tile, array.rows(p)
    tile_level = replace(level, count=up(rows, high))
    free = merged([*outer, tile_level], tile_level)
    reduction = [*over, *merged(summed)]
    return Compute(
        operation=array.contraction,
        levels=(*free, *reduction),
        reduce_levels=len(reduction),
        digits=len(over),
        tile_level=next(n for n, level in enumerate(free) if level is tile_level),
        last_rows=rows - (tile_level.count - 1) * high,
        **fields,
    )


def whole_and_rest(count: int, lanes: int) -> list[tuple[int, int, int]]:
    """Divide ``count`` values along the lanes into full rows and a last row that is not full.

    Return (first row, rows, values of a row) for each of the two that has any values.
    """
    whole, rest = divmod(count, lanes)
    return [rows for rows in ((0, whole, lanes), (whole, 1, rest)) if rows[1] and rows[2]]


def _outer_nests(call: Contract, p: AcceleratorParameters, at: Addresses) -> list[Compute]:
    """Make the nests of an array that takes scalars of g.

    There are two where g has several digits and its last row is not full. The groups of a full row
    and of the next one are then not evenly spaced, as the rows of other digits lie between them, so
    full rows have a level of their own, and the last row a nest.
    """
    (x, g), (z,), impl = call.reads, call.writes, call.impl
    # The array takes a *group* of a row of g at once, a scalar for each row of a tile: addresses of
    # g count groups.
    high = impl.array.rows(p)
    groups = p.lanes // high
    count = prod(z.counts[a] for a in impl.rows)
    step = _joint(z, impl.rows)
    outer = _levels((a for a in z.piece.layout.rows if a not in impl.rows), x, g, z, groups)
    # Results longer than a row: one iteration for each row of lanes.
    outer.append(Level(z.blocks, x=x.digits, z=z.digits))
    summed = _levels((a for a in x.counts if a not in z.counts), x, g, z, groups)
    parts = [(0, 1, count)] if g.digits == 1 else whole_and_rest(count, p.lanes)
    return [
        _nest(
            impl.array, p, [*outer, Level(blocks, g=groups * g.digits, z=p.lanes * step)],
            (rows, Level(1, g=1, z=high * step)), summed, digit_levels(x.digits, g.digits, groups),
            x=address_of(x, at), g=(address_of(g, at) + first * g.digits) * groups,
            z=address_of(z, at) + first * p.lanes * step, z_row_stride=step,
        )
        for first, blocks, rows in parts
    ]  # fmt: skip


def _dot_nests(call: Contract, p: AcceleratorParameters, at: Addresses) -> list[Compute]:
    """Make the nest of an array that sums along the lanes."""
    (x, g), (z,), impl = call.reads, call.writes, call.impl
    rows, high = prod(z.counts[a] for a in impl.rows), impl.array.rows(p)
    x_stride, z_stride = _joint(x, impl.rows), _joint(z, impl.rows)
    # Each lane of the result reads a row of g, an *entry*. The nest has one stride for all entries,
    # so the rows along ``along`` have to be evenly spaced.
    entry = _joint(g, impl.along)
    outer = _levels((a for a in z.piece.layout.rows if a not in impl.rows), x, g, z)
    outer.append(Level(z.blocks, g=p.lanes * entry, z=z.digits))
    summed = _levels((a for a in x.counts if a not in {*z.counts, *impl.inner}), x, g, z)
    # Sums longer than a row go on in the next rows of both operands.
    summed.append(Level(x.blocks, x=x.digits, g=g.digits))
    return [
        _nest(
            impl.array, p, outer, (rows, Level(1, x=high * x_stride, z=high * z_stride)), summed,
            digit_levels(x.digits, g.digits, 1),
            x=address_of(x, at), g=address_of(g, at), z=address_of(z, at),
            x_row_stride=x_stride, z_row_stride=z_stride, g_row_stride=entry,
        )
    ]  # fmt: skip


def _transpose_nests(call: Transpose, p: AcceleratorParameters, at: Addresses) -> list[Compute]:
    """Make the nests of a transpose: an array multiplies rows of the operand by the identity.

    Full rows of lanes come first, then the last one. Each digit is transposed as a row of its own.
    """
    (identity, x), (z,) = call.reads, call.writes
    old, new = x.piece.layout.lanes, z.piece.layout.lanes
    entry, step = _joint(x, new), _joint(z, old)
    outer = _levels((a for a in z.piece.layout.rows if a not in old), None, x, z)
    outer.append(Level(z.blocks, g=p.lanes * entry, z=z.digits))
    outer.append(Level(x.digits, g=1, z=1))
    high = TRANSPOSER.rows(p)
    return [
        _nest(
            TRANSPOSER, p, [*outer, Level(blocks, g=x.digits, z=p.lanes * step)],
            (rows, Level(1, x=high, z=high * step)), [],
            x=address_of(identity, at), g=address_of(x, at) + first * x.digits,
            z=address_of(z, at) + first * p.lanes * step,
            x_row_stride=1, z_row_stride=step, g_row_stride=entry,
        )
        for first, blocks, rows in whole_and_rest(prod(x.counts[a] for a in old), p.lanes)
    ]  # fmt: skip


def _element_nests(call: Elementwise, at: Addresses) -> list[Compute]:
    """Make the nest of an addition or a mask, a row a cycle, without tiles."""
    (x, g), (z,) = call.reads, call.writes
    first, blocks = call.blocks or (0, z.blocks)
    # A broadcast operand stays at its one row.
    step = 0 if call.broadcast else g.digits
    levels = _levels(z.piece.layout.rows, x, g, z)
    levels.append(Level(blocks, x=x.digits, g=step, z=z.digits))
    over = element_levels(x.digits, g.digits)
    # A copy in as many digits takes each as a row of its own. With other digits values are put
    # together and cut anew.
    if call.body.exponents.adds and x.digits == z.digits > g.digits:
        levels, over = [*levels, Level(x.digits, x=1, z=1)], []
    return [
        Compute(
            operation=call.body.operation, relu=call.body.relu,
            levels=(*(merged(levels) or [Level(1)]), *over),
            reduce_levels=len(over), digits=len(over),
            x=address_of(x, at) + first * x.digits, g=address_of(g, at) + first * step,
            z=address_of(z, at) + first * z.digits,
        )
    ]  # fmt: skip


def nests(call: ArrayCall, p: AcceleratorParameters, at: Addresses) -> list[Compute]:
    """Make the nests of a command of an array."""
    if isinstance(call, Contract):
        make = _dot_nests if call.impl.array.along_lanes else _outer_nests
        return make(call, p, at)
    if isinstance(call, Transpose):
        return _transpose_nests(call, p, at)
    assert isinstance(call, Elementwise)
    return _element_nests(call, at)


def fitted(d: Compute, most: int) -> list[Compute]:
    """Return nests of at most ``most`` levels that do the same as ``d``.

    Levels of one iteration are dropped; then the outermost level is unrolled until the rest fits.
    Raises ``ResourceError`` where the summed levels, which cannot be unrolled, are too many.
    """
    tile = d.levels[d.tile_level]
    levels = [level for level in d.levels if level.count > 1 or level is tile]
    slim = replace(
        d,
        levels=tuple(levels),
        reduce_levels=sum(level.count > 1 for level in d.reduction),
        tile_level=next(i for i, level in enumerate(levels) if level is tile),
    )
    if len(levels) <= most:
        return [slim]
    # A sum is taken within one descriptor: unrolling a summed level would round in between.
    if slim.reduce_levels >= most:
        raise ResourceError(
            f"{d.tensor} is summed over {slim.reduce_levels} loop levels, nests of this "
            f"accelerator have {most}, one of them not summed",
            f"use one with nest_levels={slim.reduce_levels + 1} or more",
        )
    # The outermost level: unrolling it keeps the order in which results are written.
    outermost = next(i for i, level in enumerate(levels) if level is not tile)
    peeled = levels.pop(outermost)
    rest = replace(
        slim,
        levels=tuple(levels),
        tile_level=next(i for i, level in enumerate(levels) if level is tile),
    )
    return [part for each in unrolled(rest, peeled) for part in fitted(each, most)]

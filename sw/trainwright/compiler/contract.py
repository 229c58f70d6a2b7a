"""Contractions of named axes: loop nests of PE2's array (PE3) and of PE1's (PE4).

Both operands lie in the scratchpad. Every axis of the result that is neither the tile's rows nor
its lanes is an outer level; the axes summed are the innermost levels.
"""

from collections.abc import Sequence

from trainwright.compiler.blocks import Block
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Compute, Level
from trainwright.program.fields import Operation


def outer_nest(
    p: AcceleratorParameters,
    x: Block,
    g: Block,
    z: Block,
    *,
    rows: str,
    summed: Sequence[str],
    group: int = 0,
) -> Compute:
    """Z(rows, c) = sum over ``summed`` of G(rows) X(c), c along the lanes: PE2's array.

    ``g`` has ``rows`` along its lanes, innermost; row 0 is in group ``group`` of them, of
    ``pe2_rows`` each.
    """
    groups = p.lanes // p.pe2_rows
    along = f"{rows}/"
    assert g.names[-1] == along and g.stride(along) == 1, g
    count = z.size(rows)
    tiles = -(-count // p.pe2_rows)
    assert group + tiles <= g.size(along) * groups, (rows, group, z, g)
    outer = [axis for axis in z.axes if axis.name != rows]
    _check(x, {a.name for a in outer} | set(summed), z, g)
    _check(g, {a.name for a in outer} | {*summed, along}, z, x)
    levels = [
        *(
            Level(a.size, x=x.stride(a.name), g=g.stride(a.name) * groups, z=a.stride)
            for a in outer
        ),
        Level(tiles, g=1, z=p.pe2_rows * z.stride(rows)),
        *(Level(x.size(name), x=x.stride(name), g=g.stride(name) * groups) for name in summed),
    ]
    return Compute(
        operation=Operation.PE3,
        x=x.base,
        g=g.base * groups + group,
        z=z.base,
        levels=tuple(levels),
        reduce_levels=len(summed),
        tile_level=len(outer),
        last_rows=count - (tiles - 1) * p.pe2_rows,
        z_row_stride=z.stride(rows),
    )


def dot_nest(
    p: AcceleratorParameters,
    x: Block,
    g: Block,
    z: Block,
    *,
    rows: str,
    entries: str,
    summed: Sequence[str],
) -> Compute:
    """Z(rows, entries) = sum over lanes and ``summed`` of X(rows, k) G(entries, k): PE1's array.

    ``summed`` may be empty: then the lanes alone are summed, one row of each operand. ``entries``
    run along the lanes of Z, ``lanes`` of them at a time; where their number is no multiple of the
    lanes, the rows of ``g`` after the last are read too and give the last lanes of Z.
    """
    along = f"{entries}/"
    count = z.size(rows)
    tiles = -(-count // p.pe1_rows)
    outer = [axis for axis in z.axes if axis.name != rows]
    assert along in z.names, z
    _check(x, {a.name for a in outer} | {*summed, rows}, z, g)
    _check(g, {a.name for a in outer} | {*summed, entries}, z, x)
    assert z.size(along) == -(-g.size(entries) // p.lanes), (entries, z, g)
    levels = [
        *(
            Level(
                a.size,
                x=x.stride(a.name),
                g=p.lanes * g.stride(entries) if a.name == along else g.stride(a.name),
                z=a.stride,
            )
            for a in outer
        ),
        Level(tiles, x=p.pe1_rows * x.stride(rows), z=p.pe1_rows * z.stride(rows)),
        *(Level(x.size(name), x=x.stride(name), g=g.stride(name)) for name in summed),
    ]
    return Compute(
        operation=Operation.PE4,
        x=x.base,
        g=g.base,
        z=z.base,
        levels=tuple(levels),
        reduce_levels=len(summed),
        tile_level=len(outer),
        last_rows=count - (tiles - 1) * p.pe1_rows,
        x_row_stride=x.stride(rows),
        z_row_stride=z.stride(rows),
        g_row_stride=g.stride(entries),
    )


def _check(operand: Block, known: set[str], *others: Block) -> None:
    """Every axis of an operand is used, and has the size that it has elsewhere."""
    for axis in operand.axes:
        assert axis.name in known, (axis, known)
        for other in others:
            for twin in other.axes:
                assert twin.name != axis.name or twin.size == axis.size, (axis, twin)

"""Loop nests of the three contractions on tensors that lie contiguously in the scratchpad."""

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from trainwright.compiler.errors import ResourceError
from trainwright.compiler.images import Image
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Compute, Level
from trainwright.program.fields import Operation


def pe1_nest(p: AcceleratorParameters, image: Image, *, x: int, g: int, z: int, a: int) -> Compute:
    """Equation 5 on X (a, steps) and Z (a, tiles), in rows."""
    rows, steps, tiles = p.pe1_rows, image.steps, image.tiles
    count = -(-a // rows)
    return Compute(
        operation=Operation.PE1,
        x=x,
        g=g,
        z=z,
        levels=(
            Level(count, x=rows * steps, z=rows * tiles),
            Level(tiles, g=steps * p.lanes, z=1),
            Level(steps, x=1, g=p.lanes),
        ),
        reduce_levels=1,
        tile_level=0,
        last_rows=a - (count - 1) * rows,
        x_row_stride=steps,
        z_row_stride=tiles,
    )


def pe2_nest(
    p: AcceleratorParameters, image: Image, *, x: int, g: int, z: int, a: int, c: int
) -> Compute:
    """Equation 6 on X (a, b, c) and Z (a, d, c), c in rows."""
    rows, steps, tiles = p.pe2_rows, image.steps, image.tiles
    return Compute(
        operation=Operation.PE2,
        x=x,
        g=g,
        z=z,
        levels=(
            Level(a, x=steps * c, z=image.free * c),
            Level(c, x=1, z=1),
            Level(tiles, g=steps, z=rows * c),
            Level(steps, x=c, g=1),
        ),
        reduce_levels=1,
        tile_level=2,
        last_rows=image.free - (tiles - 1) * rows,
        z_row_stride=c,
    )


def pe3_nest(
    p: AcceleratorParameters,
    *,
    x: int,
    y: int,
    z: int,
    batch: int,
    outputs: Sequence[int],
    inputs: Sequence[int],
) -> Compute:
    """W(j_1, i_1, ..., j_m, i_m) = sum over s of Y(s, j_1..j_m) X(s, i_1..i_m).

    X (batch, I) and Y (batch, J) in rows; the last dimensions are multiples of the lanes.
    """
    m, rows = len(outputs), p.pe2_rows
    levels = []
    for n in range(m - 1):
        inner = prod(outputs[n + 1 :]) * prod(inputs[n + 1 :]) // p.lanes
        levels += [
            Level(outputs[n], g=prod(outputs[n + 1 :]) // rows, z=inputs[n] * inner),
            Level(inputs[n], x=prod(inputs[n + 1 :]) // p.lanes, z=inner),
        ]
    i_rows = inputs[-1] // p.lanes
    levels += [
        Level(outputs[-1] // rows, g=1, z=rows * i_rows),
        Level(i_rows, x=1, z=1),
        Level(batch, x=prod(inputs) // p.lanes, g=prod(outputs) // rows),
    ]
    return Compute(
        operation=Operation.PE3,
        x=x,
        g=y * (p.lanes // rows),
        z=z,
        levels=tuple(levels),
        reduce_levels=1,
        tile_level=2 * (m - 1),
        last_rows=rows,
        z_row_stride=i_rows,
    )


def fitted(d: Compute, most: int) -> list[Compute]:
    """``d`` without levels of one iteration, split where more than ``most`` levels are left.

    Raises ``ResourceError`` where those that are summed, which cannot be split, are too many.
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
    if slim.reduce_levels >= most:
        raise ResourceError(
            f"{d.tensor} is summed over {slim.reduce_levels} loop levels, nests of this "
            f"accelerator have {most}, one of them not summed",
            f"use one with nest_levels={slim.reduce_levels + 1} or more",
        )
    outermost = next(i for i, level in enumerate(levels) if level is not tile)
    peeled = levels.pop(outermost)
    rest = replace(
        slim,
        levels=tuple(levels),
        tile_level=next(i for i, level in enumerate(levels) if level is tile),
    )
    return [
        part
        for i in range(peeled.count)
        for part in fitted(
            replace(rest, x=d.x + i * peeled.x, g=d.g + i * peeled.g, z=d.z + i * peeled.z), most
        )
    ]

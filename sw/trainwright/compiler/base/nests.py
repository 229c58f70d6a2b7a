"""Fit loop nests to the number of levels that an accelerator has."""

from dataclasses import replace

from trainwright.compiler.base.errors import ResourceError
from trainwright.program.descriptors import Compute


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
    return [
        part
        for i in range(peeled.count)
        for part in fitted(
            replace(rest, x=d.x + i * peeled.x, g=d.g + i * peeled.g, z=d.z + i * peeled.z), most
        )
    ]

"""From updated factors to the images that forward and backward pass read.

All by PE4: a transpose is the product with the identity; entries of the factor stores, of few bits
an element, are sums of products with the rows of ``packing``.
"""

from dataclasses import dataclass

from trainwright.compiler.chip.packing import PACKING, entries_a_row
from trainwright.compiler.chip.passes import Bank, Passes
from trainwright.compiler.images import Image, Use
from trainwright.compiler.memory import Buffer, Region
from trainwright.compiler.row_images import Arrangement, RowImage
from trainwright.onchip.layout import LANES
from trainwright.program.descriptors import Level, TransferLevel
from trainwright.program.fields import Target

TRANSPOSED = (Arrangement.ENTRIES, Arrangement.SCALARS)


@dataclass(frozen=True)
class Source:
    """A factor (R, J, I, S) in rows of the scratchpad: row (r, ``per`` of them), s along lanes, or
    i where S is 1. Where an image is transposed rows of zeros fill r up to 16."""

    rows: int
    packed: int
    """The same rows, of each element the lowest 4 bits where that is what a store keeps."""
    ranks: tuple[int, int]
    per: int
    """Rows of an index r."""


@dataclass(frozen=True)
class Made:
    """What is to be stored: runs of ``rows`` rows from ``source``."""

    name: str
    source: int
    rows: int
    levels: tuple[TransferLevel, ...] = ()


def row_image(work: Passes, image: RowImage, buffer: Buffer, g: Source) -> Made:
    """An image in rows."""
    left, right = g.ranks
    match image.arrangement:
        case Arrangement.FIRST:
            return Made(image.name, g.rows, g.per)
        case Arrangement.STATE | Arrangement.STATE_LAST:
            return Made(image.name, g.rows, left * g.per)
        case Arrangement.LAST:  # rows (j i/) of each r follow one another; in the image rows r
            padded = image.rows // g.per
            levels = (TransferLevel(g.per, padded * buffer.row_bytes, 1),
                      TransferLevel(left, buffer.row_bytes, g.per))  # fmt: skip
            return Made(image.name, g.rows, 1, levels)
        case Arrangement.ENTRIES:
            made = work.rows(image.name, image.rows, Bank.IMAGES)
            work.transpose(g.rows, made.start, blocks=g.per, of=(1, g.per), to=(LANES, 1),
                           tensor=image.name)  # fmt: skip
        case _:
            made = work.rows(image.name, image.rows, Bank.IMAGES)
            work.transpose(g.rows, made.start, blocks=g.per, of=(1, g.per), to=(1, g.per),
                           rows=right, tensor=image.name)  # fmt: skip
    return Made(image.name, made.start, made.count)


def packed_image(work: Passes, image: Image, g: Source) -> Made:
    """An image of a factor store. What it is padded with is there already."""
    beside = entries_a_row(image.target, work.b.p)
    packing = work.constant(PACKING).start
    made = work.rows(image.name, -(-image.entries // beside), Bank.IMAGES)
    if image.use is Use.RIGHT:
        return _pack_right(work, image, g, made, packing, beside)
    before = entries_a_row(Target.PE1_STORE, work.b.p)
    return _pack_left(work, image, g, made, packing + LANES * before, beside)


def _pack_right(
    work: Passes, image: Image, g: Source, made: Region, packing: int, beside: int
) -> Made:
    """For each row (j, i) of the factor an entry for every r, ``beside`` of them in a row."""
    rows = LANES // beside
    whole, rest = divmod(g.ranks[0], beside)
    for first, count, terms in ((0, whole, beside), (whole, 1 if rest else 0, rest)):
        if count:
            work.products(
                g.packed + first * beside * g.per, packing, made.start + first, count,
                levels=(Level(g.per, x=1, z=rows),), summed=(Level(terms, x=g.per, g=LANES),),
                steps=(beside * g.per, 1, 1), tensor=image.name,
            )  # fmt: skip
    used = whole + (1 if rest else 0)
    return Made(image.name, made.start, used, (TransferLevel(g.per, rows * LANES, rows),))


def _pack_left(
    work: Passes, image: Image, g: Source, made: Region, packing: int, beside: int
) -> Made:
    """For each tile of words an entry for every row (r, j, i), ``beside`` of them in a row."""
    rows = image.steps // beside
    assert rows * beside == image.steps
    work.products(
        g.packed, packing, made.start, rows,
        levels=(Level(image.tiles, g=LANES * beside, z=rows),),
        summed=(Level(beside, x=1, g=LANES),), steps=(beside, 1, 1), tensor=image.name,
    )  # fmt: skip
    return Made(image.name, made.start, made.count)

"""Blocks of the scratchpad, loads and stores of them, and contractions: what plans are made of."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod

from trainwright.compiler.blocks import Block
from trainwright.compiler.builder import Builder, Rule, Written
from trainwright.compiler.contract import dot_nest, outer_nest
from trainwright.compiler.errors import DoesNotFitError
from trainwright.compiler.memory import MemoryMap, Region
from trainwright.compiler.row_images import Arrangement, RowImage, constant
from trainwright.fixed.scale import TensorClass
from trainwright.program.descriptors import Compute, Level, TransferLevel
from trainwright.program.fields import Operation


@dataclass(frozen=True)
class Operand:
    """A tensor as an operand: where it lies, the name its exponent goes by, its bits.

    Without a name it is a constant with exponent 0.
    """

    block: Block
    name: str
    width: int

    def view(self, block: Block) -> "Operand":
        """The same tensor, or a part of it, by other axes."""
        return replace(self, block=block)


@dataclass(frozen=True)
class Place:
    """Where in the scratchpad the constants lie: at the bottom of a bank, or at its top."""

    bank: int
    top: bool
    banked: bool = True
    """Blocks lie in the banks asked for if they can; else wherever they leave the largest gap."""


LOW, MIDDLE, HIGH = Place(1, True), Place(2, True), Place(3, True)
BOTTOM = Place(0, False)
TIGHT = Place(0, False, banked=False)


def first_fitting(emit: Callable[[Place], Builder], places: Sequence[Place]) -> Builder:
    """The program that ``emit`` makes with the first place that lets everything fit."""
    for place in places[:-1]:
        try:
            return emit(place)
        except DoesNotFitError:
            continue
    return emit(places[-1])


class Workspace:
    """A builder, the external memory, and the blocks that live in the scratchpad.

    ``identity`` (axis row), ``ones`` (axis one) and ``zero`` (no axis) are constants.
    """

    def __init__(self, b: Builder, memory: MemoryMap, place: Place):
        self.b = b
        self.p = b.p
        self.memory = memory
        self._banked = place.banked
        self._regions: dict[int, Region] = {}
        self._later: list[tuple[str, Region, bool]] = []
        identity, ones, zeros = (
            self.load_image(constant(what, self.p), bank=place.bank, top=place.top, row=rows)
            for what, rows in (
                (Arrangement.IDENTITY, self.p.lanes),
                (Arrangement.ONES, 1),
                (Arrangement.ZEROS, self.p.lanes),
            )
        )
        self.identity, self.ones = identity, ones.renamed(row="one")
        self.zero = zeros.at("row", 0)

    # Rows.

    def block(
        self,
        name: str,
        *,
        bank: int | None = None,
        banks: int = 1,
        top: bool | int = False,
        at: int | None = None,
        spare: int = 0,
        **sizes: int,
    ) -> Block:
        """A new tensor in row-major order, ``s_`` for axis "s/".

        It lies at row ``at``, or in ``banks`` banks from ``bank``, if it fits there, else anywhere;
        with ``top`` as high as it fits. ``spare`` rows behind it may be read, and hold nothing.
        """
        rows = prod(sizes.values()) + spare
        within = self._wanted(rows, bank, banks, at) if self._banked else None
        region = self.b.pad.allocate(name, rows, top=bool(top), within=within)
        self._regions[region.start] = region
        return Block.dense(region, **sizes)

    def _wanted(self, rows: int, bank: int | None, banks: int, at: int | None) -> range | None:
        """The rows among which a block of ``rows`` is to lie; ``None`` for any."""
        if at is not None:
            return range(at, at + rows)
        if bank is None:
            return None
        first = bank % self.p.scratchpad_banks * self.p.bank_rows
        return range(first, first + banks * self.p.bank_rows)

    def free(self, *blocks: Block) -> None:
        """Give blocks back, as they were made."""
        for block in blocks:
            self.b.pad.free(self._regions.pop(block.base))

    def region(self, block: Block) -> Region:
        """The rows of a block, as it was made."""
        return self._regions[block.base]

    # Transfers.

    def load(self, name: str, block: Block, *, first: int = 0, rows: int = 0) -> None:
        """Load a buffer, or ``rows`` rows of it from row ``first``, to where a block lies."""
        buffer = self.memory.buffers[name]
        start = buffer.address + first * buffer.element_bytes * self.p.lanes
        self.b.load_rows(replace(buffer, address=start), block.base, rows)

    def load_columns(self, name: str, block: Block, first: int, row: int) -> None:
        """Load the last rows, from ``first``, of every ``row`` rows of a buffer: (outer, inner)."""
        buffer = self.memory.buffers[name]
        row_bytes = buffer.element_bytes * self.p.lanes
        outer, inner = block.axes
        assert first + inner.size == row, (first, block, row)
        part = replace(buffer, address=buffer.address + first * row_bytes)
        levels = [TransferLevel(outer.size, row * row_bytes, outer.stride)]
        self.b.load(part, Region(name, block.base, inner.size), inner.size, levels=levels)

    def store(self, name: str, block: Block) -> None:
        """Store a block, as it was made, to the buffer of that name."""
        buffer = self.memory.buffers[name]
        self.b.store(buffer, self.region(block), prod(axis.size for axis in block.axes))

    def store_later(self, name: str, region: Region, *, keep: bool = False) -> None:
        """Store rows when there is time (``flush``), and give them back then unless kept."""
        self._later.append((name, region, keep))

    def flush(self) -> None:
        """Store what ``store_later`` collected, and give its rows back."""
        for name, region, keep in self._later:
            buffer = self.memory.buffers[name]
            rows = buffer.size // (buffer.element_bytes * self.p.lanes)
            self.b.store(buffer, region, rows)
            if not keep:
                self.b.pad.free(region)
        self._later.clear()

    def taken(self, block: Block) -> Region:
        """The rows of a block, as it was made; the caller owns them from then on."""
        return self._regions.pop(block.base)

    def load_image(
        self,
        image: RowImage,
        *,
        bank: int | None = None,
        top: bool | int = False,
        at: int | None = None,
        spare: int = 0,
        **sizes: int,
    ) -> Block:
        """Load a factor or a constant as a new block."""
        block = self.block(image.name, bank=bank, top=top, at=at, spare=spare, **sizes)
        assert prod(sizes.values()) == image.rows, (image, sizes)
        self.b.images[image.name] = image, self.memory.buffers[image.name]
        self.load(image.name, block)
        return block

    def clear(self, base: int, rows: int) -> None:
        """Set rows to zero."""
        image = constant(Arrangement.ZEROS, self.p)
        buffer = self.memory.buffers[image.name]
        whole, rest = divmod(rows, image.rows)
        if whole:
            again = [TransferLevel(whole, 0, image.rows)]
            self.b.load(buffer, Region(image.name, base, image.rows), image.rows, levels=again)
        if rest:
            self.b.load_rows(buffer, base + rows - rest, rest)

    # Contractions.

    def written(
        self, name: str, kind: TensorClass, width: int, count: int, *, fixed: bool = False
    ) -> Written:
        """Declare a tensor; ``count`` values a step. See ``Builder.written``."""
        return self.b.written(name, kind, width, count, fixed=fixed)

    def outer(
        self,
        x: Operand,
        g: Operand,
        z: Block,
        tensor: Written,
        *,
        rows: str,
        summed: Sequence[str],
        macs: int,
        group: int = 0,
    ) -> None:
        """PE2's array: see ``outer_nest``."""
        d = outer_nest(self.p, x.block, g.block, z, rows=rows, summed=summed, group=group)
        terms = prod(x.block.size(name) for name in summed)
        rule = Rule(x.name, g.name, tensor)
        self.b.contraction(d, rule, terms=terms, widths=(x.width, g.width), macs=macs)

    def dot(
        self,
        x: Operand,
        g: Operand,
        z: Block,
        tensor: Written,
        *,
        rows: str,
        entries: str,
        summed: Sequence[str],
        macs: int,
    ) -> None:
        """PE1's array: see ``dot_nest``."""
        d = dot_nest(self.p, x.block, g.block, z, rows=rows, entries=entries, summed=summed)
        terms = prod(x.block.size(name) for name in summed) * self.p.lanes
        rule = Rule(x.name, g.name, tensor) if x.name else Rule(g.name, None, tensor)
        self.b.contraction(d, rule, terms=terms, widths=(x.width, g.width), macs=macs)

    def transpose(
        self,
        x: Operand,
        name: str,
        *,
        rows: str,
        entries: str,
        bank: int | None = None,
        top: bool | int = False,
        at: int | None = None,
        spare: int = 0,
        **sizes: int,
    ) -> Operand:
        """A copy of X(entries, rows/) as a new tensor Z(rows, entries/), by PE1's array.

        Values of ``entries`` past its size are read, where that is no multiple of the lanes.
        """
        count = prod(axis.size for axis in x.block.axes) * self.p.lanes
        tensor = self.written(name, TensorClass.INTERMEDIATE, self.p.word_width, count, fixed=True)
        z = self.block(name, bank=bank, top=top, at=at, spare=spare, **sizes)
        lanes, along = self.p.lanes, f"{rows}/"
        blocks, rest = divmod(z.size(rows), lanes)
        if blocks:
            split = ((along, blocks), ("row", lanes))
            target = z.part(rows, 0, blocks * lanes).split(rows, split)
            source = x.block.part(along, 0, blocks)
            self._transpose(self.identity, source, target, entries, x, tensor)
        if rest:
            target = z.part(rows, blocks * lanes, rest).split(rows, (("row", rest),))
            source = x.block.at(along, blocks)
            self._transpose(self.identity.part("row", 0, rest), source, target, entries, x, tensor)
        return Operand(z, name, x.width)

    def _transpose(
        self, unit: Block, source: Block, target: Block, entries: str, x: Operand, tensor: Written
    ) -> None:
        d = dot_nest(self.p, unit, source, target, rows="row", entries=entries, summed=())
        rule = Rule(x.name, None, tensor, exact=True)
        self.b.contraction(d, rule, terms=self.p.lanes, widths=(2, x.width), macs=0)

    # Element by element.

    def bias(self, x: Operand, bias: Operand, z: Block, tensor: Written, *, relu: bool) -> None:
        """Z = act(X + bias); ``bias`` may lack axes of X."""
        self._elementwise(Operation.BIAS, x, bias, z, Rule(x.name, bias.name, tensor), relu=relu)

    def copy(self, x: Operand, z: Block, name: str) -> Operand:
        """X in another order of its rows, as tensor ``name``."""
        count = prod(axis.size for axis in z.axes) * self.p.lanes
        tensor = self.written(name, TensorClass.INTERMEDIATE, self.p.word_width, count, fixed=True)
        nothing = Operand(self.zero, x.name, x.width)
        self._elementwise(Operation.BIAS, x, nothing, z, Rule(x.name, x.name, tensor, exact=True))
        return Operand(z, name, x.width)

    def mask(self, x: Operand, sign: Block, z: Block, tensor: Written) -> None:
        """Z = X where ``sign`` is positive, else 0."""
        rule = Rule(x.name, None, tensor)
        self._elementwise(Operation.MASK, x, Operand(sign, "", 0), z, rule)

    def _elementwise(
        self,
        operation: Operation,
        x: Operand,
        g: Operand,
        z: Block,
        rule: Rule,
        *,
        relu: bool = False,
    ) -> None:
        levels = tuple(
            Level(a.size, x=x.block.stride(a.name), g=g.block.stride(a.name), z=a.stride)
            for a in z.axes
        )
        d = Compute(
            operation=operation,
            x=x.block.base,
            g=g.block.base,
            z=z.base,
            levels=levels,
            relu=relu,
        )
        self.b.compute(d, rule)

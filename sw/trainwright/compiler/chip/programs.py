"""The programs of loss and update: from logits to their gradient, from gradients to images."""

from collections.abc import Sequence
from dataclasses import replace

from trainwright.compiler.builder import Builder
from trainwright.compiler.chip.memory import (
    COLUMNS,
    FACTORS,
    STATE,
    TARGETS,
    ChipMemory,
    ColumnRows,
)
from trainwright.compiler.memory import Region
from trainwright.compiler.names import activation_name, gradient_name
from trainwright.compiler.row_images import Arrangement, RowImage
from trainwright.onchip import loss_pass
from trainwright.onchip.layout import LANES, Part
from trainwright.onchip.update_pass import PartUpdate, update_code
from trainwright.program.descriptors import Compute, Level, Program, Set, TransferLevel
from trainwright.program.fields import Operation
from trainwright.program.vector import CODE_DEPTH, CODE_WORDS, Code, Instruction, Stream, Vector

LOSS_SLOT, COPY_SLOT = 0, 1
"""Statistics slots of the loss program: losses and correct samples; transposes."""


class Passes:
    """A program under construction that has passes, and the instructions that the engine holds."""

    def __init__(self, memory: ChipMemory) -> None:
        self.memory = memory
        self.b = Builder(memory.step.parameters, memory.step.network)
        self._held: dict[tuple[Instruction, ...], int] = {}
        self._next = 0

    def load(self, name: str, *, rows: int = 0) -> Region:
        """A buffer, or its first rows, in the scratchpad."""
        buffer = {**self.memory.step.buffers, **self.memory.buffers}[name]
        rows = rows or buffer.size // (buffer.element_bytes * LANES)
        region = self.b.pad.allocate(name, rows)
        self.b.load(buffer, region, rows)
        return region

    def store(self, name: str, first: int, rows: int, levels: Sequence[TransferLevel] = ()) -> None:
        """Rows from ``first`` to a buffer."""
        buffer = {**self.memory.step.buffers, **self.memory.buffers}[name]
        self.b.store(buffer, Region(name, first, rows), rows, levels=levels)

    def run(self, code: tuple[Instruction, ...], d: Vector) -> None:
        """A pass, and before it the instructions that the engine does not hold yet."""
        if code not in self._held:
            if self._next + len(code) > CODE_DEPTH:
                self._held, self._next = {}, 0
            for start in range(0, len(code), CODE_WORDS):
                some = code[start : start + CODE_WORDS]
                self.b.descriptors.append(Code(first=self._next + start, instructions=some))
            self._held[code] = self._next
            self._next += len(code)
        self.b.emit(replace(d, entry=self._held[code], length=len(code)))

    def transpose(self, identity: Region, x: int, z: int, *, blocks: int, of: tuple[int, int, int],
                  to: tuple[int, int], tensor: str) -> None:  # fmt: skip
        """``blocks`` transposes of 16 x 16 words: row r of block n is z + n * to[0] + r * to[1],
        its word l is word r of row x + n * of[0] + l * of[1]; ``of[2]`` rows are written."""
        p = self.b.p
        rows = of[2]
        tile = min(p.pe1_rows, rows)
        whole, rest = divmod(rows, tile)
        assert not rest, rows
        self.b.emit(
            Compute(
                operation=Operation.PE4,
                levels=(
                    Level(blocks, g=of[0], z=to[0]),
                    Level(whole, x=tile, z=tile * to[1]),
                ),
                x=identity.start, g=x, z=z, tile_level=1, last_rows=tile,
                x_row_stride=1, g_row_stride=of[1], z_row_stride=to[1],
                slot=COPY_SLOT, tensor=tensor,
            )
        )  # fmt: skip

    def finish(self, which: str, seed: int | None = None) -> Program:
        """The program, which begins with its seed if it has one."""
        self.b.halt(which)
        first = () if seed is None else (Set(values=(), seed=seed),)
        return Program((*first, *self.b.descriptors), self.b.p.fingerprint)


def loss_program(memory: ChipMemory, exponent: int) -> Program:
    """From the logits of ``exponent`` to their gradient; losses and correct samples are counted."""
    work = Passes(memory)
    step, batch = memory.step, memory.step.batch
    last = len(step.network.layers)
    blocks = batch // LANES
    identity = work.load("identity")
    logits = work.load(activation_name(last))
    targets = work.load(TARGETS)
    z = work.b.pad.allocate("logits of a sample", blocks * LANES)
    gradient = work.b.pad.allocate("gradient of a sample", blocks * LANES, top=True)
    work.transpose(identity, logits.start, z.start, blocks=blocks, of=(1, blocks, LANES),
                   to=(LANES, 1), tensor="logits of a sample")  # fmt: skip
    code = loss_pass.loss_code(exponent)
    streams = tuple(Stream(base, 0, 1) for base in (z.start, targets.start, gradient.start))
    work.run(
        code,
        Vector(
            entry=0, length=1, outer=1, inner=batch, streams=streams, slot=LOSS_SLOT,
            reads=1 << loss_pass.LOGITS | 1 << loss_pass.TARGETS, writes=1 << loss_pass.GRADIENT,
            constants=loss_pass.CONSTANTS, tensor="gradient of a sample",
        ),
    )  # fmt: skip
    back = work.b.pad.allocate(gradient_name(last), logits.count)
    work.transpose(identity, gradient.start, back.start, blocks=blocks, of=(LANES, 1, LANES),
                   to=(1, blocks), tensor=gradient_name(last))  # fmt: skip
    work.store(gradient_name(last), back.start, back.count)
    return work.finish("the program of the loss")


def update_program(memory: ChipMemory, parts: Sequence[PartUpdate], seed: int) -> Program:
    """From the gradients of a backward pass to state, factors and the images of the next step.

    ``parts`` says how each part of the layout is updated, ``seed`` is the stream of its random
    bits.
    """
    work = Passes(memory)
    layout = memory.layout
    identity, columns = work.load("identity"), work.load(COLUMNS)
    state, factors = work.load(STATE), work.load(FACTORS)
    for slot, (part, what) in enumerate(zip(layout.parts, parts, strict=True)):
        gradient = work.load(gradient_of(part), rows=part.rows)
        d = part_pass(part, what, (state.start, factors.start, gradient.start),
                      memory.columns[slot], columns.start)  # fmt: skip
        work.run(update_code(what), d)
    work.store(STATE, state.start, state.count)
    work.store(FACTORS, factors.start, factors.count)
    for part in layout.parts:
        if part.index < 0:
            _spread_bias(work, part, identity, factors.start)
    _store_images(work, factors.start)
    return work.finish("the program of the update", seed)


def gradient_of(part: Part) -> str:
    """Name of the tensor that is the gradient of a part."""
    return f"l{part.layer + 1}.db" if part.index < 0 else f"l{part.layer + 1}.dG{part.index + 1}"


def part_pass(
    part: Part, what: PartUpdate, places: tuple[int, int, int], rows: ColumnRows, columns: int
) -> Vector:
    """The VECTOR of a part: first rows of state, factors (of the layout) and gradient (its own)."""
    per = part.rows // part.blocks
    state, factors, gradient = places
    streams = (
        Stream(state + part.row, per, 1), Stream(factors + part.row, per, 1),
        Stream(gradient, per, 1),
        Stream(columns + rows.left_shift, 1), Stream(columns + rows.left, 1),
        Stream(columns + rows.right_shift), Stream(columns + rows.right),
    )  # fmt: skip
    if not what.pulled:
        streams = streams[:3]
    return Vector(
        entry=0, length=1, outer=part.blocks, inner=per, streams=streams, reads=what.reads,
        writes=what.writes, constants=what.constants, key=part.row, tensor=part.name,
    )  # fmt: skip


def _spread_bias(work: Passes, part: Part, identity: Region, factors: int) -> None:
    """A bias is stored with each value in all words of a row of its own."""
    spread = work.b.pad.allocate(part.name, part.rows * LANES)
    work.transpose(identity, factors + part.row, spread.start, blocks=part.rows,
                   of=(1, 0, LANES), to=(LANES, 1), tensor=f"{part.name} spread")  # fmt: skip
    work.store(part.name, spread.start, part.size)


def _store_images(work: Passes, factors: int) -> None:
    """The factors' images, which forward and backward pass read."""
    step, layout = work.memory.step, work.memory.layout
    parts = {(part.layer, part.index): part for part in layout.parts}
    done: set[str] = set()
    for image, buffer in (*step.forward.images, *step.backward.images):
        if image.name in done or not isinstance(image, RowImage) or image.use is None:
            continue
        done.add(image.name)
        part = parts[image.layer, image.index]
        first = factors + part.row
        if image.arrangement is Arrangement.FIRST:
            work.store(image.name, first, part.rows)
            continue
        # rows (j i/) of each r follow one another in the state, rows r of each (j i/) in the image
        ranks, per = part.blocks, part.rows // part.blocks
        padded = image.rows // per
        levels = [TransferLevel(per, padded * buffer.row_bytes, 1),
                  TransferLevel(ranks, buffer.row_bytes, per)]  # fmt: skip
        work.store(image.name, first, 1, levels)

"""What a step with loss and update on the chip has in external memory beside its tensors."""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from trainwright.compiler.errors import CompileError
from trainwright.compiler.memory import Buffer, MemoryMap
from trainwright.compiler.row_images import Arrangement, RowImage
from trainwright.compiler.step import CompiledStep
from trainwright.onchip.layout import LANES, Layout

Words = npt.NDArray[np.int64]

TARGETS, STATE, FACTORS, COLUMNS = "targets", "state", "factors", "columns"
"""Rows of the loss; words and factors of the state, rows of 16; coefficients of the prior."""
LOSS, UPDATE = "program.loss", "program.update"
PROGRAM_BYTES = 1 << 16


@dataclass(frozen=True)
class ColumnRows:
    """Where in ``COLUMNS`` the rows of a part lie: of the left bond, and of the right one."""

    left_shift: int
    left: int
    right_shift: int
    right: int


@dataclass(frozen=True)
class ChipMemory:
    """A step, its state's layout, and the buffers of both programs.

    Raises ``CompileError`` for what the passes do not take yet, with the remedy.
    """

    step: CompiledStep
    layout: Layout
    buffers: dict[str, Buffer] = field(default_factory=dict)
    columns: tuple[ColumnRows, ...] = ()
    size: int = 0
    """Bytes of external memory, those of the step included."""

    @classmethod
    def of(cls, step: CompiledStep, layout: Layout) -> "ChipMemory":
        """The buffers behind those of ``step``."""
        _require(step, layout)
        rows, next_row = [], 0
        for part in layout.parts:
            firsts = [next_row, next_row + part.blocks]
            next_row += 2 * part.blocks + 2
            rows.append(ColumnRows(firsts[0], firsts[1], next_row - 2, next_row - 1))
        memory = MemoryMap(lanes=LANES, top=step.memory_bytes)
        memory.add(TARGETS, (step.batch, LANES), 1)
        memory.add(STATE, (layout.rows, LANES), 2)
        memory.add(FACTORS, (layout.rows, LANES), 1)
        memory.add(COLUMNS, (next_row, LANES), 2)
        for name in (LOSS, UPDATE):
            memory.add_bytes(name, PROGRAM_BYTES)
        return cls(step, layout, memory.buffers, tuple(rows), memory.top)

    def column_words(self, coefficients: Words, shifts: Words) -> Words:
        """Rows of ``COLUMNS`` from a word a column (``onchip.prior.pull_words``)."""
        found = np.zeros((self.buffers[COLUMNS].shape[0], LANES), np.int64)
        of_row = self.layout.column_of.reshape(2, -1, LANES)
        for part, rows in zip(self.layout.parts, self.columns, strict=True):
            firsts = part.row + np.arange(part.blocks) * (part.rows // part.blocks)
            left, right = of_row[0, firsts, 0], of_row[1, part.row]
            span = np.arange(part.blocks)
            found[rows.left_shift + span] = shifts[left][:, None]
            found[rows.left + span] = coefficients[left][:, None]
            found[rows.right_shift], found[rows.right] = shifts[right], coefficients[right]
        return found

    def target_words(self, labels: Words, classes: int) -> Words:
        """Rows of ``TARGETS``: 1 at the label, 0 at other classes, -1 where there is none."""
        found = np.tile(np.where(np.arange(LANES) < classes, 0, -1), (len(labels), 1))
        found[np.arange(len(labels)), labels] = 1
        return found


def _require(step: CompiledStep, layout: Layout) -> None:
    p, network = step.parameters, step.network
    what = f"{network.name}: loss and update on the chip"
    if not p.vector_engine:
        raise CompileError(f"{what} need a vector engine; use vector_engine=1")
    if p.lanes != LANES:
        raise CompileError(f"{what} take {LANES} lanes, not {p.lanes}; use lanes={LANES}")
    if network.layers[-1].output_size > LANES:
        raise CompileError(
            f"{what} take up to {LANES} outputs, not {network.layers[-1].output_size}; use "
            "--update host"
        )
    if step.batch % LANES:
        raise CompileError(
            f"{what} take batches of a multiple of {LANES}, not of {step.batch}; give one with "
            "--batch"
        )
    images = {image.name: image for one in (step.forward, step.backward) for image, _ in one.images}
    for image in images.values():
        known = isinstance(image, RowImage) and image.arrangement in (
            Arrangement.FIRST, Arrangement.LAST, Arrangement.IDENTITY, Arrangement.ONES,
            Arrangement.ZEROS,
        )  # fmt: skip
        if not known:
            raise CompileError(
                f"{what} cannot write {image.name} yet, only first and last factors of a layer in "
                "rows; use two factors a layer and plan auto"
            )
    if any(rank > LANES for layer in network.layers for rank in layer.ranks):
        raise CompileError(f"{what} take ranks up to {LANES}; give lower ones with --ranks")
    if network.ranks != layout.network.ranks:
        raise CompileError(
            f"{what} take the ranks of the start, {layout.network.ranks}, not {network.ranks}; "
            "keep the programs of the start"
        )

"""Compile the loss: from logits to their gradient.

The logits lie in a row an output, samples along the lanes; a pass of the vector engine takes a row
a sample. So PE1 transposes blocks of 16 samples before the pass and the gradients after it, while
the engine works on other blocks.
"""

from itertools import pairwise

from trainwright.compiler.base.memory import Region
from trainwright.compiler.base.names import IDENTITY
from trainwright.compiler.chip.class_rows import add_class_rows
from trainwright.compiler.chip.exponents import LOSS_SLOT, ExponentSlots
from trainwright.compiler.chip.memory import (
    TARGETS,
    WORD_BYTES,
    ChipMemory,
    Head,
    classes_in_rows,
)
from trainwright.compiler.chip.passes import Passes
from trainwright.kernels import VectorPass
from trainwright.onchip import loss as kernels
from trainwright.onchip.layout import LANES
from trainwright.program.descriptors import Program, TransferLevel
from trainwright.program.exponents import Scalar
from trainwright.program.vector import Stream

SAMPLES = "logits of a sample"
GRADIENTS = "gradient of a sample"
COUNTS = "classes of a sample"


def blocks_of(batch: int) -> int:
    """Return the blocks of 16 samples of a batch, the last one perhaps with fewer."""
    return -(-batch // LANES)


class _Loss:
    """Loss of a range of blocks of 16 samples of a head."""

    def __init__(
        self, work: Passes, head: Head, kernel: VectorPass, scalars: tuple[Scalar, ...],
        part: range, *, counting: bool,
    ) -> None:  # fmt: skip
        """Load the logits of the blocks in ``part``."""
        self._work, self._head, self._counting = work, head, counting
        self._pass, self._scalars = kernel, scalars
        batch = work.memory.step.batch
        self._first, self.blocks = part.start, len(part)
        self._samples_end = min(batch, LANES * part.stop)
        row_bytes = WORD_BYTES * LANES * blocks_of(batch)
        self._levels = (TransferLevel(head.outputs, row_bytes, self.blocks),)
        self._logits = self._load()
        self._samples = work.pad.allocate(SAMPLES, LANES * self.blocks)
        self._held = [self._logits, self._samples]
        if counting:
            return
        self._results = work.pad.allocate(GRADIENTS, LANES * self.blocks)
        # Lanes without a sample hold zeros: sums over samples read them.
        if rest := -self._samples_end % LANES:
            work.zeros(self._results.stop - rest, rest)
        rows = head.outputs * self.blocks
        # From the top: the rows at the bottom hold what engines read and write at the same time.
        self._back = work.pad.allocate(head.gradient, rows, top=True)
        self._held += [self._results, self._back]

    def _load(self) -> Region:
        """Load logits into rows for ``LANES`` outputs, with rows of zeros where there are fewer."""
        work, name, rows = self._work, self._head.logits, self._head.outputs * self.blocks
        to = work.pad.allocate(name, LANES * self.blocks)
        # Outputs that the network lacks are rows of zeros; their targets of -1 keep them out of
        # loss and gradient.
        if rows < to.count:
            work.zeros(to.start + rows, to.count - rows)
        if self.blocks == blocks_of(work.memory.step.batch):
            return work.load(name, rows=rows, to=to)
        return work.load(name, first=self._first, rows=self.blocks, to=to, levels=self._levels)

    def leave(self) -> None:
        """Release the rows of the blocks, for others."""
        for region in self._held:
            self._work.pad.free(region)

    def transpose(self, first: int, stop: int) -> None:
        """Transpose blocks of 16 samples to a row a sample."""
        self._work.transpose(
            self._logits.start + first, self._samples.start + LANES * first, blocks=stop - first,
            source=(1, self.blocks), to=(LANES, 1), tensor=SAMPLES,
        )  # fmt: skip

    def run(self, first: int, stop: int) -> None:
        """Emit the pass over these blocks."""
        # Only now: nothing before the first pass needs them, and the logits' load goes first.
        targets = self._work.constant(TARGETS, None).start + LANES * self._first
        starts = {kernels.LOGITS: self._samples.start, kernels.TARGETS: targets}
        if not self._counting:
            starts[kernels.GRADIENT] = self._results.start
        streams = {name: Stream(start + LANES * first, 0, 1) for name, start in starts.items()}
        samples = min(LANES * (self._first + stop), self._samples_end) - LANES * self._first
        self._work.run(
            self._pass, streams, inner=samples - LANES * first,
            slot=LOSS_SLOT, tensor=COUNTS if self._counting else GRADIENTS, scalars=self._scalars,
        )  # fmt: skip

    def put(self, first: int, stop: int) -> None:
        """Transpose the gradients of these blocks to a row an output, and store them."""
        work, head, count = self._work, self._head, stop - first
        work.transpose(
            self._results.start + LANES * first, self._back.start + first, blocks=count,
            source=(LANES, 1), to=(1, self.blocks), rows=head.outputs, tensor=head.gradient,
        )  # fmt: skip
        place = self._first + first
        work.store(head.gradient, self._back.start + first, count, self._levels, first=place)


def loss_program(
    memory: ChipMemory, loss_name: str, slots: ExponentSlots, *, counting: bool = False
) -> Program:  # fmt: skip
    """Return the program from logits to the gradient of a loss of ``onchip.loss.LOSSES``.

    ``slots`` have the exponents of the logits of each head. The losses of all heads, and the
    correct samples of the main head, are counted in ``LOSS_SLOT``. A ``counting`` program writes no
    gradient, and rows of targets without a label count for nothing.
    """
    work = Passes(memory, slots)
    add = add_class_rows if classes_in_rows(memory.step.network) else _add
    for head in memory.heads:
        scalars = kernels.loss_scalars(loss_name, slots[head.logits])
        add(work, head, loss_name, scalars, counting=counting)
    return work.finish("the program of the evaluation" if counting else "the program of the loss")


def _add(
    work: Passes, head: Head, loss_name: str, scalars: tuple[Scalar, ...], *, counting: bool
) -> None:
    """Add the loss of a head whose samples take a row each, as many at a time as have room."""
    kernel = kernels.loss_pass(loss_name, None, counting=counting, main=head.main)
    batch = work.memory.step.batch
    work.constant(IDENTITY)
    most = blocks = blocks_of(batch)
    # Logits, samples, results and gradients of the blocks, and the targets of the whole batch.
    sizes = (LANES, LANES, LANES, head.outputs)
    while most > 1 and not work.pad.has_room((*(size * most for size in sizes), batch)):
        most = -(-most // 2)
    for first in range(0, blocks, most):
        part = range(first, min(first + most, blocks))
        loss = _Loss(work, head, kernel, scalars, part, counting=counting)
        _add_blocks(loss, counting=counting)
        loss.leave()


def _add_blocks(loss: _Loss, *, counting: bool) -> None:
    """Add transposes and passes over all blocks of a loss."""
    blocks = loss.blocks
    # The transpose before the first pass and the one after the last are hidden by nothing, so these
    # two passes take a single block. Without gradients a single pass takes all.
    ends = {0, blocks} if counting else {0, 1, blocks - 1, blocks} & set(range(blocks + 1))
    pieces = list(pairwise(sorted(ends)))
    loss.transpose(*pieces[0])
    for number, piece in enumerate(pieces):
        loss.run(*piece)
        if number + 1 < len(pieces):
            loss.transpose(*pieces[number + 1])
        if number:
            loss.put(*pieces[number - 1])
    if not counting:
        loss.put(*pieces[-1])

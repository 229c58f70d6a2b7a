"""Compile the loss: from logits to their gradient.

The logits lie in a row an output, samples along the lanes; a pass of the vector engine takes a row
a sample. So PE1 transposes blocks of 16 samples before the pass and the gradients after it, while
the engine works on other blocks.
"""

from itertools import pairwise

from trainwright.compiler.base.memory import Region
from trainwright.compiler.base.names import IDENTITY
from trainwright.compiler.chip.class_rows import class_rows_program
from trainwright.compiler.chip.exponents import LOSS_SLOT, ExponentSlots
from trainwright.compiler.chip.memory import TARGETS, ChipMemory, classes_in_rows
from trainwright.compiler.chip.passes import Passes
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


def load_logits(work: Passes) -> Region:
    """Load the logits into rows for ``LANES`` outputs, with rows of zeros where there are fewer."""
    step = work.memory.step
    name, outputs = step.results[0], step.network.output_size
    to = work.pad.allocate(name, LANES * blocks_of(step.batch))
    rows = outputs * blocks_of(step.batch)
    # Outputs that the network lacks are rows of zeros; their targets of -1 keep them out of loss
    # and gradient.
    if rows < to.count:
        work.zeros(to.start + rows, to.count - rows)
    return work.load(name, rows=rows, to=to)


def _scalars(work: Passes, loss: str) -> tuple[Scalar, ...]:
    """Return what a pass takes from the exponent file, if there is one."""
    last = work.memory.step.results[0]
    return kernels.loss_scalars(loss, work.slots[last]) if work.slots else ()


class _Loss:
    def __init__(self, work: Passes, loss: str, exponent: int | None) -> None:
        self._work = work
        self._pass, self._scalars = kernels.loss_pass(loss, exponent), _scalars(work, loss)
        step = work.memory.step
        self._gradient = step.uppers[0]
        self._batch, self.blocks = step.batch, blocks_of(step.batch)
        work.constant(IDENTITY)
        self._logits = load_logits(work)
        self._outputs = step.network.output_size
        self._samples, self._results = (
            work.pad.allocate(name, LANES * self.blocks) for name in (SAMPLES, GRADIENTS)
        )
        # Lanes without a sample hold zeros: sums over samples read them.
        if rest := -step.batch % LANES:
            work.zeros(self._results.stop - rest, rest)
        rows = self._outputs * self.blocks
        # From the top: the rows at the bottom hold what engines read and write at the same time.
        self._back = work.pad.allocate(self._gradient, rows, top=True)
        self._targets: Region | None = None

    def transpose(self, first: int, stop: int) -> None:
        """Transpose blocks of 16 samples to a row a sample."""
        self._work.transpose(
            self._logits.start + first, self._samples.start + LANES * first, blocks=stop - first,
            source=(1, self.blocks), to=(LANES, 1), tensor=SAMPLES,
        )  # fmt: skip

    def run(self, first: int, stop: int) -> None:
        """Emit the pass over these blocks."""
        if self._targets is None:
            # Only now: nothing before the first pass needs them, and the logits' load goes first.
            self._targets = self._work.load(TARGETS)
        regions = {
            kernels.LOGITS: self._samples,
            kernels.TARGETS: self._targets,
            kernels.GRADIENT: self._results,
        }
        streams = {n: Stream(r.start + LANES * first, 0, 1) for n, r in regions.items()}
        self._work.run(
            self._pass, streams, inner=min(LANES * stop, self._batch) - LANES * first,
            slot=LOSS_SLOT, tensor=GRADIENTS, scalars=self._scalars,
        )  # fmt: skip

    def put(self, first: int, stop: int) -> None:
        """Transpose the gradients of these blocks to a row an output, and store them."""
        work, count = self._work, stop - first
        work.transpose(
            self._results.start + LANES * first, self._back.start + first, blocks=count,
            source=(LANES, 1), to=(1, self.blocks), rows=self._outputs, tensor=self._gradient,
        )  # fmt: skip
        row_bytes = work.buffer(self._gradient).element_bytes * LANES * self.blocks
        level = TransferLevel(self._outputs, row_bytes, self.blocks)
        work.store(self._gradient, self._back.start + first, count, (level,), first=first)


def loss_program(
    memory: ChipMemory, loss_name: str, exponent: int | None = None, *,
    slots: ExponentSlots | None = None,
) -> Program:  # fmt: skip
    """Return the program from logits to the gradient of a loss of ``onchip.loss.LOSSES``.

    The logits have ``exponent``; None takes it from their slot. Losses and correct samples are
    counted in ``LOSS_SLOT``.
    """
    if classes_in_rows(memory.step.network):
        return class_rows_program(memory, loss_name, exponent, slots)
    work = Passes(memory, slots)
    loss = _Loss(work, loss_name, exponent)
    blocks = loss.blocks
    # The transpose before the first pass and the one after the last are hidden by nothing, so these
    # two passes take a single block.
    pieces = list(pairwise(sorted({0, 1, blocks - 1, blocks} & set(range(blocks + 1)))))
    loss.transpose(*pieces[0])
    for number, piece in enumerate(pieces):
        loss.run(*piece)
        if number + 1 < len(pieces):
            loss.transpose(*pieces[number + 1])
        if number:
            loss.put(*pieces[number - 1])
    loss.put(*pieces[-1])
    return work.finish("the program of the loss")


def counting_program(memory: ChipMemory, loss_name: str, slots: ExponentSlots) -> Program:
    """Return the program that counts losses and correct samples of the logits, without a gradient.

    The exponent of the file is used. Rows of targets without a label count for nothing.
    """
    if classes_in_rows(memory.step.network):
        return class_rows_program(memory, loss_name, None, slots, counting=True)
    work = Passes(memory, slots)
    step = memory.step
    blocks = blocks_of(step.batch)
    work.constant(IDENTITY)
    logits = load_logits(work)
    samples = work.pad.allocate(SAMPLES, LANES * blocks)
    work.transpose(logits.start, samples.start, blocks=blocks, source=(1, blocks), to=(LANES, 1),
                   tensor=SAMPLES)  # fmt: skip
    regions = {kernels.LOGITS: samples, kernels.TARGETS: work.load(TARGETS)}
    work.run(
        kernels.loss_pass(loss_name, None, counting=True),
        {name: Stream(region.start, 0, 1) for name, region in regions.items()},
        inner=step.batch, slot=LOSS_SLOT, tensor=COUNTS, scalars=_scalars(work, loss_name),
    )  # fmt: skip
    return work.finish("the program of the evaluation")

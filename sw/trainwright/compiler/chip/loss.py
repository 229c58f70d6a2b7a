"""Compile the loss: from logits to their gradient.

Logits have a row for each output, and samples along the lanes. A pass takes a row a sample if a
row has a lane for each class, so PE1 transposes pieces of the logits before their pass and pieces
of the gradient after it, while the engine works on other pieces. With more classes, the rows of a
sample's classes are a group, as tokens are for a softmax: passes over groups need no transpose.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import pairwise

from trainwright.compiler.base.names import IDENTITY
from trainwright.compiler.chip.exponents import LOSS_SLOT, ExponentSlots
from trainwright.compiler.chip.memory import ChipMemory, Head, LabelGrid, classes_in_rows
from trainwright.compiler.chip.passes import Passes
from trainwright.compiler.forms.layout import Layout, Part, Piece, Storage
from trainwright.compiler.forms.passes import PassPlan
from trainwright.kernels import VectorPass, lower
from trainwright.kernels.phases import lower_groups
from trainwright.onchip import loss as kernels
from trainwright.program.descriptors import Level, Program, TransferLevel
from trainwright.program.exponents import Scalar
from trainwright.program.vector import Stream

SAMPLES = "logits of a sample"
GRADIENTS = "gradient of a sample"
COUNTS = "classes of a sample"
"""Names of rows and passes, for people."""
MOST_PASS_BLOCKS = 2
"""Most blocks of a pass; a block has a sample in each lane. The first pass takes one, as nothing
hides the transpose before it. The last pass takes one if the number of blocks is even."""

CLASS, SEQUENCE, SAMPLE = "class", "sequence", "sample"
"""Axes of logits with classes in rows: two of rows, and that of the lanes."""
LAYOUTS = (
    Layout((CLASS, SEQUENCE), (SAMPLE,)), Layout((SEQUENCE,), (SAMPLE,)),
    Layout((CLASS,), (SAMPLE,)), Layout((CLASS, SEQUENCE), (SAMPLE,)),
)  # fmt: skip
"""Layouts of logits, labels, numbers of classes, and gradient."""


def loss_program(
    memory: ChipMemory, loss_name: str, slots: ExponentSlots, *, counting: bool = False
) -> Program:  # fmt: skip
    """Return the program from logits to the gradient of a loss of ``onchip.loss.KERNELS``.

    ``slots`` have the exponents of the logits of each head. The losses of all heads, and the
    correct samples of the main head, are counted in ``LOSS_SLOT``. A ``counting`` program writes no
    gradient, and rows of targets without a label count for nothing.
    """
    work = Passes(memory, slots)
    add = _add_groups if classes_in_rows(memory.step.network, work.p.lanes) else _add_rows
    for head in memory.heads:
        scalars = kernels.loss_scalars(loss_name, slots[head.logits])
        add(work, head, loss_name, scalars, counting=counting)
    return work.finish("the program of the evaluation" if counting else "the program of the loss")


def _levels(work: Passes, head: Head, blocks: int) -> tuple[TransferLevel, ...]:
    """Return the rows of a few blocks of all outputs in the buffers of logits and gradient."""
    grid = LabelGrid.of(head.kind, work.memory.step.batch, work.p.lanes)
    row_bytes = work.p.row_bytes * grid.sequences * grid.blocks
    return (TransferLevel(head.outputs, row_bytes, blocks),)


def _piece(
    work: Passes, head: Head, kernel: VectorPass, logits: int, step: int, first: int, stop: int, *,
    scalars: tuple[Scalar, ...], counting: bool,
) -> Iterator[None]:  # fmt: skip
    """Emit the loss of blocks ``first`` to ``stop`` in stages: transpose, pass, and gradient.

    Their logits are in rows from ``logits`` on, ``step`` rows an output.
    """
    blocks, lanes = stop - first, work.p.lanes
    count = min(lanes * stop, work.memory.step.batch) - lanes * first
    samples, results = (work.pad.allocate(name, lanes * blocks) for name in (SAMPLES, GRADIENTS))
    # From the top: the rows at the bottom hold what engines read and write at the same time.
    back = work.pad.allocate(head.gradient, head.outputs * blocks, top=True)
    work.transpose(logits, samples.start, (Level(blocks, g=1, z=lanes),), source=step, to=1,
                   tensor=SAMPLES)  # fmt: skip
    yield
    # Lanes without a sample hold zeros: sums over samples read them.
    work.clear(results.stop, results.count - count)
    # Only now: nothing before the first pass needs them, and the logits' load goes first.
    targets = work.constant(head.kind.targets, None).start + lanes * first
    starts = {kernels.LOGITS: samples.start, kernels.TARGETS: targets,
              kernels.GRADIENT: results.start}  # fmt: skip
    work.run(
        kernel, {name: Stream(start, 0, 1) for name, start in starts.items()}, inner=count,
        slot=LOSS_SLOT, scalars=scalars, tensor=COUNTS if counting else GRADIENTS,
    )  # fmt: skip
    yield
    if not counting:
        work.transpose(results.start, back.start, (Level(blocks, g=lanes, z=1),), source=1,
                       to=blocks, rows=head.outputs, tensor=head.gradient)  # fmt: skip
        levels = _levels(work, head, blocks)
        work.store(head.gradient, back.start, blocks, levels, first=first)
    for region in (samples, results, back):
        work.pad.free(region)
    yield


def _add_rows(
    work: Passes, head: Head, loss: str, scalars: tuple[Scalar, ...], *, counting: bool
) -> None:
    """Add the loss of a head whose samples take a row each."""
    kernel = lower(kernels.KERNELS[loss], exponent=None, counting=counting, main=head.main)
    lanes = work.p.lanes
    blocks = -(-work.memory.step.batch // lanes)
    work.constant(IDENTITY)
    # Pieces and targets take up to seven times as many rows as the logits of the same blocks.
    count = max(1, min(blocks, work.pad.largest_gap // (8 * lanes)))
    for first in range(0, blocks, count):
        stop = min(first + count, blocks)
        step = stop - first
        logits = work.pad.allocate(head.logits, lanes * step)
        # Outputs that the network lacks are rows of zeros; their targets of -1 keep them out of
        # loss and gradient.
        work.clear(logits.stop, (lanes - head.outputs) * step)
        work.load(head.logits, first=first, rows=step, to=logits, levels=_levels(work, head, step))
        pieces = [
            _piece(work, head, kernel, logits.start + begin - first, step, begin, end,
                   scalars=scalars, counting=counting)
            for begin, end in pairwise((first, *range(first + 1, stop, MOST_PASS_BLOCKS), stop))
        ]  # fmt: skip
        for number in range(len(pieces) + 2):
            # The pass of a piece first: PE1 transposes the next piece and its gradient meanwhile.
            for n in (number - 1, number, number - 2):
                if 0 <= n < len(pieces):
                    next(pieces[n])
        work.pad.free(logits)


def _add_groups(
    work: Passes, head: Head, loss: str, scalars: tuple[Scalar, ...], *, counting: bool
) -> None:
    """Add the loss of a head whose classes are a group of rows for each sample."""
    classes, outputs, pad, lanes = head.classes, head.outputs, work.pad, work.p.lanes
    grid = LabelGrid.of(head.kind, work.memory.step.batch, lanes)
    columns = grid.sequences * grid.blocks
    numbers, labels = (work.constant(name, None) for name in (head.kind.numbers, head.kind.targets))
    # Take as many groups at a time as leave room for the gradient next to the logits.
    room = pad.largest_gap // (2 * outputs * grid.blocks)
    count = grid.blocks * max(1, min(grid.sequences, room))
    used, result = (pad.allocate(name, outputs * count) for name in (head.logits, head.gradient))
    lowered = partial(lower_groups, kernels.KERNELS[loss], classes, exponent=None,
                      counting=counting, main=head.main)  # fmt: skip
    for first in range(0, columns, count):
        piece = min(count, columns - first)
        levels = _levels(work, head, piece)
        work.load(head.logits, first=first, rows=piece, to=used, levels=levels)
        counts = {CLASS: classes, SEQUENCE: piece // grid.blocks, SAMPLE: grid.samples}
        parts = [
            Part(Piece("", layout, counts, {}, lanes, Storage("", 0)), {}) for layout in LAYOUTS
        ]
        plan = PassPlan(COUNTS if counting else GRADIENTS, lowered, (CLASS,), parts, work.p,
                        automatic=True, masked=True)  # fmt: skip
        joined = pad.allocate("sums of threads", plan.scratch_rows)
        bases = used.start, labels.start + first, numbers.start, result.start
        for code, vector in plan.vectors(bases, joined.start):
            work.issue(code, replace(vector, scalars=scalars), slot=LOSS_SLOT)
        pad.free(joined)
        if counting:
            continue
        # Outputs of no class have no gradient.
        work.clear(result.start + outputs * piece, (outputs - classes) * piece)
        work.store(head.gradient, result.start, piece, levels, first=first)
    for region in (used, result):
        pad.free(region)

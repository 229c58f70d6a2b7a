"""Compile the loss of more than 16 classes: from logits to their gradient, without transposes.

Logits have a row for each output, and samples along the lanes. The classes of a sample are a group
of rows, as tokens are for a softmax, so passes over groups compute the loss in the logits' own
layout.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, cast

from trainwright.compiler.base.memory import Region
from trainwright.compiler.chip.exponents import LOSS_SLOT
from trainwright.compiler.chip.memory import NUMBERS, TARGETS, WORD_BYTES, Head, LabelGrid
from trainwright.compiler.chip.passes import Passes
from trainwright.compiler.forms.calls import PassCall
from trainwright.compiler.forms.layout import Layout, Part, Piece, Storage
from trainwright.compiler.forms.passes import PassPlan, pass_vectors
from trainwright.fixed.scale import TensorClass
from trainwright.formats import Fixed
from trainwright.graph.ir import Kernel, Tensor
from trainwright.kernels.phases import GroupLayout, GroupPass
from trainwright.onchip import loss as kernels
from trainwright.onchip.layout import LANES
from trainwright.program.descriptors import TransferLevel
from trainwright.program.exponents import Scalar
from trainwright.program.fields import Engine

CLASS, SEQUENCE, SAMPLE = "class", "sequence", "sample"
"""Axes of logits: two of rows, and that of the lanes."""
LAYOUTS = (
    Layout((CLASS, SEQUENCE), (SAMPLE,)), Layout((SEQUENCE,), (SAMPLE,)),
    Layout((CLASS,), (SAMPLE,)), Layout((CLASS, SEQUENCE), (SAMPLE,)),
)  # fmt: skip
"""Layouts of logits, labels, numbers of classes, and gradient."""


GRADIENTS, COUNTS = "gradient of samples", "classes of samples"
"""Names of the passes, for people."""


@dataclass(frozen=True)
class ClassLoss:
    """Kernel, as ``PassPlan`` takes it, that computes a loss."""

    loss: str
    group: int
    """Classes."""
    counting: bool
    main: bool
    automatic: ClassVar[bool] = True
    """Whether passes collect statistics: then no two passes may compute the same group."""

    def passes(
        self, widths: tuple[int, ...], width: int, layout: GroupLayout
    ) -> tuple[GroupPass, ...]:
        """Return the passes of the loss, whose operands have words of 16 bits."""
        return kernels.loss_phases(
            self.loss, self.group, layout, None, counting=self.counting, main=self.main
        )


def add_class_rows(
    work: Passes, head: Head, loss: str, scalars: tuple[Scalar, ...], *, counting: bool = False
) -> None:
    """Add the loss of a head to a program; a ``counting`` program writes no gradient."""
    step, network = work.memory.step, work.memory.step.network
    logits, gradient, outputs = head.logits, head.gradient, head.outputs
    grid = LabelGrid.of(network, step.batch)
    columns = grid.sequences * grid.blocks
    numbers, labels = (work.constant(name, None) for name in (NUMBERS, TARGETS))
    # Take as many groups at a time as leave room for the gradient next to the logits.
    room = work.pad.largest_gap // (2 * outputs * grid.blocks)
    count = grid.blocks * max(1, min(grid.sequences, room))
    used, result = (work.pad.allocate(name, outputs * count) for name in (logits, gradient))
    kernel = ClassLoss(loss, network.classes, counting, head.main)
    for first in range(0, columns, count):
        piece = min(count, columns - first)
        levels = (TransferLevel(outputs, columns * WORD_BYTES * LANES, piece),)
        work.load(logits, first=first, rows=piece, to=used, levels=levels)
        counts = {SEQUENCE: piece // grid.blocks, SAMPLE: grid.samples}
        own = (used, replace(labels, start=labels.start + first), numbers, result)
        call, at, scratch = _call(work, kernel, own, counts)
        for code, vector in pass_vectors(call, at):
            vector = replace(vector, scalars=scalars, tensor=COUNTS if counting else GRADIENTS)
            work.issue(code, vector, slot=LOSS_SLOT)
        for region in scratch:
            work.pad.free(region)
        if counting:
            continue
        # Outputs of no class have no gradient.
        if rest := (outputs - network.classes) * piece:
            work.zeros(result.start + network.classes * piece, rest)
        work.store(gradient, result.start, piece, levels, first=first)
    for region in (used, result):
        work.pad.free(region)


def _call(
    work: Passes, kernel: ClassLoss, regions: Sequence[Region], sizes: Mapping[str, int]
) -> tuple[PassCall, dict[Storage, int], list[Region]]:
    """Return the passes of a loss on ``regions`` (operands, then the result).

    Also return their rows, and regions that only the passes use.
    """
    counts, at = {CLASS: kernel.group, **sizes}, dict[Storage, int]()

    def part(region: Region, layout: Layout, counts: Mapping[str, int]) -> Part:
        storage = Storage(region.name, region.count)
        at[storage] = region.start
        return Part(Piece(region.name, layout, counts, {}, LANES, storage), {})

    *operands, z = (
        part(region, layout, counts) for region, layout in zip(regions, LAYOUTS, strict=True)
    )
    names = [region.name for region in regions]
    tensors = {
        name: Tensor(name, LAYOUTS[0].rows + LAYOUTS[0].lanes, TensorClass.INTERMEDIATE,
                     Fixed(kernels.WORD_WIDTH))
        for name in names
    }  # fmt: skip
    op = Kernel(names[-1], tuple(names[:-1]), cast(Any, kernel), over=(CLASS,))
    plan = PassPlan(op, tensors, [*operands, z], work.p)
    rows = plan.scratch_rows
    scratch = [work.pad.allocate("sums of threads", rows)] if rows else list[Region]()
    writes = [z, *(part(r, Layout(("row",), ()), {"row": r.count}) for r in scratch)]
    call = PassCall(
        engine=Engine.PE2, cycles=0.0, op=op, passes=plan, reads=tuple(operands),
        writes=tuple(writes),
    )  # fmt: skip
    return call, at, scratch

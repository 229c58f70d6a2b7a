"""Compile the loss of more than 16 classes: from logits to their gradient, without transposes.

Logits have a row for each output, and samples along the lanes. The classes of a sample are a group
of rows, as tokens are for a softmax, so passes over groups compute the loss in the logits' own
layout.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, cast

from trainwright.compiler.base.memory import Region
from trainwright.compiler.chip.exponents import LOSS_SLOT, ExponentSlots
from trainwright.compiler.chip.memory import NUMBERS, TARGETS, ChipMemory
from trainwright.compiler.chip.passes import Passes
from trainwright.compiler.forms.calls import GroupCall
from trainwright.compiler.forms.layout import Layout, Part, Piece, Storage
from trainwright.compiler.forms.passes import GroupPlan, group_vectors
from trainwright.fixed.scale import TensorClass
from trainwright.formats import Fixed
from trainwright.graph.ir import Kernel, Tensor
from trainwright.kernels.phases import GroupLayout, GroupPass
from trainwright.onchip import loss as kernels
from trainwright.onchip.layout import LANES
from trainwright.program.descriptors import Program
from trainwright.program.fields import Engine

CLASS, SAMPLE = "class", "sample"
"""Axes of logits: rows and lanes."""


@dataclass(frozen=True)
class ClassLoss:
    """Kernel over groups, as ``GroupPlan`` takes it, that computes a loss."""

    loss: str
    classes: int
    exponent: int | None
    automatic: ClassVar[bool] = True
    """Whether passes collect statistics: then no two passes may compute the same group."""

    def group_passes(
        self, widths: tuple[int, ...], width: int, layout: GroupLayout
    ) -> tuple[GroupPass, ...]:
        """Return the passes of the loss, whose operands have words of 16 bits."""
        return kernels.loss_phases(self.loss, self.classes, layout, self.exponent)


def class_rows_program(
    memory: ChipMemory, loss: str, exponent: int | None, slots: ExponentSlots | None
) -> Program:
    """Return the program of a loss; the arguments are those of ``loss.loss_program``."""
    work, step = Passes(memory, slots), memory.step
    network, logits, gradient = step.network, step.results[0], step.uppers[0]
    rows = network.output_size * -(-step.batch // LANES)
    regions = [work.load(logits, rows=rows), work.load(TARGETS), work.load(NUMBERS)]
    result = work.pad.allocate(gradient, rows)
    used = regions[1].count
    if used < rows:  # outputs of no class have no gradient
        work.zeros(result.start + used, rows - used)
    scalars = kernels.loss_scalars(loss, slots[logits]) if slots else ()
    call, at = _call(work, ClassLoss(loss, network.classes, exponent), [*regions, result])
    for code, vector in group_vectors(call, at):
        work.issue(code, replace(vector, scalars=scalars), slot=LOSS_SLOT)
    work.store(gradient, result.start, rows)
    return work.finish("the program of the loss")


def _call(
    work: Passes, kernel: ClassLoss, regions: list[Region]
) -> tuple[GroupCall, dict[Storage, int]]:
    """Return the passes of a loss on ``regions`` (operands, then the result), and their rows."""
    counts = {CLASS: kernel.classes, SAMPLE: work.memory.step.batch}
    lying, at = Layout((CLASS,), (SAMPLE,)), dict[Storage, int]()

    def part(region: Region, layout: Layout, counts: dict[str, int]) -> Part:
        storage = Storage(region.name, region.count)
        at[storage] = region.start
        return Part(Piece(region.name, layout, counts, {}, LANES, storage), {})

    *operands, z = (part(region, lying, counts) for region in regions)
    names = [region.name for region in regions]
    tensors = {
        name: Tensor(name, (CLASS, SAMPLE), TensorClass.INTERMEDIATE, Fixed(kernels.WORD_WIDTH))
        for name in names
    }
    op = Kernel(names[-1], tuple(names[:-1]), cast(Any, kernel), over=(CLASS,))
    plan = GroupPlan(op, tensors, [*operands, z], work.p)
    writes = [z]
    if plan.scratch_rows:
        scratch = work.pad.allocate("sums of threads", plan.scratch_rows)
        writes.append(part(scratch, Layout(("row",), ()), {"row": scratch.count}))
    call = GroupCall(
        engine=Engine.PE2, cycles=0.0, op=op, passes=plan, reads=tuple(operands),
        writes=tuple(writes),
    )  # fmt: skip
    return call, at

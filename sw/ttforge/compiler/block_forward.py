"""The forward program of the planned schedules: the whole batch at once, samples along the lanes."""

from collections.abc import Sequence

from ttforge.compiler.bidirectional import BidirectionalForward
from ttforge.compiler.builder import Builder
from ttforge.compiler.memory import MemoryMap
from ttforge.compiler.merged import Merged, Split
from ttforge.compiler.names import activation_name
from ttforge.compiler.plans import ForwardBidirectional, ForwardPlan, ForwardRebuild
from ttforge.compiler.rebuild import RebuildForward
from ttforge.compiler.workspace import Operand, Workspace
from ttforge.fixed.scale import TensorClass
from ttforge.network import Network

SAMPLES_INSIDE = "x.i"
"""The input as (I, batch): samples along the lanes."""
SAMPLES_OUTSIDE = "x.s"
"""The input as (batch, I)."""


def emit_block_forward(
    b: Builder, network: Network, batch: int, memory: MemoryMap, plans: Sequence[ForwardPlan]
) -> None:
    """Emit the forward program."""
    w = Workspace(b, memory)
    a: Operand | None = None
    for number, plan in enumerate(plans):
        a = _layer(w, Split(network, number, plan.bond), plan, batch, a)
    b.halt()


def _emitter(
    w: Workspace, split: Split, plan: ForwardPlan, merged: Merged, batch: int
) -> RebuildForward | BidirectionalForward:
    if isinstance(plan, ForwardRebuild):
        return RebuildForward(w, split, plan, merged)
    return BidirectionalForward(w, split, plan, merged, batch)


def needs_outside(plan: ForwardPlan) -> bool:
    """Whether PE1 takes part in the layer's products, with the input as (batch, I)."""
    return plan.shared if isinstance(plan, ForwardRebuild) else plan.dot_samples > 0


def spare_rows(split: Split, plan: ForwardPlan, lanes: int) -> int:
    """Rows behind Left that are read when it is turned."""
    if isinstance(plan, ForwardBidirectional):
        return -split.p % lanes * split.u
    return -plan.strip_p * split.u % lanes


def _layer(
    w: Workspace, split: Split, plan: ForwardPlan, batch: int, a: Operand | None
) -> Operand:
    """One layer: its activations (j, s/), which stay on chip."""
    lanes, layer, widths = w.p.lanes, split.layer, split.network.widths
    rows = -(-batch // lanes)
    merged = Merged(w, split, banks=(1, 3), spare=spare_rows(split, plan, lanes))
    outside: list[Operand] = []
    inside = [a.seen(a.block.renamed(j="i"))] if a else []

    def load_inputs() -> None:
        if a is None:
            block = w.block("x", bank=0, i=layer.input_size, s_=rows)
            w.load(SAMPLES_INSIDE, block)
            inside.append(Operand(block, "x", widths.activation))
            if needs_outside(plan):
                block = w.block("x", bank=1, s=rows * lanes, i_=layer.input_size // lanes)
                w.load(SAMPLES_OUTSIDE, block)
                outside.append(Operand(block, "x", widths.activation))

    merged.make(load_inputs)
    if needs_outside(plan) and not outside:
        sizes = {"s": rows * lanes, "i_": layer.input_size // lanes}
        name = f"{activation_name(split.number)}.s"
        outside.append(w.turn(inside[0], name, rows="s", entries="i", bank=1, **sizes))
    emitter = _emitter(w, split, plan, merged, batch)
    emitter.prepare()
    y = w.block(split.name("y"), bank=2, j=layer.output_size, s_=rows)
    count = batch * layer.output_size
    tensor = w.written(split.name("y"), TensorClass.INTERMEDIATE, widths.intermediate, count)
    emitter.multiply(inside[0], outside[0] if outside else None, y, tensor)
    emitter.free()
    w.free(inside[0].block, *(x.block for x in outside))
    return _activation(w, split, batch, Operand(y, tensor.name, tensor.width))


def _activation(w: Workspace, split: Split, batch: int, y: Operand) -> Operand:
    """Bias and activation, in place, and the store of the result."""
    layer, widths, number = split.layer, split.network.widths, split.number
    last = number == len(split.network.layers) - 1
    name, rows = activation_name(number + 1), y.block.size("s/")
    tensor = w.written(
        name,
        TensorClass.INTERMEDIATE if last else TensorClass.ACTIVATION,
        widths.intermediate if last else widths.activation,
        batch * layer.output_size,
    )
    whole, parts = batch // w.p.lanes, []
    if whole:
        parts.append((split.name("b"), y.block.part("s/", 0, whole)))
    if whole < rows:
        parts.append((split.name("b.last"), y.block.part("s/", whole, rows - whole)))
    for source, part in parts:
        bias = w.block(source, bank=1, j=layer.output_size)
        w.load(source, bias)
        operand = Operand(bias, split.name("b"), widths.bias)
        w.bias(y.seen(part), operand, part, tensor, relu=layer.relu)
        w.free(bias)
    w.store(name, y.block)
    return Operand(y.block, name, tensor.width)

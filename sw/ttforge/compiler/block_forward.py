"""The forward program of the planned schedules: the whole batch at once, samples along the lanes."""

from collections.abc import Sequence

from ttforge.compiler.bidirectional import BidirectionalForward, places
from ttforge.compiler.blocks import Block
from ttforge.compiler.builder import Builder
from ttforge.compiler.memory import MemoryMap
from ttforge.compiler.merged import Merged, Split
from ttforge.compiler.names import activation_name
from ttforge.compiler.plans import ForwardBidirectional, ForwardPlan, ForwardRebuild
from ttforge.compiler.rebuild import RebuildForward
from ttforge.compiler.workspace import BOTTOM, HIGH, LOW, Operand, Place, Workspace, first_fitting
from ttforge.fixed.scale import TensorClass
from ttforge.network import Network
from ttforge.parameters import AcceleratorParameters

SAMPLES_INSIDE = "x.i"
"""The input as (I, batch): samples along the lanes."""
SAMPLES_OUTSIDE = "x.s"
"""The input as (batch, I)."""


def emit_block_forward(
    p: AcceleratorParameters, network: Network, batch: int, memory: MemoryMap, plans: Sequence[ForwardPlan]
) -> Builder:
    """Emit the forward program."""
    split = any(isinstance(plan, ForwardBidirectional) for plan in plans)
    tried = (HIGH, BOTTOM) if split else (LOW, HIGH, BOTTOM)
    return first_fitting(lambda place: _emit(p, network, batch, memory, plans, place), tried)


def _emit(
    p: AcceleratorParameters,
    network: Network,
    batch: int,
    memory: MemoryMap,
    plans: Sequence[ForwardPlan],
    place: Place,
) -> Builder:
    b = Builder(p)
    w = Workspace(b, memory, place)
    a: Operand | None = None
    for number, plan in enumerate(plans):
        a = _layer(w, Split(network, number, plan.bond), plan, batch, a)
    b.halt()
    return b


def _emitter(
    w: Workspace, split: Split, plan: ForwardPlan, merged: Merged, batch: int
) -> RebuildForward | BidirectionalForward:
    if isinstance(plan, ForwardRebuild):
        return RebuildForward(w, split, plan, merged)
    return BidirectionalForward(w, split, plan, merged, batch)


def spare_rows(split: Split, plan: ForwardPlan, lanes: int) -> int:
    """Rows behind Left that are read when it is turned."""
    if isinstance(plan, ForwardBidirectional):
        return -split.p % lanes * split.u
    return -plan.strip_p * split.u % lanes


class _Inputs:
    """The input of a layer, for PE2 as (i, s/) and for PE1 as (s, i/), as far as each needs it."""

    def __init__(self, w: Workspace, split: Split, plan: ForwardPlan, batch: int):
        self.w, self.split = w, split
        self.rows = -(-batch // w.p.lanes)
        self.first, self.dots = 0, 0  # rows of samples: the first of PE2's, the number of PE1's
        self.places: dict[str, dict[str, int]] = {"a": {"bank": 0}, "b": {"bank": 1}, "y": {"bank": 2}}
        if isinstance(plan, ForwardBidirectional):
            self.first = self.dots = plan.dot_samples
            found = places(split, plan, self.rows, w.p.lanes)
            self.places = {name: {"at": found[name]} for name in ("a", "b", "y", "right")}
        elif plan.shared:
            self.dots = self.rows
        self._made: list[Block] = []
        self.inside: Operand | None = None
        self.outside: Operand | None = None

    def load(self) -> None:
        """Load the network's input."""
        w, size, lanes = self.w, self.split.layer.input_size, self.w.p.lanes
        width = self.split.network.widths.activation
        if self.first < self.rows:
            block = w.block("x", i=size, s_=self.rows - self.first, **self.places["a"])
            w.load_columns(SAMPLES_INSIDE, block, self.first, self.rows)
            self.inside = self._kept(Operand(block, "x", width))
        if self.dots:
            block = w.block("x", s=self.dots * lanes, i_=size // lanes, **self.places["b"])
            w.load(SAMPLES_OUTSIDE, block, rows=self.dots * lanes * size // lanes)
            self.outside = self._kept(Operand(block, "x", width))

    def take(self, a: Operand) -> None:
        """Take the activations of the layer below, (j, s/)."""
        w, size, lanes = self.w, self.split.layer.input_size, self.w.p.lanes
        a = a.seen(a.block.renamed(j="i"))
        self._made.append(a.block)
        if self.first < self.rows:
            self.inside = a.seen(a.block.part("s/", self.first, self.rows - self.first))
        if self.dots:
            part = a.seen(a.block.part("s/", 0, self.dots))
            sizes = {"s": self.dots * lanes, "i_": size // lanes} | self.places["b"]
            turned = w.turn(part, f"{a.name}.s", rows="s", entries="i", **sizes)
            self.outside = self._kept(turned)

    def _kept(self, x: Operand) -> Operand:
        self._made.append(x.block)
        return x

    def free(self) -> None:
        """Give all rows back."""
        self.w.free(*self._made)


def _layer(w: Workspace, split: Split, plan: ForwardPlan, batch: int, a: Operand | None) -> Operand:
    """One layer: its activations (j, s/), which stay on chip."""
    layer, widths, rebuild = split.layer, split.network.widths, isinstance(plan, ForwardRebuild)
    inputs = _Inputs(w, split, plan, batch)
    merged = Merged(
        w,
        split,
        banks=(1, 3) if rebuild else (3, 0),
        spare=spare_rows(split, plan, w.p.lanes),
        padded_rank=rebuild,
        right_at=inputs.places.get("right", {}).get("at"),
    )
    merged.make(inputs.load if a is None else lambda: None)
    if a:
        inputs.take(a)
    emitter = _emitter(w, split, plan, merged, batch)
    emitter.prepare()
    y = w.block(split.name("y"), j=layer.output_size, s_=inputs.rows, **inputs.places["y"])
    count = batch * layer.output_size
    tensor = w.written(split.name("y"), TensorClass.INTERMEDIATE, widths.intermediate, count)
    emitter.multiply(inputs.inside, inputs.outside, y, tensor)
    emitter.free()
    inputs.free()
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

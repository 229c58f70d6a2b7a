"""The forward program of planned schedules: the whole batch at once, samples along the lanes."""

from collections.abc import Sequence

from trainwright.compiler.bidirectional import BidirectionalForward
from trainwright.compiler.blocks import Block
from trainwright.compiler.builder import Builder
from trainwright.compiler.gradients import load_strided
from trainwright.compiler.memory import MemoryMap
from trainwright.compiler.merged import Merged, Split
from trainwright.compiler.names import activation_name
from trainwright.compiler.plans import ForwardBidirectional, ForwardPlan, ForwardRebuild
from trainwright.compiler.rebuild import RebuildForward
from trainwright.compiler.workspace import (
    BOTTOM,
    HIGH,
    LOW,
    TIGHT,
    Operand,
    Place,
    Workspace,
    first_fitting,
)
from trainwright.fixed.scale import TensorClass
from trainwright.network import Network
from trainwright.parameters import AcceleratorParameters

SAMPLES_INSIDE = "x.i"
"""The input as (I, batch): samples along the lanes."""
SAMPLES_OUTSIDE = "x.s"
"""The input as (batch, I)."""


def emit_block_forward(
    p: AcceleratorParameters,
    network: Network,
    batch: int,
    memory: MemoryMap,
    plans: Sequence[ForwardPlan],
) -> Builder:
    """Emit the forward program."""
    split = any(isinstance(plan, ForwardBidirectional) for plan in plans)
    tried = (HIGH, BOTTOM, TIGHT) if split else (LOW, HIGH, BOTTOM, TIGHT)
    return first_fitting(lambda place: _emit(p, network, batch, memory, plans, place), tried)


def _emit(
    p: AcceleratorParameters,
    network: Network,
    batch: int,
    memory: MemoryMap,
    plans: Sequence[ForwardPlan],
    place: Place,
) -> Builder:
    b = Builder(p, network)
    w = Workspace(b, memory, place)
    layers = [(Split(network, number, plan.bond), plan) for number, plan in enumerate(plans)]
    current, a = _Layer(w, *layers[0], batch), None
    current.prepare()
    for following in (*layers[1:], None):
        y = current.multiply(a)
        above = _Layer(w, *following, batch) if following else None
        a = current.activate(y)
        if above:
            above.prepare()
            current = above
        w.flush()
    b.halt("the forward program")
    return b


def _emitter(
    w: Workspace, split: Split, plan: ForwardPlan, merged: Merged, batch: int
) -> RebuildForward | BidirectionalForward:
    if isinstance(plan, ForwardRebuild):
        return RebuildForward(w, split, plan, merged)
    return BidirectionalForward(w, split, plan, merged, batch)


def spare_rows(split: Split, plan: ForwardPlan, lanes: int) -> int:
    """Rows behind Left that are read when it is transposed."""
    entry = -(-split.k // lanes)
    if isinstance(plan, ForwardBidirectional):
        return -split.p % lanes * split.u * entry
    return -plan.strip_p * split.u % lanes * entry


class _Inputs:
    """The input of a layer, for PE2 as (i, s/) and for PE1 as (s, i/), as far as each needs it."""

    def __init__(self, w: Workspace, split: Split, plan: ForwardPlan, batch: int):
        self.w, self.split = w, split
        self.rows = -(-batch // w.p.lanes)
        size = split.layer.input_size
        self.first, self.dots = 0, 0  # inputs: the first of PE2's, the number of PE1's
        if isinstance(plan, ForwardBidirectional):
            self.first = self.dots = plan.pe1_u * split.v
        elif plan.shared:
            self.dots = size
        rebuild = isinstance(plan, ForwardRebuild)
        self._banks = (0, 1) if rebuild else (2, 0)
        self._made: list[Block] = []
        self.inside: Operand | None = None
        self.outside: Operand | None = None

    def load(self) -> None:
        """Load the network's input."""
        w, size, lanes = self.w, self.split.layer.input_size, self.w.p.lanes
        width = self.split.network.widths.activation
        if self.first < size:
            count = size - self.first
            block = w.block("x", bank=self._banks[0], i=count, s_=self.rows)
            w.load(SAMPLES_INSIDE, block, first=self.first * self.rows, rows=count * self.rows)
            self.inside = self._kept(Operand(block, "x", width))
        if self.dots:
            samples, columns = self.rows * lanes, self.dots // lanes
            block = w.block("x", bank=self._banks[1], s=samples, i_=columns)
            load_strided(w, SAMPLES_OUTSIDE, block, {"s": size // lanes, "i/": 1})
            self.outside = self._kept(Operand(block, "x", width))

    def take(self, a: Operand) -> None:
        """Take the activations of the layer below, (j, s/)."""
        w, size, lanes = self.w, self.split.layer.input_size, self.w.p.lanes
        a = a.view(a.block.renamed(j="i"))
        self._made.append(a.block)
        if self.first < size:
            self.inside = a.view(a.block.part("i", self.first, size - self.first))
        if self.dots:
            part = a.view(a.block.part("i", 0, self.dots))
            sizes = {"s": self.rows * lanes, "i_": self.dots // lanes}
            name, bank = f"{a.name}.s", self._banks[1]
            transposed = w.transpose(part, name, rows="s", entries="i", bank=bank, **sizes)
            self.outside = self._kept(transposed)

    def _kept(self, x: Operand) -> Operand:
        self._made.append(x.block)
        return x

    def free(self) -> None:
        """Give all rows back."""
        self.w.free(*self._made)


class _Layer:
    """The forward pass of one layer: its factors are loaded while the layer below is computed."""

    def __init__(self, w: Workspace, split: Split, plan: ForwardPlan, batch: int):
        self.w, self.split, self.plan, self.batch = w, split, plan, batch
        self.rebuild = isinstance(plan, ForwardRebuild)
        self.merged = Merged(
            w,
            split,
            banks=(1, 3) if self.rebuild else (2, 1),
            spare=spare_rows(split, plan, w.p.lanes),
            padded_rank=self.rebuild,
        )

    def prepare(self) -> None:
        """Merge the factors and transpose them; load the network's input."""
        self.inputs = _Inputs(self.w, self.split, self.plan, self.batch)
        first = self.split.number == 0
        self.merged.make(self.inputs.load if first else lambda: None)
        self.emitter = _emitter(self.w, self.split, self.plan, self.merged, self.batch)
        self.emitter.prepare()

    def multiply(self, a: Operand | None) -> Operand:
        """The sums Y (j, s/) of the layer, from the activations (j, s/) of the one below."""
        w, split, rows = self.w, self.split, self.inputs.rows
        layer, widths = split.layer, split.network.widths
        if a:
            self.inputs.take(a)
        y = w.block(split.name("y"), bank=2 if self.rebuild else 1, j=layer.output_size, s_=rows)
        count, kind = self.batch * layer.output_size, TensorClass.INTERMEDIATE
        tensor = w.written(split.name("y"), kind, widths.intermediate, count)
        self.emitter.multiply(self.inputs.inside, self.inputs.outside, y, tensor)
        self.emitter.free()
        self.inputs.free()
        return Operand(y, tensor.name, tensor.width)

    def activate(self, y: Operand) -> Operand:
        """Bias and activation, in place; the result is stored later."""
        w, split, lanes = self.w, self.split, self.w.p.lanes
        layer, widths, number = split.layer, split.network.widths, split.number
        last = number == len(split.network.layers) - 1
        name = activation_name(number + 1)
        tensor = w.written(
            name,
            TensorClass.INTERMEDIATE if last else TensorClass.ACTIVATION,
            widths.intermediate if last else widths.activation,
            self.batch * layer.output_size,
        )
        whole, rest = divmod(self.batch, lanes)
        parts = [(split.name("b"), y.block.part("s/", 0, whole))] if whole else []
        if rest:
            parts.append((split.name("b.last"), y.block.part("s/", whole, 1)))
        for source, part in parts:
            bias = w.block(source, bank=0, top=True, j=layer.output_size)
            w.load(source, bias)
            operand = Operand(bias, split.name("b"), widths.bias)
            w.bias(y.view(part), operand, part, tensor, relu=layer.relu)
            w.free(bias)
        w.store_later(name, w.region(y.block), keep=True)
        return Operand(y.block, name, tensor.width)

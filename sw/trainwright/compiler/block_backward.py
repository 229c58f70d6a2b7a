"""The backward program of planned schedules: the whole batch at once, samples along the lanes."""

from collections.abc import Sequence

from trainwright.compiler.bidirectional_gradient import BidirectionalGradient
from trainwright.compiler.block_forward import SAMPLES_INSIDE, SAMPLES_OUTSIDE
from trainwright.compiler.blocks import Block
from trainwright.compiler.builder import Builder
from trainwright.compiler.core_gradients import CoreGradients
from trainwright.compiler.full_gradient import FullGradient
from trainwright.compiler.gradients import bias_gradient, left_target, ordered_left, right_level
from trainwright.compiler.memory import MemoryMap
from trainwright.compiler.merged import Merged, Split
from trainwright.compiler.names import activation_name, gradient_name, right_name
from trainwright.compiler.plans import BackwardFull, BackwardPlan
from trainwright.compiler.spans import Span
from trainwright.compiler.workspace import (
    BOTTOM,
    HIGH,
    LOW,
    MIDDLE,
    TIGHT,
    Operand,
    Place,
    Workspace,
    first_fitting,
)
from trainwright.fixed.scale import TensorClass
from trainwright.network import Network
from trainwright.parameters import AcceleratorParameters


def emit_block_backward(
    p: AcceleratorParameters,
    network: Network,
    batch: int,
    memory: MemoryMap,
    plans: Sequence[BackwardPlan],
) -> Builder:
    """Emit the backward program."""
    full = all(isinstance(plan, BackwardFull) for plan in plans)
    tried = (LOW, HIGH, BOTTOM, TIGHT) if full else (MIDDLE, LOW, BOTTOM, TIGHT)
    return first_fitting(lambda place: _emit(p, network, batch, memory, plans, place), tried)


def _emit(
    p: AcceleratorParameters,
    network: Network,
    batch: int,
    memory: MemoryMap,
    plans: Sequence[BackwardPlan],
    place: Place,
) -> Builder:
    b = Builder(p, network)
    w = Workspace(b, memory, place)
    last = len(network.layers)
    rows = -(-batch // p.lanes)
    block = w.block(
        gradient_name(last), bank=2, top=True, j=network.layers[-1].output_size, s_=rows
    )
    w.load(gradient_name(last), block)
    dy = Operand(block, gradient_name(last), network.widths.gradient)
    for number in range(last - 1, -1, -1):
        plan = plans[number]
        dy = _Layer(w, Split(network, number, plan.bond), plan, batch).emit(dy)
    w.flush()
    b.halt("the backward program")
    return b


class _Layer:
    """The backward pass of one layer."""

    def __init__(self, w: Workspace, split: Split, plan: BackwardPlan, batch: int):
        self.w, self.split, self.plan, self.batch = w, split, plan, batch
        self.rows = -(-batch // w.p.lanes)
        self.width = split.network.widths.activation

    def emit(self, dy: Operand) -> Operand:
        """All gradients of the layer from that of its output; the gradient of its input's sum."""
        w, split = self.w, self.split
        full = isinstance(self.plan, BackwardFull)
        merged = Merged(w, split, banks=(1, 0) if full else (2, 2), padded_rank=full)
        cores = [CoreGradients(w, split.network, span) for span in spans(split)]
        for store in w.b.stores.values():
            store.clear()
        for core in cores:
            core.load()
        below, left, right = (self._full if full else self._bidirectional)(merged, dy)
        if split.layer.bias:
            bias_gradient(w, split, dy, self.batch)
        if below is not dy:
            w.free(dy.block)
        for core, source in zip(cores, (left, right), strict=True):
            core.emit(w.taken(source))
        return below

    def _load_inputs(self, plan: BackwardFull) -> tuple[Operand, Operand | None]:
        """X as (i, s/), and as (s, i/) where both arrays need it: what each of them reads."""
        w, split, lanes = self.w, self.split, self.w.p.lanes
        size, name, width = split.layer.input_size, activation_name(split.number), self.width
        mine = plan.pe1_u * split.v  # of the inputs, PE1's
        inside = size if split.number else mine  # all for the mask
        block = w.block(name, bank=0, i=inside, s_=self.rows)
        w.load(name if split.number else SAMPLES_INSIDE, block, rows=inside * self.rows)
        a = Operand(block, name, width)
        if mine == size:
            return a, None
        sizes = {"i_": (size - mine) // lanes}
        if split.number:
            part = a.view(a.block.part("i", mine, size - mine))
            sizes = {"s": self.rows * lanes} | sizes
            return a, w.transpose(part, f"{name}.s", rows="s", entries="i", bank=1, **sizes)
        block = w.block(name, bank=1, s=self.batch, **sizes)
        w.load_columns(SAMPLES_OUTSIDE, block, mine // lanes, size // lanes)
        return a, Operand(block, name, width)

    def _full(self, merged: Merged, dy: Operand) -> tuple[Operand, Block, Block]:
        """The gradient of the sum below, and those of Left and Right."""
        w, split, plan, lanes = self.w, self.split, self.plan, self.w.p.lanes
        assert isinstance(plan, BackwardFull)
        inputs: list[Operand | None] = []
        gradient = FullGradient(w, split, plan, merged, self.batch)
        if split.number:
            merged.make()
            gradient.prepare_input_gradient()
            inputs += self._load_inputs(plan)
        else:
            merged.make(lambda: inputs.extend(self._load_inputs(plan)))
        a, b = inputs
        assert a
        dx = None
        if split.number:
            block, name = self._below()
            dx = gradient.input_gradient(dy, block, name)
        inside = a.block.part("i", 0, plan.pe1_u * split.v)
        inside = inside.split("i", (("u", plan.pe1_u), ("v", split.v)))
        outside = None
        if b:
            us = split.u - plan.pe1_u
            block = b.block.part("s", 0, self.batch)
            outside = b.view(block.split("i/", (("u", us), ("v/", split.v // lanes))))
        left, whole = gradient.emit(dy, a.view(inside), outside)
        merged.free(left=True, right=True)
        below = self._masked(dx, a) if dx else dy
        w.free(*(x.block for x in (a, b) if x))
        if split.bond == 1:
            return below, left.last(), whole
        ordered = ordered_left(w, split, left.result)
        left.free()
        return below, ordered, whole

    def _bidirectional(self, merged: Merged, dy: Operand) -> tuple[Operand, Block, Block]:
        """The gradient of the sum below, and those of Left and Right."""
        merged.make()
        w, split, plan = self.w, self.split, self.plan
        assert not isinstance(plan, BackwardFull)
        name = activation_name(split.number) if split.number else SAMPLES_OUTSIDE
        dx = self._below() if split.number else None
        gradient = BidirectionalGradient(w, split, plan, merged, self.batch, inputs=name, dx=dx)
        left, right = gradient.emit(dy)
        if dx is None:
            return dy, left, right
        block = w.block(name, bank=0, i=split.layer.input_size, s_=self.rows)
        w.load(name, block)
        dx_operand = Operand(dx[0], dx[1], split.network.widths.gradient)
        below = self._masked(dx_operand, Operand(block, name, self.width))
        w.free(block)
        return below, left, right

    def _below(self) -> tuple[Block, str]:
        """Where the gradient of the input goes, and its name before the mask."""
        split = self.split
        relu = split.network.layers[split.number - 1].relu
        name = split.name("dx") if relu else gradient_name(split.number)
        return self.w.block(name, bank=3, top=True, i=split.layer.input_size, s_=self.rows), name

    def _masked(self, dx: Operand, a: Operand) -> Operand:
        """The gradient through the ReLU of the layer below, in place."""
        w, split = self.w, self.split
        name = gradient_name(split.number)
        if split.network.layers[split.number - 1].relu:
            count = self.batch * split.layer.input_size
            tensor = w.written(name, TensorClass.GRADIENT, dx.width, count)
            w.mask(dx, a.block, dx.block, tensor)
        return Operand(dx.block.renamed(i="j"), name, dx.width)


def spans(split: Split) -> tuple[Span, Span]:
    """The factors on each side of the bond."""
    number, order = split.number, split.layer.order
    left = Span(number, 0, split.bond - 1, lambda n: right_name(number + 1, n))
    right = Span(number, split.bond, order - 1, lambda n: right_level(split, n))
    assert left.source == left_target(split) or split.bond == 1
    return left, right

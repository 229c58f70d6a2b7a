"""From a network, a batch and an accelerator to the two programs of a training step."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property

from trainwright.compiler.backward import emit_backward
from trainwright.compiler.block_backward import emit_block_backward
from trainwright.compiler.block_forward import SAMPLES_INSIDE, SAMPLES_OUTSIDE, emit_block_forward
from trainwright.compiler.block_layout import lay_out_blocks
from trainwright.compiler.builder import Builder, Rule, Written
from trainwright.compiler.errors import CompileError, DigitsError, ResourceError, SizeError
from trainwright.compiler.forward import emit_forward
from trainwright.compiler.images import Image
from trainwright.compiler.layout import lay_out
from trainwright.compiler.limits import (
    STATISTICS,
    require_memory,
    require_network,
    require_whole,
)
from trainwright.compiler.memory import Buffer, MemoryMap
from trainwright.compiler.names import activation_name, gradient_name
from trainwright.compiler.planner import plan_layers
from trainwright.compiler.plans import LayerPlan
from trainwright.compiler.row_images import RowImage
from trainwright.fixed.align import Alignment, aligned
from trainwright.fixed.requantise import MAX_SHIFT
from trainwright.network import Network
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Compute, Descriptor, Program, Set
from trainwright.program.fields import Operation
from trainwright.timing import MemoryTiming, predict

PLANS = ("auto", "paper")
"""Names of plans: what the planner chooses, or the schedule of the paper."""
GRAPH = "graph"
"""The plan of ``trainwright.lowering``: a graph, its contraction order and tiling searched."""
GRAPH_PAPER = "graph-paper"
"""The same with the contraction order of the paper, its tiling searched."""
GRAPH_ROWS = "graph-rows"
"""The same with its tensors in the rows of a state on the chip (``trainwright.lowering.rows``)."""

NO_OTHER = "no other plan takes the network"
"""Why plan "auto" is that of the graph, where others cannot be asked."""


@dataclass(frozen=True)
class Bound:
    """A program with its shifts, and the exponents that follow from them.

    ``exponents`` has every tensor written and every operand; ``floors`` the least exponent of
    every tensor written: that of its exact sum.
    """

    program: Program
    exponents: dict[str, int]
    floors: dict[str, int]


@dataclass(frozen=True)
class CompiledProgram:
    """Descriptors without shifts, and the rules that give them."""

    descriptors: tuple[Descriptor, ...]
    rules: dict[int, Rule]
    tensors: tuple[Written, ...]
    images: tuple[tuple[Image | RowImage, Buffer], ...]
    macs: int
    address: int
    """Where in external memory the program lies."""
    fingerprint: int
    most_alignment: int
    """Most bits by which a BIAS descriptor can shift an operand to the left."""
    constants: Mapping[str, int] = field(default_factory=dict)
    """The exponents of constants that it reads."""
    _last: dict[int, Descriptor] = field(default_factory=dict, compare=False, repr=False)
    """The descriptors bound last, by index: most shifts do not change from step to step."""

    def _shifted(self, index: int, shifts: tuple[int, int, int], stochastic: bool) -> Descriptor:
        """A descriptor with these shifts (result, x, g): the one bound last if its shifts are
        these."""
        last = self._last.get(index)
        if (
            isinstance(last, Compute)
            and (last.shift, last.x_shift, last.g_shift) == shifts
            and last.stochastic == stochastic
        ):
            return last
        d = self.descriptors[index]
        assert isinstance(d, Compute)
        shift, x_shift, g_shift = shifts
        self._last[index] = new = replace(
            d, shift=shift, x_shift=x_shift, g_shift=g_shift, stochastic=stochastic
        )
        return new

    @cached_property
    def _makers(self) -> dict[str, str]:
        """For each tensor made the one whose exponent it has."""
        masks = [n for n, d in enumerate(self.descriptors) if d.operation is Operation.MASK]
        passed = {self.rules[n].z.name: self.rules[n].x for n in masks}
        return {rule.z.name: passed.get(rule.z.name, rule.z.name) for rule in self.rules.values()}

    def bind(
        self,
        wanted: Mapping[str, int],
        operands: Mapping[str, int],
        *,
        seed: int | None = None,
    ) -> Bound:
        """Set every shift for the ``wanted`` exponents of the tensors written.

        ``operands`` are the exponents of what the program reads: inputs, factors, biases, and
        tensors of the program before it. A tensor gets its wanted exponent, or its floor where that
        is larger: no shift goes to the left. Exponents of what is added are brought within
        ``most_alignment`` of each other; ``exponents`` are as used. A running sum's is at most as
        much above that of its parts. With a ``seed`` (32 bits) results are rounded
        stochastically: the program begins with a SET of the seed.
        """
        given = {**self.constants, **operands}
        return aligned(lambda w, g: self._bound(w, g, seed), wanted, given)

    def _bound(
        self, wanted: Mapping[str, int], operands: Mapping[str, int], seed: int | None
    ) -> Bound:
        exponents, floors = dict(operands), {}
        alignment = Alignment(self._makers, exponents, self.most_alignment)
        descriptors = list(self.descriptors)
        for index, rule in self.rules.items():
            d = descriptors[index]
            x, both = exponents[rule.x], [0, 0]
            if d.operation is Operation.BIAS:
                assert rule.g is not None
                floor, *both = alignment.add(rule.x, rule.g)
            elif d.operation is Operation.MASK:
                floor = x
            else:
                floor = x + (exponents[rule.g] if rule.g is not None else 0)
            exact = rule.exact or d.operation is Operation.MASK
            exponent = floor if exact else max(floor, wanted.get(rule.z.name, floor))
            exponent = min(exponent, floor + MAX_SHIFT)
            if d.operation is Operation.BIAS and rule.g is not None and rule.g in floors:
                # a sum that grows by its parts
                exponent = min(exponent, exponents[rule.g] + self.most_alignment)
            exponents[rule.z.name], floors[rule.z.name] = exponent, floor
            shifts = (exponent - floor, both[0], both[1])
            descriptors[index] = self._shifted(index, shifts, seed is not None and not exact)
        if seed is not None:
            descriptors.insert(0, Set(values=(), seed=seed))
        names = tuple(tensor.name for tensor in self.tensors)
        return Bound(Program(tuple(descriptors), self.fingerprint, names), exponents, floors)


@dataclass(frozen=True)
class CompiledStep:
    """The two programs of a training step, and where their tensors lie."""

    network: Network
    batch: int
    parameters: AcceleratorParameters
    plan: str
    layers: tuple[LayerPlan, ...]
    """What the plan chose for each layer; none for the paper's."""
    inputs: tuple[str, ...]
    """Buffers that the host writes the inputs to."""
    buffers: dict[str, Buffer]
    memory_bytes: int
    """External memory used."""
    forward: CompiledProgram
    backward: CompiledProgram
    results: tuple[str, ...]
    """Buffers of the logits of each head."""
    uppers: tuple[str, ...]
    """Buffers that the host writes the gradients to them to."""
    input_gradients: tuple[str, ...] = ()
    """Buffers of the gradients to the inputs, where they were asked for."""
    aliases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The buffers of a tensor that the host writes in several layouts."""
    fallback: str = ""
    """Why plan "auto" is the paper's schedule, or that of the graph, where it is."""

    @property
    def schedule(self) -> str:
        """The plan that gives this step again where no layer has a plan of its own."""
        return self.plan if self.plan in (GRAPH, GRAPH_PAPER, GRAPH_ROWS) else "paper"

    @cached_property
    def predicted_cycles(self) -> int:
        """Cycles of a step by the cycle model, with the memory of the simulation's default."""
        return self.cycles_with(MemoryTiming.of(self.parameters))

    def cycles_with(self, timing: MemoryTiming) -> int:
        """Cycles of a step by the cycle model, with another memory."""
        programs = (self.forward, self.backward)
        return sum(predict(one.descriptors, self.parameters, timing).cycles for one in programs)

    @cached_property
    def bytes_moved(self) -> int:
        """Bytes that a step reads from and writes to external memory, its programs among them."""
        timing, programs = MemoryTiming(), (self.forward, self.backward)
        return sum(
            predict(one.descriptors, self.parameters, timing).bytes_moved for one in programs
        )

    @cached_property
    def macs(self) -> int:
        """Multiply-accumulates of a step, padding not counted."""
        return self.forward.macs + self.backward.macs


def _finish(b: Builder, memory: MemoryMap, name: str) -> CompiledProgram:
    return CompiledProgram(
        descriptors=tuple(b.descriptors),
        rules=b.rules,
        tensors=tuple(b.tensors.values()),
        images=tuple(b.images.values()),
        macs=b.macs,
        address=memory.buffers[name].address,
        fingerprint=b.p.fingerprint,
        most_alignment=b.p.most_alignment,
    )


def compile_step(
    network: Network,
    batch: int,
    parameters: AcceleratorParameters,
    *,
    plan: str | Sequence[LayerPlan] = "auto",
    input_gradients: bool = False,
) -> CompiledStep:
    """Compile a training step of ``batch`` samples.

    ``plan`` "graph" is that of ``trainwright.lowering``, which "auto" chooses for networks that are
    no straight line of TTM layers, "graph-paper" the same compiler's with the contraction order of
    the paper; "paper" is the schedule of the paper's Table 3, with the outer
    product summed over the batch in the accumulators; "auto" what the planner chooses, or the
    paper's where that takes fewer cycles or nothing else fits; else it says how each layer is
    computed. Where "auto" would be the paper's it is that of the graph if this is predicted to be
    faster, or if other plans do not take the sizes of the layers, the number of their tensors or
    what is computed by digits.
    With ``input_gradients`` the backward pass also gives the gradients to the inputs, by
    plan "graph", which "auto" then is. Raises ``CompileError`` where the network does not fit.
    """
    every = (*PLANS, GRAPH, GRAPH_PAPER)
    if isinstance(plan, str) and plan not in (*every, GRAPH_ROWS):
        raise CompileError(f"there is no plan {plan!r}; give one of {', '.join(every)}")
    if input_gradients and plan not in ("auto", GRAPH, GRAPH_PAPER):
        raise CompileError("only plan graph computes gradients to the inputs: use it, or auto")
    if plan == GRAPH_ROWS:
        from trainwright.lowering.in_rows import compiled_in_rows  # it is made of this package

        return compiled_in_rows(network, batch, parameters)
    if plan in (GRAPH, GRAPH_PAPER) or input_gradients:
        from trainwright.lowering.adapter import compiled  # it is made of this package

        graph = plan if plan == GRAPH_PAPER else GRAPH
        return compiled(network, batch, parameters, plan=graph, input_gradients=input_gradients)
    if not network.is_straight:
        if plan != "auto":
            raise CompileError(
                f"network {network.name!r} is a graph, plan {plan if isinstance(plan, str) else ''}"
                " takes layers in one line, without windows: use plan graph, or auto"
            )
        return compile_step(network, batch, parameters, plan=GRAPH)
    if not isinstance(plan, str):
        require_network(network, batch, parameters)
        return _planned(network, batch, parameters, tuple(plan))
    try:
        require_network(network, batch, parameters)
    except (SizeError, ResourceError, DigitsError) as error:
        if plan != "auto":
            raise
        return _graph_instead(network, batch, parameters, error)
    try:
        return (_paper if plan == "paper" else _chosen)(network, batch, parameters)
    except CompileError as error:
        fitting = _fitting_batch(network, batch, parameters)
        if not fitting:
            raise
        raise CompileError(f"{error}; a batch of {fitting} fits") from error


@cache
def _chosen(network: Network, batch: int, p: AcceleratorParameters) -> CompiledStep:
    """The planner's choice or the paper's schedule, whichever is predicted to take fewer cycles."""
    try:
        planned = _planned(network, batch, p, plan_layers(network, batch, p).layers)
    except CompileError as error:
        try:
            paper = _paper(network, batch, p)
        except CompileError as other:
            if STATISTICS.what in error.reason:
                return _graph_instead(network, batch, p, error)
            if isinstance(error, DigitsError):
                return _graph_instead(network, batch, p, other)
            raise _neither(error, other) from other
        return _or_graph(
            replace(paper, plan="auto", fallback=f"no planned program fits: {error.reason}")
        )
    try:
        paper = _paper(network, batch, p)
    except CompileError:
        return planned
    if planned.predicted_cycles <= paper.predicted_cycles:
        return replace(planned, plan="auto")
    why = f"the planned programs take more cycles, {planned.predicted_cycles:,}"
    return _or_graph(replace(paper, plan="auto", fallback=why))


def _graph_instead(
    network: Network, batch: int, p: AcceleratorParameters, error: CompileError
) -> CompiledStep:
    """The programs of the graph, for what other plans do not take. Raises ``CompileError``."""
    from trainwright.lowering.adapter import compiled  # it is made of this package

    why = f"{NO_OTHER}: {error.reason}"
    return replace(compiled(network, batch, p), fallback=why)


def _or_graph(paper: CompiledStep) -> CompiledStep:
    """The paper's schedule, to which the planner fell back, or the programs of the graph where they
    are predicted to take fewer cycles."""
    from trainwright.lowering.adapter import compiled  # it is made of this package

    try:
        graph = compiled(paper.network, paper.batch, paper.parameters)
    except CompileError:
        return paper
    if graph.predicted_cycles >= paper.predicted_cycles:
        return paper
    why = f"the paper's schedule takes {paper.predicted_cycles:,} cycles, and {paper.fallback}"
    return replace(graph, fallback=why)


def _neither(planned: CompileError, paper: CompileError) -> CompileError:
    """The error where neither the planner's choice nor the paper's schedule fits."""
    if planned.reason == paper.reason:
        return planned
    remedy = f"; {planned.remedy}" if planned.remedy else ""
    return CompileError(
        f"no schedule fits: planned, {planned.reason}; in the paper's, {paper.reason}{remedy}"
    )


def _fitting_batch(network: Network, batch: int, p: AcceleratorParameters) -> int:
    """A smaller batch, as large as can be, that the paper's schedule takes; 0 if none."""
    fits, fails = 0, batch
    while fails - fits > 1:  # what it needs grows with the batch
        middle = (fits + fails) // 2 if fits else 1
        try:
            _paper(network, middle, p)
            fits = middle
        except CompileError:
            fails = middle
    return fits


def _paper(network: Network, batch: int, p: AcceleratorParameters) -> CompiledStep:
    memory = lay_out(network, batch, p)
    forward, backward = Builder(p, network), Builder(p, network)
    emit_forward(forward, network, batch, memory)
    emit_backward(backward, network, batch, memory)
    return _step(network, batch, p, memory, forward, backward, "paper", ())


def _planned(
    network: Network, batch: int, p: AcceleratorParameters, layers: tuple[LayerPlan, ...]
) -> CompiledStep:
    require_whole(network, p)
    memory = lay_out_blocks(network, batch, p, layers)
    forward = emit_block_forward(p, network, batch, memory, [one.forward for one in layers])
    backward = emit_block_backward(p, network, batch, memory, [one.backward for one in layers])
    return _step(network, batch, p, memory, forward, backward, "auto", layers)


def _step(
    network: Network,
    batch: int,
    p: AcceleratorParameters,
    memory: MemoryMap,
    forward: Builder,
    backward: Builder,
    plan: str,
    layers: tuple[LayerPlan, ...],
) -> CompiledStep:
    require_memory(memory.top, p)
    return CompiledStep(
        network=network,
        batch=batch,
        parameters=p,
        plan=plan,
        layers=layers,
        inputs=(SAMPLES_INSIDE, SAMPLES_OUTSIDE) if layers else ("x",),
        results=(activation_name(len(network.layers)),),
        uppers=(gradient_name(len(network.layers)),),
        buffers=memory.buffers,
        memory_bytes=memory.top,
        forward=_finish(forward, memory, "program.forward"),
        backward=_finish(backward, memory, "program.backward"),
    )

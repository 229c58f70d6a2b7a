"""From a network, a batch and an accelerator to the two programs of a training step."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from trainwright.compiler.limits import PROGRAM, STATISTICS
from trainwright.compiler.memory import Buffer, MemoryMap
from trainwright.fixed.scale import TensorClass
from trainwright.formats import Fixed
from trainwright.graph.ir import Einsum, Graph, Op, Tensor, View
from trainwright.graph.order import Cost, Order, ordered
from trainwright.graph.step import StepGraph, step_graph
from trainwright.lowering.calls import Call, External
from trainwright.lowering.choose import Choice, Given, choose
from trainwright.lowering.emit import COPIES, Emitter, Made
from trainwright.lowering.outer import Packing
from trainwright.lowering.place import place
from trainwright.lowering.schedule import scheduled
from trainwright.lowering.tile import Stage, Tiler
from trainwright.network import Network
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Descriptor
from trainwright.program.fields import DESCRIPTOR_BYTES
from trainwright.timing import predict


@dataclass(frozen=True)
class Lowered:
    """One program without addresses: its operations, how they are computed, its commands."""

    graph: Graph
    choices: tuple[Choice, ...]
    stages: tuple[Stage, ...]
    calls: tuple[Call, ...]
    outer: Mapping[str, External]
    macs: int
    rows: int
    """Rows of the scratchpad in use."""


@dataclass(frozen=True)
class Emitted:
    """One program: descriptors without shifts, and what each makes."""

    lowered: Lowered
    descriptors: tuple[Descriptor, ...]
    made: Mapping[int, Made]
    slots: tuple[str, ...]
    """Names of the tensors counted in each statistics slot; ``copies`` for transposed copies."""
    address: int


@dataclass(frozen=True)
class Step:
    """The two programs of a training step, and where their tensors lie."""

    graph: StepGraph
    parameters: AcceleratorParameters
    forward: Emitted
    backward: Emitted
    buffers: Mapping[str, Buffer]
    memory_bytes: int
    orders: tuple[Order, ...] = field(default=())

    @property
    def cycles(self) -> int:
        """Cycles of a step, by the cycle model."""
        return sum(
            predict(one.descriptors, self.parameters).cycles
            for one in (self.forward, self.backward)
        )

    @property
    def macs(self) -> int:
        """Multiply-accumulates of a step."""
        return self.forward.lowered.macs + self.backward.lowered.macs


def with_ones(graph: Graph) -> Graph:
    """Sums of one tensor as products with ones."""
    tensors, ops, given = dict(graph.tensors), list[Op](), list(graph.given)
    for op in graph.ops:
        if isinstance(op, Einsum) and len(op.operands) == 1:
            axes = graph.summed(op)
            name = f"ones {' '.join(axes)}"
            tensors[name] = Tensor(name, axes, TensorClass.INTERMEDIATE, Fixed(2))
            given += [name] if name not in given else []
            op = replace(op, operands=(name, *op.operands))  # noqa: PLW2901
        ops.append(op)
    return Graph(graph.sizes, tensors, tuple(ops), tuple(given), graph.results)


def direct(graph: Graph, host: Sequence[str]) -> Graph:
    """Without views of what the host writes: it writes the views themselves."""
    ops, given = [], list(graph.given)
    for op in graph.ops:
        if isinstance(op, View) and op.x in host and op.x in given:
            given[given.index(op.x)] = op.out
        else:
            ops.append(op)
    return graph.part(ops, given, graph.results)


def _lower(
    graph: Graph,
    given: Mapping[str, Given],
    stored: Sequence[str],
    p: AcceleratorParameters,
) -> Lowered:
    choices = choose(graph, given, stored, p)
    stages = tuple(Stage((choice,)) for choice in choices)
    return tiled(graph, given, stored, choices, stages, p)


def tiled(
    graph: Graph,
    given: Mapping[str, Given],
    stored: Sequence[str],
    choices: tuple[Choice, ...],
    stages: tuple[Stage, ...],
    p: AcceleratorParameters,
) -> Lowered:
    """Commands with addresses, from choices and cuts."""
    tiler = Tiler(graph, given, stored, p)
    calls = scheduled(tiler.run(stages))
    rows = place(calls, p)
    return Lowered(graph, choices, stages, tuple(calls), tiler.outer, tiler.macs, rows)


def _emit(lowered: Lowered, p: AcceleratorParameters, memory: MemoryMap, which: str) -> Emitted:
    emitter = Emitter(lowered.graph, p, memory.buffers)
    emitter.run(lowered.calls)
    STATISTICS.require(len(emitter.slots), p, f"the {which} program")
    PROGRAM.require(len(emitter.descriptors), p, f"the {which} program")
    address = memory.buffers[f"program.{which}"].address
    return Emitted(
        lowered, tuple(emitter.descriptors), emitter.made, tuple(emitter.slots), address
    )


def _lanes_of(lowered: Lowered) -> dict[str, tuple[str, ...]]:
    """The lanes of what each operation makes."""
    return {
        choice.op.out: next((w.impl.along for w in choice.works if w.impl), choice.lanes)
        for choice in lowered.choices
    }


def compile_graph(step: StepGraph, p: AcceleratorParameters, orders: tuple[Order, ...]) -> Step:
    """Compile a step that consists of products of two."""
    host = set(step.whole.given)
    forward = with_ones(direct(step.forward, step.whole.given))
    backward = with_ones(step.backward)
    flexible = {name for name in (*forward.given, *step.whole.given) if name in backward.given}
    flexible |= {name for name in backward.given if name.startswith("ones ")}
    crossing = [name for name in backward.given if name not in flexible]
    origins = {name: step.whole.origins[name] for name in crossing}
    stored = (*forward.results, *(name for name in origins.values() if name not in forward.results))
    ahead = _lower(forward, {name: Given() for name in forward.given}, stored, p)
    lanes = _lanes_of(ahead)
    given = {name: Given() for name in backward.given if name in flexible}
    given |= {name: Given(lanes[origin]) for name, origin in origins.items()}
    behind = _lower(backward, given, backward.results, p)
    memory = MemoryMap(p.lanes)
    for which in ("forward", "backward"):
        memory.add_bytes(f"program.{which}", p.program_depth * DESCRIPTOR_BYTES)
    for lowered in (ahead, behind):
        for outer in lowered.outer.values():
            if outer.tensor in origins and origins[outer.tensor] != outer.tensor:
                continue
            if outer.name not in memory.buffers:
                memory.add_bytes(outer.name, Packing(lowered.graph, outer, p.lanes).size)
    for outer in behind.outer.values():
        if outer.name not in memory.buffers:
            there = replace(outer, tensor=origins[outer.tensor]).name
            memory.buffers[outer.name] = memory.buffers[there]
    del host
    return Step(
        graph=StepGraph(step.whole, forward, backward),
        parameters=p,
        forward=_emit(ahead, p, memory, "forward"),
        backward=_emit(behind, p, memory, "backward"),
        buffers=memory.buffers,
        memory_bytes=memory.top,
        orders=orders,
    )


def compile_step(network: Network, batch: int, p: AcceleratorParameters) -> Step:
    """Compile a training step."""
    graph = step_graph(network, batch)
    orders = [ordered(graph.whole, site, cost=Cost()) for site in graph.sites.values()]
    chosen = tuple(order[0] for order in orders)
    return compile_graph(graph.ordered(chosen), p, chosen)


__all__ = ["COPIES", "Step", "compile_graph", "compile_step"]

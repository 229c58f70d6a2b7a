"""From a network, a batch and an accelerator to the two programs of a training step."""

import gc
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from trainwright.compiler.base.compiled import AUTO, PAPER, SMALL
from trainwright.compiler.base.errors import CompileError
from trainwright.compiler.base.limits import require_memory, require_words
from trainwright.compiler.base.memory import Buffer, MemoryMap
from trainwright.compiler.base.progress import MOST_EFFORT, followed, is_spent, rest
from trainwright.compiler.emit.emit import Emitter, Made
from trainwright.compiler.emit.outer import Packing
from trainwright.compiler.forms.choices import Given
from trainwright.compiler.forms.digits import between_width, cost_digits, in_digits, require_passes
from trainwright.compiler.forms.layout import Layout
from trainwright.compiler.step.crossing import direct, lying, may_part, viewed, with_ones
from trainwright.compiler.step.drafts import Lowered
from trainwright.compiler.step.lower import alias, descriptors_of, lower
from trainwright.compiler.step.rows import Rows, rows_of
from trainwright.graph.fill import Arrays
from trainwright.graph.ir import Graph
from trainwright.graph.named import paper_order
from trainwright.graph.order import Cost, Order, ordered
from trainwright.graph.remake import ordered_small
from trainwright.graph.step import StepGraph, step_graph
from trainwright.network import Network
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Descriptor
from trainwright.program.fields import DESCRIPTOR_BYTES
from trainwright.timing import predict

MOST_ORDERS = 1
"""Contraction orders of the largest layer that are compiled and timed."""
MOST_TRIED = 3
"""Contraction orders of it that are tried where the better ones do not fit."""
FORWARD = 0.5
"""Part of the effort after which the forward pass takes the best program so far.

`fashion` in 512 samples left a fifth to the backward pass, which has more operations, and took 36 %
more cycles there.
"""
HOPEFUL = 2.0
"""Of the cost of the best order, what another may have at most."""


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
    refused: Mapping[str, str] = field(default_factory=dict)
    """Why cheaper orders, by their text, were not taken: what did not fit."""
    cost: Cost = field(default_factory=Cost)
    """What contraction orders were counted to cost."""

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


def _emit(lowered: Lowered, p: AcceleratorParameters, memory: MemoryMap, which: str) -> Emitted:
    emitter = Emitter(lowered.graph, p, memory.buffers)
    emitter.run(lowered.calls)
    address = memory.buffers[f"program.{which}"].address
    return Emitted(lowered, tuple(emitter.descriptors), emitter.made, tuple(emitter.slots), address)


@dataclass(frozen=True)
class _Passes:
    """Both passes of a step as they are lowered, and what crosses from one to the other."""

    forward: Graph
    backward: Graph
    free: frozenset[str]
    """What the host writes for the backward pass as it is needed."""
    origins: Mapping[str, str]
    """Of what the forward pass stores: the tensor that each one is a view of."""
    rows: Rows
    """How tensors are to lie in outer memory."""

    @classmethod
    def of(cls, step: StepGraph, rows: Rows) -> "_Passes":
        """Those of a step of products of two."""
        forward = with_ones(direct(step.forward, step.whole.given))
        backward = with_ones(step.backward)
        free = {name for name in (*forward.given, *step.whole.given) if name in backward.given}
        free |= {name for name in backward.given if backward.tensors[name].constant}
        origins = {n: step.whole.origins[n] for n in backward.given if n not in free}
        return cls(forward, backward, frozenset(free), origins, rows)

    @property
    def stored(self) -> tuple[str, ...]:
        """What the forward pass leaves in outer memory."""
        results = self.forward.results
        return (*results, *(name for name in self.origins.values() if name not in results))


@dataclass(frozen=True)
class _Both:
    """Both programs without addresses."""

    ahead: Lowered
    behind: Lowered
    origins: Mapping[str, str]
    """Of what the backward pass is given: the tensor of the forward pass that each one is a view
    of."""

    @property
    def named(self) -> tuple[tuple[str, Lowered], tuple[str, Lowered]]:
        """With their names."""
        return ("forward", self.ahead), ("backward", self.behind)


def compile_graph(
    step: StepGraph, p: AcceleratorParameters, orders: tuple[Order, ...], rows: Rows | None = None
) -> Step:
    """Compile a step that consists of products of two, tensors of ``rows`` in their layouts. Raises
    ``CompileError``.

    What the backward pass reads of the forward pass may lie in two layouts, if the forward pass is
    faster then and the backward pass can read it.
    """
    step = in_digits(step, p)
    require_passes(step.whole, p)
    passes = _Passes.of(step, rows or Rows())
    parted = may_part(step, passes.origins)
    ahead = _ahead(passes, p, parted)
    try:
        both = _behind(step, passes, ahead, p)
    except CompileError:
        if not any(lying(ahead, name).parts for name in parted):
            raise
        both = _behind(step, passes, _ahead(passes, p, ()), p)
    memory = _memory(both, p)
    require_memory(memory.top, p)
    return Step(
        graph=StepGraph(step.whole, both.ahead.graph, both.behind.graph),
        parameters=p,
        forward=_emit(both.ahead, p, memory, "forward"),
        backward=_emit(both.behind, p, memory, "backward"),
        buffers=memory.buffers,
        memory_bytes=memory.top,
        orders=orders,
    )


def _ahead(passes: _Passes, p: AcceleratorParameters, parted: Collection[str]) -> Lowered:
    """The forward pass."""
    rows, forward = passes.rows, passes.forward
    stored = rows.written(passes.stored)
    with followed(most=rest(FORWARD)):
        return lower(forward, rows.read(forward.given), stored, p, "forward", parted)


def _behind(step: StepGraph, passes: _Passes, ahead: Lowered, p: AcceleratorParameters) -> _Both:
    """The backward pass after a forward pass."""
    lies = {outer.tensor: outer.layout for outer in ahead.outer.values()}
    backward, origins = viewed(passes.backward, passes.origins, lies)
    rows = passes.rows
    given = rows.read([name for name in backward.given if name in passes.free])
    for name, origin in origins.items():
        given[name] = lying(ahead, origin)
        if origin != name:  # a view: the same rows by other axes
            axes, lanes = step.whole.tensors[name].axes, lies[origin].lanes
            given[name] = Given(Layout(tuple(a for a in axes if a not in lanes), lanes))
    stored = rows.written(backward.results)
    return _Both(ahead, lower(backward, given, stored, p, "backward"), origins)


def _memory(both: _Both, p: AcceleratorParameters) -> MemoryMap:
    """Where programs and tensors lie in outer memory."""
    memory, origins = MemoryMap(p.lanes), both.origins
    for which, lowered in both.named:
        length = len(descriptors_of(lowered, p, which)) + 1  # that of a seed
        memory.add_bytes(f"program.{which}", length * DESCRIPTOR_BYTES)
    for _, lowered in both.named:
        for outer in lowered.outer.values():
            if outer.of or (outer.tensor in origins and origins[outer.tensor] != outer.tensor):
                continue
            if outer.name not in memory.buffers:
                memory.add_bytes(outer.name, Packing(lowered.graph, outer, p.lanes).size)
    names = {outer.tensor: outer.name for outer in both.ahead.outer.values()}
    for _, lowered in both.named:
        alias(lowered, memory)
    for outer in both.behind.outer.values():
        if outer.name not in memory.buffers:
            memory.buffers[outer.name] = memory.buffers[names[origins[outer.tensor]]]
    return memory


@contextmanager
def _uncollected() -> Iterator[None]:
    """Put off the search for cyclic garbage, which takes a quarter of the time: there is little."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def order_cost(p: AcceleratorParameters, digits: int = 0) -> Cost:
    """What contraction orders cost on an accelerator; ``digits`` as of ``Cost``."""
    held, arrays = p.scratchpad_rows * p.lanes // 2, Arrays(p.lanes, p.pe1_rows, p.pe2_rows)
    return Cost(held=held, arrays=arrays, digits=digits, pairs=bool(not p.narrow or p.wide_tensors))


@_uncollected()
def compile_network(
    network: Network,
    batch: int,
    p: AcceleratorParameters,
    *,
    inputs: bool = False,
    plan: str = AUTO,
    in_rows: bool = False,
    effort: int = MOST_EFFORT,
) -> Step:
    """Compile a training step, with ``inputs`` also the gradients to the network's inputs.

    With ``in_rows`` tensors lie in outer memory as a state on the chip has them
    (``trainwright.compiler.step.rows``). ``plan`` is one of ``compiler.PLANS``: by ``PAPER`` every
    layer has the contraction order of the paper, else the best that fits; by ``SMALL`` no products
    cross from the forward pass to the backward pass, which makes them again. After ``effort``
    alternatives the best programs so far are taken. Raises ``CompileError``.
    """
    require_words(network, p)
    graph = in_digits(step_graph(network, batch, inputs=inputs), p)
    rows = rows_of(network, graph.whole, p.lanes) if in_rows else Rows()
    with followed(most=effort):
        return _planned(network, graph, p, rows, plan)


def _planned(
    network: Network, graph: StepGraph, p: AcceleratorParameters, rows: Rows, plan: str
) -> Step:
    """Compile a step by one of ``compiler.PLANS``. Raises ``CompileError``."""
    widths = {"word": between_width(network, p), "accumulator": p.accumulator_width}
    if plan == PAPER:
        cost = order_cost(p)
        papers = tuple(
            paper_order(graph.whole, one, cost=cost, **widths) for one in graph.sites.values()
        )
        step = compile_graph(graph.ordered(papers), p, papers, rows)
        return replace(step, cost=cost)
    found: list[Step] = []
    problems: list[CompileError] = []
    for digits in cost_digits(network, graph, p):
        try:
            found.append(_searched(graph, p, order_cost(p, digits), widths, rows, plan))
        except CompileError as error:
            problems.append(error)
    if not found:
        raise problems[0]
    return found[0] if len(found) == 1 else min(found, key=lambda step: step.cycles)


def _searched(
    graph: StepGraph,
    p: AcceleratorParameters,
    cost: Cost,
    widths: Mapping[str, int],
    rows: Rows,
    plan: str,
) -> Step:
    """The fastest step of the contraction orders that cost least. Raises ``CompileError``."""
    orders = [
        ordered(graph.whole, site, cost=cost, most=MOST_TRIED, **widths)
        for site in graph.sites.values()
    ]
    chosen = [found[0] for found in orders]
    found: list[Step] = []
    problems: list[CompileError] = []
    refused: dict[str, str] = {}
    largest = max(range(len(orders)), key=lambda n: orders[n][0].cost)
    for order in orders[largest]:
        chosen[largest] = order
        if order.cost > HOPEFUL * orders[largest][0].cost:
            continue
        try:
            whole = ordered_small(graph, chosen) if plan == SMALL else graph.ordered(chosen)
            step = compile_graph(whole, p, tuple(chosen), rows)
        except CompileError as error:
            problems.append(error)
            refused[order.text] = str(error)
            # Another order costs as much again, and mostly lacks rows for the same tensors.
            if is_spent():
                break
            continue
        found.append(step)
        if len(found) == MOST_ORDERS or is_spent():
            break
    if not found:
        raise problems[0]
    best = found[0] if len(found) == 1 else min(found, key=lambda step: step.cycles)
    return replace(best, refused=refused, cost=cost)


__all__ = ["Lowered", "Step", "compile_graph", "compile_network"]

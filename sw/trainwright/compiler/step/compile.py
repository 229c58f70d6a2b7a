"""Compile a network, a batch and an accelerator to the two programs of a training step.

``compile_network`` is the entry: it derives the graph of a step (``trainwright.graph``), searches
contraction orders of the largest layer, and compiles the most promising ones with
``compile_graph``. ``compile_graph`` compiles the forward pass, then the backward pass for the
layouts in which the forward pass stored its tensors, and lays out external memory for both.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from trainwright.compiler.base.compiled import AUTO, FOLLOWED, PAPER, SMALL
from trainwright.compiler.base.errors import CompileError
from trainwright.compiler.base.limits import require_memory, require_words
from trainwright.compiler.base.memory import Buffer, MemoryMap
from trainwright.compiler.base.progress import MOST_EFFORT, followed, is_over, rest
from trainwright.compiler.base.tuning import TUNING
from trainwright.compiler.emit.emit import Emitted, emitted
from trainwright.compiler.forms.choices import ProgramSpec, Stored
from trainwright.compiler.forms.digits import between_width, cost_digits, in_digits, require_passes
from trainwright.compiler.forms.external import External, Sources
from trainwright.compiler.forms.layout import Axes, Layout
from trainwright.compiler.step.lower import add_buffers, descriptors_of, lower
from trainwright.compiler.step.rows import ALWAYS, Rows, rows_of, without_records
from trainwright.compiler.tile.tile import Lowered
from trainwright.fixed.scale import TensorClass
from trainwright.formats import Fixed
from trainwright.graph.fill import Arrays
from trainwright.graph.ir import Graph, Op, Tensor, View
from trainwright.graph.named import paper_order
from trainwright.graph.order import Cost, Order, ordered
from trainwright.graph.remake import ordered_small
from trainwright.graph.step import StepGraph, step_graph
from trainwright.network import Network
from trainwright.parameters import AcceleratorParameters
from trainwright.program.fields import DESCRIPTOR_BYTES
from trainwright.support.collecting import uncollected
from trainwright.timing import predict


def with_ones(graph: Graph) -> Graph:
    """Return a graph with sums of one tensor written as products with ones.

    Arrays compute products of two only.
    """
    tensors, ops, given = dict(graph.tensors), list[Op](), list(graph.given)
    for op in graph.ops:
        if op.sums and len(op.operands) == 1:
            axes = graph.summed(op)
            # One constant for each set of axes: sums over equal axes share it.
            name = f"ones {' '.join(axes)}"
            tensors[name] = Tensor(name, axes, TensorClass.INTERMEDIATE, Fixed(2), constant=(1, 0))
            given += [name] if name not in given else []
            op = replace(op, operands=(name, *op.operands))
        ops.append(op)
    return Graph(graph.sizes, tensors, tuple(ops), tuple(given), graph.results)


def direct(graph: Graph, host: Sequence[str]) -> Graph:
    """Return a graph without views of what the host writes: it writes the views themselves.

    A tensor that also has other readers is written as it is.
    """
    ops, given = [], list(graph.given)
    readers = Counter(name for op in graph.ops for name in op.operands)
    for op in graph.ops:
        # The host writes the axes of the view at no cost; with a second reader it would write both
        # forms.
        if isinstance(op, View) and op.x in host and op.x in given and readers[op.x] == 1:
            given[given.index(op.x)] = op.out
        else:
            ops.append(op)
    return graph.part(ops, given, graph.results)


def may_part(step: StepGraph, origins: Mapping[str, str]) -> set[str]:
    """Return the tensors of the forward pass that may be stored in two layouts.

    Only contractions of the backward pass may read them: each array then reads the part that it
    wrote.
    """
    viewed = {origin for name, origin in origins.items() if name != origin}
    names = {
        name
        for name, origin in origins.items()
        if name == origin
        and name not in viewed
        and name not in step.forward.results
        and name in step.forward.makers
        and step.forward.makers[name].sums
    }
    for op in step.backward.ops:
        # Element-wise operations and views read a tensor whole, in one layout.
        if not op.sums:
            names -= set(op.operands)
    return names


def lying(lowered: Lowered, name: str) -> Sources:
    """Return how a tensor lies that a program stores, whole or in parts."""
    return tuple(outer for outer in lowered.outer.values() if outer.tensor == name)


def view_layout(layout: Layout, axes: Axes, view: Axes) -> Layout | None:
    """Return how a view lies, by its axes ``view``, whose tensor of ``axes`` has a ``layout``.

    ``None`` if the view does not lie in these rows: it lacks an axis of the lanes or of padding, or
    the rows are in another order than the tensor's axes.
    """
    rows, view_rows = (tuple(a for a in each if a not in layout.lanes) for each in (axes, view))
    if layout.rows != rows or not {*layout.lanes, *layout.padded} <= set(view):
        return None
    return replace(layout, rows=view_rows)


def viewed(
    backward: Graph, origins: Mapping[str, str], layouts: Mapping[str, Layout]
) -> tuple[Graph, dict[str, str]]:
    """Return the backward pass, and the tensor in memory that each tensor given to it is a view of.

    A view that does not lie in the rows of its tensor cannot be read from memory: it becomes an
    operation of the backward pass.
    """
    sources = {}
    views: list[Op] = []
    for name, origin in origins.items():
        axes = (backward.tensors[n].axes for n in (origin, name))
        if name == origin or view_layout(layouts[origin], *axes):
            sources[name] = origin
        else:
            sources[origin] = origin
            views.append(View(name, origin))
    moved = {op.out for op in views}
    given = dict.fromkeys([*(name for name in backward.given if name not in moved), *sources])
    return backward.part((*views, *backward.ops), given, backward.results), sources


@dataclass(frozen=True)
class StepPrograms:
    """The two programs of a training step, and the buffers of their tensors."""

    graph: StepGraph
    parameters: AcceleratorParameters
    forward: Emitted
    backward: Emitted
    buffers: Mapping[str, Buffer]
    memory_bytes: int
    orders: tuple[Order, ...] = field(default=())
    refused: Mapping[str, str] = field(default_factory=dict)
    """Reasons why cheaper orders did not fit, by the order's text."""
    cost: Cost = field(default_factory=Cost)
    """Measure by which contraction orders were compared."""
    always: Mapping[str, External] = field(default_factory=dict)
    """Buffers that exist whether a program reads them or not, by name (``rows.ALWAYS``)."""

    @property
    def cycles(self) -> int:
        """Cycles of a step, by the cycle model."""
        return sum(
            predict(program.descriptors, self.parameters).cycles
            for program in (self.forward, self.backward)
        )

    @property
    def macs(self) -> int:
        """Multiply-accumulates of a step."""
        return self.forward.lowered.macs + self.backward.lowered.macs


@dataclass(frozen=True)
class _Passes:
    """Graphs of both passes as they are lowered, and the tensors that cross between them."""

    forward: Graph
    backward: Graph
    free: frozenset[str]
    """Tensors that the host writes for the backward pass in any layout."""
    origins: Mapping[str, str]
    """Tensor of the forward pass that each tensor given to the backward pass is a view of."""
    rows: Rows
    """Layouts that external memory imposes."""

    @classmethod
    def of(cls, step: StepGraph, rows: Rows) -> "_Passes":
        """Return the passes of a step that consists of products of two."""
        forward = with_ones(direct(step.forward, step.whole.given))
        backward = with_ones(step.backward)
        free = {name for name in (*forward.given, *step.whole.given) if name in backward.given}
        # Constants cross nothing: each pass has its own copy.
        free |= {name for name in backward.given if backward.tensors[name].constant}
        origins = {n: step.whole.origins[n] for n in backward.given if n not in free}
        return cls(forward, backward, frozenset(free), origins, rows)

    @property
    def stored(self) -> tuple[str, ...]:
        """Names of the tensors that the forward pass leaves in external memory."""
        results = self.forward.results
        return (*results, *(name for name in self.origins.values() if name not in results))

    def layouts(self, names: Collection[str]) -> Stored:
        """Return how stored tensors have to lie; None: in any layout."""
        return {n: self.rows[n][0].layout if n in self.rows else None for n in names}


def compile_graph(
    step: StepGraph, p: AcceleratorParameters, rows: Rows | None = None
) -> StepPrograms:  # fmt: skip
    """Compile a step of products of two, with tensors of ``rows`` in their layouts.

    A tensor that crosses from the forward to the backward pass may lie in two layouts, if the
    forward pass is faster then and the backward pass can read it. Raises ``CompileError``.
    """
    step = in_digits(step, p)
    require_passes(step.whole, p)
    passes = _Passes.of(step, rows or {})
    parted = may_part(step, passes.origins)
    forward = _forward(passes, p, parted)
    try:
        backward, origins = _backward(step, passes, forward, p)
    except CompileError:
        if all(len(lying(forward, name)) < 2 for name in parted):
            raise
        # The forward pass was searched first, without knowing who can read its two layouts.
        forward = _forward(passes, p, ())
        backward, origins = _backward(step, passes, forward, p)
    views = {name for name, origin in origins.items() if name != origin}
    memory = program_memory({"forward": forward, "backward": backward}, p, views)
    always = {name: passes.rows[name][0] for name in ALWAYS if name in passes.rows}
    add_buffers(memory, always.values())
    # Views that cross get no buffer of their own: they have the one of the forward pass.
    names = {outer.tensor: outer.name for outer in forward.outer.values()}
    for outer in backward.outer.values():
        if outer.name not in memory.buffers:
            origin = origins[outer.view_of or outer.tensor]
            memory.buffers[outer.name] = memory.buffers[names[origin]]
    require_memory(memory.top, p)
    return StepPrograms(
        graph=StepGraph(step.whole, forward.graph, backward.graph),
        parameters=p,
        forward=emitted(forward, p, memory.buffers, "program.forward"),
        backward=emitted(backward, p, memory.buffers, "program.backward"),
        buffers=memory.buffers,
        memory_bytes=memory.top,
        always=always,
    )


def _forward(passes: _Passes, p: AcceleratorParameters, parted: Collection[str]) -> Lowered:
    """Lower the forward pass; ``parted`` tensors may be stored in two layouts."""
    forward = passes.forward
    given = {name: passes.rows.get(name, ()) for name in forward.given}
    with followed(most=rest(TUNING.effort.forward_share)):
        return lower(
            ProgramSpec(forward, given, passes.layouts(passes.stored), p, "forward", parted)
        )


def _backward(
    step: StepGraph, passes: _Passes, forward: Lowered, p: AcceleratorParameters
) -> tuple[Lowered, Mapping[str, str]]:
    """Lower the backward pass for the layouts that a forward pass stores.

    Return it with the tensor in memory that each tensor given to it is a view of.
    """
    layouts = {outer.tensor: outer.layout for outer in forward.outer.values()}
    backward, origins = viewed(passes.backward, passes.origins, layouts)
    given = {name: passes.rows.get(name, ()) for name in backward.given if name in passes.free}
    for name, origin in origins.items():
        given[name] = lying(forward, origin)
        if origin != name:  # a view: the same rows by other axes
            axes = (step.whole.tensors[n].axes for n in (origin, name))
            layout = view_layout(layouts[origin], *axes)
            assert layout
            given[name] = (External.of(step.whole, name, layout, {}, p.lanes),)
    stored = passes.layouts(backward.results)
    with followed(most=rest()):
        return lower(ProgramSpec(backward, given, stored, p, "backward")), origins


def program_memory(
    programs: Mapping[str, Lowered], p: AcceleratorParameters, without: Collection[str] = ()
) -> MemoryMap:
    """Lay out programs and their tensors, ``without`` some, in external memory."""
    memory = MemoryMap()
    for which, lowered in programs.items():
        length = len(descriptors_of(lowered, p, which)) + 1  # one more may set a seed
        memory.add(f"program.{which}", (length * DESCRIPTOR_BYTES,))
    for lowered in programs.values():
        add_buffers(memory, lowered.outer.values(), without)
    return memory


def order_cost(p: AcceleratorParameters, digits: int = 0, *, remade: bool = False) -> Cost:
    """Return the measure of orders on an accelerator; ``digits`` and ``remade`` as in ``Cost``."""
    # A tensor above half a scratchpad has to be used up in slices, with rows left for what is read
    # with it.
    held, pairs = p.scratchpad_rows * p.lanes // 2, bool(not p.narrow or p.wide_tensors)
    return Cost(held=held, arrays=Arrays(p), digits=digits, pairs=pairs, remade=remade)


# The search for cyclic garbage would take a quarter of the time, and finds little.
@uncollected()
def compile_network(
    network: Network,
    batch: int,
    p: AcceleratorParameters,
    *,
    inputs: bool = False,
    plan: str = AUTO,
    effort: int = MOST_EFFORT,
) -> StepPrograms:
    """Compile a training step, with ``inputs`` also the gradients to the network's inputs.

    ``plan`` is one of ``compiler.PLANS``: by ``PAPER`` every layer has the contraction order of the
    paper, else the best that fits; by ``SMALL`` no products cross from the forward pass to the
    backward pass, which computes them again. By one of ``IN_ROWS`` tensors lie in external memory
    as a state on the chip has them (``compiler.step.rows``). After ``effort`` alternatives the best
    programs so far are taken. Raises ``CompileError``.
    """
    require_words(network, p)
    graph = step_graph(network, batch, inputs=inputs, passes=plan in FOLLOWED)
    graph = in_digits(graph, p)
    search = _Search(network, graph, p, FOLLOWED.get(plan, plan), effort)
    if plan not in FOLLOWED:
        return search.step({})
    in_records = set[str]()
    while True:
        step = search.step(rows_of(network, graph.whole, p.lanes, in_records))
        every = (*step.forward.lowered.outer.values(), *step.backward.lowered.outer.values())
        # Most programs read inputs in such rows by themselves, and are the faster for their choice.
        moved = without_records(network, graph.whole, every)
        if not moved:
            return step
        in_records |= moved


def _is_idle(step: StepPrograms, graph: StepGraph) -> bool:
    """Return whether a step with slices of large partial results leaves much of the arrays idle."""
    original = {op.out for op in graph.whole.ops}
    partial = [op.out for op in step.graph.whole.ops if op.sums and op.out not in original]
    large = any(step.graph.whole.count(name) > step.cost.held for name in partial)
    return large and step.macs < TUNING.order.idle_below * step.cycles * step.parameters.multipliers


@dataclass(frozen=True)
class _Search:
    """Search for the fastest step by one of ``compiler.PLANS``."""

    network: Network
    graph: StepGraph
    p: AcceleratorParameters
    plan: str
    effort: int
    """Alternatives after which the best programs so far are taken."""

    @property
    def _widths(self) -> dict[str, int]:
        """Bits of tensors between two products, and of accumulators."""
        word = between_width(self.network, self.p)
        return {"word": word, "accumulator": self.p.accumulator_width}

    def step(self, rows: Rows) -> StepPrograms:
        """Return the step with tensors of ``rows`` in their layouts. Raises ``CompileError``."""
        with followed(most=self.effort):
            if self.plan == PAPER:
                return self._paper(rows)
            step = self._cheapest(rows)
            if self.plan == AUTO and _is_idle(step, self.graph):
                with (
                    suppress(CompileError),
                    followed(most=round(TUNING.effort.small_share * self.effort)),
                ):
                    small = replace(self, plan=SMALL)._cheapest(rows)
                    if small.cycles < TUNING.order.small_gain * step.cycles:
                        return small
            return step

    def _paper(self, rows: Rows) -> StepPrograms:
        cost, whole = order_cost(self.p), self.graph.whole
        sites = self.graph.sites.values()
        papers = tuple(paper_order(whole, site, cost=cost, **self._widths) for site in sites)
        step = compile_graph(self.graph.ordered(papers), self.p, rows)
        return replace(step, orders=papers, cost=cost)

    def _cheapest(self, rows: Rows) -> StepPrograms:
        """Return the fastest step by plan ``AUTO`` or ``SMALL``. Raises ``CompileError``."""
        steps: list[StepPrograms] = []
        problems: list[CompileError] = []
        # Where tensors are cut into digits, neither measure of orders is always better: try both.
        for digits in cost_digits(self.network, self.graph, self.p):
            try:
                cost = order_cost(self.p, digits, remade=self.plan == SMALL)
                steps.append(self._searched(cost, rows))
            except CompileError as error:
                problems.append(error)
        if not steps:
            raise problems[0]
        return steps[0] if len(steps) == 1 else min(steps, key=lambda step: step.cycles)

    def _searched(self, cost: Cost, rows: Rows) -> StepPrograms:
        """Return the step of the cheapest contraction order that fits. Raises ``CompileError``."""
        graph, is_small = self.graph, self.plan == SMALL
        orders = [
            ordered(graph.whole, site, cost=cost, most=TUNING.order.tried, **self._widths)
            for site in graph.sites.values()
        ]
        chosen = [of_site[0] for of_site in orders]
        problems: list[CompileError] = []
        refused: dict[str, str] = {}
        # Only the largest layer's order varies: it decides most of the cycles, and combinations of
        # several layers' orders would multiply compile time.
        largest = max(range(len(orders)), key=lambda n: orders[n][0].cost, default=None)
        # A network of norms and scales alone has no contraction to order.
        for order in [None] if largest is None else orders[largest]:
            if largest is not None and order is not None:
                chosen[largest] = order
                if order.cost > TUNING.order.worst_cost * orders[largest][0].cost:
                    continue
            try:
                ordered_step = ordered_small(graph, chosen) if is_small else graph.ordered(chosen)
                step = compile_graph(ordered_step, self.p, rows)
                return replace(step, orders=tuple(chosen), refused=refused, cost=cost)
            except CompileError as error:
                problems.append(error)
                if order is not None:
                    refused[order.text] = str(error)
                # Another order costs as much again, and mostly lacks rows for the same tensors.
                if is_over(()):
                    break
        raise problems[0]

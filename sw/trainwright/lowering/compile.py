"""From a network, a batch and an accelerator to the two programs of a training step."""

import gc
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace

from trainwright.compiler.errors import CompileError, DoesNotFitError, ResourceError
from trainwright.compiler.limits import SCRATCHPAD, STREAMED, require_whole_factors
from trainwright.compiler.memory import Buffer, MemoryMap
from trainwright.fixed.scale import TensorClass
from trainwright.formats import Fixed
from trainwright.graph.fill import Arrays
from trainwright.graph.ir import Einsum, Graph, Op, Tensor, View, urgent
from trainwright.graph.named import paper_order
from trainwright.graph.order import Cost, Order, ordered
from trainwright.graph.step import StepGraph, step_graph
from trainwright.lowering.blocks import Blocks
from trainwright.lowering.calls import Call, External
from trainwright.lowering.choices import Given, Way
from trainwright.lowering.choose import choose
from trainwright.lowering.drafts import Draft, Drafts, Lowered
from trainwright.lowering.emit import Emitter, Made
from trainwright.lowering.huge import sliced_axes
from trainwright.lowering.impls import up
from trainwright.lowering.layout import CutError, Layout, Storage
from trainwright.lowering.outer import Packing
from trainwright.lowering.place import alternatives, place
from trainwright.lowering.slots import slotted
from trainwright.network import Network
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Descriptor
from trainwright.program.fields import DESCRIPTOR_BYTES
from trainwright.timing import predict

MOST_ORDERS = 1
"""Contraction orders of the largest layer that are compiled and timed."""
MOST_TRIED = 3
"""Contraction orders of it that are tried where the better ones do not fit."""
HOPEFUL = 2.0
"""Of the cost of the best order, what another may have at most."""
PLACEMENTS = 8
"""Orders at random in which the pieces of the chosen program are placed."""
WAYS = (
    Way(0.02, False, True, sums=True),
    Way(0.02, True, True),
    Way(0.6, False, False),
)
"""How arrays and layouts are chosen, one way after the other."""
BLOCKED = 3
"""Ways to compute a block of samples of which whole programs are placed and timed: the rate of few
blocks does not tell which is the fastest for all."""
CLOSE = 1.5
"""Of what the multipliers need at least, the cycles with which a program of blocks of samples is
taken where the scratchpad is short, without another search."""
SMALL = 1 / 1000
"""Of all multiply-accumulates, what an operation may have to come before all larger ones."""
SHORT = (
    (
        Way(0.02, False, False, sliced=True, piped=True),
        Way(0.02, False, False, sliced=True, piped=True, shared=True),
    ),
    (Way(0.02, False, False, sliced=True),),
    (Way(0.6, False, False, sliced=True, piped=True),),
)
"""The same where a tensor is many times as large as the scratchpad: the first that fit."""
MOST_SHORT = 9
"""Programs that are timed there: estimates tell little."""
MOST_TIMED = 3
"""Programs that are placed and timed by the cycle model: the fastest by the estimate."""


Addresses = dict[Storage, int]
_Found = tuple[int, Draft, Lowered, Addresses]
"""Predicted cycles of a program, and how it is placed."""


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
            tensors[name] = Tensor(name, axes, TensorClass.INTERMEDIATE, Fixed(2), constant=(1, 0))
            given += [name] if name not in given else []
            op = replace(op, operands=(name, *op.operands))
        ops.append(op)
    return Graph(graph.sizes, tensors, tuple(ops), tuple(given), graph.results)


def direct(graph: Graph, host: Sequence[str]) -> Graph:
    """Without views of what the host writes: it writes the views themselves.

    What has other readers too is written as it is.
    """
    ops, given = [], list(graph.given)
    readers = Counter(name for op in graph.ops for name in op.operands)
    for op in graph.ops:
        if isinstance(op, View) and op.x in host and op.x in given and readers[op.x] == 1:
            given[given.index(op.x)] = op.out
        else:
            ops.append(op)
    return graph.part(ops, given, graph.results)


def _lower(
    graph: Graph,
    given: Mapping[str, Given],
    stored: Sequence[str],
    p: AcceleratorParameters,
    which: str,
    parted: Collection[str] = (),
) -> Lowered:
    """The program with the fewest predicted cycles of those that fit; of ``parted`` tensors some
    values may be stored in another layout than the others."""
    problems: list[CompileError] = []
    found = _blocked(Blocks(graph, given, stored, p, lambda one: alone(one, p, which), problems))
    best, bound = min(found, key=lambda one: one[0], default=None), graph.macs / p.multipliers
    if best and sliced_axes(graph, p) and best[0] <= CLOSE * bound:
        return best[2]
    drafts: list[Draft] = []
    for ops in (urgent(graph, SMALL), graph):
        short = bool(sliced_axes(ops, p))
        some = Drafts(ops, given, stored, p, short=short, problems=problems)
        for ways in SHORT if short else [WAYS]:
            try:
                for chosen in choose(ops, given, stored, p, ways, () if short else parted):
                    some.add(chosen)
            except CompileError as error:
                problems.append(error)
                continue
            if drafts := some.best():
                break
        if drafts:
            break
    for draft in drafts[: MOST_SHORT if short else None]:
        try:
            if short:
                found.append(_shortest(draft, p, which))
                continue
            one, addresses = _placed(draft, p)
            found.append((alone(one, p, which), draft, one, addresses))
        except (CutError, DoesNotFitError, ResourceError) as error:
            problems.append(error)
        if len(found) == MOST_TIMED and not short:
            break
    if not found:
        raise _refusal(graph, p, problems)
    cycles, draft, one, addresses = min(found, key=lambda one: one[0])
    try:
        better, _ = _placed(draft, p, tries=PLACEMENTS)
        if alone(better, p, which) <= cycles:
            return better
    except DoesNotFitError as error:  # placed across banks alone
        problems.append(error)
    for storage, base in addresses.items():
        storage.base = base
    return one


def _blocked(blocks: Blocks) -> list[_Found]:
    """Programs of blocks of samples, placed and timed."""
    found: list[_Found] = []
    ways = 0
    for drafts in blocks.best():
        before = len(found)
        for draft in drafts:
            try:
                one, addresses = _placed(draft, blocks.p, stores=True)
                found.append((blocks.time(one), draft, one, addresses))
            except CompileError as error:
                blocks.problems.append(error)
        ways += len(found) > before
        if ways == BLOCKED:
            break
    return found


def _placed(
    draft: Draft, p: AcceleratorParameters, tries: int = 0, *, stores: bool = False
) -> tuple[Lowered, Addresses]:
    """A program with rows for its pieces, and their addresses: drafts of one order of operations
    share their pieces. Raises ``DoesNotFitError``."""
    calls = draft.calls
    rows = place(calls, p, tries=tries, stores=stores)
    addresses = {storage: storage.base for call in calls for storage in call.storages}
    return draft.lowered(rows), addresses


def _shortest(draft: Draft, p: AcceleratorParameters, which: str) -> _Found:
    """A program with its pieces placed in the best of several ways, and its predicted cycles."""
    best: _Found | None = None
    calls = draft.calls
    for placements in (slotted, _usual, alternatives):
        if placements is alternatives and best is not None:
            break
        for rows in placements(calls, p):
            one = draft.lowered(rows)
            cycles = alone(one, p, which)
            if best is None or cycles < best[0]:
                bases = {storage: storage.base for call in calls for storage in call.storages}
                best = cycles, draft, one, bases
    if best is None:
        one, addresses = _placed(draft, p)
        return alone(one, p, which), draft, one, addresses
    return best


def _usual(calls: Sequence[Call], p: AcceleratorParameters) -> Iterator[int]:
    """Rows for pieces as where rows are not short, if there are enough."""
    with suppress(DoesNotFitError):
        yield place(calls, p, tries=PLACEMENTS)


def _refusal(
    graph: Graph, p: AcceleratorParameters, problems: Sequence[CompileError]
) -> CompileError:
    """Why no program fits: it is too long, or the last that did not fit, or the largest tensor."""
    for error in problems:
        if isinstance(error, ResourceError) and not isinstance(error, DoesNotFitError):
            return error
    for error in reversed(problems):
        if isinstance(error, DoesNotFitError):
            return error
    names = {name for op in graph.ops for name in (op.out, *op.operands)} - set(graph.windows)
    name = max(sorted(names), key=graph.count)
    rows = up(graph.count(name), p.lanes)
    return DoesNotFitError(
        f"{name} has {graph.count(name)} values, {rows} {SCRATCHPAD.what} or more, there are "
        f"{p.scratchpad_rows}, and no cut of it fits with what is computed from it",
        SCRATCHPAD.advice(max(rows, p.scratchpad_rows + 1), p),
    )


def _alias(lowered: Lowered, memory: MemoryMap) -> None:
    """Let views of tensors of outer memory have their buffers."""
    names = {outer.tensor: outer.name for outer in lowered.outer.values() if not outer.of}
    for outer in lowered.outer.values():
        if outer.of:
            memory.buffers[outer.name] = memory.buffers[names[outer.of]]


def _descriptors(lowered: Lowered, p: AcceleratorParameters, which: str) -> list[Descriptor]:
    """One program, the ``which`` one of a step, its tensors anywhere. Raises ``CompileError``."""
    memory = MemoryMap(p.lanes)
    for outer in lowered.outer.values():
        memory.add_bytes(outer.name, Packing(lowered.graph, outer, p.lanes).size)
    _alias(lowered, memory)
    emitter = Emitter(lowered.graph, p, memory.buffers)
    emitter.run(lowered.calls)
    STREAMED.require(len(emitter.descriptors), p, f"the {which} program")
    return emitter.descriptors


def alone(lowered: Lowered, p: AcceleratorParameters, which: str) -> int:
    """Predicted cycles of one program, the ``which`` one of a step. Raises ``CompileError``."""
    return predict(_descriptors(lowered, p, which), p).cycles


def _emit(lowered: Lowered, p: AcceleratorParameters, memory: MemoryMap, which: str) -> Emitted:
    emitter = Emitter(lowered.graph, p, memory.buffers)
    emitter.run(lowered.calls)
    address = memory.buffers[f"program.{which}"].address
    return Emitted(lowered, tuple(emitter.descriptors), emitter.made, tuple(emitter.slots), address)


def _lying(lowered: Lowered, name: str) -> Given:
    """How a tensor lies that a program stores."""
    found = [outer for outer in lowered.outer.values() if outer.tensor == name]
    parts = [
        Given(outer.layout, next(((a, *r) for a, r in outer.ranges.items()), None))
        for outer in found
    ]
    return parts[0] if len(parts) == 1 else Given(parts=tuple(parts))


def _viewed(
    backward: Graph, origins: Mapping[str, str], lies: Mapping[str, Layout]
) -> tuple[Graph, dict[str, str]]:
    """The backward pass, and the tensor in outer memory that each one it is given is a view of.

    Views of a tensor that lies with an axis along the lanes that they lack are views there.
    """
    there = {}
    views: list[Op] = []
    for name, origin in origins.items():
        if set(lies[origin].lanes) <= set(backward.tensors[name].axes):
            there[name] = origin
        else:
            there[origin] = origin
            views.append(View(name, origin))
    moved = {op.out for op in views}
    given = dict.fromkeys([*(name for name in backward.given if name not in moved), *there])
    return backward.part((*views, *backward.ops), given, backward.results), there


def _parted(step: StepGraph, origins: Mapping[str, str]) -> set[str]:
    """Tensors of the forward pass that may be stored in two layouts: only contractions of the
    backward pass read them."""
    found = {
        name
        for name, origin in origins.items()
        if name == origin
        and name not in step.forward.results
        and isinstance(step.forward.makers.get(name), Einsum)
    }
    for op in step.backward.ops:
        if not isinstance(op, Einsum):
            found -= set(op.operands)
    return found


def compile_graph(step: StepGraph, p: AcceleratorParameters, orders: tuple[Order, ...]) -> Step:
    """Compile a step that consists of products of two. Raises ``CompileError``.

    What the backward pass reads of the forward pass may lie in two layouts, if that is faster.
    """
    found: list[Step] = []
    problems: list[CompileError] = []
    for several in (True, False):
        try:
            found.append(_compiled(step, p, orders, several=several))
        except CompileError as error:
            problems.append(error)
        if found and not any(outer.ranges for outer in _crossing(found[0])):
            break
    if not found:
        raise problems[-1]
    return min(found, key=lambda one: one.cycles)


def _crossing(step: Step) -> list[External]:
    """What the forward pass stores, as it lies."""
    made = step.graph.forward.makers
    return [outer for outer in step.forward.lowered.outer.values() if outer.tensor in made]


def _compiled(
    step: StepGraph, p: AcceleratorParameters, orders: tuple[Order, ...], *, several: bool
) -> Step:
    """The step, tensors between its passes in one layout, or with ``several`` in more."""
    forward = with_ones(direct(step.forward, step.whole.given))
    backward = with_ones(step.backward)
    flexible = {name for name in (*forward.given, *step.whole.given) if name in backward.given}
    flexible |= {name for name in backward.given if backward.tensors[name].constant}
    crossing = [name for name in backward.given if name not in flexible]
    origins = {name: step.whole.origins[name] for name in crossing}
    stored = (*forward.results, *(name for name in origins.values() if name not in forward.results))
    parted = _parted(step, origins) if several else ()
    ahead = _lower(forward, {name: Given() for name in forward.given}, stored, p, "forward", parted)
    lies = {outer.tensor: outer.layout for outer in ahead.outer.values()}
    backward, origins = _viewed(backward, origins, lies)
    given = {name: Given() for name in backward.given if name in flexible}
    for name, origin in origins.items():
        layout = lies[origin]
        if origin != name:  # a view: the same rows by other axes
            axes = step.whole.tensors[name].axes
            layout = Layout(tuple(a for a in axes if a not in layout.lanes), layout.lanes)
        given[name] = _lying(ahead, name) if origin == name else Given(layout)
    behind = _lower(backward, given, backward.results, p, "backward")
    memory = MemoryMap(p.lanes)
    for which, lowered in (("forward", ahead), ("backward", behind)):
        length = len(_descriptors(lowered, p, which)) + 1  # that of a seed
        memory.add_bytes(f"program.{which}", max(p.program_depth, length) * DESCRIPTOR_BYTES)
    for lowered in (ahead, behind):
        for outer in lowered.outer.values():
            if outer.of or (outer.tensor in origins and origins[outer.tensor] != outer.tensor):
                continue
            if outer.name not in memory.buffers:
                memory.add_bytes(outer.name, Packing(lowered.graph, outer, p.lanes).size)
    names = {outer.tensor: outer.name for outer in ahead.outer.values()}
    for lowered in (ahead, behind):
        _alias(lowered, memory)
    for outer in behind.outer.values():
        if outer.name not in memory.buffers:
            memory.buffers[outer.name] = memory.buffers[names[origins[outer.tensor]]]
    return Step(
        graph=StepGraph(step.whole, ahead.graph, behind.graph),
        parameters=p,
        forward=_emit(ahead, p, memory, "forward"),
        backward=_emit(behind, p, memory, "backward"),
        buffers=memory.buffers,
        memory_bytes=memory.top,
        orders=orders,
    )


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


def order_cost(p: AcceleratorParameters) -> Cost:
    """What contraction orders cost on an accelerator."""
    arrays = Arrays(p.lanes, p.pe1_rows, p.pe2_rows)
    return Cost(held=p.scratchpad_rows * p.lanes // 2, arrays=arrays)


@_uncollected()
def compile_step(
    network: Network,
    batch: int,
    p: AcceleratorParameters,
    *,
    inputs: bool = False,
    paper: bool = False,
) -> Step:
    """Compile a training step, with ``inputs`` also the gradients to the network's inputs.

    With ``paper`` every layer has the contraction order of the paper, else the best that fits.
    """
    require_whole_factors(network, p)
    graph = step_graph(network, batch, inputs=inputs)
    cost = order_cost(p)
    widths = {"word": p.word_width, "accumulator": p.accumulator_width}
    if paper:
        papers = tuple(
            paper_order(graph.whole, one, cost=cost, **widths) for one in graph.sites.values()
        )
        return compile_graph(graph.ordered(papers), p, papers)
    orders = [
        ordered(graph.whole, site, cost=cost, most=MOST_TRIED, **widths)
        for site in graph.sites.values()
    ]
    chosen = [found[0] for found in orders]
    found: list[tuple[int, Step]] = []
    problems: list[CompileError] = []
    refused: dict[str, str] = {}
    largest = max(range(len(orders)), key=lambda n: orders[n][0].cost)
    for order in orders[largest]:
        chosen[largest] = order
        if order.cost > HOPEFUL * orders[largest][0].cost:
            continue
        try:
            step = compile_graph(graph.ordered(chosen), p, tuple(chosen))
        except CompileError as error:
            problems.append(error)
            refused[order.text] = str(error)
            continue
        found.append((step.cycles, step))
        if len(found) == MOST_ORDERS:
            break
    if not found:
        raise problems[0]
    return replace(min(found, key=lambda pair: pair[0])[1], refused=refused)


__all__ = ["Lowered", "Step", "compile_graph", "compile_step"]

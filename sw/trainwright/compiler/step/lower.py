"""One program of a step: the one with the fewest predicted cycles of those that fit."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from trainwright.compiler.base.errors import CompileError, DoesNotFitError, ResourceError
from trainwright.compiler.base.limits import SCRATCHPAD, STREAMED
from trainwright.compiler.base.memory import MemoryMap
from trainwright.compiler.base.progress import HOPELESS, count, enter_phase, is_spent
from trainwright.compiler.choose.choose import choose
from trainwright.compiler.choose.huge import sliced_axes
from trainwright.compiler.emit.emit import Emitter
from trainwright.compiler.emit.outer import Packing
from trainwright.compiler.forms.calls import Call
from trainwright.compiler.forms.choices import Given, SearchMode, Stored
from trainwright.compiler.forms.impls import up
from trainwright.compiler.forms.layout import CutError, Storage
from trainwright.compiler.schedule.place import alternatives, place
from trainwright.compiler.schedule.slots import slotted
from trainwright.compiler.step.blocks import Blocks
from trainwright.compiler.step.drafts import Draft, Drafts, Lowered
from trainwright.graph.ir import Graph, urgent
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Descriptor
from trainwright.timing import predict

PLACEMENTS = 8
"""Orders at random in which the pieces of the chosen program are placed."""
MODES = (
    SearchMode(0.02, False, True, sums=True),
    SearchMode(0.02, True, True),
    SearchMode(0.6, False, False),
)
"""How arrays and layouts are chosen, one way after the other."""
BALANCED = MODES[1:2]
"""The way where loads are little: both arrays are balanced with what only one can compute later.
All are tried if it leads to nothing that fits."""
LONG = 48
"""Operations of a program from which on that way is tried first, in both orders of operations: an
encoder's programs take 231,748 cycles by it alone, 247,933 and 251,890 by each of the others."""
LOADED = 0.1
"""Of the cycles that the multipliers need at least, those of the memory port for what is given and
stored, each once, from which all ways are tried."""
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
        SearchMode(0.02, False, False, sliced=True, piped=True),
        SearchMode(0.02, False, False, sliced=True, piped=True, shared=True),
    ),
    (SearchMode(0.02, False, False, sliced=True),),
    (SearchMode(0.6, False, False, sliced=True, piped=True),),
)
"""The same where a tensor is many times as large as the scratchpad: the first that fit."""
SCARCE = tuple(tuple(replace(way, large=True) for way in ways) for ways in SHORT)
"""The same where nothing else fits, of tensors that are large."""
MOST_SHORT = 9
"""Programs that are timed there: estimates tell little."""
PATIENCE = 3
"""Programs in a row that are timed there without a better one, after which no other is.

Searches for `fashion-conv`, and for `fashion` in 4,096 rows, find the same programs as with all
nine, in half the time.
"""
HOPEFUL = 1.1
"""Of the fewest cycles that were timed, what the estimate of another program may be that is."""
MOST_TIMED = 3
"""Programs that are placed and timed by the cycle model: the fastest by the estimate."""


Addresses = dict[Storage, int]
_Found = tuple[int, Draft, Lowered, Addresses]
"""Predicted cycles of a program, and how it is placed."""


def lower(
    graph: Graph,
    given: Mapping[str, Given],
    stored: Stored,
    p: AcceleratorParameters,
    which: str,
    parted: Collection[str] = (),
) -> Lowered:
    """The program with the fewest predicted cycles of those that fit; of ``parted`` tensors some
    values may be stored in another layout than the others. Raises ``CompileError``.
    """
    problems: list[CompileError] = []
    enter_phase(f"{which} program: search of arrays and layouts")
    found = _blocked(Blocks(graph, given, stored, p, lambda one: alone(one, p, which), problems))
    best, bound = min(found, key=lambda one: one[0], default=None), graph.work / p.multipliers
    if best and sliced_axes(graph, p) and best[0] <= CLOSE * bound:
        return best[2]
    found += _whole(graph, given, stored, p, which, parted, problems)
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


def _whole(
    graph: Graph,
    given: Mapping[str, Given],
    stored: Stored,
    p: AcceleratorParameters,
    which: str,
    parted: Collection[str],
    problems: list[CompileError],
) -> list[_Found]:
    """Programs of all samples at once, placed and timed."""
    for ops, short, ways in _tries(graph, given, stored, p):
        some = Drafts(ops, given, stored, p, short=short, problems=problems)
        before = len(problems)
        try:
            for chosen in choose(ops, given, stored, p, ways, () if short else parted):
                some.add(chosen)
        except CompileError as error:
            problems.append(error)
            if is_spent(HOPELESS):
                break
            continue
        found = _timed(some.best(), p, which, problems, short=short)
        if found or is_spent(HOPELESS) or any(_is_other(error) for error in problems[before:]):
            return found
    return []


def _is_other(error: CompileError) -> bool:
    """Whether more rows of the scratchpad would not help."""
    return isinstance(error, ResourceError) and not isinstance(error, DoesNotFitError)


def _timed(
    drafts: Sequence[Draft],
    p: AcceleratorParameters,
    which: str,
    problems: list[CompileError],
    *,
    short: bool,
) -> list[_Found]:
    """Programs of drafts, the best first, placed and timed."""
    found: list[_Found] = []
    tried, since = drafts[: MOST_SHORT if short else None], 0
    for number, draft in enumerate(tried, 1):
        enter_phase(f"{which} program: draft {number} of at most {len(tried)} placed and timed")
        least = min((cycles for cycles, *_ in found), default=0)
        if found and draft.cycles > (least if short else HOPEFUL * least):
            break  # so are those behind it
        try:
            if short:
                found.append(_shortest(draft, p, which))
                since = since + 1 if found[1:] and found[-1][0] >= least else 0
            else:
                one, addresses = _placed(draft, p)
                found.append((alone(one, p, which), draft, one, addresses))
        except (CutError, DoesNotFitError, ResourceError) as error:
            problems.append(error)
        if since == PATIENCE or (len(found) == MOST_TIMED and not short) or (found and is_spent()):
            break
    return found


def _tries(
    graph: Graph, given: Mapping[str, Given], stored: Stored, p: AcceleratorParameters
) -> Iterator[tuple[Graph, bool, Sequence[SearchMode]]]:
    """Orders of operations, whether the scratchpad is short for them, and ways to choose arrays and
    layouts: to be tried one after the other, until there are programs.
    """
    orders = urgent(graph, SMALL), graph
    is_long = len(graph.ops) > LONG
    in_rows = any(one.again for one in given.values())  # much is transposed first
    if is_long and not sliced_axes(graph, p):
        yield from ((ops, False, BALANCED) for ops in orders)
    for ops in orders:
        if sliced_axes(ops, p):
            yield from ((ops, True, ways) for ways in SHORT)
            continue
        if not is_long and not in_rows and _loaded(ops, (*given, *stored), p) < LOADED:
            yield ops, False, BALANCED
        yield ops, False, MODES
    for ops in orders:
        if not sliced_axes(ops, p) and sliced_axes(ops, p, large=True):
            yield from ((ops, True, ways) for ways in SCARCE)


def _loaded(graph: Graph, names: Collection[str], p: AcceleratorParameters) -> float:
    """Cycles of the memory port for some tensors, of those that the multipliers need at least."""
    size = sum(graph.count(name) * -(-graph.tensors[name].format.width // 8) for name in names)
    return size / p.beat_bytes / max(1, graph.work / p.multipliers)


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
    share their pieces. Raises ``DoesNotFitError``.
    """
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
        if _is_other(error):
            return error
    for error in reversed(problems):
        if isinstance(error, DoesNotFitError):
            return error
    names = {name for op in graph.ops for name in (op.out, *op.operands)} - set(graph.windows)
    name = max(sorted(names), key=lambda name: graph.count(name) * graph.tensors[name].digits)
    rows = up(graph.count(name), p.lanes) * graph.tensors[name].digits
    return DoesNotFitError(
        f"{name} has {graph.count(name)} values, {rows} {SCRATCHPAD.what} or more, there are "
        f"{p.scratchpad_rows}, and no cut of it fits with what is computed from it",
        SCRATCHPAD.advice(max(rows, p.scratchpad_rows + 1), p),
    )


def alias(lowered: Lowered, memory: MemoryMap) -> None:
    """Let views of tensors of outer memory have their buffers."""
    names = {outer.tensor: outer.name for outer in lowered.outer.values() if not outer.of}
    for outer in lowered.outer.values():
        if outer.of:
            memory.buffers[outer.name] = memory.buffers[names[outer.of]]


def descriptors_of(lowered: Lowered, p: AcceleratorParameters, which: str) -> list[Descriptor]:
    """One program, the ``which`` one of a step, its tensors anywhere. Raises ``CompileError``."""
    memory = MemoryMap(p.lanes)
    for outer in lowered.outer.values():
        memory.add_bytes(outer.name, Packing(lowered.graph, outer, p.lanes).size)
    alias(lowered, memory)
    emitter = Emitter(lowered.graph, p, memory.buffers)
    emitter.run(lowered.calls)
    count("timed", len(emitter.descriptors))
    STREAMED.require(len(emitter.descriptors), p, f"the {which} program")
    return emitter.descriptors


def alone(lowered: Lowered, p: AcceleratorParameters, which: str) -> int:
    """Predicted cycles of one program, the ``which`` one of a step. Raises ``CompileError``."""
    return predict(descriptors_of(lowered, p, which), p).cycles

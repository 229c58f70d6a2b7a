"""Find one program of a step: the one with the fewest predicted cycles among those that fit.

``lower`` is the entry, called for the forward and for the backward pass. It drafts programs for
several search modes (``drafts``), places them (``schedule.place``), and times the most promising by
the cycle model. Effort is counted, not timed, so that every machine finds the same program.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from trainwright.compiler.base.errors import (
    CompileError,
    DoesNotFitError,
    NoCandidateError,
    ResourceError,
)
from trainwright.compiler.base.limits import SCRATCHPAD, STREAMED
from trainwright.compiler.base.memory import MemoryMap
from trainwright.compiler.base.progress import (
    count,
    enter_phase,
    followed,
    is_over,
    is_spent,
    rest,
)
from trainwright.compiler.base.tuning import TUNING
from trainwright.compiler.choose.choose import choose
from trainwright.compiler.choose.huge import sliced_axes
from trainwright.compiler.emit.emit import emitted
from trainwright.compiler.forms.choices import ProgramSpec, SearchMode
from trainwright.compiler.forms.external import External
from trainwright.compiler.forms.impls import up
from trainwright.compiler.forms.layout import Addresses, CutError
from trainwright.compiler.schedule.place import place
from trainwright.compiler.step.blocks import Blocks
from trainwright.compiler.step.drafts import Draft, Drafts
from trainwright.compiler.tile.tile import Lowered
from trainwright.graph.ir import Graph, urgent
from trainwright.graph.network import SEQUENCES
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Descriptor
from trainwright.support.text import amount
from trainwright.timing import predict

MODES = (
    # Each array keeps parts of a tensor in a layout of its own, and sums them itself.
    SearchMode(weight=0.02, due=False, apart=True, sums=True),
    # Both arrays end together, with what only one of them can compute later.
    SearchMode(weight=0.02, due=True, apart=True),
    # Loads cost nearly as much as computing: for layers that are bound by memory.
    SearchMode(weight=0.6, due=False, apart=False),
)
"""Modes of the search for arrays and layouts, one after the other."""
BALANCED_MODES = MODES[1:2]
"""Mode where loads are few: both arrays are balanced with what only one can compute later.

All modes are tried if it leads to nothing that fits.
"""
LONG_MODES = (*BALANCED_MODES, SearchMode(weight=0.6, due=False, apart=False, lesser=0.15))
"""Modes of long programs. Predicted cycles by the first mode, by both, and by two more modes:

483,474, 475,101 and 475,101 of `encoder-768`; 577,455, 582,191 and 586,694 of `encoder-64` in 8
sequences; 687,390, 650,358 and 650,358 of `tagger-64` in 8. More drafts, placements and orders of
issue of each change less than 1 %.
"""
SHORT_MODES = (
    (
        # One array computes slices that the other one reads, or both compute some: factors are in
        # the scratchpad once.
        SearchMode(weight=0.02, due=False, apart=False, sliced=True, piped=True),
        SearchMode(weight=0.02, due=False, apart=False, sliced=True, piped=True, shared=True),
    ),
    # Each array computes its own slices from end to end.
    (SearchMode(weight=0.02, due=False, apart=False, sliced=True),),
    # The first again, with loads that cost more.
    (SearchMode(weight=0.6, due=False, apart=False, sliced=True, piped=True),),
)
"""Modes where a tensor is many times as large as the scratchpad: the first group that fits."""
SCARCE_MODES = tuple(tuple(replace(mode, large=True) for mode in modes) for modes in SHORT_MODES)
"""Modes where nothing else fits: also tensors that are only large are sliced."""


_Timed = tuple[int, Draft, Lowered]
"""Predicted cycles of a program, and the program with addresses."""


def lower(spec: ProgramSpec) -> Lowered:
    """Return the program with the fewest predicted cycles among those that fit.

    Raises ``CompileError``.
    """
    graph, p, which, problems = spec.graph, spec.p, spec.which, list[CompileError]()
    enter_phase(f"{which} program: search of arrays and layouts")
    timed = _blocked(Blocks(spec, lambda program: cycles_of(program, p, which), problems))
    best, bound = min(timed, key=lambda entry: entry[0], default=None), graph.work / p.multipliers
    if best and (
        is_spent()
        # Blocks of sequences are only tried where nothing else is likely to fit.
        or SEQUENCES in graph.sizes
        or (sliced_axes(graph, p) and best[0] <= TUNING.block.enough * bound)
    ):
        return best[2]
    timed += _whole(spec, problems)
    if not timed:
        raise _refusal(graph, p, problems)
    cycles, draft, program = min(timed, key=lambda entry: entry[0])
    if is_spent():
        return program
    # Only the winner is placed in random orders, too: placing and timing all of them would take
    # longer than it gains. Blocks are placed by other costs, so that this can find no room.
    with suppress(DoesNotFitError):
        better = draft.placed(place(draft.issue, p, tries=TUNING.place.random_orders))
        if cycles_of(better, p, which) <= cycles:
            return better
    return program


def _whole(spec: ProgramSpec, problems: list[CompileError]) -> list[_Timed]:
    """Return programs of all samples at once, placed and timed."""
    for ops, short, modes in _attempts(spec):
        ordered = replace(spec, graph=ops, parted=() if short else spec.parted)
        before, timed = len(problems), list[_Timed]()
        # Estimates of long programs are off by more than the modes differ: time each one's choices.
        for compared in [(mode,) for mode in modes] if modes is LONG_MODES else [modes]:
            timed += _compared(ordered, compared, problems, short=short)
            if not timed or is_spent():
                break
        if timed or is_over(()) or any(_is_other(error) for error in problems[before:]):
            return timed
    return []


def _compared(
    spec: ProgramSpec, modes: Sequence[SearchMode], problems: list[CompileError], *, short: bool
) -> list[_Timed]:
    """Return the programs with the best estimates of all modes, placed and timed."""
    drafts = Drafts(spec, short=short, problems=problems)
    with followed(rest(), hopeless=TUNING.effort.attempt):
        try:
            for number, chosen in enumerate(choose(spec, modes)):
                if number and drafts.is_over:
                    break
                drafts.add(chosen)
            return _timed(drafts.best(), spec, problems, short=short)
        except CompileError as error:
            problems.append(error)
    return []


def _is_other(error: CompileError) -> bool:
    """Return whether more rows of the scratchpad would not help."""
    return isinstance(error, ResourceError) and not isinstance(error, DoesNotFitError)


def _timed(
    drafts: Sequence[Draft], spec: ProgramSpec, problems: list[CompileError], *, short: bool
) -> list[_Timed]:
    """Return programs of drafts, the best first, placed and timed."""
    p, which, tune, timed = spec.p, spec.which, TUNING.lower, list[_Timed]()
    tried = drafts[: tune.timed_tight] if short else drafts
    worse_in_a_row = 0
    for number, draft in enumerate(tried, 1):
        enter_phase(f"{which} program: draft {number} of at most {len(tried)} placed and timed")
        least = min((cycles for cycles, *_ in timed), default=0)
        if timed and draft.cycles > (least if short else tune.timed_up_to * least):
            break  # drafts are sorted, so no later one is better
        try:
            program = draft.placed(_short_placed(draft, p) if short else place(draft.issue, p))
            timed.append((cycles_of(program, p, which), draft, program))
            is_worse = len(timed) > 1 and timed[-1][0] >= least
            worse_in_a_row = worse_in_a_row + 1 if is_worse else 0
        except (CutError, DoesNotFitError, ResourceError) as error:
            problems.append(error)
        if (worse_in_a_row == tune.patience if short else len(timed) == tune.timed) or (
            timed and is_spent()
        ):
            break
    return timed


def _short_placed(draft: Draft, p: AcceleratorParameters) -> Addresses:
    """Place the pieces of a program in a short scratchpad. Raises ``DoesNotFitError``."""
    tune = TUNING.place
    return place(draft.issue, p, tries=tune.random_orders, stores=True, waited=tune.tight_wait)


def _attempts(spec: ProgramSpec) -> Iterator[tuple[Graph, bool, Sequence[SearchMode]]]:
    """Yield searches to try until one leads to programs, the most promising first.

    Each is an order of operations, whether the scratchpad is short for it, and search modes.
    """
    graph, p = spec.graph, spec.p
    orders = urgent(graph, TUNING.lower.urgent), graph
    is_long = len(graph.ops) > TUNING.lower.long
    # Tensors in rows of a state are transposed first, which the ratio of loads does not tell.
    if is_long and not sliced_axes(graph, p):
        yield from ((ops, False, LONG_MODES) for ops in orders)
    for ops in orders:
        if sliced_axes(ops, p):
            yield from ((ops, True, modes) for modes in SHORT_MODES)
            continue
        named = (*spec.given, *spec.stored)
        if not is_long and not spec.in_rows and _loaded(ops, named, p) < TUNING.lower.loads:
            yield ops, False, BALANCED_MODES
        yield ops, False, MODES
    for ops in orders:
        if not sliced_axes(ops, p) and sliced_axes(ops, p, large=True):
            yield from ((ops, True, modes) for modes in SCARCE_MODES)


def _loaded(graph: Graph, names: Collection[str], p: AcceleratorParameters) -> float:
    """Return the ratio of memory-port cycles for some tensors to multiplier cycles."""
    # Bytes of a value as they are stored; each tensor is counted once, whatever the slices load
    # again.
    size = sum(graph.count(name) * -(-graph.tensors[name].format.width // 8) for name in names)
    return size / p.beat_bytes / max(1, graph.work / p.multipliers)


def _blocked(blocks: Blocks) -> list[_Timed]:
    """Return programs of blocks of samples, placed and timed."""
    timed: list[_Timed] = []
    bodies = 0
    for drafts in blocks.best():
        before = len(timed)
        for draft in drafts:
            try:
                program = draft.placed(place(draft.issue, blocks.spec.p, stores=True))
                timed.append((blocks.time(program), draft, program))
            except CompileError as error:
                blocks.problems.append(error)
        bodies += len(timed) > before
        if bodies == TUNING.block.whole or (bodies and (is_spent() or len(drafts) == 1)):
            break
    return timed


def _refusal(
    graph: Graph, p: AcceleratorParameters, problems: Sequence[CompileError]
) -> CompileError:
    """Return the most helpful error: a long program, the last misfit, or the largest tensor."""
    for error in problems:
        if _is_other(error):
            return error
    # Later attempts need fewer rows, so the remedy of the last misfit asks for least.
    misfits = [error for error in reversed(problems) if isinstance(error, DoesNotFitError)]
    for error in misfits:
        if not isinstance(error, NoCandidateError):
            return error
    names = {name for op in graph.ops for name in (op.out, *op.operands)} - set(graph.windows)
    name = max(sorted(names), key=lambda name: graph.count(name) * graph.tensors[name].digits)
    rows = up(graph.count(name), p.lanes) * graph.tensors[name].digits
    if misfits and rows <= p.scratchpad_rows:
        return misfits[0]
    return SCRATCHPAD.misfit(
        f"{name} has {amount(graph.count(name), 'value')}, {rows} {SCRATCHPAD.what} or more, "
        f"there are {p.scratchpad_rows}, and no cut of it fits with what is computed from it",
        rows, p,
    )  # fmt: skip


def add_buffers(
    memory: MemoryMap, every: Collection[External], without: Collection[str] = ()
) -> None:
    """Add the buffers of tensors, ``without`` some of them; views have those of their origins."""
    for outer in every:
        if not outer.view_of and outer.tensor not in without and outer.name not in memory.buffers:
            memory.add(outer.name, (outer.size,))
    names = {outer.tensor: outer.name for outer in every if not outer.view_of}
    for outer in every:
        if outer.view_of and outer.view_of not in without:
            memory.buffers[outer.name] = memory.buffers[names[outer.view_of]]


def descriptors_of(
    lowered: Lowered, p: AcceleratorParameters, which: str
) -> tuple[Descriptor, ...]:
    """Return the ``which`` program of a step, its tensors anywhere. Raises ``CompileError``."""
    memory = MemoryMap()
    add_buffers(memory, lowered.outer.values())
    descriptors = emitted(lowered, p, memory.buffers).descriptors
    count("timed", len(descriptors))
    STREAMED.require(len(descriptors), p, f"the {which} program")
    return descriptors


def cycles_of(lowered: Lowered, p: AcceleratorParameters, which: str) -> int:
    """Return the predicted cycles of the ``which`` program of a step. Raises ``CompileError``."""
    return predict(descriptors_of(lowered, p, which), p).cycles

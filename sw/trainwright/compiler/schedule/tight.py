"""Order commands where the scratchpad has few rows for them.

Loads move ahead as far as there are rows for them, and stores move back, so that the sequencer does
not wait for either. Input: commands in the order of the operations, which ``tile`` chose so that
few pieces are alive at once. Output: an ``Issue`` for each distance in ``earlier``; ``step.drafts``
estimates every issue.
"""

from collections.abc import Iterator, Mapping, Sequence
from heapq import heappop, heappush

from trainwright.compiler.base.estimates import RESULT_LATENCY
from trainwright.compiler.base.tuning import TUNING
from trainwright.compiler.forms.calls import Call
from trainwright.compiler.forms.layout import Storage
from trainwright.compiler.schedule.place import places_of, rows_used
from trainwright.compiler.schedule.schedule import (
    Issue,
    SliceGroup,
    Times,
    dependencies,
    reordered,
    slices_with,
)
from trainwright.program.engines import EVERY_ARRAY
from trainwright.program.fields import Engine


def _used(calls: Sequence[Call]) -> list[int]:
    """Return the rows in use during each command."""
    return rows_used(places_of(calls))


def _slice_limits(calls: Sequence[Call]) -> dict[SliceGroup, int]:
    """Return for each group of slices how many may be alive at once."""
    return {
        group: max(counts) + TUNING.issue.spare_slices for group, counts in _slices(calls).items()
    }


def _with_early_loads(
    calls: list[Call], rows: int, limits: Mapping[SliceGroup, int], lead_cycles: float
) -> list[Call]:
    """Move each load ahead by its own cycles plus ``lead_cycles``, as far as rows allow.

    ``limits`` are the slices of each group that may be alive at once.
    """
    before = {
        id(call): {id(calls[n]) for n in earlier}
        for call, earlier in zip(calls, dependencies(calls), strict=True)
    }
    used = _used(calls)
    new = {id(calls[place.first]): place.storage for place in places_of(calls)}
    slices = _slices(calls)
    order = list(calls)
    for place, call in enumerate(calls):
        if call.engine is not Engine.LOAD:
            continue
        # Earlier loads moved only among the commands before this one, so its place still holds.
        storage = new.get(id(call))
        at, ahead, rows_of = place, 0.0, storage.rows if storage else 0
        while at and ahead < call.cycles + lead_cycles:
            other = order[at - 1]
            # Loads never overtake each other, because the load that is needed first comes first.
            # Only cycles of the arrays count as time gained.
            if other.engine is Engine.LOAD or id(other) in before[id(call)]:
                break
            if used[at - 1] + rows_of > rows:
                break
            if storage and slices[slices_with(storage)][at - 1] >= limits[slices_with(storage)]:
                break
            ahead += other.cycles if other.engine in EVERY_ARRAY else 0.0
            at -= 1
        if at < place:
            order[at : place + 1] = [call, *order[at:place]]
            # Only the places in between change: shifting a whole list of 10,000 commands is slow.
            for counts in (used, *slices.values()):
                counts[at : place + 1] = [counts[at], *counts[at:place]]
            for n in range(at, place + 1):
                used[n] += rows_of
                if storage:
                    slices[slices_with(storage)][n] += 1
    return order


def _slices(calls: Sequence[Call]) -> dict[SliceGroup, list[int]]:
    """Return for each group how many slices are alive during each command."""
    slices: dict[SliceGroup, list[int]] = {}
    for place in places_of(calls):
        counts = slices.setdefault((place.name, place.rows), [0] * len(calls))
        for n in range(place.first, place.last + 1):
            counts[n] += 1
    return slices


def _with_late_stores(calls: list[Call], rows: int) -> list[Call]:
    """Move each store behind the next command of the array that computes the stored piece.

    The array then has work while the store waits for the piece. In front of that command, the store
    would block the sequencer, which issues commands in order. A store stays where it is if the rows
    do not suffice.
    """
    order = list(calls)
    used = _used(order)
    last = {storage: n for n, call in enumerate(order) for storage in call.storages}
    makers = {storage: call.engine for call in order for storage in call.targets}
    read = {
        (id(order[b]), id(call))
        for call, earlier in zip(order, dependencies(order), strict=True)
        for b in earlier
        if order[b].engine is Engine.STORE
    }
    places = [n for n, call in enumerate(order) if call.engine is Engine.STORE]
    # From the last store back: moving a store changes no place in front of the store.
    for place in reversed(places):
        call = order[place]
        (storage,) = call.sources
        held = storage.rows if last[storage] == place else 0
        at = place
        while at + 1 < len(order) and at - place < TUNING.issue.store_distance:
            other = order[at + 1]
            if other.engine is Engine.STORE or (id(call), id(other)) in read:
                break
            if used[at + 1] + held > rows:
                break
            at += 1
            if other.engine is makers[storage]:
                break
        # A shorter move would gain nothing: the array would still wait for its next command.
        if at > place and order[at].engine is makers[storage]:
            order.insert(at, order.pop(place))
            used.insert(at, used.pop(place))
            for n in range(place, at + 1):
                used[n] += held
    return order


def _times(calls: Sequence[Call], rows: int) -> list[Times]:
    """Estimate the times of every command.

    As in the sequencer, commands are issued strictly in order: a command that waits until a piece
    is no longer read, and its rows are free, delays all later commands.
    """
    before, free, issued = dependencies(calls), dict[Engine, float](), 0.0
    last = {storage: n for n, call in enumerate(calls) for storage in call.storages}
    alive: set[Storage] = set()
    leaving: list[tuple[float, int]] = []
    times: list[Times] = []
    used = 0
    for n, call in enumerate(calls):
        start = max((times[b][1] + RESULT_LATENCY for b in before[n]), default=0.0)
        issued = max(start, free.get(call.engine, 0.0), issued)
        new = {*call.targets} - alive
        alive |= new
        used += sum(storage.rows for storage in new)
        # The sequencer waits for one last reader after another, the earliest end first, until there
        # are rows.
        while used > rows and leaving:
            end, less = heappop(leaving)
            issued, used = max(issued, end), used - less
        end = free[call.engine] = issued + call.cycles
        times.append((issued, end))
        for storage in set(call.storages):
            if last[storage] == n:
                alive.discard(storage)
                heappush(leaving, (end, storage.rows))
    return times


def tight(
    calls: Sequence[Call], lookahead: int, rows: int, earlier: Sequence[float]
) -> Iterator[Issue]:
    """Issue commands within ``rows``, or, if the given order needs more, in the given order.

    Yield an issue for each value of ``earlier``: the cycles by which loads begin before they must.
    Values that lead to the same order yield one issue.
    """
    fixed, limits = list(calls), _slice_limits(calls)
    fits = max(_used(fixed)) <= rows
    if fits:
        for share in TUNING.issue.row_shares:
            order = reordered(calls, lookahead, round(share * rows), limits)
            if max(_used(order)) <= rows:
                fixed = order
                break
    seen: set[tuple[int, ...]] = set()
    for lead_cycles in earlier:
        order = fixed
        if fits:
            order = _with_late_stores(_with_early_loads(fixed, rows, limits, lead_cycles), rows)
        numbers = tuple(map(id, order))
        if numbers in seen:  # usual where no load has rows to come earlier
            continue
        seen.add(numbers)
        yield Issue(tuple(order), tuple(_times(order, rows)), lookahead)

"""Order commands where rows are short.

Loads come early as far as there are rows for them, and stores late, so that the sequencer does not
wait. In: commands in the order of the operations, which ``tile`` chose so that few pieces are alive
at once. Out: ``Issue`` for each distance of ``earlier``; ``step.drafts`` estimates all of them.
"""

from collections.abc import Iterator, Mapping, Sequence
from heapq import heappop, heappush

from trainwright.compiler.forms.calls import Call
from trainwright.compiler.forms.choices import AFTER
from trainwright.compiler.forms.layout import Storage
from trainwright.compiler.schedule.place import places_of, rows_used
from trainwright.compiler.schedule.schedule import (
    ARRAYS,
    Group,
    Issue,
    Times,
    dependencies,
    group_of,
    reordered,
)
from trainwright.program.fields import Engine

FAR = 8
"""Commands that a store is put behind, at most."""
MORE = 1
"""Slices of a tensor that may be alive in addition to those in the order of the operations.

An array that runs ahead by one slice hides the other one's work; by more it only fills rows.
"""
ROOMS = (1.0, 0.85, 0.6)
"""Shares of the rows in which no array runs ahead of the other, tried in this order.

Where nothing else can start the scheduler exceeds its limit; under a lower one the excess may fit.
"""


def _used(calls: Sequence[Call]) -> list[int]:
    """Return the rows in use during each command."""
    return rows_used(places_of(calls))


def _most(calls: Sequence[Call]) -> dict[Group, int]:
    """Return for each group of slices how many may be alive at once."""
    return {group: max(counts) + MORE for group, counts in _slices(calls).items()}


def _early(calls: list[Call], rows: int, most: Mapping[Group, int], early: float) -> list[Call]:
    """Move each load ahead by its cycles and ``early`` more, as far as rows allow."""
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
        while at and ahead < call.cycles + early:
            other = order[at - 1]
            # Loads never overtake each other: the first needed is loaded first. Only the arrays'
            # cycles count as time gained.
            if other.engine is Engine.LOAD or id(other) in before[id(call)]:
                break
            if used[at - 1] + rows_of > rows:
                break
            if storage and slices[group_of(storage)][at - 1] >= most[group_of(storage)]:
                break
            ahead += other.cycles if other.engine in ARRAYS else 0.0
            at -= 1
        if at < place:
            order[at : place + 1] = [call, *order[at:place]]
            # Only the places in between change: lists of 10,000 commands are long to move whole.
            for counts in (used, *slices.values()):
                counts[at : place + 1] = [counts[at], *counts[at:place]]
            for n in range(at, place + 1):
                used[n] += rows_of
                if storage:
                    slices[group_of(storage)][n] += 1
    return order


def _slices(calls: Sequence[Call]) -> dict[Group, list[int]]:
    """Return for each group how many slices are alive during each command."""
    slices: dict[Group, list[int]] = {}
    for place in places_of(calls):
        counts = slices.setdefault((place.name, place.rows), [0] * len(calls))
        for n in range(place.first, place.last + 1):
            counts[n] += 1
    return slices


def _late(calls: list[Call], rows: int) -> list[Call]:
    """Return the commands with stores moved back, where rows allow.

    A store goes behind the next command of the array that computes what it stores. That array then
    has work while the store waits for its result; in front of the command, the store would keep the
    sequencer from issuing it.
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
    # From the last store back, so that the places of earlier ones stay true.
    for place in reversed(places):
        call = order[place]
        (storage,) = call.sources
        held = storage.rows if last[storage] == place else 0
        at = place
        while at + 1 < len(order) and at - place < FAR:
            other = order[at + 1]
            if other.engine is Engine.STORE or (id(call), id(other)) in read:
                break
            if used[at + 1] + held > rows:
                break
            at += 1
            if other.engine is makers[storage]:
                break
        # Moving less far would gain nothing: the array would still wait for its next command.
        if at > place and order[at].engine is makers[storage]:
            order.insert(at, order.pop(place))
            used.insert(at, used.pop(place))
            for n in range(place, at + 1):
                used[n] += held
    return order


def _times(calls: Sequence[Call], rows: int) -> list[Times]:
    """Return the times of every command.

    Commands are issued strictly in order: a command that has to wait for rows, until a piece is no
    longer read, delays all later ones, as the sequencer does.
    """
    before, free, issued = dependencies(calls), dict[Engine, float](), 0.0
    last = {storage: n for n, call in enumerate(calls) for storage in call.storages}
    alive: set[Storage] = set()
    leaving: list[tuple[float, int]] = []
    times: list[Times] = []
    used = 0
    for n, call in enumerate(calls):
        start = max((times[b][1] + AFTER for b in before[n]), default=0.0)
        issued = max(start, free.get(call.engine, 0.0), issued)
        new = {*call.targets} - alive
        alive |= new
        used += sum(storage.rows for storage in new)
        # The sequencer waits for the reader that ends first, then for the next, until there are
        # rows.
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
    """Issue commands in as few rows as the order of the operations takes, or in ``rows``.

    Each value of ``earlier`` gives an order whose loads come so many cycles before they have to
    begin.
    """
    fixed, most = list(calls), _most(calls)
    fits = max(_used(fixed)) <= rows
    if fits:
        for part in ROOMS:
            order = reordered(calls, lookahead, round(part * rows), most)
            if max(_used(order)) <= rows:
                fixed = order
                break
    seen: set[tuple[int, ...]] = set()
    for early in earlier:
        order = _late(_early(fixed, rows, most, early), rows) if fits else fixed
        numbers = tuple(map(id, order))
        if numbers in seen:  # mostly where there are no rows for any load to come earlier
            continue
        seen.add(numbers)
        yield Issue(tuple(order), tuple(_times(order, rows)), lookahead)

"""The order of issue where rows are short: loads come early as far as there are rows for them."""

from collections.abc import Iterator, Mapping, Sequence
from heapq import heappop, heappush

from trainwright.compiler.forms.calls import Call
from trainwright.compiler.forms.choices import AFTER
from trainwright.compiler.forms.layout import Storage
from trainwright.compiler.schedule.schedule import (
    ARRAYS,
    Group,
    Issue,
    dependencies,
    group_of,
    reordered,
)
from trainwright.program.fields import Engine

FAR = 8
"""Commands that a store is put behind, at most."""
MORE = 1
"""Slices of a tensor that there may be at once, more than in the order of the operations."""
ROOMS = (1.0, 0.85, 0.6)
"""Parts of the rows in which no array runs ahead of the other, tried in this order."""


def _used(calls: Sequence[Call]) -> tuple[list[int], dict[Storage, int]]:
    """Rows in use during each command, and the first command of each storage."""
    first: dict[Storage, int] = {}
    last: dict[Storage, int] = {}
    for n, call in enumerate(calls):
        for storage in call.storages:
            first.setdefault(storage, n)
            last[storage] = n
    change = [0] * (len(calls) + 1)
    for storage, n in first.items():
        change[n] += storage.rows
        change[last[storage] + 1] -= storage.rows
    used, total = [], 0
    for one in change[:-1]:
        total += one
        used.append(total)
    return used, first


def _most(calls: Sequence[Call]) -> dict[Group, int]:
    """For each group of slices how many there may be at once."""
    return {group: max(counts) + MORE for group, counts in _slices(calls).items()}


def _early(calls: list[Call], rows: int, most: Mapping[Group, int], early: float) -> list[Call]:
    """The commands with each load as far ahead as it takes, where there are rows for it."""
    before = {
        id(call): {id(calls[n]) for n in some}
        for call, some in zip(calls, dependencies(calls), strict=True)
    }
    used, first = _used(calls)
    new = {id(calls[n]): storage for storage, n in first.items()}
    slices = _slices(calls)
    order = list(calls)
    for place, call in enumerate(calls):
        if call.engine is not Engine.LOAD:
            continue
        # commands before it have not changed their places but among themselves
        storage = new.get(id(call))
        at, ahead, rows_of = place, 0.0, storage.rows if storage else 0
        while at and ahead < call.cycles + early:
            other = order[at - 1]
            if other.engine is Engine.LOAD or id(other) in before[id(call)]:
                break
            if used[at - 1] + rows_of > rows:
                break
            if storage and slices[group_of(storage)][at - 1] >= most[group_of(storage)]:
                break
            ahead += other.cycles if other.engine in ARRAYS else 0.0
            at -= 1
        if at < place:
            order.insert(at, order.pop(place))
            used.insert(at, used[at])
            used.pop(place + 1)
            for some in slices.values():
                some.insert(at, some[at])
                some.pop(place + 1)
            for n in range(at, place + 1):
                used[n] += rows_of
                if storage:
                    slices[group_of(storage)][n] += 1
    return order


def _slices(calls: Sequence[Call]) -> dict[Group, list[int]]:
    """Of each group how many slices there are during each command."""
    first: dict[Storage, int] = {}
    last: dict[Storage, int] = {}
    for n, call in enumerate(calls):
        for storage in call.storages:
            first.setdefault(storage, n)
            last[storage] = n
    found: dict[Group, list[int]] = {}
    for storage, start in first.items():
        counts = found.setdefault(group_of(storage), [0] * len(calls))
        for n in range(start, last[storage] + 1):
            counts[n] += 1
    return found


def _late(calls: list[Call], rows: int) -> list[Call]:
    """The commands with each store behind the next command of the array that makes what it stores:
    the sequencer does not wait for the array then. Only where there are rows for it.
    """
    found = list(calls)
    used, _ = _used(found)
    last = {storage: n for n, call in enumerate(found) for storage in call.storages}
    makers = {p.storage: call.engine for call in found for p in call.writes}
    read = {
        (id(found[b]), id(call))
        for call, some in zip(found, dependencies(found), strict=True)
        for b in some
        if found[b].engine is Engine.STORE
    }
    places = [n for n, call in enumerate(found) if call.engine is Engine.STORE]
    for place in reversed(places):
        call = found[place]
        (storage,) = {piece.storage for piece in call.reads}
        held = storage.rows if last[storage] == place else 0
        at = place
        while at + 1 < len(found) and at - place < FAR:
            other = found[at + 1]
            if other.engine is Engine.STORE or (id(call), id(other)) in read:
                break
            if used[at + 1] + held > rows:
                break
            at += 1
            if other.engine is makers[storage]:
                break
        if at > place and found[at].engine is makers[storage]:
            found.insert(at, found.pop(place))
            used.insert(at, used.pop(place))
            for n in range(place, at + 1):
                used[n] += held
    return found


def _timed(calls: Sequence[Call], rows: int) -> float:
    """Start and end of every command, each issued after the one before it, and where there are
    ``rows`` that nobody reads for what it writes; the last end.
    """
    before, free, issued = dependencies(calls), dict[Engine, float](), 0.0
    last = {storage: n for n, call in enumerate(calls) for storage in call.storages}
    alive: set[Storage] = set()
    leaving: list[tuple[float, int]] = []
    used = 0
    for n, call in enumerate(calls):
        start = max((calls[b].end + AFTER for b in before[n]), default=0.0)
        issued = max(start, free.get(call.engine, 0.0), issued)
        new = {piece.storage for piece in call.writes} - alive
        alive |= new
        used += sum(storage.rows for storage in new)
        while used > rows and leaving:
            end, less = heappop(leaving)
            issued, used = max(issued, end), used - less
        call.start = issued
        call.end = free[call.engine] = issued + call.cycles
        for storage in set(call.storages):
            if last[storage] == n:
                alive.discard(storage)
                heappush(leaving, (call.end, storage.rows))
    return max(call.end for call in calls)


def tight(
    calls: Sequence[Call], window: int, rows: int, earlier: Sequence[float]
) -> Iterator[Issue]:
    """Issue commands in as few rows as the order of the operations takes, or in ``rows``.

    Each order of issue has loads so many cycles before they have to begin as ``earlier`` says.
    """
    fixed, most = list(calls), _most(calls)
    fits = max(_used(fixed)[0]) <= rows
    if fits:
        for part in ROOMS:
            found = reordered(calls, window, round(part * rows), most)
            if max(_used(found)[0]) <= rows:
                fixed = found
                break
    seen: set[tuple[int, ...]] = set()
    for early in earlier:
        order = _late(_early(fixed, rows, most, early), rows) if fits else fixed
        numbers = tuple(map(id, order))
        if numbers in seen:  # mostly where there are rows for no load to come earlier
            continue
        seen.add(numbers)
        cycles = _timed(order, rows)
        times = tuple((call.start, call.end) for call in order)
        yield Issue(calls, tuple(order), times, cycles, window)

"""Order commands by their estimated start times.

List scheduling: each array takes its next command, or a later command that can start earlier or
does not read what the other array is reading. Loads are issued as late as possible without making
an array wait, because a loaded piece takes rows. Input: the commands of ``tile`` in the order of
the operations. Output: ``Issue``, the commands in a new order with times. ``tight`` uses the same
scheduler where rows are short.
"""

import sys
from bisect import bisect_right, insort
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

from trainwright.compiler.base.estimates import RESULT_LATENCY
from trainwright.compiler.base.progress import count
from trainwright.compiler.base.tuning import TUNING
from trainwright.compiler.forms.calls import Call, Clear, Move
from trainwright.compiler.forms.layout import Storage
from trainwright.program.engines import EVERY_ARRAY
from trainwright.program.fields import Engine

Times = tuple[float, float]
"""Start and end of a command, in cycles."""
SliceGroup = tuple[str, int]
"""Equally large slices of a tensor: the tensor's name, and the rows of a slice."""
Wanted = tuple[int, dict[SliceGroup, int]]
"""Further rows that a command needs, and further slices of each group with a limit."""


def slices_with(storage: Storage) -> SliceGroup:
    """Return the group of slices that a storage belongs to."""
    return storage.name, storage.rows


def dependencies(calls: Sequence[Call]) -> list[list[int]]:
    """Return for each command the earlier ones that must precede it: writers of what it reads."""
    writers: dict[Storage, list[int]] = {}
    stores: dict[str, list[int]] = {}
    earlier = []
    for n, call in enumerate(calls):
        before = [w for storage in call.sources for w in writers.get(storage, ())]
        if isinstance(call, Move):  # a spilled tensor is stored before it is loaded
            name = call.outer.view_of or call.outer.tensor
            if call.engine is Engine.STORE:
                stores.setdefault(name, []).append(n)
            else:
                before += stores.get(name, ())
        for storage in call.targets:
            # Only a clear must precede other writers of a piece: the others write different rows.
            mine = writers.setdefault(storage, [])
            before += [w for w in mine if isinstance(calls[w], Clear)]
            mine.append(n)
        earlier.append(sorted(set(before)))
    return earlier


def _first_after(releases: Sequence[tuple[float, int]], start: float) -> int:
    """Return the place of the first entry after a time in a sorted list of (time, rows)."""
    return bisect_right(releases, (start, sys.maxsize))


class _ListScheduler:
    """List scheduler of the arrays' commands.

    With ``exact`` rows are counted in time: a command can wait until a piece is no longer read.
    Without, rows are counted in the order of issue, which is faster and suffices where rows are
    plenty.
    """

    def __init__(
        self,
        calls: Sequence[Call],
        before: Sequence[Sequence[int]],
        rows: int,
        *,
        exact: bool = False,
        most_slices: Mapping[SliceGroup, int] | None = None,
        freed: bool = False,
    ):
        self.calls, self.before, self.rows, self.exact = calls, before, rows, exact
        self.most_slices = most_slices or {}
        """Most slices of each group that may be alive at once."""
        self.alive_slices = Counter[SliceGroup]()
        self.slice_ends: dict[SliceGroup, list[float]] = {}
        """Times at which slices of a group become free, sorted: no later command reads these
        slices."""
        self.is_array = [call.engine in EVERY_ARRAY for call in calls]
        self.reads = [frozenset(call.sources) for call in calls]
        self.writes = [frozenset(call.targets) for call in calls]
        self.end: dict[int, float] = {}
        self.missing = [set(earlier) for earlier in before]
        """Commands that each command waits for and that are not issued yet."""
        self.arrays_missing = [sum(self.is_array[b] for b in earlier) for earlier in self.missing]
        """Number of array commands in ``missing``, for each command."""
        self.ready = [0.0] * len(calls)
        """Last end of the issued commands that each command waits for."""
        self.later: list[list[int]] = [[] for _ in calls]
        for n, earlier in enumerate(self.missing):
            for b in earlier:
                self.later[b].append(n)
        self.free = dict.fromkeys(Engine, 0.0)
        self.running: dict[Engine, tuple[float, frozenset[Storage]]] = {}
        self.readers = Counter(storage for call in calls for storage in call.storages)
        """Commands left that touch each storage."""
        self.waited: set[int] = set()
        """Commands that had to wait for rows."""
        self.follows: dict[int, list[int]] = {}
        """Commands of other arrays that each command in ``waited`` has to follow."""
        self.last_issued: dict[Engine, int] = {}
        self.alive: set[Storage] = set()
        self.used = 0
        self.row_ends: list[tuple[float, int]] = []
        """Times at which rows become free, and how many, sorted: no later command reads these
        rows."""
        self.stores_after: dict[int, list[int]] = {}
        """Stores that may directly follow a command, by the command."""
        if exact or freed:
            for n, call in enumerate(calls):
                if call.engine is Engine.STORE and before[n]:
                    self.stores_after.setdefault(before[n][-1], []).append(n)

    def run(self, lookahead: int) -> list[int]:
        """Return the indices of the commands in a new order.

        An array takes one of its next ``lookahead`` commands.
        """
        count("issued", len(self.calls))
        queues = {e: [n for n, c in enumerate(self.calls) if c.engine is e] for e in EVERY_ARRAY}
        order: list[int] = []
        while any(queues.values()):
            best = min(
                (
                    candidate
                    for e, queue in queues.items()
                    for candidate in self._candidates(e, queue, lookahead)
                ),
                default=None,
            )
            if best is None:
                # No command has rows for its results. The order of the operations was tiled so that
                # it frees rows, so the earliest command that can start goes ahead.
                heads = (queue[0] for queue in queues.values() if queue)
                best = 0.0, min(n for n in heads if self._start(n) is not None)
            _, n = best
            call = self.calls[n]
            queues[call.engine].remove(n)
            if n in self.waited:
                # The command waited for rows. It must not be issued before another array's
                # command that freed them, although it reads nothing of that command.
                self.follows[n] = [b for e, b in self.last_issued.items() if e is not call.engine]
            self._issue(n, order)
            self.last_issued[call.engine] = n
        for n in range(len(self.calls)):
            self._issue(n, order)
        return order

    def _candidates(
        self, engine: Engine, queue: list[int], lookahead: int
    ) -> list[tuple[float, int]]:
        candidates = []
        elsewhere = [running for other, running in self.running.items() if other is not engine]
        for rank, n in enumerate(islice(queue, lookahead)):
            start = self._start(n)
            if start is None:
                continue
            wanted = self._wanted(n)
            if self.exact:
                start = self._room(wanted, start)
            if not self._fits(wanted):
                self.waited.add(n)
                continue
            penalised = start + rank * TUNING.issue.overtaking
            # Both arrays would read one bank at half speed: as bad as waiting for the other array,
            # but never worse than the command itself takes.
            for end, reading in elsewhere:
                if not self.reads[n].isdisjoint(reading):
                    penalised += min(max(end - start, 0.0), self.calls[n].cycles)
            candidates.append((penalised, n))
        return [min(candidates)] if candidates else []

    def _wanted(self, n: int) -> Wanted:
        """Return the further rows and slices that a command needs."""
        new = self.writes[n] | self._loaded(n) if self.exact else self.writes[n]
        rows, slices = 0, Counter[SliceGroup]()
        for storage in new - self.alive:
            rows += storage.rows
            group = slices_with(storage)
            if group in self.most_slices:
                slices[group] += 1
        return rows, slices

    def _fits(self, wanted: Wanted) -> bool:
        """Return whether there are rows for what a command writes."""
        rows, slices = wanted
        if self.used + rows > self.rows:
            return False
        return not self.exact or all(
            self.alive_slices[g] + more <= self.most_slices[g] for g, more in slices.items()
        )

    def _room(self, wanted: Wanted, start: float) -> float:
        """Return the time from which there are rows for what a command writes.

        Rows of pieces that are still read, but no longer needed by later commands, count as used
        until their last reader ends.
        """
        rows, slices = wanted
        used = self.used + rows
        releases = self.row_ends[_first_after(self.row_ends, start) :]
        used += sum(rows for _, rows in releases)
        for end, rows in releases:
            if used <= self.rows:
                break
            start, used = end, used - rows
        for group, more in slices.items():
            ends = self.slice_ends.get(group, [])
            releases = ends[bisect_right(ends, start) :]
            over = self.alive_slices[group] + more + len(releases) - self.most_slices[group]
            if over > 0 and releases:
                start = releases[min(over, len(releases)) - 1]
        return start

    def _loaded(self, n: int) -> set[Storage]:
        """Return the pieces that loads still have to fill before a command."""
        storages: set[Storage] = set()
        for b in self.missing[n]:
            if not self.is_array[b]:
                storages |= self.writes[b] | self._loaded(b)
        return storages

    def _start(self, n: int) -> float | None:
        """Return when a command can start; ``None`` while it waits for an array's command."""
        ready = self._results(n, 0.0)
        if ready is None:
            return None
        free = self.free[self.calls[n].engine]
        if not self.before[n]:
            return free
        return max(free, ready + RESULT_LATENCY)

    def _results(self, n: int, start: float) -> float | None:
        """Return when the results that a command waits for exist, ``start`` at the earliest."""
        if self.arrays_missing[n]:
            return None
        start = max(start, self.ready[n])
        # Each load or store is estimated as if no other load or store was under way: ``_loads``
        # decides their order later, and moves loads ahead far enough.
        for b in self.missing[n]:
            free = self.free[Engine.LOAD] if self.calls[b].engine is Engine.LOAD else 0.0
            result_end = self._results(b, free)
            if result_end is None:
                return None
            start = max(start, result_end + self.calls[b].cycles)
        return start

    def _issue(self, n: int, order: list[int]) -> None:
        """Issue a command after the loads and stores that it waits for."""
        if n in self.end:
            return
        for b in self.before[n]:
            self._issue(b, order)
        call, start = self.calls[n], self._start(n)
        assert start is not None
        if self.exact and call.engine in EVERY_ARRAY:
            start = self._room(self._wanted(n), start)
            del self.row_ends[: _first_after(self.row_ends, start)]
        self.end[n] = self.free[call.engine] = end = start + call.cycles
        for later in self.later[n]:
            self.missing[later].remove(n)
            self.arrays_missing[later] -= self.is_array[n]
            self.ready[later] = max(self.ready[later], end)
        if call.engine in EVERY_ARRAY:
            self.running[call.engine] = end, self.reads[n]
        order.append(n)
        for storage in call.storages:
            self._touch(storage, end)
        for store in self.stores_after.get(n, ()):
            if all(b in self.end for b in self.before[store]):
                self._issue(store, order)

    def _touch(self, storage: Storage, end: float) -> None:
        if storage not in self.alive:
            self.alive.add(storage)
            self.used += storage.rows
            self.alive_slices[slices_with(storage)] += 1
        self.readers[storage] -= 1
        if not self.readers[storage]:
            self.used -= storage.rows
            if self.exact:
                group = slices_with(storage)
                self.alive_slices[group] -= 1
                insort(self.slice_ends.setdefault(group, []), end)
                insort(self.row_ends, (end, storage.rows))


def _times(
    calls: Sequence[Call], before: Sequence[Sequence[int]], loads: Mapping[int, float]
) -> list[Times]:
    """Return the times of every command; ``loads`` says when loads start, else at once."""
    free: dict[Engine, float] = {}
    times: list[Times] = []
    for n, call in enumerate(calls):
        start = max((times[b][1] + RESULT_LATENCY for b in before[n]), default=0.0)
        if call.engine is Engine.LOAD:
            start = max(start, loads.get(n, 0.0))
        else:
            start = max(start, free.get(call.engine, 0.0))
            free[call.engine] = start + call.cycles
        times.append((start, start + call.cycles))
    return times


def _loads(
    calls: Sequence[Call], before: Sequence[Sequence[int]], times: Sequence[Times]
) -> dict[int, float]:
    """Return when each load starts: as late as possible without an array waiting, one at a time."""
    needed: dict[int, float] = {}
    for n, (start, _) in enumerate(times):
        for b in before[n]:
            needed[b] = min(needed.get(b, float("inf")), start)
    every = [n for n, call in enumerate(calls) if call.engine is Engine.LOAD]
    # The load that is needed first comes first: the memory port takes one load at a time.
    every.sort(key=lambda n: (needed.get(n, float("inf")), n))
    latest, following = {}, float("inf")
    # Backwards from the last need: a load ends when it is needed or when the next load has to
    # start.
    for n in reversed(every):
        end = min(needed.get(n, following), following)
        following = end - calls[n].cycles
        latest[n] = following - TUNING.issue.load_margin
    free = 0.0
    # Forwards: a load whose latest time is negative, or before its source is stored, starts later
    # and delays the loads behind.
    for n in every:
        stored = max((times[b][1] for b in before[n]), default=0.0)
        latest[n] = free = max(latest[n], free if not before[n] else 0.0, stored, 0.0)
        free += calls[n].cycles
    return latest


def reordered(
    calls: Sequence[Call], lookahead: int, rows: int, most: Mapping[SliceGroup, int]
) -> list[Call]:
    """Order commands as arrays take them, within ``rows`` counted in time.

    At most ``most`` slices of a group are alive at once; loads come just before they are needed.
    """
    lists = _ListScheduler(calls, dependencies(calls), rows, exact=True, most_slices=most)
    return [calls[n] for n in lists.run(lookahead)]


def _readers(calls: Sequence[Call]) -> dict[int, list[int]]:
    """Return for each store the commands of arrays that read the same rows.

    A store at the same time would make both slower: one bank serves one reader a cycle.
    """
    readers: dict[Storage, list[int]] = {}
    for n, call in enumerate(calls):
        for storage in call.sources if call.engine in EVERY_ARRAY else ():
            readers.setdefault(storage, []).append(n)
    return {
        n: readers.get(call.sources[0], [])
        for n, call in enumerate(calls)
        if call.engine is Engine.STORE
    }


@dataclass(frozen=True)
class Issue:
    """Commands in an order of issue, and the estimated times of each."""

    calls: tuple[Call, ...]
    times: tuple[Times, ...]
    lookahead: int
    """Next commands of an array among which the array chose."""

    @cached_property
    def cycles(self) -> float:
        """End of the last command."""
        return max(end for _, end in self.times)


def scheduled(source: Sequence[Call], lookahead: int, rows: int, *, freed: bool = False) -> Issue:
    """Return an order of issue of commands, and the cycles that it takes by the estimate.

    An array takes one of its next ``lookahead`` commands. While ``rows`` of the scratchpad are in
    use no array runs ahead of the other. With ``freed`` rows count as free once a piece is stored
    and not read again, and stores follow all other readers.
    """
    after = _readers(source) if freed else {}
    before = dependencies(source)
    for n, follows in after.items():
        before[n] = [*before[n], *follows]
    lists = _ListScheduler(source, before, rows, freed=freed)
    order = lists.run(lookahead)
    place = {n: at for at, n in enumerate(order)}
    calls = [source[n] for n in order]
    before = dependencies(calls)
    for n, follows in after.items():
        before[place[n]] += [place[b] for b in follows]
    for n, follows in lists.follows.items():
        before[place[n]] += [place[b] for b in follows]
    # Loads are timed by the commands that need them, and commands by their loads: two rounds settle
    # both.
    times = _times(calls, before, {})
    for _ in range(2):
        times = _times(calls, before, _loads(calls, before, times))
    result = _by_start(before, times)
    return Issue(tuple(calls[n] for n in result), tuple(times[n] for n in result), lookahead)


def _by_start(before: Sequence[Sequence[int]], times: Sequence[Times]) -> list[int]:
    """Return the commands in the order of their starts, each after the commands that it needs."""
    placed: set[int] = set()
    result: list[int] = []
    for n in sorted(range(len(times)), key=lambda n: (times[n][0], n)):
        # Starts alone are no valid order: a command of no cycles may tie with a command that it
        # needs. A stack puts missing commands first, without recursion over long chains.
        stack = [n]
        while stack:
            top = stack[-1]
            missing = [b for b in before[top] if b not in placed]
            if missing:
                stack += missing
                continue
            stack.pop()
            if top not in placed:
                placed.add(top)
                result.append(top)
    return result

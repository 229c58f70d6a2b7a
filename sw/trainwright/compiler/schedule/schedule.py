"""The order in which commands are issued, by when they start, as an estimate has it.

An array takes the next of its commands, or one of those behind it where that can start earlier or
does not read what the other array is reading. What is loaded comes as late as it can.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from trainwright.compiler.base.progress import count
from trainwright.compiler.forms.calls import Call, Clear, Move
from trainwright.compiler.forms.choices import AFTER
from trainwright.compiler.forms.layout import Storage
from trainwright.program.fields import Engine

EARLY = 200
"""Cycles by which a load is issued before its latest time."""
AHEAD = 50
"""Cycles that a command has to be better by for every command that it overtakes."""
ARRAYS = (Engine.PE1, Engine.PE2)


Group = tuple[str, int]
"""Slices of a tensor that are equally large: its name, and rows of each."""


def group_of(storage: Storage) -> Group:
    """The slices that one belongs to."""
    return storage.name, storage.rows


def dependencies(calls: Sequence[Call]) -> list[list[int]]:
    """For each command the earlier ones whose results it reads, or must not precede."""
    writers: dict[Storage, list[int]] = {}
    stores: dict[str, list[int]] = {}
    found = []
    for n, call in enumerate(calls):
        before = [w for piece in call.reads for w in writers.get(piece.storage, ())]
        if isinstance(call, Move):  # what is spilled is stored before it is loaded
            name = call.outer.of or call.outer.tensor
            if call.engine is Engine.STORE:
                stores.setdefault(name, []).append(n)
            else:
                before += stores.get(name, ())
        for piece in call.writes:
            there = writers.setdefault(piece.storage, [])
            before += [w for w in there if isinstance(calls[w], Clear)]
            there.append(n)
        found.append(sorted(set(before)))
    return found


class _List:
    """List scheduling: the order of each array's commands."""

    def __init__(
        self,
        calls: Sequence[Call],
        before: Sequence[Sequence[int]],
        rows: int,
        *,
        exact: bool = False,
        most: Mapping[Group, int] | None = None,
        freed: bool = False,
    ):
        self.calls, self.before, self.rows, self.exact = calls, before, rows, exact
        self.most = most or {}
        """Of slices of a tensor: how many there may be at once."""
        self.there: dict[Group, int] = {}
        self.gone: dict[Group, list[float]] = {}
        """When slices that nobody is going to read are free."""
        self.array = [call.engine in ARRAYS for call in calls]
        self.reads = [frozenset(piece.storage for piece in call.reads) for call in calls]
        self.writes = [frozenset(piece.storage for piece in call.writes) for call in calls]
        self.end: dict[int, float] = {}
        self.missing = [set(some) for some in before]
        """For each command the earlier ones it waits for that are not issued yet."""
        self.arrays = [sum(self.array[b] for b in some) for some in self.missing]
        """How many of those are commands of arrays."""
        self.ready = [0.0] * len(calls)
        """For each command the last end of the issued ones that it waits for."""
        self.after: list[list[int]] = [[] for _ in calls]
        for n, some in enumerate(self.missing):
            for b in some:
                self.after[b].append(n)
        self.free = dict.fromkeys(Engine, 0.0)
        self.running: dict[Engine, tuple[float, frozenset[Storage]]] = {}
        self.readers: dict[Storage, int] = {}
        for call in calls:
            for piece in (*call.reads, *call.writes):
                self.readers[piece.storage] = self.readers.get(piece.storage, 0) + 1
        self.held: set[int] = set()
        """Commands that could not start before there were rows for them."""
        self.extra: dict[int, list[int]] = {}
        """Of such commands: those of the other array that they have to follow."""
        self.latest: dict[Engine, int] = {}
        self.alive: set[Storage] = set()
        self.used = 0
        self.leaving: list[tuple[float, int]] = []
        """When rows are free that nobody is going to read, and how many."""
        self.stores: dict[int, list[int]] = {}
        """By a command: the stores that may follow it at once."""
        if exact or freed:
            for n, call in enumerate(calls):
                if call.engine is Engine.STORE and before[n]:
                    self.stores.setdefault(before[n][-1], []).append(n)

    def run(self, window: int) -> list[int]:
        """The places of the commands, in a new order."""
        count("issued", len(self.calls))
        queues = {e: [n for n, c in enumerate(self.calls) if c.engine is e] for e in ARRAYS}
        order: list[int] = []
        while any(queues.values()):
            found = min(
                (one for e, queue in queues.items() for one in self._candidates(e, queue, window)),
                default=None,
            )
            if found is None:  # the rows are used up: the order of the operations frees some
                heads = (queue[0] for queue in queues.values() if queue)
                found = 0.0, min(n for n in heads if self._start(n) is not None)
            _, n = found
            call = self.calls[n]
            queues[call.engine].remove(n)
            if n in self.held:
                self.extra[n] = [b for e, b in self.latest.items() if e is not call.engine]
            self._issue(n, order)
            self.latest[call.engine] = n
        for n in range(len(self.calls)):
            self._issue(n, order)
        return order

    def _candidates(self, engine: Engine, queue: list[int], window: int) -> list[tuple[float, int]]:
        found = []
        other = Engine.PE1 if engine is Engine.PE2 else Engine.PE2
        end, reading = self.running.get(other, (0.0, frozenset[Storage]()))
        for rank, n in enumerate(islice(queue, window)):
            start = self._start(n)
            if start is not None and self.exact:
                start = self._room(n, start)
            if start is None:
                continue
            if not self._fits(n):
                self.held.add(n)
                continue
            late = start + rank * AHEAD
            if not self.reads[n].isdisjoint(reading):
                late += min(max(end - start, 0.0), self.calls[n].cycles)
            found.append((late, n))
        return [min(found)] if found else []

    def _fits(self, n: int) -> bool:
        """Whether there are rows for what a command writes."""
        if not self.exact:
            new = sum(s.rows for s in self.writes[n] if s not in self.alive)
            return self.used + new <= self.rows
        wanted = (self.writes[n] | self._loaded(n)) - self.alive
        if self.used + sum(s.rows for s in wanted) > self.rows:
            return False
        return all(self.there.get(g, 0) + more <= self.most[g] for g, more in self._more(wanted))

    def _more(self, wanted: Iterable[Storage]) -> list[tuple[Group, int]]:
        """Slices that are wanted, by their groups."""
        counts = Counter(group_of(storage) for storage in wanted)
        return [(group, more) for group, more in counts.items() if group in self.most]

    def _room(self, n: int, start: float) -> float:
        """From when on there are rows for what a command writes, those left out that are read."""
        new = {p.storage for p in self.calls[n].writes} | self._loaded(n)
        used = self.used + sum(s.rows for s in new - self.alive)
        late = sorted((end, rows) for end, rows in self.leaving if end > start)
        used += sum(rows for _, rows in late)
        for end, rows in late:
            if used <= self.rows:
                break
            start, used = end, used - rows
        for group, more in self._more(new - self.alive):
            late = sorted(end for end in self.gone.get(group, ()) if end > start)
            over = self.there.get(group, 0) + more + len(late) - self.most[group]
            if over > 0 and late:
                start = late[min(over, len(late)) - 1]
        return start

    def _loaded(self, n: int) -> set[Storage]:
        """What has to be loaded before a command."""
        found: set[Storage] = set()
        for b in self.missing[n]:
            if not self.array[b]:
                found |= {p.storage for p in self.calls[b].writes} | self._loaded(b)
        return found

    def _start(self, n: int) -> float | None:
        """When a command can start; ``None`` where arrays have to do something else before."""
        ready = self._results(n, 0.0)
        if ready is None:
            return None
        free = self.free[self.calls[n].engine]
        if not self.before[n]:
            return free
        return max(free, ready + AFTER)

    def _results(self, n: int, start: float) -> float | None:
        """Return when all that a command waits for is there, ``start`` at the earliest."""
        if self.arrays[n]:
            return None
        start = max(start, self.ready[n])
        for b in self.missing[n]:  # loads and stores, as if no other was under way
            free = self.free[Engine.LOAD] if self.calls[b].engine is Engine.LOAD else 0.0
            there = self._results(b, free)
            if there is None:
                return None
            start = max(start, there + self.calls[b].cycles)
        return start

    def _issue(self, n: int, order: list[int]) -> None:
        if n in self.end:
            return
        for b in self.before[n]:
            self._issue(b, order)
        call, start = self.calls[n], self._start(n)
        assert start is not None
        if self.exact and call.engine in ARRAYS:
            start = self._room(n, start)
            self.leaving = [one for one in self.leaving if one[0] > start]
        call.start, call.end = start, start + call.cycles
        self.end[n] = self.free[call.engine] = call.end
        for later in self.after[n]:
            self.missing[later].remove(n)
            self.arrays[later] -= self.array[n]
            self.ready[later] = max(self.ready[later], call.end)
        if call.engine in ARRAYS:
            self.running[call.engine] = call.end, self.reads[n]
        order.append(n)
        for piece in (*call.reads, *call.writes):
            self._touch(piece.storage, call.end)
        for store in self.stores.get(n, ()):
            if all(b in self.end for b in self.before[store]):
                self._issue(store, order)

    def _touch(self, storage: Storage, end: float) -> None:
        if storage not in self.alive:
            self.alive.add(storage)
            self.used += storage.rows
            group = group_of(storage)
            self.there[group] = self.there.get(group, 0) + 1
        self.readers[storage] -= 1
        if not self.readers[storage]:
            self.used -= storage.rows
            if self.exact:
                group = group_of(storage)
                self.there[group] -= 1
                self.gone.setdefault(group, []).append(end)
                self.leaving.append((end, storage.rows))


def _times(calls: Sequence[Call], before: Sequence[Sequence[int]], loads: dict[int, float]) -> None:
    """Start and end of every command; ``loads`` says when loads start, else at once."""
    free: dict[Engine, float] = {}
    for n, call in enumerate(calls):
        start = max((calls[b].end + AFTER for b in before[n]), default=0.0)
        if call.engine is Engine.LOAD:
            call.start = max(start, loads.get(n, 0.0))
            call.end = call.start + call.cycles
            continue
        call.start = max(start, free.get(call.engine, 0.0))
        call.end = free[call.engine] = call.start + call.cycles


def _loads(calls: Sequence[Call], before: Sequence[Sequence[int]]) -> dict[int, float]:
    """When each load starts: as late as keeps nobody waiting, one after the other."""
    needed: dict[int, float] = {}
    for n, call in enumerate(calls):
        for b in before[n]:
            needed[b] = min(needed.get(b, float("inf")), call.start)
    every = [n for n, call in enumerate(calls) if call.engine is Engine.LOAD]
    every.sort(key=lambda n: (needed.get(n, float("inf")), n))
    latest, following = {}, float("inf")
    for n in reversed(every):
        end = min(needed.get(n, following), following)
        following = end - calls[n].cycles
        latest[n] = following - EARLY
    free = 0.0
    for n in every:
        there = max((calls[b].end for b in before[n]), default=0.0)
        latest[n] = free = max(latest[n], free if not before[n] else 0.0, there, 0.0)
        free += calls[n].cycles
    return latest


def reordered(
    calls: Sequence[Call], window: int, rows: int, most: Mapping[Group, int]
) -> list[Call]:
    """The commands in the order in which arrays take them, loads just before they are needed; with
    at most so many slices of a group at once.
    """
    lists = _List(calls, dependencies(calls), rows, exact=True, most=most)
    return [calls[n] for n in lists.run(window)]


def _readers(calls: Sequence[Call]) -> dict[int, list[int]]:
    """For each store the commands of arrays that read the same rows: reading them at the same time
    would make both slower.
    """
    readers: dict[Storage, list[int]] = {}
    for n, call in enumerate(calls):
        for piece in call.reads if call.engine in ARRAYS else ():
            readers.setdefault(piece.storage, []).append(n)
    return {
        n: readers.get(call.reads[0].storage, [])
        for n, call in enumerate(calls)
        if call.engine is Engine.STORE
    }


@dataclass(frozen=True)
class Issue:
    """Commands in an order of issue, when each starts and ends, and when all are done."""

    source: Sequence[Call]
    """The commands in the order of the operations."""
    calls: tuple[Call, ...]
    times: tuple[tuple[float, float], ...]
    cycles: float
    window: int
    """Commands that an array looked at."""

    def timed(self) -> tuple[Call, ...]:
        """The commands with their times: they may have those of another order of issue."""
        for call, (start, end) in zip(self.calls, self.times, strict=True):
            call.start, call.end = start, end
        return self.calls


def scheduled(source: Sequence[Call], window: int, rows: int, *, freed: bool = False) -> Issue:
    """The order of issue of commands, and the cycles that they take by the estimate.

    An array looks at ``window`` commands. Where ``rows`` of the scratchpad are in use no array runs
    ahead of the other; with ``freed`` those are not that are stored and not read again, and stores
    follow all other readers.
    """
    after = _readers(source) if freed else {}
    before = dependencies(source)
    for n, follows in after.items():
        before[n] = [*before[n], *follows]
    lists = _List(source, before, rows, freed=freed)
    order = lists.run(window)
    place = {n: at for at, n in enumerate(order)}
    calls = [source[n] for n in order]
    before = dependencies(calls)
    for n, follows in after.items():
        before[place[n]] += [place[b] for b in follows]
    for n, follows in lists.extra.items():
        before[place[n]] += [place[b] for b in follows]
    _times(calls, before, {})
    for _ in range(2):
        _times(calls, before, _loads(calls, before))
    order = sorted(range(len(calls)), key=lambda n: (calls[n].start, n))
    placed: set[int] = set()
    result: list[int] = []
    for n in order:  # a command of no cycles may tie with what it needs
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
    ordered = tuple(calls[n] for n in result)
    times = tuple((call.start, call.end) for call in ordered)
    return Issue(source, ordered, times, max(call.end for call in calls), window)

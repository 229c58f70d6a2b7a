"""Where every piece lies in the scratchpad: apart from what is read with it."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from trainwright.compiler.errors import DoesNotFitError
from trainwright.compiler.limits import SCRATCHPAD
from trainwright.lowering.calls import Accumulate, Call, Contract, Copy, Elementwise, Transpose
from trainwright.lowering.layout import Storage
from trainwright.parameters import AcceleratorParameters
from trainwright.program.fields import Engine

SOON = 12
"""Commands within which rows that are used again make somebody wait."""
SWEEPS = 2
"""Times that every storage is moved to where it costs least."""


@dataclass(eq=False)
class _Life:
    storage: Storage
    first: int
    last: int


def _rates(call: Call, p: AcceleratorParameters) -> list[tuple[Storage, float]]:
    """Rows a cycle that a command reads of each storage."""
    if (
        not isinstance(call, Accumulate | Contract | Copy | Transpose | Elementwise)
        or not call.reads
    ):
        return []
    x, g = call.reads
    if call.engine is Engine.PE1:
        if isinstance(call, Transpose):
            return [(x.storage, 1.0), (g.storage, p.pe1_rows / p.lanes)]
        return [(x.storage, p.pe1_rows / p.lanes), (g.storage, 1.0)]
    return [(x.storage, 1.0), (g.storage, 1.0)]


def lifetimes(calls: Sequence[Call]) -> dict[Storage, _Life]:
    """First and last command of every storage, in the order of issue."""
    found: dict[Storage, _Life] = {}
    for n, call in enumerate(calls):
        for piece in (*call.writes, *call.reads):
            life = found.setdefault(piece.storage, _Life(piece.storage, n, n))
            life.last = n
    return found


def conflicts(
    calls: Sequence[Call], p: AcceleratorParameters
) -> dict[tuple[Storage, Storage], float]:
    """Cycles in which two storages are both read, times the rows a cycle of the slower.

    Of a storage with itself: where both arrays read it.
    """
    found: dict[tuple[Storage, Storage], float] = {}

    def add(a: Storage, b: Storage, cost: float) -> None:
        key = (a, b) if id(a) <= id(b) else (b, a)
        found[key] = found.get(key, 0.0) + cost

    busy = [(call, _rates(call, p)) for call in calls if call.engine in (Engine.PE1, Engine.PE2)]
    for n, (call, rates) in enumerate(busy):
        for i, (a, rate) in enumerate(rates):
            for b, other in rates[i + 1 :]:
                add(a, b, call.cycles * min(rate, other))
        for later, others in busy[n + 1 :]:
            if later.start >= call.end + 1000:
                break
            both = min(call.end, later.end) - max(call.start, later.start)
            if both > 0 and later.engine is not call.engine:
                for a, rate in rates:
                    for b, other in others:
                        add(a, b, both * min(rate, other))
    return found


def waits(
    calls: Sequence[Call], lives: dict[Storage, _Life]
) -> dict[Storage, list[tuple[Storage, float]]]:
    """For each storage those whose rows it should not take, and what somebody would wait."""
    reader: dict[Storage, int] = {}
    writer: dict[Storage, int] = {}
    counts: list[dict[Engine, int]] = []
    issued: dict[Engine, int] = {}
    for n, call in enumerate(calls):
        counts.append(dict(issued))
        issued[call.engine] = issued.get(call.engine, 0) + 1
        for piece in call.writes:
            writer.setdefault(piece.storage, n)
        for piece in (*call.reads, *call.writes):
            reader[piece.storage] = n
    found: dict[Storage, list[tuple[Storage, float]]] = {storage: [] for storage in lives}
    order = sorted(lives, key=lambda storage: lives[storage].first)
    for old in order:
        last = calls[reader[old]]
        for new in order:
            begins = writer.get(new, lives[new].first)
            if not lives[old].last < begins <= lives[old].last + SOON:
                continue
            if calls[begins].engine is last.engine:
                continue
            since = counts[begins].get(last.engine, 0) - counts[reader[old]].get(last.engine, 0)
            cost = last.cycles * {1: 1.0, 2: 0.5}.get(since, 0.0)
            if cost:
                found[old].append((new, cost))
                found[new].append((old, cost))
    return found


class Placement:
    """Places storages one after the other, then moves each to where it costs least."""

    def __init__(self, calls: Sequence[Call], p: AcceleratorParameters):
        self.p = p
        self.lives = lifetimes(calls)
        self.near: dict[Storage, list[tuple[Storage, float]]] = {}
        self.shared = 0.0
        """Cycles lost where both arrays read one piece."""
        for (a, b), cost in conflicts(calls, p).items():
            if a is b:
                self.shared += cost
                continue
            self.near.setdefault(a, []).append((b, cost))
            self.near.setdefault(b, []).append((a, cost))
        self.waits = waits(calls, self.lives)
        self.random = random.Random(1)

    def run(self, order: str, loose: int, sweeps: int = SWEEPS) -> None:
        """Give every storage its address, those of at most ``loose`` rows by what they cost, the
        others the lowest. Raises ``DoesNotFitError``."""
        lives = list(self.lives.values())
        for life in lives:
            life.storage.base = -1
        lives.sort(key=lambda one: (-self._weight(one, order), one.first))
        for life in lives:
            self._place(life, tight=life.storage.rows > loose)
        for _ in range(sweeps):
            for life in lives:
                self._place(life, tight=False)

    def _weight(self, life: _Life, order: str) -> float:
        if order.isdigit():
            return self.random.random() * life.storage.rows
        if order == "cost":
            return sum(cost for _, cost in self.near.get(life.storage, ()))
        return life.storage.rows * (life.last - life.first + 1 if order == "area" else 1)

    @property
    def cost(self) -> float:
        """Cycles lost, by the estimate."""
        total = self.shared
        for storage in self.lives:
            total += self._cost(storage.base, storage.rows, self.near.get(storage, [])) / 2
            for other, cost in self.waits[storage]:
                low, high = storage.base, storage.base + storage.rows
                if other.base < high and low < other.base + other.rows:
                    total += cost / 2
        return total

    @property
    def most(self) -> int:
        """Most rows alive at once."""
        events: dict[int, int] = {}
        for life in self.lives.values():
            events[life.first] = events.get(life.first, 0) + life.storage.rows
            events[life.last + 1] = events.get(life.last + 1, 0) - life.storage.rows
        total = most = 0
        for n in sorted(events):
            total += events[n]
            most = max(most, total)
        return most

    @property
    def peak(self) -> int:
        """The highest row in use."""
        return max((s.base + s.rows for s in self.lives), default=0)

    def _gaps(self, life: _Life) -> list[tuple[int, int]]:
        rows = life.storage.rows
        others = [
            other.storage
            for other in self.lives.values()
            if other.storage.base >= 0
            and other is not life
            and other.first <= life.last
            and life.first <= other.last
        ]
        taken = sorted((other.base, other.base + other.rows) for other in others)
        gaps, start = [], 0
        for lo, hi in [*taken, (self.p.scratchpad_rows, self.p.scratchpad_rows)]:
            if lo - start >= rows:
                gaps.append((start, lo))
            start = max(start, hi)
        if not gaps:
            self._refuse([life.storage, *others])
        return gaps

    def _place(self, life: _Life, *, tight: bool) -> None:
        rows, p = life.storage.rows, self.p
        gaps = self._gaps(life)
        if tight:
            life.storage.base = gaps[0][0]
            return
        candidates = {life.storage.base} if life.storage.base >= 0 else set()
        for lo, hi in gaps:
            candidates |= {lo, hi - rows}
            for bank in range(p.scratchpad_banks):
                low, high = bank * p.bank_rows, (bank + 1) * p.bank_rows
                for base in (max(lo, low), min(hi, high) - rows):
                    if lo <= base and base + rows <= hi:
                        candidates.add(base)
        near = [(s, c) for s, c in self.near.get(life.storage, ()) if s.base >= 0]
        waits = [(s, c) for s, c in self.waits[life.storage] if s.base >= 0]
        life.storage.base = min(
            candidates,
            key=lambda base: (
                self._cost(base, rows, near)
                + sum(c for s, c in waits if s.base < base + rows and base < s.base + s.rows),
                self._waste(base, gaps, rows),
            ),
        )

    def _cost(self, base: int, rows: int, near: list[tuple[Storage, float]]) -> float:
        total, size = 0.0, self.p.bank_rows
        for other, cost in near:
            for bank in range(base // size, (base + rows - 1) // size + 1):
                lo, hi = bank * size, (bank + 1) * size
                mine = (min(base + rows, hi) - max(base, lo)) / rows
                theirs = min(other.base + other.rows, hi) - max(other.base, lo)
                if theirs > 0:
                    total += cost * mine * theirs / other.rows
        return total

    @staticmethod
    def _waste(base: int, gaps: list[tuple[int, int]], rows: int) -> tuple[int, int]:
        """The smaller of what is left on both sides of a gap; then the address."""
        for lo, hi in gaps:
            if lo <= base and base + rows <= hi:
                return min(base - lo, hi - base - rows), base
        raise AssertionError

    def _refuse(self, storages: Sequence[Storage]) -> None:
        """Name the largest of those that are alive at once."""
        worst = max(storages, key=lambda storage: (storage.rows, storage.name))
        used = sum(storage.rows for storage in storages) - worst.rows
        raise DoesNotFitError(
            f"{worst.name} needs {worst.rows} {SCRATCHPAD.what}, there are "
            f"{self.p.scratchpad_rows}, {used} of them needed for what is used with it",
            SCRATCHPAD.advice(max(used + worst.rows, self.p.scratchpad_rows + 1), self.p),
        )


def lost(calls: Sequence[Call], p: AcceleratorParameters) -> float:
    """Cycles lost with the pieces placed in a hurry, by an estimate; infinite: they do not fit."""
    placement = Placement(calls, p)
    try:
        placement.run("area", p.scratchpad_rows, sweeps=0)
    except DoesNotFitError:
        return float("inf")
    return placement.cost


def place(calls: Sequence[Call], p: AcceleratorParameters, *, tries: int = 0) -> int:
    """Give every storage of the commands its rows; returns the rows used.

    ``tries`` orders at random are tried beside the three usual ones. Raises ``DoesNotFitError``
    naming the tensor.
    """
    placement = Placement(calls, p)
    problem: DoesNotFitError | None = None
    found: list[tuple[float, dict[Storage, int]]] = []
    for loose in (p.scratchpad_rows, p.bank_rows // 8, 0):
        for order in ("size", "area", "cost", *map(str, range(tries))):
            try:
                placement.run(order, loose)
            except DoesNotFitError as error:
                problem = error
                if placement.most > p.scratchpad_rows:
                    raise
                continue
            found.append((placement.cost, {s: s.base for s in placement.lives}))
        if found:  # the tighter ones cost more
            break
    if not found:
        assert problem
        raise problem
    for storage, base in min(found, key=lambda pair: pair[0])[1].items():
        storage.base = base
    return placement.peak

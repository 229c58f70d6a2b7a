"""Where every piece lies in the scratchpad: apart from what is read with it."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trainwright.compiler.base.errors import DoesNotFitError
from trainwright.compiler.base.limits import SCRATCHPAD
from trainwright.compiler.base.progress import count
from trainwright.compiler.forms.calls import (
    Accumulate,
    Call,
    Contract,
    Copy,
    Elementwise,
    Move,
    Transpose,
)
from trainwright.compiler.forms.layout import Storage
from trainwright.parameters import AcceleratorParameters
from trainwright.program.fields import Engine

SOON = 12
"""Commands within which rows that are used again make somebody wait."""
STORED = 0.8
"""Beats a cycle of a store."""
SWEEPS = 2
"""Times that every storage is moved to where it costs least."""


@dataclass(eq=False)
class Life:
    """The first and the last command that touch a storage."""

    storage: Storage
    first: int
    last: int


def _rates(call: Call, p: AcceleratorParameters) -> list[tuple[Storage, float]]:
    """Rows a cycle that a command reads of each storage."""
    if isinstance(call, Move) and call.reads:
        return [(call.reads[0].storage, STORED / call.outer.element_bytes)]
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


def lifetimes(calls: Sequence[Call]) -> dict[Storage, Life]:
    """First and last command of every storage, in the order of issue."""
    found: dict[Storage, Life] = {}
    for n, call in enumerate(calls):
        for piece in (*call.writes, *call.reads):
            life = found.setdefault(piece.storage, Life(piece.storage, n, n))
            life.last = n
    return found


def conflicts(
    calls: Sequence[Call], p: AcceleratorParameters, *, stores: bool = False
) -> dict[tuple[Storage, Storage], float]:
    """Cycles in which two storages are both read, by arrays or, with ``stores``, also by stores,
    times the rows a cycle of the slower.

    Of a storage with itself: where both arrays read it.
    """
    found: dict[tuple[Storage, Storage], float] = {}

    def add(a: Storage, b: Storage, cost: float) -> None:
        key = (a, b) if id(a) <= id(b) else (b, a)
        found[key] = found.get(key, 0.0) + cost

    engines = (Engine.PE1, Engine.PE2, *([Engine.STORE] if stores else []))
    busy = [(call, _rates(call, p)) for call in calls if call.engine in engines]
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
    calls: Sequence[Call], lives: dict[Storage, Life]
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
    begun: dict[int, list[Storage]] = {}
    for storage, life in lives.items():
        begun.setdefault(writer.get(storage, life.first), []).append(storage)
    found: dict[Storage, list[tuple[Storage, float]]] = {storage: [] for storage in lives}
    for old, life in lives.items():
        last = calls[reader[old]]
        for begins in range(life.last + 1, min(life.last + SOON + 1, len(calls))):
            if begins not in begun or calls[begins].engine is last.engine:
                continue
            since = counts[begins].get(last.engine, 0) - counts[reader[old]].get(last.engine, 0)
            cost = last.cycles * {1: 1.0, 2: 0.5}.get(since, 0.0)
            if cost:
                for new in begun[begins]:
                    found[old].append((new, cost))
                    found[new].append((old, cost))
    return found


class Placement:
    """Places storages one after the other, then moves each to where it costs least."""

    def __init__(self, calls: Sequence[Call], p: AcceleratorParameters, *, stores: bool = False):
        self.p, self.size, self.banks = p, p.bank_rows, range(p.scratchpad_banks)
        self.lives = lifetimes(calls)
        self.near: dict[Storage, list[tuple[Storage, float]]] = {s: [] for s in self.lives}
        self.shared = 0.0
        """Cycles lost where both arrays read one piece."""
        for (a, b), cost in conflicts(calls, p, stores=stores).items():
            if a is b:
                self.shared += cost
                continue
            self.near[a].append((b, cost))
            self.near[b].append((a, cost))
        self.waits = waits(calls, self.lives)
        self.meets = self._meets()
        self.parts: dict[Storage, list[tuple[int, float]]] = {}
        """Of what is placed: banks, and the part of its rows in each."""
        self.random = random.Random(1)

    def _meets(self) -> dict[Storage, list[Storage]]:
        """For each storage those that are alive with it."""
        found: dict[Storage, list[Storage]] = {storage: [] for storage in self.lives}
        alive: list[Life] = []
        for life in sorted(self.lives.values(), key=lambda one: one.first):
            alive = [other for other in alive if other.last >= life.first]
            for other in alive:
                found[other.storage].append(life.storage)
                found[life.storage].append(other.storage)
            alive.append(life)
        return found

    def run(self, order: str, loose: int, sweeps: int = SWEEPS, *, first: int = 0) -> None:
        """Give every storage its address, those of at most ``loose`` rows by what they cost, the
        others the lowest, but for the first of all, which lies at ``first``. Raises
        ``DoesNotFitError``.
        """
        lives = list(self.lives.values())
        count("placed", len(lives))
        for life in lives:
            life.storage.base = -1
        self.parts = {}
        lives.sort(key=lambda one: (-self._weight(one, order), one.first))
        if first:
            self._put(lives[0].storage, min(first, self.p.scratchpad_rows - lives[0].storage.rows))
        for life in lives[bool(first) :]:
            self._place(life.storage, tight=life.storage.rows > loose)
        for _ in range(sweeps):
            for life in lives:
                if self._costs(life.storage):
                    self._place(life.storage, tight=False)

    def _costs(self, storage: Storage) -> bool:
        """Whether a storage costs anything where it lies."""
        low, high, mine = storage.base, storage.base + storage.rows, self.parts[storage]
        banks = self._banks(storage)
        if any(banks[bank] for bank, _ in mine):
            return True
        return any(o.base < high and low < o.base + o.rows for o, _ in self.waits[storage])

    def _weight(self, life: Life, order: str) -> float:
        if order.isdigit():
            return self.random.random() * life.storage.rows
        if order == "cost":
            return sum(cost for _, cost in self.near[life.storage])
        return life.storage.rows * (life.last - life.first + 1 if order == "area" else 1)

    @property
    def cost(self) -> float:
        """Cycles lost, by the estimate."""
        total = self.shared
        for storage in self.lives:
            banks, low = self._banks(storage), storage.base
            mine = self.in_banks(low, storage.rows)
            total += sum(banks[bank] * part for bank, part in mine) / 2
            for other, cost in self.waits[storage]:
                if other.base < low + storage.rows and low < other.base + other.rows:
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

    def _gaps(self, storage: Storage) -> list[tuple[int, int]]:
        others = [other for other in self.meets[storage] if other.base >= 0]
        gaps, start, rows = [], 0, storage.rows
        for lo, hi in sorted([(other.base, other.base + other.rows) for other in others]):
            if lo - start >= rows:
                gaps.append((start, lo))
            if hi > start:
                start = hi
        if self.p.scratchpad_rows - start >= rows:
            gaps.append((start, self.p.scratchpad_rows))
        if not gaps:
            self._refuse([storage, *others])
        return gaps

    def _place(self, storage: Storage, *, tight: bool) -> None:
        rows, size = storage.rows, self.size
        gaps = self._gaps(storage)
        if tight:
            self._put(storage, gaps[0][0])
            return
        candidates: dict[int, int] = {}
        """Addresses, and the smaller of what is left on both sides of a gap."""
        for lo, hi in gaps:
            top = hi - rows
            candidates[lo] = candidates[top] = 0
            for edge in range(lo + size - lo % size, hi + 1, size):
                for base in (edge, edge - rows):
                    if lo <= base <= top:
                        candidates[base] = min(base - lo, top - base)
        now = storage.base
        if now >= 0 and now not in candidates:
            candidates[now] = min(
                min(now - lo, hi - now - rows) for lo, hi in gaps if lo <= now <= hi - rows
            )
        banks = self._banks(storage)
        waits = [(s.base, s.base + s.rows, c) for s, c in self.waits[storage] if s.base >= 0]
        best = (float("inf"), 0, 0)
        for base, waste in candidates.items():
            bank, stop = base // size, base + rows
            if stop <= (bank + 1) * size:
                cost = banks[bank]
                if cost > best[0]:  # what others wait for only adds to it
                    continue
            else:
                cost = sum(banks[bank] * part for bank, part in self.in_banks(base, rows))
            for lo, hi, wait in waits:
                if lo < stop and base < hi:
                    cost += wait
            if cost <= best[0]:
                best = min(best, (cost, waste, base))
        self._put(storage, best[2])

    def _put(self, storage: Storage, base: int) -> None:
        storage.base = base
        self.parts[storage] = self.in_banks(base, storage.rows)

    def in_banks(self, base: int, rows: int) -> list[tuple[int, float]]:
        """The banks in which some rows lie, and the part of them in each."""
        size = self.size
        first, last = base // size, (base + rows - 1) // size
        if first == last:
            return [(first, 1.0)]
        return [
            (bank, (min(base + rows, (bank + 1) * size) - max(base, bank * size)) / rows)
            for bank in range(first, last + 1)
        ]

    def _banks(self, storage: Storage) -> list[float]:
        """For each bank the cycles lost if all of a storage was there."""
        total, parts = [0.0] * len(self.banks), self.parts
        for other, cost in self.near[storage]:
            for bank, part in parts.get(other, ()):
                total[bank] += cost * part
        return total

    def _refuse(self, storages: Sequence[Storage]) -> None:
        """Name the largest of those that are alive at once."""
        worst = max(storages, key=lambda storage: (storage.rows, storage.name))
        used = sum(storage.rows for storage in storages) - worst.rows
        raise DoesNotFitError(
            f"{worst.name} needs {worst.rows} {SCRATCHPAD.what}, there are "
            f"{self.p.scratchpad_rows}, {used} of them needed for what is used with it",
            SCRATCHPAD.advice(max(used + worst.rows, self.p.scratchpad_rows + 1), self.p),
        )


def lost(calls: Sequence[Call], p: AcceleratorParameters, *, stores: bool = False) -> float:
    """Cycles lost with the pieces placed once, by an estimate. Raises ``DoesNotFitError``."""
    placement = Placement(calls, p, stores=stores)
    problem: DoesNotFitError | None = None
    for loose in (p.scratchpad_rows, 0):
        try:
            placement.run("area", loose)
        except DoesNotFitError as error:
            problem = error
            continue
        return placement.cost
    assert problem
    raise problem


def alternatives(calls: Sequence[Call], p: AcceleratorParameters) -> Iterator[int]:
    """Give every storage its rows in one way after the other; gives the rows used.

    Also with the largest across two banks, as others then have rows of all banks.
    """
    placement = Placement(calls, p)
    for first in (0, p.bank_rows // 2):
        for loose in (p.scratchpad_rows, p.bank_rows // 8, 0):
            for order in ("size", "area", "cost"):
                try:
                    placement.run(order, loose, first=first)
                except DoesNotFitError:
                    continue
                yield placement.peak


def place(
    calls: Sequence[Call], p: AcceleratorParameters, *, tries: int = 0, stores: bool = False
) -> int:
    """Give every storage of the commands its rows; returns the rows used.

    ``tries`` orders at random are tried beside the three usual ones; ``stores`` says whether what
    stores read is apart from what arrays read. Raises ``DoesNotFitError``
    naming the tensor.
    """
    placement = Placement(calls, p, stores=stores)
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

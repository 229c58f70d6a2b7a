"""Place every piece in the scratchpad, apart from the pieces that are read with it.

In: commands in an order of issue with estimated times. Out: ``Storage.base`` of every piece. Two
reads of one bank in one cycle take two cycles, so a piece has a cost in every bank: the cycles in
which a piece in that bank is read at the same time. Pieces are placed greedily in several orders,
then moved where they cost least. Rows that were read a moment ago cost, too: a load into them makes
the sequencer wait for the reader. ``step.lower`` times the result with the cycle model.
"""

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
from trainwright.program.engines import ARRAYS
from trainwright.program.fields import Engine

SOON = 12
"""Commands within which rows that are used again make an engine wait."""
STORED = 0.8
"""Beats that a store sends in a cycle, on average."""
SWEEPS = 2
"""Times that every storage is moved to where it costs least."""


@dataclass(eq=False)
class Lifetime:
    """First and last command that touch a storage."""

    storage: Storage
    first: int
    last: int


def _rates(call: Call, p: AcceleratorParameters) -> list[tuple[Storage, float]]:
    """Return the storages that a command reads, each with the rows read in a cycle."""
    if isinstance(call, Move) and call.reads:
        return [(call.reads[0].storage, STORED / call.outer.element_bytes)]
    if (
        not isinstance(call, Accumulate | Contract | Copy | Transpose | Elementwise)
        or not call.reads
    ):
        return []
    # A transpose is a product of the identity, its first operand, and of what is transposed.
    operands = reversed(call.reads) if isinstance(call, Transpose) else call.reads
    rates = ARRAYS[call.engine].rates(p)
    return [(piece.storage, rate) for piece, rate in zip(operands, rates, strict=True)]


def lifetimes(calls: Sequence[Call]) -> dict[Storage, Lifetime]:
    """Return the first and last command of every storage, in the order of issue."""
    lives: dict[Storage, Lifetime] = {}
    for n, call in enumerate(calls):
        for piece in (*call.writes, *call.reads):
            life = lives.setdefault(piece.storage, Lifetime(piece.storage, n, n))
            life.last = n
    return lives


def conflicts(
    calls: Sequence[Call], p: AcceleratorParameters, *, stores: bool = False
) -> dict[tuple[Storage, Storage], float]:
    """Return the cycles lost if two storages lie in one bank, by pair.

    A pair counts while both are read, by arrays or, with ``stores``, also by stores: the overlap in
    cycles times the rows a cycle of the slower one. The pair of a storage with itself is the loss
    that no placement avoids, where both arrays read it.
    """
    cycles: dict[tuple[Storage, Storage], float] = {}

    def add(a: Storage, b: Storage, cost: float) -> None:
        # Costs are symmetric, so both orders of a pair share one entry.
        key = (a, b) if id(a) <= id(b) else (b, a)
        cycles[key] = cycles.get(key, 0.0) + cost

    engines = (Engine.PE1, Engine.PE2, *([Engine.STORE] if stores else []))
    busy = [(call, _rates(call, p)) for call in calls if call.engine in engines]
    for n, (call, rates) in enumerate(busy):
        for i, (a, rate) in enumerate(rates):
            for b, other in rates[i + 1 :]:
                add(a, b, call.cycles * min(rate, other))
        for later, later_rates in busy[n + 1 :]:
            # Commands are nearly in the order of their starts; the margin covers those that are
            # not.
            if later.start >= call.end + 1000:
                break
            both = min(call.end, later.end) - max(call.start, later.start)
            if both > 0 and later.engine is not call.engine:
                for a, rate in rates:
                    for b, other in later_rates:
                        add(a, b, both * min(rate, other))
    return cycles


def waits(
    calls: Sequence[Call], lives: dict[Storage, Lifetime]
) -> dict[Storage, list[tuple[Storage, float]]]:
    """Return for each storage the ones whose rows it should not take, with the cycles of waiting.

    A command that writes rows is not issued before the last reader of their former piece is done.
    The sequencer waits then, and all engines with it.
    """
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
    costs: dict[Storage, list[tuple[Storage, float]]] = {storage: [] for storage in lives}
    for old, life in lives.items():
        last = calls[reader[old]]
        for begins in range(life.last + 1, min(life.last + SOON + 1, len(calls))):
            if begins not in begun or calls[begins].engine is last.engine:
                continue
            # An engine holds two commands. If the reader is the engine's last command issued so
            # far, the sequencer waits for all of it; with one more behind it, for half of it on
            # average; with two it is done already.
            since = counts[begins].get(last.engine, 0) - counts[reader[old]].get(last.engine, 0)
            cost = last.cycles * {1: 1.0, 2: 0.5}.get(since, 0.0)
            if cost:
                for new in begun[begins]:
                    costs[old].append((new, cost))
                    costs[new].append((old, cost))
    return costs


class Placement:
    """Greedy placement of storages, improved by moving each to where it costs least."""

    def __init__(self, calls: Sequence[Call], p: AcceleratorParameters, *, stores: bool = False):
        self.p, self.size, self.banks = p, p.bank_rows, range(p.scratchpad_banks)
        self.lives = lifetimes(calls)
        self.near: dict[Storage, list[tuple[Storage, float]]] = {s: [] for s in self.lives}
        self.shared = 0.0
        """Cycles lost where both arrays read one piece, whatever its address."""
        for (a, b), cost in conflicts(calls, p, stores=stores).items():
            if a is b:
                self.shared += cost
                continue
            self.near[a].append((b, cost))
            self.near[b].append((a, cost))
        self.waits = waits(calls, self.lives)
        self.meets = self._meets()
        self.parts: dict[Storage, list[tuple[int, float]]] = {}
        """Banks of each placed storage, with the share of its rows in each."""
        # Seeded: a program depends on network, batch and accelerator alone.
        self.random = random.Random(1)

    def _meets(self) -> dict[Storage, list[Storage]]:
        """Return for each storage the ones that are alive at the same time."""
        neighbours: dict[Storage, list[Storage]] = {storage: [] for storage in self.lives}
        alive: list[Lifetime] = []
        for life in sorted(self.lives.values(), key=lambda entry: entry.first):
            alive = [other for other in alive if other.last >= life.first]
            for other in alive:
                neighbours[other.storage].append(life.storage)
                neighbours[life.storage].append(other.storage)
            alive.append(life)
        return neighbours

    def run(self, order: str, loose: int, sweeps: int = SWEEPS, *, first: int = 0) -> None:
        """Give every storage its address. Raises ``DoesNotFitError``.

        Storages of at most ``loose`` rows go where they cost least, larger ones to the lowest
        address, which keeps the free rows together. The first storage of all goes to ``first``.
        """
        lives = list(self.lives.values())
        count("placed", len(lives))
        for life in lives:
            life.storage.base = -1
        self.parts = {}
        lives.sort(key=lambda life: (-self._weight(life, order), life.first))
        if first:
            self._put(lives[0].storage, min(first, self.p.scratchpad_rows - lives[0].storage.rows))
        for life in lives[bool(first) :]:
            self._place(life.storage, tight=life.storage.rows > loose)
        for _ in range(sweeps):
            for life in lives:
                # What costs nothing can only get in the way of others by moving.
                if self._costs(life.storage):
                    self._place(life.storage, tight=False)

    def _costs(self, storage: Storage) -> bool:
        """Return whether a storage costs anything where it lies."""
        low, high, mine = storage.base, storage.base + storage.rows, self.parts[storage]
        banks = self._banks(storage)
        if any(banks[bank] for bank, _ in mine):
            return True
        return any(o.base < high and low < o.base + o.rows for o, _ in self.waits[storage])

    def _weight(self, life: Lifetime, order: str) -> float:
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
            # Every pair is counted from both of its sides.
            total += sum(banks[bank] * part for bank, part in mine) / 2
            for other, cost in self.waits[storage]:
                if other.base < low + storage.rows and low < other.base + other.rows:
                    total += cost / 2
        return total

    @property
    def most(self) -> int:
        """Most rows that are alive at once."""
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
        """Highest row in use."""
        return max((s.base + s.rows for s in self.lives), default=0)

    def _gaps(self, storage: Storage) -> list[tuple[int, int]]:
        placed = [other for other in self.meets[storage] if other.base >= 0]
        gaps, start, rows = [], 0, storage.rows
        for lo, hi in sorted([(other.base, other.base + other.rows) for other in placed]):
            if lo - start >= rows:
                gaps.append((start, lo))
            if hi > start:
                start = hi
        if self.p.scratchpad_rows - start >= rows:
            gaps.append((start, self.p.scratchpad_rows))
        if not gaps:
            self._refuse([storage, *placed])
        return gaps

    def _place(self, storage: Storage, *, tight: bool) -> None:
        rows, size = storage.rows, self.size
        gaps = self._gaps(storage)
        if tight:
            self._put(storage, gaps[0][0])
            return
        # Only the ends of gaps and of banks are tried: between them, what a storage costs in its
        # banks is linear in the address, so that the least lies at an end.
        candidates: dict[int, int] = {}
        """Addresses, each with the smaller of the two rests of its gap."""
        for lo, hi in gaps:
            top = hi - rows
            candidates[lo] = candidates[top] = 0
            for edge in range(lo + size - lo % size, hi + 1, size):
                for base in (edge, edge - rows):
                    if lo <= base <= top:
                        candidates[base] = min(base - lo, top - base)
        # The present address stays a candidate, so that a sweep never makes the cost larger.
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
                if cost > best[0]:  # waits only add to it
                    continue
            else:
                cost = sum(banks[bank] * part for bank, part in self.in_banks(base, rows))
            for lo, hi, wait in waits:
                if lo < stop and base < hi:
                    cost += wait
            if cost <= best[0]:
                # Among gaps of equal cost take the one that leaves the fewest rows unused: large
                # gaps stay free for large pieces.
                best = min(best, (cost, waste, base))
        self._put(storage, best[2])

    def _put(self, storage: Storage, base: int) -> None:
        storage.base = base
        self.parts[storage] = self.in_banks(base, storage.rows)

    def in_banks(self, base: int, rows: int) -> list[tuple[int, float]]:
        """Return the banks of a range of rows, with the share of the rows in each."""
        size = self.size
        first, last = base // size, (base + rows - 1) // size
        if first == last:
            return [(first, 1.0)]
        return [
            (bank, (min(base + rows, (bank + 1) * size) - max(base, bank * size)) / rows)
            for bank in range(first, last + 1)
        ]

    def _banks(self, storage: Storage) -> list[float]:
        """Return for each bank the cycles lost if a whole storage were there."""
        total, parts = [0.0] * len(self.banks), self.parts
        for other, cost in self.near[storage]:
            for bank, part in parts.get(other, ()):
                total[bank] += cost * part
        return total

    def _refuse(self, storages: Sequence[Storage]) -> None:
        """Raise ``DoesNotFitError`` that names the largest storage of a full scratchpad."""
        worst = max(storages, key=lambda storage: (storage.rows, storage.name))
        used = sum(storage.rows for storage in storages) - worst.rows
        raise DoesNotFitError(
            f"{worst.name} needs {worst.rows} {SCRATCHPAD.what}, there are "
            f"{self.p.scratchpad_rows}, {used} of them needed for what is used with it",
            SCRATCHPAD.advice(max(used + worst.rows, self.p.scratchpad_rows + 1), self.p),
        )


def lost(calls: Sequence[Call], p: AcceleratorParameters, *, stores: bool = False) -> float:
    """Estimate the cycles lost with the pieces placed once. Raises ``DoesNotFitError``."""
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
    """Give every storage its rows in one way after the other; yield the rows used.

    Some ways put the largest storage across two banks: all banks then have rows for the rest.
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
    """Give every storage of the commands its rows; return the number of rows used.

    Next to the three usual orders, ``tries`` orders at random are tried. ``stores`` says whether a
    piece that is stored keeps apart from what arrays read. Raises ``DoesNotFitError`` naming the
    tensor.
    """
    placement = Placement(calls, p, stores=stores)
    problem: DoesNotFitError | None = None
    placements: list[tuple[float, dict[Storage, int]]] = []
    for loose in (p.scratchpad_rows, p.bank_rows // 8, 0):
        for order in ("size", "area", "cost", *map(str, range(tries))):
            try:
                placement.run(order, loose)
            except DoesNotFitError as error:
                problem = error
                if placement.most > p.scratchpad_rows:
                    raise  # no order of placing can help
                continue
            placements.append((placement.cost, {s: s.base for s in placement.lives}))
        if placements:  # smaller values of ``loose`` pack tighter, and cost more
            break
    if not placements:
        assert problem
        raise problem
    for storage, base in min(placements, key=lambda pair: pair[0])[1].items():
        storage.base = base
    return placement.peak

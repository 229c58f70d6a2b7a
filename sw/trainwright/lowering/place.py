"""Where in the scratchpad every piece lies: rows for its lifetime, apart from what is read with it."""

from collections.abc import Sequence
from dataclasses import dataclass

from trainwright.compiler.errors import DoesNotFitError
from trainwright.compiler.limits import SCRATCHPAD
from trainwright.lowering.calls import Call, Contract, Elementwise, Transpose
from trainwright.lowering.layout import Storage
from trainwright.parameters import AcceleratorParameters
from trainwright.program.fields import Engine


SOON = 6
"""Commands within which rows that are used again make somebody wait."""
WAIT = 300.0
"""Cycles of such a wait."""


@dataclass(eq=False)
class _Life:
    storage: Storage
    first: int
    last: int


def _rates(call: Call, p: AcceleratorParameters) -> list[tuple[Storage, float]]:
    """Rows a cycle that a command reads of each storage."""
    if not isinstance(call, Contract | Transpose | Elementwise) or not call.reads:
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
    """Cycles in which two storages are both read, times the rows a cycle of the slower."""
    found: dict[tuple[Storage, Storage], float] = {}

    def add(a: Storage, b: Storage, cost: float) -> None:
        if a is not b:
            key = (a, b) if id(a) < id(b) else (b, a)
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


class Placement:
    """Places storages one after the other, those with the most conflicts and rows first."""

    def __init__(self, calls: Sequence[Call], p: AcceleratorParameters):
        self.p = p
        self.lives = lifetimes(calls)
        self.near: dict[Storage, list[tuple[Storage, float]]] = {}
        for (a, b), cost in conflicts(calls, p).items():
            self.near.setdefault(a, []).append((b, cost))
            self.near.setdefault(b, []).append((a, cost))
        self.done: list[_Life] = []

    def run(self, order: str, *, tight: bool) -> None:
        """Give every storage its address. Raises ``DoesNotFitError``."""
        self.tight = tight
        if order == "size":
            key = lambda life: (-life.storage.rows, life.first)  # noqa: E731
        else:
            key = lambda life: (-life.storage.rows * (life.last - life.first + 1), life.first)  # noqa: E731
        for life in self.lives.values():
            life.storage.base = -1
        for life in sorted(self.lives.values(), key=key):
            self._place(life)
            self.done.append(life)

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
        return max((life.storage.base + life.storage.rows for life in self.done), default=0)

    def _place(self, life: _Life) -> None:
        rows, p = life.storage.rows, self.p
        taken = sorted(
            (other.storage.base, other.storage.base + other.storage.rows)
            for other in self.done
            if other.first <= life.last and life.first <= other.last
        )
        gaps, start = [], 0
        for lo, hi in [*taken, (p.scratchpad_rows, p.scratchpad_rows)]:
            if lo - start >= rows:
                gaps.append((start, lo))
            start = max(start, hi)
        if not gaps:
            self._refuse(life, taken)
        candidates = set()
        for lo, hi in gaps:
            candidates |= {lo, hi - rows}
            for bank in range(p.scratchpad_banks):
                low, high = bank * p.bank_rows, (bank + 1) * p.bank_rows
                for base in (max(lo, low), min(hi, high) - rows):
                    if lo <= base and base + rows <= hi:
                        candidates.add(base)
        near = [(s, c) for s, c in self.near.get(life.storage, ()) if s.base >= 0]
        if self.tight:
            life.storage.base = min(candidates)
            return
        recent = [
            other.storage
            for other in self.done
            if 0 < life.first - other.last <= SOON or 0 < other.first - life.last <= SOON
        ]
        life.storage.base = min(
            candidates,
            key=lambda base: (
                self._cost(base, rows, near) + self._waits(base, rows, recent),
                self._waste(base, gaps, rows),
            ),
        )

    def _cost(self, base: int, rows: int, near: list[tuple[Storage, float]]) -> float:
        total = 0.0
        mine = self._banks(base, rows)
        for other, cost in near:
            theirs = self._banks(other.base, other.rows)
            total += cost * sum(a * b for a, b in zip(mine, theirs, strict=True))
        return total

    @staticmethod
    def _waits(base: int, rows: int, recent: list[Storage]) -> float:
        """What it costs to write rows that are still read, or were a moment ago."""
        return WAIT * sum(s.base < base + rows and base < s.base + s.rows for s in recent)

    def _banks(self, base: int, rows: int) -> list[float]:
        size = self.p.bank_rows
        return [
            max(0, min(base + rows, (b + 1) * size) - max(base, b * size)) / rows
            for b in range(self.p.scratchpad_banks)
        ]

    @staticmethod
    def _waste(base: int, gaps: list[tuple[int, int]], rows: int) -> tuple[int, int]:
        """The smaller of what is left on both sides of a gap; then the address."""
        for lo, hi in gaps:
            if lo <= base and base + rows <= hi:
                return min(base - lo, hi - base - rows), base
        raise AssertionError

    def _refuse(self, life: _Life, taken: list[tuple[int, int]]) -> None:
        used = sum(hi - lo for lo, hi in taken)
        raise DoesNotFitError(
            f"{life.storage.name} needs {life.storage.rows} {SCRATCHPAD.what}, there are "
            f"{self.p.scratchpad_rows}, {used} of them in use",
            SCRATCHPAD.advice(used + life.storage.rows, self.p),
        )


def place(calls: Sequence[Call], p: AcceleratorParameters) -> int:
    """Give every storage of the commands its rows; returns the rows used.

    Raises ``DoesNotFitError`` naming the tensor.
    """
    problem: DoesNotFitError | None = None
    for tight in (False, True):
        for order in ("size", "area"):
            placement = Placement(calls, p)
            if placement.most > p.scratchpad_rows and problem:
                raise problem
            try:
                placement.run(order, tight=tight)
            except DoesNotFitError as error:
                problem = error
                continue
            return placement.peak
    assert problem
    raise problem

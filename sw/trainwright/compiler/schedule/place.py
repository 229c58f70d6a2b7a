"""Give every piece its rows of the scratchpad, away from the pieces that are read with it.

In: commands in their order of issue, with estimated times. Out: ``Addresses``, the first row of
every piece. Two things cost cycles:

- two reads of one bank in one cycle take two cycles, so a pair of pieces has a cost in every bank:
  the cycles in which both are read (``conflicts``);
- rows that were read a moment ago: a load into them makes the sequencer wait for the reader
  (``waits``).

Pieces are placed greedily in several orders, then each is moved to where it costs least
(``Placement``). ``step.lower`` times the result with the cycle model.
"""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import accumulate, product
from operator import or_
from typing import NoReturn

from trainwright.compiler.base.errors import DoesNotFitError
from trainwright.compiler.base.estimates import BEAT_CYCLES
from trainwright.compiler.base.limits import SCRATCHPAD
from trainwright.compiler.base.memory import gaps
from trainwright.compiler.base.progress import count, is_spent
from trainwright.compiler.base.tuning import TUNING
from trainwright.compiler.forms.calls import ArrayCall, Call, Move
from trainwright.compiler.forms.layout import Addresses, Storage
from trainwright.compiler.schedule.schedule import Issue, dependencies
from trainwright.parameters import AcceleratorParameters
from trainwright.program.engines import ARRAYS, EVERY_ARRAY
from trainwright.program.fields import Engine

ORDERS, RANDOM = ("size", "area", "cost"), "random"
"""Orders in which places get their addresses, by ``Placement._weight``: the largest first."""


START_DISORDER = 1000
"""Cycles by which a command may start before one that is issued earlier, at most."""


@dataclass(eq=False)
class Place:
    """Rows of a storage, and the address tried for them."""

    storage: Storage
    first: int
    """First command that touches the rows."""
    last: int
    """Last command that touches the rows."""
    base: int = -1
    """First row; negative while there is none."""

    @property
    def name(self) -> str:
        """Name of the tensor."""
        return self.storage.name

    @cached_property
    def rows(self) -> int:
        """Rows of the storage."""
        return self.storage.rows

    def overlaps(self, other: "Place") -> bool:
        """Return whether two places with addresses share rows."""
        return self.base < other.base + other.rows and other.base < self.base + self.rows


def places_of(calls: Sequence[Call]) -> list[Place]:
    """Return a place for every storage, in the order in which commands first touch them."""
    places: dict[Storage, Place] = {}
    for n, call in enumerate(calls):
        for storage in call.storages:
            if storage in places:
                places[storage].last = n
            else:
                places[storage] = Place(storage, n, n)
    return list(places.values())


def rows_used(places: Sequence[Place]) -> list[int]:
    """Return the rows in use during each command."""
    change = [0] * (max((place.last for place in places), default=-1) + 2)
    for place in places:
        change[place.first] += place.rows
        change[place.last + 1] -= place.rows
    return list(accumulate(change))[:-1]


def at_fullest(places: Sequence[Place]) -> list[Place]:
    """Return the places that are in use at the fullest moment."""
    used = rows_used(places)
    at = used.index(max(used)) if used else 0
    return [place for place in places if place.first <= at <= place.last]


def fits(pieces: Iterable[Place | Storage], p: AcceleratorParameters) -> bool:
    """Return whether there are rows for all of these pieces."""
    return sum(piece.rows for piece in pieces) <= p.scratchpad_rows


def require_rows(pieces: Sequence[Place | Storage], p: AcceleratorParameters) -> None:
    """Raise ``DoesNotFitError``, naming the largest, where there are no rows for all of them."""
    if not fits(pieces, p):
        _refuse(pieces, p)


def _refuse(pieces: Sequence[Place | Storage], p: AcceleratorParameters) -> NoReturn:
    """Raise ``DoesNotFitError`` that names the largest of pieces that fill the scratchpad."""
    worst = max(pieces, key=lambda piece: (piece.rows, piece.name))
    used = sum(piece.rows for piece in pieces) - worst.rows
    raise SCRATCHPAD.misfit(
        f"{worst.name} needs {worst.rows} {SCRATCHPAD.what}, there are {p.scratchpad_rows}, "
        f"{used} of them needed for what is used with it", used + worst.rows, p,
    )  # fmt: skip


def _rates(call: Call, p: AcceleratorParameters) -> list[tuple[Storage, float]]:
    """Return the storages that a command reads, each with the rows read in a cycle."""
    if isinstance(call, Move) and call.reads:
        return [(call.sources[0], 1 / BEAT_CYCLES / call.outer.element_bytes)]
    if not isinstance(call, ArrayCall):
        return []
    return list(zip(call.sources, ARRAYS[call.engine].rates(p), strict=True))


def conflicts(
    issue: Issue, p: AcceleratorParameters, *, stores: bool = False
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

    engines = {*EVERY_ARRAY, Engine.STORE} if stores else {*EVERY_ARRAY}
    busy = [
        (call, times, _rates(call, p))
        for call, times in zip(issue.calls, issue.times, strict=True)
        if call.engine in engines
    ]
    for n, (call, (start, end), rates) in enumerate(busy):
        for i, (a, rate) in enumerate(rates):
            for b, other in rates[i + 1 :]:  # both operands of one command
                add(a, b, call.cycles * min(rate, other))
        for later, (later_start, later_end), later_rates in busy[n + 1 :]:
            # Commands are nearly in the order of their starts; the margin covers the others.
            if later_start >= end + START_DISORDER:
                break
            overlap = min(end, later_end) - max(start, later_start)
            if overlap > 0 and later.engine is not call.engine:
                for (a, rate), (b, other) in product(rates, later_rates):
                    add(a, b, overlap * min(rate, other))
    return cycles


def waits(
    calls: Sequence[Call], places: Sequence[Place], share: float
) -> dict[Place, list[tuple[Place, float]]]:
    """Return for each place the others whose rows cost waits if reused, with these cycles.

    A command that writes rows is not issued before the last reader of their former piece is done.
    The sequencer waits then, and all engines with it. A ``share`` of these cycles counts.
    """
    last_reader: dict[Storage, int] = {}
    first_writer: dict[Storage, int] = {}
    issued: list[dict[Engine, int]] = []
    """For each command, the commands of each engine that were issued before it."""
    counts: dict[Engine, int] = {}
    for n, call in enumerate(calls):
        issued.append(dict(counts))
        counts[call.engine] = counts.get(call.engine, 0) + 1
        for storage in call.targets:
            first_writer.setdefault(storage, n)
        last_reader |= dict.fromkeys(call.storages, n)
    written_by: dict[int, list[Place]] = {}
    for place in places:
        written_by.setdefault(first_writer.get(place.storage, place.first), []).append(place)
    costs: dict[Place, list[tuple[Place, float]]] = {place: [] for place in places}
    for old in places:
        reader = last_reader[old.storage]
        engine = calls[reader].engine
        for writer in range(
            old.last + 1, min(old.last + TUNING.place.waits_within + 1, len(calls))
        ):
            if writer not in written_by or calls[writer].engine is engine:
                continue
            # An engine holds two commands. If the reader is the engine's last command issued so
            # far, the sequencer waits for all of it; with one more behind it, for half of it on
            # average; with two it is done already.
            since = issued[writer].get(engine, 0) - issued[reader].get(engine, 0)
            cost = share * calls[reader].cycles * {1: 1.0, 2: 0.5}.get(since, 0.0)
            if cost:
                for new in written_by[writer]:
                    costs[old].append((new, cost))
                    costs[new].append((old, cost))
    return costs


class Placement:
    """Greedy placement of storages, improved by moving each to where it costs least."""

    def __init__(
        self, issue: Issue, p: AcceleratorParameters, *, stores: bool = False, waited: float = 1.0
    ):
        self.p, self.size = p, p.bank_rows
        self.places = places_of(issue.calls)
        self.fullest = at_fullest(self.places)
        place_of = {place.storage: place for place in self.places}
        self.conflicts: dict[Place, list[tuple[Place, float]]] = {p: [] for p in self.places}
        """For each place the others that are read with it, and the cycles lost in one bank."""
        self.shared = 0.0
        """Cycles lost where both arrays read one piece, whatever its address."""
        for (a, b), cost in conflicts(issue, p, stores=stores).items():
            if a is b:
                self.shared += cost
            else:
                self.conflicts[place_of[a]].append((place_of[b], cost))
                self.conflicts[place_of[b]].append((place_of[a], cost))
        self.waits = waits(issue.calls, self.places, waited)
        """For each place the others whose rows it should not take, and the cycles of waiting."""
        self.neighbours = self._neighbours()
        """For each place the others that are in use at the same time: these need other rows."""
        self.bank_shares: dict[Place, list[tuple[int, float]]] = {}
        """Banks of each place with an address, with the share of its rows in each."""
        # Seeded: a program depends on network, batch and accelerator alone.
        self.random = random.Random(1)

    def _neighbours(self) -> dict[Place, list[Place]]:
        """Return for each place the ones that are in use at the same time."""
        neighbours: dict[Place, list[Place]] = {place: [] for place in self.places}
        in_use: list[Place] = []
        for place in sorted(self.places, key=lambda place: place.first):
            in_use = [other for other in in_use if other.last >= place.first]
            for other in in_use:
                neighbours[other].append(place)
                neighbours[place].append(other)
            in_use.append(place)
        return neighbours

    def run(self, order: str, loose: int, *, first: int = 0) -> None:
        """Give every place its address. Raises ``DoesNotFitError``.

        Places of at most ``loose`` rows go where they cost least, larger ones to the lowest
        address, which keeps the free rows together. The first place of all goes to ``first``.
        """
        count("placed", len(self.places))
        for place in self.places:
            place.base = -1
        self.bank_shares = {}
        places = sorted(self.places, key=lambda place: (-self._weight(place, order), place.first))
        if first:
            self._put(places[0], min(first, self.p.scratchpad_rows - places[0].rows))
        for place in places[bool(first) :]:
            if place.rows > loose:
                self._put(place, self._gaps(place)[0][0])
            else:
                self._put_cheapest(place)
        for _ in range(TUNING.place.sweeps):
            for place in places:
                # What costs nothing can only get in the way of others by moving.
                if self._has_cost(place):
                    self._put_cheapest(place)

    def _has_cost(self, place: Place) -> bool:
        """Return whether a place costs anything where it lies."""
        bank_costs = self._bank_costs(place)
        if any(bank_costs[bank] for bank, _ in self.bank_shares[place]):
            return True
        return any(place.overlaps(other) for other, _ in self.waits[place])

    def _weight(self, place: Place, order: str) -> float:
        """Return the weight of a place in an order; the heaviest is placed first."""
        if order == RANDOM:
            return self.random.random() * place.rows
        if order == "cost":
            return sum(cost for _, cost in self.conflicts[place])
        return place.rows * (place.last - place.first + 1 if order == "area" else 1)

    @property
    def cost(self) -> float:
        """Cycles lost, by the estimate."""
        total = self.shared
        for place in self.places:
            bank_costs = self._bank_costs(place)
            # Every pair is counted from both of its sides.
            total += sum(bank_costs[bank] * share for bank, share in self.bank_shares[place]) / 2
            for other, cost in self.waits[place]:
                if place.overlaps(other):
                    total += cost / 2
        return total

    @property
    def addresses(self) -> Addresses:
        """First row of every storage."""
        return {place.storage: place.base for place in self.places}

    def _gaps(self, place: Place) -> list[tuple[int, int]]:
        """Return the ranges of free rows in which a place fits. Raises ``DoesNotFitError``."""
        placed = [other for other in self.neighbours[place] if other.base >= 0]
        taken = [(other.base, other.base + other.rows) for other in placed]
        free = gaps(taken, self.p.scratchpad_rows)
        fitting = [(lo, hi) for lo, hi in free if hi - lo >= place.rows]
        if not fitting:
            _refuse([place, *placed], self.p)
        return fitting

    def _candidates(self, place: Place) -> dict[int, int]:
        """Return addresses to try, each with the smaller of the two gaps that remain beside it.

        Only the ends of gaps and of banks are tried: between them, what a place costs in its banks
        is linear in the address, so that the least lies at an end.
        """
        rows, size, free = place.rows, self.size, self._gaps(place)
        candidates: dict[int, int] = {}
        for lo, hi in free:
            top = hi - rows
            candidates[lo] = candidates[top] = 0
            for edge in range(lo + size - lo % size, hi + 1, size):
                for base in (edge, edge - rows):
                    if lo <= base <= top:
                        candidates[base] = min(base - lo, top - base)
        # The present address stays a candidate, so that a sweep never makes the cost larger.
        now = place.base
        if now >= 0 and now not in candidates:
            candidates[now] = min(
                min(now - lo, hi - now - rows) for lo, hi in free if lo <= now <= hi - rows
            )
        return candidates

    def _put_cheapest(self, place: Place) -> None:
        """Give a place the address at which it costs least. Raises ``DoesNotFitError``."""
        rows, size, candidates = place.rows, self.size, self._candidates(place)
        bank_costs = self._bank_costs(place)
        waits = [(s.base, s.base + s.rows, c) for s, c in self.waits[place] if s.base >= 0]
        best = (float("inf"), 0, 0)
        for base, waste in candidates.items():
            bank, stop = base // size, base + rows
            if stop <= (bank + 1) * size:
                cost = bank_costs[bank]
                if cost > best[0]:  # waits only add to it
                    continue
            else:
                shares = self.shares_in_banks(base, rows)
                cost = sum(bank_costs[bank] * share for bank, share in shares)
            for lo, hi, wait in waits:
                if lo < stop and base < hi:
                    cost += wait
            if cost <= best[0]:
                # Among gaps of equal cost take the one that leaves the fewest rows unused: large
                # gaps stay free for large pieces.
                best = min(best, (cost, waste, base))
        self._put(place, best[2])

    def _put(self, place: Place, base: int) -> None:
        place.base = base
        self.bank_shares[place] = self.shares_in_banks(base, place.rows)

    def shares_in_banks(self, base: int, rows: int) -> list[tuple[int, float]]:
        """Return the banks of a range of rows, with the share of the rows in each."""
        size = self.size
        first, last = base // size, (base + rows - 1) // size
        if first == last:
            return [(first, 1.0)]
        return [
            (bank, (min(base + rows, (bank + 1) * size) - max(base, bank * size)) / rows)
            for bank in range(first, last + 1)
        ]

    def _bank_costs(self, place: Place) -> list[float]:
        """Return for each bank the cycles lost if a whole place were there."""
        costs, shares = [0.0] * self.p.scratchpad_banks, self.bank_shares
        for other, cost in self.conflicts[place]:
            for bank, share in shares.get(other, ()):
                costs[bank] += cost * share
        return costs


def _placed(
    placement: Placement,
    orders: Sequence[str],
    loose: Sequence[int],
    firsts: Sequence[int] = (0,),
) -> tuple[float, Addresses]:
    """Return the cheapest addresses of ``orders``, with their cost. Raises ``DoesNotFitError``.

    ``loose`` and ``firsts`` are arguments of ``Placement.run``, tried until some order finds room:
    all of ``loose`` with the first of ``firsts``, then with the next one. Smaller values of
    ``loose`` pack tighter, and cost more.
    """
    problem: DoesNotFitError | None = None
    for first, rows in product(firsts, loose):
        placements: list[tuple[float, Addresses]] = []
        for order in orders:
            try:
                placement.run(order, rows, first=first)
            except DoesNotFitError as error:
                problem = error
                # No order of placing helps where more rows are in use at once than there are.
                if len(orders) > 1 and not fits(placement.fullest, placement.p):
                    raise
                continue
            placements.append((placement.cost, placement.addresses))
            # Without it `fashion` in 1,024 samples placed each program of 10,000 pieces 11 times.
            if is_spent():
                break
        if placements:
            return min(placements, key=lambda pair: pair[0])
    assert problem
    raise problem


def lost(issue: Issue, p: AcceleratorParameters, *, stores: bool = False) -> float:
    """Estimate the cycles lost in shared banks and in waits, from a single placement.

    Raises ``DoesNotFitError``.
    """
    return _placed(Placement(issue, p, stores=stores), ("area",), (p.scratchpad_rows, 0))[0]


def place(
    issue: Issue,
    p: AcceleratorParameters,
    *,
    tries: int = 0,
    stores: bool = False,
    waited: float = 1.0,
) -> Addresses:
    """Return the address of every storage of the commands.

    Next to the three usual orders, ``tries`` orders at random are tried. With ``stores``, a
    piece avoids banks that arrays read while the piece is stored. ``waited`` is the share of the
    cycles of waiting that counts. Raises ``DoesNotFitError`` naming the tensor.
    """
    placement = Placement(issue, p, stores=stores, waited=waited)
    orders = (*ORDERS, *[RANDOM] * tries)
    # Where no order finds room, the largest storage begins in the middle of the first bank, so that
    # it leaves rows for the others in both of its banks.
    firsts = (0, p.bank_rows // 2)
    return _placed(placement, orders, (p.scratchpad_rows, p.bank_rows // 8, 0), firsts)[1]


def always_alive(calls: Sequence[Call]) -> list[Storage]:
    """Return the largest set of pieces that are alive together in every order of issue.

    For each command these are the pieces that it touches, and those written before it and read
    after it, where "before" and "after" follow from results that commands need of each other. The
    set of the command with most rows is returned.
    """
    # Sets of commands are integers with a bit for each command: a few hundred to a few thousand
    # commands make whole sets cheap to intersect.
    before = _before(dependencies(calls))
    touching: dict[Storage, list[int]] = {}
    writing: dict[Storage, int] = {}
    reading: dict[Storage, int] = {}
    for n, call in enumerate(calls):
        for storage in set(call.storages):
            touching.setdefault(storage, []).append(n)
        for storage in call.targets:
            writing[storage] = writing.get(storage, 0) | 1 << n
        for storage in call.sources:
            reading[storage] = reading.get(storage, 0) | 1 << n
    rows = [0] * len(calls)
    alive: list[list[Storage]] = [[] for _ in calls]
    for storage, users in touching.items():
        writers, readers = writing.get(storage, 0), reading.get(storage, 0)
        # A command that must precede a reader has that reader after it.
        precede_readers = reduce(or_, (before[n] for n in users if readers >> n & 1), 0)
        for n in range(users[0], users[-1] + 1):
            touches = (writers | readers) >> n & 1
            if touches or (before[n] & writers and precede_readers >> n & 1):
                rows[n] += storage.rows
                alive[n].append(storage)
    return max(zip(rows, alive, strict=True), key=lambda entry: entry[0])[1] if calls else []


def _before(needs: Sequence[Sequence[int]]) -> list[int]:
    """Return for each command the set of commands that must precede it, as bits."""
    before: list[int] = []
    for needed in needs:
        total = 0
        for n in needed:
            total |= before[n] | 1 << n
        before.append(total)
    return before

"""Place every piece in the scratchpad, apart from the pieces that are read with it.

In: an order of issue with estimated times. Out: ``Addresses``, the first row of every piece. Two
reads of one bank in one cycle take two cycles, so a piece has a cost in every bank: the cycles in
which a piece in that bank is read at the same time. Pieces are placed greedily in several orders,
then moved where they cost least. Rows that were read a moment ago cost, too: a load into them makes
the sequencer wait for the reader. ``step.lower`` times the result with the cycle model.
"""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import accumulate, product
from operator import or_
from typing import NoReturn

from trainwright.compiler.base.errors import DoesNotFitError
from trainwright.compiler.base.limits import SCRATCHPAD
from trainwright.compiler.base.progress import count, is_spent
from trainwright.compiler.forms.calls import ArrayCall, Call, Move
from trainwright.compiler.forms.layout import Addresses, Storage
from trainwright.compiler.schedule.schedule import Issue, dependencies
from trainwright.parameters import AcceleratorParameters
from trainwright.program.engines import ARRAYS, EVERY_ARRAY
from trainwright.program.fields import Engine

SOON = 12
"""Commands within which rows that are used again make an engine wait."""
WAITED = 0.1
"""Share of the cycles of waiting that counts where rows are short.

There the times of commands have most waits in them already. Counted in full, waits hid what shared
banks cost: `fashion-conv` in 64 samples took 2.6 % more cycles, `fashion` in 8,192 rows 5 %.
"""
STORED = 0.8
"""Beats that a store sends in a cycle, on average."""
SWEEPS = 2
"""Times that every storage is moved to where it costs least."""


ORDERS = ("size", "area", "cost")
"""Orders in which places get their addresses, by ``Placement._weight``: the largest first."""


@dataclass(eq=False)
class Place:
    """Rows of a storage, and the address tried for them."""

    storage: Storage
    first: int
    """First command that touches the rows."""
    last: int
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


def places_of(calls: Sequence[Call]) -> list[Place]:
    """Return a place for every storage, in the order of issue."""
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


def alive(places: Sequence[Place]) -> list[Place]:
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
    raise DoesNotFitError(
        f"{worst.name} needs {worst.rows} {SCRATCHPAD.what}, there are {p.scratchpad_rows}, "
        f"{used} of them needed for what is used with it",
        SCRATCHPAD.advice(max(used + worst.rows, p.scratchpad_rows + 1), p),
    )


def _rates(call: Call, p: AcceleratorParameters) -> list[tuple[Storage, float]]:
    """Return the storages that a command reads, each with the rows read in a cycle."""
    if isinstance(call, Move) and call.reads:
        return [(call.sources[0], STORED / call.outer.element_bytes)]
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

    engines = (*EVERY_ARRAY, *([Engine.STORE] if stores else []))
    busy = [
        (call, times, _rates(call, p))
        for call, times in zip(issue.calls, issue.times, strict=True)
        if call.engine in engines
    ]
    for n, (call, (start, end), rates) in enumerate(busy):
        for i, (a, rate) in enumerate(rates):
            for b, other in rates[i + 1 :]:
                add(a, b, call.cycles * min(rate, other))
        for later, (later_start, later_end), later_rates in busy[n + 1 :]:
            # Commands are nearly in the order of their starts; the margin covers those that are
            # not.
            if later_start >= end + 1000:
                break
            both = min(end, later_end) - max(start, later_start)
            if both > 0 and later.engine is not call.engine:
                for a, rate in rates:
                    for b, other in later_rates:
                        add(a, b, both * min(rate, other))
    return cycles


def waits(
    calls: Sequence[Call], places: Sequence[Place], share: float
) -> dict[Place, list[tuple[Place, float]]]:
    """Return for each place the ones whose rows it should not take, with the cycles of waiting.

    A command that writes rows is not issued before the last reader of their former piece is done.
    The sequencer waits then, and all engines with it. A ``share`` of these cycles counts.
    """
    reader: dict[Storage, int] = {}
    writer: dict[Storage, int] = {}
    counts: list[dict[Engine, int]] = []
    issued: dict[Engine, int] = {}
    for n, call in enumerate(calls):
        counts.append(dict(issued))
        issued[call.engine] = issued.get(call.engine, 0) + 1
        for storage in call.targets:
            writer.setdefault(storage, n)
        reader |= dict.fromkeys(call.storages, n)
    begun: dict[int, list[Place]] = {}
    for place in places:
        begun.setdefault(writer.get(place.storage, place.first), []).append(place)
    costs: dict[Place, list[tuple[Place, float]]] = {place: [] for place in places}
    for old in places:
        read = reader[old.storage]
        last = calls[read]
        for begins in range(old.last + 1, min(old.last + SOON + 1, len(calls))):
            if begins not in begun or calls[begins].engine is last.engine:
                continue
            # An engine holds two commands. If the reader is the engine's last command issued so
            # far, the sequencer waits for all of it; with one more behind it, for half of it on
            # average; with two it is done already.
            since = counts[begins].get(last.engine, 0) - counts[read].get(last.engine, 0)
            cost = share * last.cycles * {1: 1.0, 2: 0.5}.get(since, 0.0)
            if cost:
                for new in begun[begins]:
                    costs[old].append((new, cost))
                    costs[new].append((old, cost))
    return costs


class Placement:
    """Greedy placement of storages, improved by moving each to where it costs least."""

    def __init__(
        self, issue: Issue, p: AcceleratorParameters, *, stores: bool = False, waited: float = 1.0
    ):
        self.p, self.size, self.banks = p, p.bank_rows, range(p.scratchpad_banks)
        self.places = places_of(issue.calls)
        self.fullest = alive(self.places)
        place_of = {place.storage: place for place in self.places}
        self.near: dict[Place, list[tuple[Place, float]]] = {place: [] for place in self.places}
        self.shared = 0.0
        """Cycles lost where both arrays read one piece, whatever its address."""
        for (a, b), cost in conflicts(issue, p, stores=stores).items():
            if a is b:
                self.shared += cost
                continue
            self.near[place_of[a]].append((place_of[b], cost))
            self.near[place_of[b]].append((place_of[a], cost))
        self.waits = waits(issue.calls, self.places, waited)
        self.meets = self._meets()
        self.parts: dict[Place, list[tuple[int, float]]] = {}
        """Banks of each place with an address, with the share of its rows in each."""
        # Seeded: a program depends on network, batch and accelerator alone.
        self.random = random.Random(1)

    def _meets(self) -> dict[Place, list[Place]]:
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
        self.parts = {}
        places = sorted(self.places, key=lambda place: (-self._weight(place, order), place.first))
        if first:
            self._put(places[0], min(first, self.p.scratchpad_rows - places[0].rows))
        for place in places[bool(first) :]:
            self._place(place, tight=place.rows > loose)
        for _ in range(SWEEPS):
            for place in places:
                # What costs nothing can only get in the way of others by moving.
                if self._costs(place):
                    self._place(place, tight=False)

    def _costs(self, place: Place) -> bool:
        """Return whether a place costs anything where it lies."""
        low, high, mine = place.base, place.base + place.rows, self.parts[place]
        banks = self._banks(place)
        if any(banks[bank] for bank, _ in mine):
            return True
        return any(o.base < high and low < o.base + o.rows for o, _ in self.waits[place])

    def _weight(self, place: Place, order: str) -> float:
        if order.isdigit():
            return self.random.random() * place.rows
        if order == "cost":
            return sum(cost for _, cost in self.near[place])
        return place.rows * (place.last - place.first + 1 if order == "area" else 1)

    @property
    def cost(self) -> float:
        """Cycles lost, by the estimate."""
        total = self.shared
        for place in self.places:
            banks, low = self._banks(place), place.base
            # Every pair is counted from both of its sides.
            total += sum(banks[bank] * part for bank, part in self.parts[place]) / 2
            for other, cost in self.waits[place]:
                if other.base < low + place.rows and low < other.base + other.rows:
                    total += cost / 2
        return total

    @property
    def addresses(self) -> Addresses:
        """First row of every storage."""
        return {place.storage: place.base for place in self.places}

    def _gaps(self, place: Place) -> list[tuple[int, int]]:
        placed = [other for other in self.meets[place] if other.base >= 0]
        gaps, start, rows = [], 0, place.rows
        for lo, hi in sorted([(other.base, other.base + other.rows) for other in placed]):
            if lo - start >= rows:
                gaps.append((start, lo))
            if hi > start:
                start = hi
        if self.p.scratchpad_rows - start >= rows:
            gaps.append((start, self.p.scratchpad_rows))
        if not gaps:
            _refuse([place, *placed], self.p)
        return gaps

    def _place(self, place: Place, *, tight: bool) -> None:
        rows, size = place.rows, self.size
        gaps = self._gaps(place)
        if tight:
            self._put(place, gaps[0][0])
            return
        # Only the ends of gaps and of banks are tried: between them, what a place costs in its
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
        now = place.base
        if now >= 0 and now not in candidates:
            candidates[now] = min(
                min(now - lo, hi - now - rows) for lo, hi in gaps if lo <= now <= hi - rows
            )
        banks = self._banks(place)
        waits = [(s.base, s.base + s.rows, c) for s, c in self.waits[place] if s.base >= 0]
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
        self._put(place, best[2])

    def _put(self, place: Place, base: int) -> None:
        place.base = base
        self.parts[place] = self.in_banks(base, place.rows)

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

    def _banks(self, place: Place) -> list[float]:
        """Return for each bank the cycles lost if a whole place were there."""
        total, parts = [0.0] * len(self.banks), self.parts
        for other, cost in self.near[place]:
            for bank, part in parts.get(other, ()):
                total[bank] += cost * part
        return total


def _placed(
    placement: Placement,
    orders: Sequence[str],
    loose: Sequence[int],
    firsts: Sequence[int] = (0,),
) -> tuple[float, Addresses]:
    """Return the cheapest addresses by some orders, for the first ``loose`` that leads to any.

    Smaller values of ``loose`` pack tighter, and cost more. The next of ``firsts``, rows at which
    the first storage may begin, is tried only if no ``loose`` finds room. Raises
    ``DoesNotFitError``.
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
            # `fashion` in 1,024 samples placed programs of 10,000 pieces eleven times each.
            if is_spent():
                break
        if placements:
            return min(placements, key=lambda pair: pair[0])
    assert problem
    raise problem


def lost(issue: Issue, p: AcceleratorParameters, *, stores: bool = False) -> float:
    """Estimate the cycles lost with the pieces placed once. Raises ``DoesNotFitError``."""
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
    orders = (*ORDERS, *map(str, range(tries)))
    # Where no order finds room, the largest storage begins in the middle of the first bank, so that
    # it leaves rows for the others in both of its banks.
    firsts = (0, p.bank_rows // 2)
    return _placed(placement, orders, (p.scratchpad_rows, p.bank_rows // 8, 0), firsts)[1]


def held(calls: Sequence[Call]) -> list[Storage]:
    """Return the pieces that are alive together at some command in any order of issue.

    Of all commands the one is taken at which these pieces have most rows. Pieces that the command
    touches are alive, and pieces written before it and read after it, where "before" and "after"
    follow from results that commands need of each other.
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
    at: list[list[Storage]] = [[] for _ in calls]
    for storage, mine in touching.items():
        writers, readers = writing.get(storage, 0), reading.get(storage, 0)
        read_after = reduce(or_, (before[n] for n in mine if readers >> n & 1), 0)
        for n in range(mine[0], mine[-1] + 1):
            touches = (writers | readers) >> n & 1
            if touches or (before[n] & writers and read_after >> n & 1):
                rows[n] += storage.rows
                at[n].append(storage)
    return max(zip(rows, at, strict=True), key=lambda entry: entry[0])[1] if calls else []


def _before(needs: Sequence[Sequence[int]]) -> list[int]:
    """Return for each command the set of commands that must precede it, as bits."""
    earlier: list[int] = []
    for mine in needs:
        total = 0
        for n in mine:
            total |= earlier[n] | 1 << n
        earlier.append(total)
    return earlier

"""Pieces of the slices of a tensor in a few places in turn, as in a ring of buffers.

Slices come and go in the same way again and again: where each has a place that it shares with some
of those before and after, there are few places, and what is read together is well apart in all of
them at once.
"""

from collections.abc import Iterator, Mapping, Sequence

from trainwright.compiler.base.errors import DoesNotFitError
from trainwright.compiler.base.progress import count
from trainwright.compiler.forms.calls import Call
from trainwright.compiler.forms.layout import Storage
from trainwright.compiler.schedule.place import Life, Placement
from trainwright.parameters import AcceleratorParameters

APART = (2, 3)
"""Commands from the last that reads a slice to the first that writes another in its place."""
REACH = 40
"""Commands after which a place is given up: others can have its rows."""
MOVES = 12
"""Times that a place is put somewhere, on average, until it is given up."""
TRIES = 2000
"""Places that are moved to where they may cost less."""
LOOK = 50
"""Tries after which it is looked again which places cost something."""

Slot = list[Life]
"""Pieces that have one place in turn."""


def slots_of(lives: Mapping[Storage, Life], apart: int) -> list[Slot]:
    """Places of the pieces of each tensor, as few as there can be."""
    groups: dict[tuple[str, int], list[Slot]] = {}
    for life in sorted(lives.values(), key=lambda one: (one.first, one.last)):
        mine = groups.setdefault((life.storage.name, life.storage.rows), [])
        free = [slot for slot in mine if apart < life.first - slot[-1].last <= REACH + apart]
        if free:
            min(free, key=lambda slot: slot[-1].last).append(life)
        else:
            mine.append([life])
    return [slot for some in groups.values() for slot in some]


class Slots(Placement):
    """Places, placed like pieces."""

    def __init__(self, pieces: Placement, apart: int):
        self.pieces, self.p, self.size = pieces, pieces.p, pieces.size
        self.banks, self.random, self.parts = pieces.banks, pieces.random, {}
        self.shared = pieces.shared
        self.slots: dict[Storage, Slot] = {}
        self.lives: dict[Storage, Life] = {}
        for slot in slots_of(pieces.lives, apart):
            place = Storage(slot[0].storage.name, slot[0].storage.rows)
            self.slots[place] = slot
            self.lives[place] = Life(place, slot[0].first, slot[-1].last)
        of = {life.storage: place for place, slot in self.slots.items() for life in slot}
        self.near = self._joined(of, pieces.near)
        self.waits = self._joined(of, pieces.waits)
        self.meets = {
            place: list(dict.fromkeys(
                of[other] for life in slot for other in pieces.meets[life.storage]
            )) for place, slot in self.slots.items()
        }  # fmt: skip

    @staticmethod
    def _joined(
        of: Mapping[Storage, Storage], costs: Mapping[Storage, Sequence[tuple[Storage, float]]]
    ) -> dict[Storage, list[tuple[Storage, float]]]:
        """What places cost together: what their pieces do."""
        found: dict[Storage, dict[Storage, float]] = {place: {} for place in of.values()}
        for one, some in costs.items():
            mine = found[of[one]]
            for other, cost in some:
                if of[other] is not of[one]:
                    mine[of[other]] = mine.get(of[other], 0.0) + cost
        return {place: list(some.items()) for place, some in found.items()}

    def packed(self) -> bool:
        """Place all places, the largest first, one that has no room before others; whether it was
        possible.
        """
        for place in self.lives:
            place.base = -1
        self.parts = {}
        waiting = sorted(self.lives, key=lambda place: (-place.rows, self.lives[place].first))
        moved: dict[Storage, int] = {}
        for _ in range(len(waiting) * MOVES):
            if not waiting:
                return True
            waiting += self._pushed(waiting.pop(0), moved)
        return not waiting

    def _pushed(self, place: Storage, moved: dict[Storage, int]) -> list[Storage]:
        """Place one where it costs least, or where least has to go; what had to go."""
        try:
            self._place(place, tight=False)
            return []
        except DoesNotFitError:
            # Ends of other places are what takes long to look up, so once for all addresses.
            others = [
                (o.base - place.rows, o.base + o.rows, o.rows * (1 + moved.get(o, 0)))
                for o in self.meets[place]
                if o.base >= 0
            ]
            best = min(
                self._bases(place),
                key=lambda base: sum([w for low, high, w in others if low < base < high]),
            )
            return self._moved(place, best, moved)

    def _moved(self, place: Storage, base: int, moved: dict[Storage, int]) -> list[Storage]:
        """Place one at ``base``, and take away what was there."""
        gone = self._under(place, base)
        for other in gone:
            other.base = -1
            self.parts.pop(other, None)
            moved[other] = moved.get(other, 0) + 1
        self._put(place, base)
        return sorted(gone, key=lambda one: -one.rows)

    def _bases(self, place: Storage) -> list[int]:
        """Addresses beside others, and at the ends of banks."""
        rows, top = place.rows, self.p.scratchpad_rows
        ends = {*range(0, top + 1, self.size)}
        for other in self.meets[place]:
            if other.base >= 0:
                ends |= {other.base, other.base + other.rows}
        found = {end for end in ends if end + rows <= top} | {e - rows for e in ends if e >= rows}
        return sorted(found)

    def _under(self, place: Storage, base: int) -> list[Storage]:
        """What lies where a place would, at the same time."""
        stop = base + place.rows
        return [o for o in self.meets[place] if 0 <= o.base < stop and base < o.base + o.rows]

    def improved(self, tries: int) -> None:
        """Move what costs something, and what is in its way, as long as it gets better."""
        costly: list[Storage] = []
        count("placed", tries)
        for number in range(tries):
            if number % LOOK == 0:
                costly = [place for place in self.lives if self._costs(place)]
            if not costly:
                return
            place = self.random.choice(costly)
            base = self.random.choice(self._bases(place))
            moving = [place, *self._under(place, base)]
            before = {one: one.base for one in moving}
            now = sum(map(self._cost_of, moving))
            gone = self._moved(place, base, {})
            try:
                for other in gone:
                    self._place(other, tight=False)
                cost = sum(map(self._cost_of, moving))
            except DoesNotFitError:
                cost = float("inf")
            if cost > now:
                for one, base in before.items():
                    self._put(one, base)

    def _cost_of(self, place: Storage) -> float:
        """Cycles that a place costs where it lies."""
        low, high = place.base, place.base + place.rows
        banks = self._banks(place)
        waits = sum(c for o, c in self.waits[place] if o.base < high and low < o.base + o.rows)
        return sum(banks[bank] * part for bank, part in self.parts[place]) + waits

    def apply(self) -> None:
        """Give the pieces the rows of their places."""
        for place, slot in self.slots.items():
            for life in slot:
                life.storage.base = place.base
        storages = self.pieces.lives
        self.pieces.parts = {s: self.pieces.in_banks(s.base, s.rows) for s in storages}


def slotted(calls: Sequence[Call], p: AcceleratorParameters) -> Iterator[int]:
    """Give every piece the rows of a place, in one way to share places after the other; gives the
    rows used.
    """
    pieces = Placement(calls, p)
    if pieces.most > p.scratchpad_rows:
        return
    for apart in APART:
        slots = Slots(pieces, apart)
        if slots.packed():
            slots.improved(TRIES)
            slots.apply()
            yield pieces.peak

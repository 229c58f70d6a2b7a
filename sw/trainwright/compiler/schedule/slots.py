"""Let the slices of a tensor take slots of the scratchpad in turn, as in a ring of buffers.

Each slice of a tensor is computed, read and dropped like the slice before. Slices that share a slot
leave about a hundred slots to place instead of 600 pieces, and two slots that lie in different
banks keep all their slices apart. ``SlotPlacement`` places slots as ``Placement`` places pieces:
the costs of a slot are the sums over its pieces. ``step.lower`` tries this where the scratchpad is
short.
"""

from collections.abc import Iterator, Mapping, Sequence

from trainwright.compiler.base.errors import DoesNotFitError
from trainwright.compiler.base.progress import count
from trainwright.compiler.forms.calls import Call
from trainwright.compiler.forms.layout import Storage
from trainwright.compiler.schedule.place import Lifetime, Placement
from trainwright.parameters import AcceleratorParameters

APART = (2, 3)
"""Commands between the last reader of a slice and the first writer of the next slice in its slot.

With fewer commands between them the sequencer waits for the reader; with more there are more slots.
"""
REACH = 40
"""Commands after which an idle slot is given up, so that other slots get its rows."""
MOVES = 12
"""Times that a slot is placed, on average, until the search for a packing is given up."""
TRIES = 2000
"""Slots that are moved to where they may cost less."""
LOOK = 50
"""Moves after which the slots that cost something are listed again."""

Slot = list[Lifetime]
"""Pieces that use the same rows in turn."""


def slots_of(lives: Mapping[Storage, Lifetime], apart: int) -> list[Slot]:
    """Return slots for the pieces of each tensor, as few as possible."""
    groups: dict[tuple[str, int], list[Slot]] = {}
    for life in sorted(lives.values(), key=lambda entry: (entry.first, entry.last)):
        mine = groups.setdefault((life.storage.name, life.storage.rows), [])
        free = [slot for slot in mine if apart < life.first - slot[-1].last <= REACH + apart]
        if free:
            # Take the slot that has been idle longest: its last reader is the least likely to
            # delay the new slice.
            min(free, key=lambda slot: slot[-1].last).append(life)
        else:
            mine.append([life])
    return [slot for slots in groups.values() for slot in slots]


class SlotPlacement(Placement):
    """Placement of slots, as if each was a piece that is alive from its first to its last use."""

    def __init__(self, pieces: Placement, apart: int):
        self.pieces, self.p, self.size = pieces, pieces.p, pieces.size
        self.banks, self.random, self.parts = pieces.banks, pieces.random, {}
        self.shared = pieces.shared
        self.slots: dict[Storage, Slot] = {}
        self.lives: dict[Storage, Lifetime] = {}
        for slot in slots_of(pieces.lives, apart):
            # A slot is placed like a piece that is alive from the first use to the last; its own
            # ``Storage`` keeps the address until ``apply``.
            place = Storage(slot[0].storage.name, slot[0].storage.rows)
            self.slots[place] = slot
            self.lives[place] = Lifetime(place, slot[0].first, slot[-1].last)
        place_of = {life.storage: place for place, slot in self.slots.items() for life in slot}
        self.near = self._joined(place_of, pieces.near)
        self.waits = self._joined(place_of, pieces.waits)
        # Two slots may share rows if no pieces of theirs are alive at the same time, even where the
        # spans from first to last use overlap.
        self.meets = {
            place: list(dict.fromkeys(
                place_of[other] for life in slot for other in pieces.meets[life.storage]
            )) for place, slot in self.slots.items()
        }  # fmt: skip

    @staticmethod
    def _joined(
        place_of: Mapping[Storage, Storage],
        costs: Mapping[Storage, Sequence[tuple[Storage, float]]],
    ) -> dict[Storage, list[tuple[Storage, float]]]:
        """Sum the costs of pairs of pieces to costs of pairs of slots."""
        sums: dict[Storage, dict[Storage, float]] = {place: {} for place in place_of.values()}
        for piece, neighbours in costs.items():
            place = place_of[piece]
            mine = sums[place]
            for other, cost in neighbours:
                target = place_of[other]
                if target is not place:
                    mine[target] = mine.get(target, 0.0) + cost
        return {place: list(mine.items()) for place, mine in sums.items()}

    def packed(self) -> bool:
        """Place all slots, the largest first; return whether that was possible.

        A slot without room pushes out the ones that are cheapest to place again, which then wait
        for their turn. A slot that was pushed out often counts as more expensive, so that two slots
        do not push each other out for ever.
        """
        for place in self.lives:
            place.base = -1
        self.parts = {}
        waiting = sorted(self.lives, key=lambda place: (-place.rows, self.lives[place].first))
        moved: dict[Storage, int] = {}
        # Bounded, as slots may push each other out in a circle.
        for _ in range(len(waiting) * MOVES):
            if not waiting:
                return True
            waiting += self._pushed(waiting.pop(0), moved)
        return not waiting

    def _pushed(self, place: Storage, moved: dict[Storage, int]) -> list[Storage]:
        """Place a slot where it costs least, and return the slots that had to make room."""
        try:
            self._place(place, tight=False)
            return []
        except DoesNotFitError:
            # Looking up the ends of other slots takes long, so it is done once for all addresses.
            neighbours = [
                (o.base - place.rows, o.base + o.rows, o.rows * (1 + moved.get(o, 0)))
                for o in self.meets[place]
                if o.base >= 0
            ]
            best = min(
                self._bases(place),
                key=lambda base: sum([w for low, high, w in neighbours if low < base < high]),
            )
            return self._moved(place, best, moved)

    def _moved(self, place: Storage, base: int, moved: dict[Storage, int]) -> list[Storage]:
        """Place a slot at ``base``, and return the slots that lay there, now without an address."""
        gone = self._under(place, base)
        for other in gone:
            other.base = -1
            self.parts.pop(other, None)
            moved[other] = moved.get(other, 0) + 1
        self._put(place, base)
        return sorted(gone, key=lambda other: -other.rows)

    def _bases(self, place: Storage) -> list[int]:
        """Return addresses next to other slots and at the ends of banks."""
        rows, top = place.rows, self.p.scratchpad_rows
        ends = {*range(0, top + 1, self.size)}
        for other in self.meets[place]:
            if other.base >= 0:
                ends |= {other.base, other.base + other.rows}
        bases = {end for end in ends if end + rows <= top} | {e - rows for e in ends if e >= rows}
        return sorted(bases)

    def _under(self, place: Storage, base: int) -> list[Storage]:
        """Return the slots that would share rows with a slot at ``base`` at the same time."""
        stop = base + place.rows
        return [o for o in self.meets[place] if 0 <= o.base < stop and base < o.base + o.rows]

    def improved(self, tries: int) -> None:
        """Move slots that cost something, and those in their way, as long as costs fall."""
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
            before = {slot: slot.base for slot in moving}
            now = sum(map(self._cost_of, moving))
            gone = self._moved(place, base, {})
            try:
                for other in gone:
                    self._place(other, tight=False)
                cost = sum(map(self._cost_of, moving))
            except DoesNotFitError:
                cost = float("inf")
            # A move that makes nothing worse stays, even if it gains nothing: plateaus lead out of
            # corners.
            if cost > now:
                for slot, base in before.items():
                    self._put(slot, base)

    def _cost_of(self, place: Storage) -> float:
        """Return the cycles that a slot costs where it lies."""
        low, high = place.base, place.base + place.rows
        banks = self._banks(place)
        waits = sum(c for o, c in self.waits[place] if o.base < high and low < o.base + o.rows)
        return sum(banks[bank] * part for bank, part in self.parts[place]) + waits

    def apply(self) -> None:
        """Give the pieces the rows of their slots."""
        for place, slot in self.slots.items():
            for life in slot:
                life.storage.base = place.base
        storages = self.pieces.lives
        self.pieces.parts = {s: self.pieces.in_banks(s.base, s.rows) for s in storages}


def slotted(calls: Sequence[Call], p: AcceleratorParameters) -> Iterator[int]:
    """Give every piece the rows of a slot, for each distance of ``APART``; yield the rows used."""
    pieces = Placement(calls, p)
    if pieces.most > p.scratchpad_rows:
        return
    for apart in APART:
        slots = SlotPlacement(pieces, apart)
        if slots.packed():
            slots.improved(TRIES)
            slots.apply()
            yield pieces.peak

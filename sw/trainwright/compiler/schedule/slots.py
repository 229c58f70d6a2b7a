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
from trainwright.compiler.forms.layout import Addresses
from trainwright.compiler.schedule.place import Place, Placement, fits
from trainwright.compiler.schedule.schedule import Group, Issue
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

Slot = list[Place]
"""Places of pieces that use the same rows in turn."""


def slots_of(places: Sequence[Place], apart: int) -> list[Slot]:
    """Return slots for the pieces of each tensor, as few as possible."""
    groups: dict[Group, list[Slot]] = {}
    for place in sorted(places, key=lambda place: (place.first, place.last)):
        mine = groups.setdefault((place.name, place.rows), [])
        free = [slot for slot in mine if apart < place.first - slot[-1].last <= REACH + apart]
        if free:
            # Take the slot that has been idle longest: its last reader is the least likely to
            # delay the new slice.
            min(free, key=lambda slot: slot[-1].last).append(place)
        else:
            mine.append([place])
    return [slot for slots in groups.values() for slot in slots]


class SlotPlacement(Placement):
    """Placement of slots, as if each was a piece that is alive from its first to its last use."""

    def __init__(self, pieces: Placement, apart: int):
        self.p, self.size, self.banks = pieces.p, pieces.size, pieces.banks
        self.random, self.shared, self.fullest = pieces.random, pieces.shared, pieces.fullest
        self.parts = {}
        self.slots: dict[Place, Slot] = {}
        """Places of the pieces of each slot, by the place of the slot."""
        for slot in slots_of(pieces.places, apart):
            storages = tuple(place.storages[0] for place in slot)
            first, last = slot[0], slot[-1]
            joined = Place(first.name, first.rows, first.first, last.last, storages)
            self.slots[joined] = slot
        self.places = list(self.slots)
        slot_of = {place: joined for joined, slot in self.slots.items() for place in slot}
        self.near = self._joined(slot_of, pieces.near)
        self.waits = self._joined(slot_of, pieces.waits)
        # Two slots may share rows if no pieces of theirs are alive at the same time, even where the
        # spans from first to last use overlap.
        self.meets = {
            joined: list(dict.fromkeys(
                slot_of[other] for place in slot for other in pieces.meets[place]
            )) for joined, slot in self.slots.items()
        }  # fmt: skip

    @staticmethod
    def _joined(
        slot_of: Mapping[Place, Place], costs: Mapping[Place, Sequence[tuple[Place, float]]]
    ) -> dict[Place, list[tuple[Place, float]]]:
        """Sum the costs of pairs of pieces to costs of pairs of slots."""
        sums: dict[Place, dict[Place, float]] = {joined: {} for joined in slot_of.values()}
        for place, neighbours in costs.items():
            joined = slot_of[place]
            mine = sums[joined]
            for other, cost in neighbours:
                target = slot_of[other]
                if target is not joined:
                    mine[target] = mine.get(target, 0.0) + cost
        return {joined: list(mine.items()) for joined, mine in sums.items()}

    def packed(self) -> bool:
        """Place all slots, the largest first; return whether that was possible.

        A slot without room pushes out the ones that are cheapest to place again, which then wait
        for their turn. A slot that was pushed out often counts as more expensive, so that two slots
        do not push each other out for ever.
        """
        self._clear()
        waiting = sorted(self.places, key=lambda place: (-place.rows, place.first))
        moved: dict[Place, int] = {}
        # Bounded, as slots may push each other out in a circle.
        for _ in range(len(waiting) * MOVES):
            if not waiting:
                return True
            waiting += self._pushed(waiting.pop(0), moved)
        return not waiting

    def _pushed(self, place: Place, moved: dict[Place, int]) -> list[Place]:
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

    def _moved(self, place: Place, base: int, moved: dict[Place, int]) -> list[Place]:
        """Place a slot at ``base``, and return the slots that lay there, now without an address."""
        gone = self._under(place, base)
        for other in gone:
            other.base = -1
            self.parts.pop(other, None)
            moved[other] = moved.get(other, 0) + 1
        self._put(place, base)
        return sorted(gone, key=lambda other: -other.rows)

    def _bases(self, place: Place) -> list[int]:
        """Return addresses next to other slots and at the ends of banks."""
        rows, top = place.rows, self.p.scratchpad_rows
        ends = {*range(0, top + 1, self.size)}
        for other in self.meets[place]:
            if other.base >= 0:
                ends |= {other.base, other.base + other.rows}
        bases = {end for end in ends if end + rows <= top} | {e - rows for e in ends if e >= rows}
        return sorted(bases)

    def _under(self, place: Place, base: int) -> list[Place]:
        """Return the slots that would share rows with a slot at ``base`` at the same time."""
        stop = base + place.rows
        return [o for o in self.meets[place] if 0 <= o.base < stop and base < o.base + o.rows]

    def improved(self, tries: int) -> None:
        """Move slots that cost something, and those in their way, as long as costs fall."""
        costly: list[Place] = []
        count("placed", tries)
        for number in range(tries):
            if number % LOOK == 0:
                costly = [place for place in self.places if self._costs(place)]
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

    def _cost_of(self, place: Place) -> float:
        """Return the cycles that a slot costs where it lies."""
        low, high = place.base, place.base + place.rows
        banks = self._banks(place)
        waits = sum(c for o, c in self.waits[place] if o.base < high and low < o.base + o.rows)
        return sum(banks[bank] * part for bank, part in self.parts[place]) + waits


def slotted(issue: Issue, p: AcceleratorParameters) -> Iterator[Addresses]:
    """Yield addresses that give each piece the rows of a slot, for each distance of ``APART``."""
    pieces = Placement(issue, p)
    if not fits(pieces.fullest, p):
        return
    for apart in APART:
        slots = SlotPlacement(pieces, apart)
        if slots.packed():
            slots.improved(TRIES)
            yield slots.addresses

"""Slices in places that they share in turn, how many there are at once, and what stays loaded."""

import random
from dataclasses import replace
from itertools import pairwise

import pytest

from trainwright.compiler.base.errors import CompileError
from trainwright.compiler.forms.calls import Accumulate, Call
from trainwright.compiler.forms.choices import ProgramSpec
from trainwright.compiler.forms.layout import Addresses, Layout, Part, Piece, Storage
from trainwright.compiler.schedule.place import Place, Placement, places_of
from trainwright.compiler.schedule.schedule import Issue
from trainwright.compiler.schedule.slots import REACH, SlotPlacement, slots_of, slotted
from trainwright.compiler.schedule.tight import MORE, tight
from trainwright.compiler.step import lower as lower_module
from trainwright.graph.ir import Graph
from trainwright.parameters import AcceleratorParameters, preset
from trainwright.program.fields import Engine
from trainwright.timing import MemoryTiming, predict

P = AcceleratorParameters(scratchpad_rows=256, lanes=8)


def piece(name: str, rows: int) -> Part:
    layout = Layout(("row",), ("lane",))
    return Part(Piece.new(name, layout, {"row": rows, "lane": 8}, {}, 8), {})


def sliced(count: int, *, ahead: int = 0) -> Issue:
    """Issue commands on slices of two tensors, b made of a and two constants.

    ``ahead`` slices of a are made before the first slice of b.
    """
    x, y = piece("x", 32), piece("y", 24)

    def made(engine: Engine, z: Part, first: Part, second: Part) -> Call:
        return Accumulate(engine=engine, cycles=100, reads=(first, second), writes=(z,), last=True)

    slices = [piece("a", 40) for _ in range(count)]
    first = [(100.0 * n, made(Engine.PE1, a, x, y)) for n, a in enumerate(slices)]
    second = [(100.0 * (n + 1), made(Engine.PE2, piece("b", 16), a, x))
              for n, a in enumerate(slices)]  # fmt: skip
    order = first[:ahead]
    for n, call in enumerate(second):
        order += [*first[ahead + n : ahead + n + 1], call]
    times = tuple((start, start + 100) for start, _ in order)
    return Issue(tuple(call for _, call in order), times, 16)


@pytest.mark.parametrize("apart", (0, 2, 5))
def test_slices_share_places_apart(apart):
    places = places_of(sliced(12).calls)
    slots = slots_of(places, apart)
    assert sorted(id(place) for slot in slots for place in slot) == sorted(map(id, places))
    for slot in slots:
        assert len({(place.name, place.rows) for place in slot}) == 1
        for before, after in pairwise(slot):
            assert apart < after.first - before.last <= REACH + apart
    count = sum(slot[0].name == "a" for slot in slots)
    assert count == {0: 1, 2: 2, 5: 4}[apart]


def overlaps(issue: Issue, addresses: Addresses) -> list[tuple[str, str]]:
    """Return pieces that are alive together in the same rows."""
    lives = [(place, addresses[place.storages[0]]) for place in places_of(issue.calls)]
    return [
        (place.name, other.name)
        for n, (place, base) in enumerate(lives)
        for other, beside in lives[:n]
        if place.first <= other.last and other.first <= place.last
        and base < beside + other.rows and beside < base + place.rows
    ]  # fmt: skip


@pytest.mark.parametrize("seed", range(4))
def test_places_do_not_overlap_and_get_no_worse(seed):
    calls = sliced(10 + seed, ahead=seed % 2)
    pieces = Placement(calls, P)
    slots = SlotPlacement(pieces, 2)
    slots.random = random.Random(seed)
    assert slots.packed()
    before = slots.cost
    slots.improved(200)
    assert slots.cost <= before
    assert overlaps(calls, slots.addresses) == []
    for place, slot in slots.slots.items():
        assert {slots.addresses[piece.storages[0]] for piece in slot} == {place.base}
        assert 0 <= place.base <= P.scratchpad_rows - place.rows


def test_lowering_slots_one_that_has_no_room_is_placed_before_others():
    """At the most 128 of 128 rows are in use at once, and places hold them longer."""
    small = replace(P, scratchpad_rows=128, scratchpad_banks=2)
    calls = sliced(6)
    pieces = Placement(calls, small)
    assert sum(place.rows for place in pieces.fullest) <= 128
    slots = SlotPlacement(pieces, 0)
    assert slots.packed()
    assert overlaps(calls, slots.addresses) == []


def test_lowering_slots_all_ways_to_share_places_are_placements():
    calls = sliced(9)
    placements = list(slotted(calls, P))
    assert len(placements) == 2 and not any(overlaps(calls, at) for at in placements)
    tops = [max(base + s.rows for s, base in at.items()) for at in placements]
    assert all(0 < top <= P.scratchpad_rows for top in tops)
    tight_rows = replace(P, scratchpad_rows=64, scratchpad_banks=2)
    assert list(slotted(calls, tight_rows)) == []  # more rows at once than there are


@pytest.mark.parametrize("ahead", (0, 1, 3))
def test_lowering_slots_array_runs_ahead_by_some_slices_alone(ahead):
    """However many rows there are, and in whatever order the operations come."""
    calls = sliced(12, ahead=ahead).calls
    most = max_alive(calls, "a")
    (issue,) = tight(calls, 16, 1 << 16, [200])
    assert sorted(map(id, issue.calls)) == sorted(map(id, calls))
    assert max_alive(issue.calls, "a") <= most + MORE


def max_alive(calls, name: str) -> int:
    """Return the greatest number of slices of a tensor that are alive at once."""
    lives = [place for place in places_of(calls) if place.name == name]
    return max(sum(o.first <= n <= o.last for o in lives) for n in range(len(calls)))


def test_lowering_slots_follow_memory_of_programs():
    assert MemoryTiming.of(AcceleratorParameters()) == MemoryTiming()
    sdram = preset("ecp5-85f-sdram")
    assert MemoryTiming.of(sdram).bandwidth == sdram.memory_rate / sdram.beat_bytes == 0.25
    with pytest.raises(ValueError, match=r"memory_rate must be at most lanes \(8\), not 9"):
        replace(sdram, memory_rate=9)
    program = []
    assert predict(program, sdram) == predict(program, sdram, MemoryTiming(bandwidth=0.25))


def life(name: str, rows: int, first: int, last: int) -> Place:
    return Place(name, rows, first, last, (Storage(name, rows),))


def shared(*lives: Place, apart: int = 2) -> list[list[Place]]:
    return slots_of(lives, apart)


def test_lowering_slots_place_that_is_free_longest_is_taken():
    first, two, three = life("a", 8, 0, 10), life("a", 8, 5, 12), life("a", 8, 20, 25)
    assert shared(two, three, first) == [[first, three], [two]]


def test_lowering_slots_place_is_given_up_after_a_while():
    first = life("a", 8, 0, 10)
    for gap, count in ((2, 2), (3, 1), (REACH + 2, 1), (REACH + 3, 2)):
        assert len(shared(first, life("a", 8, 10 + gap, 100))) == count


def test_slices_of_another_size_or_tensor_have_places_of_their_own():
    first = life("a", 8, 0, 1)
    assert len(shared(first, life("a", 7, 9, 10))) == 2
    assert len(shared(first, life("b", 8, 9, 10))) == 2


def slots_for(count: int, p: AcceleratorParameters = P, *, apart: int = 2) -> SlotPlacement:
    return SlotPlacement(Placement(sliced(count), p), apart)


def test_costs_of_places_are_those_of_their_pieces():
    pieces = Placement(sliced(12), P)
    slots, slot_of = SlotPlacement(pieces, 2), {}
    for place, slot in slots.slots.items():
        slot_of |= dict.fromkeys(slot, place)
    assert any(len(slot) > 2 for slot in slots.slots.values())
    for mine, theirs in ((slots.near, pieces.near), (slots.waits, pieces.waits)):
        total = {}
        for life, costs in theirs.items():
            for other, cost in costs:
                if slot_of[life] is not slot_of[other]:
                    key = slot_of[life], slot_of[other]
                    total[key] = total.get(key, 0.0) + cost
        by_pair = {(life, other): cost for life, costs in mine.items() for other, cost in costs}
        assert by_pair == pytest.approx(total) and total
    for place, neighbours in slots.meets.items():
        meeting = {slot_of[o] for piece in slots.slots[place] for o in pieces.meets[piece]}
        assert set(neighbours) == meeting and len(neighbours) == len(meeting)
        first, last = slots.slots[place][0].first, slots.slots[place][-1].last
        assert (place.first, place.last) == (first, last)
    assert slots.shared == pieces.shared


def test_lowering_slots_cost_of_all_places_is_the_sum_over_them():
    slots = slots_for(12)
    assert slots.packed()
    for place in slots.places:  # all in two banks, so that it costs something
        slots._put(place, place.base % 96)
    assert sum(map(slots._cost_of, slots.places)) / 2 + slots.shared == pytest.approx(slots.cost)
    assert any(slots.waits.values()) and slots.cost > slots.shared


def by_hand(bases: dict[str, int], rows: dict[str, int]) -> tuple[SlotPlacement, dict[str, Place]]:
    """Return places that exist at the same time."""
    slots = slots_for(1)
    places = {name: Place(name, rows[name], 0, 9, (), base) for name, base in bases.items()}
    slots.places = list(places.values())
    slots.meets = {p: [o for o in places.values() if o is not p] for p in places.values()}
    slots.near = {place: [] for place in places.values()}
    slots.waits = {place: [] for place in places.values()}
    slots.parts = {p: slots.in_banks(p.base, p.rows) for p in places.values() if p.base >= 0}
    return slots, places


def test_lowering_slots_find_occupants_of_a_place():
    slots, at = by_hand({"a": -1, "b": 0, "c": 40, "d": 100}, {"a": 20, "b": 30, "c": 20, "d": 9})
    for base, under in (
        (10, "b"),
        (30, "c"),
        (20, "b"),
        (21, "bc"),
        (29, "bc"),
        (60, ""),
        (81, "d"),
    ):
        assert slots._under(at["a"], base) == [at[name] for name in under], base
    slots.meets[at["a"]].remove(at["b"])  # not there at the same time
    assert slots._under(at["a"], 10) == []


def test_addresses_that_are_tried():
    """Beside others, before and after, and at both ends of banks; inside of the scratchpad."""
    slots, at = by_hand({"a": -1, "b": 10, "c": -1}, {"a": 20, "b": 30, "c": 5})
    banks = {0, 64, 128, 192} | {44, 108, 172, 236}
    assert P.bank_rows == 64 and slots._bases(at["a"]) == sorted(banks | {10, 40, 20})


def test_lowering_slots_evict_fewest_rows_and_rarest_moves(monkeypatch):
    small = replace(P, scratchpad_rows=64, scratchpad_banks=1)
    slots, at = by_hand({"a": -1, "b": 0, "c": 40}, {"a": 30, "b": 40, "c": 24})
    slots.p, slots.size, slots.banks = small, 64, range(1)
    for place in (at["b"], at["c"]):
        slots._put(place, place.base)
    moved: dict[Place, int] = {}
    assert slots._pushed(at["a"], moved) == [at["b"]]  # c leaves no room at any address: b must go
    assert at["a"].base in (0, 10) and at["b"].base == -1 and at["b"] not in slots.parts
    assert moved == {at["b"]: 1}
    slots, at = by_hand({"a": -1, "b": 0, "c": 32}, {"a": 30, "b": 32, "c": 31})
    slots.p, slots.size, slots.banks = small, 64, range(1)
    for place in (at["b"], at["c"]):
        slots._put(place, place.base)
    assert slots._pushed(at["a"], {at["c"]: 1}) == [at["b"]]  # the larger one, as c went before
    slots, at = by_hand({"a": -1, "b": 0, "c": 32}, {"a": 30, "b": 32, "c": 31})
    slots.p, slots.size, slots.banks = small, 64, range(1)
    for place in (at["b"], at["c"]):
        slots._put(place, place.base)
    assert slots._pushed(at["a"], {}) == [at["c"]]


def test_places_come_in_order_of_rows_and_are_given_up(monkeypatch):
    slots, _ = by_hand({"a": -1, "b": -1, "c": -1}, {"a": 8, "b": 40, "c": 24})
    order = []
    monkeypatch.setattr(slots, "_pushed", lambda place, moved: order.append(place.name) or [])
    assert slots.packed() and order == ["b", "c", "a"]
    small = replace(P, scratchpad_rows=64, scratchpad_banks=1)
    slots, _ = by_hand({"a": -1, "b": -1}, {"a": 40, "b": 40})
    slots.p, slots.size, slots.banks = small, 64, range(1)
    assert not slots.packed()


def test_lowering_slots_move_that_is_worse_or_has_no_room_is_taken_back(monkeypatch):
    slots = slots_for(12)
    assert slots.packed()
    before = {place: place.base for place in slots.places}
    parts = {place: list(slots.parts[place]) for place in slots.places}
    monkeypatch.setattr(slots, "_costs", lambda place: True)
    count = iter(range(1 << 20))
    monkeypatch.setattr(slots, "_cost_of", lambda place: next(count))
    slots.improved(60)  # whatever moves costs more than before
    assert {place: place.base for place in slots.places} == before
    assert {place: list(slots.parts[place]) for place in slots.places} == parts


def test_three_ways_to_compute_blocks_are_placed(monkeypatch):
    """Variants of which nothing fits do not count."""

    class Ways:
        spec, problems = ProgramSpec(Graph({}, {}, (), (), ()), {}, {}, P), []
        asked = 0

        def best(self):
            for way in ("a", "-", "b", "c", "d"):
                self.asked += 1
                yield [Way(f"{way}{room}") for room in range(2)]

        @staticmethod
        def time(way):
            return len(way)

    class Way(str):
        issue = property(lambda self: self)

        def placed(self, addresses):
            assert addresses == {}
            return self

    def place(issue, p, *, stores):
        assert p is P and stores
        if issue.startswith("-"):
            raise CompileError("no")
        return {}

    monkeypatch.setattr(lower_module, "place", place)
    ways = Ways()
    chosen = lower_module._blocked(ways)
    assert [way for _, _, way in chosen] == ["a0", "a1", "b0", "b1", "c0", "c1"]
    assert ways.asked == 4 and [str(error) for error in ways.problems] == ["no", "no"]

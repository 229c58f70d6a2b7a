"""Slices in places that they share in turn, how many there are at once, and what stays loaded."""

import random
from dataclasses import replace
from itertools import pairwise

import pytest

from trainwright.lowering.calls import Accumulate, Call
from trainwright.lowering.layout import Layout, Part, Piece, Storage
from trainwright.lowering.place import Placement, lifetimes
from trainwright.lowering.schedule import group_of
from trainwright.lowering.slots import REACH, Slots, slots_of, slotted
from trainwright.lowering.tight import MORE, tight
from trainwright.parameters import AcceleratorParameters, preset
from trainwright.program.fields import Engine
from trainwright.timing import MemoryTiming, predict

P = AcceleratorParameters(scratchpad_rows=256, lanes=8)


def piece(name: str, rows: int) -> Piece:
    layout = Layout(("row",), ("lane",))
    return Piece(name, layout, {"row": rows, "lane": 8}, {}, 8, Storage(name, rows))


def sliced(count: int, *, ahead: int = 0) -> list[Call]:
    """Commands on slices of two tensors, b made of a and two constants; ``ahead`` slices of a are
    made before the first of b."""
    x, y = piece("x", 32), piece("y", 24)

    def made(engine: Engine, z: Piece, first: Piece, second: Piece, start: float) -> Call:
        call = Accumulate(
            engine=engine, cycles=100, reads=(first, second), writes=(z,),
            x=Part(first, {}), z=Part(z, {}), last=True,
        )  # fmt: skip
        call.start, call.end = start, start + 100
        return call

    slices = [piece("a", 40) for _ in range(count)]
    first = [made(Engine.PE1, a, x, y, 100.0 * n) for n, a in enumerate(slices)]
    second = [made(Engine.PE2, piece("b", 16), a, x, 100.0 * (n + 1)) for n, a in enumerate(slices)]
    order = first[:ahead]
    for n, call in enumerate(second):
        order += [*first[ahead + n : ahead + n + 1], call]
    return order


@pytest.mark.parametrize("apart", (0, 2, 5))
def test_slices_share_places_apart(apart):
    lives = lifetimes(sliced(12))
    slots = slots_of(lives, apart)
    assert sorted(id(life) for slot in slots for life in slot) == sorted(map(id, lives.values()))
    for slot in slots:
        assert len({group_of(life.storage) for life in slot}) == 1
        for before, after in pairwise(slot):
            assert apart < after.first - before.last <= REACH + apart
    count = sum(slot[0].storage.name == "a" for slot in slots)
    assert count == {0: 1, 2: 2, 5: 4}[apart]


def overlaps(placement: Placement) -> list[tuple[str, str]]:
    """Pieces that are alive together in the same rows."""
    lives = list(placement.lives.values())
    return [
        (one.storage.name, other.storage.name)
        for n, one in enumerate(lives)
        for other in lives[:n]
        if one.first <= other.last and other.first <= one.last
        and one.storage.base < other.storage.base + other.storage.rows
        and other.storage.base < one.storage.base + one.storage.rows
    ]  # fmt: skip


@pytest.mark.parametrize("seed", range(4))
def test_places_do_not_overlap_and_get_no_worse(seed):
    calls = sliced(10 + seed, ahead=seed % 2)
    pieces = Placement(calls, P)
    slots = Slots(pieces, 2)
    slots.random = random.Random(seed)
    assert slots.packed()
    before = slots.cost
    slots.improved(200)
    assert slots.cost <= before
    slots.apply()
    assert overlaps(pieces) == []
    for place, slot in slots.slots.items():
        assert {life.storage.base for life in slot} == {place.base}
        assert 0 <= place.base <= P.scratchpad_rows - place.rows


def test_one_that_has_no_room_is_placed_before_others():
    """At the most 128 of 128 rows are in use at once, and places hold them longer."""
    small = replace(P, scratchpad_rows=128, scratchpad_banks=2)
    calls = sliced(6)
    pieces = Placement(calls, small)
    assert pieces.most <= 128
    slots = Slots(pieces, 0)
    assert slots.packed()
    slots.apply()
    assert overlaps(pieces) == []


def test_all_ways_to_share_places_are_placements():
    calls = sliced(9)
    rows = list(slotted(calls, P))
    assert len(rows) == 2 and all(0 < one <= P.scratchpad_rows for one in rows)
    tight_rows = replace(P, scratchpad_rows=64, scratchpad_banks=2)
    assert list(slotted(calls, tight_rows)) == []  # more rows at once than there are


@pytest.mark.parametrize("ahead", (0, 1, 3))
def test_an_array_runs_ahead_by_some_slices_alone(ahead):
    """However many rows there are, and in whatever order the operations come."""
    calls = sliced(12, ahead=ahead)
    most = max_alive(calls, "a")
    issue = tight(calls, 16, 1 << 16, 200)
    assert sorted(map(id, issue.calls)) == sorted(map(id, calls))
    assert max_alive(issue.calls, "a") <= most + MORE


def max_alive(calls, name: str) -> int:
    """Slices of a tensor that there are at once."""
    lives = [one for one in lifetimes(calls).values() if one.storage.name == name]
    return max(sum(o.first <= n <= o.last for o in lives) for n in range(len(calls)))


def test_the_memory_that_programs_are_compiled_for():
    assert MemoryTiming.of(AcceleratorParameters()) == MemoryTiming()
    sdram = preset("ecp5-85f-sdram")
    assert MemoryTiming.of(sdram).bandwidth == sdram.memory_rate / sdram.beat_bytes == 0.25
    with pytest.raises(ValueError, match=r"memory_rate must be from 0 to lanes \(8\) bytes, not 9"):
        replace(sdram, memory_rate=9)
    program = []
    assert predict(program, sdram) == predict(program, sdram, MemoryTiming(bandwidth=0.25))

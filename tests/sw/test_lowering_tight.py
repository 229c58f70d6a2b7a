"""Programs where rows are short: slices that are alive at once, and the memory's rate."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from trainwright.compiler.base.errors import CompileError, DoesNotFitError
from trainwright.compiler.base.tuning import TUNING
from trainwright.compiler.forms.calls import Call, Elementwise
from trainwright.compiler.forms.choices import ProgramSpec
from trainwright.compiler.forms.layout import Layout, Part, Piece
from trainwright.compiler.schedule.place import Place, Placement, place, places_of
from trainwright.compiler.schedule.schedule import Issue
from trainwright.compiler.schedule.tight import tight
from trainwright.compiler.step import lower as lower_module
from trainwright.compiler.step.drafts import Draft
from trainwright.compiler.tile.tile import Lowered
from trainwright.graph.ir import Graph
from trainwright.parameters import AcceleratorParameters, preset
from trainwright.program.fields import Engine
from trainwright.timing import MemoryTiming, predict

P = AcceleratorParameters(scratchpad_rows=256, lanes=8)
TIGHT_WAIT = TUNING.place.tight_wait


def piece(name: str, rows: int) -> Part:
    layout = Layout(("row",), ("lane",))
    return Part(Piece.new(name, layout, {"row": rows, "lane": 8}, {}, 8), {})


def sliced(count: int, *, ahead: int = 0) -> Issue:
    """Issue commands on slices of two tensors, b made of a and two constants.

    ``ahead`` slices of a are made before the first slice of b.
    """
    x, y = piece("x", 32), piece("y", 24)

    def made(engine: Engine, z: Part, first: Part, second: Part) -> Call:
        return Elementwise(engine=engine, cycles=100, reads=(first, second), writes=(z,))

    slices = [piece("a", 40) for _ in range(count)]
    first = [(100.0 * n, made(Engine.PE1, a, x, y)) for n, a in enumerate(slices)]
    second = [(100.0 * (n + 1), made(Engine.PE2, piece("b", 16), a, x))
              for n, a in enumerate(slices)]  # fmt: skip
    order = first[:ahead]
    for n, call in enumerate(second):
        order += [*first[ahead + n : ahead + n + 1], call]
    times = tuple((start, start + 100) for start, _ in order)
    return Issue(tuple(call for _, call in order), times, 16)


@pytest.mark.parametrize("ahead", (0, 1, 3))
def test_lowering_tight_array_runs_ahead_by_few_slices_only(ahead):
    """However many rows there are, and in whatever order the operations come."""
    calls = sliced(12, ahead=ahead).calls
    most = max_alive(calls, "a")
    (issue,) = tight(calls, 16, 1 << 16, [200])
    assert sorted(map(id, issue.calls)) == sorted(map(id, calls))
    assert max_alive(issue.calls, "a") <= most + TUNING.issue.spare_slices


def max_alive(calls, name: str) -> int:
    """Return the greatest number of slices of a tensor that are alive at once."""
    lives = [place for place in places_of(calls) if place.name == name]
    return max(sum(o.first <= n <= o.last for o in lives) for n in range(len(calls)))


def test_place_without_room_in_usual_orders_tries_the_largest_across_banks(monkeypatch):
    issue, run = sliced(6), Placement.run

    def refuse(self, order, loose, *, first=0):
        if not first:
            raise DoesNotFitError("no room", "")
        run(self, order, loose, first=first)

    monkeypatch.setattr(Placement, "run", refuse)
    at = place(issue, P)
    lives = [(life, at[life.storage]) for life in places_of(issue.calls)]
    for n, (life, base) in enumerate(lives):
        assert 0 <= base <= P.scratchpad_rows - life.rows
        for other, beside in lives[:n]:
            apart = life.first > other.last or other.first > life.last
            assert apart or base >= beside + other.rows or beside >= base + life.rows


def test_placement_with_a_share_of_waiting_lets_banks_decide():
    """Waits count less, conflicts of banks in full."""
    issue = sliced(6)
    full, part = Placement(issue, P), Placement(issue, P, waited=TIGHT_WAIT)

    def costs(pairs: Mapping[Place, Sequence[tuple[Place, float]]]) -> list[float]:
        return [cost for costly in pairs.values() for _, cost in costly]

    assert costs(part.waits) == pytest.approx([TIGHT_WAIT * cost for cost in costs(full.waits)])
    assert costs(full.waits) and costs(part.conflicts) == costs(full.conflicts)


@pytest.mark.parametrize("short", (True, False))
def test_lowering_short_programs_are_placed_by_costs_of_their_own(short, monkeypatch):
    asked, spec = [], ProgramSpec(Graph({}, {}, (), (), ()), {}, {}, P)

    def recorded(issue, p, **costs):
        asked.append(costs)
        return place(issue, p, **costs)

    monkeypatch.setattr(lower_module, "place", recorded)
    monkeypatch.setattr(lower_module, "cycles_of", lambda program, p, which: 7)
    program = Lowered(spec.graph, (), (), {}, 0)
    assert lower_module._timed([Draft(1.0, program, sliced(3))], spec, [], short=short)
    costs = {"tries": TUNING.place.random_orders, "stores": True, "waited": TIGHT_WAIT}
    assert asked == [costs if short else {}]


def test_predict_slow_memory_follows_rate_of_preset():
    assert MemoryTiming.of(AcceleratorParameters()) == MemoryTiming()
    sdram = preset("ecp5-85f-sdram")
    assert MemoryTiming.of(sdram).bandwidth == sdram.memory_rate / sdram.beat_bytes == 0.25
    with pytest.raises(ValueError, match=r"memory_rate must be at most lanes \(8\), not 9"):
        replace(sdram, memory_rate=9)
    program = []
    assert predict(program, sdram) == predict(program, sdram, MemoryTiming(bandwidth=0.25))


def test_lowering_blocks_without_room_count_for_nothing(monkeypatch):
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

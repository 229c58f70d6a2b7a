"""Commands on a time line, beside times worked out by hand."""

import pytest

from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Compute, Halt, Level, Transfer, TransferLevel
from trainwright.program.engines import PE2
from trainwright.program.fields import AHEAD, MOST_REFILL, Engine, Operation
from trainwright.program.vector import Vector
from trainwright.timing.commands import (
    BEATS_AHEAD,
    ISSUE,
    NEST,
    RESOLVED,
    RESOLVED_PASS,
    ROWS_AHEAD,
    CommandWork,
    copied_words,
    issue_cycles,
    program_work,
    work_of,
)
from trainwright.timing.contention import MemoryTiming
from trainwright.timing.timeline import EngineModel, _Fetch, predict

P = AcceleratorParameters()
ALONE = AcceleratorParameters(vector_engine=1, exponents=64, sample_loads=1)
NONE = Engine.NONE


def machine(now: float = 0.0) -> EngineModel:
    return EngineModel(P, MemoryTiming(), now)


def work(engine: Engine, cycles: float, finish: int = 0, **fields) -> CommandWork:
    """Return the work of a command that takes its first step at once."""
    return CommandWork(engine, cycles, 0, finish, **fields)


def transfer(operation: Operation, beats: int, *, runs: int = 1, size: int = 1) -> CommandWork:
    levels = (TransferLevel(runs, address=4096, local=beats),) if runs > 1 else ()
    return work_of(
        Transfer(
            operation=operation, element_bytes=size, address=0, local=0, beats=beats, levels=levels
        ),
        P,
    )  # fmt: skip


def test_load_takes_no_third_command_while_two_are_at_work():
    engines, load = machine(), transfer(Operation.LOAD, 8)
    engines.start(0, load)
    engines.advance(NEST + load.requests)
    assert engines.takes(load, NONE, NONE)
    engines.start(1, load)
    engines.advance(engines.now + NEST + load.requests)
    assert len(engines.running[Engine.LOAD]) == 2
    assert not engines.takes(load, NONE, NONE)


@pytest.mark.parametrize(
    ("bursts", "beats", "cycles_a_beat"),
    [
        (1, 1, 42),
        (2, 1, 21),
        (1, 4, (43 + 2 * 1.25) / 4),
        (1, 256, (43 + 6 * 1.25) / 8),
        (32, 16, 1.25),
    ],
)
def test_program_of_few_beats_in_flight_waits_for_the_memory(bursts, beats, cycles_a_beat):
    """A burst has its first beat after 42 cycles, and ends with its descriptor of eight beats."""
    p = AcceleratorParameters(outstanding_bursts=bursts, burst_beats=beats)
    halts = [predict([Halt()] * count, p).cycles for count in (10, 110)]
    assert halts[1] - halts[0] == pytest.approx(100 * 8 * cycles_a_beat, abs=1)
    load = program_work(4, p)
    engines = EngineModel(p, MemoryTiming(), 0.0)
    engines.issue(0, load)
    engines.await_engines(Engine.LOAD)
    ((_, end),) = engines.spans
    assert end - load.start - load.finish - 40 == pytest.approx(4 * 8 * cycles_a_beat)


def test_older_commands_are_done_when_the_last_row_of_the_one_before_is_out():
    engines, other = machine(), work(Engine.PE1, 5)
    engines.start(0, work(Engine.PE2, 10, finish=100))
    engines.start(1, work(Engine.PE2, 5, finish=100))
    engines.advance(20)
    assert not engines.running[Engine.PE2]
    assert not engines.takes(other, NONE, Engine.PE2)
    engines.advance(110)
    assert engines.takes(other, NONE, Engine.PE2)
    assert not engines.takes(other, Engine.PE2, NONE)
    engines.advance(115)
    assert engines.takes(other, Engine.PE2, NONE)


def test_older_commands_of_load_are_done_when_all_are():
    engines = machine()
    engines.start(0, transfer(Operation.LOAD, 64))
    assert not engines.takes(work(Engine.PE1, 5), NONE, Engine.LOAD)
    assert engines.takes(work(Engine.PE1, 5), NONE, Engine.STORE)


def test_array_takes_a_command_while_rows_leave_but_not_behind_a_pass():
    for copied in (0, 12):
        engines = machine()
        engines.start(0, work(Engine.PE2, 10, finish=30, copied=copied))
        engines.advance(12)
        assert engines.takes(work(Engine.PE2, 10), NONE, NONE) == (not copied)
        engines.advance(40)
        assert engines.takes(work(Engine.PE2, 10), NONE, NONE)


def test_sequencer_that_waited_issues_a_cycle_later():
    engines = machine()
    engines.await_engines(Engine.PE1)
    assert engines.now == 0
    engines.start(0, work(Engine.PE1, 10, finish=5))
    engines.await_engines(Engine.PE1)
    assert engines.now == 16
    engines.await_engines(Engine.PE1)
    assert engines.now == 16


def test_load_of_the_program_is_awaited_from_the_cycle_in_which_it_begins():
    engines = machine(7.0)
    engines.start(-1, transfer(Operation.LOAD, 64))
    engines.until_loaded(7.0)
    assert not engines.running[Engine.LOAD] and engines.now > 7 + 64 / 0.8


def test_descriptors_of_the_next_time_are_fetched_few_ahead():
    """Up to the end as many descriptors are there as fit, of the next time at most AHEAD."""
    for asked, ahead in ((500, P.program_depth), (600, AHEAD)):
        for number, loads in ((ahead - MOST_REFILL + 1, 0), (ahead - MOST_REFILL, 1)):
            engines, fetch = machine(1.0), _Fetch(600, P, repeated=True)
            fetch.asked = asked
            fetch.before(asked - number, engines)
            assert len(engines.running[Engine.LOAD]) == loads
            assert fetch.asked == asked + MOST_REFILL * loads


def test_addresses_of_a_transfer_are_generated_by_burst_or_by_row():
    short = transfer(Operation.LOAD, 1, runs=100)
    assert (short.requests, short.flying, short.ahead, short.burst) == (100, 32, 32, 1)
    long = transfer(Operation.LOAD, 64, size=2)
    assert (long.requests, long.flying, long.ahead, long.burst) == (4, 512, BEATS_AHEAD, 16)
    store = transfer(Operation.STORE, 64, size=2)
    assert (store.requests, store.ahead) == (32, 2 * ROWS_AHEAD)


def test_issue_waits_for_shifts_and_scalars_of_the_exponent_file():
    product = Compute(operation=Operation.BIAS, levels=(Level(1),), x=0, g=0, z=0)
    by_file = Compute(operation=Operation.BIAS, levels=(Level(1),), x=0, g=0, z=0, z_exponent=1)
    a_pass = Vector(entry=0, length=1, outer=1, inner=1, streams=(), reads=0, writes=0)
    assert [issue_cycles(d, ALONE) for d in (product, by_file, a_pass)] == [
        ISSUE, ISSUE + RESOLVED, ISSUE + RESOLVED_PASS,
    ]  # fmt: skip
    assert issue_cycles(a_pass, AcceleratorParameters(vector_engine=1)) == ISSUE


def test_pass_is_copied_by_its_streams_or_by_streams_and_scalars():
    engine = {"vector_engine": 1, "engine_lanes": 8}
    sizes = [{"vector_engine": 1}, {"vector_engine": 1, "exponents": 64}, engine]
    assert [copied_words(AcceleratorParameters(**size)) for size in sizes] == [8, 12, 16]


def test_array_drains_only_the_rows_of_a_short_tile():
    assert [PE2.cycles(10, 1, digits, P, 2) for digits in (1, 2)] == [20, 40]
    assert PE2.cycles(10, 1, 1, P) == 10 * P.pe2_rows

"""Cycles of arrays by cause, beside runs whose causes are worked out by hand."""

from dataclasses import replace
from functools import cache
from itertools import pairwise

from trainwright.accelerator import CommandRecord
from trainwright.compiler import compile_step
from trainwright.network import load_network
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Compute, End, Halt, Loop, Transfer
from trainwright.program.fields import Engine, Operation
from trainwright.timing import predict
from trainwright.timing.commands import LATENCIES, work_of
from trainwright.timing.lost import lost_cycles
from trainwright.timing.profile import predicted

P = AcceleratorParameters()
PE1_ENDS = LATENCIES[Engine.PE1].finish(P) + P.pe1_rows


@cache
def forward():
    return compile_step(load_network("digits"), 16, P).forward.descriptors


def command(number: int, engine: Engine, start: int, end: int, stalls=(0, 0)) -> CommandRecord:
    return CommandRecord(number, engine, start, end, *stalls)


def product(engine: Engine, **changes) -> Compute:
    """Return a contraction of an array in the program of digits, with other waits."""
    operation = {Engine.PE1: Operation.PE4, Engine.PE2: Operation.PE3}[engine]
    causes = next(d for d in forward() if isinstance(d, Compute) and d.operation is operation)
    return replace(causes, **changes)


def load():
    return next(d for d in forward() if isinstance(d, Transfer))


def by_cause(descriptors, commands, cycles, engine: str):
    lines = lost_cycles("forward", descriptors, commands, cycles, P)
    return {line.cause: (line.cycles, line.number) for line in lines if line.engine == engine}


def test_lost_cycles_names_the_load_that_an_array_waits_for():
    d = product(Engine.PE1, wait=Engine.LOAD, wait_older=Engine.NONE)
    work = int(work_of(d, P).cycles)
    commands = [
        command(-1, Engine.LOAD, 0, 30),
        command(0, Engine.LOAD, 30, 100),
        command(1, Engine.PE1, 104, 104 + work + 60, (11, 5)),
    ]
    causes = by_cause([load(), d, Halt()], commands, 104 + work + 60 + 9, "PE1")
    # LOAD takes descriptor 0 at 30, and the array its own at 104, 4 cycles after the load's end.
    assert causes["wait for LOAD"] == (100, 0)
    assert causes["issue"] == (4, 1)
    assert causes["operands awaited"][0] + causes["pipeline fills"][0] == 60 - 5
    assert causes["results blocked"] == (5, 1)
    assert causes["no work left"] == (9, None)
    parts = ("computing", "rows not written", "results drained")
    assert sum(causes.get(part, (0,))[0] for part in parts) == work


def test_lost_cycles_names_the_array_that_holds_back_the_other():
    first = product(Engine.PE1, wait=Engine.NONE, wait_older=Engine.NONE)
    second = product(Engine.PE2, wait=Engine.PE1, wait_older=Engine.NONE)
    commands = [command(0, Engine.PE1, 0, 500), command(1, Engine.PE2, 520, 900)]
    causes = by_cause([first, second], commands, 900, "PE2")
    assert causes["wait for PE1"] == (500, 0)
    assert causes["issue"] == (20, 1)


def test_lost_cycles_takes_results_that_leave_as_no_obstacle():
    """An array takes a command while the last rows of the one before leave, unless it waits."""
    first = product(Engine.PE1, wait=Engine.NONE, wait_older=Engine.NONE)
    for wait, waited in ((Engine.NONE, 0), (Engine.PE1, PE1_ENDS)):
        second = product(Engine.PE1, wait=wait, wait_older=Engine.NONE)
        third = product(Engine.PE2, wait=Engine.NONE, wait_older=Engine.NONE)
        released = 1000 - PE1_ENDS + waited
        begin = released + 3
        commands = [
            command(0, Engine.PE1, 0, 1000),
            command(1, Engine.PE1, begin, 2000),
            command(2, Engine.PE2, begin + 4, 2100),
        ]
        causes = by_cause([first, second, third], commands, 2100, "PE2")
        assert causes["wait for PE1"] == (released, 0)
        assert causes["issue"] == (3 + 4, 2)


def test_lost_cycles_waits_for_the_command_before_the_last():
    """``wait_older`` holds a command back until all but the last of an array are done."""
    first = product(Engine.PE1, wait=Engine.NONE, wait_older=Engine.NONE)
    other = product(Engine.PE2, wait=Engine.NONE, wait_older=Engine.PE1)
    commands = [
        command(0, Engine.PE1, 0, 400),
        command(1, Engine.PE1, 378, 900),
        command(2, Engine.PE2, 405, 1000),
    ]
    causes = by_cause([first, first, other], commands, 1000, "PE2")
    # Up to 375 descriptor 1 is held back by 0, which takes steps; from 378 on 2 is, by 0's results.
    assert causes["wait for PE1"] == (400 - PE1_ENDS + 22, 0)
    assert causes["issue"] == (PE1_ENDS - 22 + 5, 2)


def test_lost_cycles_lets_an_array_have_two_commands_in_flight():
    """A third command is taken when the first one's last result is out."""
    first = product(Engine.PE1, wait=Engine.NONE, wait_older=Engine.NONE)
    other = product(Engine.PE2, wait=Engine.NONE, wait_older=Engine.NONE)
    commands = [
        command(0, Engine.PE1, 0, 400),
        command(1, Engine.PE1, 1, 387 + PE1_ENDS),
        command(2, Engine.PE1, 406, 900),
        command(3, Engine.PE2, 410, 1000),
    ]
    causes = by_cause([first, first, first, other], commands, 1000, "PE2")
    assert causes["wait for PE1"] == (400, 0)
    assert causes["issue"] == (6 + 4, 2)


def test_lost_cycles_waits_for_all_engines_before_a_loop():
    first = product(Engine.PE1, wait=Engine.NONE, wait_older=Engine.NONE)
    other = product(Engine.PE2, wait=Engine.NONE, wait_older=Engine.NONE)
    commands = [command(0, Engine.PE1, 0, 400), command(2, Engine.PE2, 404, 600)]
    causes = by_cause([first, Loop(iterations=1), other, End()], commands, 600, "PE2")
    assert causes["wait for PE1"] == (400, 0)


def test_lost_cycles_before_a_predicted_run_are_the_load_of_the_program():
    d = product(Engine.PE1, wait=Engine.NONE, wait_older=Engine.NONE)
    causes = by_cause([d], [command(0, Engine.PE1, 60, 400)], 400, "PE1")
    assert causes["wait for LOAD"] == (60, -1)


def test_lost_cycles_waits_for_all_engines_behind_a_loop():
    body = product(Engine.PE1, wait=Engine.NONE, wait_older=Engine.NONE)
    store = product(Engine.PE2, wait=Engine.NONE, wait_older=Engine.NONE)
    program = [Loop(iterations=2), body, store, End(), Halt()]
    commands = [
        command(1, Engine.PE1, 0, 300),
        command(2, Engine.PE2, 10, 700),
        command(1, Engine.PE1, 710, 1000),
        command(2, Engine.PE2, 720, 1300),
    ]
    causes = by_cause(program, commands, 1300, "PE1")
    assert causes["wait for PE2"] == (400, 2)
    assert causes["no work left"] == (300, None)


def test_lost_cycles_of_each_array_add_up_to_the_run():
    looped = [Loop(iterations=3), *forward()[:-1], End(), Halt()]
    backward = compile_step(load_network("digits"), 16, P).backward.descriptors
    for program in (forward(), backward, looped):
        timeline = predict(program, P)
        lines = lost_cycles("", program, predicted(timeline), timeline.cycles, P)
        for engine in ("PE1", "PE2"):
            own = [line for line in lines if line.engine == engine]
            assert abs(sum(line.cycles for line in own) - timeline.cycles) <= len(own) / 2
            assert all(line.cycles >= 0 for line in own)


def test_timeline_lists_every_execution_of_nested_loops():
    first, second = product(Engine.PE1), product(Engine.PE2)
    program = [
        first, Loop(iterations=3), second, Loop(iterations=2), first, End(), End(), first, Halt(),
    ]  # fmt: skip
    timeline = predict(program, P)
    runs = timeline.executions()
    assert [run.number for run in runs] == [0, *(2, 4, 4) * 3, 7]
    # Loops wait for all engines: bodies never overlap, and the last run ends as the program does.
    assert all(a.end <= b.start for a, b in pairwise(runs[:-1]))
    assert runs[-1].end <= timeline.cycles < runs[-1].end + 20

"""Programs of more tensors than statistics slots: several runs, the same bits and statistics."""

import numpy as np
import pytest
from graph_cases import deep_network

from trainwright.accelerator import Counters
from trainwright.accelerator.interface import CommandRecord, Run, Trace
from trainwright.accelerator.segmented import run_segments
from trainwright.check.step import random_inputs
from trainwright.compiler.step.compile import compile_network
from trainwright.driver import Driver
from trainwright.fixed.random_bits import STREAM_STEP
from trainwright.golden.backend import GoldenAccelerator
from trainwright.network import network_from_dict
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Compute, Halt, Level, Loop, Program, Set
from trainwright.program.errors import ProgramError
from trainwright.program.fields import Engine, Operation
from trainwright.program.segments import segments

FEW = AcceleratorParameters(statistics_depth=8)
MANY = AcceleratorParameters()


def compute(slot):
    bias, levels = Operation.BIAS, (Level(1),)
    return Compute(operation=bias, levels=levels, x=0, g=1, z=2, slot=slot, tensor=f"t{slot}")


def program(*slots, before=()):
    descriptors = (*before, *map(compute, slots), Halt())
    names = tuple(f"t{n}" for n in range(max(slots) + 1))
    return Program(descriptors, FEW.fingerprint, names)


def test_segments_program_is_divided_where_slots_run_out():
    parts = segments(program(0, 1, 0, 2, 1, 3), 2)
    assert [part.slots for part in parts] == [(0, 1), (2, 1), (3,)]
    assert [part.program.slots for part in parts] == [("t0", "t1"), ("t2", "t1"), ("t3",)]
    own = [[d.slot for d in part.program.descriptors if isinstance(d, Compute)] for part in parts]
    assert own == [[0, 1, 0], [0, 1], [0]]
    assert [part.numbers for part in parts] == [(0, 1, 2, -1), (3, 4, -1), (5, 6)]
    assert all(isinstance(part.program.descriptors[-1], Halt) for part in parts)


def test_segments_leave_fitting_program_whole():
    whole = program(0, 1, 0)
    (part,) = segments(whole, 2)
    assert part.program is whole


def test_random_bits_go_on():
    seed = Set(values=(), seed=(1 << 32) - 5)
    _, second, third = segments(program(0, 0, 1, 2, before=(seed,)), 1, STREAM_STEP)
    for part, before in ((second, 2), (third, 3)):
        first = part.program.descriptors[0]
        assert isinstance(first, Set)
        assert first.seed == ((1 << 32) - 5 + before * STREAM_STEP) % (1 << 32)


@pytest.mark.parametrize("first", (Loop(iterations=2), Set(values=((1, 3),))))
def test_segments_reject_state_that_no_run_keeps(first):
    with pytest.raises(ProgramError, match="counts 3 tensors, this accelerator has 2 statistics"):
        segments(program(0, 1, 2, before=(first,)), 2)


def test_statistics_are_sums_over_all_runs():
    def run(part):
        slots = np.arange(1, 3)
        trace = Trace(
            np.array([len(part.program.descriptors)]), np.zeros((1, 16), np.int16), (("a", 1),)
        )
        commands = (CommandRecord(0, Engine.PE2, 5, 9, 0, 0),)
        return Run(
            slots, slots * 10, slots * 100, Counters(cycles=7), 1.0, {"pe2": trace}, commands
        )

    whole = run_segments(program(0, 1, 2, 1, 3), 2, run)
    assert whole.sums.tolist() == [1, 4, 1, 1]
    assert whole.saturations.tolist() == [10, 40, 10, 10]
    assert whole.underflows.tolist() == [100, 400, 100, 100]
    assert whole.counters.cycles == 21 and whole.seconds == 3.0
    assert whole.traces and whole.traces["pe2"].addresses.tolist() == [3, 3, 2]
    assert whole.commands and [c.number for c in whole.commands] == [0, 2, 4]
    assert [c.start for c in whole.commands] == [5, 14, 23]


def test_statistics_are_those_of_an_accelerator_with_more_slots():
    network, batch = deep_network(9)
    runs = []
    for p in (FEW, MANY):
        with GoldenAccelerator(p, memory_bytes=1 << 22) as golden:
            driver = Driver(golden, network, batch)
            assert (len(driver.step.backward.tensors) > p.statistics_depth) == (p is FEW)
            given = random_inputs(network, driver, 1)
            forward = driver.forward(given.inputs, given.model, given.scales)
            backward = driver.backward(given.gradient, given.scales)
            runs.append((forward.statistics, backward.statistics, backward.factors))
    assert runs[0][:2] == runs[1][:2]
    assert str(runs[0][2]) == str(runs[1][2])


def thirty_layers():
    inner = {"outputs": [2, 3], "inputs": [3, 2], "ranks": [2], "relu": True}
    layers = [inner] * 29 + [{"outputs": [1, 2], "inputs": [3, 2], "ranks": [2]}]
    return network_from_dict({"classes": 2, "image": [2, 3], "layers": layers})


@pytest.mark.slow
def test_thirty_layers_compile():
    step = compile_network(thirty_layers(), 8, MANY)
    assert len(step.backward.slots) > MANY.statistics_depth
    assert all(d.slot < len(step.backward.slots) for d in step.backward.descriptors
               if isinstance(d, Compute))  # fmt: skip


def test_segments_of_divided_program_are_not_repeated():
    with GoldenAccelerator(FEW, memory_bytes=1 << 12) as golden:
        many = program(*range(FEW.statistics_depth + 1))
        with pytest.raises(ProgramError, match=r"is repeated counts \d+ tensors, this accelerator"):
            golden.repeat(many, 2)

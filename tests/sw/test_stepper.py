"""Programs stopped after each descriptor, held to whole runs of the golden model's C kernel."""

import numpy as np
import pytest

from trainwright.check.step import random_inputs
from trainwright.check.stepping import stepper_of
from trainwright.driver import Driver
from trainwright.golden.backend import GoldenAccelerator
from trainwright.golden.stepper import Stepper
from trainwright.network import load_network
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import End, Halt, Loop, Program, Set
from trainwright.program.errors import ProgramError

BATCH = 8
P = AcceleratorParameters()


@pytest.fixture(scope="module")
def whole():
    """Return both runs of a step, traced, and the memory after each."""
    network = load_network("digits")
    golden = GoldenAccelerator(P, memory_bytes=1 << 22)
    driver = Driver(golden, network, BATCH, trace=True)
    given = random_inputs(network, driver, 0)
    forward = driver.forward(given.inputs, given.model, given.scales).run, golden.read(0, 1 << 22)
    backward = driver.backward(given.gradient, given.scales).run, golden.read(0, 1 << 22)
    return {"forward": forward, "backward": backward}


@pytest.mark.parametrize("part", ["forward", "backward"])
def test_stepper_to_the_end_has_rows_memory_and_statistics_of_a_run(whole, part):
    run, memory = whole[part]
    stepper = stepper_of(load_network("digits"), BATCH, part=part, memory_bytes=1 << 22)
    written = {}
    for step in stepper:
        assert np.array_equal(stepper.state.pad[step.addresses], step.rows)
        if len(step.addresses):
            written.setdefault(step.number, []).append(step)
    for trace in run.traces.values():
        start = 0
        for number, (_, count) in zip(trace.numbers, trace.labels, strict=True):
            step = written[number].pop(0)
            assert np.array_equal(step.addresses, trace.addresses[start : start + count])
            assert np.array_equal(step.rows, trace.rows[start : start + count])
            start += count
    assert not any(written.values())
    assert np.array_equal(stepper.state.memory, memory)
    for counted in ("sums", "saturations", "underflows"):
        assert np.array_equal(getattr(stepper, counted), getattr(run, counted))


def test_stepper_run_to_executes_nothing_behind(whole):
    stepper = stepper_of(load_network("digits"), BATCH, memory_bytes=1 << 22)
    step = stepper.run_to(5)
    assert step.number == 5
    assert next(stepper).number == 6


def looping(iterations):
    body = (Loop(iterations=iterations), Set(values=((2, 7),)), End(steps=((1, 3),)), Halt())
    return Program(body, P.fingerprint)


def test_stepper_in_loop_stops_in_every_iteration():
    stepper = Stepper(looping(3), np.zeros(4096, np.uint8), P)
    assert [step.number for step in stepper] == [1, 1, 1, 0]
    assert stepper.state.registers[1] == 9


def test_stepper_run_to_descriptor_behind_the_end_is_refused():
    stepper = Stepper(looping(1), np.zeros(4096, np.uint8), P)
    with pytest.raises(ProgramError, match="descriptor 9 is not executed again"):
        stepper.run_to(9)


def test_stepper_of_a_name_is_one_error():
    with pytest.raises(TypeError, match="network must be a Network, not 'digits'"):
        stepper_of("digits")  # pyright: ignore[reportArgumentType]

"""Programs stopped after each command on the simulated hardware, next to the golden model."""

import numpy as np
import pytest

from trainwright.accelerator import AcceleratorError
from trainwright.accelerator.stepping import Stepping
from trainwright.check.stepping import stepper_of
from trainwright.network import load_network
from trainwright.parameters import AcceleratorParameters
from trainwright.program.engines import ENGINE_OF
from trainwright.program.segments import segments
from trainwright_sim import stepper as rtl_stepper
from trainwright_sim.backend import RtlAccelerator

P = AcceleratorParameters()
BATCH = 8


def stepper(backend: str, part: str = "forward", p: AcceleratorParameters = P) -> Stepping:
    return stepper_of(
        load_network("digits"), BATCH, part=part, parameters=p, memory_bytes=1 << 20,
        backend=backend,
    )  # fmt: skip


@pytest.mark.parametrize("part", ["forward", "backward"])
def test_rtl_stepper_to_the_end_has_rows_and_state_of_golden_stepper(part):
    golden, rtl = stepper("golden", part), stepper("rtl", part)
    expected = [step for step in golden if step.descriptor.operation in ENGINE_OF]
    ends = []
    for step, seen in zip(expected, rtl, strict=True):
        assert (seen.number, seen.descriptor) == (step.number, step.descriptor)
        assert np.array_equal(seen.addresses, step.addresses)
        assert np.array_equal(seen.rows, step.rows)
        assert np.array_equal(rtl.state.pad[seen.addresses], seen.rows)
        assert seen.cycles is not None
        ends.append(seen.cycles)
    assert all(start < end for start, end in ends)
    assert [start for start, _ in ends] == sorted(start for start, _ in ends)
    assert np.array_equal(rtl.state.known, golden.state.known)
    assert np.array_equal(rtl.state.pad, golden.state.pad)
    for counted in ("sums", "saturations", "underflows"):
        assert np.array_equal(getattr(rtl, counted), getattr(golden, counted))


def test_rtl_stepper_at_breakpoint_leaves_later_rows_unwritten():
    rtl, golden = stepper("rtl"), stepper("golden")
    step = rtl.run_to(5)
    assert np.array_equal(step.rows, golden.run_to(5).rows)
    rest = {address for later in golden for address in later.addresses.tolist()}
    unwritten = np.setdiff1d([*rest], np.flatnonzero(rtl.state.known))
    assert unwritten.size > len(rest) // 2
    with pytest.raises(AcceleratorError, match="when the program has ended"):
        _ = rtl.sums
    assert next(rtl).number == 6


def test_rtl_stepper_of_several_runs_counts_as_golden_model(monkeypatch):
    def cut(program, depth, stream_step):
        parts = segments(program, 4, stream_step)
        assert len(parts) > 1
        return parts

    monkeypatch.setattr(rtl_stepper, "segments", cut)
    rtl, golden = stepper("rtl", "backward"), stepper("golden", "backward")
    numbers = [step.number for step in golden if step.descriptor.operation in ENGINE_OF]
    assert [step.number for step in rtl] == numbers
    assert np.array_equal(rtl.sums, golden.sums)
    assert np.array_equal(rtl.state.pad, golden.state.pad)


def test_another_run_ends_stepper_and_executes_whole_program():
    with RtlAccelerator(P, memory_bytes=1 << 20) as accelerator:
        program = stepper("golden").program
        stopped = accelerator.stepper(program, 0)
        next(stopped)
        run = accelerator.run(program, 0, trace=True)
        assert run.commands is not None and run.commands[-1].number == len(program.descriptors) - 2
        with pytest.raises(AcceleratorError, match="make a new stepper"):
            next(stopped)
        again = accelerator.stepper(program, 0)
    with pytest.raises(AcceleratorError, match="make a new stepper"):
        again.run_to(2)


def test_stepper_of_back_end_that_cannot_stop_names_those_that_can():
    with pytest.raises(ValueError, match="'board' steps through no program: use golden or rtl"):
        stepper("board")

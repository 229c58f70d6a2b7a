"""The cycle model beside the simulation, and what the profiler says of both."""

import json
from collections import Counter
from pathlib import Path

import pytest
from accelerators import ALONE

from trainwright.accelerator import backend_names
from trainwright.check.parts import RandomStep
from trainwright.check.training import check_training
from trainwright.cli import main
from trainwright.cli.options import accelerator_parameters
from trainwright.compiler import compile_step
from trainwright.compiler.base.compiled import AUTO
from trainwright.network import load_network
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Program
from trainwright.program.fields import Engine
from trainwright.timing import predict
from trainwright.timing.lost import lost_cycles
from trainwright.timing.profile import predicted_steps, profiled
from trainwright.timing.random_networks import random_network
from trainwright_sim.backend import RtlAccelerator

P = AcceleratorParameters()
LOW_RANKS = ((12, 5, 13), (16,))


def simulated(step) -> int:
    with RtlAccelerator(P, memory_bytes=step.memory_bytes) as rtl:
        return sum(
            rtl.run(
                Program(program.descriptors, program.fingerprint), program.address
            ).counters.cycles
            for program in (step.forward, step.backward)
        )


@pytest.mark.parametrize(
    ("name", "ranks", "plan"),
    [("digits", None, "auto"), ("digits", None, "paper"), ("fashion", LOW_RANKS, "auto")],
)
def test_cycle_model_is_within_five_per_cent(name, ranks, plan):
    network = load_network(name)
    step = compile_step(network.with_ranks(ranks) if ranks else network, 64, P, plan=plan)
    assert abs(step.predicted_cycles / simulated(step) - 1) < 0.05


@pytest.mark.slow
@pytest.mark.parametrize("plan", ["auto", "paper"])
@pytest.mark.parametrize("seed", range(20))
def test_cycle_model_of_random_networks_is_within_five_per_cent(seed, plan):
    network, batch = random_network(seed)
    step = compile_step(network, batch, P, plan=plan)
    assert abs(step.predicted_cycles / simulated(step) - 1) < 0.05


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 2, 4, 5, 7, 8, 10, 13, 15, 16, 18, 22])
def test_cycle_model_of_random_chip_steps_is_within_five_per_cent(seed):
    """Eight steps with loss, update, prior and cuts, by one start; others need more slots."""
    network, _ = random_network(seed)
    p = accelerator_parameters((), network, alone=True)
    with RtlAccelerator(p, memory_bytes=1 << 22) as rtl:
        (part,) = RandomStep(network, 16, rtl, "alone", plan=AUTO).run_step()
    _, cycles = predicted_steps(part.program.descriptors, p, part.steps)
    assert abs(cycles / part.run.counters.cycles - 1) < 0.05


def test_fashion_step_beats_cycles_of_paper():
    """Twenty-five times fewer cycles than the paper, less than half of them at low ranks."""
    network = load_network("fashion")
    step = compile_step(network, 64, P)
    cycles = simulated(step)
    assert cycles <= 360_000
    assert step.macs / (P.multipliers * cycles) >= 0.86
    assert 2 * simulated(compile_step(network.with_ranks(LOW_RANKS), 64, P)) <= cycles


def test_commands_of_a_traced_run():
    step = compile_step(load_network("digits"), 16, P)
    forward = step.forward
    with RtlAccelerator(P, memory_bytes=step.memory_bytes) as rtl:
        program = Program(forward.descriptors, forward.fingerprint)
        assert rtl.run(program, forward.address).commands is None
        run = rtl.run(program, forward.address, trace=True)
    assert run.commands is not None
    assert run.commands[0].number == -1 and run.commands[0].engine is Engine.LOAD
    expected = [n for n, d in enumerate(forward.descriptors) if hasattr(d, "tensor")]
    assert [command.number for command in run.commands[1:]] == expected
    for command in run.commands:
        assert 0 <= command.start < command.end <= run.counters.cycles
        assert command.stall_operand + command.stall_result <= command.end - command.start + 1
    for engine, busy in ((Engine.PE1, "busy_pe1"), (Engine.PE2, "busy_pe2")):
        own = [command for command in run.commands if command.engine is engine]
        covered = {c for command in own for c in range(command.start, command.end)}
        assert abs(len(covered) - getattr(run.counters, busy)) <= len(own)


@pytest.mark.usefixtures("first_program")
def test_profile_of_chip_step_has_cycles_of_check_and_every_pass():
    """The simulated hardware records the vector engine's commands as those of PE2."""
    network, p = load_network("digits"), ALONE
    with RtlAccelerator(p, memory_bytes=1 << 22) as rtl:
        checked = check_training(network, 4, rtl)
        (part,) = RandomStep(network, 4, rtl, "alone", plan=AUTO).run_step()
    assert part.run.commands is not None
    profile = profiled(part.name, part.program.descriptors, part.macs, part.run, p, part.steps)
    assert profile.cycles == checked.counters.cycles
    predicted, model_cycles = predicted_steps(part.program.descriptors, p, part.steps)
    executed = Counter(c.number for c in part.run.commands if c.number >= 0)
    assert executed == Counter(c.number for c in predicted if c.number >= 0)
    assert abs(model_cycles / profile.cycles - 1) < 0.05
    for engine in ("PE1", "PE2"):
        causes = lost_cycles("", profile.descriptors, profile.commands, profile.cycles, p)
        own = [line for line in causes if line.engine == engine]
        assert abs(sum(line.cycles for line in own) - profile.cycles) <= len(own) / 2


def test_cycles_page_has_occupancy_and_utilisation_of_profile(capsys):
    assert main(["profile", "fashion", "--backend", "golden", "--json"]) == 0
    step = json.loads(capsys.readouterr().out)["totals"][-1]
    page = (Path(__file__).parents[2] / "docs/reference/cycles.md").read_text()
    occupancy, useful = (f"{100 * step[key]:.1f} %" for key in ("occupancy", "mac_utilisation"))
    assert f"batch 64 has {occupancy} occupancy and {useful} utilisation" in page


@pytest.mark.parametrize("backend", ["rtl", "golden"])
def test_profile_command_writes_report_and_trace(backend, capsys, tmp_path):
    if backend not in backend_names():
        pytest.skip("trainwright is not installed: no back ends are registered")
    words = ["profile", "digits", "--batch", "16", "--backend", backend, "--json"]
    assert main([*words, "--out", str(tmp_path)]) == 0
    profile = json.loads(capsys.readouterr().out)
    assert profile == json.loads((tmp_path / "profile.json").read_text())
    assert (tmp_path / "roofline.png").read_bytes().startswith(b"\x89PNG")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert {event["tid"] for event in events} == {1, 2, 4, 8}
    step = profile["totals"][-1]
    assert step["part"] == "step" and 0 < step["utilisation"] < 1
    compiled = compile_step(load_network("digits"), 16, P)
    assert step["utilisation"] == step["occupancy"] == step["macs"] / (256 * step["cycles"])
    assert step["useful_macs"] == compiled.macs < step["macs"]
    assert step["mac_utilisation"] == compiled.macs / (256 * step["cycles"])
    parts = profile["totals"][:-1]
    assert [part["useful_macs"] for part in parts] == [
        compiled.forward.macs,
        compiled.backward.macs,
    ]
    assert all(line["occupancy"] == line["utilisation"] for line in profile["descriptors"])
    for part in parts:
        for engine in ("PE1", "PE2"):
            causes = [
                line
                for line in profile["causes"]
                if (line["part"], line["engine"]) == (part["part"], engine)
            ]
            # Each cause is rounded on its own.
            assert abs(sum(line["cycles"] for line in causes) - part["cycles"]) <= len(causes) / 2
    assert (tmp_path / "engines.png").read_bytes().startswith(b"\x89PNG")
    lines = profile["descriptors"]
    assert sum(line["macs"] for line in lines) == step["macs"]
    if backend == "golden":
        assert step["cycles"] == pytest.approx(compiled.predicted_cycles, rel=0.01)
        assert predict(compiled.forward.descriptors, P).cycles > 0

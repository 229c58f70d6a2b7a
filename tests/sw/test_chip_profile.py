"""Profile of a step whose loss and update run on the accelerator: cycles, bytes, pictures."""

import json
from collections import Counter
from dataclasses import replace

import pytest

from trainwright.accelerator import CommandRecord
from trainwright.check.parts import RandomStep
from trainwright.cli import main
from trainwright.cli.options import accelerator_parameters
from trainwright.compiler.base.compiled import AUTO
from trainwright.golden.backend import GoldenAccelerator
from trainwright.network import load_network
from trainwright.program.engines import pass_cycles
from trainwright.program.exponents import MoveScales
from trainwright.program.fields import DESCRIPTOR_BYTES, Engine, Operation
from trainwright.program.vector import Stream, Vector
from trainwright.report.engines import draw_engines
from trainwright.timing import predict
from trainwright.timing.lost import lost_cycles, purpose_of
from trainwright.timing.profile import profiled

LINE = ["profile", "digits", "--batch", "16", "--backend", "golden", "--update", "chip"]
NETWORK = load_network("digits")
P = accelerator_parameters((), NETWORK, alone=True)
FIRST, STEPS = 7, 8
WIDE = """
classes = 100
image = [8, 8]
[[layers]]
outputs = [4, 16]
inputs = [4, 16]
ranks = [2]
[[layers]]
outputs = [8, 16]
inputs = [4, 16]
ranks = [2]
relu = false
"""


@pytest.fixture(scope="module")
def part():
    """Return the resident program of digits with the golden model's run of eight steps."""
    with GoldenAccelerator(P, memory_bytes=1 << 22) as golden:
        (only,) = RandomStep(NETWORK, 16, golden, "alone", plan=AUTO).run_step()
    return only


@pytest.fixture(scope="module")
def profile(part):
    return profiled(part.name, part.program.descriptors, part.macs, part.run, P, part.steps)


@pytest.fixture
def results(capsys):
    assert main([*LINE, "--energy", "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_profile_of_step_alone_has_cycles_of_the_model(part, results):
    program = part.program.descriptors
    cycles = [predict(program, P, step=FIRST).cycles]
    cycles += [predict(program, P, step=FIRST + n, repeated=True).cycles for n in range(1, STEPS)]
    whole, step = results["totals"]
    assert (whole["part"], whole["cycles"]) == ("8 steps", sum(cycles))
    assert (step["part"], step["cycles"]) == ("step", round(sum(cycles) / STEPS))
    assert whole["utilisation"] == step["utilisation"]


def test_profile_and_train_print_one_figure_for_a_step_alone(capsys, results, tmp_path):
    given = ["--network", "digits", "--batch", "16", "--update", "chip", "--pixels", "4"]
    out = ["--out", str(tmp_path), "--json"]
    assert main(["train", *given, "--steps", "1", "--test-samples", "16", *out]) == 0
    cycles = results["totals"][1]["cycles"]
    assert json.loads(capsys.readouterr().out)["step_cost"]["cycles"] == cycles
    page = (tmp_path / "report.html").read_text()
    assert f"<td>{cycles:,} predicted, with loss and update, mean of 8 steps</td>" in page


def test_profile_of_step_alone_explains_every_cycle_of_both_arrays(results):
    cycles = results["totals"][0]["cycles"]
    for engine in ("PE1", "PE2"):
        causes = [line for line in results["causes"] if line["engine"] == engine]
        assert abs(sum(line["cycles"] for line in causes) - cycles) <= len(causes) / 2


def test_profile_of_step_alone_names_passes_by_purpose(part, results):
    """Work out the cycles of each purpose from the descriptors and the steps that run them."""
    wanted: Counter[str] = Counter()
    for d in part.program.descriptors:
        if isinstance(d, Vector):
            times = {0: STEPS, 8: 1, 15: 1}[d.eighth]  # in every step, or in one of eight
            wanted[purpose_of(d)] += times * pass_cycles(d.rows, d.length, P)
    assert {"update", "cuts", "coefficients of the prior", "gradient of a sample"} <= set(wanted)
    cycles_of = {
        line["cause"].removeprefix("passes: "): line["cycles"]
        for line in results["causes"]
        if line["engine"] == "PE2" and line["cause"].startswith("passes: ")
    }
    assert {purpose: cycles_of[purpose] for purpose in wanted} == dict(wanted)


def test_profile_of_step_alone_counts_bytes_that_the_golden_model_moves(part, results):
    moved = part.run.counters.bytes_read + part.run.counters.bytes_written
    whole, step = results["totals"]
    assert (whole["bytes"], step["bytes"]) == (moved, round(moved / STEPS))
    external = next(line for line in results["energy"] if line["event"] == "external")
    program = DESCRIPTOR_BYTES * len(part.program.descriptors)  # loaded once, by the first step
    assert external["count"] == round((moved + program) / STEPS)


def test_profile_of_step_with_many_outputs_names_passes_of_its_loss(tmp_path):
    (tmp_path / "wide.toml").write_text(WIDE)
    network = load_network(str(tmp_path / "wide.toml"))
    with GoldenAccelerator(P, memory_bytes=1 << 22) as golden:
        parts = RandomStep(network, 16, golden, "alone", plan=AUTO).run_all()
    purposes = {
        part.name: {purpose_of(d) for d in part.program.descriptors if isinstance(d, Vector)}
        for part in parts
    }
    assert "gradient of a sample" in purposes["step"]
    assert purposes["evaluation"] == {"classes of a sample"}


def test_kinds_of_steps_are_each_shown_once(profile):
    kinds = profile.kinds_of_steps
    assert list(kinds) == ["step 7", "step 8", "step 9"]
    assert all(commands[0].start == 0 for commands in kinds.values())
    executed = {c.number for commands in kinds.values() for c in commands}
    assert executed == {c.number for c in profile.commands if c.number >= 0}
    assert draw_engines([profile], "digits").startswith(b"\x89PNG")


PASS = Vector(
    entry=0, length=1, outer=1, inner=8, reads=0, writes=0, streams=(Stream(0, 0, 0),) * 8,
    tensor="l1.b update",
)  # fmt: skip


def test_lost_cycles_between_two_steps_are_those_of_the_scales():
    descriptors = [PASS, MoveScales(entries=())]
    commands = [
        CommandRecord(0, Engine.PE2, 20, 60, 0, 0),
        CommandRecord(0, Engine.PE2, 99, 150, 0, 0),
    ]
    lines = lost_cycles("x", descriptors, commands, 150, P)
    scales = [line for line in lines if line.cause == "scales"]
    assert [(line.engine, line.cycles, line.number) for line in scales] == [("PE2", 39, 1)]


def test_lost_cycles_before_a_pass_are_those_of_its_set_up(part):
    """A pass waits for the last row of the pass before; then its streams are copied."""
    product = next(d for d in part.program.descriptors if d.operation is Operation.PE4)
    product = replace(product, wait=Engine.NONE, wait_older=Engine.NONE)
    commands = [
        CommandRecord(0, Engine.PE2, 0, 60, 0, 0),
        CommandRecord(1, Engine.PE2, 80, 150, 0, 0),
        CommandRecord(2, Engine.PE1, 84, 150, 0, 0),
    ]
    lines = lost_cycles("x", [PASS, PASS, product], commands, 150, P)
    before = {line.cause: (line.cycles, line.number) for line in lines if line.engine == "PE1"}
    assert before["wait for PE2"] == (60, 0)
    assert before["passes: set up"] == (20, 1)
    assert before["issue"] == (4, 2)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--plan", "paper"], "--plan"),
        (["--accelerator", "vector_engine=0"], "vector_engine"),
        (["--liberty", "x.lib", "--energy", "--backend", "rtl"], "--update chip"),
    ],
)
def test_profile_on_chip_with_unusable_option_names_it(words, named, capsys):
    line = [
        word for word in LINE if "--backend" not in words or word not in ("--backend", "golden")
    ]
    assert main([*line, *words]) == 2
    assert named in capsys.readouterr().err

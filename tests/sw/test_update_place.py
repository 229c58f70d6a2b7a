"""Options that decide where ``--update chip`` computes, and options that would do nothing."""

import json
import re
from fractions import Fraction

import pytest

from trainwright.cli.core import main
from trainwright.cli.errors import OptionError
from trainwright.cli.options import ALONE, accelerator_parameters, tell_update_place, update_place
from trainwright.cli.sweep.spec import checked
from trainwright.compiler import compile_step
from trainwright.network import load_network

pytestmark = pytest.mark.usefixtures("programs_once")
SMALL = ["--network", "digits", "--ranks", "3|3", "--update", "chip"]
TRAIN = ["train", *SMALL, "--batch", "16", "--steps", "2", "--test-samples", "16"]
DIGITS = load_network("digits")


@pytest.mark.parametrize(
    ("given", "place"),
    [
        ([], "alone"),
        (["lanes=8", "pe1_rows=4"], "alone"),
        (["exponents=128"], "alone"),
        (["exponents=0"], "host"),
        (["sample_loads=0"], "host"),
        (["vector_engine=0"], "host"),
        (["preset=lfe5u-85f"], "host"),
        (["preset=ecp5-85f-alone"], "alone"),
        (["preset=lfe5u-45f-alone"], "alone"),
        (["preset=zu3eg", "vector_engine=1"], "host"),
    ],
)
def test_update_place_follows_the_sizes_given(given, place):
    p = accelerator_parameters(given, DIGITS, alone=True)
    assert update_place(p) == place
    assert update_place(accelerator_parameters([], DIGITS)) == "host"


def test_update_place_told_names_the_sizes_of_the_accelerator(capsys):
    tell_update_place(accelerator_parameters(["exponents=128"], DIGITS, alone=True), DIGITS)
    assert "as it has vector_engine=1, exponents=128, sample_loads=1;" in capsys.readouterr().err


def test_update_place_without_overrides_is_one_for_check_train_and_sweep(capsys, tmp_path):
    """The three commands had three defaults: check an engine, train and sweep none."""
    told = "trainwright: --update chip: the accelerator trains alone, as it has vector_engine=1"
    out = ["--out", str(tmp_path), "--json"]
    assert main([*TRAIN, *out]) == 0
    trained = capsys.readouterr()
    assert json.loads(trained.out)["update_place"] == "alone"
    assert trained.err.count(told) == 1
    check = ["check", *SMALL, "--backend", "golden", "--batch", "16", "--steps", "1"]
    assert main([*check, "--json"]) == 0
    assert capsys.readouterr().err.count(told) == 1
    p = checked(("--network", "digits", "--update", "chip")).accelerator
    assert p is not None and {name: getattr(p, name) for name in ALONE} == ALONE


def test_step_cost_of_micro_batches_covers_all_parts_of_the_batch(capsys, tmp_path):
    given = ["--network", "digits", "--micro-batches", "4", "--steps", "1", "--json"]
    assert main(["train", *given, "--out", str(tmp_path)]) == 0
    cost = json.loads(capsys.readouterr().out)["step_cost"]
    part = compile_step(DIGITS, 16, accelerator_parameters([], DIGITS))
    cycles = 4 * part.predicted_cycles
    assert cost == {"cycles": cycles, "source": "predicted", "is_whole": False}
    page = (tmp_path / "report.html").read_text()
    assert f"<td>{cycles:,} predicted, forward and backward pass alone</td>" in page
    step = Fraction(cycles, 60_000)
    times = f"{float(step):.3g} ms a step, {float(22 * step):.3g} ms an epoch of 22 steps"
    assert f"<td>{times}, at 60 MHz" in page


@pytest.mark.parametrize(
    ("options", "place", "told"),
    [
        (["vector_engine=0"], "host", "the host computes loss and update"),
        (["exponents=0"], "host", "exponents=64, sample_loads=1 let the accelerator train alone"),
    ],
)
def test_train_with_update_by_the_host_says_so_and_gives_equal_bits(
    capsys, tmp_path, options, place, told
):
    digests, costs = [], []
    for given in ([], options):
        chosen = [part for item in given for part in ("--accelerator", item)]
        assert main([*TRAIN, "--force", "--out", str(tmp_path), "--json", *chosen]) == 0
        shown = capsys.readouterr()
        digests.append(json.loads(shown.out)["digest"])
        costs.append(json.loads(shown.out)["step_cost"])
    assert digests[0] == digests[1]
    alone, passes = costs
    assert alone["is_whole"] and not passes["is_whole"]
    assert {alone["source"], passes["source"]} == {"predicted"}
    assert alone["cycles"] > passes["cycles"] > 0
    assert json.loads(shown.out)["update_place"] == place
    assert told in shown.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--rounding-mode", "stochastic"], "--accelerator exponents=0"),
        (["--verify", "1", "--backend", "rtl"], "--accelerator exponents=0"),
        (["--accelerator", "word_width=8"], "vector_engine=0 leaves it to the host"),
        (
            ["--micro-batches", "2", "--accelerator", "vector_engine=1"],
            "--micro-batches leaves loss and update to the host",
        ),
    ],
)
def test_train_option_that_training_alone_does_not_take_names_the_host(
    capsys, tmp_path, options, message
):
    assert main([*TRAIN, "--out", str(tmp_path), *options]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert re.search(message, error), error


def test_train_in_micro_batches_updates_on_the_host_and_says_so(capsys, tmp_path):
    assert main([*TRAIN, "--out", str(tmp_path), "--micro-batches", "2", "--json"]) == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out)["update_place"] == "host"
    assert shown.err.count("the host computes loss and update") == 1


@pytest.mark.parametrize(
    "options",
    [
        ["--accelerator", "lanes=8"],
        ["--preset", "lfe5u-85f"],
        ["--plan", "paper"],
        ["--verify", "2"],
        ["--formats", "factor=fixed(6)"],
        ["--engine", "leaves"],
        ["--memory-stall", "0.1"],
    ],
    ids=lambda options: options[0],
)
def test_float32_option_of_an_accelerator_is_an_error(capsys, tmp_path, options):
    command = ["train", "--network", "digits", "--numbers", "float32", "--out", str(tmp_path)]
    assert main([*command, *options]) == 2
    assert options[0] in capsys.readouterr().err


@pytest.mark.parametrize(
    "options",
    [
        ["--batch", "8"],
        ["--ranks", "4|4"],
        ["--plan", "paper"],
        ["--formats", "factor=fixed(3)"],
        ["--part", "forward"],
        ["--save", "folder"],
    ],
    ids=lambda options: options[0],
)
def test_listing_of_a_program_file_with_network_option_is_an_error(capsys, tmp_path, options):
    program = tmp_path / "forward.trwp"
    program.write_bytes(b"")
    assert main(["listing", str(program), *options]) == 2
    assert f"{options[0]} is for a network" in capsys.readouterr().err


def test_accelerator_parameters_of_an_unasked_engine_name_the_rule():
    with pytest.raises(OptionError, match="--update chip asks for vector_engine=1"):
        accelerator_parameters(["word_width=8"], DIGITS, alone=True)
    with pytest.raises(OptionError) as error:
        accelerator_parameters(["word_width=8", "vector_engine=1"], DIGITS, alone=True)
    assert "--update chip" not in str(error.value)

"""``trainwright bench cycles``, ``bench golden`` and ``plan``: what they print."""

import json

import pytest

from trainwright.cli import main


def test_bench_cycles_predicts_without_simulating(capsys):
    words = ["bench", "cycles", "--network", "digits", "--plan", "auto", "--plan", "paper"]
    assert main([*words, "--predict", "--json"]) == 0
    steps = json.loads(capsys.readouterr().out)["steps"]
    assert [step["plan"] for step in steps] == ["auto", "paper"]
    assert steps[0]["predicted_cycles"] < steps[1]["predicted_cycles"]
    for step in steps:  # by the name that it has in other commands, and by the one it had here
        share = step["macs"] / (256 * step["predicted_cycles"])
        assert step["mac_utilisation"] == step["utilisation"] == share
    words = ["bench", "cycles", "--network", "fashion", "--ranks", "12,5,13|16", "--predict"]
    assert main([*words, "--json"]) == 0
    steps = json.loads(capsys.readouterr().out)["steps"]
    assert [step["plan"] for step in steps] == ["auto"]
    assert steps[0]["paper_over_this"] == pytest.approx(9_000_000 / steps[0]["predicted_cycles"])
    assert main(["bench", "cycles", "--random", "2", "--predict"]) == 0
    assert "random 1" in capsys.readouterr().out


def test_bench_cycles_rejects_impossible_options(capsys):
    assert main(["bench", "cycles", "--ranks", "12"]) == 2
    assert "--ranks needs --network" in capsys.readouterr().err
    assert main(["bench", "cycles", "--plan", "fast"]) == 2
    assert "there is no plan 'fast'; give one of auto, paper, small" in capsys.readouterr().err


def test_bench_golden_reports_conditions(capsys):
    assert main(["bench", "golden", "digits", "--batch", "8", "--repeat", "2", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["conditions"]["threads"] == 1
    names = [step["step"] for step in result["steps"]]
    assert names[0] == "golden"
    assert names[3:6] == [
        "trainwright.nn, float32", "trainwright.nn, fixed point", "trainwright.compile, golden",
    ]  # fmt: skip
    assert all(step["least_ms"] > 0 for step in result["steps"])


@pytest.mark.slow
def test_bench_loop_reports_each_step(capsys):
    words = ["bench", "loop", "--batch", "8", "--repeat", "2"]
    assert main([*words, "digits", "--json"]) == 0
    steps = json.loads(capsys.readouterr().out)["steps"]
    assert [step["step"] for step in steps] == [
        "trainwright train", "compile, trainwright.nn.Adam", "compile, torch.optim.Adam",
    ]  # fmt: skip
    base = steps[0]["median_ms"]
    assert [step["over_train"] for step in steps] == [s["median_ms"] / base - 1 for s in steps]
    assert all(0 < step["least_ms"] <= step["median_ms"] for step in steps)
    assert main([*words, "fashion-conv"]) == 2
    assert "'fashion-conv' is a graph" in capsys.readouterr().err


def test_plan_command_names_choice(capsys):
    assert main(["plan", "digits", "--batch", "3"]) == 0
    text = capsys.readouterr().out
    assert "\nlayer 2: " in text and " MACs: chosen\n" in text and "% utilisation, " in text

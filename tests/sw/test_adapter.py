"""Widths by need: ``trainwright formats``."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from trainwright.cli import main
from trainwright.network import load_network
from trainwright.train.adapter import MOST_VALUES, error_at, narrowest
from trainwright.train.export import load_model
from trainwright.train.initial import initial_factors
from trainwright.train.pretrained import Pretrained, save_pretrained


def lost(values: np.ndarray, width: int) -> float:
    """Return the least relative RMS over all exponents that leave a value, by numpy."""
    limit = 2 ** (width - 1)
    errors = []
    for exponent in range(-40, 20):
        rounded = np.clip(np.rint(values / 2.0**exponent), -limit, limit - 1) * 2.0**exponent
        errors.append(((rounded - values) ** 2).sum())
    return float(np.sqrt(min(errors) / (values**2).sum()))


@pytest.mark.parametrize("width", (2, 3, 4, 7, 12))
@pytest.mark.parametrize("tail", (1, 3))
def test_adapter_error_of_a_width_is_the_least_of_all_exponents(width, tail):
    values = np.random.default_rng(width).standard_normal(500) ** tail
    assert error_at(torch.from_numpy(values), width) == pytest.approx(lost(values, width))


def test_adapter_narrowest_width_and_its_limits():
    values = torch.randn(MOST_VALUES * 2 + 1, generator=torch.Generator().manual_seed(1)).double()
    width, error = narrowest(values, 0.02, "factor", 16)
    assert error <= 0.02 < narrowest(values, 0.02, "factor", width - 1)[1]
    assert narrowest(values, 1e-9, "gradient", 8)[0] == 8
    assert narrowest(torch.ones(9), 0.5, "factor", 16)[0] == 2
    assert narrowest(torch.zeros(9), 0.5, "gradient", 16) == (4, 0.0)


def choices(capsys, *options: str) -> dict:
    assert main(["formats", "digits", "--json", *options]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.usefixtures("first_program")
def test_adapter_step_in_the_formats_chosen(capsys):
    report = choices(capsys, "--error", "0.02")
    tensors = {row["tensor"]: row for row in report["tensors"]}
    network = load_network("digits").with_formats(report["formats"])
    factors, _ = initial_factors(load_network("digits").with_formats("factor=fixed(16)"), 0)
    for n in (1, 2):
        bond = tensors[f"l1.G{n}"]
        values = factors[0][n - 1].value.numpy().astype(float)
        assert bond["error"] == pytest.approx(lost(values, bond["width"])) and bond["error"] <= 0.02
        assert lost(values, bond["width"] - 1) > 0.02
        assert network.factor_format(0, n - 1).width == bond["width"]
    for kind in ("intermediate", "gradient"):
        widest = max(row["width"] for row in tensors.values() if row["kind"] == kind)
        assert network.format(kind).width == widest
    assert all(row["held"] and row["passes"] == 1 for row in tensors.values())
    assert {"x", "l1.a", "l1.y", "l2.a", "l1.dG1", "l2.dG2", "l1.db"} <= tensors.keys()
    assert main(["check", "--network", "digits", "--backend", "golden", "--batch", "16",
                 "--formats", report["formats"]]) == 0  # fmt: skip


def test_words_of_8_bits_cost_passes_or_do_not_hold(capsys):
    report = choices(capsys, "--error", "0.003", "--accelerator", "word_width=8")
    factors = [row for row in report["tensors"] if row["kind"] == "factor"]
    assert all(row["width"] > 8 and row["passes"] == 2 and row["held"] for row in factors)
    activations = [row for row in report["tensors"] if row["kind"] != "factor"]
    assert all(row["width"] <= 8 and row["passes"] == 1 for row in activations)
    assert any(not row["held"] and row["error"] > 0.003 for row in activations)
    assert main(["formats", "digits", "--error", "0.003", "--accelerator", "word_width=8"]) == 0
    text = capsys.readouterr().out
    assert "4 factors take several passes" in text and "not held" in text


def test_adapter_impossible_error_is_rejected(capsys):
    with pytest.raises(SystemExit) as end:
        main(["formats", "digits", "--error", "1.5"])
    assert end.value.code == 2
    assert "--error: must be between 0 and 1, not 1.5" in capsys.readouterr().err


@pytest.mark.usefixtures("first_program")
@pytest.mark.parametrize("accelerator", [(), ("--accelerator", "word_width=8")])
def test_adapter_chosen_formats_train(accelerator, capsys, tmp_path):
    """Words of 8 bits: with factors by digits, of 9 bits."""
    error = ("--error", "0.005" if accelerator else "0.02")
    assert main(["formats", "digits", "--text", *error, *accelerator]) == 0
    text = capsys.readouterr().out.rstrip("\n")
    wanted = load_network("digits").with_formats(text)
    out = tmp_path / "run"
    options = ("--network", "digits", "--formats", text, *accelerator, "--json")
    assert main(["train", *options, "--steps", "2", "--test-samples", "64", "--out", str(out)]) == 0
    assert json.loads(capsys.readouterr().out)["steps"] == 2
    trained = load_model(out / "model.safetensors").model.network
    assert [trained.factor_formats(n) for n in (0, 1)] == [wanted.factor_formats(n) for n in (0, 1)]
    assert (trained.factor_format(0, 0).width == 9) == bool(accelerator)
    assert main(["check", *options, "--backend", "golden", "--batch", "4"]) == 0
    checked = json.loads(capsys.readouterr().out)
    assert checked["mismatches"] == 0 < checked["values"]
    chosen = dict(part.split("=") for part in text.split(","))
    assert chosen.items() <= checked["formats"].items()


def test_formats_of_factors_of_another_network_are_refused(tmp_path, capsys):
    network = load_network("digits")
    drawn = initial_factors(network, 0)[0]
    factors = [[parameter.value for parameter in layer] for layer in drawn]
    biases = [torch.zeros(layer.output_size) for layer in network.layers]
    given = Pretrained(network, factors, biases)
    save_pretrained(tmp_path / "f.safetensors", given)
    argv = ["formats", "--initial", str(tmp_path / "f.safetensors"), "--batch", "16", "--text"]
    assert main([*argv, "fashion"]) == 2
    assert "--initial belongs to 'digits', not 'fashion'" in capsys.readouterr().err
    save_pretrained(tmp_path / "f.safetensors", replace(given, network=replace(network, name="n")))
    assert main([*argv, "digits"]) == 2  # also named as the command's default
    assert "--initial belongs to 'n', not 'digits'" in capsys.readouterr().err

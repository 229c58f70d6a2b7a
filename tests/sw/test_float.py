"""Training in float32: the network without the accelerator, to compare with."""

import json

import numpy as np
import pytest
import torch
from float_driver import ttm_matrix

from trainwright.cli import main
from trainwright.compiler import CompileError, compile_step
from trainwright.driver import QuantisedModel
from trainwright.fixed.scale import Scales
from trainwright.network import FLOAT32, Widths, load_network, network_from_dict
from trainwright.parameters import AcceleratorParameters
from trainwright.train.float_driver import FloatDriver
from trainwright.train.model import initial_model

NETWORK = load_network("digits").in_float32()


def as_double(model: QuantisedModel):
    """Return the model's factors and biases as float64 leaves."""
    factors = [[f.double().requires_grad_() for f in layer] for layer in model.factors]
    biases = [None if b is None else b.double().requires_grad_() for b in model.biases]
    return factors, biases


def test_passes_against_autograd_in_float64():
    model = initial_model(NETWORK, seed=3)
    random = np.random.RandomState(0)
    for bias in model.biases:
        assert bias is not None
        bias.value = torch.from_numpy(random.standard_normal(bias.value.shape)).float() * 0.1
    size = NETWORK.layers[0].input_size
    inputs = torch.from_numpy(random.randint(0, 1 << 23, (8, size)))
    gradient = torch.from_numpy(random.standard_normal((8, NETWORK.layers[-1].output_size)))
    driver = FloatDriver(NETWORK)
    quantised = model.quantised()
    logits = driver.forward(inputs, quantised, Scales()).logits
    gradients = driver.backward(gradient, Scales())

    factors, biases = as_double(quantised)
    x = inputs.double() * 2.0**driver.input_exponent
    for layer, f, b in zip(NETWORK.layers, factors, biases, strict=True):
        x = x @ ttm_matrix(layer, f).T + b
        x = x.relu() if layer.relu else x
    leaves = [leaf for layer in factors for leaf in layer] + [b for b in biases if b is not None]
    wanted = torch.autograd.grad(x, leaves, gradient)
    got = [g for layer in gradients.factors for g in layer]
    got += [b for b in gradients.biases if b is not None]
    # A sum of at most 2^14 terms in float32: relative to its largest summands 2^14 * 2^-24.
    for ours, exact in zip([logits, *got], [x, *wanted], strict=True):
        exact = exact.detach()
        assert float((ours.double() - exact).abs().max()) < 2.0**-10 * float(exact.abs().max())


def test_model_in_float32_is_not_quantised():
    model = initial_model(NETWORK, seed=0)
    for factors, exponents in zip(model.quantised().factors, model.exponents, strict=True):
        assert set(exponents) == {0}
        assert all(f.dtype == torch.float32 for f in factors)
    factor = model.factors[0][0]
    factor.value = factor.value + 1e6
    before = factor.value.clone()
    model.clip()
    model.rescale()
    assert torch.equal(factor.value, before) and set(model.exponents[0]) == {0}


def test_bits_of_a_network_in_float32():
    fashion = load_network("fashion").in_float32()
    assert fashion.model_bits == 473_600 and round(fashion.reduction, 1) == 31.6
    assert network_from_dict(fashion.to_dict()) == fashion
    assert FLOAT32.is_float and not Widths().is_float
    with pytest.raises(ValueError, match="factor width must be from 2 to 16 bits, not 32"):
        Widths(factor=32)


def test_float_model_is_rejected_by_accelerator():
    with pytest.raises(CompileError, match="'digits' is in float32"):
        compile_step(NETWORK, 8, AcceleratorParameters())


def test_float_training_learns_digits(tmp_path, capsys):
    out = tmp_path / "run"
    options = ["train", "--numbers", "float32", "--out", str(out), "--json"]
    assert main([*options, "--epochs", "6", "--no-prior"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["test_accuracy"] > 0.9 and result["cycles"] == 0
    assert result["model_bits"] == 32 * load_network("digits").parameters
    places = {item["place"] for item in json.loads((out / "result.json").read_text())["memory"]}
    assert places == {"host"}
    model = str(out / "model.safetensors")
    assert main(["eval", model, "--backend", "rtl"]) == 2
    assert "is in float32, without an accelerator: omit --backend" in capsys.readouterr().err


@pytest.mark.parametrize(
    "options",
    [["--numbers", "float32", "--backend", "golden"], ["--backend", "float32"]],
)
def test_no_back_end_goes_with_it(tmp_path, capsys, options):
    assert main(["train", *options, "--out", str(tmp_path / "run")]) == 2
    assert "computes with integers" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--scales", "all-frozen"),
        ("--scale-range", "paper"),
        ("--factor-scales", "blocks"),
        ("--rounding-mode", "stochastic"),
        ("--spread", "4.0"),
    ],
)
def test_options_of_integers_are_refused(tmp_path, capsys, option, value):
    out = tmp_path / "run"
    assert main(["train", "--numbers", "float32", option, value, "--out", str(out)]) == 2
    assert f"{option} {value} only applies to integers" in capsys.readouterr().err
    assert not out.exists()

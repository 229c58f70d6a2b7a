"""Positions of tokens and causal attention: descriptions, exact programs, plain torch."""

from math import cos, sin

import pytest
import torch
from sequence_networks import classifier, decoder, encoder_tables
from test_lowering import checked
from test_sequences import dense

from trainwright.check.step import random_inputs
from trainwright.compiler import compile_step
from trainwright.driver import Driver
from trainwright.driver.tokens import (
    TokenCounts,
    position_values,
    present_tokens,
    token_words,
)
from trainwright.fixed.quantise import dequantise
from trainwright.golden.backend import GoldenAccelerator
from trainwright.network import NetworkError, Positions, network_from_dict
from trainwright.parameters import AcceleratorParameters
from trainwright.train.functional import outputs

pytestmark = pytest.mark.usefixtures("first_programs")

ENGINE = AcceleratorParameters(vector_engine=1)
KINDS = ("one-hot", "sinusoidal")


@pytest.mark.parametrize("kind", KINDS)
def test_decoder_is_read_back_from_its_tables(kind):
    network = decoder(positions=kind)
    assert network_from_dict(network.to_dict()) == network
    assert next(n for n in network.nodes if n.name == "heads").causal


@pytest.mark.parametrize(
    ("keys", "match"),
    (
        ({"positions": "cosine", "size": 4}, "positions are 'one-hot' or 'sinusoidal', not 'cos"),
        ({"positions": "one-hot"}, "input 3: 'size' is missing"),
        ({"positions": "one-hot", "size": 0}, "size is from 1 to .*, not 0"),
        ({"positions": "one-hot", "size": 4, "every": 0}, "every is from 1 to .*, not 0"),
        (
            {"positions": "sinusoidal", "size": 4, "every": 2},
            "every only applies to one-hot positions",
        ),
        ({"positions": "one-hot", "size": 4, "rows": [0, 1]}, "unknown key 'rows'"),
    ),
)
def test_positions_of_wrong_keys_are_one_error(keys, match):
    tables = encoder_tables()
    tables["inputs"].append({"name": "place", **keys})
    with pytest.raises(NetworkError, match=match):
        network_from_dict(tables)


def test_positions_of_an_image_are_one_error():
    tables = {
        "classes": 4, "image": [4, 4], "inputs": [{"name": "p", "positions": "one-hot", "size": 4}],
        "layers": [{"outputs": [4], "inputs": [16], "ranks": []},
                   {"from": "p", "outputs": [4], "inputs": [4], "ranks": []},
                   {"add": ["l1", "l2"]}],
    }  # fmt: skip
    with pytest.raises(NetworkError, match="positions are of the tokens of a sequence: give"):
        network_from_dict(tables)
    network = network_from_dict({**tables, "tokens": 2})
    assert network.nodes[1].name == "x" and network.nodes[2].sources == ("x",)
    assert network_from_dict(network.to_dict()) == network


def test_position_values_are_digits_of_the_place_or_waves():
    digits = position_values(Positions("p", "one-hot", 3, 4), 20).argmax(1)
    assert digits.tolist() == [n // 4 % 3 for n in range(20)]
    waves = position_values(Positions("p", "sinusoidal", 5), 7)
    for place in range(7):
        for n in range(5):
            wave = (sin, cos)[n % 2](place / 10000 ** ((n - n % 2) / 5))
            assert float(waves[place, n]) == pytest.approx(wave, abs=1e-12)


@pytest.mark.parametrize(
    ("kind", "batch", "keys"),
    (
        ("one-hot", 2, {"tokens": 19, "padding": True}),
        pytest.param("one-hot", 1, {"tokens": 16}, marks=pytest.mark.slow),
        pytest.param("sinusoidal", 2, {"tokens": 17}, marks=pytest.mark.slow),
    ),
)
def test_decoder_is_exact_in_every_tensor(kind, batch, keys):
    step = checked(decoder(positions=kind, **keys), batch, ENGINE)
    names = {op.out for op in step.backward.lowered.graph.ops}
    # Places are constant: their gradient is not computed, that of the learned table is.
    assert {"high.d", "waves.d", "dwaves", "dhigh"}.isdisjoint(names)
    assert kind != "one-hot" or {"l2.dG1", "l2.dG2"} <= names


@pytest.mark.parametrize("batch", (pytest.param(1, marks=pytest.mark.slow), 3))
def test_causal_token_does_not_see_the_tokens_after_it(batch):
    network = decoder(tokens=12)
    with GoldenAccelerator(ENGINE, memory_bytes=1 << 24) as golden:
        driver = Driver(golden, network, batch)
        given = random_inputs(network, driver, 0)
        inputs = given.inputs.reshape(batch, 12, -1)
        whole = driver.forward(given.inputs, given.model, given.scales).logits
        for place in (0, 5, 11):
            changed = inputs.clone()
            changed[:, place:] = inputs[:, place:].flip(2)
            other = driver.forward(changed.flatten(1), given.model, given.scales).logits
            same = (whole == other).reshape(batch, 12, -1).all(2)
            assert same[:, :place].all() and not same[:, place:].any()


@pytest.mark.parametrize("kind", ("one-hot", pytest.param("sinusoidal", marks=pytest.mark.slow)))
def test_decoder_is_near_torch_in_float64(kind):
    network, batch = decoder(positions=kind, widths={"activation": 12, "bias": 16}), 3
    with GoldenAccelerator(ENGINE, memory_bytes=1 << 24) as golden:
        driver = Driver(golden, network, batch)
        given = random_inputs(network, driver, 0)
        logits = driver.forward(given.inputs, given.model, given.scales).logits
        back = driver.backward(given.gradient, given.scales)
    weights, biases = dense(network, given.model)
    inputs = dequantise(given.inputs, driver.input_exponent, network.format("activation"))
    real = outputs(network, weights, biases, inputs)
    (real * given.gradient).sum().backward()
    assert (logits - real).norm() <= 0.02 * real.norm()
    for gradient, bias in zip(back.biases, biases, strict=True):
        if bias is not None and bias.grad.norm() > 1e-9:  # the keys' bias changes no softmax
            assert (gradient - bias.grad).norm() < 0.06 * bias.grad.norm()


def test_masks_of_a_decoder_leave_out_later_tokens_and_padding():
    network = decoder(tokens=3, padding=True)
    inputs = torch.zeros(2, 3, 10, dtype=torch.int64)
    inputs[0, :, 4] = inputs[1, :2, 7] = 127
    masks = token_words(network, inputs.flatten(1))["heads.mask"]
    assert masks[:, 0, 0].tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    assert masks[:, 2, 1].tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 0]]


def test_counts_of_causal_attention_read_at_the_first_token_are_of_that_token():
    tables = classifier(over="first", tokens=4, widths={"activation": 12}).to_dict()
    for layer in tables["layers"]:
        if layer["name"] == "heads":
            layer["causal"] = True
    network = network_from_dict(tables)
    with GoldenAccelerator(ENGINE, memory_bytes=1 << 24) as golden:
        driver = Driver(golden, network, 2)
        given = random_inputs(network, driver, 0)
    inputs = given.inputs.double().requires_grad_()
    (outputs(network, *dense(network, given.model), inputs) * given.gradient).sum().backward()
    reached = inputs.grad.reshape(2, 4, -1).any(2)
    assert reached.tolist() == [[True, False, False, False]] * 2
    counts = TokenCounts(network, present_tokens(network, given.inputs))
    tensors = {t.name: t for t in driver.step.backward.tensors}
    for name in ("l2.dx", "l3.dx", "l4.dx", "heads.dv", "heads.dp", "l1.da"):
        share = float(reached.double().mean()) ** (1 + (name == "heads.dp"))
        assert counts.of(tensors[name]) == round(share * tensors[name].count), name


def test_counts_of_causal_scores_leave_out_later_tokens():
    network = decoder(tokens=12)
    counts = TokenCounts(network, torch.ones(3, 12, dtype=torch.bool))
    tensors = {t.name: t for t in compile_step(network, 3, ENGINE).backward.tensors}
    for name, share in {"heads.dp": 78 / 144, "heads.dv": 1.0}.items():
        assert counts.of(tensors[name]) == round(share * tensors[name].count), name

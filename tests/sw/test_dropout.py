"""Dropout: masks, exact programs, gradients against plain torch, and training with a seed."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from sequence_networks import dropping_classifier
from test_lowering import checked
from test_onchip_training import same
from torch.utils.checkpoint import checkpoint

import trainwright
import trainwright.nn as tnn
from trainwright.accelerator.counted import counted
from trainwright.check.step import random_inputs
from trainwright.check.training import check_training
from trainwright.compiler import CompileError
from trainwright.compiler.base.compiled import AUTO, IN_ROWS
from trainwright.compiler.chip import masks
from trainwright.data import load_data_set
from trainwright.driver import Driver
from trainwright.driver.dropout import dropout_words, dropped, step_mask_seed
from trainwright.fixed.quantise import dequantise
from trainwright.fixed.random_bits import STREAM_STEP, mixed, unit_bytes
from trainwright.golden.backend import GoldenAccelerator
from trainwright.network import NetworkError, network_from_dict
from trainwright.onchip.mask_pass import mask_rows
from trainwright.parameters import AcceleratorParameters
from trainwright.train.chip_update import operands_of
from trainwright.train.functional import outputs
from trainwright.train.host_engine import HostEngine
from trainwright.train.parallel import ParallelDriver, micro_seed
from trainwright.train.resident import ResidentEngine
from trainwright.train.settings import ChipSettings, PriorSettings, TrainSettings
from trainwright.train.state import initial_state
from trainwright.train.trainer import Trainer
from trainwright.train.workers import Workers

pytestmark = pytest.mark.usefixtures("first_programs")

ENGINE = AcceleratorParameters(vector_engine=1)
ALONE = AcceleratorParameters(vector_engine=1, exponents=64, sample_loads=1)


def tables(probability=0.3, **keys):
    """Return the tables of two layers with a dropout between them."""
    layers = [
        {"outputs": [4, 5], "inputs": [8, 8], "ranks": [6]},
        {"name": "kept", "dropout": probability},
        {"outputs": [2, 3], "inputs": [4, 5], "ranks": [3]},
    ]
    return {"name": "dropping", "classes": 6, "image": [8, 8], "layers": layers, **keys}


def masks_of(network, batch, seed):
    """Return the masks of all dropouts of a network."""
    return [dropout_words(network, node, n, batch, seed) for n, node in dropped(network)]


@pytest.mark.parametrize("probability", (0, 0.0, 0.1, 0.99))
def test_dropout_table_is_read_back_as_written(probability):
    network = network_from_dict(tables(probability))
    assert network_from_dict(network.to_dict()) == network


@pytest.mark.parametrize("probability", (-0.1, 1, 0.995, float("nan"), "half", True))
def test_dropout_of_a_wrong_probability_is_one_error(probability):
    with pytest.raises(NetworkError, match="dropout"):
        network_from_dict(tables(probability))


def test_mask_of_a_step_follows_from_its_seed_alone():
    network = network_from_dict(tables(0.3))
    (mask,) = masks_of(network, 500, step_mask_seed(5, 7))
    assert mask.shape == (500, 20) and set(mask.unique().tolist()) == {0, 1}
    # 10,000 values: the share has a deviation of 0.46 %.
    assert abs(float(mask.double().mean()) - 0.7) < 0.02
    assert torch.equal(mask, masks_of(network, 500, step_mask_seed(5, 7))[0])
    for other in (step_mask_seed(5, 8), step_mask_seed(6, 7)):
        agreed = (mask == masks_of(network, 500, other)[0]).double().mean()
        assert abs(float(agreed) - (0.7**2 + 0.3**2)) < 0.03
    assert (masks_of(network, 3, None)[0] == -1).all()


def twice(probability):
    """Return tables with two dropouts, one behind the other."""
    result = tables(probability)
    result["layers"].insert(2, {"name": "again", "dropout": 0.5})
    return result


def test_masks_of_two_dropouts_are_independent():
    first, second = masks_of(network_from_dict(twice(0.5)), 500, 3)
    assert abs(float((first == second).double().mean()) - 0.5) < 0.02


@pytest.mark.parametrize("probability", (0, 2**-16, 0.3, 0.99))
def test_mask_word_follows_from_two_random_bytes_of_its_row_and_lane(probability):
    """Take bytes of the cipher one by one; 33 samples are three rows of lanes."""
    batch, seed = 33, step_mask_seed(4, 1 << 31)
    first, second = masks_of(network_from_dict(twice(probability)), batch, seed)
    for sample, value in ((0, 0), (15, 3), (16, 3), (32, 19), (20, 11)):
        row, lane = 3 * value + sample // 16, sample % 16
        u, v = (int(unit_bytes(mixed(seed + n * STREAM_STEP, 16 * row), 16)[lane]) for n in (0, 1))
        assert first[sample, value] == (256 * u + v >= round(65536 * probability))
        u = int(unit_bytes(mixed(seed, 16 * (row + 3 * 20)), 16)[lane])
        assert second[sample, value] == (u >= 128)


@pytest.mark.parametrize("tokens", (False, True), ids=("samples", "tokens"))
def test_mask_of_a_batch_has_one_row_of_lanes_a_value_and_sequence(tokens):
    network = dropping_classifier(0.5) if tokens else network_from_dict(tables(0.5))
    (_, node), *_ = dropped(network)
    mask = dropout_words(network, node, 0, 3, 9)
    rows = mask_rows(0.5, 9, range(3 * 24 if tokens else 20))
    if tokens:
        assert (mask.reshape(3, 16, 24).permute(2, 0, 1).reshape(-1, 16).numpy() == rows).all()
    else:
        assert (mask.T.numpy() == rows[:, :3]).all()


@pytest.mark.parametrize(
    ("network", "batch"),
    (
        (network_from_dict(tables(0.3)), 5),
        (network_from_dict(tables(0.0)), 16),
        (network_from_dict(tables(0.875, widths={"activation": 11})), 33),
    ),
)
def test_network_with_dropout_is_exact_in_every_tensor(network, batch):
    step = checked(network, batch, ENGINE)
    assert "kept.keep" in step.graph.backward.given


def test_encoder_with_dropout_is_exact_in_every_tensor():
    checked(dropping_classifier(), 2, ENGINE)


def _pass(network, batch, masks, bits):
    """Run a step with 16-bit values; return given operands, logits and gradients."""
    with GoldenAccelerator(ENGINE, memory_bytes=1 << 22) as golden:
        driver = Driver(golden, network, batch)
        given = random_inputs(network, driver, 1)
        logits = driver.forward(given.inputs, given.model, given.scales, masks=masks).logits
        back = driver.backward(given.gradient, given.scales)
    inputs = dequantise(given.inputs, driver.input_exponent, network.format("activation"))
    return given, inputs, logits, back


@pytest.mark.parametrize("masks", (None, 11))
def test_dropout_has_the_values_and_gradients_of_plain_torch(masks):
    """Multiply by the mask and 1 / (1 - p) in float64; without a seed leave values as they are."""
    network, batch = network_from_dict(tables(0.3, widths={"activation": 16})), 24
    given, inputs, logits, back = _pass(network, batch, masks, 16)
    weights = []
    for number, layer in enumerate(network.layers):
        first, second = (
            dequantise(words, exponent, network.factor_format(number, n))
            for n, (words, exponent) in enumerate(
                zip(given.model.factors[number], given.model.factor_exponents[number], strict=True)
            )
        )
        matrix = torch.einsum("ajir,rklb->jkil", first, second)
        weights.append(matrix.reshape(layer.output_size, layer.input_size))
    biases = [bias.double().requires_grad_() for bias in given.model.biases]
    keep = torch.ones(batch, 20, dtype=torch.float64)
    if masks is not None:
        keep = masks_of(network, batch, masks)[0].double() / (1 - 0.3)
        assert 0 < int((keep == 0).sum()) < keep.numel()
    hidden = torch.relu(inputs @ weights[0].T + biases[0]) * keep
    real = hidden @ weights[1].T + biases[1]
    (real * given.gradient).sum().backward()
    assert (logits - real).norm() <= 0.02 * real.norm()
    for gradient, bias in zip(back.biases, biases, strict=True):
        assert (gradient - bias.grad).norm() <= 0.02 * bias.grad.norm()
    # The reference of float32 runs drops the same values.
    reference = outputs(network, weights, [b.detach() for b in biases], inputs, masks)
    torch.testing.assert_close(reference, real.detach())


def test_words_of_dropout_are_rounded_once_and_saturated():
    from trainwright.functions import definition_of
    from trainwright.kernels import evaluate

    kernel = definition_of("dropout").make(0.3).forward
    words = np.arange(-128, 128).reshape(16, 16)
    for mask in (-1, 0, 1):
        rows = {"x0": words, "x1": np.full_like(words, mask)}
        result = evaluate(kernel.traced((8, 2), 8), rows).rows["z"]
        scaled = np.clip(np.rint(words / 0.7), -128, 127)
        assert np.array_equal(result, {-1: words, 0: 0 * words, 1: scaled}[mask])


NUMBERS = "activation=fixed(16)"


def compiled(*between, bias=False):
    """Return a compiled model of two layers with modules between them."""
    torch.manual_seed(0)
    sizes = (32, 48), (48, 12)
    layers = [tnn.TTLinear(*size, rank=4, bias=bias, numbers=NUMBERS) for size in sizes]
    model = torch.nn.Sequential(layers[0], *between, layers[1])
    return trainwright.compile(model, batch=16)


@pytest.mark.parametrize("bias", (False, True))
def test_compiled_dropout_is_one_program_with_the_masks_of_a_seed(bias):
    model, x = compiled(torch.nn.ReLU(), torch.nn.Dropout(0.4), bias=bias), torch.randn(40, 32)
    assert len(model.chains) == 1 and not model.report().operators
    drawn = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        drawn.append(model(x))
    assert torch.equal(drawn[0], drawn[1])
    assert (drawn[0] - drawn[2]).norm() > 0.3 * drawn[0].norm()
    plain = compiled(torch.nn.ReLU(), bias=bias).eval()
    assert torch.equal(model.eval()(x), plain(x)) and len(model.chains) == 1


def test_compiled_dropout_has_one_mask_forward_and_backward():
    """With a fixed mask a model without ReLU and biases is linear: y v = x (gradient to x)."""
    model, x = compiled(torch.nn.Dropout(0.5)), torch.randn(16, 32, requires_grad=True)
    for _ in range(3):  # exponents settle
        model(x).sum().backward()
    x.grad = None
    y = model(x)
    v = y.detach().sign()
    (y * v).sum().backward()
    whole = float((y.detach() * v).sum())
    assert abs(whole - float((x.detach() * x.grad).sum())) < 0.03 * whole


def test_compiled_dropout_is_repeated_by_a_checkpoint():
    model, x = compiled(torch.nn.Dropout(0.5)), torch.randn(16, 32)
    gradients = []
    for kept in (False, True):
        for _ in range(4):  # exponents settle
            torch.manual_seed(7)
            model.zero_grad()
            y = checkpoint(model, x, use_reentrant=False) if kept else model(x)
            y.sum().backward()
        gradients.append([p.grad.clone() for p in model.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))


def test_compiled_dropout_that_evaluation_keeps_active_is_left_to_torch():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = tnn.TTLinear(32, 48, rank=4), tnn.TTLinear(48, 12, rank=4)

        def forward(self, x):
            return self.second(torch.nn.functional.dropout(self.first(x), 0.5))

    engine = AcceleratorParameters(vector_engine=1)
    model, x = trainwright.compile(Model(), batch=16, accelerator=engine), torch.randn(16, 32)
    for training, chains in ((True, 1), (False, 3)):
        model.train(training)
        values = [model(x) for _ in range(2)]
        assert not torch.equal(*values) and len(model.chains) == chains


def of_digits(dropouts):
    """Return the network of ``dropouts``, with outputs for the digits."""
    layers = [*dropouts["layers"][:-1], {"outputs": [2, 5], "inputs": [4, 5], "ranks": [3]}]
    return network_from_dict({**dropouts, "layers": layers, "classes": 10})


def trained(parts, stops=()):
    """Train 6 steps on the golden model in ``parts`` micro-batches, interrupted at ``stops``."""
    network = of_digits(tables(0.3))
    settings = TrainSettings(steps=6, batch=32, micro_batches=parts, prior=None)
    state = initial_state(network, settings)

    def parallel(network):
        drivers = [
            Driver(GoldenAccelerator(ENGINE, memory_bytes=1 << 20), network, settings.micro_batch)
            for _ in range(parts)
        ]
        return ParallelDriver(drivers, Workers()) if parts > 1 else drivers[0]

    for end in (*stops, None):
        data, engine = load_data_set("digits"), HostEngine(parallel)
        Trainer(state, data, engine, stop=lambda end=end: state.step == end).run()
    return operands_of(state.model)


@pytest.mark.parametrize("parts", (1, 2))
def test_training_with_dropout_goes_on_with_the_same_bits_after_a_stop(parts):
    whole, resumed = trained(parts), trained(parts, stops=(2, 5))
    for ours, theirs in zip(whole.factors, resumed.factors, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def test_micro_batches_with_dropout_draw_masks_of_their_own():
    seeds = [micro_seed(step_mask_seed(0, 3), part) for part in range(2)]
    network = network_from_dict(tables(0.5))
    first, second = (masks_of(network, 400, seed)[0] for seed in seeds)
    assert abs(float((first == second).double().mean()) - 0.5) < 0.03


def test_training_alone_with_dropout_equals_the_host_and_writes_nothing(monkeypatch):
    """Draw masks of two dropouts in several pieces; a test set comes between two epochs."""
    monkeypatch.setattr(masks, "MOST_PASS_ROWS", 24)
    whole, network = load_data_set("digits"), of_digits(twice(0.3))
    data = replace(whole, train=whole.train.first(100), test=whole.test.first(40))
    prior = PriorSettings(weight=0.5, warmup=0.0, threshold=0.5, interval=2)
    settings = TrainSettings(
        epochs=2, batch=48, learning_rate=0.3, prior=prior, chip=ChipSettings()
    )  # fmt: skip
    golden = partial(GoldenAccelerator, ALONE, memory_bytes=1 << 19)
    alone = ResidentEngine(counted(golden()))
    by_host = HostEngine(lambda network: Driver(golden(), network, 48, plan=IN_ROWS[AUTO]))
    states = []
    for engine in (by_host, alone):
        states.append(initial_state(network, settings))
        run = Trainer(states[-1], data, engine)
        run.run()
    assert same(*states) and run.host_writes == 0 and alone.driver.evaluation
    assert len({str(state.history.evaluations) for state in states}) == 1
    assert not any((step.correct, step.loss) == (0, 0.0) for step in states[1].history.steps)


def test_masks_of_more_rows_than_keys_are_one_error(monkeypatch):
    monkeypatch.setattr(masks, "LOCAL_WIDTH", 5)  # two masks of 20 values have 40 rows
    with (
        GoldenAccelerator(ALONE, memory_bytes=1 << 20) as golden,
        pytest.raises(CompileError, match=r"more than 32 rows.*--update host"),
    ):
        check_training(network_from_dict(twice(0.5)), 16, golden, steps=1)

"""Differences between outputs that rounding takes are measured, and named once."""

import copy
import warnings
from itertools import product

import pytest
import torch
from slowly import mostly_slow

import trainwright
import trainwright.nn as tnn

pytestmark = pytest.mark.usefixtures("first_programs")

NAMED = "of what differs between samples"


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(1)


def named(run) -> list[str]:
    """Return the warnings of ``run`` about outputs."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run()
    return [str(w.message) for w in caught if NAMED in str(w.message)]


def error_of_deviation(layer: torch.nn.Module, y: torch.Tensor, x: torch.Tensor) -> float:
    """Return the largest error of an output by plain torch in float64, of its deviation."""
    dense = trainwright.to_torch(layer).double()
    dense.bias.data.copy_(layer.bias)  # with all of its bits
    exact = dense(x.double()).detach()
    return float(((y - exact).square().mean(0).sqrt() / exact.std(0)).max())


def with_offset(layer, offset):
    layer.bias.data.fill_(offset)


def with_far_larger_bias(layer, offset):
    layer.bias.data.fill_(1.0)
    layer.bias.data[0] = offset


def by_a_step(layer, offset):
    layer.bias.grad = torch.full_like(layer.bias, -offset)
    torch.optim.SGD([layer.bias], lr=1.0).step()


def by_a_checkpoint(layer, offset):
    layer.load_state_dict(layer.state_dict() | {"bias": torch.full_like(layer.bias, offset)})


@pytest.mark.parametrize("change", [with_offset, with_far_larger_bias, by_a_step, by_a_checkpoint])
@pytest.mark.parametrize("compiled", [False, True])
def test_bias_far_above_the_deviation_warns_once_where_bits_are_lost(change, compiled):
    for offset, is_lost in ((5.0, False), (5003.0, True)):
        layer = tnn.TTLinear(64, 8, rank=4, relu=False)
        model = trainwright.compile(layer, batch=32) if compiled else layer
        x = torch.randn(32, 64)
        model(x).sum().backward()
        change(layer, offset)
        results: list[torch.Tensor] = []

        def use(model=model, x=x, results=results):
            for training in (True, True, False, False):
                results.append(model.train(training)(x).detach())

        messages = named(use)
        assert (error_of_deviation(layer, results[0], x) > 0.25) == is_lost
        assert len(messages) == is_lost, messages


@pytest.mark.parametrize(("passes", "warned"), [(15, False), (16, True), (64, True)])
def test_hidden_layer_warns_after_its_first_passes_if_it_still_loses_outputs(passes, warned):
    """A new network of low rank has inputs there that differ little, which is no fault of data."""
    model = torch.nn.Sequential(tnn.TTLinear(64, 16, rank=4), tnn.TTLinear(16, 8, rank=4))
    with_offset(model[1], 5003.0)
    x = torch.randn(32, 64)
    messages = named(lambda: [model(x) for _ in range(passes)])
    assert len(messages) == warned, messages


def test_bias_set_after_many_evaluations_warns_in_the_next_one():
    layer = tnn.TTLinear(64, 8, rank=4, relu=False)
    x = torch.randn(64, 64)
    layer(x)
    layer.eval()
    assert not named(lambda: [layer(x) for _ in range(6)])
    layer.bias.data.fill_(40.0)  # the exponent of the outputs is that of before
    layer.bias.data[0] = 5000.0
    layer.quantise_output.set_exponent(0)
    assert named(lambda: layer(x))


def test_bias_that_drifts_in_training_warns_within_twice_the_steps():
    layer = tnn.TTLinear(64, 4, rank=4, relu=False)
    optimizer = torch.optim.SGD([layer.bias], lr=1.0)
    x = torch.randn(64, 64)

    def train():
        for _ in range(33):
            layer(x)
            layer.bias.grad = torch.full_like(layer.bias, -200.0)
            optimizer.step()

    assert len(named(train)) == 1


def test_offset_of_outputs_of_1000_deviations_warns_and_of_100_does_not():
    for offset, is_lost in ((100.0, False), (1003.0, True)):
        layer = tnn.TTLinear(64, 8, rank=4, relu=False, numbers=trainwright.network.Widths(bias=16))
        layer.bias.data.fill_(offset)
        x = torch.randn(256, 64)
        results: list[torch.Tensor] = []
        messages = named(lambda: results.append(layer(x).detach()))  # noqa: B023
        assert (error_of_deviation(layer, results[0], x) > 0.25) == is_lost
        assert len(messages) == is_lost


def test_hidden_offset_within_a_program_warns_of_the_program():
    body = torch.nn.Sequential(tnn.TTLinear(64, 64, rank=8), tnn.TTLinear(64, 8, rank=8))
    for offset, is_lost in ((0.0, False), (300.0, True)):
        own = copy.deepcopy(body)
        own[0].bias.data.fill_(offset)
        model = trainwright.compile(own, batch=64)
        x = torch.randn(64, 64)
        assert len(named(lambda: model(x).square().mean().backward())) == is_lost  # noqa: B023


@pytest.mark.parametrize("size", [1, 3])
def test_small_batches_are_measured_together(size):
    layer = tnn.TTLinear(64, 8, rank=4, relu=False)
    layer.bias.data.fill_(5003.0)
    assert len(named(lambda: [layer(torch.randn(size, 64)) for _ in range(8)])) == 1


@pytest.mark.parametrize("compiled", [False, True])
def test_weights_loaded_before_an_evaluation_warn_where_outputs_are_clipped(
    compiled,
):
    body = torch.nn.Sequential(tnn.TTLinear(64, 64, rank=8), torch.nn.ReLU(), tnn.TTLinear(64, 8))
    model = trainwright.compile(body, batch=32) if compiled else body
    x = torch.rand(32, 64)
    for _ in range(3):
        model(x).sum().backward()
    model.eval()

    def errors(scale):
        body[0].load_dense(scale * body[0].weight)
        wanted = trainwright.to_torch(body)(x)
        return float(((model(x) - wanted).std(0) / wanted.std(0)).detach().max())

    assert not named(lambda: errors(1.0))
    measured: list[float] = []
    messages = named(lambda: measured.append(errors(20.0)))
    assert measured[0] > 0.5
    assert any("run a pass in training mode" in message for message in messages)


def test_samples_of_a_probe_are_not_measured_with_those_of_training():
    layer = tnn.TTLinear(64, 8, rank=4, relu=False)

    def use():
        with torch.no_grad():
            layer(torch.full((2, 64), 1e20))
        for _ in range(8):
            layer(torch.randn(3, 64))

    assert not named(use)


def test_convolution_and_embedding_are_measured_by_channel_and_column():
    convolution = tnn.TTConv2d(3, 8, 3, padding=1, rank=4, relu=False)
    images = torch.randn(16, 3, 6, 6)
    assert not named(lambda: convolution(images))
    convolution.bias.data.fill_(5003.0)
    assert len(named(lambda: convolution(images))) == 1
    embedding = tnn.TTEmbedding(100, 16, rank=4)
    assert not named(lambda: embedding(torch.arange(100)))


def test_constant_outputs_and_narrow_numbers_give_no_warning():
    layer = tnn.TTLinear(64, 8, rank=4, relu=False)
    layer.bias.data.fill_(5003.0)
    assert not named(lambda: layer(torch.ones(64, 64)))
    narrow = tnn.TTLinear(64, 8, rank=4, numbers=trainwright.network.Widths(activation=4))
    narrow.bias.data.fill_(5003.0)
    assert not named(lambda: narrow(torch.randn(64, 64)))


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("what", ["inputs", "weights", "gradients"])
def test_subnormal_numbers_keep_their_bits_in_layers_and_programs(what, dtype, compiled):
    layer = tnn.TTLinear(64, 8, rank=4, bias=False, relu=False, dtype=dtype)
    x, dy = torch.randn(32, 64, dtype=dtype), torch.randn(32, 8, dtype=dtype)
    small = 1e-41 if dtype is torch.float32 else 1e-200
    if what == "inputs":
        x *= small
    elif what == "gradients":
        dy *= small
    else:
        for factor in layer.factors:
            factor.data *= small ** (1 / len(layer.factors))
    x.requires_grad_()
    model = trainwright.compile(layer, batch=32) if compiled else layer
    y = model(x)
    y.backward(dy)
    weight = layer.weight.detach().double()
    # Norms of numbers below 1e-154 are 0 in float64.
    wanted, scale = x.detach().double() @ weight.T, max(1.0, 1 / small) ** 0.75
    given = y.detach().double()
    assert float(((given - wanted) * scale).norm() / (wanted * scale).norm()) < 0.05
    wanted, given = dy.double() @ weight, x.grad.double()
    assert float(((given - wanted) * scale).norm() / (wanted * scale).norm()) < 0.05


def test_doubles_beyond_float32_keep_their_bits():
    for magnitude in (1e-300, 1e-170, 1e170, 1e300):
        layer = tnn.TTLinear(64, 8, rank=4, bias=False, dtype=torch.float64)
        x = torch.randn(32, 64, dtype=torch.float64) * magnitude
        y, wanted = layer(x), x @ layer.weight.T
        with torch.no_grad():
            assert float(((y - wanted) / wanted.abs().max()).abs().max()) < 0.05


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("zeros", [0, 1, 2])
def test_factors_of_zeros_that_never_learn_are_named_once(zeros, compiled):
    layer = tnn.TTLinear(64, 8, rank=4)
    model = trainwright.compile(layer, batch=16) if compiled else layer
    for factor in list(layer.factors)[:zeros]:
        factor.data.zero_()
    x = torch.randn(16, 64)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(4):
            model(x).sum().backward()
            assert any(bool(factor.grad.any()) for factor in layer.factors) == (zeros < 2)
            layer.bias.data += 0.1
    messages = [str(w.message) for w in caught if "factors 0, 1 are all zeros" in str(w.message)]
    assert len(messages) == (zeros == 2)
    assert all("reset_parameters()" in message for message in messages)


@mostly_slow(
    "training, compiled",
    product((False, True), (False, True)),
    quick=[(False, False), (True, False), (False, True)],
)
def test_sequences_of_like_tokens_count_as_one_sample_each(training, compiled):
    for offset, is_lost in ((0.0, False), (5003.0, True)):
        layer = tnn.TTLinear(64, 8, rank=4, relu=False)
        model = trainwright.compile(layer, batch=32) if compiled else layer
        layer.bias.data.fill_(offset)
        model(torch.randn(1, 32, 64))
        model.train(training)
        layer.bias.data += 0.5  # so that an evaluation measures

        def use(model=model):
            for _ in range(24):  # tokens of a sequence differ by less than 8 bits hold
                model(torch.randn(1, 1, 64) + 1e-3 * torch.randn(1, 32, 64))

        assert len(named(use)) == is_lost


def test_two_outputs_of_one_layer_of_other_widths_are_measured_apart():
    layer = tnn.TTLinear(64, 8, rank=4, relu=False)
    loss = layer.output_loss
    for columns in (8, 4, 8):
        y = torch.randn(4, columns)
        assert loss.is_due(training=True, parameters=0.0)
        loss.measure("layer", torch.randn(4, 64), y, lambda _, y=y: y, (1, 1))


@pytest.mark.parametrize("zeros", [0, 2])
def test_factors_of_zeros_beside_dropout_are_named_once(zeros):
    body = torch.nn.Sequential(
        tnn.TTLinear(64, 32, rank=4), torch.nn.Dropout(0.5), tnn.TTLinear(32, 8, rank=4)
    )
    for factor in list(body[0].factors)[:zeros]:
        factor.data.zero_()
    model = trainwright.compile(body, batch=16)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(4):
            model(torch.randn(16, 64)).sum().backward()
    messages = [str(w.message) for w in caught if "are all zeros" in str(w.message)]
    assert len(messages) == (zeros == 2), messages
    assert all(message.startswith("0: factors 0, 1") for message in messages)


@pytest.mark.parametrize(
    ("compiled", "deviation", "is_lost"),
    [(True, 0.01, True), (True, 1.0, False), (False, 0.01, False)],
)
def test_norm_of_differences_of_few_steps_warns_in_training_where_lost(
    compiled, deviation, is_lost
):
    numbers = trainwright.network.Widths(activation=16)
    model = torch.nn.Sequential(
        tnn.TTLayerNorm(256, numbers=numbers), tnn.TTLinear(256, 32, rank=4, numbers=numbers)
    )
    x = 100 + deviation * torch.randn(64, 256)
    exact = trainwright.to_torch(model).double()(x.double())
    run = trainwright.compile(model, batch=64) if compiled else model

    def train():
        for _ in range(9):
            run(x).square().mean().backward()

    warned = named(train)
    error = (run(x) - exact).norm() / exact.norm()
    # The accelerator's LayerNorm does not tell differences of 2 steps from equal values.
    assert bool(error > 0.9) == is_lost
    assert len(warned) == is_lost

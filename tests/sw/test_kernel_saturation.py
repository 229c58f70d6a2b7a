"""Kernels of users whose results saturate in programs: one warning, and remedies that work."""

import warnings
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import pytest
import torch
from function_networks import guide_network, kernels_dropped, two_layers

import trainwright
from trainwright.check.step import check_step
from trainwright.compiler.step.stored import own_parts
from trainwright.driver import Driver
from trainwright.fixed.health import LostTensorWarning, loss_of
from trainwright.fixed.scale import Scales, TensorClass, TensorStatistics
from trainwright.formats import Fixed
from trainwright.functions import Scale, Scaling, function_names, function_of, scalars_of
from trainwright.functions.in_torch import applied
from trainwright.functions.saturation import cut_share, warn_of_saturation
from trainwright.golden.backend import GoldenAccelerator
from trainwright.kernels import Rounding
from trainwright.network import network_from_dict
from trainwright.parameters import AcceleratorParameters
from trainwright.train.settings import TrainSettings
from trainwright.train.state import initial_state

EVEN = Rounding.EVEN
ENGINE = AcceleratorParameters(vector_engine=1)


@pytest.fixture(autouse=True)
def own_kernels():
    """Drop the kernels of a test."""
    with kernels_dropped():
        yield


def raised(bits):
    """Make the rule of a result whose exponent is ``bits`` above that of its operand."""
    return Scale(lambda e, *_: Scaling(e[0] + bits, e[0] + bits, ()))


def messages(body: Any, gradient: Any = "straight-through", **options):
    """Compile a network with a kernel twice, and list the warnings."""
    body.__name__ = "own"
    trainwright.kernel(gradient=gradient, **options)(body)
    network = two_layers("own")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        own_parts(network, 16)
        own_parts(network, 16)
    assert all(w.category is LostTensorWarning for w in caught)
    return [str(w.message) for w in caught]


def test_gradient_times_100_in_a_program_warns_once_of_its_line():
    (message,) = messages(lambda k, x: x, lambda k, upper: upper * 100)
    assert "test_kernel_saturation.py:" in message and ": own': 6" in message
    assert "16 bits" in message and "gradient_scale=" in message


def test_gradient_on_another_line_than_its_function_is_named_by_its_own():
    def gradient(k, upper):
        return upper * 100

    line = gradient.__code__.co_firstlineno
    (message,) = messages(lambda k, x: x, gradient)
    assert message.startswith(f"test_kernel_saturation.py:{line}: own': ")


def test_gradient_to_a_group_that_reduces_is_one_value_for_all():
    entry = trainwright.kernel(
        gradient=lambda k, upper: k.sum(upper), over="features", reduces=True, name="own"
    )(lambda k, x: k.greatest(x))
    # A sum of 32 equal values has 32 times their deviation of 1.9 % of full scale.
    backward = entry.make().sized(32).backward
    assert backward and cut_share(backward, (16,), 16) > 0.08


def test_result_times_50_in_a_program_warns_once_of_its_line():
    (message,) = messages(lambda k, x: x * 50)
    assert "test_kernel_saturation.py:" in message and ": own: " in message
    assert " 8 bits" in message and "whole_bits=" in message


def test_gradient_by_a_large_result_warns():
    def gradient(k, upper, result):
        return upper * (k.scaled(result, 0).clip(12))

    assert not messages(lambda k, x: x.at_most(3), gradient)
    (message,) = messages(
        lambda k, x: k.fixed((k.scaled(x, 4) * 50).clip(16), 4), gradient, whole_bits=7
    )
    assert "own'" in message


def test_sum_over_a_group_warns_where_it_saturates():
    assert not messages(lambda k, x: x + k.sum(x), "straight-through", over="features")
    (message,) = messages(lambda k, x: k.sum(x) + k.sum(x), "straight-through", over="features")
    assert "own(32)" in message


@pytest.mark.parametrize(
    ("body", "gradient", "options"),
    (
        (lambda k, x: x + x, lambda k, upper: upper + upper, {}),
        (lambda k, x: (x * 50).clip(8), lambda k, upper: (upper * 100).clip(16), {}),
        (lambda k, x: (x * 50).at_least(-9).at_most(9), "straight-through", {}),
        (lambda k, x: k.fixed(k.scaled(x, 8) * 50, 8), "straight-through", {"whole_bits": 8}),
        (lambda k, x: k.fixed((k.scaled(x, 8) * 50).clip(16), 8), "straight-through",
         {"whole_bits": 0}),
        (lambda k, x: (x * 50).rounded(6, EVEN), "straight-through", {"scale": raised(6)}),
        (lambda k, x: x, lambda k, upper: (upper * 100).rounded(7, EVEN),
         {"gradient_scale": raised(7)}),
    ),
)  # fmt: skip
def test_results_that_fit_or_are_cut_by_intention_give_no_warning(body, gradient, options):
    assert not messages(body, gradient, **options)


def test_functions_of_the_library_and_of_the_guide_give_no_warning(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        own_parts(guide_network(tmp_path), 16)
        for name in function_names():
            function = function_of(name)
            function = function.sized(16) if function.over else function
            for kernel, widths in ((function.forward, (8,)), (function.backward, (16, 8))):
                if kernel is not None:
                    warn_of_saturation(kernel, widths[: kernel.operands], widths[0])


def test_share_of_cut_results_is_that_of_normal_values():
    body = trainwright.kernel(gradient="straight-through", name="own")(lambda k, x: x * 24)
    # Words of a mean of 0.0346 of 128 have a deviation of 5.55, and 24 x is cut beyond 5.3.
    assert abs(cut_share(body.make().forward, (8,), 8) - 0.32) < 0.03
    assert cut_share(body.make().forward, (8,), 16) == 0


@pytest.mark.parametrize(
    ("body", "gradient", "options", "factor"),
    (
        (lambda k, x: (x * 50).rounded(6, EVEN), "straight-through", {"scale": raised(6)}, 50),
        (lambda k, x: k.fixed(k.scaled(x, 8) * 50, 8), "straight-through", {"whole_bits": 8}, 50),
        (lambda k, x: x, lambda k, upper: (upper * 100).rounded(7, EVEN),
         {"gradient_scale": raised(7)}, 100),
    ),
)  # fmt: skip
def test_remedies_keep_the_values_and_run_in_programs(body, gradient, options, factor):
    body.__name__ = "own"
    function = trainwright.kernel(gradient=gradient, **options)(body).make()
    kernel = function.backward or function.forward
    width = 16 if function.backward else 8
    words = np.arange(-(1 << (width - 1)), 1 << (width - 1), width)
    words = words[: len(words) // 16 * 16].reshape(-1, 16)
    result, exponent = applied(kernel, [words], [width], width, [-5])
    assert np.abs(result * 2.0**exponent - factor * words / 32).max() <= 2.0**exponent
    assert scalars_of(kernel, width).exponent.at((-5, 0)) == exponent
    with GoldenAccelerator(ENGINE, memory_bytes=1 << 22) as accelerator:
        checked = check_step(two_layers("own"), 8, accelerator, seed=1)
    assert checked.comparison.values and checked.comparison.mismatches == {}


def growing(factor, bits):
    """Multiply by ``factor`` and shift by ``bits``."""
    return lambda k, x: (x * factor).rounded(bits, EVEN)


@pytest.mark.parametrize(("bits", "warned"), [(2, True), (5, False)])
def test_rule_of_an_exponent_that_is_too_small_warns_once_of_its_line(bits, warned):
    def body(k, x):
        return growing(50, bits)(k, x)

    def gradient(k, upper):
        return growing(50 * 8, bits)(k, upper)

    own = messages(body, scale=raised(bits))
    assert len(own) == warned
    assert not warned or "8 bits at the exponent of the rule scale=, and saturate in" in own[0]
    line = gradient.__code__.co_firstlineno
    own = messages(lambda k, x: x, gradient, gradient_scale=raised(bits))
    assert len(own) == warned
    if warned:
        assert own[0].startswith(f"test_kernel_saturation.py:{line}: own': ")
        assert "the rule gradient_scale=" in own[0] and "raise the exponent further" in own[0]


def in_torch(body: Any, x, gradient: Any = "straight-through", **options):
    """Call a kernel twice in torch, forward and backward; return its result and the warnings."""
    body.__name__ = "own"
    own = trainwright.kernel(gradient=gradient, **options)(body)
    x = x.clone().requires_grad_()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            own(x).sum().backward()
    return [str(w.message) for w in caught]


def grown_by_100(k, upper):
    """Multiply a gradient by 100, in units four times as large."""
    return (upper * 100).rounded(2, EVEN)


def test_results_that_saturate_in_torch_warn_once_of_their_line():
    x = torch.linspace(-1, 1, 101)
    (message,) = in_torch(lambda k, x: x * 50, x)
    assert message.startswith("test_kernel_saturation.py:") and "saturate in torch" in message
    assert "97% of the results" in message and "whole_bits=" in message
    (message,) = in_torch(growing(50, 2), x, scale=raised(2))
    assert "the rule scale=" in message
    (message,) = in_torch(lambda k, x: x, x, grown_by_100, gradient_scale=raised(2))
    assert "own': 100%" in message and "the rule gradient_scale=" in message


@pytest.mark.parametrize(
    ("body", "options"),
    (
        (lambda k, x: (x * 50).clip(8), {}),
        (growing(50, 6), {"scale": raised(6)}),
        (lambda k, x: k.fixed(k.scaled(x, 8), 8), {"whole_bits": 0}),
    ),
)
def test_results_that_fit_or_are_cut_by_intention_in_torch_give_no_warning(body, options):
    assert not in_torch(body, torch.linspace(-1, 1, 101), **options)


@pytest.mark.parametrize(("probability", "warned"), [(0.75, None), (0.8, "1%"), (0.95, "25%")])
def test_dropout_whose_kept_values_saturate_behind_a_relu_warns_once(probability, warned):
    layers = [
        {"outputs": [4, 8], "inputs": [8, 8], "ranks": [4], "relu": True, "bias": True},
        {"dropout": probability},
        {"outputs": [2, 5], "inputs": [4, 8], "ranks": [4], "relu": False, "bias": True},
    ]
    network = network_from_dict({"name": "n", "classes": 10, "image": [8, 8], "layers": layers})
    warn_of_saturation.cache_clear()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        own_parts(network, 16)
        own_parts(network, 16)
    texts = [str(w.message) for w in caught]
    assert len(texts) == (warned is not None)
    wanted = f"dropout({probability}): {warned} of the results need more than 8 bits"
    assert all(wanted in text and "use a lower probability" in text for text in texts)


def test_values_that_passes_clip_are_a_loss_by_their_share_of_squares():
    # A mean of 1 % of full scale, and one value in 100 or in 10,000 at full scale.
    few = TensorStatistics(TensorClass.GRADIENT, Fixed(16), 0, -9, 10**6, 328 * 10**6, 0)
    assert loss_of(few) is None
    assert loss_of(replace(few, clipped=100)) is None
    loss = loss_of(replace(few, clipped=5000))
    assert loss and loss.what.startswith("clipped by the vector engine in 0.5% of its values, 9")
    assert "as many outputs as there are classes" in loss.remedy


@pytest.mark.parametrize("lower", [0, 6])
def test_driver_gives_statistics_the_values_that_passes_clipped(lower):
    network = two_layers("layer_norm")
    torch.manual_seed(0)
    model = initial_state(network, TrainSettings(steps=1, prior=None)).model.quantised()
    inputs = torch.randint(-100, 100, (16, prod(network.padded)))
    gradient = torch.randint(-9000, 9000, (16, network.output_size)).double() / 2**14
    scales = Scales()
    with GoldenAccelerator(ENGINE, memory_bytes=1 << 22) as accelerator:
        driver = Driver(accelerator, network, 16)
        driver.calibrate(inputs, lambda _: gradient, model, scales)
        scales.exponents = {name: e - lower for name, e in scales.exponents.items()}
        driver.forward(inputs, model, scales)
        statistics = driver.backward(gradient, scales).statistics
    clipped = {name: s.clipped for name, s in statistics.items() if s.uncounted}
    assert clipped and all(bool(count) == bool(lower) for count in clipped.values())
    lost = [name for name, s in statistics.items() if name in clipped and loss_of(s)]
    assert lost == (list(clipped) if lower else [])

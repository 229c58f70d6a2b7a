"""Functions of windows that overlap, or that reach beyond the image: exact, and as torch's."""

import pytest
import torch
from test_lowering import checked

import trainwright
import trainwright.nn as tnn
from trainwright.check.step import random_inputs
from trainwright.driver import Driver
from trainwright.fixed.quantise import dequantise
from trainwright.golden.backend import GoldenAccelerator
from trainwright.network import NetworkError, network_from_dict
from trainwright.parameters import AcceleratorParameters

pytestmark = pytest.mark.usefixtures("first_programs")

ENGINE = AcceleratorParameters(vector_engine=1)


def pooling(function, kernel, stride, padding, image=(7, 8), **keys):
    """Return a convolution, a pool and a layer; the pool reads values of both signs."""
    pool = {"pool": kernel, "stride": stride, "padding": padding, "function": function}
    rows, columns = (
        (size + 2 * p - k) // s + 1
        for size, k, s, p in zip(image, kernel, stride, padding, strict=True)
    )
    layers = [
        {"outputs": [1, 3], "inputs": [9, 1], "ranks": [3], "kernel": [3, 3], "padding": [1, 1],
         "relu": False},
        {"name": "pool", **pool},
        {"outputs": [4], "inputs": [rows * columns * 3], "ranks": []},
    ]  # fmt: skip
    return network_from_dict({"classes": 4, "image": list(image), "layers": layers, **keys})


CASES = (
    ("max_pool", [3, 3], [2, 2], [1, 1]),
    ("max_pool", [3, 2], [1, 2], [0, 0]),
    ("avg_pool", [3, 3], [2, 1], [1, 1]),
    ("max_pool", [2, 2], [2, 2], [0, 0]),  # windows that do not divide the image
)


@pytest.mark.parametrize(("function", "kernel", "stride", "padding"), CASES)
def test_overlapping_pool_is_exact_in_every_tensor(function, kernel, stride, padding):
    checked(pooling(function, kernel, stride, padding), 5, ENGINE)


@pytest.mark.parametrize(("function", "kernel", "stride", "padding"), CASES[:3])
def test_overlapping_pool_has_the_values_of_torch(function, kernel, stride, padding):
    """Pool the convolution's own words in float64 torch; the result is exact for maxima."""
    widths = {"activation": 12, "bias": 16}
    network, batch = pooling(function, kernel, stride, padding, widths=widths), 4
    with GoldenAccelerator(ENGINE, memory_bytes=1 << 22) as golden:
        driver = Driver(golden, network, batch)
        given = random_inputs(network, driver, 0)
        logits = driver.forward(given.inputs, given.model, given.scales).logits
    factors = [
        [
            dequantise(w, e, network.factor_format(n, k))
            for k, (w, e) in enumerate(zip(*p, strict=True))
        ]
        for n, p in enumerate(zip(given.model.factors, given.model.factor_exponents, strict=True))
    ]
    x = dequantise(given.inputs, driver.input_exponent, network.format("activation"))
    kernels = torch.einsum("ajir,rklb->jkil", *factors[0]).reshape(3, 1, 3, 3)
    y = torch.nn.functional.conv2d(
        x.reshape(batch, 1, 7, 8), kernels, given.model.biases[0].double(), padding=1
    )
    own = getattr(torch.nn.functional, f"{function}2d")
    flat = own(y, kernel, stride, padding).permute(0, 2, 3, 1).flatten(1)
    real = flat @ factors[1][0][0, :, :, 0].T + given.model.biases[1].double()
    assert (logits - real).norm() < 0.01 * real.norm()


@pytest.mark.parametrize("padding", (0, 1))
def test_compiled_max_pool_is_part_of_the_program_as_in_torch(padding):
    torch.manual_seed(0)
    numbers = "activation=fixed(12)"
    layers = [
        tnn.TTConv2d(1, 4, 3, padding=1, rank=4, numbers=numbers),
        torch.nn.MaxPool2d(3, 2, padding),
        tnn.TTConv2d(4, 4, 3, rank=4, numbers=numbers),
    ]
    model, x = torch.nn.Sequential(*layers), torch.randn(4, 1, 10, 10)
    compiled = trainwright.compile(model, batch=4)
    compiled.eval()
    compiled(x)
    assert len(compiled.chains) == 1 and not compiled.report().operators
    real = tnn.to_torch(model)(x)
    assert (compiled(x) - real).norm() < 0.03 * real.norm()


def test_padding_of_a_pool_of_the_widest_words_is_one_error():
    with pytest.raises(NetworkError, match=r"pool: padding of max_pool .* 15 bits at most, not 16"):
        pooling("max_pool", [3, 3], [2, 2], [1, 1], widths={"activation": 16})

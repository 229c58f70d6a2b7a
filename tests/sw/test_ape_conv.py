"""``conv2d`` against torch's, in every setting, and its gradients."""

import pytest
import torch
from torch.nn import functional

from trainwright import ape

SETTINGS = [
    {},
    {"stride": 2, "padding": 1},
    {"stride": (2, 1), "padding": (0, 2), "dilation": (1, 2)},
    {"groups": 2, "padding": 1},
    {"groups": 4},
    {"padding": "same", "dilation": 2},
    {"padding": "valid"},
]


def inputs(groups=1, kernel=(3, 3)):
    random = torch.Generator().manual_seed(0)
    x = torch.randn(2, 4, 8, 9, generator=random)
    return x, torch.randn(4, 4 // groups, *kernel, generator=random), torch.randn(4)


@pytest.mark.parametrize("dtype", ["fp32-f", "fp32-b", "fp32-t", "fp32-m", "auto", "fp32"])
@pytest.mark.parametrize("setting", SETTINGS)
def test_ape_conv_as_torch_in_every_setting(setting, dtype):
    x, weight, bias = inputs(setting.get("groups", 1))
    y = ape.conv2d(x, weight, bias, dtype=dtype, **setting)
    wanted = functional.conv2d(x.double(), weight.double(), bias.double(), **setting)
    assert y.shape == wanted.shape and y.dtype == torch.float32
    assert float((y.double() - wanted).abs().max()) < 1e-5


def test_is_the_products_of_its_patches():
    x, weight, _ = inputs()
    columns = functional.unfold(x, 3)  # (2, 36, positions)
    wanted = ape.gemm(weight.flatten(1), columns, dtype="fp32-f")
    assert torch.equal(ape.conv2d(x, weight, dtype="fp32-f").flatten(2), wanted)


def test_ape_conv_one_image_an_empty_batch_and_even_kernels():
    x, weight, bias = inputs(kernel=(2, 4))
    assert torch.equal(
        ape.conv2d(x[0], weight, bias, dtype="fp32-f"),
        ape.conv2d(x[:1], weight, bias, dtype="fp32-f")[0],
    )
    assert ape.conv2d(x[:0], weight, dtype="fp32-f").shape == (0, 4, 7, 6)
    same = ape.conv2d(x, weight, padding="same", dtype="fp32-b")
    assert same.shape == x.shape


@pytest.mark.parametrize("dtype", ["fp32-f", "auto"])
@pytest.mark.parametrize("setting", SETTINGS[:5])
def test_ape_conv_gradients_match_float64(setting, dtype):
    x, weight, bias = (v.requires_grad_() for v in inputs(setting.get("groups", 1)))
    ape.conv2d(x, weight, bias, dtype=dtype, **setting).sin().sum().backward()
    wide = [v.detach().double().requires_grad_() for v in (x, weight, bias)]
    functional.conv2d(*wide, **setting).sin().sum().backward()
    for operand, wanted in zip((x, weight, bias), wide, strict=True):
        torch.testing.assert_close(operand.grad.double(), wanted.grad, rtol=1e-4, atol=1e-4)


def test_ape_conv_rejects_bad_arguments():
    x, weight, _ = inputs()
    with pytest.raises(ValueError, match="in 3 groups"):
        ape.conv2d(x, weight, groups=3)
    with pytest.raises(TypeError, match="float64"):
        ape.conv2d(x.double(), weight.double())


def test_ape_conv_default_arguments_are_torch_s():
    x, weight = torch.ones(1, 2, 5, 6), torch.ones(4, 2, 3, 3)
    for how in ({}, {"stride": [2]}, {"padding": (1,)}, {"dilation": (2, 1)}, {"padding": "valid"}):
        assert torch.equal(ape.conv2d(x, weight, **how), functional.conv2d(x, weight, **how))


X, W = torch.ones(1, 2, 8, 8), torch.ones(4, 2, 3, 3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"stride": 0}, "stride must be one or two integers of at least 1, not 0"),
        ({"stride": (1, -1)}, r"stride must be .* at least 1, not \(1, -1\)"),
        ({"stride": (1, 2, 3)}, "stride must be one or two"),
        ({"stride": ()}, "stride must be one or two"),
        ({"stride": 1.5}, "stride must be one or two integers, not 1.5"),
        ({"stride": "a"}, "stride must be numbers, not 'a'"),
        ({"dilation": 0}, "dilation must be .* at least 1, not 0"),
        ({"dilation": 4}, "a kernel 3 high with dilation 4 does not fit 8 pixels"),
        ({"padding": -1}, "padding must be .* at least 0, not -1"),
        ({"padding": "foo"}, "padding must be numbers, not 'foo'"),
        ({"padding": "same", "stride": 2}, "padding 'same' goes with stride 1"),
        ({"groups": 0}, "in 0 groups"),
        ({"groups": -1}, "in -1 groups"),
        ({"groups": 3}, "each group has as many"),
        ({"weight": torch.ones(3, 1, 3, 3), "groups": 2}, "each group has as many"),
        ({"weight": torch.ones(4, 2, 3, 9)}, "a kernel 9 wide with dilation 1 does not fit 8"),
        ({"weight": torch.ones(4, 2, 0, 3)}, "a kernel 0 high"),
        ({"weight": torch.ones(4, 2, 3)}, "a weight has 4 dimensions, not 3"),
        ({"weight": W.double()}, "weight must be a tensor of float32, not torch.float64"),
        ({"x": X.int()}, "x must be a tensor of float32, not torch.int32"),
        ({"x": [1]}, "x must be a tensor of float32, not list"),
        ({"x": X[0, 0]}, "cannot convolve"),
        ({"x": torch.ones(1, 2, 0, 8)}, "does not fit 0 pixels"),
        ({"bias": torch.ones(3)}, r"bias has shape \(3,\), not \(4,\): one value"),
    ],
)
def test_convolutions_that_cannot_be(options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        ape.conv2d(**{"x": X, "weight": W, **options})

"""Convolutions of posits and their gradients."""

import pytest
import torch
from posit_cases import any_codes, generator, normal_codes

from trainwright.posit import PositError, PositFormat, round_to
from trainwright.posit.convolution import Geometry, conv2d, input_gradient, weight_gradient
from trainwright.posit.exactness import carrier
from trainwright.posit.rounding import values_of
from trainwright.support.native import without

P16, P8, P32 = PositFormat(16, 2), PositFormat(8, 2), PositFormat(32, 2)
GEOMETRIES = [
    Geometry(),
    Geometry(padding=(2, 2)),
    Geometry(stride=(2, 3), padding=(1, 0), dilation=(1, 2), groups=2),
    Geometry(stride=(3, 2), dilation=(2, 1)),
]


@pytest.mark.parametrize("geometry", GEOMETRIES, ids=str)
def test_convolutions_have_torchs_shapes_and_values(geometry, posit_path):
    """In posit(32,2), close to float64; each element, of integers, exactly."""
    g = generator(1)
    for fmt, integers in ((P32, False), (P16, True)):

        def make(*shape, fmt=fmt, integers=integers):
            x = torch.randn(shape, generator=g, dtype=torch.float64)
            return round_to((3 * x).round() if integers else x, fmt).to(torch.float64)

        x, w = make(2, 4, 11, 12).requires_grad_(), make(6, 4 // geometry.groups, 3, 2)
        w.requires_grad_()
        bias = make(6)
        how = (geometry.stride, geometry.padding, geometry.dilation, geometry.groups)
        y = torch.nn.functional.conv2d(x, w, bias, *how)
        dy = make(*y.shape)
        y.backward(dy)
        kind = carrier(fmt)
        a, b, c, d = (t.detach().to(kind) for t in (x, w, bias, dy))
        for mode in ("quire", "sequential"):
            results = (
                (conv2d(a, b, c, geometry, fmt, mode), y.detach()),
                (input_gradient(d, b, (11, 12), geometry, fmt, mode), x.grad),
                (weight_gradient(a, d, (3, 2), geometry, fmt, mode), w.grad),
            )
            for got, want in results:
                if integers and mode == "quire":
                    assert torch.equal(got, round_to(want, fmt))
                elif not integers:  # 200 operations on sums below 100, 22 digits or more
                    assert (got - want).abs().max() < 200 * 100 * 2.0**-22


@pytest.mark.parametrize("fmt", [P16, P8, P32, PositFormat(16, 1)], ids=str)
@pytest.mark.parametrize("mode", ["sequential", "quire"])
def test_kernels_and_torch_give_the_same_bits_of_convolutions(fmt, mode):
    kernel, image = (3, 2), (9, 14)
    for geometry in GEOMETRIES:
        groups = geometry.groups
        x, w = normal_codes((2, 4, *image), fmt, 1), any_codes((6, 4 // groups, *kernel), fmt, 2)
        dy = normal_codes((2, 6, *geometry.size(image, kernel)), fmt, 3, 2.0**-9)
        a, b, d = (values_of(codes, fmt) for codes in (x, w, dy))
        bias = values_of(any_codes((6,), fmt, 4), fmt)
        calls = (
            lambda a=a, b=b, bias=bias, g=geometry: conv2d(a, b, bias, g, fmt, mode),
            lambda a=a, b=b, g=geometry: conv2d(a, b, None, g, fmt, mode),
            lambda b=b, d=d, g=geometry: input_gradient(d, b, image, g, fmt, mode),
            lambda a=a, d=d, g=geometry: weight_gradient(a, d, kernel, g, fmt, mode),
        )
        for call in calls:
            got = call()
            with without():
                assert torch.equal(got, call())


def test_errors_of_convolutions():
    unit = torch.ones(1, 1, 3, 3)
    with pytest.raises(ValueError, match=r"mode must be one of"):
        conv2d(unit, unit, None, Geometry(), P16, mode="float")
    with pytest.raises(PositError, match=r"posit\(32,2\) live in torch.float64"):
        conv2d(unit, unit, None, Geometry(), P32)


@pytest.mark.parametrize(
    ("geometry", "shape", "message"),
    [
        (Geometry(stride=(0, 1)), (4, 2, 3, 3), "stride must be"),
        (Geometry(padding=(-1, 0)), (4, 2, 3, 3), "padding must be at least 0, not -1"),
        (Geometry(dilation=(1, 0)), (4, 2, 3, 3), "dilation must be"),
        (Geometry(dilation=(9, 9)), (4, 2, 3, 3), "a kernel 3 high with dilation 9 does not fit 8"),
        (Geometry(groups=3), (4, 2, 3, 3), "cannot convolve .* in 3 groups"),
        (Geometry(groups=0), (4, 2, 3, 3), "in 0 groups"),
        (Geometry(groups=2), (3, 1, 3, 3), "as many channels and outputs"),
        (Geometry(), (2, 3, 3), "cannot convolve .* in 1 group$"),
    ],
)
def test_convolutions_that_cannot_be(geometry, shape, message):
    fmt = PositFormat(16, 2)
    with pytest.raises(PositError, match=message):
        conv2d(torch.ones(1, 2, 8, 8), torch.ones(shape), None, geometry, fmt)
    with pytest.raises(PositError, match=r"bias has shape \(3,\), not \(1,\): one value"):
        conv2d(torch.ones(1, 2, 8, 8), torch.ones(1, 2, 3, 3), torch.ones(3), Geometry(), fmt)
    with pytest.raises(PositError, match=r"bias has shape \(3,\), not \(4,\): one value"):
        conv2d(torch.ones(1, 2, 8, 8), torch.ones(4, 2, 3, 3), torch.ones(3), Geometry(), fmt)


def test_posit_convolution_omitted_terms_change_nothing():
    assert Geometry() == Geometry(stride=(1, 1), padding=(0, 0), dilation=(1, 1), groups=1)
    assert Geometry().size((5, 7), (3, 2)) == (3, 6)


def test_posit_convolution_kernel_as_large_as_its_image():
    assert Geometry().whole((3, 4), (3, 4))
    assert not Geometry().whole((3, 4), (3, 3))
    assert not Geometry(padding=(0, 1)).whole((3, 4), (3, 4))
    assert not Geometry(dilation=(2, 1)).whole((3, 4), (3, 4))

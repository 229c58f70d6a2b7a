"""Compiled layers whose sizes are padded: gradients as in torch, exponents that follow no zeros."""

import copy
import math

import pytest
import torch

import trainwright
import trainwright.nn as tnn
from trainwright.compiler.base.rules import Written
from trainwright.fixed.scale import TensorClass
from trainwright.formats import Fixed
from trainwright.offload.padding import Padding, without_unused_rows


def _conv(outputs):
    return torch.nn.Sequential(
        tnn.TTConv2d(2, 4, 3, rank=3), torch.nn.ReLU(), tnn.TTConv2d(4, outputs, 3, rank=3)
    )


PADDED = {
    "linear-1": (lambda: tnn.TTLinear(8, 1, rank=1), (8,)),
    "linear-3": (lambda: tnn.TTLinear(50, 3, rank=2), (50,)),
    "odd": (lambda: tnn.TTLinear(7, 5, rank=2, bias=False), (7,)),
    "convolution-1": (lambda: _conv(1), (2, 5, 5)),
    "convolution-3": (lambda: _conv(3), (2, 6, 6)),
}
"""Layers by a name, with the shape of a sample."""


@pytest.mark.parametrize("name", PADDED)
def test_gradients_of_a_padded_layer_are_those_of_torch(name):
    torch.manual_seed(0)
    make, shape = PADDED[name]
    model, x = make(), torch.randn(6, *shape)
    alone = copy.deepcopy(model)
    compiled = trainwright.compile(model, batch=6)
    for module in (compiled, alone):
        for _ in range(3):
            module.zero_grad()
            (module(x) - 1).square().mean().backward()
    for mine, wanted in zip(model.parameters(), alone.parameters(), strict=True):
        # 8 bits of a gradient, and of the products that it is made of.
        assert (mine.grad - wanted.grad).norm() <= 0.05 * wanted.grad.norm()


def test_occupied_values_are_those_at_which_a_gradient_can_differ_from_zero():
    layer = tnn.TTLinear(50, 3, outputs=(2, 16), inputs=(4, 16), rank=2)
    padding = Padding([layer])
    sizes = {"l1.j1": 2, "l1.j2": 16, "l1.i1": 4, "l1.i2": 16, "l1.r1": 2, "s": 5}

    def occupied(name, axes):
        count = 1
        for axis in axes:
            count *= sizes[axis]
        written = Written(name, TensorClass.GRADIENT, Fixed(8), count, axes=axes)
        return padding.occupied(written)

    # 3 outputs of 2 x 16 are (0, 0..2); 50 inputs of 4 x 16 are at all of both axes.
    assert occupied("l1.dG2", ("l1.r1", "l1.j2", "l1.i2")) == 2 * 3 * 16
    assert occupied("l1.dG1", ("l1.j1", "l1.i1", "l1.r1")) == 2 * 4 * 2  # half: little padding
    assert occupied("l1.db", ("l1.j1", "l1.j2")) == 3
    assert occupied("l1.x.dy", ("l1.i1", "l1.i2", "l1.j1", "l1.j2")) == 50 * 3
    assert occupied("l1.dx", ("s", "l1.i1", "l1.i2")) == 5 * 64
    assert occupied("l1.dx", ("s", "l1.i1", "l1.i2", "l1.j1")) == 5 * 64 * 2


def test_occupied_values_of_a_result_are_the_columns_in_use():
    written = Written("l1.y", TensorClass.INTERMEDIATE, Fixed(16), 5 * 16, axes=("s", "l1.j2"))
    for rows, occupied in ((3, 3), (7, 7), (8, 16), (10, 16)):  # the trainer counts 10 as 16
        layer = tnn.TTLinear(64, rows, outputs=(1, 16), inputs=(4, 16), rank=2)
        assert Padding([layer]).occupied(written) == 5 * occupied, rows


@pytest.mark.parametrize("outputs", [1, 3])
def test_narrow_output_larger_than_its_unused_columns_does_not_saturate(outputs):
    # Unused rows of the matrix held the mean of all columns in its range: those in use saturated.
    torch.manual_seed(0)
    layer = tnn.TTLinear(64, outputs, rank=4)
    with torch.no_grad():  # sums of 64 positive products, next to unused rows of nearly 0
        layer.factors[0].abs_()
        layer.factors[1].abs_()
        layer.factors[1][:, outputs:] *= 0.1
        layer.bias.normal_()
    model = trainwright.compile(torch.nn.Sequential(layer), batch=16)
    x = torch.rand(16, 64) * torch.linspace(0.2, 1, 16)[:, None] ** 3
    for _ in range(8):
        model(x).square().mean().backward()
    model.eval()
    wanted = model.to_torch()(x)
    assert (model(x) - wanted).norm() <= 0.02 * wanted.norm()


def test_unused_rows_are_zeros_where_over_half_of_the_rows_are_unused():
    torch.manual_seed(0)
    for outputs, rows, used in (((4, 4, 4), 17, 32), ((8, 8), 3, 3), ((1, 16), 7, 7)):
        inputs = (1,) * (len(outputs) - 1) + (16,)
        layer = tnn.TTLinear(16, rows, rank=2, outputs=outputs, inputs=inputs)
        assert math.prod(layer.used_outputs) == used
        factors = without_unused_rows(layer, layer.factors)
        cut = tnn.TTLinear(16, math.prod(outputs), rank=2, outputs=outputs, inputs=inputs)
        cut.set_factors(factors, layer.factor_exponents.tolist())
        assert torch.equal(cut.weight[:rows], layer.weight)
        assert int(cut.weight[used:].count_nonzero()) == 0, (outputs, rows)
        assert (cut.weight[:used] != 0).any(1).all()

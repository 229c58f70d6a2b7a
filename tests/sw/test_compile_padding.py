"""Compiled layers whose sizes are padded: gradients as in torch, exponents that follow no zeros."""

import copy

import pytest
import torch

import trainwright
import trainwright.nn as tnn
from trainwright.compiler.base.rules import Written
from trainwright.fixed.scale import TensorClass
from trainwright.formats import Fixed
from trainwright.offload.padding import Padding


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
    assert occupied("l1.y", ("s", "l1.j1", "l1.j2")) == 5 * 32

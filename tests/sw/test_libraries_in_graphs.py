"""Posits and multi-component floats within functions that torch compiles or records."""

import copy
import warnings

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from trainwright import mcf, posit
from trainwright.mcf.nn import MCLinear


def _posits():
    fmt = posit.PositFormat(16, 2)
    layers = torch.nn.Linear(6, 4), torch.nn.Tanh(), torch.nn.Linear(4, 3)
    return posit.convert(torch.nn.Sequential(*layers), fmt), posit.PositTensor(
        torch.randn(5, 6), fmt
    )


def _components():
    return MCLinear(6, 3, nc=2), mcf.tensor(torch.randn(5, 6), nc=2)


def _words(x):
    return x.codes() if isinstance(x, posit.PositTensor) else getattr(x, "components", x)


@pytest.mark.parametrize("layer_and_inputs", [_posits, _components])
def test_compiled_layer_has_the_words_and_gradients_of_plain_calls(layer_and_inputs):
    torch.manual_seed(0)
    layer, x = layer_and_inputs()
    compiled = torch.compile(copy.deepcopy(layer), backend="eager")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        outputs = [network(x) for network in (layer, compiled)]
        for y in outputs:
            (y * y).sum().backward()
    assert torch.equal(*map(_words, outputs))
    for own, other in zip(layer.parameters(), compiled.parameters(), strict=True):
        assert torch.equal(_words(own.grad), _words(other.grad))


def test_recorded_operators_of_components_are_one_error():
    """Let no graph hold the unwritten memory of a kernel, which no operator of torch fills."""
    layer, x = _components()
    with pytest.raises(RuntimeError, match="cannot record"):
        make_fx(lambda x: x * x)(x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a tracer warns of each number that it cannot follow
        with pytest.raises(RuntimeError, match="cannot record"):
            torch.jit.trace(layer, (x,))


def test_recorded_product_of_posits_has_the_words_of_plain_calls():
    x, other = (_posits()[1] for _ in range(2))
    graph = make_fx(lambda x: torch.matmul(x, x.mT))(x)
    assert torch.equal(graph(other).codes(), torch.matmul(other, other.mT).codes())


def test_posits_of_fake_tensors_are_one_error():
    with FakeTensorMode(), pytest.raises(RuntimeError, match="cannot run on fake tensors"):
        x = posit.PositTensor(torch.randn(3, 3), posit.PositFormat(16, 2))
        torch.matmul(x, x)

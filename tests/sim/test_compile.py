"""`trainwright.compile` on the simulated hardware."""

import re
from pathlib import Path

import pytest
import torch
from accelerators import ALONE

import trainwright
import trainwright.nn as tnn

pytestmark = pytest.mark.usefixtures("first_programs")

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "pytorch.md"


POSITS = "activation=posit(8,0),intermediate=posit(8,1)c,gradient=posit(8,1)c"


@pytest.mark.parametrize("formats", [None, pytest.param(POSITS, marks=pytest.mark.slow)])
@pytest.mark.parametrize("inputs", [False, True])
def test_compiled_step_on_rtl_has_golden_bits(formats, inputs):
    tensors = {}
    for backend in ("golden", "rtl"):
        torch.manual_seed(3)
        layers = tnn.TTLinear(60, 32, rank=4), torch.nn.ReLU(), tnn.TTLinear(32, 10, rank=4)
        model = trainwright.compile(torch.nn.Sequential(*layers), backend, 16, formats)
        x = torch.rand(11, 60, requires_grad=inputs)
        y = model(x)
        y.square().sum().backward()
        tensors[backend] = [y, *(parameter.grad for parameter in model.parameters())]
        tensors[backend] += [x.grad] if inputs else []
        if backend == "rtl":
            assert model.report().cycles > 0
            model.close()
    assert all(torch.equal(a, b) for a, b in zip(*tensors.values(), strict=True))


class _Heads(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = tnn.TTLinear(64, 32, rank=4)
        self.first, self.other = tnn.TTLinear(32, 10, rank=4), tnn.TTLinear(32, 3, rank=2)

    def forward(self, x):
        h = torch.relu(self.body(x))
        return self.first(h), self.other(h)


def test_two_heads_have_the_bits_of_the_golden_model():
    """Gradient to the inputs is the sum over both heads of a single program."""
    tensors = {}
    for backend in ("golden", "rtl"):
        torch.manual_seed(3)
        model = trainwright.compile(_Heads(), backend, 8)
        x = torch.rand(7, 64, requires_grad=True)
        first, other = model(x)
        (first.square().sum() + other.square().sum()).backward()
        tensors[backend] = [first, other, x.grad, *(p.grad for p in model.parameters())]
        assert len(model.chains) == 1
        if backend == "rtl":
            assert model.report().cycles > 0
            model.close()
    assert all(torch.equal(a, b) for a, b in zip(*tensors.values(), strict=True))


def test_compiled_convolution_on_rtl_has_golden_bits():
    """Convolution, average and head, with the gradient to the images."""
    tensors = {}
    for backend in ("golden", "rtl"):
        torch.manual_seed(3)
        module = torch.nn.Sequential(
            tnn.TTConv2d(2, 4, 3, padding=1, rank=2), torch.nn.ReLU(), torch.nn.AvgPool2d(2),
            torch.nn.Flatten(), tnn.TTLinear((4, 2, 2), 10, rank=4),
        )  # fmt: skip
        model = trainwright.compile(module, backend, 8)
        x = torch.rand(7, 2, 4, 4, requires_grad=True)
        y = model(x)
        y.square().sum().backward()
        tensors[backend] = [y, x.grad, *(parameter.grad for parameter in model.parameters())]
        (chain,) = model.chains.values()
        assert len(chain.stretch.wiring) == 3
        if backend == "rtl":
            assert model.report().cycles > 0
            model.close()
    assert all(torch.equal(a, b) for a, b in zip(*tensors.values(), strict=True))


def test_compiled_norms_on_rtl_have_golden_bits():
    """LayerNorm, causal attention, softmax and residual sums as one program."""
    tensors = {}
    for backend in ("golden", "rtl"):
        torch.manual_seed(3)

        class Block(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.before, self.after = tnn.TTLayerNorm(16), tnn.TTLayerNorm(16)
                self.wide, self.narrow = (tnn.TTLinear(16, 16, rank=4) for _ in range(2))
                self.q, self.k, self.v = (tnn.TTLinear(16, 16, rank=4) for _ in range(3))
                self.softmax, self.attention = (
                    torch.nn.Softmax(-1),
                    tnn.TokenAttention(2, causal=True),
                )

            def forward(self, x):
                y = self.before(x)
                x = x + self.attention(self.q(y), self.k(y), self.v(y))
                return self.after(x + self.narrow(self.softmax(self.wide(x))))

        model = trainwright.compile(Block(), backend, 16, accelerator=ALONE)
        x = torch.randn(3, 5, 16, requires_grad=True)
        y = model(x)
        (y * torch.randn(16)).sum().backward()
        tensors[backend] = [y, x.grad, *(p.grad for p in model.parameters())]
        assert len(model.chains) == 1
        if backend == "rtl":
            assert model.report().cycles > 0
            model.close()
    assert all(torch.equal(a, b) for a, b in zip(*tensors.values(), strict=True))


def test_readme_example_runs_as_printed(capsys):
    torch.manual_seed(0)
    code = re.search(r"```python\n(import torch, trainwright.*?)```", PAGE.read_text(), re.DOTALL)
    mlp = torch.nn.Sequential(torch.nn.Linear(784, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    names = {"loader": [(torch.rand(64, 784), torch.arange(64) % 10)], "mlp": mlp}
    exec(code[1], names)
    assert "back end rtl, batch 64" in capsys.readouterr().out
    assert [type(layer) for layer in names["dense"]] == [type(layer) for layer in mlp]
    assert isinstance(names["tt"][0], tnn.TTLinear)
    names["model"].close()

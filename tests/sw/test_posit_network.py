"""Networks of unmodified modules in posits, forward, backward and with torch's optimisers."""

import pytest
import torch
from posit_operator_bench import Bench
from torch import nn

from trainwright import posit
from trainwright.posit import PositFormat, PositTensor, accumulation
from trainwright.posit.rounding import codes_of, round_to

P16, P8, P32 = PositFormat(16, 2), PositFormat(8, 2), PositFormat(32, 2)
LAYERS = {
    "Conv2d": lambda: nn.Conv2d(2, 4, 3, padding=1, groups=2),
    "AvgPool2d": lambda: nn.AvgPool2d(2),
    "MaxPool2d": lambda: nn.MaxPool2d(2),
    "Linear": lambda: nn.Linear(8, 5),
    "Dropout": lambda: nn.Dropout(0.25),
    "Tanh": nn.Tanh,
    "ReLU": nn.ReLU,
    "Softmax": lambda: nn.Softmax(-1),
    "LogSoftmax": lambda: nn.LogSoftmax(-1),
    "Sigmoid": nn.Sigmoid,
    "Flatten": nn.Flatten,
}
"""The paper's Table II, and a few more."""
OPTIMISERS = {
    "Adam": lambda p: torch.optim.Adam(p),
    "Adam, all of it": lambda p: torch.optim.Adam(p, 0.01, weight_decay=0.1, amsgrad=True),
    "AdamW": lambda p: torch.optim.AdamW(p),
    "SGD": lambda p: torch.optim.SGD(p, 0.1),
    "SGD, all of it": lambda p: torch.optim.SGD(
        p, 0.1, momentum=0.9, weight_decay=0.01, nesterov=True
    ),
}


def on_grid(x, fmt):
    assert isinstance(x, PositTensor) and x.fmt == fmt
    values = x.values()
    assert torch.equal(round_to(values, fmt), values)


@pytest.mark.parametrize("fmt", [P16, P8, P32, PositFormat(16, 1)], ids=str)
@pytest.mark.parametrize("name", LAYERS)
def test_layers_run_forward_and_backward(name, fmt):
    torch.manual_seed(0)
    layer = posit.convert(LAYERS[name](), fmt)
    plain = torch.randn(2, 2, 8, 8)
    x = PositTensor(plain, fmt, requires_grad=True)
    y = layer(x)
    on_grid(y, fmt)
    y.backward(PositTensor(torch.randn(y.shape), fmt))
    on_grid(x.grad, fmt)
    for parameter in layer.parameters():
        on_grid(parameter.grad, fmt)
    if name == "Dropout":
        assert set((y / x).tolist()[0][0][0]) <= {0.0, (1 / PositTensor(0.75, fmt)).item()}
        layer.eval()
        assert torch.equal(layer(x), x)


@pytest.mark.parametrize("name", ["CrossEntropyLoss", "MSELoss", "NLLLoss"])
def test_losses_run_forward_and_backward(name):
    x = PositTensor(torch.randn(4, 3), P16, requires_grad=True)
    target = torch.tensor([0, 2, 1, 1])
    wanted = PositTensor(torch.randn(4, 3), P16) if name == "MSELoss" else target
    for reduction in ("mean", "sum", "none"):
        loss = getattr(nn, name)(reduction=reduction)(x, wanted)
        on_grid(loss, P16)
        x.grad = None
        loss.sum().backward()
        on_grid(x.grad, P16)
    if name == "CrossEntropyLoss":
        for weight in (None, PositTensor([1.0, 2.0, 0.5], P16)):
            loss = nn.CrossEntropyLoss(weight, label_smoothing=0.1)(x, target)
            on_grid(loss, P16)
            x.grad = None
            loss.backward()
            on_grid(x.grad, P16)


@pytest.mark.parametrize("fmt", [P16, P8, P32], ids=str)
@pytest.mark.parametrize("name", OPTIMISERS)
def test_optimisers_step_on_the_grid(name, fmt):
    torch.manual_seed(0)
    network = posit.convert(nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2)), fmt)
    optimiser = OPTIMISERS[name](network.parameters())
    for _ in range(3):
        optimiser.zero_grad()
        loss = nn.functional.mse_loss(
            network(PositTensor(torch.randn(5, 4), fmt)), PositTensor(torch.ones(5, 2), fmt)
        )
        loss.backward()
        optimiser.step()
    for parameter in network.parameters():
        on_grid(parameter, fmt)
        for key, kept in optimiser.state[parameter].items():
            if key != "step" and kept is not None:
                on_grid(kept, fmt)


class Reference:
    """A network of two layers, its loss and Adam, by functions on codes: nothing of torch's."""

    def __init__(self, b, tensors):
        self.b, self.parameters = b, tensors
        self.first = [torch.zeros_like(t) for t in tensors]
        self.second = [torch.zeros_like(t) for t in tensors]
        self.steps = 0

    def linear(self, x, w, bias):
        b = self.b
        start = b.number(1.0).expand(len(x), 1)
        rows = torch.cat([start, x], 1).unsqueeze(1)
        return b.dot(rows, torch.cat([bias.unsqueeze(1), w], 1))

    def gradients(self, x, target):
        b, (w1, b1, w2, b2) = self.b, self.parameters
        unit = b.number(1.0)
        h = b.apply("tanh", self.linear(x, w1, b1))
        logits = self.linear(h, w2, b2)
        top = posit.encode(posit.decode(logits, b.fmt).amax(1, keepdim=True), b.fmt)
        z = b.sub(logits, top)
        y = b.sub(z, b.apply("log", b.total(b.apply("exp", z), 1)).unsqueeze(1))
        rows = torch.arange(len(x))
        loss = b.div(b.total(b.neg(y[rows, target]), 0), b.number(float(len(x))))
        g = torch.zeros_like(y)
        g[rows, target] = b.neg(b.div(unit, b.number(float(len(x)))))
        g = b.sub(g, b.mul(b.apply("exp", y), b.total(g, 1).unsqueeze(1)))
        dh = b.matmul(g, w2)
        dz = b.mul(dh, b.sub(unit, b.mul(h, h)))
        return loss, (b.matmul(dz.t(), x), b.total(dz, 0), b.matmul(g.t(), h), b.total(g, 0))

    def step(self, gradients, lr=1e-3, beta=(0.9, 0.999), eps=1e-8):
        b = self.b
        self.steps += 1
        rate = lr / (1 - beta[0] ** self.steps)
        root = (1 - beta[1] ** self.steps) ** 0.5
        for n, g in enumerate(gradients):
            way = b.sub(g, self.first[n])
            self.first[n] = b.add(self.first[n], b.mul(way, b.number(1 - beta[0])))
            decayed = b.mul(self.second[n], b.number(beta[1]))
            squares = b.mul(b.mul(g, b.number(1 - beta[1])), g)
            self.second[n] = b.add(decayed, squares)
            size = b.div(posit.sqrt(self.second[n], b.fmt), b.number(root))
            size = b.add(size, b.number(eps))
            way = b.div(b.mul(self.first[n], b.number(-rate)), size)
            self.parameters[n] = b.add(self.parameters[n], way)


@pytest.mark.parametrize("fmt", [P16, P8, P32], ids=str)
@pytest.mark.parametrize("mode", ["sequential", "quire"])
def test_training_is_that_by_functions_on_codes(fmt, mode, posit_path):
    torch.manual_seed(1)
    network = nn.Sequential(nn.Linear(7, 5), nn.Tanh(), nn.Linear(5, 4))
    posit.convert(network, fmt)
    reference = Reference(Bench(fmt, mode), [p.codes() for p in network.parameters()])
    optimiser = torch.optim.Adam(network.parameters())
    with accumulation(mode):
        for _ in range(3):
            x, target = PositTensor(torch.randn(6, 7), fmt), torch.randint(0, 4, (6,))
            optimiser.zero_grad()
            loss = nn.functional.cross_entropy(network(x), target)
            loss.backward()
            want, gradients = reference.gradients(x.codes(), target)
            assert loss.codes() == want
            for parameter, g in zip(network.parameters(), gradients, strict=True):
                assert torch.equal(parameter.grad.codes(), g)
            optimiser.step()
            reference.step(gradients)
            for parameter, w in zip(network.parameters(), reference.parameters, strict=True):
                assert torch.equal(parameter.codes(), w)


def test_gradients_add_up():
    p = PositTensor([0.3, 1.7], P16, requires_grad=True)
    for _ in range(2):
        (p * PositTensor([0.1, 0.7], P16)).sum().backward()
    once = codes_of(round_to(torch.tensor([0.1, 0.7], dtype=torch.float64), P16), P16)
    assert torch.equal(p.grad.codes(), posit.add(once, once, P16))


def test_posit_network_clips_gradients_by_norm():
    p = PositTensor([3.0, 4.0], P16, requires_grad=True)
    (p * p).sum().backward()
    given = p.grad.clone()
    for order, want in ((2, 10.0), (1, 14.0), (float("inf"), 8.0)):
        p.grad = given.clone()
        assert nn.utils.clip_grad_norm_([p], 1.0, order).item() == want
        on_grid(p.grad, P16)
        assert abs(p.grad.norm(order).item() - 1) < 2**-9

"""`trainwright.compile`: several outputs of one program."""

import copy
import math

import pytest
import torch

import trainwright.nn as tnn
from trainwright import compile
from trainwright.cli.options import accelerator_parameters
from trainwright.compiler import CompileError
from trainwright.data import load_data_set
from trainwright.driver import Driver
from trainwright.golden.backend import GoldenAccelerator
from trainwright.network import Apply, Pool, Sum, Widths, network_from_dict
from trainwright.offload.regions import regions
from trainwright.offload.trace import trace
from trainwright.train.batches import batch_indices
from trainwright.train.host_engine import HostEngine
from trainwright.train.initial import initial_factors
from trainwright.train.settings import TrainSettings
from trainwright.train.state import initial_state
from trainwright.train.trainer import Trainer

pytestmark = pytest.mark.usefixtures("first_programs")

cross_entropy = torch.nn.functional.cross_entropy
WIDE = Widths(activation=16, bias=16)


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(3)


class _Heads(torch.nn.Module):
    """Model with one or two heads on a body; returns an inner value of the body too."""

    def __init__(self, numbers="fixed"):
        super().__init__()
        self.body = tnn.TTLinear(64, 32, rank=4, numbers=numbers)
        self.inner = tnn.TTLinear(32, 32, rank=4, numbers=numbers)
        self.deep = tnn.TTLinear(32, 10, rank=4, relu=False, numbers=numbers)
        self.early = tnn.TTLinear(32, 10, rank=4, relu=False, numbers=numbers)

    def forward(self, x):
        h = torch.relu(self.body(x))
        return self.deep(torch.relu(self.inner(h))), self.early(h)


TABLE = {
    "name": "heads",
    "classes": 10,
    "image": [8, 8],
    "heads": ["deep", "early"],
    "layers": [
        {"name": "body", "outputs": [2, 16], "inputs": [4, 16], "ranks": [4]},
        {"name": "inner", "outputs": [2, 16], "inputs": [2, 16], "ranks": [4]},
        {"name": "deep", "outputs": [1, 16], "inputs": [2, 16], "ranks": [2]},
        {"name": "early", "from": "body", "outputs": [1, 16], "inputs": [2, 16], "ranks": [2]},
    ],
}


def _both(outputs, y):
    return sum(cross_entropy(output, y) for output in outputs)


@pytest.mark.parametrize("seed", (1, 2))
def test_bits_are_those_of_the_trainer_for_a_network_with_two_heads(seed):
    """`digits`, 3 steps in which few values saturate: equal losses and weights, bit by bit."""
    data, network = load_data_set("digits"), network_from_dict(TABLE)
    settings = TrainSettings(steps=3, prior=None, batch=32, seed=seed)
    golden = GoldenAccelerator(accelerator_parameters([], network), memory_bytes=1 << 22)
    state = initial_state(network, settings)
    trainer = Trainer(state, data, HostEngine(lambda n: Driver(golden, n, settings.batch)))
    module = _Heads()
    layers = [module.body, module.inner, module.deep, module.early]
    for layer, own, exponents in zip(layers, *initial_factors(network, seed), strict=True):
        layer.set_factors([factor.value for factor in own], exponents)
        torch.nn.init.zeros_(layer.bias)
    model = compile(module, batch=settings.batch)
    optimizer = tnn.Adam(model.parameters(), lr=settings.learning_rate)
    total = settings.total_steps(len(data.train))
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: 0.5 * (1 + math.cos(math.pi * step / total))
    )
    for step in range(3):
        chosen = batch_indices(len(data.train), settings.batch, settings.seed, step)
        x = torch.from_numpy(data.train.images[chosen].reshape(32, -1) / data.full_scale)
        y = torch.from_numpy(data.train.labels[chosen]).long()
        if step == 0:
            model.calibrate(x, lambda out, y=y: _both(out, y))
        loss = _both(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        assert loss.item() == pytest.approx(trainer.step().loss, rel=1e-12)
    for layer, factors, bias in zip(layers, state.model.factors, state.model.biases, strict=True):
        layer.clip()
        assert all(torch.equal(a, b.value) for a, b in zip(layer.factors, factors, strict=True))
        assert torch.equal(layer.bias, bias.value[: layer.rows])


def test_two_heads_are_one_program_in_the_report():
    model = compile(_Heads(), batch=16)
    x, y = torch.rand(16, 64), torch.arange(16) % 10
    _both(model(x), y).backward()
    report = model.report()
    assert {layer.where for layer in report.layers} == {"program 1"} and len(model.chains) == 1
    assert report.operators == () and report.steps == 1

    class Taken(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.heads = _Heads()

        def forward(self, x):
            return self.heads(x)[0][:, 0]

    report = compile(Taken(), batch=16).report()
    assert report.operators == ("getitem",)  # its own, not that of the program


@pytest.mark.parametrize("inputs", [False, True])
def test_outputs_and_gradients_are_near_those_of_torch(inputs):
    """Activations of 16 bits: what is left are roundings to 16 bits."""
    plain = _Heads(WIDE)
    model = compile(copy.deepcopy(plain), batch=32)
    y, given = torch.arange(32) % 10, torch.rand(32, 64)
    runs = []
    for network in (model, plain):
        x = given.clone().requires_grad_(inputs)
        outputs = network(x)
        (cross_entropy(outputs[0], y) + 3 * outputs[1].square().mean()).backward()
        runs.append(
            [*outputs, *(p.grad for p in network.parameters()), *([x.grad] if inputs else [])]
        )
    for value, other in zip(*runs, strict=True):
        assert (value - other).norm() < 0.02 * other.norm()


def test_head_without_a_gradient_leaves_its_layers_without_one():
    model = compile(_Heads(), batch=16)
    x, y = torch.rand(16, 64), torch.arange(16) % 10
    cross_entropy(model(x)[1], y).backward()
    without = {name for name, p in model.named_parameters() if p.grad is None}
    assert without == {
        f"{layer}.{p}" for layer in ("inner", "deep") for p in ("factors.0", "factors.1", "bias")
    }
    model.zero_grad()
    both = copy.deepcopy(model)  # the other head's gradients are calibrated once they come
    cross_entropy(both(x)[0], y).backward()
    large = copy.deepcopy(model)
    (1024 * cross_entropy(large(x)[0], y)).backward()
    for name, parameter in large.named_parameters():
        if "early" not in name:
            wanted = 1024 * both.get_parameter(name).grad
            assert wanted.norm() > 0
            assert (parameter.grad - wanted).norm() < 0.03 * wanted.norm(), name


def test_batches_of_any_size_and_shape():
    model = compile(_Heads(), batch=16)
    x, y = torch.rand(40, 64), torch.arange(40) % 10
    _both(model(x[:16]), y[:16]).backward()
    model.eval()
    deep, early = model(x)
    assert deep.shape == early.shape == (40, 10)
    for part in (slice(0, 16), slice(35, 40)):
        a, b = model(x[part])
        assert torch.equal(a, deep[part]) and torch.equal(b, early[part])
    a, b = model(x.reshape(4, 10, 64))
    assert torch.equal(a, deep.reshape(4, 10, 10)) and torch.equal(b, early.reshape(4, 10, 10))
    assert [logits.shape for logits in model(x[:0])] == [(0, 10), (0, 10)]


def _stretches(module):
    """Return layers, operations, and leaving values of each stretch that becomes a program."""
    return [
        (region.stretch.names, [type(node) for node in region.stretch.wiring],
         [end.value for end in region.stretch.ends])
        for region in regions(trace(module), module)
    ]  # fmt: skip


class _Graph(torch.nn.Module):
    """``forward`` of some layers, as a function of the module and its inputs."""

    def __init__(self, forward, **layers):
        super().__init__()
        self.graph = forward
        for name, layer in layers.items():
            self.add_module(name, layer)

    def forward(self, x):
        return self.graph(self, x)


def _square():
    return tnn.TTLinear(32, 32, rank=2)


def test_compile_heads_outputs_are_neither_relu_nor_read_inside():
    relu = torch.relu
    layers = {name: _square() for name in "abc"}

    def stretches(forward):
        return _stretches(_Graph(forward, **layers))

    one_body = stretches(lambda m, x: (m.b(h := relu(m.a(x))), m.c(h)))
    assert one_body == [(("a", "b", "c"), [Apply] * 3, ["l2", "l3"])]
    side_by_side = stretches(lambda m, x: (m.a(x), m.b(x), m.c(x)))
    assert side_by_side == [(("a", "b", "c"), [Apply] * 3, ["l1", "l2", "l3"])]
    returned = stretches(lambda m, x: (m.b(h := relu(m.a(x))), h))
    assert returned == [(("a",), [Apply], ["l1"]), (("b",), [Apply], ["l1"])]
    read = stretches(lambda m, x: (m.b(h := m.a(x)), h))
    assert read == [(("a",), [Apply], ["l1"]), (("b",), [Apply], ["l1"])]
    with_relus = stretches(lambda m, x: (relu(m.b(h := relu(m.a(x)))), relu(m.c(h))))
    assert with_relus == one_body
    module = _Graph(lambda m, x: (relu(m.b(h := relu(m.a(x)))), relu(m.c(h))), **layers)
    (region,) = regions(trace(module), module)
    assert [use.relu for use in region.stretch.uses] == [True, False, False]
    stretch = stretches(lambda m, x: (m.b(h := relu(m.a(x))), m.c(torch.sigmoid(m.b(h)))))
    assert stretch == [(("a", "b"), [Apply] * 3, ["l2", "n3"]), (("c",), [Apply], ["l1"])]
    skip = stretches(lambda m, x: (m.b(h := relu(m.a(x))) + h, m.c(h)))
    assert skip == [(("a", "b", "c"), [Apply, Apply, Sum, Apply], ["n3", "l3"])]
    unused = stretches(lambda m, x: (m.b(h := relu(m.a(x))), (m.c(h), None)[1])[0])
    assert unused == one_body


def test_ends_that_are_images_and_others():
    conv = {"numbers": WIDE, "rank": 2}
    plain = _Graph(
        lambda m, x: (m.head(m.pool(h := torch.relu(m.one(x))).flatten(1)), m.two(h), m.pool(h)),
        one=tnn.TTConv2d(1, 4, 3, padding=1, **conv), two=tnn.TTConv2d(4, 2, 1, **conv),
        pool=torch.nn.AvgPool2d(2), head=tnn.TTLinear((4, 2, 2), 10, **conv),
    )  # fmt: skip
    ((names, wiring, ends),) = _stretches(plain)
    assert names == ("one", "head", "two") and wiring == [Apply, Pool, Apply, Apply, Pool]
    assert ends == ["l2", "l3", "n5"]
    model = compile(copy.deepcopy(plain), batch=8)
    x = torch.randn(8, 1, 4, 4)
    runs = []
    for network in (model, plain):
        outputs = network(x)
        sum((n + 1) * y.square().sum() for n, y in enumerate(outputs)).backward()
        runs.append([*outputs, *(p.grad for p in network.parameters())])
    assert [y.shape for y in runs[0][:3]] == [(8, 10), (8, 2, 4, 4), (8, 4, 2, 2)]
    for value, other in zip(*runs, strict=True):
        assert (value - other).norm() < 0.03 * other.norm()


def test_ends_of_one_output_are_in_the_program_of_others():
    small = _Graph(lambda m, x: (m.a(x), m.b(x)), a=tnn.TTConv2d(1, 4, 2), b=tnn.TTConv2d(1, 1, 2))
    model, x = compile(copy.deepcopy(small), batch=4), torch.rand(4, 1, 2, 2)
    for compiled, plain in zip(model(x), small(x), strict=True):
        assert compiled.shape == plain.shape
        assert (compiled - plain).norm() < 0.03 * plain.norm()


def test_window_beyond_an_input_names_the_layers_of_the_user():
    large = torch.nn.Sequential(tnn.TTConv2d(1, 4, 3), torch.nn.ReLU(), tnn.TTConv2d(4, 2, 5))
    with pytest.raises(CompileError, match=r"^2: a window of \[5, 5\] is larger than '0'"):
        compile(large, batch=4)(torch.rand(4, 1, 6, 6))

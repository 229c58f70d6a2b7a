"""`trainwright.compile` of modules that are graphs: convolutions, averages, skips."""

import copy
import io
import math
import operator
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import trainwright
import trainwright.nn as tnn
from trainwright import compile
from trainwright.cli.options import accelerator_parameters
from trainwright.compiler import CompileError
from trainwright.data import load_data_set
from trainwright.driver import Driver
from trainwright.golden.backend import GoldenAccelerator
from trainwright.network import Apply, Pool, Sum, Widths, Window, network_from_dict
from trainwright.offload.regions import regions
from trainwright.offload.trace import pool_of, trace, why_not
from trainwright.train.batches import batch_indices
from trainwright.train.host_engine import HostEngine
from trainwright.train.initial import initial_factors
from trainwright.train.model import Model
from trainwright.train.settings import TrainSettings
from trainwright.train.state import initial_state
from trainwright.train.trainer import Trainer

pytestmark = pytest.mark.usefixtures("first_programs")

cross_entropy = torch.nn.functional.cross_entropy

SMALL = {
    "name": "small", "classes": 10, "image": [8, 8],
    "layers": [
        {"kernel": [3, 3], "padding": [1, 1], "outputs": [2, 4], "inputs": [9, 1], "ranks": [3]},
        {"pool": [2, 2]},
        {"outputs": [1, 16], "inputs": [8, 16], "ranks": [6], "leading": 1},
    ],
}  # fmt: skip

SKIP = {
    "name": "skip", "classes": 10, "image": [8, 8],
    "layers": [
        {"name": "stem", "kernel": [2, 2], "stride": [2, 2], "outputs": [2, 2], "inputs": [4, 1],
         "ranks": [2]},
        {"name": "inner", "kernel": [3, 3], "padding": [1, 1], "outputs": [2, 2], "inputs": [9, 4],
         "ranks": [3], "relu": False},
        {"name": "sum", "add": ["inner", "stem"]},
        {"name": "head", "from": "sum", "outputs": [1, 16], "inputs": [4, 16], "ranks": [4],
         "leading": 1},
    ],
}  # fmt: skip


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(1)


def _small():
    return torch.nn.Sequential(
        tnn.TTConv2d(1, 8, 3, padding=1, outputs=(2, 4), inputs=(9, 1), rank=3), torch.nn.ReLU(),
        torch.nn.AvgPool2d(2), torch.nn.Flatten(),
        tnn.TTLinear((8, 4, 4), 10, outputs=(1, 16), inputs=(8, 16), rank=6, relu=False),
    )  # fmt: skip


class _Skip(torch.nn.Module):
    def __init__(self, add=operator.add):
        super().__init__()
        self.stem = tnn.TTConv2d(1, 4, 2, stride=2, outputs=(2, 2), inputs=(4, 1), rank=2)
        self.inner = tnn.TTConv2d(4, 4, 3, padding=1, outputs=(2, 2), inputs=(9, 4), rank=3)
        self.head = tnn.TTLinear((4, 4, 4), 10, outputs=(1, 16), inputs=(4, 16), rank=4)
        self.add = add

    def forward(self, x):
        stem = torch.relu(self.stem(x))
        x = self.add(self.inner(stem), stem).relu()
        return self.head(torch.flatten(x, 1))


def _load(module, network):
    """Load the trainer's initial factors."""
    layers = [layer for layer in module.modules() if isinstance(layer, tnn.TensorTrain)]
    for layer, own, exponents in zip(layers, *initial_factors(network, 0), strict=True):
        layer.set_factors([factor.value for factor in own], exponents)
        if layer.bias is not None:
            torch.nn.init.zeros_(layer.bias)
    return layers


# With gradients in posit(8,1)c 2 % of l2.x.dy saturate, and the rule of compiled models alone
# raises its exponent (docs/reference/compiled-models.md).
POSITS = "activation=posit(8,0),intermediate=posit(8,1)c,gradient=posit(8,0)"


@pytest.mark.parametrize(
    "make, table, steps, formats",
    [
        pytest.param(_small, SMALL, 4, None, id="small"),
        pytest.param(_Skip, SKIP, 3, None, id="skip"),
        pytest.param(_small, SMALL, 2, POSITS, id="posits"),
    ],
)
def test_bits_are_those_of_the_trainer_for_the_same_network_as_tables(make, table, steps, formats):
    """`digits`: outputs, exponents, and the master weights after some steps, bit by bit."""
    data, network = load_data_set("digits"), network_from_dict(table)
    network = network.with_formats(formats) if formats else network
    settings = TrainSettings(steps=steps, prior=None, batch=32)
    golden = GoldenAccelerator(accelerator_parameters([], network), memory_bytes=1 << 22)
    state = initial_state(network, settings)
    trainer = Trainer(state, data, HostEngine(lambda n: Driver(golden, n, settings.batch)))
    module = make()
    layers = _load(module, network)
    model = compile(module, "golden", settings.batch, formats)
    assert [layer.where for layer in model.report().layers] == ["program 1"] * len(layers)
    optimizer = tnn.Adam(model.parameters(), lr=settings.learning_rate)
    total = settings.total_steps(len(data.train))
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: 0.5 * (1 + math.cos(math.pi * step / total))
    )
    for step in range(steps):
        chosen = batch_indices(len(data.train), settings.batch, settings.seed, step)
        pixels = torch.from_numpy(data.train.images[chosen] / data.full_scale)
        x, y = pixels[:, None], torch.from_numpy(data.train.labels[chosen]).long()
        if step == 0:
            model.calibrate(x, lambda out, y=y: cross_entropy(out, y))
        loss = cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        assert loss.item() == pytest.approx(trainer.step().loss, rel=1e-12)
    assert isinstance(state.model, Model)
    for layer, factors, bias in zip(layers, state.model.factors, state.model.biases, strict=True):
        layer.clip()
        assert all(torch.equal(a, b.value) for a, b in zip(layer.factors, factors, strict=True))
        assert layer.bias is not None and bias is not None
        assert torch.equal(layer.bias, bias.value[: layer.rows])
    (chain,) = model.chains.values()
    (segment,) = chain.segments
    assert segment.driver.network.layers == state.model.network.layers
    exponents = segment.scales.exponents
    assert sorted(exponents.values()) == sorted(state.scales.exponents.values())


WIDE = Widths(activation=16, bias=16)


def _near(model, plain, x, bound=0.005):
    """Assert that outputs and gradients differ from torch by roundings to 16 bits only.

    One rounding is about 0.1 % of a tensor whose mean is in its range (see ``test_compile``). The
    seed leaves no value before a ReLU so small that a rounding changes its sign.
    """
    ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    y, wanted = model(ours), plain(theirs)
    weights = torch.linspace(-1, 1, y[0].numel()).reshape(y[0].shape)
    (y * weights).square().sum().backward()
    (wanted * weights).square().sum().backward()
    assert y.shape == wanted.shape and (y - wanted).norm() < 0.005 * wanted.norm()
    pairs = [(ours.grad, theirs.grad)]
    pairs += [(a.grad, b.grad) for a, b in zip(model.parameters(), plain.parameters(), strict=True)]
    for value, other in pairs:
        assert value is not None and other is not None
        assert (value - other).norm() < bound * other.norm()


def _colour(*behind):
    """Return a network of 3 channels and no square: rows and columns have other windows."""
    return torch.nn.Sequential(
        tnn.TTConv2d(3, 8, (3, 2), stride=(2, 1), padding=(1, 0), rank=4, numbers=WIDE), *behind
    )


BEHIND = {
    "image": lambda: (),
    "two": lambda: (torch.nn.ReLU(), tnn.TTConv2d(8, 4, 1, rank=4, numbers=WIDE)),
    "average": lambda: (torch.nn.ReLU(), torch.nn.AvgPool2d((1, 2), stride=1)),
    "features": lambda: (
        torch.nn.ReLU(), torch.nn.Flatten(), tnn.TTLinear((8, 3, 4), 5, numbers=WIDE),
    ),
}  # fmt: skip


@pytest.mark.parametrize("behind", BEHIND)
def test_outputs_and_gradients_of_images_are_near_those_of_torch(behind):
    """Gradients of parameters and of incoming images, channels first as in torch."""
    plain = _colour(*BEHIND[behind]())
    model = compile(copy.deepcopy(plain), batch=8)
    (chain,) = model.chains.values()
    assert len(chain.stretch.wiring) == len([node for node in plain if _computes(node)])
    _near(model, plain, torch.randn(8, 3, 5, 5))
    assert [segment.input_gradients for segment in chain.segments] == [True]


def _computes(module):
    return not isinstance(module, torch.nn.ReLU | torch.nn.Flatten)


def test_convolutions_whose_activations_leave_the_scratchpad_are_near_those_of_torch():
    # The forward pass loads the first ReLU's output as the pool's input, another view of its rows.
    plain = torch.nn.Sequential(
        tnn.TTConv2d(1, 16, 3, padding=1, rank=2, numbers=WIDE), torch.nn.ReLU(),
        torch.nn.AvgPool2d(2),
        tnn.TTConv2d(16, 16, 3, padding=1, rank=2, numbers=WIDE), torch.nn.ReLU(),
        torch.nn.AvgPool2d(2),
    )  # fmt: skip
    model, x = compile(copy.deepcopy(plain), batch=16, effort=300), torch.rand(16, 1, 28, 28)
    y, wanted = model(x), plain(x)
    y.square().sum().backward()
    wanted.square().sum().backward()
    pairs = [(a.grad, b.grad) for a, b in zip(model.parameters(), plain.parameters(), strict=True)]
    for value, other in [(y, wanted), *pairs]:
        assert (value - other).norm() < 0.01 * other.norm()


def test_compile_convolution_skip_from_the_input_and_a_layer_that_is_applied_twice():
    class Twice(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = tnn.TTConv2d(4, 4, 3, padding=1, rank=4, numbers=WIDE)

        def forward(self, x):
            y = self.layer(x).relu()
            return self.layer(y).relu().add(x)

    plain = Twice()
    model = compile(copy.deepcopy(plain), batch=4)
    _near(model, plain, torch.randn(4, 4, 4, 3))
    (chain,) = model.chains.values()
    assert chain.stretch.wiring == (
        Apply("l1", ("x",), 0), Apply("n2", ("l1",), 0), Sum("n3", ("n2", "x"), relu=False)
    )  # fmt: skip
    ((_, module),) = list(model.named_children())
    assert sum(p.numel() for p in model.parameters()) == sum(p.numel() for p in module.parameters())


def _stretches(module):
    """Return (layers, operations) of each stretch that becomes a program."""
    segments = list(regions(trace(module), module))
    return [
        (segment.stretch.names, [type(node) for node in segment.stretch.wiring])
        for segment in segments
    ]


def _row(*modules):
    return torch.nn.Sequential(*modules)


def _conv(i=1, o=4, k=3, **options):
    return tnn.TTConv2d(i, o, k, padding=options.pop("padding", 1), rank=2, **options)


def test_compile_convolution_stretch_becomes_one_program():
    head = tnn.TTLinear((4, 2, 2), 10, outputs=(1, 16), inputs=(4, 4), rank=2)
    assert _stretches(_row(_conv(), torch.nn.ReLU(), torch.nn.AvgPool2d(2), _conv(4, 4))) == [
        (("0", "3"), [Apply, Pool, Apply])
    ]
    assert _stretches(_row(_conv(), torch.nn.Flatten(), head)) == [(("0", "2"), [Apply, Apply])]
    assert _stretches(_row(_conv(), torch.nn.Flatten(2), _conv())) == [
        (("0",), [Apply]), (("2",), [Apply])
    ]  # fmt: skip
    maximum = _row(_conv(), torch.nn.ReLU(), torch.nn.MaxPool2d(2), _conv(4, 4))
    assert _stretches(maximum) == [(("0",), [Apply]), (("3",), [Apply])]
    padded = tnn.TTLinear(16, 10, rank=2)  # inputs (1, 16) do not split into 4 channels and pixels
    assert _stretches(_row(_conv(), torch.nn.Flatten(), padded)) == [
        (("0",), [Apply]), (("2",), [Apply])
    ]  # fmt: skip
    gray = _row(_conv(4, 1), torch.nn.Flatten(), tnn.TTLinear(16, 10, rank=2))
    (region,) = regions(trace(gray), gray)
    assert region.stretch.names == ("0", "2")  # of one channel every order is the same
    assert region.stretch.uses[1].leading == 0
    other = _row(_conv(), _conv(4, 4, numbers=Widths(gradient=8)))
    assert len(_stretches(other)) == 2
    assert len(_stretches(_row(_conv(1, 4), _conv(8, 4)))) == 2  # which the first batch tells
    assert _stretches(_Skip()) == [(("stem", "inner", "head"), [Apply, Apply, Sum, Apply])]
    assert _stretches(_Skip(torch.add)) == _stretches(_Skip())
    assert len(_stretches(_Skip(torch.sub))) == 3


class _Flattened(torch.nn.Module):
    """A sum of flattened images, and of features whose padding is not to be computed with."""

    def __init__(self, size, *layers):
        super().__init__()
        self.first, self.other = layers
        self.size = size

    def forward(self, x):
        first, other = self.first(x), self.other(x)
        return first.flatten(1) + other.flatten(1) if self.size else first + other


def test_sums_that_are_made_in_torch():
    flat = _Flattened(16, _conv(), _conv())
    assert _stretches(flat) == [(("first", "other"), [Apply, Apply])]
    padded = _Flattened(0, tnn.TTLinear(16, 10), tnn.TTLinear(16, 10))
    assert _stretches(padded) == [(("first", "other"), [Apply, Apply])]
    whole = _Flattened(0, tnn.TTLinear(16, 32), tnn.TTLinear(16, 32))
    assert _stretches(whole) == [(("first", "other"), [Apply, Apply, Sum])]


class _Pair(torch.nn.Module):
    """Two convolutions side by side, added."""

    def __init__(self, first, other):
        super().__init__()
        self.first, self.other = first, other

    def forward(self, x):
        return self.first(x) + self.other(x)


def test_values_of_other_sizes_are_not_added_on_the_accelerator():
    """1 x 1 with a stride of 2 makes as much as 3 x 3 with padding; 2 x 2 does not."""
    smaller = _conv(1, 4, 1, stride=2, padding=0, numbers=WIDE)
    plain = _Pair(_conv(stride=2, numbers=WIDE), smaller)
    assert _stretches(plain) == [(("first", "other"), [Apply, Apply, Sum])]
    _near(compile(copy.deepcopy(plain), batch=4), plain, torch.randn(4, 1, 5, 4))
    for other in (_conv(), _conv(1, 1), _conv(1, 4, 2, stride=2), _conv(1, 4, 3, stride=(2, 1))):
        assert _stretches(_Pair(_conv(stride=2), other)) == [(("first", "other"), [Apply, Apply])]


POOLS = [
    (torch.nn.AvgPool2d(2), Window((2, 2), (2, 2))),
    (torch.nn.AvgPool2d((3, 2), stride=(1, 2)), Window((3, 2), (1, 2))),
    (torch.nn.AvgPool2d(3, 2, padding=1), Window((3, 3), (2, 2), (1, 1))),
    (torch.nn.AvgPool2d(3, 2, padding=1, count_include_pad=False), None),
    (torch.nn.AvgPool2d(3, 2, count_include_pad=False), Window((3, 3), (2, 2))),
    (torch.nn.AvgPool2d(3, 2, ceil_mode=True), None),
    (torch.nn.AvgPool2d(2, divisor_override=3), None),
    (torch.nn.AvgPool2d(65), None),
    (lambda x: torch.nn.functional.avg_pool2d(x, 2), Window((2, 2), (2, 2))),
    (lambda x: torch.nn.functional.avg_pool2d(x, 2, stride=1), Window((2, 2), (1, 1))),
    (lambda x: torch.nn.functional.avg_pool2d(x, 2, 1, 0, True), None),
]


class _Calls(torch.nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x)


@pytest.mark.parametrize(("pool", "window"), POOLS, ids=range(len(POOLS)))
def test_averages_that_the_accelerator_has(pool, window):
    module = _Calls(pool)
    (node,) = [node for node in trace(module).nodes if node.op.startswith("call")]
    assert pool_of(node, module) == (window and (window, None))  # no kernel of the vector engine


def test_pool_of_maxima_is_a_window_with_a_kernel():
    module = _Calls(torch.nn.MaxPool2d(2))
    (node,) = [node for node in trace(module).nodes if node.op.startswith("call")]
    window, function = pool_of(node, module)
    assert window == Window((2, 2), (2, 2)) and function.definition.name == "max_pool"


class _Branches(torch.nn.Module):
    """Join a convolution with its pooled input, as shortcuts that shrink an image do."""

    def __init__(self, join):
        super().__init__()
        self.body, self.join = tnn.TTConv2d(2, 2, 3, stride=2, padding=1, numbers=WIDE), join

    def forward(self, x):
        return self.join(self.body(x), torch.nn.functional.avg_pool2d(x, 2))


@pytest.mark.parametrize("join", [operator.add, lambda a, b: torch.cat([a, b], 1)])
def test_compile_pool_of_the_input_next_to_a_layer_runs_in_torch(join):
    plain = _Branches(join)
    model = compile(copy.deepcopy(plain), batch=2)
    _near(model, plain, torch.randn(2, 2, 4, 4))
    assert len(model.chains) == 1


@pytest.mark.parametrize("numbers", [WIDE, Widths(activation=16, bias=16, intermediate=12)])
def test_compile_function_of_a_flattened_image_has_the_shape_of_torch(numbers):
    module = _row(_conv(numbers=numbers), torch.nn.Flatten(), torch.nn.Softmax(-1))
    x = torch.randn(2, 1, 5, 4)
    result = compile(copy.deepcopy(module), batch=2)(x)
    wanted = trainwright.to_torch(module)(x)
    assert result.shape == wanted.shape and (result - wanted).norm() < 0.01 * wanted.norm()


def test_compile_padded_maxima_of_16_bits_runs_in_torch():
    plain = _row(_conv(numbers=WIDE), torch.nn.MaxPool2d(3, padding=1), _conv(4, numbers=WIDE))
    model = compile(copy.deepcopy(plain), batch=2)
    _near(model, plain, torch.randn(2, 1, 6, 6))
    assert len(model.chains) == 2 and "MaxPool2d" in model.report().operators


def test_convolutions_that_run_in_torch_are_in_the_table():
    module = torch.nn.Sequential(
        _conv(dilation=2), _conv(4, 4, 1, padding=1), _conv(4, 4, numbers="float32"),
        torch.nn.MaxPool2d(2), _conv(4, 4), torch.nn.AvgPool2d(2, ceil_mode=True),
    )  # fmt: skip
    report = compile(module, batch=8).report()
    assert [layer.where for layer in report.layers] == [
        "torch: the accelerator has no dilation (2, 2)",
        "torch: padding [1, 1] must be smaller than the kernel [1, 1]: windows of zeros alone say "
        "nothing",
        "torch: its numbers are float32",
        "program 1",
    ]
    assert report.operators == ("MaxPool2d", "AvgPool2d") and report.predicted_cycles == 0
    assert why_not(_conv()) == ""


def test_batches_sizes_copies_and_errors():
    model = compile(_row(_conv(1, 4), torch.nn.ReLU(), _conv(4, 2)), batch=4)
    x = torch.rand(6, 1, 4, 3)
    model(x[:4]).sum().backward()
    model.eval()
    whole = model(x)
    assert whole.shape == (6, 2, 4, 3) and torch.equal(whole[4:], model(x[4:]))
    assert model(x[:0]).shape == (0, 2, 4, 3)
    assert torch.equal(copy.deepcopy(model)(x), whole)
    assert model.report().predicted_cycles > 0 and model.report().steps == 1
    (chain,) = model.chains.values()
    assert model(torch.rand(4, 1, 3, 3)).shape == (4, 2, 3, 3) and len(chain.segments) == 2
    assert model(x[0]).shape == (2, 4, 3)
    with pytest.raises(ValueError, match=r"shape \(6, 2, 4, 3\)"):
        model(torch.rand(6, 2, 4, 3))
    assert all(kind is torch.nn.Conv2d for kind in map(type, [*model.to_torch()][::2]))
    valid = compile(_row(_conv(1, 2, padding=0), torch.nn.Flatten(), _square(2)), batch=4)
    with pytest.raises(CompileError, match=r"^0: a window of \[3, 3\] is larger than 'input' of"):
        valid(torch.rand(4, 1, 2, 2))
    with pytest.raises(CompileError, match=r"^2: inputs .* multiply to 8, '0' has 2 values"):
        valid(torch.rand(4, 1, 3, 3))
    valid(torch.rand(4, 1, 4, 4)).sum().backward()


def test_windows_of_a_gradient_that_the_arrays_divide_read_all_of_it():
    # The host wrote 2 of 7 columns, those that one array reads to make the factors' gradients; the
    # windows of the gradient to the input read beyond them: an AssertionError, or other values.
    torch.manual_seed(0)
    plain = tnn.TTConv2d(16, 10, 3, padding="same", rank=2, numbers=WIDE)
    _near(compile(copy.deepcopy(plain), batch=2), plain, torch.randn(2, 16, 7, 7))


def test_windows_whose_rows_have_no_even_index_compile_to_the_gradients_of_torch():
    # An index over the windows' positions was asked of the image, which has no such axis: KeyError.
    model = compile(torch.nn.Sequential(tnn.TTConv2d(16, 8, 3, rank=8)), batch=4)
    x = torch.randn(4, 16, 18, 18, requires_grad=True)
    outputs = model(x)
    outputs.square().mean().backward()
    image = x.detach().double().requires_grad_()
    kernel = model[0].weight.detach().double().requires_grad_()
    wanted = torch.nn.functional.conv2d(image, kernel)
    wanted.square().mean().backward()
    assert float((outputs - wanted).detach().norm() / wanted.detach().norm()) < 0.05
    assert float((x.grad - image.grad).norm() / image.grad.norm()) < 0.05
    factors = torch.autograd.grad(model[0].weight, tuple(model[0].factors), kernel.grad.float())
    for factor, gradient in zip(model[0].factors, factors, strict=True):
        assert float((factor.grad - gradient).norm() / gradient.norm()) < 0.1


def test_compile_convolution_program_with_a_single_output_is_computed():
    model = compile(_row(_conv(1, 1, 2, padding=0)), batch=4)
    assert model(torch.rand(4, 1, 2, 2)).shape == (4, 1, 1, 1)
    assert model(torch.rand(4, 1, 2, 3)).shape == (4, 1, 1, 2)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    x = torch.rand(4, 1, 2, 3)
    assert torch.equal(torch.load(file, weights_only=False).eval()(x), model.eval()(x))


def _square(channels):
    return tnn.TTLinear((channels, 2, 2), 10, rank=2)


def test_ranks_of_convolutions_are_cut():
    model = compile(_row(_conv(1, 4), torch.nn.ReLU(), _conv(4, 4)), batch=4)
    x = torch.rand(4, 1, 4, 4)
    logits = model(x)
    with torch.no_grad():
        model.get_submodule("2").factors[0][..., 1] = 0
    assert model.cut_ranks(1e-6)
    with pytest.raises(CompileError, match="stale"):
        logits.sum().backward()
    model(x).sum().backward()
    (chain,) = model.chains.values()
    assert chain.segments[0].driver.network.ranks[1] == (1,)


def test_pages_convolutions_are_one_program():
    page = (Path(__file__).parents[2] / "docs" / "guide" / "pytorch.md").read_text()
    (code,) = re.findall(r"```python\n(model = torch.nn.Sequential\(\n.*?)```", page, re.DOTALL)
    names = {"torch": torch, "tnn": tnn, "trainwright": trainwright}
    exec(code, names)
    assert {layer.where for layer in names["model"].report().layers} == {"program 1"}
    assert trace(names["model"].module) and len(names["model"].chains) == 1


@pytest.mark.parametrize("images", [2, 3])
def test_compile_images_between_layers_are_viewed_as_those_of_torch(images):
    class Viewed(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.body = tnn.TTConv2d(1, 8, 3, numbers=WIDE)
            self.head = tnn.TTLinear(128, 10, numbers=WIDE)

        def forward(self, x):
            y = self.body(x)
            return self.head(y.view(y.size(0), -1))

    plain = Viewed()
    _near(compile(copy.deepcopy(plain), batch=2), plain, torch.randn(images, 1, 6, 6))


def test_single_image_without_a_batch_axis_has_the_outputs_of_its_batch():
    model = compile(
        torch.nn.Sequential(
            tnn.TTConv2d(1, 16, 3, padding=1, numbers=WIDE), torch.nn.ReLU(),
            torch.nn.AvgPool2d(2),
            tnn.TTConv2d(16, 16, 3, padding=1, numbers=WIDE),
        ),
        batch=2,
    )  # fmt: skip
    x = torch.randn(4, 1, 8, 8)
    model(x).square().mean().backward()
    model.eval()
    whole, single = x.clone().requires_grad_(), x[2].clone().requires_grad_()
    batch, alone = model(whole), model(single)
    assert alone.shape == (16, 4, 4)
    batch[2].sum().backward()
    alone.sum().backward()
    assert single.grad.shape == single.shape
    for own, other in ((alone, batch[2]), (single.grad, whole.grad[2])):
        assert float((own - other).detach().norm() / other.detach().norm()) < 0.005
    with pytest.raises(ValueError, match=r"\(2, 8, 8\), .* or one image \(1, rows, columns\)"):
        model(torch.randn(2, 8, 8))
    with pytest.raises(ValueError, match=r"layer 0 takes images \(n, 1, rows, columns\)"):
        model(torch.randn(8, 8))
    head = torch.nn.Sequential(
        tnn.TTConv2d(1, 16, 3, padding=1), torch.nn.Flatten(), tnn.TTLinear((16, 8, 8), 10)
    )
    with pytest.raises(ValueError, match="inputs have 64 features, layer 2 takes 1024"):
        compile(head, batch=2)(x[0])  # of one image torch's Flatten makes 16 rows of pixels, too


def test_errors_of_values_between_layers_name_the_operation_and_its_layer():
    """Name pools, and a layer that is applied again, by the module and not by the program."""

    class Again(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.stem, self.body = (tnn.TTConv2d(n, 16, 3, padding=1) for n in (1, 16))
            self.pool, self.head = torch.nn.MaxPool2d(2), tnn.TTLinear((16, 4, 4), 10)

        def forward(self, x):
            return self.head(self.pool(self.body(self.body(self.stem(x)))).flatten(1))

    model = compile(Again(), batch=2)
    with pytest.raises(CompileError, match=r"head: .* 'max pool of body applied to body' has 144"):
        model(torch.randn(2, 1, 6, 6))
    (stretch,) = model.chains
    again, pool = (node.name for node in stretch.wiring[2:4])
    words = stretch.user_names
    assert words.tensor(f"{again}.y") == "body applied to body: sums"
    assert words.tensor(f"{pool}.windows") == "max pool of body applied to body: windows"
    assert (words.tensor("x"), words.tensor("dx")) == ("input", "gradient of the input")
    deep = "encoder.layers.11.attention.output.projection"
    uses = (stretch.uses[0], replace(stretch.uses[1], name=deep), stretch.uses[2])
    assert replace(stretch, uses=uses).parts[again] == f"{deep} applied to {deep}"

"""`trainwright.compile`: torch modules on the accelerator."""

import copy
import doctest
import io
import json
import math
import warnings
from itertools import product

import numpy as np
import pytest
import torch
from safetensors.torch import load as load_safetensors
from safetensors.torch import save as save_safetensors
from slowly import mostly_slow

import trainwright.nn as tnn
from trainwright import compile
from trainwright.cli.options import accelerator_parameters
from trainwright.compiler import CompileError
from trainwright.data import load_data_set
from trainwright.driver import Driver
from trainwright.fixed.health import LostTensorWarning
from trainwright.fixed.quantise import dequantise, quantise
from trainwright.formats import Posit
from trainwright.golden.backend import GoldenAccelerator
from trainwright.network import NumberFormats, Widths, load_network
from trainwright.offload import compiled
from trainwright.offload.segment import _words
from trainwright.parameters import AcceleratorParameters
from trainwright.train.batches import batch_indices
from trainwright.train.host_engine import HostEngine
from trainwright.train.settings import TrainSettings
from trainwright.train.state import initial_state
from trainwright.train.trainer import Trainer
from trainwright.tt import to_matrix

pytestmark = pytest.mark.usefixtures("first_programs")

cross_entropy = torch.nn.functional.cross_entropy


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(1)


def _model(*, classes=10, hidden=32):
    return torch.nn.Sequential(
        tnn.TTLinear(64, hidden, rank=4), torch.nn.ReLU(), tnn.TTLinear(hidden, classes, rank=4)
    )


def _gradients(model):
    return [parameter.grad.clone() for parameter in model.parameters()]


def test_compile_docstring_examples_run():
    failed, tried = doctest.testmod(compiled)
    assert tried and not failed


POSITS = "factor=posit(4,0),activation=posit(8,0),intermediate=posit(8,1)c,gradient=posit(8,1)c"


@pytest.mark.parametrize("formats, steps", [("", 24), (POSITS, 8), ("factor=fixed(8)", 3)])
def test_bits_are_those_of_the_command_lines_trainer(formats, steps):
    """`digits`, seed 0: the same master weights, bit by bit."""
    data, network = load_data_set("digits"), load_network("digits")
    network = network.with_formats(formats) if formats else network
    settings = TrainSettings(steps=steps, prior=None)
    golden = GoldenAccelerator(accelerator_parameters([], network), memory_bytes=1 << 20)
    state = initial_state(network, settings)
    trainer = Trainer(state, data, HostEngine(lambda n: Driver(golden, n, settings.batch)))
    module = tnn.from_network(network, seed=0)
    model = compile(module, "golden", settings.batch, formats or None)
    assert model.machine.settings.parameters == golden.parameters
    optimizer = tnn.Adam(model.parameters(), lr=settings.learning_rate)
    total = settings.total_steps(len(data.train))
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: 0.5 * (1 + math.cos(math.pi * step / total))
    )
    for step in range(steps):
        chosen = batch_indices(len(data.train), settings.batch, settings.seed, step)
        pixels = data.train.images[chosen].reshape(settings.batch, -1) / data.full_scale
        x, y = torch.from_numpy(pixels), torch.from_numpy(data.train.labels[chosen])
        y = y.long()
        if step == 0:
            model.calibrate(x, lambda out, y=y: cross_entropy(out[:, :10], y))
        loss = cross_entropy(model(x)[:, :10], y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        assert loss.item() == pytest.approx(trainer.step().loss, rel=1e-12)
    for layer, factors, bias in zip(
        (model.module[0], model.module[2]), state.model.factors, state.model.biases, strict=True
    ):
        layer.clip()
        assert all(torch.equal(a, b.value) for a, b in zip(layer.factors, factors, strict=True))
        assert torch.equal(layer.bias, bias.value)
    (chain,) = model.chains.values()
    assert chain.segments[0].scales.exponents == state.scales.exponents


def test_outputs_and_gradients_are_near_those_of_torch():
    """Activations have 16 bits, so that only roundings to 16 bits are left.

    A mean is at least 0.008 x 2^15 = 262 steps, so that one rounding (0.29 steps) is about 0.1 %.
    """
    widths = Widths(activation=16, bias=16)
    plain = torch.nn.Sequential(
        tnn.TTLinear(64, 64, rank=4, numbers=widths), torch.nn.ReLU(),
        tnn.TTLinear(64, 10, rank=4, numbers=widths),
    )  # fmt: skip
    model = compile(copy.deepcopy(plain), batch=32)
    x, y = torch.rand(32, 64), torch.arange(32) % 10
    cross_entropy(model(x), y).backward()
    cross_entropy(plain(x), y).backward()
    assert (model(x) - plain(x)).norm() < 0.005 * plain(x).norm()
    for gradient, other in zip(_gradients(model), _gradients(plain), strict=True):
        assert (gradient - other).norm() < 0.02 * other.norm()


def test_compile_batch_that_is_not_full_or_more_than_full():
    model = compile(_model(), batch=16)
    x, y = torch.rand(40, 64), torch.arange(40) % 10
    model(x[:16]).sum().backward()  # calibrates
    model.eval()
    whole = model(x)
    assert whole.shape == (40, 10)
    assert torch.equal(whole[:16], model(x[:16])) and torch.equal(whole[37:], model(x[37:]))
    assert model(x[:0]).shape == (0, 10)
    assert torch.equal(model(x.reshape(4, 10, 64)), whole.reshape(4, 10, 10))
    model.zero_grad()
    cross_entropy(whole, y, reduction="sum").backward()
    gradients = _gradients(model)
    wanted = [torch.zeros_like(gradient) for gradient in gradients]
    for part in (slice(0, 16), slice(16, 32), slice(32, 40)):
        model.zero_grad()
        cross_entropy(model(x[part]), y[part], reduction="sum").backward()
        for total, gradient in zip(wanted, _gradients(model), strict=True):
            total += gradient
    for gradient, other in zip(gradients, wanted, strict=True):
        assert torch.allclose(gradient, other, rtol=1e-6, atol=1e-6)


def test_samples_that_fill_up_a_batch_give_no_gradient():
    model = compile(_model(), batch=16)
    x, y = torch.rand(16, 64), torch.arange(16) % 10
    model(x).sum().backward()
    model.eval()
    gradients = []
    for weight in (torch.cat([torch.ones(5), torch.zeros(11)]), None):
        model.zero_grad()
        out = model(x if weight is not None else x[:5])
        loss = cross_entropy(out, y[: len(out)], reduction="none")
        (loss if weight is None else loss * weight).sum().backward()
        gradients.append(_gradients(model))
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))


def test_samples_that_fill_up_a_batch_do_not_change_the_exponents():
    x, exponents = torch.rand(4, 64), []
    for inputs in (x, x.repeat(4, 1)):
        torch.manual_seed(0)
        model = compile(_model(), batch=16)
        model(inputs)
        (chain,) = model.chains.values()
        exponents.append(chain.segments[0].scales.exponents)
    assert exponents[0] == exponents[1]


def test_several_forward_passes_before_backward():
    model = compile(_model(), batch=16)
    a, b = torch.rand(16, 64), torch.rand(16, 64)
    model(a).sum().backward()
    model.eval()
    alone = []
    for x in (a, b):
        model.zero_grad()
        model(x).square().sum().backward(retain_graph=True)
        alone.append(_gradients(model))
    model.zero_grad()
    first, second = model(a).square().sum(), model(b).square().sum()
    first.backward(retain_graph=True)
    assert all(torch.equal(g, w) for g, w in zip(_gradients(model), alone[0], strict=True))
    first.backward()
    second.backward()
    for summed, alone_a, alone_b in zip(_gradients(model), *alone, strict=True):
        assert torch.allclose(summed, 2 * alone_a + alone_b, rtol=1e-6)


@pytest.mark.filterwarnings("ignore:.*of what differs between samples")  # by the set exponents
@pytest.mark.filterwarnings("ignore:.*rounded to a mean of")
def test_compile_forward_pass_is_run_again_with_the_exponents_it_had():
    model = compile(_model(), batch=16)
    (chain,) = model.chains.values()
    x = torch.rand(16, 64)
    model(x).sum().backward()
    model.eval().zero_grad()
    model(x).square().sum().backward()
    wanted = _gradients(model)
    model.zero_grad()
    y = model(x)
    chain.segments[0].scales.exponents["l1.a"] += 3
    model.module[0].quantise_input.set_exponent(-4)
    model(x)
    y.square().sum().backward()
    assert all(torch.equal(a, b) for a, b in zip(_gradients(model), wanted, strict=True))


def test_exponents_move_in_training_alone():
    model = compile(_model(), batch=16)
    (chain,) = model.chains.values()
    model(torch.rand(16, 64)).sum().backward()
    before = dict(chain.segments[0].scales.exponents)
    assert before
    with torch.no_grad():
        for parameter in model.module[2].factors:
            parameter.mul_(0.25)
    model.eval()
    model(torch.rand(16, 64)).sum().backward()
    with pytest.warns(LostTensorWarning, match="in evaluation"):
        model(torch.rand(16, 64) * 8)
    assert chain.segments[0].scales.exponents == before
    assert int(model.module[0].quantise_input.exponent) == -7
    model.train()
    model(torch.rand(16, 64)).sum().backward()
    assert chain.segments[0].scales.exponents != before


class _Hybrid(torch.nn.Module):
    def __init__(self, numbers="fixed"):
        super().__init__()
        self.conv = torch.nn.Conv2d(1, 4, 3, stride=2, padding=1)
        self.first = tnn.TTLinear(64, 64, rank=4, numbers=numbers)
        self.two = tnn.TTLinear(64, 10, rank=4, relu=False, numbers=numbers)

    def forward(self, x):
        x = torch.tanh(self.conv(x)).flatten(1)
        return self.two(torch.relu(self.first(x)))


def test_gradients_of_inputs_are_the_accelerators():
    """dX = dY W, rounded to 16 bits: of a single layer, and of a hybrid through its convolution.

    One rounding is at most half a step; with a mean of at least 0.008 x 2^15 steps that is 0.2 %.
    """
    layer = tnn.TTLinear(60, 10, rank=4)
    model = compile(torch.nn.Sequential(layer), batch=8)
    x = torch.rand(8, 60, dtype=torch.float64, requires_grad=True)
    gradient = torch.rand(8, 10).double()
    model(x).backward(gradient)
    factors = [
        dequantise(quantise(f.detach(), k, 4), k)
        for f, k in zip(layer.factors, layer.factor_exponents.tolist(), strict=True)
    ]
    wanted = gradient @ to_matrix(factors)[:10, :60]
    assert 0 < (x.grad - wanted).norm() < 0.005 * wanted.norm()
    (chain,) = model.chains.values()
    step = 2.0 ** chain.segments[1].scales.exponents["l1.dx"]
    assert torch.equal(x.grad / step, torch.round(x.grad / step))
    hybrid = _Hybrid(Widths(activation=16, bias=16))
    plain = copy.deepcopy(hybrid)
    model = compile(hybrid, batch=16)
    images, y = torch.rand(16, 1, 8, 8), torch.arange(16) % 10
    cross_entropy(model(images), y).backward()
    cross_entropy(plain(images), y).backward()
    for gradient, other in zip(_gradients(model), _gradients(plain), strict=True):
        assert (gradient - other).norm() < 0.02 * other.norm()


def test_compile_report_places_each_layer():
    model = compile(_Hybrid(), batch=16)
    report = model.report()
    places = {layer.name: layer.where for layer in report.layers}
    assert places == {
        "conv": "torch: the accelerator has no Conv2d", "first": "program 1", "two": "program 1",
    }  # fmt: skip
    assert report.bits == model.first.bits + model.two.bits + 32 * (4 * 9 + 4)
    assert report.operators == ("tanh", "flatten")
    assert [layer.numbers for layer in report.layers] == ["float32", "fixed(4)", "fixed(4)"]
    text = str(report)
    assert "also in torch: tanh, flatten" in text
    assert "| first " in text and "program 1" in text and "back end golden, batch 16" in text
    mixed = torch.nn.Sequential(
        tnn.TTLinear(64, 64, rank=4, numbers="float32"), tnn.TTLinear(64, 20, rank=4),
        torch.nn.ReLU(), tnn.TTLinear(20, 16, rank=4), torch.nn.ReLU(),
    )  # fmt: skip
    report = compile(mixed, batch=16).report()
    assert [layer.where for layer in report.layers] == [
        "torch: its numbers are float32", "program 1", "program 2",  # 20 outputs are padded to 32
    ]  # fmt: skip
    other = tnn.TTLinear(32, 16, rank=4, numbers=Widths(factor=8))  # and an accelerator of 8 bits
    report = compile(torch.nn.Sequential(tnn.TTLinear(64, 32, rank=4), other), batch=16).report()
    assert [layer.where for layer in report.layers] == ["program 1", "program 2"]


def test_compile_report_counts_steps_bytes_and_saturations():
    model = compile(_model(), batch=16)
    before = model.report()
    assert before.steps == before.bytes_read == 0
    for _ in range(2):
        model(torch.rand(16, 64)).sum().backward()
    report = model.report()
    assert report.steps == 2 and report.bytes_read > report.bytes_written > 0
    assert report.predicted_cycles == before.predicted_cycles > 0


def test_ranks_that_were_cut_are_a_new_program():
    model = compile(_model(hidden=64), batch=16)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    x, y = torch.rand(16, 64), torch.arange(16) % 10
    loss = cross_entropy(model(x), y) + 1e-4 * model.rank_prior()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        model.module[0].factors[0][..., 1:3] = 0
    logits = model(x)
    assert model.cut_ranks(1e-6, optimizer=optimizer)
    assert model.report().layers[0].ranks == (2,)
    (chain,) = model.chains.values()
    assert chain.segments[0].driver.network.ranks == ((2,), (4,))
    with pytest.raises(CompileError, match="stale"):
        logits.sum().backward()
    optimizer.zero_grad()
    cross_entropy(model(x), y).backward()
    optimizer.step()


def test_parameters_names_copies_and_pickles_are_those_of_the_module():
    plain = _model()
    names = list(plain.state_dict())
    model = compile(plain, batch=16)
    x = torch.rand(16, 64)
    model(x).sum().backward()
    assert [name for name in model.state_dict() if name != "0.program_exponents"] == names
    assert all(a is b for a, b in zip(model.parameters(), plain.parameters(), strict=True))
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    for other in (copy.deepcopy(model), torch.load(file, weights_only=False)):
        assert torch.equal(other.eval()(x), model.eval()(x))
        with torch.no_grad():
            other.module[2].bias += 1
        assert not torch.equal(other(x), model(x))
    fresh = _model()
    fresh.load_state_dict(model.state_dict())
    with pytest.raises(RuntimeError, match="Missing key"):
        compile(_model(), batch=16).load_state_dict({})
    single = compile(tnn.TTLinear(64, 10, rank=2), batch=16)
    assert single(x).shape == (16, 10) and not single.eval().module.training


def test_gradients_in_evaluation_of_a_loaded_model_are_those_of_the_saved():
    torch.manual_seed(0)
    saved, loaded = (compile(_model(), batch=16) for _ in range(2))
    for size in (1.0, 8.0):  # exponents move in the second step
        saved(size * torch.rand(16, 64)).square().sum().backward()
    loaded.load_state_dict(saved.state_dict())
    x = torch.rand(16, 64)
    for model in (saved.eval(), loaded.eval()):
        model.zero_grad()
        model(x).square().sum().backward()
    assert all(map(torch.equal, _gradients(saved), _gradients(loaded)))


def test_compiled_again_for_another_batch():
    model = compile(_model(), batch=16)
    again = compile(model, batch=32)
    assert again.module is model.module and again.report().batch == 32
    assert again(torch.rand(32, 64)).shape == (32, 10)


def test_ordinary_modules_again():
    model = compile(_model(), batch=16)
    x = torch.rand(16, 64)
    model(x).sum().backward()
    dense = model.eval().to_torch()
    assert [type(m) for m in dense] == [torch.nn.Linear, torch.nn.ReLU, torch.nn.Linear]
    assert (dense(x) - model(x)).norm() < 0.05 * model(x).norm()


def test_formats_are_those_of_the_programs_and_of_the_module():
    module = _model()
    model = compile(module, batch=16, formats=POSITS)
    assert model.machine.settings.parameters.formats == ("posit(4,0)", "posit(8,0)", "posit(8,1)c")
    x = torch.rand(16, 64)
    model(x).square().sum().backward()
    report = model.report()
    assert report.underflows == 0 and "underflowed" not in str(report)
    assert report.layers[0].numbers.startswith("posit(4,0), activation posit(8,0), intermediate")
    model.eval()
    y = model(x)
    (chain,) = model.chains.values()
    exponent = chain.segments[0].scales.exponents["l2.y"]
    words = torch.arange(-115, 116)
    values = dequantise(words, exponent, Posit(8, 1, clamped=True))
    assert set(y.double().flatten().tolist()) <= set(values.tolist())
    model = compile(model, batch=16, formats="intermediate=fixed(16),activation=posit(10,0)")
    y = model.eval()(x)  # torch computes in the same numbers, but for results within a layer
    assert (module.eval()(x) - y).norm() < 0.05 * y.norm()


@pytest.mark.parametrize("rule, least", [("gradients", 0), ("zero", 0), ("never", 1)])
def test_inputs_that_are_too_small_for_a_posit_follow_the_rule(rule, least):
    numbers = NumberFormats().with_formats(f"activation=posit(8,0),underflow={rule}")
    x = torch.tensor([1.0, -(2.0**-20), 0.0])  # the posit 2 at this exponent, 2^-13 of the least
    assert _words(x, -7, numbers).tolist() == [96, -least, 0]


def test_compile_report_counts_underflows():
    model = compile(_model(), batch=16, formats="gradient=posit(5,0)")
    loss = model(torch.rand(16, 64)).square().sum()
    assert model.report().underflows == 0
    loss.backward()
    report = model.report()
    assert report.underflows > 0 and f"{report.underflows:,} underflowed" in " ".join(
        str(report).split()
    )


@pytest.mark.parametrize(
    "options, message",
    [
        ({"formats": "activation=posit(8)"}, "no number format 'posit\\(8\\)'"),
        ({"formats": "weights=fixed(8)"}, "no class of tensors 'weights'"),
        ({"formats": 8}, "formats must be text"),
        ({"formats": "gradient=posit(16,1)"}, "posit\\(16,1\\) needs operands of"),
        (
            {"formats": "activation=posit(8,0)", "accelerator": AcceleratorParameters()},
            "this accelerator has no posit\\(8,0\\), but fixed point; make one with",
        ),
        ({"formats": "factor=fixed(17)"}, "no number format"),
    ],
)
def test_formats_that_cannot_be_are_one_error_and_leave_the_module(options, message):
    module = _model()
    before = copy.deepcopy(module)
    with pytest.raises(CompileError, match=message):
        compile(module, **options)
    assert module[0].numbers == before[0].numbers
    for entry, other in zip(module.state_dict().items(), before.state_dict().items(), strict=True):
        assert entry[0] == other[0] and torch.equal(entry[1], other[1])


class _ByMode(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = tnn.TTLinear(64, 10, rank=2)

    def forward(self, x):
        y = torch.nn.functional.relu(self.layer(x))
        return y if self.training else 2 * y


def test_compile_traces_module_in_both_modes():
    model = compile(_ByMode(), batch=8)
    x = torch.rand(8, 64)
    y = model.train()(x)
    assert torch.equal(model.eval()(x), 2 * y)


class _Twice(torch.nn.Module):
    """The first layer's output is used by more than the second layer."""

    def __init__(self, both):
        super().__init__()
        self.first, self.two, self.both = tnn.TTLinear(64, 64), tnn.TTLinear(64, 64), both

    def forward(self, x):
        h = self.first(x)
        y = self.two(h.relu())
        return y - h if self.both else y


def test_compile_output_that_others_use_leaves_the_accelerator():
    x = torch.rand(16, 64)
    model = compile(_Twice(both=False), batch=16)
    assert [layer.where for layer in model.report().layers] == ["program 1", "program 1"]
    (chain,) = model.chains.values()
    assert [use.relu for use in chain.stretch.uses] == [True, False]
    y = model.eval()(x)
    both = _Twice(both=True)
    both.load_state_dict(model.state_dict())
    model = compile(both, batch=16).eval()
    assert [layer.where for layer in model.report().layers] == ["program 1", "program 2"]
    (first,) = next(iter(model.chains.values()))(x)
    assert (model(x) + first - y).norm() < 0.05 * y.norm()


@pytest.mark.parametrize(
    "module, options, message",
    [
        (_model(), {"backend": "gpu"}, "backend must be one of .*golden.*'gpu'"),
        (_model(), {"batch": 0}, "batch must be an integer of at least 1, not 0"),
        (_model(), {"batch": 5000}, "4096"),
        (torch.nn.Linear(2, 2), {}, "no TTLinear or TTConv2d in fixed point.*: make it with"),
        (
            torch.nn.Sequential(tnn.TTConv2d(8, 8, 3, rank=2, dilation=2)),
            {},
            r"0 \(TTConv2d\): the accelerator has no dilation \(2, 2\)\): change these layers",
        ),
        (
            tnn.TTEmbedding(64, 8),
            {},
            r"accelerator \(TTEmbedding: the accelerator has no TTEmbedding",
        ),
        (
            torch.nn.Sequential(
                tnn.TTLinear(8, 8, rank=2, numbers="float32"), tnn.TTEmbedding(64, 8, rank=2)
            ),
            {},
            r"0 \(TTLinear\): its numbers are float32; 1 \(TTEmbedding\): .*set_numbers\('fixed'\)",
        ),
    ],
)
def test_compile_of_impossible_arguments_is_one_error(module, options, message):
    with pytest.raises(CompileError, match=message):
        compile(module, **options)


def test_inputs_that_cannot_be_are_one_error():
    model = compile(_model(), batch=16)
    with pytest.raises(TypeError, match=r"not torch\.int64: convert them, x\.to\(torch\.float32\)"):
        model(torch.zeros(2, 64, dtype=torch.int64))
    with pytest.raises(ValueError, match="have 63 features"):
        model(torch.zeros(2, 63))
    with pytest.raises(ValueError, match="NaN"):
        model(torch.full((2, 64), float("nan")))
    with pytest.raises(TypeError, match=r"a torch\.nn\.Module is wanted, not 5, a int"):
        compile(5)


@pytest.mark.parametrize("samples", [4, 20])
def test_compiled_model_in_a_second_backward_pass_raises_as_torch_does(samples):
    layer = tnn.TTLinear(16, 4, rank=2)
    model = compile(torch.nn.Sequential(layer), batch=8)
    loss = model(torch.rand(samples, 16)).sum()
    loss.backward(retain_graph=True)
    before = layer.factors[0].grad.clone()
    loss.backward()
    assert torch.equal(layer.factors[0].grad, 2 * before)
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()


def test_gradients_of_gradients_are_one_error():
    model = compile(_model(), batch=16)
    x = torch.rand(16, 64, requires_grad=True)
    with pytest.raises(RuntimeError, match=r"no gradients of gradients.*create_graph"):
        torch.autograd.grad(model(x).sum(), x, create_graph=True)


def test_compile_hybrid_trains_as_in_torch_alone():
    """Ten classes of noisy images; 3 epochs, at most 3 points below plain torch."""
    prototypes = torch.rand(10, 1, 8, 8)
    labels = torch.arange(640) % 10
    images = (prototypes[labels] + 0.15 * torch.randn(640, 1, 8, 8)).clamp(0, 1)
    accuracy = {}
    for kind in ("torch", "golden"):
        torch.manual_seed(2)
        model = _Hybrid()
        if kind == "golden":
            model = compile(model, batch=64)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        for _ in range(3):
            for part in torch.randperm(640).split(64):
                optimizer.zero_grad()
                cross_entropy(model(images[part]), labels[part]).backward()
                optimizer.step()
        classes = model.eval()(images).argmax(1)
        accuracy[kind] = float(np.mean((classes == labels).numpy()))
    assert accuracy["torch"] > 0.95 and accuracy["golden"] > accuracy["torch"] - 0.03


@pytest.mark.parametrize("training", (True, False))
def test_compiled_model_with_more_bits_computes_with_them_in_its_next_pass(training):
    """Train in 8 bits, then compute in 16: exponents of the 8 bits would keep their error."""
    torch.manual_seed(0)
    numbers = [Widths(factor=12, activation=bits, bias=16) for bits in (8, 16)]
    layers = [tnn.TTLinear(32, 32, rank=8, numbers=numbers[0]) for _ in range(2)]
    model = compile(torch.nn.Sequential(layers[0], torch.nn.ReLU(), layers[1]), batch=8)
    x = torch.randn(8, 32)
    model(x).sum().backward()
    dense = model.to_torch()
    assert (model(x) - dense(x)).norm() > 0.005 * dense(x).norm()
    for layer in layers:
        layer.set_numbers(numbers[1])
    model.train(training)
    dense = model.to_torch()
    assert (model(x) - dense(x)).norm() < 0.002 * dense(x).norm()


def _of_bits(bits, compiled):
    torch.manual_seed(0)
    numbers = Widths(factor=min(bits, 12), activation=bits, intermediate=bits, bias=16)
    layers = [tnn.TTLinear(32, 32, rank=8, numbers=numbers) for _ in range(2)]
    model = torch.nn.Sequential(layers[0], torch.nn.ReLU(), layers[1])
    return compile(model, batch=8) if compiled else model


def _plain(state):
    return load_safetensors(save_safetensors({name: v.contiguous() for name, v in state.items()}))


def _averaged(state):
    return {name: 0.9 * value + 0.1 * value for name, value in state.items()}


def _by_torch(state):
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@pytest.mark.parametrize("compiled", (True, False))
@mostly_slow(
    "kept_by, training",
    product((_by_torch, dict, _plain, _averaged), (True, False)),
    lambda kept_by, training: training or kept_by is _by_torch,
)
@pytest.mark.parametrize("before, bits, allowed", ((8, 16, 0.002), (16, 8, 0.1)))
def test_state_dict_of_other_bits_loads_with_the_precision_of_the_own_bits(
    before, bits, allowed, kept_by, compiled, training
):
    """Compare with float64, of the factors that were trained: their error counts, too."""
    source, model = _of_bits(before, compiled), _of_bits(bits, compiled)
    x = torch.randn(8, 32)
    source(x).sum().backward()
    with pytest.warns(UserWarning, match=rf"other numbers .*activation=fixed\({bits}\) for fixed"):
        model.load_state_dict(kept_by(source.state_dict()))
    exact, layers = x.double(), [layer for layer in model.modules() if hasattr(layer, "factors")]
    for layer in layers[:2]:
        exact = exact.relu() if layer is layers[1] else exact
        weight = to_matrix([factor.detach().double() for factor in layer.factors])
        exact = exact @ weight.T + layer.bias.double()
    assert (model.train(training)(x) - exact).norm() < allowed * exact.norm()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.load_state_dict(model.state_dict())
        model.load_state_dict(dict(model.state_dict()))  # without metadata


@pytest.mark.parametrize(
    "make",
    [
        lambda **numbers: tnn.TTLinear(32, 16, rank=4, **numbers),
        lambda **numbers: tnn.TTConv2d(2, 16, 3, **numbers),
        lambda **numbers: tnn.TTLayerNorm(32, **numbers),
    ],
)
def test_state_dict_of_float32_loads_into_layers_that_round_and_back(make):
    source, model = make(numbers="float32"), make()
    shape = (4, 2, 8, 8) if isinstance(model, tnn.TTConv2d) else (8, 32)
    model(1000 * torch.randn(shape))  # exponents of the values before
    with pytest.warns(UserWarning, match=r"other numbers \(factor=fixed\(4\) for float32"):
        model.load_state_dict(source.state_dict())
    rounded, x = copy.deepcopy(source), torch.randn(shape)
    rounded.set_numbers(model.numbers)
    assert torch.equal(model(x), rounded(x))
    with pytest.warns(UserWarning, match=r"layers that round was loaded into .* in float32"):
        source.load_state_dict(model.state_dict())
    assert all(map(torch.equal, source.parameters(), model.parameters()))


def test_state_dict_of_layers_that_round_without_quantisers_is_an_error():
    layer = tnn.TTLinear(32, 16, rank=4)
    state = {name: v for name, v in layer.state_dict().items() if not name.startswith("quantise_")}
    with pytest.raises(RuntimeError, match=r"Missing key.*quantise_input\.exponent"):
        layer.load_state_dict(state)


def test_state_dict_of_formats_in_the_metadata_loads_as_before():
    state = _of_bits(8, compiled=False).state_dict()
    for name in ("0", "2"):
        codes = bytes(map(int, state.pop(f"{name}.formats")))
        state._metadata[name]["formats"] = json.loads(codes)
    with pytest.warns(UserWarning, match=r"other numbers .*activation=fixed\(16\) for fixed\(8\)"):
        _of_bits(16, compiled=False).load_state_dict(state)


def test_state_dict_whose_formats_cannot_be_read_chooses_exponents_anew():
    states = [_of_bits(bits, compiled=False).state_dict() for bits in (8, 12)]
    mixed = {name: value + states[1][name][: len(value)] if name.endswith("formats") else value
             for name, value in states[0].items()}  # fmt: skip
    model = _of_bits(8, compiled=False)
    with pytest.warns(UserWarning, match=r"activation=fixed\(8\) for unreadable formats"):
        model.load_state_dict(mixed)
    assert not bool(model[0].quantise_input.calibrated)

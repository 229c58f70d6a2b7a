"""Calls of compiled models: optional arguments, keywords, nested inputs and outputs."""

import copy
import threading
import time
import warnings
from collections import OrderedDict, namedtuple
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from slowly import mostly_slow

import trainwright.nn as tnn
from trainwright import compile, from_torch
from trainwright.compiler import CompileError
from trainwright.offload.segment import Segment
from trainwright.offload.trace import trace

pytestmark = pytest.mark.usefixtures("first_programs")

cross_entropy = torch.nn.functional.cross_entropy
Pair = namedtuple("Pair", "loss logits")


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(1)


class _Body(torch.nn.Module):
    """Two layers; the modules below call them in various ways."""

    def __init__(self):
        super().__init__()
        self.first, self.second = tnn.TTLinear(64, 32, rank=4), tnn.TTLinear(32, 10, rank=4)

    def logits(self, x):
        return self.second(torch.relu(self.first(x)))


class _WithLabels(_Body):
    def forward(self, x, labels=None, *, scale=1.0, nested=False):
        logits = self.logits(x) * scale
        if labels is None:
            return logits
        loss = cross_entropy(logits, labels)
        return Pair(loss, logits) if nested else (loss, logits)


class _Nested(_Body):
    def forward(self, batch, *biases, **options):
        logits = self.logits(batch["x"])
        for bias in biases:
            logits = logits + bias
        if options.get("temperature") is not None:
            logits = logits / options["temperature"]
        return OrderedDict(logits=logits, shape=(logits.shape[0], None))


class _OnlyOptional(_Body):
    def forward(self, x=None, features=None):
        if x is None and features is None:
            raise ValueError("give x or features")
        return self.logits(x if features is None else features)


class _ByKeyword(_Body):
    def forward(self, x):
        return self.second(input=torch.relu(self.first(input=x)))


class _PassedOn(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = _ByKeyword()

    def forward(self, *args, **options):
        return self.body(*args, **options)


class _RestPassedOn(_PassedOn):
    def forward(self, x, *rest, **options):
        return self.body(x, *rest, **options)


def _trained(module):
    """Return a compiled model in evaluation mode whose exponents have met a batch."""
    model = compile(module, batch=16)
    model.calibrate(torch.rand(16, 64), lambda out: out.square().sum())
    return model.eval()


def _logits(model, x):
    """Return what the two layers on the accelerator make of ``x``."""
    (chain,) = model.chains.values()
    return chain(x)[0]


def test_optional_argument_given_or_not_is_traced_as_called():
    model = _trained(_WithLabels())
    x, labels = torch.rand(16, 64), torch.arange(16) % 10
    logits = _logits(model, x)
    for out in (model(x), model(x, None), model(x=x), model(x, labels=None)):
        assert torch.equal(out, logits)
    for out in (model(x, labels), model(x, labels=labels), model(labels=labels, x=x)):
        assert isinstance(out, tuple) and torch.equal(out[1], logits)
        assert torch.equal(out[0], cross_entropy(logits, labels))
    assert torch.equal(model(x), logits)
    dense = model.module(x)
    assert (logits - dense).norm() < 0.05 * dense.norm()


def test_constant_arguments_of_other_values_are_traced_anew():
    model = _trained(_WithLabels())
    x, labels = torch.rand(16, 64), torch.arange(16) % 10
    logits = _logits(model, x)
    assert torch.equal(model(x, scale=2.0), 2 * logits)
    assert torch.equal(model(x, scale=0.5), 0.5 * logits)
    assert torch.equal(model(x, scale=torch.tensor(3.0)), 3 * logits)
    assert isinstance(model(x, labels, nested=True), Pair)
    assert type(model(x, labels, nested=1 > 2)) is tuple
    for step in range(66):
        assert torch.equal(model(x, scale=1.0 + step), (1.0 + step) * logits)
    assert len(model.__dict__["_hidden"]["plans"]) <= 64


def test_training_with_labels_moves_the_factors_as_its_loss_says():
    model = compile(_WithLabels(), batch=16)
    x, labels = torch.rand(16, 64), torch.arange(16) % 10
    model(x, labels)[0].backward()
    gradients = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    cross_entropy(model(x), labels).backward()
    assert all(torch.equal(a, b.grad) for a, b in zip(gradients, model.parameters(), strict=True))
    assert model.report().steps == 2 and len(model.chains) == 1


def test_dict_and_star_arguments_keep_their_nesting():
    model = compile(_Nested(), batch=16)
    x = torch.rand(16, 64)
    model({"x": x})["logits"].sum().backward()
    model.eval()
    logits = _logits(model, x)
    out = model({"x": x}, logits, logits, temperature=2.0)
    assert type(out) is OrderedDict and out["shape"] == (16, None)
    assert torch.equal(out["logits"], 3 * logits / 2)
    assert torch.equal(model({"x": x})["logits"], logits)


def test_arguments_that_are_all_optional_run_on_the_accelerator():
    model = compile(_OnlyOptional(), batch=16)
    assert [layer.where for layer in model.report().layers] == ["program 1", "program 1"]
    x = torch.rand(16, 64)
    model(x).sum().backward()
    assert torch.equal(model.eval()(features=x), _logits(model, x))


@pytest.mark.parametrize("kind", [_PassedOn, _RestPassedOn])
def test_compile_arguments_that_are_passed_on_are_planned_as_one_program(kind):
    model = compile(kind(), batch=16)
    assert len(model.chains) == 1 and not model.report().why_alone
    x = torch.rand(16, 64)
    model(x).sum().backward()
    assert len(model.chains) == 1 and torch.equal(model.eval()(x), _logits(model, x))


def test_layer_called_by_keyword_runs_on_the_accelerator():
    model = compile(_ByKeyword(), batch=16)
    assert [layer.where for layer in model.report().layers] == ["program 1", "program 1"]
    layer = compile(tnn.TTLinear(64, 10, rank=2), batch=16)
    assert layer(input=torch.rand(16, 64)).shape == (16, 10)


def test_arguments_that_forward_does_not_take_raise_type_error():
    model = compile(_WithLabels(), batch=16)
    with pytest.raises(TypeError, match="missing a required argument: 'x'"):
        model()
    with pytest.raises(TypeError, match="unexpected keyword argument 'target'"):
        model(torch.rand(16, 64), target=None)


def test_mode_of_a_part_is_traced_for_each():
    class Dropped(_Body):
        def __init__(self):
            super().__init__()
            self.part = _Part()

        def forward(self, x):
            return self.part(self.logits(x))

    class _Part(torch.nn.Module):
        def forward(self, x):
            return -x if self.training else x

    model = _trained(Dropped())
    x = torch.rand(16, 64)
    y = model(x)
    model.module.part.train()
    assert torch.equal(model(x), -y)


TRANSFORMS = {
    "jit.trace": lambda model, x: torch.jit.trace(model, x),
    "jit.script": lambda model, x: torch.jit.script(model),
    "export": lambda model, x: torch.export.export(model, (x,)),
    "fx": lambda model, x: torch.fx.symbolic_trace(model),
    "fx around": lambda model, x: torch.fx.symbolic_trace(torch.nn.Sequential(model)),
    "vmap": lambda model, x: torch.func.vmap(model)(x),
    "grad": lambda model, x: torch.func.grad(lambda given: model(given).sum())(x),
    "jacrev": lambda model, x: torch.func.jacrev(model)(x),
    "meta inputs": lambda model, x: model(x.to("meta")),
    "meta parameters": lambda model, x: copy.deepcopy(model).to("meta")(x),
}


@pytest.mark.filterwarnings("ignore:.*torch.jit.*deprecated:DeprecationWarning")
@pytest.mark.parametrize("name", TRANSFORMS)
def test_transform_of_a_compiled_model_is_one_error_that_names_to_torch(name):
    model, x = _trained(_WithLabels()), torch.rand(16, 64)
    logits = model(x)
    with pytest.raises(RuntimeError, match=r"^[^\n]*model\.to_torch\(\)[^\n]*$"):
        TRANSFORMS[name](model, x)
    assert torch.equal(model(x), logits)


def test_torch_compile_around_a_compiled_model_skips_it_without_warnings():
    model, x = _trained(_WithLabels()), torch.rand(16, 64)
    before, after = torch.nn.Linear(64, 64), torch.nn.Linear(10, 3)
    whole = torch.nn.Sequential(before, model, after)
    y = whole(x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(torch.compile(model, backend="eager")(x), model(x))
        outputs = torch.compile(whole, backend="eager")(x)
        outputs.sum().backward()
    assert torch.equal(outputs, y)
    gradient = before.weight.grad.clone()
    before.zero_grad()
    whole(x).sum().backward()
    assert torch.equal(gradient, before.weight.grad)


def _encoder_layer():
    dense = torch.nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)
    return from_torch(dense, rank=4)


@mostly_slow("stacked", [False, True], quick=[True])
def test_compiled_torch_transformer_follows_its_padding(stacked):
    module = _encoder_layer()
    if stacked:
        module = torch.nn.TransformerEncoder(module, 2, enable_nested_tensor=False)
    model = compile(module, batch=16)
    x, mask = torch.randn(2, 5, 64), torch.zeros(2, 5, dtype=torch.bool)
    mask[:, 3:] = True
    model(x, src_key_padding_mask=mask).sum().backward()
    model.eval()
    with torch.no_grad():
        for options in ({"src_key_padding_mask": mask}, {}):
            out, wanted = model(x, **options), module(x, **options)
            assert (out - wanted).norm() < 0.05 * wanted.norm()
    report = model.report()
    assert report.steps == 1 and report.bytes_written > 0 and not report.alone


class _Own(torch.nn.Module):
    """A class that torch.fx takes for torch's own, around a layer."""

    __module__ = "torch.nn.modules.own"

    def __init__(self):
        super().__init__()
        self.linear = tnn.TTLinear(64, 64, rank=4)

    def forward(self, x):
        return self.linear(x)


def test_layers_inside_a_module_of_torch_are_programs_of_their_own():
    model = compile(torch.nn.Sequential(_Own(), tnn.TTLinear(64, 64, rank=4)), batch=16)
    report = model.report()
    assert report.alone == (("0.linear", "inside _Own, which torch.fx does not look into"),)
    assert [layer.where for layer in report.layers] == ["program 2", "program 1"]
    folded = " ".join(str(report).split())
    assert "0.linear: a program of its own, inside _Own" in folded
    assert all(len(line) <= 80 for line in str(report).splitlines())


class _Gated(_Body):
    """A part whose control flow depends on the data, behind layers whose does not."""

    class Gate(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = tnn.TTLinear(10, 10, rank=2)

        def forward(self, x):
            return self.layer(x) if x.sum() > 0 else x

    def __init__(self):
        super().__init__()
        self.encoder, self.gate = _encoder_layer(), self.Gate()

    def forward(self, x):
        return self.gate(self.logits(self.encoder(x)).squeeze(1))


def test_layers_of_parts_that_cannot_be_traced_are_programs_of_their_own():
    model = compile(_Gated(), batch=16)
    x = torch.rand(16, 1, 64)
    model.calibrate(x, lambda out: out.square().sum())
    report = model.report()
    places = {layer.name: layer.where for layer in report.layers if layer.module == "TTLinear"}
    assert places["first"] == places["second"] != places["gate.layer"]
    assert report.alone == (("gate.layer", "inside Gate, which torch.fx cannot trace"),)
    model.eval()
    for sign in (1, -1):  # each way through the gate
        with torch.no_grad():
            model.module.second.bias.fill_(sign * 10.0)
            wanted = copy.deepcopy(model.module)(x)
        assert (model(x) - wanted).norm() < 0.05 * wanted.norm()


def _sequential():
    return torch.nn.Sequential(tnn.TTLinear(64, 32, rank=4), torch.nn.ReLU(), tnn.TTLinear(32, 10))


@pytest.mark.parametrize("of_module", [False, True])
@pytest.mark.parametrize("make", [_sequential, lambda: tnn.TTLinear(64, 10, rank=4)])
def test_cut_ranks_of_a_compiled_model_cuts_its_average_alike(make, of_module):
    model = compile(make(), batch=16)
    averaged = torch.optim.swa_utils.AveragedModel(model.module if of_module else model)
    x = torch.rand(16, 64)
    model(x).sum().backward()
    with torch.no_grad():
        factors = dict(model.named_parameters())
        left = next(value for name, value in factors.items() if name.endswith("factors.0"))
        left[..., 1::2] = 0
        kept = left[..., ::2].clone()
    averaged.update_parameters(model)
    assert model.cut_ranks(1e-6, averaged=averaged)
    shapes = [value.shape for value in model.parameters()]
    assert [value.shape for value in averaged.parameters()] == shapes
    follower = next(value for value in averaged.parameters() if value.dim() == 4)
    assert torch.equal(follower, kept) and torch.equal(left, kept)
    averaged.update_parameters(model)
    assert averaged(x).shape == model(x).shape
    with pytest.raises(ValueError, match="averaged has 0 tensor-train layers"):
        model.cut_ranks(0.5, averaged=torch.nn.Linear(2, 2))


class _Tied(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = tnn.TTLinear(64, 64, rank=4)

    def forward(self, x):
        return torch.nn.functional.linear(x, self.layer.weight)


def test_weight_that_a_part_computes_is_no_constant_of_the_graph():
    model = compile(torch.nn.Sequential(tnn.TTLinear(64, 64), _Tied()), batch=16)
    x = torch.rand(16, 64)
    for _ in range(2):
        model(x).sum().backward()
    assert model.module[1].layer.factors[0].grad.any()
    with torch.no_grad():
        model.module[1].layer.factors[0].zero_()
        assert not model.eval()(x).any()
    with pytest.warns(UserWarning, match="no layer of _Tied .*: layer in torch: it is not called"):
        compile(_Tied(), batch=16)


def _reference(module: torch.nn.Module, x: torch.Tensor, out: torch.Tensor) -> float:
    with torch.no_grad():
        wanted = copy.deepcopy(module)(x)
    return float((out - wanted).norm() / wanted.norm())


def test_submodule_and_buffer_replaced_after_a_call_are_traced_anew():
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.head = tnn.TTLinear(64, 32, rank=4), tnn.TTLinear(32, 10, rank=4)
            self.register_buffer("shift", torch.zeros(10))
            self.scale = 1.0

        def forward(self, x):
            return self.head(torch.relu(self.body(x))) * self.scale + self.shift

    torch.manual_seed(0)
    net, x = Net(), torch.rand(16, 64)
    model = compile(net, batch=16)
    model(x).sum().backward()
    net.head = tnn.TTLinear(32, 3, rank=4)
    net.shift, net.scale = torch.ones(3) * 5, 0.5
    out = model(x)
    assert out.shape == (16, 3)
    assert _reference(net, x, out.detach()) < 0.1


@pytest.mark.parametrize(
    "options", ({"stride": (2, 2)}, {"stride": 2}, {"dilation": (2, 2)}, {"padding": (0, 0)})
)
def test_convolution_option_set_after_a_call_counts_in_the_next(options):
    layer = tnn.TTConv2d(4, 8, 3, padding=1, rank=4)
    model, x = compile(torch.nn.Sequential(layer), batch=2), torch.randn(2, 4, 4, 4)
    model(x).sum().backward()
    for name, value in options.items():
        setattr(layer, name, value)
    out, dense = model(x).detach(), layer.to_dense()(x).detach()
    assert out.shape == dense.shape
    assert float((out - dense).norm() / dense.norm()) < 0.1


@pytest.mark.parametrize("bias", (None, torch.nn.Parameter(torch.full((10,), 3.0))))
def test_bias_removed_or_added_after_a_call_counts_in_the_next(bias):
    layer = tnn.TTLinear(64, 10, rank=4, bias=bias is None)
    if layer.bias is not None:
        layer.load_dense(layer.weight.detach(), torch.full((10,), 3.0))
    model, x = compile(torch.nn.Sequential(layer), batch=16), torch.rand(16, 64)
    model(x).sum().backward()
    layer.bias = bias
    out, dense = model(x), layer.to_dense()(x).detach()
    out.sum().backward()
    assert float((out.detach() - dense).norm() / dense.norm()) < 0.1


def test_wider_numbers_after_compile_are_one_error_with_remedy():
    model = compile(torch.nn.Sequential(tnn.TTLinear(64, 10, rank=4)), batch=16)
    x = torch.rand(16, 64)
    model(x).sum().backward()
    model.module[0].set_numbers("factor=fixed(8)")
    with pytest.raises(CompileError, match=r"0 has factors of 8 bits .* call trainwright.compile"):
        model(x)


_POOL = ThreadPoolExecutor(2)


class _Meeting(torch.nn.Module):
    """Layer whose forward gives work to other threads, also while it is traced."""

    def __init__(self, meet):
        super().__init__()
        self.layer, self.meet = tnn.TTLinear(64, 10, rank=4), meet

    def __deepcopy__(self, memo):
        copied = _Meeting(self.meet)
        copied.load_state_dict(self.state_dict())
        return copied

    def forward(self, x):
        self.meet()
        return self.layer(x)


def test_threads_call_other_modules_while_a_module_is_traced():
    other, x, seen = torch.nn.Linear(4, 2), torch.ones(3, 4), []
    model = compile(_Meeting(lambda: seen.append(_POOL.submit(other, x).result())), batch=16)
    assert model(torch.rand(16, 64)).shape == (16, 10)
    assert len(seen) > 1
    assert all(torch.equal(value, other(x)) for value in seen)


def test_traces_of_two_threads_leave_torch_as_it_was():
    call, ended, second = torch.nn.Module.__call__, threading.Event(), []
    inner = _Meeting(ended.wait)

    def begin_second():
        if not second:
            second.append(_POOL.submit(trace, inner))
            for _ in range(1000):  # the other trace begins here, where nothing keeps it out
                time.sleep(0)

    trace(_Meeting(begin_second))
    ended.set()
    assert len(second[0].result().nodes) == 3
    assert torch.nn.Module.__call__ is call


def test_threads_of_one_compiled_model_take_turns(monkeypatch):
    model = compile(torch.nn.Sequential(tnn.TTLinear(64, 10, rank=4)), batch=16)
    inputs = [torch.rand(16, 64) / (n + 1) for n in range(4)]
    model(torch.rand(16, 64)).sum().backward()
    model.eval()
    with torch.no_grad():
        wanted = [model(x) for x in inputs]
    inside, overlaps, forward = [], [], Segment.forward

    def watched(segment, *arguments):
        inside.append(segment)
        time.sleep(0.002)  # another thread comes in here, where nothing keeps it out
        overlaps.append(len(inside) > 1)
        result = forward(segment, *arguments)
        inside.pop()
        return result

    monkeypatch.setattr(Segment, "forward", watched)

    def run(n: int) -> bool:
        with torch.no_grad():
            return torch.equal(model(inputs[n]), wanted[n])

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(run, range(4)))
    assert not any(overlaps) and len(overlaps) == 4


@pytest.mark.parametrize(
    ("loss_of", "message"),
    [
        (3, "loss_of must be a function that makes a loss of outputs, not 3"),
        (lambda y: 1.5, r"the result of loss_of must be a Tensor, not 1\.5"),
    ],
)
def test_calibrate_without_a_loss_function_is_one_error(loss_of, message):
    model = compile(torch.nn.Sequential(tnn.TTLinear(16, 8, rank=2)), batch=4)
    with pytest.raises(TypeError, match=message):
        model.calibrate(torch.rand(4, 16), loss_of)


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError, ValueError])
def test_calibrate_that_an_error_ends_leaves_all_exponents(error):
    model, x = (
        compile(torch.nn.Sequential(tnn.TTLinear(64, 10, rank=4)), batch=8),
        torch.rand(8, 64),
    )
    model(x).square().sum().backward()
    before = copy.deepcopy(model.state_dict())

    def loss_of(y):
        raise error

    with pytest.raises(error):
        model.calibrate(50 * x, loss_of)
    after = model.state_dict()
    assert after.keys() == before.keys()
    assert all(torch.equal(value, after[name]) for name, value in before.items())

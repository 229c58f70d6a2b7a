"""Compiled models run the module's own Python: each case has the results of plain torch."""

import copy
import random
import warnings
from collections import namedtuple
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from slowly import mostly_slow
from torch.nn.utils import prune

import trainwright.nn as tnn
from trainwright import compile
from trainwright.network import Widths

pytestmark = pytest.mark.usefixtures("first_programs")

F = torch.nn.functional
WIDE = Widths(activation=16, bias=16)
NEAR = 0.02
"""Relative difference that 16-bit roundings of values within a program may make."""
Pair = namedtuple("Pair", "first second")


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(1)


def _layer(columns=64, rows=32, **options):
    return tnn.TTLinear(columns, rows, rank=4, numbers=WIDE, **options)


class _Net(torch.nn.Module):
    """Two layers, called by a function of the module and its inputs."""

    def __init__(self, call):
        super().__init__()
        self.a, self.b, self.call = _layer(64, 32), _layer(32, 32), call
        self.register_buffer("mean", torch.zeros(()))
        self.steps, self.kept, self.last = 0, [], None

    def forward(self, *args, **kwargs):
        return self.call(self, *args, **kwargs)


def _quietly(module, **options):
    """Return the compiled module; whether torch.fx can trace it is not the question here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return compile(module, batch=16, **options)


def _pair(module, x):
    """Return a compiled model and its plain copy, exponents of both chosen by a training step."""
    plain = copy.deepcopy(module)
    model = _quietly(module)
    for each in (model, plain):
        for _ in range(2):
            torch.manual_seed(5), random.seed(5), np.random.seed(5)
            out = _tensors(each(x))
            _back(out)
            each.zero_grad()
    return model, plain


def _tensors(value):
    """Return the tensors in an output of any kind, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    elif not isinstance(value, list | tuple):
        value = list(vars(value).values()) if hasattr(value, "__dict__") else []
    return [tensor for part in value for tensor in _tensors(part)]


def _back(outputs):
    """Run the backward pass of a loss whose gradient has the same size in all steps."""
    results = [mine.float() for mine in outputs if mine.requires_grad]
    numbers = torch.Generator().manual_seed(7)
    torch.autograd.backward(
        results, [torch.randn(mine.shape, generator=numbers) for mine in results]
    )


def _near(results, wanted):
    assert len(results) == len(wanted) > 0
    for mine, theirs in zip(results, wanted, strict=True):
        assert mine.shape == theirs.shape and mine.dtype == theirs.dtype
        assert mine.requires_grad == theirs.requires_grad
        difference = (mine.detach().double() - theirs.detach().double()).norm()
        assert difference <= NEAR * theirs.detach().double().norm()


def _agree(call, x=None, steps=3):
    """Hold a compiled module against torch: outputs, gradients, attributes, random numbers."""
    x = torch.rand(16, 64) if x is None else x
    model, plain = _pair(_Net(call), x)
    for seed in range(steps):
        results = []
        for each in (model, plain):
            each.zero_grad()
            torch.manual_seed(seed), random.seed(seed), np.random.seed(seed)
            given = x.clone().requires_grad_()
            out = _tensors(each(given))
            after = torch.rand(1), random.random(), np.random.rand()
            _back(out)
            gradients = [p.grad for p in each.parameters()] + [given.grad]
            results.append((out, after, gradients))
        (results, after, gradients), (wanted, wanted_after, expected) = results
        _near(results, wanted)
        assert after == wanted_after  # no random number more or less
        assert [g is None for g in gradients] == [g is None for g in expected]
        for mine, theirs in zip(gradients, expected, strict=True):
            assert mine is None or (mine - theirs).norm() <= 3 * NEAR * theirs.norm() + 1e-12
    net = model.module
    assert (net.steps, len(net.kept)) == (plain.steps, len(plain.kept))
    assert torch.allclose(net.mean, plain.mean, rtol=NEAR)
    for mine, theirs in zip([*net.kept, net.last], [*plain.kept, plain.last], strict=True):
        if isinstance(theirs, torch.Tensor):
            _near([mine], [theirs])
            assert (
                not (torch.is_grad_enabled() and theirs.requires_grad) or mine.grad_fn is not None
            )
        else:
            assert mine == theirs
    return model


relu = torch.relu

RANDOM = {
    "rand": lambda m, x: m.b(relu(m.a(x)) * torch.rand(32)),
    "rand_like": lambda m, x: m.b(relu(h := m.a(x)) + 0.1 * torch.randn_like(h)),
    "dropout": lambda m, x: m.b(F.dropout(relu(m.a(x)), 0.5)),
    "bernoulli": lambda m, x: m.b(m.a(x * torch.bernoulli(torch.full((64,), 0.5)))),
    "between": lambda m, x: m.b(relu(m.a(x))) * torch.randint(1, 9, (1,)),
    "python": lambda m, x: m.b(relu(m.a(x))) if random.random() < 0.5 else m.a(x),
    "numpy": lambda m, x: m.b(relu(m.a(x))) * float(np.random.rand()),
}


@pytest.mark.parametrize("name", RANDOM)
def test_random_numbers_in_forward_are_drawn_anew_in_each_call(name):
    model = _agree(RANDOM[name], steps=4)
    x = torch.rand(16, 64)
    assert len({float(model(x).detach().sum()) for _ in range(8)}) > 1


def _without_gradients(m, x):
    with torch.no_grad():
        h = relu(m.a(x))
    return m.b(h)


def _gradients_asked(m, x):
    h = m.a(x)
    return m.b(relu(h)) if torch.is_grad_enabled() else 2 * m.b(relu(h)) + h


def _cast(m, x):
    h = relu(m.a(x))
    with torch.autocast("cpu", torch.bfloat16):
        h = F.linear(m.b(h), torch.ones(4, 32) / 32)
    return h


def _inference(m, x):
    with torch.inference_mode():
        shift = m.b(relu(m.a(x))).mean()
    return m.b(relu(m.a(x))) - float(shift)


def _partly(m, x):
    h = m.a(x)
    with torch.no_grad():
        kept = relu(h)
    return m.b(kept) + h


MODES = {
    "no_grad": _without_gradients,
    "no_grad around a part": _partly,
    "is_grad_enabled": _gradients_asked,
    "autocast": _cast,
    "inference_mode": _inference,
    "detach": lambda m, x: m.b(relu(m.a(x)).detach()),
    "detach of an inner value": lambda m, x: (m.b(h := relu(m.a(x))), h.detach()),
    "set_grad_enabled": lambda m, x: (
        torch.set_grad_enabled(False), m.a(x), torch.set_grad_enabled(True), m.b(relu(m.a(x)))
    )[3],
}  # fmt: skip


@pytest.mark.parametrize("name", MODES)
def test_gradient_modes_and_types_in_forward_are_those_of_torch(name):
    _agree(MODES[name])


@pytest.mark.parametrize("name", ["is_grad_enabled", "no_grad"])
def test_gradient_mode_around_a_call_decides_in_forward(name):
    x = torch.rand(16, 64)
    model, plain = _pair(_Net(MODES[name]), x)
    for mode in (torch.no_grad, torch.enable_grad, torch.inference_mode):
        with mode():
            _near([model(x)], [plain(x)])


def _running_mean(m, x):
    h = relu(m.a(x))
    m.mean.mul_(0.9).add_(0.1 * h.detach().mean())
    return m.b(h) - m.mean


def _replaced_mean(m, x):
    h = m.a(x)
    m.mean = 0.9 * m.mean + 0.1 * h.detach().mean()
    return m.b(relu(h)) * (1 + m.mean)


def _kept(m, x):
    m.last = m.a(x)
    return m.b(relu(m.last))


def _kept_inside(m, x):
    h = relu(m.a(x))
    m.last = h
    return m.b(h)


def _counted(m, x):
    m.steps += 1
    y = m.b(relu(m.a(x)))
    return y * 0.9 if m.steps % 2 else y


def _listed(m, x):
    h = relu(m.a(x))
    m.kept.append(h.mean())
    return m.b(h)


def _listed_inside(m, x):
    m.kept.append(h := relu(m.a(x)))
    return m.b(h)


def _parameters_moved(m, x):
    with torch.no_grad():  # the momentum encoder of contrastive learning
        for value in m.b.factors:
            value.mul_(0.99)
    return m.b(relu(m.a(x)))


STATE = {
    "buffer in place": _running_mean,
    "buffer replaced": _replaced_mean,
    "attribute": _kept,
    "attribute of an inner value": _kept_inside,
    "counter": _counted,
    "list": _listed,
    "list of inner values": _listed_inside,
    "parameters": _parameters_moved,
}


@pytest.mark.parametrize("name", STATE)
def test_state_that_forward_changes_changes_once_a_call(name):
    model = _agree(STATE[name])
    assert len(model.__dict__["_hidden"]["plans"]) <= 2  # a counter makes no plan a call


def _watched(place, how):
    """Return a module with a hook, and what the hook wrote down."""
    module, seen = torch.nn.Sequential(_layer(), torch.nn.ReLU(), _layer(32, 32)), []

    def forward(m, args, out):
        seen.append(out.detach().clone())
        return out * 2 if how == "replaces" else None

    part = module if place is None else module[place]
    if how == "backward":
        part.register_full_backward_hook(lambda m, gi, go: seen.append(go[0].detach().clone()))
    elif how == "backward pre":
        part.register_full_backward_pre_hook(lambda m, go: (3 * go[0],))
    elif how == "pre":
        part.register_forward_pre_hook(lambda m, args: (args[0] * 0.5,))
    else:
        part.register_forward_hook(forward)
    return module, seen


@mostly_slow("place", [None, 0, 1, 2], quick=(None, 1))
@pytest.mark.parametrize("how", ["watches", "replaces", "pre", "backward", "backward pre"])
def test_hooks_of_parts_run_and_their_results_count(place, how):
    plain, wanted = _watched(place, how)
    hooked, seen = _watched(place, how)
    hooked.load_state_dict(plain.state_dict())
    model = _quietly(hooked)
    x = torch.rand(16, 64)
    for _ in range(2):
        gradients = []
        for each in (model, plain):
            each.zero_grad()
            out = each(x.clone().requires_grad_())
            _back([out])
            gradients.append([out, *(p.grad for p in each.parameters())])
    for mine, theirs in zip(*gradients, strict=True):
        assert (mine - theirs).norm() <= 3 * NEAR * theirs.norm()
    assert len(seen) == len(wanted) == (2 if how in ("watches", "replaces", "backward") else 0)
    for mine, theirs in zip(seen, wanted, strict=True):
        assert (mine - theirs).norm() <= 3 * NEAR * theirs.norm()


def test_hook_registered_after_a_call_sees_the_next_one():
    module, seen = torch.nn.Sequential(_layer(), torch.nn.ReLU(), _layer(32, 32)), []
    model, plain = _pair(module, x := torch.rand(16, 64))
    for each in (model, plain):
        each[0].register_forward_hook(lambda m, args, out: seen.append(out) or 2 * out)
        each(x)
        seen.append(each(x))
    _near(seen[:3], seen[3:])


def test_hooks_of_all_modules_run_as_in_torch():
    module = torch.nn.Sequential(_layer(), torch.nn.ReLU(), _layer(32, 32))
    x = torch.rand(16, 64)
    model, plain = _pair(module, x)
    seen: dict[str, list[float]] = {"model": [], "plain": []}
    kinds = tnn.TTLinear, torch.nn.ReLU, torch.nn.Sequential
    for name, each in (("model", model), ("plain", plain)):
        handle = torch.nn.modules.module.register_module_forward_hook(
            lambda m, args, out, name=name: (
                seen[name].append(float(out.detach().norm())) if type(m) in kinds else None
            )
        )
        try:
            each(x)
        finally:
            handle.remove()
    assert len(seen["plain"]) == 4  # two layers, a ReLU, and the whole
    assert seen["model"] == pytest.approx(seen["plain"], rel=NEAR)


class _LowRank(tnn.TTLinear):
    """A layer with a correction of low rank beside it."""

    def __init__(self, *sizes, **options):
        super().__init__(*sizes, **options)
        self.left = torch.nn.Parameter(torch.randn(sizes[0], 2) / 8)
        self.right = torch.nn.Parameter(torch.randn(2, sizes[1]) / 2)

    def forward(self, x):
        return super().forward(x) + x @ self.left @ self.right


class _Wrapper(torch.nn.Module):
    def __init__(self, base):
        super().__init__()
        self.base = base

    def forward(self, x):
        return self.base(x) + x[:, :32]


class _Doubled(torch.nn.Module):
    def forward(self, value):
        return 2 * value


def _parametrized():
    layer = torch.nn.Linear(64, 64)
    torch.nn.utils.parametrize.register_parametrization(layer, "weight", _Doubled())
    return layer


def _patched():
    layer = _layer()
    original = layer.forward
    layer.forward = lambda x: original(x) * 0.5
    return layer


ADAPTED = {
    "subclass": lambda: _LowRank(64, 32, rank=4, numbers=WIDE),
    "wrapper": lambda: _Wrapper(_layer()),
    "parametrization": lambda: torch.nn.Sequential(_parametrized(), _layer()),
    "weight_norm": lambda: torch.nn.Sequential(
        torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(64, 64)), _layer()
    ),
    "spectral_norm": lambda: torch.nn.Sequential(
        torch.nn.utils.spectral_norm(torch.nn.Linear(64, 64)), _layer()
    ),
    "pruning": lambda: torch.nn.Sequential(
        prune.l1_unstructured(torch.nn.Linear(64, 64), "weight", 0.5), _layer()
    ),
    "patched": _patched,
}


@pytest.mark.parametrize("name", ADAPTED)
def test_adapted_layers_compute_by_their_own_forward(name):
    def build():
        torch.manual_seed(3)
        return torch.nn.Sequential(ADAPTED[name](), torch.nn.ReLU(), _layer(32, 32))

    model, plain, x = _quietly(build()), build(), torch.rand(16, 64)
    for _ in range(3):
        for each in (model, plain):
            each.zero_grad()
            _back([each(x)])
    _near([model(x)], [plain(x)])
    for mine, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        assert (mine.grad - theirs.grad).norm() <= 3 * NEAR * theirs.grad.norm() + 1e-12


@dataclass
class _Batch:
    x: torch.Tensor
    scale: float = 1.0


@dataclass
class _Output:
    logits: torch.Tensor
    hidden: torch.Tensor | None = None


def _typed(m, x):
    h = m.a(x)
    assert isinstance(h, torch.Tensor) and torch.is_tensor(x) and type(x) is torch.Tensor
    assert h.dtype == x.dtype and not h.is_cuda and h.device == x.device
    assert h.shape == (16, 32) and h.dim() == h.ndim == 2 and len(h) == 16
    return m.b(relu(h)) if h.is_floating_point() and h.requires_grad else h


TYPES = {
    "isinstance": _typed,
    "is_tensor": lambda m, x: m.b(h) if torch.is_tensor(h := relu(m.a(x))) else None,
    "dict": lambda m, x: {"logits": m.b(h := relu(m.a(x))), "hidden": h, "n": len(x)},
    "named tuple": lambda m, x: Pair(m.b(relu(m.a(x))), m.a(x)),
    "dataclass": lambda m, x: _Output(m.b(h := relu(m.a(x))), h),
    "dataclass without": lambda m, x: _Output(m.b(relu(m.a(x)))),
    "list": lambda m, x: [m.b(relu(m.a(x))), [m.a(x)]],
}


@pytest.mark.parametrize("name", TYPES)
def test_types_and_nested_outputs_are_those_of_torch(name):
    _agree(TYPES[name])


def test_outputs_of_ones_own_classes_hold_ordinary_tensors():
    model = _quietly(_Net(TYPES["dataclass"]))
    for _ in range(2):
        out = model(torch.rand(16, 64))
        assert type(out) is _Output and type(out.logits) is type(out.hidden) is torch.Tensor


def test_inputs_of_any_kind_reach_forward_as_they_are():
    def call(m, batch, *, extra=None, weights=(1.0,)):
        x = batch.x * batch.scale if isinstance(batch, _Batch) else batch["x"]
        y = m.b(relu(m.a(x))) * weights[0]
        return y if extra is None else y + extra

    model = _quietly(_Net(call))
    x = torch.rand(16, 64)
    model(_Batch(x)).sum().backward()
    model.eval()
    with torch.no_grad():
        y = model({"x": x})
        assert torch.equal(model(_Batch(x)), y) and torch.equal(model(batch=_Batch(x)), y)
        assert torch.equal(model(_Batch(x), extra=y), 2 * y)
        assert torch.equal(model(_Batch(x), weights=(3.0,), extra=None), 3 * y)
        assert torch.equal(model(_Batch(x / 2, 2.0)), y)


def _written(m, x):
    h = m.a(x)
    h[:, 0] = 0
    return m.b(h)


def _written_inside(m, x):
    h = relu(m.a(x)) * 1
    h[:, :2] += 1
    return m.b(h)


def _over_columns(m, x):
    h = m.a(x)
    return m.b(relu(h)) + sum(h[:, [n]] for n in range(h.shape[1]))


def _until_small(m, x):
    h = relu(m.a(x))
    for _ in range(4):
        h = relu(m.b(h))
        if float(h.detach().norm()) < 1:
            break
    return h


FLOW = {
    "data": lambda m, x: m.b(relu(m.a(x))) if x.sum() > 500 else m.a(x),
    "inner data": lambda m, x: m.b(h) if (h := relu(m.a(x))).sum() > 0 else h,
    "shape": lambda m, x: m.b(relu(m.a(x))) if x.dim() == 2 else m.a(x),
    "inner shape": lambda m, x: m.b(h) * h.shape[0] if (h := m.a(x)).size(1) == 32 else h,
    "range": _over_columns,
    "loop": _until_small,
    "setitem": _written,
    "setitem inside": _written_inside,
    "where": lambda m, x: torch.where(x[:, :32] > 0.5, m.b(relu(m.a(x))), m.a(x)),
    "masked": lambda m, x: m.b(relu(m.a(x)))[x[:, 0] > 0.5],
    "max": lambda m, x: m.b(relu(m.a(x)))[:, : int(x.argmax()) % 7 + 20],
    "unpack": lambda m, x: torch.stack([m.b(relu(row)) for row in m.a(x).split(4)]),
}


@pytest.mark.parametrize("name", FLOW)
def test_control_flow_on_data_and_shapes_goes_as_in_torch(name):
    _agree(FLOW[name])


def test_each_branch_on_data_is_taken_where_the_data_say_so():
    model, plain = _pair(_Net(FLOW["data"]), torch.rand(16, 64))
    for each in (model, plain):
        each.eval()
    for x in (torch.rand(16, 64) * 0.1, torch.rand(16, 64) / 2 + 0.5, torch.rand(16, 64) * 0.1):
        _near([model(x)], [plain(x)])
    report = model.report()
    assert report.why_alone.startswith("torch.fx cannot trace _Net")
    assert [name for name, _ in report.alone] == ["a", "b"]


def test_model_that_cannot_be_planned_is_one_warning_at_compile_time():
    with pytest.warns(UserWarning, match="each layer of _Net is a program of its own: ") as caught:
        model = compile(_Net(FLOW["data"]), batch=16)
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model(torch.rand(16, 64)).sum().backward()


def test_compiling_leaves_module_and_random_numbers_as_they_were():
    class Greedy(_Net):
        def __init__(self):
            super().__init__(None)
            self.kept = [torch.zeros(2)]

        def forward(self, x):
            torch.rand(3), random.random(), np.random.rand()
            self.steps += 1
            self.mean.add_(1)
            self.kept.append(x)
            with torch.no_grad():
                self.b.bias.add_(1)
            self.last = self.a(x)
            return self.b(self.last)

    module = Greedy()
    wanted, names = copy.deepcopy(module.state_dict()), dict(vars(module))
    state = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy()
    _quietly(module).report()
    assert torch.equal(torch.get_rng_state(), state[0]) and random.getstate() == state[1]
    assert (np.random.get_state()[1] == state[2]).all()
    assert all(torch.equal(value, wanted[name]) for name, value in module.state_dict().items())
    assert vars(module) == names and len(module.kept) == 1 and module.last is None


def test_forward_that_keeps_a_value_on_the_module_is_traced():
    def keep(m, x):
        m.last = m.a(x).relu()
        return m.b(m.last)

    with warnings.catch_warnings():
        warnings.simplefilter("error")  # torch.fx could not trace it
        model = compile(_Net(keep), batch=16)
    result = model(torch.randn(16, 64))
    wanted = model.module.b(model.last)
    assert (result - wanted).norm() < NEAR * wanted.norm()


def test_parameters_reset_before_second_training_give_the_bits_of_the_first():
    model = compile(_Net(lambda m, x: m.b(m.a(x).relu())), batch=16)

    def trained():
        torch.manual_seed(2)
        model.a.reset_parameters()
        model.b.reset_parameters()
        optimizer = tnn.Adam(model.parameters(), lr=0.02)
        for step in range(3):
            optimizer.zero_grad()
            (model((step + 1) * torch.randn(16, 64)) - 1).square().sum().backward()
            optimizer.step()
        return model.state_dict()

    first = copy.deepcopy(trained())
    second = trained()
    assert all(torch.equal(value, second[name]) for name, value in first.items())


class _Rounded(torch.autograd.Function):
    """A function whose gradient is another one's."""

    @staticmethod
    def forward(ctx, x):
        return torch.relu(x).round(decimals=1)

    @staticmethod
    def backward(ctx, gradient):
        return 3 * gradient


def _siamese(m, x):
    left, right = (m.b(relu(m.a(part))) for part in (x, x.flip(0)))
    return F.cosine_similarity(left, right) + (left - right).square().sum(1)


def _attention(m, x):
    h = m.a(x).view(4, 4, 32)
    return m.b(F.scaled_dot_product_attention(h, h, h) + h)


MODELS = {
    "siamese": _siamese,
    "attention": _attention,
    "autoencoder with noise": lambda m, x: torch.sigmoid(
        m.b((h := m.a(x)) + 0.1 * torch.randn_like(h))
    ),
    "skip": lambda m, x: m.b(h := relu(m.a(x))) + h,
    "function of its own": lambda m, x: m.b(_Rounded.apply(m.a(x))),
}


@pytest.mark.parametrize("name", MODELS)
def test_models_of_other_kinds_train_as_in_torch(name):
    _agree(MODELS[name])


def test_part_of_a_compiled_sequence_is_replaced_by_its_place():
    model = compile(
        torch.nn.Sequential(tnn.TTLinear(64, 64, rank=4), tnn.TTLinear(64, 10)), batch=8
    )
    x = torch.rand(8, 64)
    model(x).sum().backward()
    model[1] = torch.nn.Linear(64, 4)
    outputs = model(x)
    assert outputs.shape == (8, 4) and "1.weight" in dict(model.named_parameters())
    wanted = model.to_torch()(x)
    assert float((outputs - wanted).detach().norm() / wanted.detach().norm()) < 0.05

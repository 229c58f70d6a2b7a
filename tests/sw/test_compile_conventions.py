"""Conventions of torch that compiled models keep, and errors that name value and remedy."""

import copy
import io
import pickle
import re

import numpy as np
import pytest
import torch
from torch.optim.swa_utils import AveragedModel
from torch.utils.checkpoint import checkpoint

import trainwright.nn as tnn
from trainwright import CompiledModule, compile
from trainwright.compiler import CompileError
from trainwright.network import Widths
from trainwright.parameters import AcceleratorParameters

pytestmark = pytest.mark.usefixtures("first_programs")


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(1)


def _module():
    return torch.nn.Sequential(
        tnn.TTLinear(64, 32, rank=4), torch.nn.ReLU(), tnn.TTLinear(32, 10, rank=4)
    )


def test_empty_batch_has_gradients_of_zero_as_in_torch():
    model, plain = compile(_module(), batch=16), _module()
    for each in (model, plain):
        out = each(torch.rand(0, 64))
        assert out.shape == (0, 10) and out.grad_fn is not None
        out.sum().backward()
        assert all(p.grad is not None and not p.grad.any() for p in each.parameters())


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("image", [False, True])
def test_output_of_a_layer_can_be_modified_in_place(compiled, image):
    module = tnn.TTConv2d(1, 4, 3, rank=2) if image else tnn.TTLinear(64, 32, rank=4)
    x = torch.rand(4, 1, 6, 6) if image else torch.rand(4, 64)
    x = x.double() if compiled else x  # of the type that the accelerator gives
    model = compile(torch.nn.Sequential(module), batch=16) if compiled else module
    wanted = copy.deepcopy(model)
    torch.relu(wanted(x)).sum().backward()
    (2 * wanted(x) + 1)[:, 1:].sum().backward()
    torch.nn.functional.relu_(model(x)).sum().backward()
    out = model(x).mul_(2)
    out += 1
    out[:, 0] = 0
    out.sum().backward()
    for mine, theirs in zip(model.parameters(), wanted.parameters(), strict=True):
        assert torch.allclose(mine.grad, theirs.grad, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("width", (8, 12, 16))
@pytest.mark.parametrize("dtype", (torch.float16, torch.bfloat16))
def test_inputs_in_half_precision_have_the_words_of_the_same_float32_inputs(dtype, width):
    """Words saturate at 2^15 - 1, which half precision rounds up."""
    numbers = Widths(activation=width)
    model = compile(torch.nn.Sequential(tnn.TTLinear(64, 32, rank=4, numbers=numbers)), batch=16)
    plain = copy.deepcopy(model)
    for scale in (1, 8, 0.125):
        x = (torch.randn(16, 64) * scale).to(dtype)
        x[0, :3] = torch.tensor([1.0, 2.0, -4.0]) * scale
        y, wanted = model(x), plain(x.float())
        assert y.dtype is dtype and torch.equal(y, wanted.to(dtype))
        gradient = torch.randn(16, 32).to(dtype)
        y.backward(gradient)
        wanted.backward(gradient.float())
        for mine, other in zip(model.parameters(), plain.parameters(), strict=True):
            assert torch.equal(mine.grad, other.grad)


def _hook_everything(model, name, seen):
    """Register hooks of every kind, two of each, that note their kind and ``name``."""

    def noting(kind):
        return lambda module, *given: seen.append((kind, name, len(given)))

    for kind in ("first", "second"):
        model.register_forward_pre_hook(noting(f"{kind} pre"))
        model.register_forward_pre_hook(noting(f"{kind} pre"), with_kwargs=True)
        model.register_forward_hook(noting(f"{kind} forward"), with_kwargs=True)
        model.register_forward_hook(noting(f"{kind} forward"))
        model.register_full_backward_pre_hook(noting(f"{kind} backward pre"))
        model.register_full_backward_hook(noting(f"{kind} backward"))


@pytest.mark.parametrize("single", [False, True])
def test_dense_copy_of_compiled_model_has_its_hooks_in_their_order(single):
    seen = []
    module = tnn.TTLinear(64, 10, rank=4) if single else _module()
    x = torch.rand(4, 64, requires_grad=True)
    _hook_everything(module, "inner", seen)
    model = compile(module, batch=16)
    _hook_everything(model, "outer", seen)
    model.register_forward_hook(lambda *given: seen.append("always"), always_call=True)
    model(x).sum().backward()
    # The accelerator runs the hooks that are inside, in the same order, as a call of its own.
    wanted, seen[:] = list(seen), []
    assert {entry[1] for entry in wanted if entry != "always"} == {"inner", "outer"}
    dense = model.to_torch()
    dense(x).sum().backward()
    assert seen == wanted
    with pytest.raises(RuntimeError):
        dense(torch.rand(4, 3))
    assert seen[-1] == "always"
    model(x)
    assert model.to_torch() is not dense and len(model._forward_hooks) == 5


def _watch(module, *given):
    """Do nothing, as a backward hook of either kind."""


@pytest.mark.filterwarnings("ignore:Using a non-full backward hook")
def test_dense_copy_of_compiled_model_names_hooks_that_torch_does_not_mix():
    module = _module()
    module.register_backward_hook(_watch)
    model = compile(module, batch=16)
    model.register_full_backward_hook(_watch)
    with pytest.warns(
        UserWarning, match="leaves out backward hooks of CompiledModule: _watch"
    ) as w:
        dense = model.to_torch()
    assert len(w) == 1 and w[0].filename == __file__ and len(dense._backward_hooks) == 1


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", ["2.factors.0", "2.bias"])
def test_parameter_that_is_not_finite_is_named_with_a_remedy(name, compiled, value):
    model = compile(_module(), batch=16) if compiled else _module()
    with torch.no_grad():
        dict(model.named_parameters())[name].view(-1)[0] = value
    text = rf"{re.escape(name[2:])} has NaN or infinite values: .*lower the learning rate"
    with pytest.raises(ValueError, match=text):
        model(torch.rand(16, 64))


class _Root(torch.nn.Module):
    def forward(self, x):
        return (x - 1).sqrt()


@pytest.mark.parametrize("compiled", [False, True])
def test_computed_bias_that_is_not_finite_is_named_with_a_remedy(compiled):
    module = _module()
    torch.nn.utils.parametrize.register_parametrization(module[2], "bias", _Root(), unsafe=True)
    model = compile(module, batch=16) if compiled else module
    with pytest.raises(ValueError, match=r"bias has NaN or infinite values: .*lower"):
        model(torch.rand(16, 64))


@pytest.mark.parametrize("compiled", [False, True])
def test_input_that_is_not_finite_is_an_error_with_a_remedy(compiled):
    model = compile(_module(), batch=16) if compiled else _module()
    with pytest.raises(ValueError, match=r"inputs.*nan.*: check the data with torch\.isfinite"):
        model(torch.full((2, 64), float("nan")))


def _overflow(model, factor):
    loss = model(torch.rand(16, 64)).sum() * factor
    loss.backward()
    return list(model.parameters())


@pytest.mark.parametrize("compiled", [False, True])
def test_gradient_scaler_skips_the_steps_whose_gradients_overflow(compiled):
    torch.manual_seed(0)
    model = compile(_module(), batch=16) if compiled else _module()
    x, y = torch.rand(16, 64), torch.randint(0, 10, (16,))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127)  # 100 times the loss overflows
    before = copy.deepcopy(model.state_dict())
    for _ in range(12):
        optimizer.zero_grad()
        scaler.scale(100 * torch.nn.functional.cross_entropy(model(x), y)).backward()
        skipped = any(not bool(p.grad.isfinite().all()) for p in model.parameters())
        scaler.step(optimizer)
        scaler.update()
        now = dict(model.named_parameters())
        assert skipped == all(torch.equal(before[name], value) for name, value in now.items())
        if not skipped:
            break
    assert scaler.get_scale() < 2.0**127
    assert not skipped


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("factor", [float("nan"), float("inf")])
def test_step_with_gradients_that_overflowed_is_one_error_and_changes_nothing(factor, compiled):
    model = compile(_module(), batch=16) if compiled else _module()
    optimizer = torch.optim.Adam(model.parameters(), 0.1)
    before = [value.detach().clone() for value in _overflow(model, factor)]
    assert not any(bool(value.grad.isfinite().all()) for value in model.parameters())
    with pytest.raises(ValueError, match=r"NaN or infinite values .*: look at the loss"):
        optimizer.step()
    optimizer.zero_grad()
    _overflow(model, 0.01)
    assert all(map(torch.equal, before, model.parameters()))
    optimizer.step()  # finite gradients take the next step
    assert not any(map(torch.equal, before, model.parameters()))


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("value", [[[0.0] * 64], np.zeros((2, 64)), None, "text"])
def test_input_that_is_no_tensor_is_a_type_error_with_a_remedy(value, compiled):
    model = compile(_module(), batch=16) if compiled else _module()
    kind = type(value).__name__
    with pytest.raises(TypeError, match=rf"not {kind}: convert them, torch\.as_tensor"):
        model(value)


@pytest.mark.filterwarnings("ignore::UserWarning")  # torch's own, of its prototypes
@pytest.mark.parametrize("compiled", [False, True])
def test_input_of_another_layout_or_no_dimension_is_one_error_with_a_remedy(compiled):
    model = compile(_module(), batch=16) if compiled else _module()
    x = torch.rand(3, 64)
    with pytest.raises(ValueError, match=r"a single number, .* takes tensors \(\.\.\., 64\)"):
        model(torch.tensor(1.0))
    for value in (x.to_sparse(), x.to_sparse_csr(), x.to_mkldnn()):
        with pytest.raises(TypeError, match=rf"layout {value.layout}: .* x\.to_dense\(\)"):
            model(value)
    for layout in (torch.strided, torch.jagged):
        value = torch.nested.nested_tensor([x, x[:2]], layout=layout)
        with pytest.raises(TypeError, match=r"nested tensor: .*to_padded_tensor"):
            model(value)


def test_dense_copy_has_no_compiled_part_whether_whole_part_or_single_layer():
    torch.manual_seed(0)
    for module in (tnn.TTLinear(64, 20, rank=4), _module()):
        single = compile(module, batch=16)
        x, wanted = torch.rand(4, 64), single.to_torch()
        for model in (single, torch.nn.Sequential(single), AveragedModel(single)):
            dense = tnn.to_torch(model)
            assert not any(
                isinstance(part, CompiledModule | tnn.TensorTrain) for part in dense.modules()
            )
            assert torch.equal(dense(x), wanted(x))


@pytest.mark.filterwarnings("ignore:each layer of Sequential")
def test_lazy_parts_of_a_compiled_model_are_made_by_its_first_call():
    torch.manual_seed(0)
    model = compile(
        torch.nn.Sequential(tnn.TTLinear(32, 20, rank=4), torch.nn.ReLU(), torch.nn.LazyLinear(3)),
        batch=4,
    )
    assert [row.name for row in model.report().layers] == ["0"]
    model(torch.rand(4, 32)).sum().backward()
    assert [row.bits for row in model.report().layers if row.module == "Linear"] == [32 * 63]
    assert model[2].weight.grad is not None


def test_module_with_a_compiled_part_is_one_error_that_names_the_part():
    whole = torch.nn.Sequential(compile(_module(), batch=16), tnn.TTLinear(10, 10, rank=2))
    with pytest.raises(CompileError, match=r"0 of Sequential is compiled already: .* 0\.module"):
        compile(whole)
    assert whole(torch.rand(4, 64)).shape == (4, 10)


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
def test_autocast_around_a_compiled_model_gives_the_type_of_torch(kind):
    model, plain, x = compile(_module(), batch=16), _module(), torch.rand(16, 64)
    with torch.autocast("cpu", kind):
        out = model(x)
        assert out.dtype == plain(x).dtype == kind
        assert torch.nn.functional.cross_entropy(out, torch.arange(16) % 10).dtype == torch.float32
    out.float().sum().backward()
    assert model.module[0].factors[0].grad.dtype == torch.float32
    assert (out.float() - model.eval()(x)).norm() < 0.02 * out.float().norm()


@pytest.mark.parametrize("kind", [torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("first", [False, True])
def test_compiled_model_converted_to_a_type_computes_in_it(kind, first):
    wanted, x = compile(_module(), batch=16), torch.rand(16, 64)
    module = copy.deepcopy(wanted.module)
    model = compile(module.to(kind), batch=16) if first else compile(module, batch=16).to(kind)
    out = model(x.to(kind))
    out.float().square().sum().backward()
    assert out.dtype == kind == model.module[0].factors[0].grad.dtype
    with torch.no_grad():
        reference = wanted(x)
    assert (out.float() - reference).norm() < 0.1 * reference.norm()


def test_attributes_and_methods_are_those_of_the_module():
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.scale = tnn.TTLinear(64, 32, rank=4), 1.0

        def encode(self, x):
            return torch.relu(self.body(x)) * self.scale

        def forward(self, x):
            return self.encode(x)[:, :2]

        @property
        def width(self):
            return self.body.rows

    net = Net()
    model = compile(net, batch=16)
    x = torch.rand(16, 64)
    model(x).sum().backward()
    steps = model.report().steps
    h = model.eval().encode(x)
    assert torch.equal(h[:, :2], model(x)) and h.shape == (16, 32) and model.width == 32
    model.scale = 2.0
    assert net.scale == 2.0 and torch.equal(model(x), 2 * h[:, :2])
    assert torch.equal(model.encode(x), 2 * h)
    model.train().encode(x).sum().backward()
    assert model.report().steps == steps + 1  # on the accelerator
    del model.scale
    with pytest.raises(AttributeError, match="scale"):
        model.encode(x)
    with pytest.raises(AttributeError, match="decode"):
        model.decode(x)


def test_parts_of_a_compiled_sequence_are_found_by_number():
    model = compile(_module(), batch=16)
    assert model[0] is model.module[0] and len(model) == 3 and model[-1].rows == 10
    assert [type(part) for part in model] == [type(part) for part in model.module]
    assert model and compile(tnn.TTLinear(64, 10), batch=16)


def test_rank_prior_of_a_compiled_layer_is_that_of_the_layer():
    layer = tnn.TTLinear(64, 10, rank=4)
    model = compile(layer, batch=16)
    assert float(tnn.rank_prior(model).detach()) == float(tnn.rank_prior(layer).detach())
    assert float(tnn.rank_prior(torch.nn.Sequential(model)).detach()) == float(
        layer.rank_prior().detach()
    )
    assert [name for name, _ in model.named_parameters()] == [
        name for name, _ in layer.named_parameters()
    ]


def test_copies_and_files_compute_as_the_model_they_were_made_of():
    model, x = compile(_module(), batch=16), torch.rand(16, 64)
    model(x).sum().backward()
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    copies = [
        copy.deepcopy(model), pickle.loads(pickle.dumps(model)),
        torch.load(file, weights_only=False),
    ]  # fmt: skip
    for other in copies:
        assert torch.equal(other.eval()(x), model.eval()(x))
        assert other.module is not model.module


class _Saving(torch.nn.Module):
    """A part between layers of torch, computed again in the backward pass."""

    def __init__(self, how):
        super().__init__()
        self.how, self.before = how, torch.nn.Linear(64, 64)
        self.a, self.b = tnn.TTLinear(64, 64, rank=4), tnn.TTLinear(64, 64, rank=4)

    def part(self, x):
        return torch.tanh(self.b(torch.tanh(self.a(x))))

    def forward(self, x):
        x = self.before(x)
        if self.how == "plain":
            return self.part(x)
        return checkpoint(self.part, x, use_reentrant=self.how == "reentrant")


@pytest.mark.filterwarnings("ignore:each layer of")
@pytest.mark.parametrize("how", ["reentrant", "not reentrant"])
def test_checkpoint_inside_a_compiled_model_has_the_same_gradients(how):
    plain = _Saving("plain")
    saving = copy.deepcopy(plain)
    saving.how = how
    models = compile(plain, batch=16), compile(saving, batch=16)
    for step in range(3):
        x = torch.randn(16, 64) * 2**step
        for model in models:
            model.zero_grad()
            model(x).square().sum().backward()
        for mine, theirs in zip(models[0].parameters(), models[1].parameters(), strict=True):
            bound = 0.02 * mine.grad.norm() if how == "reentrant" else 0
            assert (mine.grad - theirs.grad).norm() <= bound


@pytest.mark.parametrize("bits, least", ((16, 0.98), (8, 0.97)))
def test_gradients_of_a_format_point_where_those_in_float_do(bits, least):
    x, labels = torch.rand(64, 64), torch.arange(64) % 10
    model = compile(_module(), batch=64, formats=f"gradient=fixed({bits})")
    plain = copy.deepcopy(model.module)  # the same roundings forward, gradients in float32
    for each in (model, plain):
        for _ in range(2):
            each.zero_grad()
            torch.nn.functional.cross_entropy(each(x), labels).backward()
    mine, wanted = (
        torch.cat([p.grad.flatten() for p in each.parameters()]) for each in (model, plain)
    )
    assert torch.nn.functional.cosine_similarity(mine, wanted, 0) > least


def test_regression_in_compiled_python_learns_as_in_torch():
    x = torch.rand(96, 8)
    y = (x[:, :3] * torch.tensor([2.0, -1.0, 0.5])).sum(1, keepdim=True)
    for wrap in (lambda module: module, lambda module: compile(module, batch=32)):
        torch.manual_seed(2)
        net = torch.nn.Sequential(
            tnn.TTLinear(8, 32, rank=4), torch.nn.ReLU(), tnn.TTLinear(32, 1, rank=4)
        )
        model = wrap(net)
        optimiser = torch.optim.Adam(model.parameters(), 0.02)
        losses = []
        for step in range(90):
            rows = torch.arange(32) + 32 * (step % 3)
            optimiser.zero_grad()
            loss = (model(x[rows]) - y[rows]).square().mean()
            loss.backward()
            optimiser.step()
            losses.append(loss.item())
        assert sum(losses[-9:]) / 9 < 0.1 * y.var().item()


class _Paths(torch.nn.Module):
    """Layers whose values meet values of other types under autocast."""

    def __init__(self):
        super().__init__()
        numbers = Widths(activation=16)
        self.a, self.b, self.c = (tnn.TTLinear(32, 32, rank=4, numbers=numbers) for _ in range(3))
        self.norm, self.attention = tnn.TTLayerNorm(32, numbers=numbers), tnn.TokenAttention(2)

    def forward(self, x):
        added = self.b(torch.relu(self.a(x))) + x  # an output of a program, of float32 in torch
        last = self.c(torch.tanh(added))
        normal = self.norm(x)
        query, key, value = (x + layer(normal) for layer in (self.a, self.b, self.c))
        attended = self.attention(query, key, value)
        return added, last, attended, attended + x, torch.softmax(self.a(x), -1)


def test_values_under_autocast_have_the_types_of_torch_and_all_their_bits():
    torch.manual_seed(0)
    plain, x = _Paths(), torch.randn(4, 4, 32)
    vector = AcceleratorParameters(vector_engine=1)
    model = compile(copy.deepcopy(plain), batch=16, accelerator=vector).eval()
    expected = model(x)
    with torch.autocast("cpu", torch.bfloat16):
        values, types = model(x), [value.dtype for value in plain(x)]
    assert types == [torch.float32, torch.bfloat16, torch.bfloat16, torch.float32, torch.bfloat16]
    assert [value.dtype for value in values] == types
    assert torch.equal(values[0], expected[0])  # was rounded to bfloat16 on the way


class _OwnMethods(torch.nn.Module):
    """Module with other methods than torch's, and hooks of its state."""

    def __init__(self):
        super().__init__()
        self.layer, self.fixed = tnn.TTLinear(64, 10, rank=4), torch.nn.Linear(2, 2)
        self.moved, self.loaded = [], []
        self.register_load_state_dict_post_hook(lambda module, _: module.loaded.append(1))
        self.register_state_dict_post_hook(lambda _, state, *rest: state.update(version=2))

    def forward(self, x):
        return torch.nn.functional.dropout(self.layer(x), 0.5, self.training)

    def parameters(self, recurse=True):
        return self.layer.parameters(recurse)

    def load_state_dict(self, state, **options):
        state = {name.removeprefix("net."): value for name, value in state.items()}
        return super().load_state_dict({n: v for n, v in state.items() if n != "version"})

    def to(self, *args):
        self.moved.append(args)
        return super().to(*args)


def test_methods_and_state_hooks_of_the_module_are_those_of_the_compiled_model():
    model = compile(_OwnMethods(), batch=16)
    for each in (copy.deepcopy(model), model):
        own = list(map(id, each.module.layer.parameters()))
        assert list(map(id, each.parameters())) == own
        assert each.to("cpu") is each and each.module.moved == [("cpu",)]
        state = each.state_dict()
        assert state["version"] == 2
        each.load_state_dict({f"net.{name}": value for name, value in state.items()})
        assert each.module.loaded == [1]


def test_mode_set_as_an_attribute_is_that_of_the_module_and_back():
    model, x = compile(_OwnMethods(), batch=16), torch.rand(4, 64)
    model.training = False
    assert torch.equal(model(x), model(x))
    model.module.training = True
    assert model.training


def test_checkpoint_of_the_module_after_a_compiled_call_computes_in_torch():
    module, x = _module(), torch.rand(4, 64)
    compile(module, batch=16)(x)
    checkpoint(module, x, use_reentrant=False).sum().backward()
    assert all(p.grad is not None for p in module.parameters())


def test_function_applied_to_a_compiled_model_reaches_the_module_itself():
    for module in (tnn.TTLinear(64, 10, rank=4), _OwnMethods()):
        reached = []
        model = compile(module, batch=16)
        assert model.apply(reached.append) is model
        assert reached[-1] is module


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")
def test_forward_mode_gradient_of_a_compiled_model_is_one_error_with_a_remedy():
    model, x = compile(_module(), batch=16), torch.rand(4, 64)
    with torch.autograd.forward_ad.dual_level():
        assert torch.equal(model(x), model.eval()(x))
        with pytest.raises(RuntimeError, match=r"no forward-mode gradients.*to_torch"):
            model(torch.autograd.forward_ad.make_dual(x, torch.ones_like(x)))


def test_epsilon_set_on_a_norm_that_adds_none_raises():
    norm = tnn.TTLayerNorm(8)
    norm.eps = 1e-5
    with pytest.raises(ValueError, match=r"adds no epsilon, and eps=0\.001 would change results"):
        norm.eps = 1e-3
    assert norm.eps == 0

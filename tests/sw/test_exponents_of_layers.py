"""Exponents of torch layers reach the data from any state; probes leave no trace."""

import copy
import warnings

import pytest
import torch
from slowly import mostly_slow
from torch.utils.checkpoint import checkpoint

import trainwright
import trainwright.nn as tnn
from trainwright.fixed.health import LostTensorWarning
from trainwright.formats import Fixed, Posit
from trainwright.network import Widths
from trainwright.nn.scales import GradientColumns, InputQuantiser, OutputQuantiser
from trainwright.offload import compile

pytestmark = pytest.mark.usefixtures("first_programs")

MOST_STEPS = 10
"""Training passes in which an exponent reaches data of another magnitude, from any state."""
FORMATS = [Fixed(8), Fixed(16), Posit(8, 1)]


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(1)


def relative_error(result: torch.Tensor, wanted: torch.Tensor) -> float:
    result, wanted = result.detach(), wanted.detach()
    return float((result - wanted).norm() / wanted.norm())


@pytest.mark.parametrize("fmt", FORMATS, ids=str)
@pytest.mark.parametrize("kind", [InputQuantiser, OutputQuantiser])
def test_exponent_after_any_magnitudes_reaches_the_data(kind, fmt):
    quantiser = kind(fmt)
    magnitudes = 10.0 ** (torch.rand(20, dtype=torch.float64) * 24 - 12)
    for magnitude in [0.0, *magnitudes.tolist(), 1e-12, 1e12, 0.0, 1e-12]:
        for _ in range(MOST_STEPS):
            values = (torch.randn(500, dtype=torch.float64) * magnitude).float()
            result = quantiser(values)
        if magnitude:
            assert relative_error(result, values) < 0.25, magnitude


def test_layer_of_small_inputs_has_outputs_of_their_size():
    layer = tnn.TTLinear(64, 64, rank=8)
    x = torch.randn(64, 64) * 0.03
    wanted = tnn.to_torch(torch.nn.Sequential(layer))(x)
    assert relative_error(layer(x), wanted) < 0.05


@pytest.mark.parametrize("probe", ["large", "zeros", "small"])
def test_pass_without_gradients_leaves_training_as_it_was(probe):
    model = torch.nn.Sequential(tnn.TTLinear(64, 64, rank=8), tnn.TTLinear(64, 10, rank=8))
    other = copy.deepcopy(model)
    with torch.no_grad():
        model(torch.full((2, 64), {"large": 100.0, "zeros": 0.0, "small": 1e-9}[probe]))
    for _ in range(3):
        x = torch.rand(16, 64)
        assert torch.equal(model(x), other(x))


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointed_gradients_are_those_of_the_plain_model(reentrant):
    plain = torch.nn.Sequential(
        tnn.TTLinear(64, 64, rank=8), torch.nn.ReLU(), tnn.TTLinear(64, 10, rank=8)
    )
    saving = copy.deepcopy(plain)
    for step in range(8):
        x = torch.randn(32, 64) * 10 ** (step % 3)
        plain.zero_grad(), saving.zero_grad()
        plain(x.clone().requires_grad_()).square().mean().backward()
        y = checkpoint(saving, x.clone().requires_grad_(), use_reentrant=reentrant)
        y.square().mean().backward()
        for a, b in zip(plain.parameters(), saving.parameters(), strict=True):
            assert torch.equal(a.grad, b.grad)


@pytest.mark.parametrize("probe", [0.0, 100.0, 1e-9])
def test_compiled_model_probed_without_gradients_trains_as_before(probe):
    layers = tnn.TTLinear(64, 32, rank=4), torch.nn.ReLU(), tnn.TTLinear(32, 10, rank=4)
    module = torch.nn.Sequential(*layers)
    probed, other = (compile(copy.deepcopy(module), batch=16) for _ in range(2))
    with torch.no_grad():
        probed(torch.full((2, 64), probe))
    for _ in range(2):
        x = torch.rand(16, 64)
        for model in (probed, other):
            model.zero_grad()
            model(x).square().mean().backward()
        for a, b in zip(probed.parameters(), other.parameters(), strict=True):
            assert a.grad.any() and torch.equal(a.grad, b.grad)


class Shared(torch.nn.Module):
    """Apply one layer to inputs and to ``part`` of them: its gradients differ as much."""

    def __init__(self, part: float) -> None:
        super().__init__()
        self.layer = tnn.TTLinear(64, 64, rank=8)
        self.part = part

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) + self.layer(self.part * x.flip(1))


@pytest.mark.parametrize("part", [0.01, 0.1, 1.0])
def test_compiled_layer_applied_twice_has_the_gradients_of_torch_from_the_first_step(part):
    # Calls moved exponents in turn, each back to its own: the larger's gradients saturated for
    # ever, 18 to 48 % off.
    plain = Shared(part)
    model = compile(copy.deepcopy(plain), batch=32)
    x, aim = torch.randn(32, 64), torch.linspace(-1, 1, 64)
    for _ in range(8):
        for each in (plain, model):
            each.zero_grad()
            (each(x) - aim).square().mean().backward()
        for own, wanted in zip(model.parameters(), plain.parameters(), strict=True):
            assert own.grad is not None and wanted.grad is not None
            assert relative_error(own.grad, wanted.grad) < 0.005


class Repeated(torch.nn.Module):
    """Apply one layer to its own outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = tnn.TTLinear(64, 64, rank=8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(self.layer(x).relu())


@pytest.mark.parametrize("seed", range(3))
def test_compiled_layer_of_its_own_outputs_is_within_the_bound_of_the_guide(seed):
    torch.manual_seed(seed)
    plain = Repeated()
    model, exact = compile(copy.deepcopy(plain), batch=32), tnn.to_torch(copy.deepcopy(plain))
    x = torch.randn(32, 64)
    for _ in range(8):
        plain(x)
        model(x).sum().backward()
    compiled, rounded = model(x), plain(x)
    assert relative_error(compiled, rounded) < 0.08
    assert relative_error(compiled, exact(x)) < 0.04


_DRAWN = torch.Generator().manual_seed(0)
LAYERS = {
    "linear": (lambda: tnn.TTLinear(40, 24, rank=4), torch.randn(8, 40, generator=_DRAWN)),
    "narrow": (lambda: tnn.TTLinear(40, 1, rank=4), torch.randn(8, 40, generator=_DRAWN)),
    "convolution": (
        lambda: tnn.TTConv2d(4, 8, 3, rank=4),
        torch.randn(2, 4, 5, 5, generator=_DRAWN),
    ),
    "embedding": (lambda: tnn.TTEmbedding(50, 24, rank=4), torch.arange(50)),
    "compiled": (
        lambda: trainwright.compile(torch.nn.Sequential(tnn.TTLinear(40, 24, rank=4)), batch=8),
        torch.randn(8, 40, generator=_DRAWN),
    ),
}
"""Modules with a single layer by a name, and inputs."""


@pytest.mark.parametrize("scale", [1e-6, 0.1, 30.0, 1e6])
@pytest.mark.parametrize("name", LAYERS)
def test_factors_set_from_outside_are_rounded_at_their_own_size(name, scale):
    # As ``for p in model.parameters(): torch.nn.init.normal_(p, std=0.02)`` sets them.
    torch.manual_seed(0)
    make, x = LAYERS[name]
    model = make()
    layer = model[0] if name == "compiled" else model
    with torch.no_grad():
        for factor in layer.factors:
            factor.normal_(std=scale)
    exact = copy.deepcopy(layer)
    exact.set_numbers("float32")
    for _ in range(3):
        model(x).square().mean().backward()
        assert all(bool(factor.grad.any()) for factor in layer.factors)
        model.eval()
        wanted = exact(x)
        # A normal factor in 4 bits is off by 12 %, a product of two by 17 %.
        assert (model(x) - wanted).norm() <= 0.3 * wanted.norm()
        assert (layer.weight - exact.weight).norm() <= 0.3 * exact.weight.norm()
        model.train()


@pytest.mark.parametrize("compiled", [False, True])
def test_factors_that_training_pushes_out_of_their_words_go_on_growing(compiled):
    # Held at the end of 4 bits, they would leave 99 % of the targets unexplained for ever.
    torch.manual_seed(0)
    x = torch.randn(32, 16)
    y = x @ torch.randn(16, 16) * 100
    model = torch.nn.Sequential(tnn.TTLinear(16, 16, rank=16))
    model = trainwright.compile(model, batch=32) if compiled else model
    optimizer = torch.optim.Adam(model.parameters(), 0.3)
    for _ in range(80):
        loss = (model(x) - y).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss < 0.1 * y.square().mean()


def test_factors_move_exponents_of_ordinary_training_never():
    torch.manual_seed(0)
    layer = tnn.TTLinear(64, 64, rank=8)
    begun = layer.factor_exponents.clone()
    for size in (0.75, 1.0, 1.5):  # of the deviation that they begin with
        layer.reset_parameters()
        with torch.no_grad():
            for factor in layer.factors:
                factor *= size
        layer(torch.randn(8, 64))
        assert torch.equal(layer.factor_exponents, begun)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("samples", [1, 3])
def test_few_samples_among_zeros_do_not_saturate(samples, compiled):
    # A mean over 64 samples, of which one is not 0, left 1 % of it in its words.
    torch.manual_seed(0)
    model = torch.nn.Sequential(tnn.TTLinear(64, 64, rank=8))
    model = trainwright.compile(model, batch=64) if compiled else model
    x = torch.randn(64, 64)
    x[samples:] = 0
    errors = []
    for _ in range(45):
        y = model(x)
        y.sum().backward()
        wanted = trainwright.to_torch(model)(x)
        errors.append(relative_error(y, wanted))
    # Moved down again after 32 steps, an exponent of the accelerator lets a step saturate.
    assert sum(error > 0.05 for error in errors[5:]) <= compiled, errors


def test_few_samples_among_zeros_do_not_saturate_in_posits():
    torch.manual_seed(0)
    layer = tnn.TTLinear(64, 64, rank=8, numbers="intermediate=posit(8,1)c")
    x = torch.randn(64, 64)
    x[1:] = 0
    for _ in range(8):
        layer(x).sum().backward()
    layer.eval()
    assert relative_error(layer(x), trainwright.to_torch(layer)(x)) < 0.2


def test_gradient_of_few_samples_does_not_saturate_on_the_accelerator():
    torch.manual_seed(0)
    layer = tnn.TTLinear(64, 64, rank=8)
    alone = copy.deepcopy(layer)
    model = trainwright.compile(torch.nn.Sequential(layer), batch=64)
    x, weights = torch.randn(64, 64), torch.zeros(64, 64)
    weights[0] = torch.randn(64)  # the one sample that a loss is not done with
    for _ in range(8):
        for module in (model, alone):
            module.zero_grad()
            (module(x) * weights).sum().backward()
    for mine, wanted in zip(layer.parameters(), alone.parameters(), strict=True):
        assert relative_error(mine.grad, wanted.grad) < 0.05


@pytest.mark.parametrize("size", [1e-40, 1e-44])
def test_gradients_and_biases_below_the_normal_numbers_are_numbers(size):
    # 2^128 is infinite in float32: zeros of a gradient became NaN in a layer that decayed.
    layer = tnn.TTLinear(16, 8, rank=2)
    with torch.no_grad():
        layer.bias.fill_(size)[3] = 0
    gradient = torch.full((4, 8), size)
    gradient[:, 5] = 0
    out = layer(torch.randn(4, 16))
    out.backward(gradient)
    assert torch.allclose(layer.bias.grad, gradient.sum(0), rtol=1e-2, atol=1e-44)
    assert torch.allclose(layer.used_bias(), layer.bias, rtol=1e-2, atol=1e-44)
    assert all(bool(factor.grad.isfinite().all()) for factor in layer.factors)


CODED = "activation=posit(8,0),intermediate=posit(8,1)c,gradient=posit(8,1)c"
FLOATS = "factor=float(2,1),activation=float(4,3),intermediate=float(4,3),gradient=float(4,3)"


@pytest.mark.parametrize("numbers", [CODED, f"factor=posit(4,0),{CODED}", FLOATS])
def test_compiled_products_of_factors_keep_their_bits_in_coded_formats(numbers):
    # In words of the class they had two or three bits: outputs and gradients were 16 to 60 % off.
    layers = [tnn.TTLinear(40, 48, rank=6, numbers=numbers), torch.nn.ReLU()]
    layers += [tnn.TTLinear(48, 48, rank=6, numbers=numbers), torch.nn.ReLU()]
    model = compile(torch.nn.Sequential(*layers, tnn.TTLinear(48, 10, numbers=numbers)), batch=32)
    x, y = torch.randn(32, 40), torch.randint(0, 10, (32,))
    dense = model.to_torch().double()
    wanted = dense(x.double())
    outputs = model(x)
    torch.nn.functional.cross_entropy(wanted, y).backward()
    torch.nn.functional.cross_entropy(outputs, y).backward()
    assert relative_error(outputs, wanted) < 0.13
    for number in (0, 2, 4):  # gradients of the biases are those of the layers' outputs
        assert relative_error(model[number].bias.grad, dense[number].bias.grad) < 0.25


def test_recurrent_layer_whose_first_state_is_zeros_gives_no_warning():
    # The first call has zeros in its words by right, and took the exponent of the others down.
    torch.manual_seed(0)
    cell = tnn.TTLinear(16, 16, rank=4)

    class Recurrent(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.cell = cell

        def forward(self, x):
            state = torch.zeros(8, 16)
            for n in range(3):
                state = torch.tanh(self.cell(state) + x[:, n])
            return state

    model = trainwright.compile(Recurrent(), batch=8)
    x = torch.randn(8, 3, 16)
    exponents = set()
    with warnings.catch_warnings():
        warnings.simplefilter("error", LostTensorWarning)
        for step in range(20):
            model(x).sum().backward()
            if step > 4:
                exponents.add(str(sorted(cell.program_exponents["cell"].items())))
    assert len(exponents) == 1
    assert model.report().steps == 20  # not one for each of the three calls


@pytest.mark.parametrize("dead", ["input", "ReLU", "factor"])
@pytest.mark.parametrize("compiled", [False, True], ids=["torch", "compiled"])
def test_tensor_of_zeros_for_many_steps_is_named_once(dead, compiled):
    model = torch.nn.Sequential(
        tnn.TTLinear(32, 32, rank=4), torch.nn.ReLU(), tnn.TTLinear(32, 10, rank=4)
    )
    with torch.no_grad():
        model[0].bias.fill_(-100 if dead == "ReLU" else 0.1)
        model[2].factors[0].mul_(dead != "factor")
    model, x = compile(model, batch=8) if compiled else model, torch.randn(8, 32)
    x *= dead != "input"
    for steps, named in ((14, False), (40, True)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(steps):
                model(x).sum().backward()
        texts = [str(warning.message) for warning in caught]
        assert any("all zeros" in text for text in texts) == named
        assert len({text.split(" was ")[0] for text in texts}) == len(texts)


@pytest.mark.filterwarnings("ignore:.*of what differs between samples")  # by decayed weights
@pytest.mark.parametrize("compiled", [False, True])
def test_bias_of_a_layer_whose_weights_decay_to_nothing_is_kept(compiled):
    # 2^15 times the products, the bias saturated in the accelerator's sum: outputs became 0.
    torch.manual_seed(0)
    layer = tnn.TTLinear(32, 16, rank=4)
    model = torch.nn.Sequential(layer)
    model = trainwright.compile(model, batch=16) if compiled else model
    x = torch.randn(16, 32)
    for _ in range(20):
        model(x).sum().backward()
        with torch.no_grad():
            layer.bias.fill_(0.3)
            for factor in layer.factors:
                factor *= 0.5
    model.eval()
    assert relative_error(model(x), trainwright.to_torch(model)(x)) < 0.02


def _messages_of_a_step(model, x):
    """Return the warnings of two training steps on ``x``, but for those of its outputs."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            model(x).sum().backward()
    messages = [str(w.message) for w in caught if w.category is LostTensorWarning]
    return [message for message in messages if "of what differs between" not in message]


def _columns(rows=32, size=16, seed=0):
    return torch.randn(rows, size, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("large", [0, 9])
@pytest.mark.parametrize("compiled", [False, True])
def test_inputs_with_one_far_larger_column_warn_once_of_the_others(large, compiled):
    model = torch.nn.Sequential(
        tnn.TTLinear(16, 16, rank=2), torch.nn.ReLU(), tnn.TTLinear(16, 4, rank=2)
    )
    x = _columns()
    x[:, large] *= 1e4
    x[:, 5] = 0  # empty in the data: nothing is lost
    model = trainwright.compile(model, batch=32) if compiled else model
    (message,) = _messages_of_a_step(model, x)
    name = "input of 0" if compiled else "input of TTLinear(16, 16)"
    first = 1 if large == 0 else 0
    assert message.startswith(
        f"{name}: 14 of 16 columns (88%) round to 0 or to constants, such as "
    )
    assert f" number {first} " in message
    assert message.endswith("standardise the columns, such as by (x - mean) / deviation of each")


def test_images_with_a_faint_channel_warn_of_it():
    x = torch.rand(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    x[:, 1] /= 1e3
    (message,) = _messages_of_a_step(tnn.TTConv2d(3, 16, 3, rank=2), x)
    assert ": 1 of 3 channels (33%) round to 0 or to constants, such as number 1 " in message


def _one_hot():
    return torch.eye(16)[torch.arange(32) % 16]


def _sparse():
    x = _one_hot() * 100
    x[0, 1] = x[7, 2] = 1e-3
    x[:, 3] = 0
    x[5:7, 3] = 0.1  # two of 32 samples: a rare word
    return x


@pytest.mark.parametrize(
    "x",
    [_columns(), _one_hot(), _sparse(), torch.zeros(32, 16), _columns() * 1e4,
     _columns().requires_grad_(), _columns(rows=2)],
    ids=["normal", "one-hot", "sparse", "zeros", "large", "activations", "few"],
)  # fmt: skip
def test_inputs_whose_columns_survive_rounding_do_not_warn(x):
    if x.requires_grad or len(x) == 2:
        x = (x.detach() * torch.tensor([1e4] + 15 * [1.0])).requires_grad_(x.requires_grad)
    assert _messages_of_a_step(tnn.TTLinear(16, 16, rank=2), x) == []


def test_inputs_in_evaluation_do_not_warn_of_columns():
    x = _columns() * torch.tensor([1e4] + 15 * [1.0])
    assert _messages_of_a_step(tnn.TTLinear(16, 16, rank=2).eval(), x) == []


@pytest.mark.parametrize("compiled", [False, True])
def test_last_batch_of_one_sample_leaves_the_exponents_of_the_epoch(compiled):
    # Its largest value is 1.4: at full scale 2 evaluation clipped a twentieth of all values.
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(49, 16, generator=generator)
    x[48] = x[48] / x[48].abs().max() * 1.4
    model = torch.nn.Sequential(tnn.TTLinear(16, 16, rank=2), torch.nn.ReLU(), tnn.TTLinear(16, 4))
    model = trainwright.compile(model, batch=12) if compiled else model
    for part in torch.split(x, 12):
        model(part).square().mean().backward()
    with torch.no_grad():
        outputs = model.eval()(x)
    assert relative_error(outputs, trainwright.to_torch(model)(x)) < 0.05


def _ema_of_all(averaged, model):
    for mine, theirs in zip(averaged.buffers(), model.buffers(), strict=True):
        mine.copy_(0.9 * mine + 0.1 * theirs)
    for mine, theirs in zip(averaged.parameters(), model.parameters(), strict=True):
        mine.copy_(0.9 * mine + 0.1 * theirs)


@pytest.mark.parametrize("how", ["SWA", "EMA", "by hand, from before training"])
def test_average_of_parameters_and_buffers_computes_as_its_weights_say(how):
    model = torch.nn.Sequential(tnn.TTLinear(16, 16, rank=2), torch.nn.ReLU(), tnn.TTLinear(16, 4))
    ema = torch.optim.swa_utils.get_ema_multi_avg_fn(0.9) if how == "EMA" else None
    averaged = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=ema, use_buffers=True)
    x, y = torch.randn(32, 16), torch.randint(0, 4, (32,))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(20):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        with torch.no_grad():
            if how.startswith("by hand"):
                _ema_of_all(averaged.module, model)
            else:
                averaged.update_parameters(model)
    outputs = averaged.eval()(x)
    assert relative_error(outputs, trainwright.to_torch(averaged.module)(x)) < 0.05


def test_state_dict_with_exponents_in_bytes_loads_as_before():
    model = trainwright.compile(tnn.TTLinear(20, 32, rank=4), batch=8)
    model(torch.randn(8, 20)).sum().backward()
    state = model.state_dict()
    old = dict(state) | {"program_exponents": state["program_exponents"].to(torch.uint8)}
    other = trainwright.compile(tnn.TTLinear(20, 32, rank=4), batch=8)
    other.load_state_dict(old)
    loaded = other.state_dict()
    assert all(torch.equal(loaded[name], state[name]) for name in state)


def test_compiled_layer_goes_on_from_its_state_dict_with_the_same_bits():
    models = [trainwright.compile(tnn.TTLinear(20, 32, rank=r), batch=8) for r in (4, 2)]
    x = torch.randn(6, 8, 20)
    for batch in x[:3]:
        models[0](batch).square().sum().backward()
    models[1].load_state_dict(models[0].state_dict())  # of another rank, too
    for model in models:
        model.zero_grad()
        model(x[4] / 64).square().sum().backward()
    pairs = zip(models[0].parameters(), models[1].parameters(), strict=True)
    assert all(torch.equal(own.grad, other.grad) for own, other in pairs)
    assert set(models[0].state_dict()) == set(models[0].module.state_dict())


def test_compiled_module_keeps_the_extra_state_of_its_module():
    class Counting(torch.nn.Sequential):
        count = 0

        def get_extra_state(self):
            return torch.tensor(self.count)

        def set_extra_state(self, state):
            self.count = int(state)

    first, second = (
        trainwright.compile(Counting(tnn.TTLinear(20, 32, rank=4)), batch=8) for _ in range(2)
    )
    first.module.count = 7
    second.load_state_dict(first.state_dict())
    assert second.module.count == 7


def test_average_in_place_of_a_state_dict_loads():
    model = trainwright.compile(tnn.TTLinear(20, 32, rank=4), batch=8)
    model(torch.randn(8, 20)).sum().backward()
    average = {name: value.clone() for name, value in model.state_dict().items()}
    for name, value in model.state_dict().items():
        average[name].mul_(0.9).add_(value, alpha=0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.load_state_dict(average)
    wanted = model.state_dict()
    assert all(torch.allclose(average[name], wanted[name]) for name in wanted)


def test_mean_of_state_dicts_of_compiled_models_loads():
    models = [compile(torch.nn.Sequential(tnn.TTLinear(16, 4, rank=2)), batch=8) for _ in range(2)]
    for scale, model in zip((1, 1e3), models, strict=True):
        model(scale * torch.randn(8, 16)).sum().backward()
    first, second = (model.state_dict() for model in models)
    mean = {name: (first[name] + second[name]) / 2 for name in first}
    with pytest.warns(UserWarning, match="were changed, such as by the mean of several"):
        models[0].load_state_dict(mean)
    x = torch.randn(8, 16)
    outputs = models[0](x)
    assert relative_error(outputs, models[0].to_torch()(x)) < 0.05
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        models[1].load_state_dict(models[0].state_dict())


def _of_kind(compiled, batch=64):
    model = torch.nn.Sequential(tnn.TTLinear(16, 16, rank=2), torch.nn.ReLU(), tnn.TTLinear(16, 4))
    return trainwright.compile(model, batch=batch) if compiled else model


def _far_samples():
    x = _columns(rows=64)
    x[:8] *= 1e3
    return x


def _years():
    x = _columns(rows=64) * 3
    x[:, 3] = torch.randint(2015, 2025, (64,)).float()
    x[:, 4] = 1999 + 1e-4  # constant in the data: nothing is lost
    return x


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(
    ("x", "text"),
    [
        (_far_samples(), ": 56 of 64 samples (88%) change by over half in rounding, next to "),
        (
            _years(),
            "15 of 16 columns (94%) round to 0 or to constants, such as number 0 of values ",
        ),
    ],
)
def test_inputs_whose_samples_or_differences_are_lost_warn_once(x, text, compiled):
    (message,) = _messages_of_a_step(_of_kind(compiled), x)
    assert text in message


def test_differences_of_a_column_far_from_0_are_missed_next_to_columns_that_stay():
    x = _columns(rows=64) * 1000
    x[:, 3] = torch.randint(2015, 2025, (64,)).float()
    (message,) = _messages_of_a_step(_of_kind(False), x)
    assert ": 1 of 16 columns (6%) round to 0 or to constants, such as number 3 of " in message


@pytest.mark.parametrize("compiled", [False, True])
def test_columns_that_are_lost_in_batches_of_two_samples_warn_of_them(compiled):
    model, messages = _of_kind(compiled, batch=2), []
    x = _columns(rows=16) * torch.tensor([1e4] + 15 * [1.0])
    for part in torch.split(x, 2):
        messages += _messages_of_a_step(model, part)
    (message,) = messages
    assert ": 15 of 16 columns (94%) round to 0 or to constants, such as number 1 of " in message


@pytest.mark.parametrize("compiled", [False, True])
def test_outlier_beyond_all_values_before_warns_in_training_and_evaluation(compiled):
    x = _columns(rows=64)
    x[5] *= 1e3
    model = _of_kind(compiled)
    assert _messages_of_a_step(model, _columns(rows=64, seed=1)) == []
    (message,) = _messages_of_a_step(model, x)
    assert "was clipped at 32 in 15 values (the largest is 2.3e+03): " in message
    model = _of_kind(compiled)
    _messages_of_a_step(model, _columns(rows=64, seed=1))
    x[5] /= 125
    with pytest.warns(LostTensorWarning, match=r"clipped at 4 in \d+ values .* in evaluation"):
        model.eval()(x)


@pytest.mark.parametrize("compiled", [False, True])
def test_inputs_of_another_unit_are_neither_clipped_nor_named(compiled):
    model = _of_kind(compiled)
    assert _messages_of_a_step(model, _columns(rows=64, seed=1)) == []
    x = _columns(rows=64) * 20
    assert _messages_of_a_step(model, x) == []
    assert relative_error(model(x), trainwright.to_torch(model)(x)) < 0.05


@pytest.mark.parametrize("compiled", [False, True])
def test_targets_of_far_different_scales_warn_once_of_lost_gradients(compiled):
    model, x = _of_kind(compiled), _columns(rows=64)
    targets = torch.randn(64, 4) * torch.tensor([1.0, 1e6, 1.0, 1e5])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            torch.nn.functional.mse_loss(model(x).float(), targets).backward()
    (message,) = [str(w.message) for w in caught if w.category is LostTensorWarning]
    name = "2" if compiled else "TTLinear(16, 4)"
    assert message.startswith(f"gradients of the outputs of {name}: 2 of 4 columns round to 0, ")
    assert model[2].bias.grad[[0, 2]].any() == 0


def lost_columns(gradient: torch.Tensor, bits: int = 16) -> list[str]:
    """Return the warnings of a watch over gradients of outputs."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        GradientColumns(Fixed(bits)).watch("y", gradient)
    return [str(w.message) for w in caught]


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("scale", [1e-30, 1e-3, 1.0, 1e30])
def test_lost_column_of_gradients_is_named_whatever_their_scale(scale, bits):
    gradient = torch.randn(64, 4) * scale
    assert not lost_columns(gradient, bits)
    gradient[:, 3] *= 1e-6
    (message,) = lost_columns(gradient, bits)
    assert message.startswith("gradients of the outputs of y: 1 of 4 columns round to 0, ")
    assert f"number 3 of gradients up to {float(gradient[:, 3].abs().max()):.3g} " in message


@pytest.mark.parametrize(("nonzero", "named"), [(7, False), (8, True)])
def test_lost_column_of_gradients_is_named_from_8_samples_on(nonzero, named):
    gradient = torch.randn(64, 4)
    gradient[:, 1] *= 1e-6
    gradient[nonzero:, 1] = 0
    assert len(lost_columns(gradient)) == named


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("case", ["standardised", "confident classes", "two batches of few"])
def test_gradients_of_one_scale_or_of_classes_do_not_warn(case, compiled):
    model, x = _of_kind(compiled), _columns(rows=64)
    with torch.no_grad():
        model[2].bias.copy_(torch.tensor([30.0, 0.0, 0.0, -30.0]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for rows in torch.split(x, 4 if case.startswith("two") else 64)[:2]:
            y = model(rows).float()
            if case == "confident classes":
                loss = torch.nn.functional.cross_entropy(y, torch.zeros(64, dtype=torch.int64))
            else:
                loss = (y - torch.randn(y.shape)).square().mean()
            loss.backward()


def _layer_of_bias(*bias: float) -> torch.nn.Sequential:
    """Return a model with one dense layer, whose outputs have weights of norm 1."""
    layer = torch.nn.Linear(64, len(bias))
    with torch.no_grad():
        layer.weight.copy_(torch.full((len(bias), 64), 1 / 8))
        layer.bias.copy_(torch.tensor(bias))
    return torch.nn.Sequential(layer)


@pytest.mark.parametrize("way", ["from_torch", "load_dense"])
def test_bias_values_lost_next_to_larger_ones_are_named_where_they_matter(way):
    # 100 has 8 bits in steps of 1: 0.3 and -0.45 become 0, and 0.01 is nothing next to the norm 1.
    model = _layer_of_bias(100.0, 0.3, 0.01, -0.45, 0.6, 0.0, 3.0, 50.0)
    with pytest.warns(LostTensorWarning) as caught:
        if way == "from_torch":
            layer, name = trainwright.from_torch(model, rank=2)[0], "0"
        else:
            layer, name = tnn.TTLinear(64, 8, rank=2), "TTLinear(64, 8)"
            layer.load_dense(model[0].weight, model[0].bias)
    (message,) = [str(w.message) for w in caught]
    lost = "2 of 8 values of its bias round to 0, such as number 1 of 0.3 next to 100 "
    assert message.startswith(f"{name}: {lost}(8 bits, one exponent): ")
    assert layer.used_bias().tolist() == [100.0, 0.0, 0.0, 0.0, 1.0, 0.0, 3.0, 50.0]


@pytest.mark.parametrize("case", ["fresh", "small", "zeros", "float32", "4 bits"])
def test_bias_without_losses_that_matter_does_not_warn(case):
    numbers = {"float32": "float32", "4 bits": Widths(bias=4)}.get(case, "fixed")
    bias = {"small": (1.0, 1e-3, -1e-6, 0.2), "zeros": (0.0,) * 4}.get(case, (100.0, 0.3, 0.3, 0.3))
    model = torch.nn.Linear(64, 512) if case == "fresh" else _layer_of_bias(*bias * 8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trainwright.from_torch(model, rank=2, numbers=numbers)


def _errors(layer, x, compiled):
    """Return the errors of outputs, and of factors' gradients, from those in float64."""
    gradient = torch.randn(len(x), layer.out_features)
    model = compile(layer, batch=len(x)) if compiled else layer
    for _ in range(2):
        layer.zero_grad()
        outputs = model(x)
        outputs.backward(gradient)
    factors = list(layer.factors)
    weight = layer.weight
    exact = x.double() @ weight.detach().double().T
    wanted = torch.autograd.grad(weight, factors, (gradient.double().T @ x.double()).float())
    pairs = [(outputs.detach(), exact), *zip([f.grad for f in factors], wanted, strict=True)]
    return [float((a - b).norm() / b.norm()) for a, b in pairs]


@pytest.mark.parametrize("compiled", (True, False))
@mostly_slow("seed", range(6), quick=range(2))
def test_layer_of_16_bits_behind_a_softmax_clips_nothing(seed, compiled):
    """A few probabilities are far above the mean: clipped, they changed outputs by up to 41 %."""
    torch.manual_seed(seed)
    numbers = Widths(factor=8, bias=8, activation=16, gradient=16, intermediate=16)
    layer = tnn.TTLinear(256, 16, rank=8, numbers=numbers)
    assert max(_errors(layer, torch.softmax(2 * torch.randn(32, 256), 1), compiled)) < 0.002
    few_large = torch.randn(32, 256) * torch.randn(32, 1).exp()
    layer = tnn.TTLinear(256, 16, rank=8, numbers=numbers)
    assert max(_errors(layer, few_large, compiled)) < 0.01

"""Losses, inputs and gradients whose size jumps: right in the same step, or named at once.

Right is the layer with the same rounded factors in float64, whose activations are not rounded.
"""

import copy
import warnings
from itertools import product

import pytest
import torch
from slowly import mostly_slow

import trainwright
import trainwright.nn as tnn
from trainwright.fixed.health import LostTensorWarning
from trainwright.network import Widths

pytestmark = pytest.mark.usefixtures("first_programs")

POSITS = "activation=posit(8,0),gradient=posit(8,1)c"
WIDE = Widths(activation=16)
"""Numbers whose rounding changes a result by less than 1 %."""


def network(columns=20, rows=3, *, compiled=True, numbers=WIDE, formats=None):
    torch.manual_seed(0)
    module = torch.nn.Sequential(
        tnn.TTLinear(columns, 32, rank=6, numbers=numbers),
        torch.nn.ReLU(),
        tnn.TTLinear(32, rows, rank=6, numbers=numbers),
    )
    return trainwright.compile(module, batch=16, formats=formats) if compiled else module


def in_float64(model):
    module = copy.deepcopy(getattr(model, "module", model))
    for layer in (module[0], module[2]):
        factors, bias = [f.detach().clone() for f in layer.used_factors()], layer.used_bias()
        layer.set_numbers("float32")
        with torch.no_grad():
            layer.bias.copy_(bias)
            for own, factor in zip(layer.factors, factors, strict=True):
                own.copy_(factor)
    return module.double()


def relative(value, wanted):
    return float((value.detach().double() - wanted).norm() / wanted.norm())


def worst(model, x, loss_of):
    """Return the greatest relative error of a step's outputs and gradients."""
    exact = in_float64(model)
    for network in (model, exact):
        network.zero_grad()
    outputs, wanted = model(x), exact(x.double())
    loss_of(outputs).backward()
    loss_of(wanted).backward()
    pairs = zip(model.parameters(), exact.parameters(), strict=True)
    return max(relative(outputs, wanted.detach()), *(relative(p.grad, q.grad) for p, q in pairs))


@mostly_slow("scale", [1e3, 1e6, 1e-6], quick=(1e6, 1e-6))
@pytest.mark.parametrize("formats", [None, POSITS], ids=["fixed", "posit"])
def test_gradient_after_jump_of_loss_equals_torch_in_same_step(scale, formats):
    model, x, bound = network(formats=formats), torch.randn(16, 20), 0.2 if formats else 0.02
    for step in range(6):  # GANs and tasks that take turns jump in every step
        factor = scale if step % 2 else 1.0
        assert worst(model, x, lambda y, f=factor: f * y.square().mean()) < bound


def test_two_losses_of_one_pass_of_different_sizes_have_both_gradients():
    model, x = network(), torch.randn(16, 20)
    worst(model, x, lambda y: 1e-4 * y.square().mean())
    exact = in_float64(model)
    for net, values in ((model, x), (exact, x.double())):
        net.zero_grad()
        outputs = net(values)
        (1e-4 * outputs.square().mean()).backward(retain_graph=True)
        outputs.sum().backward()
    for own, wanted in zip(model.parameters(), exact.parameters(), strict=True):
        assert relative(own.grad, wanted.grad) < 0.01


def test_step_after_a_batch_of_zeros_has_all_gradients():
    model = network()
    model(torch.zeros(16, 20)).sum().backward()
    assert worst(model, torch.randn(16, 20), lambda y: y.square().mean()) < 0.01


@pytest.mark.parametrize("factor", [1e-3, 1e-2, 30.0, 1e4])
@pytest.mark.parametrize("compiled", [False, True], ids=["torch", "compiled"])
def test_inputs_that_jump_are_computed_at_their_own_size(factor, compiled):
    model, x = network(compiled=compiled, numbers="fixed"), torch.randn(16, 20)
    for _ in range(4):
        model(x).square().mean().backward()
    assert worst(model, x * factor, lambda y: y.square().mean()) < 0.3  # 0.7 to 1 of lost inputs
    with torch.no_grad():  # in training mode without gradients, too
        assert relative(model(x), in_float64(model)(x.double())) < 0.1


@pytest.mark.parametrize("case", ["one-hot", "outlier", "sample"])
def test_few_values_among_many_small_ones_do_not_saturate(case):
    # Means say that these tensors are small: the saturated values were 7 to 35 % of a gradient.
    model, x, weights = network(columns=500 if case == "one-hot" else 20), torch.randn(16, 20), 1.0
    if case == "one-hot":
        x = torch.eye(500)[torch.randint(500, (16,))]
    if case == "outlier":
        x[:, 3] *= 1e4
    if case == "sample":
        weights = torch.ones(16, 1).index_fill(0, torch.tensor([5]), 1e5)
    for _ in range(3):
        error = worst(model, x, lambda y: (weights * y.square()).mean())
    assert error < 0.03


@pytest.mark.parametrize("place", ["inputs", "loss"])
@pytest.mark.parametrize("compiled", [False, True], ids=["torch", "compiled"])
@mostly_slow("factor", [3, 4, 5, 6, 8, 12, 16, 24], quick=(3, 5, 8, 16))
def test_step_after_jump_of_some_times_has_all_gradients(factor, compiled, place):
    """Watch jumps after which a tensor saturates without being lost."""
    model, x = network(compiled=compiled), torch.randn(16, 20)
    for _ in range(4):
        worst(model, x, lambda y: y.square().mean())
    inputs, loss = (factor, 1.0) if place == "inputs" else (1.0, factor)
    assert worst(model, inputs * x, lambda y: loss * y.square().mean()) < 0.01


@pytest.mark.parametrize("compiled", [False, True], ids=["torch", "compiled"])
@mostly_slow("factor", [3, 4, 6, 8, 16], quick=(3, 8))
def test_evaluation_that_clips_a_fifth_of_inputs_names_them(factor, compiled):
    """Watch data that evaluation clips after passes of the training's scale."""
    model, x = network(compiled=compiled, numbers="fixed"), torch.randn(16, 20)
    for _ in range(4):
        model(x).square().mean().backward()
    model.eval()
    with torch.no_grad():
        for _ in range(4):
            model(x)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            y = model(factor * x)
    named = [str(w.message).partition(" was ")[0] for w in caught]
    assert any(name.startswith("input of ") for name in named) and len(set(named)) == len(named)
    assert relative(y, in_float64(model)(factor * x.double()).detach()) > 0.2


def test_evaluation_beyond_the_range_of_training_warns_or_is_within_a_tenth():
    # Three layers lost 20 % of their outputs in silence.
    parts = [part for n in range(3) for part in (tnn.TTLinear(32, 32, rank=4), torch.nn.ReLU())]
    model = torch.nn.Sequential(*parts[:-1])
    for _ in range(4):
        model(torch.randn(64, 32)).square().mean().backward()
    exact, rows, named = in_float64(model.eval()), torch.ones(64, 1), []
    rows[0] = 4
    for scale in (1, 1.5, 2, 3, 4, rows, 2 * rows):
        x, fresh = scale * torch.randn(64, 32), copy.deepcopy(model)
        with warnings.catch_warnings(record=True) as caught, torch.no_grad():
            warnings.simplefilter("always")
            error = relative(fresh(x), exact(x.double()).detach())
        named.append(bool(caught))
        assert named[-1] or error < 0.1, scale
    assert not named[0] and all(named[3:5])


@pytest.mark.parametrize("compiled", [False, True], ids=["torch", "compiled"])
def test_evaluation_far_below_the_range_of_training_warns_or_is_within_a_third(compiled):
    # Three compiled layers lost 63 % of their outputs at an eighth of the scale, in silence.
    model = torch.nn.Sequential(*(tnn.TTLinear(64, 64, rank=16) for _ in range(3)))
    if compiled:
        model = trainwright.compile(model, batch=64)
    laplace = torch.distributions.Laplace(0.0, 1.0)
    for _ in range(4):
        model(laplace.sample((64, 64))).square().mean().backward()
    exact, named = in_float64(model.eval()), []
    for scale in (1, 1 / 2, 1 / 4, 1 / 8, 1 / 16):
        x, fresh = scale * laplace.sample((64, 64)), copy.deepcopy(model)
        with warnings.catch_warnings(record=True) as caught, torch.no_grad():
            warnings.simplefilter("always")
            error = relative(fresh(x), exact(x.double()).detach())
        named.append(bool(caught))
        assert named[-1] or error < 1 / 3, scale
    assert not named[0] and named[-1]


@pytest.mark.parametrize("compiled", [False, True], ids=["torch", "compiled"])
@pytest.mark.parametrize(("factor", "what"), [(1e-3, "all zeros"), (50.0, "saturated in")])
def test_evaluation_of_data_of_another_scale_says_so_once(compiled, factor, what):
    model, x = network(compiled=compiled, numbers="fixed"), torch.randn(16, 20)
    for _ in range(2):
        model(x).square().mean().backward()
    model.eval()
    with warnings.catch_warnings(record=True) as caught, torch.no_grad():
        warnings.simplefilter("always")
        model(x)
        assert not caught
        model(x * factor)
        model(x * factor)
    messages = [str(w.message) for w in caught if w.category is LostTensorWarning]
    assert f"was {what}" in messages[0] and "in evaluation" in messages[0]
    assert len(set(messages)) == len(messages)


@pytest.mark.parametrize("magnitude", [1e-33, 1e-36, 1e36])
def test_layer_of_inputs_at_the_ends_of_float32_loses_none(magnitude):
    layer, x = tnn.TTLinear(20, 32, rank=6), torch.randn(16, 20) * magnitude
    wanted = x.double() @ layer.weight.detach().double().T
    assert relative(layer(x), wanted) < 0.05


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("numbers", ["fixed", POSITS])
def test_inputs_that_are_not_finite_are_refused_in_evaluation_too(value, numbers):
    layer, x = tnn.TTLinear(20, 32, rank=6, numbers=numbers), torch.randn(16, 20)
    layer(x).sum().backward()
    x[3, 4] = value
    with pytest.raises(ValueError, match=f"largest value is {value}.*isfinite"):
        layer.eval()(x)


def test_outputs_that_overflow_are_refused_by_the_name_of_the_layer():
    layer = tnn.TTLinear(20, 32, rank=6)
    with torch.no_grad():
        for factor in layer.factors:
            factor.fill_(1e25)
    with pytest.raises(ValueError, match=r"outputs of TTLinear\(20, 32\) overflow torch.float32"):
        layer(torch.ones(2, 20))


@pytest.mark.filterwarnings("ignore:.*of what differs between samples")  # 72 % of one output
@pytest.mark.parametrize("samples", [1, 2])
@pytest.mark.parametrize("place", ["inputs", "loss"])
def test_posits_of_few_samples_among_zeros_keep_their_bits(samples, place):
    # Means of words follow the zeros: these were 61 % (outputs) and 99 % (gradients) off.
    model, x = network(formats=POSITS), torch.randn(16, 20)
    if place == "inputs":
        x[samples:] = 0
    for _ in range(6):
        worst(model, x, lambda y: y[:samples].square().mean())
    exact = in_float64(model)
    exact(x.double())[:samples].square().mean().backward()
    own, wanted = (
        torch.cat([p.grad.double().flatten() for p in net.parameters()]) for net in (model, exact)
    )
    assert relative(own, wanted) < 0.4


@pytest.mark.parametrize("numbers", ["intermediate=posit(16,1)", "activation=posit(8,2)"])
def test_layer_of_wide_posits_equals_layer_of_torch(numbers):
    layer, x = tnn.TTLinear(20, 32, rank=6, numbers=numbers), torch.randn(16, 20)
    assert relative(layer(x), x.double() @ layer.weight.detach().double().T) < 0.1  # was 1


FAR = [1e-38, 1e-30, 1e-12, 1.0, 1e12, 1e30]


def jump(first, then, formats):
    """Return a case; the default suite has long jumps, of posits the longest."""
    slow = max(first, then) / min(first, then) < (1e49 if formats else 1e37)
    return pytest.param(first, then, formats, marks=[pytest.mark.slow] if slow else [])


@pytest.mark.parametrize(
    ("first", "then", "formats"), [jump(*case) for case in product(FAR, FAR, (None, POSITS))]
)
def test_batch_after_one_of_any_size_is_computed_as_by_a_fresh_model(first, then, formats):
    """Watch sizes between which no shift leads: every later batch was refused for ever."""
    model = network(formats=formats)
    model(torch.randn(16, 20) * first).sum().backward()
    x = torch.randn(16, 20) * then
    if formats:  # of posits the first batch after a jump keeps two bits
        model(x).sum().backward()
    error, fresh = (worst(m, x, lambda y: y.sum()) for m in (model, network(formats=formats)))
    assert error < fresh + (0.2 if formats else 0.02)
    with torch.no_grad():
        exact = in_float64(model)(x.double())
        assert relative(model.eval()(x), exact) < (0.2 if formats else 0.02)


@pytest.mark.parametrize("place", ["eval", "no_grad"])
def test_weights_that_jump_are_computed_without_a_training_step(place):
    model, x = network(), torch.randn(16, 20)
    model(x * 1e30).sum().backward()
    model(x * 1e30).sum().backward()
    for layer in (model[0], model[2]):
        with torch.no_grad():
            for factor in layer.factors:
                factor.mul_(1e-12)
            layer.bias.zero_()
    model.train(place != "eval")
    with torch.no_grad():
        assert relative(model(x * 1e30), in_float64(model)(x.double() * 1e30)) < 0.02


@pytest.mark.parametrize("trained", [False, True], ids=["fresh", "trained"])
def test_bias_beyond_all_shifts_is_named_and_damages_nothing(trained):
    model, x = network(), torch.randn(16, 20)
    if trained:
        model(x).sum().backward()
    state, bias = copy.deepcopy(model.state_dict()), model[0].bias.detach().clone()
    with torch.no_grad():
        model[0].bias.fill_(1e35)
    message = (
        r"0: y is a sum of values further apart .* inputs up to .*, a bias up to 1e\+35; bring"
    )
    for _ in range(2):
        with pytest.raises(ValueError, match=message):
            model(x * 100)
    with pytest.raises(ValueError, match=message):
        model.calibrate(x, lambda y: y.sum())
    with torch.no_grad():
        model[0].bias.copy_(bias)
    after = model.state_dict()
    assert not trained or all(map(torch.equal, state.values(), after.values()))
    assert worst(model, x, lambda y: y.sum()) < 0.02


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("compiled", [False, True], ids=["torch", "compiled"])
@pytest.mark.parametrize(("numbers", "bound"), [("fixed", 0.2), ("factor=fixed(16)", 0.1)])
def test_weights_that_are_doubled_from_outside_are_not_clipped(numbers, bound, compiled, training):
    model, x = network(compiled=compiled, numbers=numbers), torch.randn(16, 20)
    model(x).sum().backward()
    exact = in_float64(model)
    with torch.no_grad():
        for weights in (*model.parameters(), *exact.parameters()):
            weights.mul_(2)
        model.train(training)
        outputs = model(x / 4)  # a fourth in each of two layers: outputs of the size before
        assert relative(outputs, exact(x.double() / 4)) < bound  # was 0.69


def test_factor_value_far_out_does_not_move_the_exponent():
    layer = tnn.TTLinear(20, 32, rank=6)
    before = layer.factor_exponents.clone()
    with torch.no_grad():
        layer.factors[0].view(-1)[0] = 1e3
    layer(torch.randn(16, 20))
    assert torch.equal(layer.factor_exponents, before)


def test_step_after_a_column_of_thousands_has_all_gradients():
    """Watch exponents that are held above saturated values: held ones kept rounding to zeros."""
    model, x = network(), torch.randn(16, 20)
    x[:, 3] = 1000
    model(x).square().mean().backward()
    x[:, 3] = 0
    assert worst(model, x, lambda y: y.square().mean()) < 0.4  # was 1

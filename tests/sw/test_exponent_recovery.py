"""Exponents reach the data from any state, and only training moves them."""

import copy
import io
import json
import re
import warnings
from dataclasses import replace

import pytest
import torch
from slowly import mostly_slow
from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import checkpoint

import trainwright.nn as tnn
from trainwright import compile
from trainwright.fixed.health import (
    LOST_STEPS,
    LostTensorWarning,
    TensorHealth,
    loss_in_evaluation,
    loss_of,
)
from trainwright.fixed.scale import (
    ScaleRange,
    Scales,
    TensorClass,
    TensorStatistics,
    sum_limits,
)
from trainwright.formats import Fixed, Posit
from trainwright.program.exponents import ExponentFile, ScaleEntry

pytestmark = pytest.mark.usefixtures("first_programs")

BATCH = 64
STEPS = 10
"""Steps in which a model of two layers follows data of any other magnitude.

A tensor that is lost falls or rises in one step, layer after layer; one that keeps two or three
bits falls by one bit a step, as the rule of recorded runs has it.
"""


def model(seed: int = 0) -> torch.nn.Sequential:
    torch.manual_seed(seed)
    return torch.nn.Sequential(
        tnn.TTLinear(64, 32, rank=4), torch.nn.ReLU(), tnn.TTLinear(32, 10, rank=4)
    )


def in_float(net: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Compute the network of `model` with dense float64 weights."""
    first, _, second = net.children()
    hidden = torch.relu(x.double() @ first.weight.double().T + first.bias.double())
    return (hidden @ second.weight.double().T + second.bias.double()).detach()


def relative(result: torch.Tensor, wanted: torch.Tensor) -> float:
    return float((result.detach().double() - wanted).norm() / wanted.norm())


def gradients(net: torch.nn.Module, x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
    net.zero_grad()
    cross_entropy(net(x), y).backward()
    return [p.grad.clone() for p in net.parameters()]


def data(seed: int, count: int = BATCH) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(count, 64, generator=generator)
    return x, torch.randint(0, 10, (count,), generator=generator)


@mostly_slow(
    "compiled, seed",
    [(False, 0), (False, 3), (False, 11), (True, 0)],
    quick=[(False, 0), (True, 0)],
)
def test_exponents_of_layers_reach_random_magnitudes_in_ten_steps(
    compiled: bool, seed: int
) -> None:
    net = compile(model(seed), batch=BATCH) if compiled else model(seed)
    generator = torch.Generator().manual_seed(5 + seed)
    for _ in range(12):
        scale = 10.0 ** float(torch.empty(()).uniform_(-12, 12, generator=generator))
        for _ in range(STEPS):
            net(torch.rand(BATCH, 64, generator=generator) * scale).square().mean().backward()
        x = torch.rand(BATCH, 64, generator=generator) * scale
        assert relative(net(x), in_float(net, x)) < 0.1


def test_fresh_layer_of_small_inputs_is_not_zero() -> None:
    torch.manual_seed(0)
    layer = tnn.TTLinear(64, 64, rank=8)
    x = torch.randn(64, 64) * 0.03
    wanted = (x.double() @ layer.weight.double().T + layer.bias.double()).detach()
    assert relative(layer(x), wanted) < 0.05


@pytest.mark.parametrize("kind", TensorClass)
@pytest.mark.parametrize("distance", [-60, -9, -1, 0, 1, 8, 60])
def test_scale_rule_from_any_distance_needs_as_many_steps(kind, distance: int) -> None:
    count, width, magnitude = 640, 16, 1000
    scales, limits = Scales(), sum_limits(Scales().ranges.of(kind, Fixed(16)), count, width)
    file = ExponentFile(16)
    file.exponents[1] = start = distance
    entry = ScaleEntry(exponent=1, statistics=0, low=limits.low, high=limits.high)
    needed = 0
    while needed < abs(distance) + 4:
        exponent = file.exponents[1]
        word = min(max(round(magnitude * 2.0**-exponent), -(1 << 15)), (1 << 15) - 1)
        file.above[1] = True
        file.move(entry, word * count)
        statistics = TensorStatistics(
            kind, Fixed(width), exponent, -100, count, word * count, count * (word == (1 << 15) - 1)
        )
        scales.update({"t": statistics})
        assert scales.exponents["t"] == file.exponents[1]
        if file.exponents[1] == exponent:
            break
        needed += 1
    mean = magnitude * 2.0 ** -file.exponents[1] / (1 << 15)
    allowed = Scales().ranges.of(kind, Fixed(16))
    assert allowed.low <= mean <= allowed.high
    assert needed <= abs(start) + 3


@pytest.mark.parametrize("junk", [torch.zeros(2, 64), torch.full((2, 64), 100.0)])
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("mode", ["no_grad", "eval"])
def test_passes_outside_training_leave_no_trace(junk, compiled: bool, mode: str) -> None:
    x, y = data(1)
    nets = [compile(model(), batch=BATCH) if compiled else model() for _ in range(2)]
    if mode == "eval":
        nets[0].eval()
        nets[0](junk)
        nets[0].train()
    else:
        with torch.no_grad():
            nets[0](junk)
    for a, b in zip(*(gradients(net, x, y) for net in nets), strict=True):
        assert torch.equal(a, b)


def test_training_pass_of_zeros_does_not_calibrate() -> None:
    x, y = data(2)
    nets = [compile(model(), batch=BATCH) for _ in range(2)]
    nets[0](torch.zeros(8, 64))
    for a, b in zip(*(gradients(net, x, y) for net in nets), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("samples", [1, 2, 3, 63])
def test_gradients_of_part_of_a_batch_are_those_of_a_full_one(samples: int) -> None:
    x, y = data(3, samples)
    got, wanted = (gradients(compile(model(), batch=n), x, y) for n in (BATCH, samples))
    for a, b in zip(got, wanted, strict=True):
        assert relative(a, b.double()) < 0.005


@pytest.mark.parametrize("samples", [1, 3, 20])
def test_last_part_of_an_epoch_has_the_gradients_of_its_samples(samples: int) -> None:
    x, y = data(3, samples)
    net = compile(model(), batch=BATCH)
    for step in range(3):
        gradients(net, *data(step))
    kept = copy.deepcopy(net.state_dict())
    wanted = gradients(compile(model(), batch=samples), x, y)
    for a, b in zip(gradients(net, x, y), wanted, strict=True):
        assert relative(a, b.double()) < 0.05
    after = net.state_dict()["0.program_exponents"], kept["0.program_exponents"]
    backward = [
        {n: e for n, e in json.loads(bytes(map(int, t)))["0,2"].items() if "d" in n} for t in after
    ]
    assert backward[0] == backward[1]


def test_call_of_several_batches_calibrates_on_all_of_them() -> None:
    x, _ = data(5, 2 * BATCH)
    x[:BATCH] *= 0.01
    net = compile(model(), batch=BATCH)
    assert relative(net(x), in_float(net, x)) < 0.05


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("compiled", [False, True])
def test_checkpoint_computes_the_same_bits(reentrant: bool, compiled: bool) -> None:
    nets = [compile(model(), batch=BATCH) if compiled else model() for _ in range(2)]
    optimisers = [torch.optim.SGD(net.parameters(), 0.1) for net in nets]
    for step in range(6):
        x, y = data(step)
        for number, (net, optimiser) in enumerate(zip(nets, optimisers, strict=True)):
            given = (x * 2.0**step).requires_grad_()  # exponents move in every step
            out = net(given) if number else checkpoint(net, given, use_reentrant=reentrant)
            optimiser.zero_grad()
            cross_entropy(out, y).backward()
            optimiser.step()
    for a, b in zip(*(net.parameters() for net in nets), strict=True):
        assert torch.equal(a, b)


def steps(net: torch.nn.Module, optimiser: torch.optim.Optimizer, numbers: range) -> None:
    for number in numbers:
        optimiser.zero_grad()
        cross_entropy(*(lambda x, y: (net(x), y))(*data(number))).backward()
        optimiser.step()


def test_resumed_compiled_model_has_the_bits_of_one_run() -> None:
    whole = compile(model(), batch=BATCH)
    optimiser = torch.optim.SGD(whole.parameters(), 0.1)
    steps(whole, optimiser, range(8))
    file = io.BytesIO()
    torch.save(whole.state_dict(), file)
    steps(whole, optimiser, range(8, 16))
    file.seek(0)
    state = torch.load(file)
    resumed = compile(model(1), batch=BATCH)
    resumed.load_state_dict(state)
    steps(resumed, torch.optim.SGD(resumed.parameters(), 0.1), range(8, 16))
    for a, b in zip(whole.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(a, b)
    plain = model(2)
    plain.load_state_dict(state)  # strict, and compiled later it goes on as well
    steps(again := compile(plain, batch=BATCH), torch.optim.SGD(plain.parameters(), 0.1),
          range(8, 16))  # fmt: skip
    for a, b in zip(whole.parameters(), again.parameters(), strict=True):
        assert torch.equal(a, b)


def test_state_dict_without_exponents_calibrates_again() -> None:
    old = model().state_dict()
    assert not any("program_exponents" in name for name in old)
    net = compile(model(3), batch=BATCH)
    gradients(net, *data(0))
    net.load_state_dict(old)
    fresh = compile(model(), batch=BATCH)
    for a, b in zip(*(gradients(n, *data(1)) for n in (net, fresh)), strict=True):
        assert torch.equal(a, b)


def test_copy_of_a_compiled_model_moves_its_own_exponents() -> None:
    net = compile(model(), batch=BATCH)
    gradients(net, *data(0))
    before = copy.deepcopy(net.state_dict())
    twin = copy.deepcopy(net)
    x, y = data(1)
    for _ in range(3):
        gradients(twin, x * 100, y)
    assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())
    assert not torch.equal(before["0.program_exponents"], twin.state_dict()["0.program_exponents"])


def test_calibrate_chooses_exponents_from_any_state() -> None:
    x, y = data(6)
    nets = [compile(model(), batch=BATCH) for _ in range(2)]
    for _ in range(3):
        gradients(nets[0], x * 1e6, y)
    for net in nets:
        net.calibrate(x, lambda out: cross_entropy(out, y))
    for a, b in zip(*(gradients(net, x, y) for net in nets), strict=True):
        assert relative(a, b.double()) < 0.02


def test_lost_tensor_is_reported_once_by_the_name_of_its_layer() -> None:
    net = compile(model(), batch=BATCH)
    with torch.no_grad():
        net.module[0].bias.fill_(-100.0)  # every ReLU is dead
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for step in range(LOST_STEPS + 4):
            gradients(net, *data(step))
    messages = [str(w.message) for w in caught if w.category is LostTensorWarning]
    assert messages and len(set(messages)) == len(messages)
    assert all(message.startswith(("0: ", "2: ")) for message in messages)
    assert any("all zeros for 16 steps" in message for message in messages)


class TwoMagnitudes(torch.nn.Module):
    """Layer that is called with values and with ``factor`` times the values."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.layer, self.factor = tnn.TTLinear(32, 32, rank=8), factor

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.layer(x), self.layer(self.factor * x)


def trained_twice(factor: float, *, compiled: bool) -> tuple[list[float], set[str]]:
    """Return relative errors of both calls after 40 steps, and names of lost tensors."""
    torch.manual_seed(0)
    module, x = TwoMagnitudes(factor), torch.randn(16, 32)
    net = compile(module, batch=16) if compiled else module
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(40):
            small, large = net(x)
            (small.square().mean() + large.square().mean()).backward()
    dense = tnn.to_torch(module).layer.double()
    with torch.no_grad():
        errors = [relative(y, dense(k * x.double())) for y, k in ((small, 1.0), (large, factor))]
    lost = {str(w.message) for w in caught if w.category is LostTensorWarning}
    return errors, {message.partition(" was ")[0] for message in lost}


@pytest.mark.parametrize("compiled", [False, True], ids=["torch", "compiled"])
@mostly_slow("factor", [5.0, 100.0, 1000.0], quick=(5.0, 1000.0))
def test_calls_with_inputs_of_two_sizes_keep_bits_of_both(factor: float, compiled: bool) -> None:
    errors, lost = trained_twice(factor, compiled=compiled)
    assert max(errors) < 0.12  # with inputs that saturate or round to 0, 0.41 to 1
    assert not lost


def test_report_counts_inputs_that_saturate() -> None:
    net = compile(model(), batch=BATCH)
    x, y = data(7)
    gradients(net, x, y)
    before = net.report().saturations
    gradients(net, x * 40, y)
    assert net.report().saturations - before > BATCH


def test_few_samples_that_saturate_a_tensor_are_named_once():
    # Of 64 samples one has all of the gradient: 1.6 % of the values saturate, 94 % of the sum.
    saturated, rest = 64 * 2**15, 63 * 64 * 32
    lost = TensorStatistics(TensorClass.GRADIENT, Fixed(16), -9, -20, 64 * 64, saturated + rest, 64)
    sound = replace(lost, total=32 * saturated, saturations=64)
    health = TensorHealth()
    for statistics, wanted in ((sound, 0), (lost, 1)):
        messages = [m for _ in range(40) for m in health.observe({"l2.dx": statistics})]
        assert len(messages) == wanted
    assert "l2.dx was saturated in values that make 94% of its sum for 16 steps" in messages[0]


@pytest.mark.parametrize(("steps", "calls"), [(1, 16), (5, 4), (8, 2), (16, 1)])
def test_steps_between_two_looks_at_the_chip_count_as_so_many(steps: int, calls: int) -> None:
    lost = TensorStatistics(TensorClass.GRADIENT, Fixed(16), -9, -20, 4096, 4096 * 2**14, 4096)
    health = TensorHealth()
    messages = [list(health.observe({"l2.dx": lost}, steps=steps)) for _ in range(calls)]
    assert [len(each) for each in messages] == [0] * (calls - 1) + [1]


def _normal(size: float, exponent: int = 0, count: int = 4096) -> TensorStatistics:
    """Count normal values whose mean is a fortieth of full scale for the size 1."""
    values = torch.randn(count, generator=torch.Generator().manual_seed(0)) * size * 32768 / 32
    words = values.round().clamp(-32768, 32767)
    saturations = int((values.abs() > 32767).sum())
    total = int(words.abs().sum())
    return TensorStatistics(
        TensorClass.GRADIENT, Fixed(16), exponent, -99, count, total, saturations
    )


@pytest.mark.parametrize(
    ("size", "what"), [(14, None), (16, "4.5%"), (20, "10.6%"), (32, "31%"), (90, "71%")]
)
def test_normal_values_are_lost_in_evaluation_where_clipping_takes_7_percent(size, what):
    s = _normal(size)
    allowed = ScaleRange(0.008, 0.03)
    loss = loss_in_evaluation(s, allowed)
    assert (loss and loss.what) == (what and f"saturated in {what} of its values")
    coded = replace(s, format=Posit(16, 1))
    assert loss_in_evaluation(coded, allowed) == loss_of(coded)


@pytest.mark.parametrize(
    ("total", "exponent", "what"),
    [(255, 0, None), (127, 0, "rounded to a mean of 1.27 quantisation steps"), (20, -99, None)],
)
def test_small_values_are_lost_in_evaluation_below_half_of_their_range(total, exponent, what):
    """At 8 bits the range 0.02 to 0.06 of full scale begins at 2.56 quantisation steps."""
    kind = TensorClass.ACTIVATION
    s = TensorStatistics(kind, Fixed(8), exponent, -99, 100, total, 0)
    loss = loss_in_evaluation(s, ScaleRange(0.02, 0.06))
    assert (loss and loss.what) == what


@pytest.mark.parametrize(
    ("jump", "named"), [(1, False), (16, False), (25, True), (30, True), (36, True), (100, True)]
)
def test_jump_beyond_the_exponent_of_one_step_is_named_once(jump: float, named: bool) -> None:
    health = TensorHealth()
    steps = [{"l1.dy": _normal(1), "l2.dy": _normal(1)}, {"l1.dy": _normal(jump)}]
    steps += [{"l1.dy": _normal(1), "l2.dy": _normal(jump)}]
    messages = [message for statistics in steps for message in health.observe(statistics)]
    assert len(messages) == named
    assert not named or re.match(
        r"l1\.dy grew over \d+-fold in one step, and saturated in \d+% of its values", messages[0]
    )


def test_jump_is_named_by_the_tensor_that_saturates_most() -> None:
    health = TensorHealth()
    assert not list(health.observe({"a": _normal(1), "b": _normal(1), "c": _normal(90)}))
    (message,) = health.observe({"a": _normal(30), "b": _normal(60), "c": _normal(90)})
    assert message.startswith("b grew over")


def test_tensor_that_saturates_without_a_jump_has_no_message_at_once() -> None:
    for first, then in ((_normal(30), _normal(30)), (_normal(1, 5), _normal(30, 0))):
        health = TensorHealth()
        assert not list(health.observe({"l1.dy": first}))
        assert not list(health.observe({"l1.dy": then}))


@pytest.mark.parametrize(("first", "then", "named"), [(30, 30, False), (1, 60, True)])
@pytest.mark.parametrize("counts", [(1024, 65536), (65536, 1024)])
def test_jump_is_measured_by_means_and_not_by_counts(first, then, named, counts) -> None:
    health = TensorHealth()
    assert not list(health.observe({"l1.dy": _normal(first, count=counts[0])}))
    assert len(list(health.observe({"l1.dy": _normal(then, count=counts[1])}))) == named


@pytest.mark.parametrize(("least", "named"), [(0, True), (1, False)])
def test_growth_of_four_times_is_a_jump_and_less_is_none(least: int, named: bool) -> None:
    health, s = TensorHealth(), _normal(30)
    assert not list(health.observe({"l1.dy": replace(s, total=1 << 20, saturations=0)}))
    grown = replace(s, total=(1 << 22) - least, saturations=s.count // 5)
    assert len(list(health.observe({"l1.dy": grown}))) == named


def test_jump_of_few_values_has_no_message() -> None:
    health = TensorHealth()
    assert not list(health.observe({"l1.db": _normal(1, count=63)}))
    assert not list(health.observe({"l1.db": _normal(60, count=63)}))

"""The driver: formats of what goes in and out, errors, calibration, statistics."""

from dataclasses import replace
from math import prod

import numpy as np
import pytest
import torch
from cases import random_case
from link_board import Board
from operands import calibrated, random_batch, random_model, roomy

from trainwright.accelerator import AcceleratorError, Counters, open_accelerator
from trainwright.compiler import CompileError, compile_step
from trainwright.driver import Driver, QuantisedModel, fitting_exponent, quantise
from trainwright.fixed.scale import PRESETS, Scales
from trainwright.golden.backend import GoldenAccelerator
from trainwright.link.backend import LinkAccelerator
from trainwright.network import load_network, network_from_dict
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Loop, Transfer
from trainwright.program.fields import Operation
from trainwright.tt import to_matrix

pytestmark = pytest.mark.usefixtures("first_programs")

P = AcceleratorParameters()
DIGITS = load_network("digits")


def driver_of(network=DIGITS, batch: int = 8, p=P, memory: int = 1 << 22) -> Driver:
    return Driver(GoldenAccelerator(p, memory_bytes=memory), network, batch)


def operands_of(network=DIGITS, batch: int = 8, seed: int = 0):
    return random_model(network, seed), *random_batch(network, batch, seed)


@pytest.mark.parametrize("width", [2, 4, 8, 16])
def test_fitting_exponent_is_the_least(width):
    top = 2 ** (width - 1) - 1
    for greatest in (1.0, 0.999, 3.0, top, top + 1, top / 2, 1e-30, 1e30, 0.1):
        exponent = fitting_exponent(torch.tensor([greatest / 3, -greatest]), width)
        assert greatest <= top * 2.0**exponent
        assert greatest > top * 2.0 ** (exponent - 1)


def test_fitting_exponent_of_nothing():
    assert fitting_exponent(torch.zeros(3), 8) == 0
    assert fitting_exponent(torch.zeros(3), 8, zero=-7) == -7


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_values_that_are_none(value):
    with pytest.raises(ValueError, match="cannot quantise a tensor whose largest value is"):
        fitting_exponent(torch.tensor([1.0, value]), 8)


@pytest.mark.parametrize("data", [np.array([300], np.int32), np.zeros(4, bool), b"abcd"])
def test_memory_written_with_other_types_than_bytes_is_refused(data):
    board = LinkAccelerator(P, Board(P), patience=1e-3)
    for accelerator in (GoldenAccelerator(P, memory_bytes=1 << 10), board):
        with pytest.raises(TypeError, match="a memory is written with arrays of uint8, not"):
            accelerator.write(0, data)
        assert not accelerator.read(0, 16).any()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda model: model.factors[0].append(model.factors[0][0]), r"the model has \[3, 2\]"),
        (lambda model: model.biases.pop(), "and 1 biases"),
        (lambda model: model.biases.__setitem__(0, torch.zeros(5)), "l1.b has 5 values, not 128"),
    ],
)
def test_driver_model_of_another_network_is_named(change, message):
    model, inputs, gradient = operands_of()
    driver, scales = driver_of(), Scales()
    driver.forward(inputs, model, scales)
    with pytest.raises(ValueError, match="gradients have 2 exponents, not 1: one a head"):
        driver.backward(gradient, scales, exponent=(-15, -3))
    with pytest.raises(TypeError, match="inputs must be a tensor of torch, not ndarray"):
        driver.forward(inputs.numpy(), model, scales)
    change(model)
    with pytest.raises(ValueError, match=message):
        driver.forward(inputs, model, scales)


def test_quantise_rounds_half_to_even_and_saturates():
    values = torch.tensor([0.25, 0.75, 1.25, -0.25, 100.0, -100.0])
    assert quantise(values, -1, 8).tolist() == [0, 2, 2, 0, 127, -128]


def test_results_are_integers_times_their_exponents():
    model, inputs, gradient = operands_of()
    driver = driver_of()
    scales = calibrated(driver, model, inputs, gradient)
    forward = driver.forward(inputs, model, scales)
    backward = driver.backward(gradient, scales)
    assert forward.logits.shape == (8, 16) and forward.logits.dtype == torch.float64
    scaled = forward.logits * 2.0 ** -forward.statistics["l2.a"].exponent
    assert torch.equal(scaled, scaled.round())
    for n, layer in enumerate(DIGITS.layers):
        for factor, shape in zip(backward.factors[n], layer.factor_shapes, strict=True):
            assert tuple(factor.shape) == shape
        assert backward.biases[n].shape == (layer.output_size,)
        scaled = backward.biases[n] * 2.0 ** -backward.statistics[f"l{n + 1}.db"].exponent
        assert torch.equal(scaled, scaled.round())
    assert forward.counters.bytes_read > 0 and forward.counters.cycles == 0


def test_layers_without_bias_have_no_gradient_of_it():
    network = replace(DIGITS, layers=(replace(DIGITS.layers[0], bias=False), DIGITS.layers[1]))
    model, inputs, gradient = operands_of(network)
    driver = driver_of(network)
    scales = calibrated(driver, model, inputs, gradient)
    driver.forward(inputs, model, scales)
    done = driver.backward(gradient, scales)
    assert done.biases[0] is None and done.biases[1] is not None


def test_driver_bias_of_zeros_is_no_bias():
    model, inputs, gradient = operands_of()
    driver = driver_of()
    scales = calibrated(driver, model, inputs, gradient)
    logits = [
        driver.forward(inputs, replace(model, biases=biases), scales).logits
        for biases in ([None, None], [torch.zeros(128), torch.zeros(16)])
    ]
    assert torch.equal(*logits)


def test_steps_repeat_to_the_bit():
    model, inputs, gradient = operands_of()
    driver = driver_of()
    scales = calibrated(driver, model, inputs, gradient)
    results = []
    for _ in range(2):
        forward = driver.forward(inputs, model, scales)
        backward = driver.backward(gradient, scales)
        results.append((forward.logits, backward.factors[0][0], forward.run.sums))
    assert all(np.array_equal(a, b) for a, b in zip(*results, strict=True))


def test_gradients_of_a_split_batch_add_up():
    """Integer sums, at exponents without rounding: halves of a batch give the whole's gradient."""
    model, inputs, gradient = operands_of(batch=8)
    gradient = quantise(gradient, -12, 8).double() * 2.0**-12
    gradient[0, 0] = gradient[4, 0] = 0.5  # both halves have the same largest value, and headroom
    whole, half = driver_of(batch=8), driver_of(batch=4)
    names = [t.name for t in whole.step.backward.tensors]
    scales = roomy(whole, model, inputs, gradient)
    done = whole.forward(inputs, model, scales)
    fixed = Scales(exponents={n: s.exponent for n, s in done.statistics.items()})
    fixed.exponents |= {name: -200 for name in names if name.endswith("db")}
    total = whole.backward(gradient, fixed).biases[1]
    parts = []
    for part in (slice(0, 4), slice(4, 8)):
        half.forward(inputs[part], model, fixed)
        parts.append(half.backward(gradient[part], fixed).biases[1])
    assert bool(total[1:].all()) and torch.equal((parts[0] + parts[1])[1:], total[1:])


def test_calibration_settles_in_the_ranges():
    model, inputs, gradient = operands_of(batch=16)
    driver = driver_of(batch=16)
    scales = Scales(PRESETS["default"])
    repetitions = driver.calibrate(inputs, lambda logits: gradient, model, scales)
    assert 1 < repetitions < 64
    statistics = {
        **driver.forward(inputs, model, scales).statistics,
        **driver.backward(gradient, scales).statistics,
    }
    for name, s in statistics.items():
        allowed = scales.ranges.of(s.kind, s.format)
        assert s.mean_fraction <= allowed.high, name
        assert s.mean_fraction >= allowed.low or s.exponent == s.floor, name
    assert Scales(scales.ranges, dict(scales.exponents)).jump(statistics) == 0


def test_calibration_leaves_the_accelerator_alone():
    model, inputs, gradient = operands_of()
    driver = driver_of()
    driver.calibrate(inputs, lambda logits: gradient, model, Scales())
    assert not driver.accelerator.read(0, 1 << 22).any()


def test_tensors_keep_their_names_when_ranks_are_cut():
    """But for partial results, of which another contraction order has others."""
    of_the_network = {f"l{n}.{what}" for n in (1, 2) for what in ("y", "a", "dG1", "dG2", "db")}
    of_the_network |= {"l1.dy", "l2.dx"}
    for network in (DIGITS, DIGITS.with_ranks([(13,), (5,)])):
        step = compile_step(network, 8, P)
        assert of_the_network <= {t.name for p in (step.forward, step.backward) for t in p.tensors}


# Errors.


def test_factors_of_other_shapes():
    model, inputs, _ = operands_of()
    cut = random_model(DIGITS.with_ranks([(13,), (8,)]), 0)
    driver = driver_of()
    message = r"l1.G1 has shape \(1, 8, 4, 13\), not \(1, 8, 4, 16\)"
    with pytest.raises(ValueError, match=message):
        driver.forward(
            inputs,
            QuantisedModel(DIGITS, cut.factors, cut.factor_exponents, model.biases),
            Scales(),
        )


def test_memory_too_small():
    message = r"a step needs \d+ bytes of external memory, the accelerator has 4096"
    with pytest.raises(AcceleratorError, match=message):
        driver_of(memory=4096)


def test_network_that_does_not_fit():
    with pytest.raises(CompileError, match="batch"):
        driver_of(batch=0)


def test_inputs_and_gradients_of_another_batch():
    model, inputs, gradient = operands_of()
    driver = driver_of()
    with pytest.raises((ValueError, RuntimeError), match=r"\[8, 64\]|8, 64"):
        driver.forward(inputs[:5], model, Scales())
    driver.forward(inputs, model, Scales())
    with pytest.raises((ValueError, RuntimeError), match=r"\[8, 16\]|8, 16"):
        driver.backward(gradient[:5], Scales())


def test_gradient_that_is_not_finite():
    model, inputs, gradient = operands_of()
    driver = driver_of()
    driver.forward(inputs, model, Scales())
    gradient[0, 0] = float("nan")
    with pytest.raises(ValueError, match="largest value is nan"):
        driver.backward(gradient, Scales())


def test_back_ends_by_name():
    with open_accelerator("golden", P, memory_bytes=64) as accelerator:
        assert accelerator.memory_bytes == 64 and accelerator.parameters == P
    with pytest.raises(ValueError, match=r"unknown back end 'gpu'; there are .*golden"):
        open_accelerator("gpu", P, memory_bytes=64)


def test_counters_add_up():
    total = Counters(cycles=2, bytes_read=3) + Counters(cycles=5, stall_store=1)
    assert total == Counters(cycles=7, bytes_read=3, stall_store=1)


def test_bytes_moved_are_those_of_the_transfers():
    """The host or an earlier store writes what is loaded; what is stored is read again."""
    case = random_case(3)
    p = case.parameters
    step = compile_step(case.network, case.batch, p)
    accelerator = GoldenAccelerator(p, memory_bytes=step.memory_bytes)
    driver = Driver(accelerator, case.network, case.batch)
    model, inputs, gradient = operands_of(case.network, case.batch, 3)
    done = driver.forward(inputs, model, calibrated(driver, model, inputs, gradient))
    moved = dict.fromkeys((Operation.LOAD, Operation.STORE), 0)
    for d in step.forward.descriptors:
        assert not isinstance(d, Loop)
        if isinstance(d, Transfer):
            moved[d.operation] += prod(v.count for v in d.levels) * d.beats * p.beat_bytes
    assert done.counters.bytes_read == moved[Operation.LOAD]
    assert done.counters.bytes_written == moved[Operation.STORE]
    results = sum(step.buffers[f"l{n + 1}.a"].size for n in range(len(case.network.layers)))
    assert done.counters.bytes_written >= results > 0


def test_drivers_can_share_an_accelerator():
    accelerator = GoldenAccelerator(P, memory_bytes=1 << 22)
    small, large = (Driver(accelerator, DIGITS, batch) for batch in (8, 256))
    model, inputs, gradient = operands_of()
    scales = calibrated(small, model, inputs, gradient)
    before = small.forward(inputs, model, scales).logits
    large.forward(random_batch(DIGITS, 256, 1)[0], model, scales)
    assert torch.equal(small.forward(inputs, model, scales).logits, before)


def test_gradients_to_inputs_add_up_where_inputs_overlap():
    """y = A (B top + C bottom) without ReLU: three roundings, each under 0.2 % of the mean."""
    size = {"outputs": [2, 3], "ranks": [3], "relu": False}
    network = network_from_dict({
        "classes": 3, "image": [4, 4],
        "inputs": [{"name": "top", "rows": [0, 3]}, {"name": "bottom", "rows": [1, 4]}],
        "layers": [
            {**size, "inputs": [3, 4], "from": "top"}, {**size, "inputs": [3, 4], "from": "bottom"},
            {"add": ["l1", "l2"], "relu": False}, {**size, "inputs": [2, 3]},
        ],
    })  # fmt: skip
    p = AcceleratorParameters(lanes=4, pe1_rows=2, pe2_rows=2)
    driver = Driver(GoldenAccelerator(p, memory_bytes=1 << 20), network, 5, input_gradients=True)
    model, _, gradient = operands_of(network, 5)
    inputs = torch.randint(-128, 128, (5, 16), generator=torch.Generator().manual_seed(1))
    scales = calibrated(driver, model, inputs, gradient)
    driver.forward(inputs, model, scales)
    back = driver.backward(gradient, scales).inputs
    top, bottom, head = (
        to_matrix([g * 2.0**k for g, k in zip(factors, exponents, strict=True)])
        for factors, exponents in zip(model.factors, model.factor_exponents, strict=True)
    )
    wanted = torch.zeros(5, 4, 4, dtype=torch.float64)
    wanted[:, :3] += (gradient @ head @ top).reshape(5, 3, 4)
    wanted[:, 1:] += (gradient @ head @ bottom).reshape(5, 3, 4)
    assert back is not None and back.shape == (5, 16)
    assert (back - wanted.flatten(1)).norm() < 0.006 * wanted.norm()
    with driver.twin() as twin:
        twin.forward(inputs, model, scales)
        assert torch.equal(twin.backward(gradient, scales).inputs, back)
    assert driver_of().step.input_gradients == ()

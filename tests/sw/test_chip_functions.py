"""Training on the chip of networks with functions: golden model, and host by the definitions."""

import sys
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
from slowly import mostly_slow

from trainwright.accelerator.counted import counted
from trainwright.compiler import compile_step
from trainwright.compiler.base.rules import Rule, Written
from trainwright.compiler.chip.exponents import (
    ZERO,
    ExponentSlots,
    FunctionExponents,
    _sums,
    idle_row,
    with_slots,
)
from trainwright.compiler.step.rows import plan_of_loop
from trainwright.data import load_data_set
from trainwright.data.sentences import load_sentences
from trainwright.driver import Driver
from trainwright.fixed.scale import TensorClass
from trainwright.formats.fixed import Fixed
from trainwright.functions import FunctionError, FunctionKernel, Scale, Scaling, function_of, kernel
from trainwright.functions.scalars import scalars_of
from trainwright.golden.backend import GoldenAccelerator
from trainwright.network import network_from_dict
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Compute
from trainwright.program.exponents import ExponentFile
from trainwright.program.vector import Vector
from trainwright.train.host_engine import HostEngine
from trainwright.train.resident import ResidentEngine
from trainwright.train.settings import ChipSettings, PriorSettings, TrainSettings
from trainwright.train.state import initial_state
from trainwright.train.trainer import Trainer

sys.path.append(str(Path(__file__).parent))
from test_onchip_training import same

pytestmark = pytest.mark.usefixtures("first_programs")

BATCH, STEPS = 16, 6
ENGINE = AcceleratorParameters(vector_engine=1, pe1_rows=2, pe2_rows=2)
ALONE = replace(ENGINE, exponents=64, sample_loads=1)
SLOTS = {"exponents": 256, "statistics_depth": 128}
SETTINGS = TrainSettings(
    batch=BATCH, steps=STEPS, learning_rate=0.45, chip=ChipSettings(pixels=4),
    prior=PriorSettings(weight=0.5, warmup=0.0, threshold=0.5, interval=2),
)  # fmt: skip


def network_with(function):
    """Return layers of 64, 32 and 16 values with a function between them."""
    layer = {"inputs": [8, 8], "outputs": [4, 8], "ranks": [8], "relu": False}
    last = {"inputs": [4, 8], "outputs": [4, 4], "ranks": [4], "relu": False}
    layers = [layer, {"name": "f", "function": function}, last]
    return network_from_dict({"name": "f", "classes": 10, "image": [8, 8], "layers": layers})


def convolutions():
    """Return a convolution, averages of its windows, and a layer."""
    layers = [
        {"kernel": [3, 3], "padding": [1, 1], "inputs": [9, 1], "outputs": [4, 4], "ranks": [4]},
        {"name": "p", "pool": [2, 2]},
        {"inputs": [16, 16], "outputs": [4, 4], "ranks": [4], "relu": False},
    ]
    return network_from_dict({"name": "c", "classes": 10, "image": [8, 8], "layers": layers})


def attention():
    """Return an attention over four tokens of two digits, with padding, a scale and dropout."""
    layer = {"inputs": [4, 4], "outputs": [4, 4], "ranks": [4], "bias": False, "relu": False}
    layers = [
        {**layer, "name": "e", "product": ["d1", "d2"], "inputs": [10, 10]},
        {**layer, "name": "q", "from": "e"},
        {**layer, "name": "k", "from": "e"},
        {**layer, "name": "v", "from": "e"},
        {"name": "h", "attention": ["q", "k", "v"], "heads": 2},
        {"name": "n", "norm": "layer"},
        {"name": "s", "scale": 16},
        {"name": "d", "dropout": 0.25},
        {"name": "p", "over_tokens": "mean"},
        {"inputs": [16], "outputs": [12], "ranks": [], "relu": False},
    ]
    inputs = [{"name": f"d{n + 1}", "rows": [n, n + 1]} for n in range(2)]
    head = {"name": "t", "classes": 4, "image": [2, 10], "tokens": 4, "padding": True}
    return network_from_dict({**head, "inputs": inputs, "layers": layers})


def lines_of_text(folder):
    """Return a data set of short lines, with labels that follow from the first word."""
    path = folder / "lines.txt"
    words = ["red", "green", "blue", "grey"]
    lines = [f"{words[n % 4]}\t{' '.join(words[(n * k) % 4] for k in range(1, 2 + n % 3))}"
             for n in range(80)]  # fmt: skip
    path.write_text("\n".join(lines))
    return load_sentences(path)


def trained(network, engine, data=None, batch=BATCH):
    """Train for ``STEPS`` steps and return the trainer."""
    whole = load_data_set("digits")
    few = replace(whole, train=whole.train.first(3 * BATCH + 5), test=whole.test.first(20))
    state = initial_state(network, replace(SETTINGS, batch=batch))
    trainer = Trainer(state, data or few, engine)
    trainer.run()
    return trainer


def host(network, batch=BATCH):
    """Return an engine whose loss and update are the definitions."""
    golden = GoldenAccelerator(ENGINE, memory_bytes=1 << 20)
    plan = plan_of_loop(network, ENGINE)
    return HostEngine(lambda network: Driver(golden, network, batch, plan=plan))


@pytest.mark.parametrize("function", ["gelu", "tanh", "layer_norm", "softmax", "batch_norm(2, 4)"])
def test_training_alone_of_a_function_equals_the_host_and_writes_nothing(function):
    network = network_with(function)
    expected = trained(network, host(network)).state
    with counted(GoldenAccelerator(ALONE, memory_bytes=1 << 19)) as golden:
        alone = trained(network, ResidentEngine(golden))
    assert same(alone.state, expected) and alone.host_writes == 0
    assert alone.state.model.digest != initial_state(network, SETTINGS).model.digest


def test_training_alone_of_convolutions_equals_the_host_and_writes_nothing():
    network = convolutions()
    with counted(GoldenAccelerator(ALONE, memory_bytes=1 << 20)) as golden:
        alone = trained(network, ResidentEngine(golden))
    assert same(alone.state, trained(network, host(network)).state) and alone.host_writes == 0


def network_of_input(*tables):
    """Return a network whose first values are functions of the image itself."""
    description = {"name": "i", "classes": 10, "image": [8, 8], "layers": list(tables)}
    return network_from_dict(description)


LAST = {"inputs": [8, 8], "outputs": [4, 4], "ranks": [4], "relu": False}


OF_IMAGES = {
    "tanh": [{"function": "tanh"}, LAST],
    "norm": [{"norm": "layer"}, LAST],
    "softmax": [{"function": "softmax"}, LAST],
    "no contraction": [{"norm": "layer"}, {"scale": 64}],
}


@mostly_slow(
    "name, batch",
    product(OF_IMAGES, (16, 32)),
    lambda name, batch: (name == "tanh") == (batch == 32),
)
def test_training_alone_of_a_function_of_the_image_equals_the_host(name, batch):
    network = network_of_input(*OF_IMAGES[name])
    with counted(GoldenAccelerator(ALONE, memory_bytes=1 << 20)) as golden:
        alone = trained(network, ResidentEngine(golden), batch=batch)
    expected = trained(network, host(network, batch), batch=batch).state
    assert same(alone.state, expected) and alone.host_writes == 0


def halves(**keys):
    """Return layers of the left and of the right half of an image, and one of their sum."""
    inputs = [
        {"name": name, "rows": [0, 8], "columns": [first, first + 4]}
        for name, first in (("left", 0), ("right", 4))
    ]
    half = {"inputs": [8, 4], "outputs": [4, 5], "ranks": [4]}
    layers = [
        *({**half, "name": f"of_{name}", "from": name} for name in ("left", "right")),
        {"name": "sum", "add": ["of_left", "of_right"]},
        {"inputs": [4, 5], "outputs": [4, 4], "ranks": [4], "relu": False},
    ]
    image = {"name": "h", "classes": 10, "image": [8, 8]}
    return network_from_dict({**image, "inputs": inputs, "layers": layers, **keys})


def coloured():
    """Return a convolution of an image of two channels, and a layer."""
    layers = [
        {"kernel": [3, 3], "padding": [1, 1], "inputs": [9, 2], "outputs": [2, 2], "ranks": [4]},
        {"inputs": [8, 16], "outputs": [4, 4], "ranks": [4], "relu": False},
    ]
    inputs = [{"name": "x", "rows": [0, 8], "columns": [0, 8], "channels": 2}]
    image = {"name": "c", "classes": 10, "image": [8, 8]}
    return network_from_dict({**image, "inputs": inputs, "layers": layers})


def overlapping():
    """Return a pool of windows that overlap, which reads a constant, and a layer."""
    layers = [
        {"kernel": [3, 3], "padding": [1, 1], "inputs": [9, 1], "outputs": [1, 3], "ranks": [3]},
        {"name": "p", "pool": [3, 3], "stride": [2, 2], "padding": [1, 1], "function": "max_pool"},
        {"inputs": [8, 6], "outputs": [4, 4], "ranks": [4], "relu": False},
    ]
    return network_from_dict({"name": "o", "classes": 10, "image": [8, 8], "layers": layers})


@pytest.mark.parametrize(
    "network",
    (
        halves(),
        pytest.param(halves(widths={"activation": 11}), marks=pytest.mark.slow),
        coloured(),
        overlapping(),
    ),
    ids=("parts", "wide-parts", "channels", "overlapping-pool"),
)
def test_training_alone_of_other_inputs_equals_the_host_and_writes_nothing(network):
    with counted(GoldenAccelerator(ALONE, memory_bytes=1 << 20)) as golden:
        alone = trained(network, ResidentEngine(golden))
    expected = trained(network, host(network)).state
    assert same(alone.state, expected) and alone.host_writes == 0
    assert str(alone.state.history.evaluations) == str(expected.history.evaluations)


@mostly_slow("batch", (1, 8), quick=[1])
def test_training_of_padded_sequences_with_dropout_equals_the_host(batch, tmp_path):
    """With a batch of 1 there is no axis of sequences."""
    network, whole = attention(), lines_of_text(tmp_path)
    data = replace(whole, train=whole.train.first(3 * batch + 1))
    expected = trained(network, host(network, batch), data, batch)
    with counted(GoldenAccelerator(replace(ALONE, **SLOTS), memory_bytes=1 << 20)) as golden:
        alone = trained(network, ResidentEngine(golden), data, batch)
    assert same(alone.state, expected.state) and alone.host_writes == 0


def test_training_alone_of_twenty_classes_equals_the_host():
    layers = [
        {"inputs": [8, 8], "outputs": [4, 8], "ranks": [8]},
        {"inputs": [4, 8], "outputs": [4, 8], "ranks": [4], "relu": False},
    ]
    description = {"name": "c", "classes": 20, "image": [8, 8], "layers": layers}
    network = network_from_dict(description)
    engine = ResidentEngine(GoldenAccelerator(ALONE, memory_bytes=1 << 19))
    ours, expected = trained(network, engine), trained(network, host(network))
    assert same(ours.state, expected.state)


def test_scalars_of_a_constant_hold_between_the_rules_own_bounds():
    rules = scalars_of(function_of("silu").forward, 8)
    assert [rules.constants[0].at((e, 0)) for e in (9, 4, 3, -10, -59, -70)] == [
        0,
        0,
        1,
        14,
        63,
        63,
    ]


@pytest.mark.parametrize(
    "kernel",
    (
        function_of("gelu").forward,
        function_of("gelu").backward,
        function_of("tanh").forward,
        replace(function_of("softmax"), group=4).forward,
    ),
    ids=str,
)
def test_constants_of_any_exponents_on_the_chip_are_those_of_a_host(kernel):
    """Scores and inputs far beyond those that a pass resolves end no training on the chip."""
    z = Written("z", TensorClass.ACTIVATION, Fixed(8), 1)
    rule = Rule("x", "g" if kernel.operands > 1 else None, z, kernel=kernel)
    own = FunctionExponents.of(rule)
    names = [ZERO, "x", "g", *own.fixed, "z", *(added.z.name for added in own.sums)]
    slots = ExponentSlots({name: n for n, name in enumerate(dict.fromkeys(names))}, 0)
    for exponents in product((-70, -60, -9, 0, 3, 4, 5, 40), repeat=kernel.operands):
        file = ExponentFile(16)
        given: dict[str, int] = dict(zip(("x", "g"), exponents, strict=False))
        given.update(own.fixed)
        file.set([given.get(name, 0) for name in slots.numbers] + [0] * (16 - len(slots.numbers)))
        for d in _sums(own.sums, slots, source=0, row=1):
            file.shifts(d, most_alignment=15)
        engine_pass = Vector(
            entry=0, length=1, outer=1, inner=1, streams=(), reads=0, writes=0, tensor="z",
            scalars=tuple(own.scalars(slots)),
        )  # fmt: skip
        wanted = kernel.bound(exponents, 8, None).constants
        assert file.scalars(engine_pass)[0][: len(wanted)] == wanted


def test_sums_of_any_exponents_on_the_chip_have_operands_within_reach():
    """An operand becomes coarser, as on a host, and only where the other is beyond the shifts."""
    layer = {"inputs": [8, 8], "outputs": [8, 8], "ranks": [4]}
    layers = [
        {**layer, "name": "stem", "bias": False},
        {**layer, "name": "inner", "bias": False},
        {"name": "skip", "add": ["inner", "stem"]},
        {**layer, "outputs": [2, 8], "relu": False},
    ]
    network = network_from_dict({"name": "s", "classes": 10, "image": [8, 8], "layers": layers})
    step = compile_step(network, BATCH, ALONE, plan="in-rows")
    programs = step.forward, step.backward
    slots = ExponentSlots.of(programs, [], ALONE)
    row = idle_row(programs, ALONE)
    commands = [d for program in programs for d in with_slots(program, slots, 0, row, ALONE)]
    sums = ("l2.a", "l1.a"), ("l3.dx", "l2.dx"), ("l3.b", "l3.y")
    for far in product((-40, -3, 12, 30), (-40, -3, 12, 30), (3, 15, 40)):
        exponents = {**dict.fromkeys(slots.numbers, -16), ZERO: 0, **slots.fixed}
        for pair, distance in zip(sums, far, strict=True):
            exponents[pair[0]], exponents[pair[1]] = max(distance, 0) - 16, max(-distance, 0) - 16
        file = ExponentFile(ALONE.exponents)
        file.set([*exponents.values(), *(0,) * (ALONE.exponents - len(exponents))])
        for d in commands:
            if isinstance(d, Compute):
                file.shifts(d, ALONE.most_alignment)
        for pair in sums:
            wanted = sorted(exponents[name] for name in pair)
            got = sorted(file.exponents[slots[name]] for name in pair)
            assert got == [max(wanted[0], wanted[1] - ALONE.most_alignment), wanted[1]], pair


def test_scalars_of_a_scale_that_multiplies_exponents_is_an_error():
    @kernel(scale=Scale(lambda exponents, *_: Scaling(2 * exponents[0], 2 * exponents[0], ())))
    def squared(k, x):
        return (x * x) >> 8

    with pytest.raises(FunctionError, match=r"squared is no sum of exponents.*exponents=0"):
        scalars_of(FunctionKernel(squared.make()), 8)

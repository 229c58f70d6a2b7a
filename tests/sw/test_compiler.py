"""The compiler: what it refuses, how much work it schedules, and the waits it sets."""

from dataclasses import replace
from functools import partial
from itertools import pairwise
from math import prod

import pytest
from cases import random_case
from hazards import HazardError, check_step_waits, check_waits

from trainwright.compiler import CompileError
from trainwright.lowering import compile_step as compile_plan
from trainwright.network import Layer, Network, Widths, load_network
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Compute, End, Halt, Loop, Program, Transfer
from trainwright.program.encoding import encode
from trainwright.program.fields import Engine, Operation

P = AcceleratorParameters()
compile_step = partial(compile_plan, plan="paper")
"""The paper's schedule; what is searched has its tests in test_lowering*.py."""


def network_of(*layers: Layer, widths: Widths | None = None) -> Network:
    size = layers[0].input_size
    return Network("test", layers, 2, (1, size), (1, size), widths or Widths())


def stack(count: int) -> Network:
    layer = Layer((2, 16), (2, 16), (2,), relu=True)
    return network_of(*[layer] * (count - 1), replace(layer, relu=False))


# Errors.


@pytest.mark.parametrize("batch", [0, -1, 4097])
def test_batch_out_of_range(batch):
    with pytest.raises(CompileError, match=f"batch must be from 1 to 4096 samples, not {batch}"):
        compile_step(load_network("digits"), batch, P)


def test_unknown_plan():
    with pytest.raises(CompileError, match="there is no plan 'fast'; give one of auto, paper"):
        compile_step(load_network("digits"), 4, P, plan="fast")


@pytest.mark.parametrize(
    ("outputs", "inputs", "message"),
    [
        (
            (2, 8),
            (2, 16),
            r"layer 1: the last of outputs \[2, 8\] .* 16 lanes, which 8 is not: use 16, .*ignored",
        ),
        (
            (2, 16),
            (2, 24),
            r"layer 1: the last of inputs \[2, 24\] .* 16 lanes, which 24 is not: use 32",
        ),
    ],
)
def test_last_dimensions_are_multiples_of_the_lanes(outputs, inputs, message):
    with pytest.raises(CompileError, match=message):
        compile_step(network_of(Layer(outputs, inputs, (2,))), 4, P)


def test_factors_wider_than_the_accelerators():
    network = replace(load_network("digits"), widths=Widths(factor=8))
    with pytest.raises(CompileError, match="factors of 8 bits, the accelerator takes at most 4"):
        compile_step(network, 4, P)
    compile_step(network, 4, replace(P, factor_width=8))


def test_accumulator_too_narrow():
    """8 x 16 bits and 1024 samples: |sum| up to 2^32, which needs 34 bits with its sign."""
    message = r"1024 products of 8 x 16 bits need accumulators of 34 bits, these have 32"
    network = network_of(Layer((2, 16), (2, 16), (2,)))
    with pytest.raises(CompileError, match=message):
        compile_step(network, 1024, replace(P, accumulator_width=32))
    compile_step(network, 1024, replace(P, accumulator_width=34))


def test_accumulators_hold_the_worst_sum():
    """The widest batch that a width takes: 2^n products of 2^22 fit n + 24 bits, one more not."""
    network = network_of(Layer((2, 16), (2, 16), (2,)))
    p = replace(P, accumulator_width=32)
    compile_step(network, 255, p)
    compile_step(network, 256, p)
    compile_step(network, 511, p)
    with pytest.raises(CompileError, match=r"512 products of 8 x 16 bits need .* 33 bits"):
        compile_step(network, 512, p)


def test_sample_too_big_for_the_scratchpad():
    small = replace(P, scratchpad_rows=512)
    message = r"one sample of fashion needs \d+ rows of the scratchpad, there are 512"
    with pytest.raises(CompileError, match=message):
        compile_step(load_network("fashion"), 1, small)


@pytest.mark.parametrize("batch", [1000, 1001, 1003, 1006])
def test_batch_too_big_for_the_scratchpad(batch):
    """The batch that is named fits, and none larger does."""
    network = network_of(Layer((2, 16), (2, 32), (2,)))
    small = replace(P, scratchpad_rows=2048, accumulator_width=40)
    message = rf"l1.dy needs {batch} rows of the scratchpad, .*; a batch of \d+ fits$"
    with pytest.raises(CompileError, match=message) as found:
        compile_step(network, batch, small)
    fitting = int(str(found.value).split()[-2])
    compile_step(network, fitting, small, plan="paper")
    with pytest.raises(CompileError):
        compile_step(network, fitting + 1, small, plan="paper")


@pytest.mark.parametrize(
    ("store", "what"), [("pe1_store_depth", "PE1"), ("pe2_store_depth", "PE2")]
)
def test_factors_too_big_for_their_store(store, what):
    message = rf"l\d\.G\d\.\w+ needs \d+ entries of the {what} factor store, there are 32.*; "
    message += "use smaller factors or ranks, or an accelerator with " + store
    with pytest.raises(CompileError, match=message):
        compile_step(load_network("fashion"), 4, replace(P, **{store: 32}))


def test_program_too_long():
    message = r"the backward program needs \d+ descriptors, there are 16; use fewer layers"
    with pytest.raises(CompileError, match=message):
        compile_step(load_network("digits"), 4, replace(P, program_depth=16))


def test_too_many_tensors_for_the_statistics():
    """The need is that of the whole program, not of its first tensor too many."""
    network = load_network("digits")
    needed = len(compile_step(network, 4, P, plan="paper").backward.tensors)
    message = (
        rf"backward program needs {needed} statistics slots .*, there are 8; .*_depth=16 or more"
    )
    with pytest.raises(CompileError, match=message):
        compile_step(network, 4, replace(P, statistics_depth=8), plan="paper")


def test_loops_too_deep_for_the_sequencer():
    with pytest.raises(CompileError, match=r"needs 2 nested loops, there are 1; .*loop_depth=2"):
        compile_step(load_network("digits"), 4, replace(P, loop_depth=1))
    compile_step(load_network("digits"), 4, replace(P, loop_depth=2))


def test_what_is_compiled_can_be_encoded():
    """A gradient of 2^16 rows is loaded whole: 2^17 beats, in runs that a field can hold."""
    p = replace(P, scratchpad_rows=1 << 17, pe1_store_depth=1 << 14, accumulator_width=48)
    layer = Layer((16, 64), (16, 64), (4,))
    step = compile_step(Network("wide", (layer,), 10, (32, 32), (32, 32)), 4, p)
    loads = [d for d in step.backward.descriptors if isinstance(d, Transfer) and d.levels]
    assert any(d.runs * d.beats == 1 << 17 for d in loads)
    for program in (step.forward, step.backward):
        encode(Program(program.descriptors, program.fingerprint))


# Work.


def macs_by_equations(layer: Layer, batch: int, *, first: bool) -> tuple[int, int, int, int]:
    """Forward, input gradient, outer product, factor gradients: equations 8 to 19 by their sums."""
    shapes, d = layer.factor_shapes, layer.order
    outputs, inputs = layer.outputs, layer.inputs
    size = [prod(shape) for shape in shapes]
    forward = sum(size[n] * prod(inputs[:n]) * prod(outputs[n + 1 :]) for n in range(d))
    outer = layer.output_size * layer.input_size
    gradient = 0 if first else forward
    ji = [j * i for j, i in zip(outputs, inputs, strict=True)]
    right = sum(size[n] * prod(ji[:n]) for n in range(1, d))
    left = sum(
        size[k] * prod(ji[k + 1 : n + 1]) * shapes[n][3] for n in range(1, d) for k in range(n)
    )
    return batch * forward, batch * gradient, batch * outer, right + left


def test_macs_of_the_papers_network():
    """The design's 175 M: 115 forward, 8.9 input gradient, 29.9 outer product, 20.8 factors."""
    network = load_network("fashion")
    step = compile_step(network, 64, P)
    parts = [macs_by_equations(layer, 64, first=n == 0) for n, layer in enumerate(network.layers)]
    forward, gradient, outer, factors = (sum(part) for part in zip(*parts, strict=True))
    assert [forward, gradient, outer, factors] == [115_343_360, 8_912_896, 29_884_416, 20_807_680]
    biases = 64 * (512 + 16)
    assert step.macs == forward + gradient + outer + factors + biases == 174_982_144


def macs_of_step(network: Network, batch: int) -> int:
    """By the equations, the bias gradients with them."""
    return sum(
        sum(macs_by_equations(layer, batch, first=n == 0)) + batch * layer.bias_parameters
        for n, layer in enumerate(network.layers)
    )


@pytest.mark.parametrize(
    "layer",
    [
        Layer((2, 16), (3, 16), (5,)),
        Layer((2, 16), (3, 16), (5,), bias=False),
        Layer((4, 2, 16), (4, 1, 32), (3, 16)),
        Layer((4, 4, 2, 16), (4, 1, 3, 16), (7, 16, 16)),
    ],
    ids=str,
)
@pytest.mark.parametrize("batch", [1, 7])
def test_macs_follow_the_equations(layer, batch):
    last = Layer((2, 16), (layer.output_size // 16, 16), (4,))
    network = network_of(replace(layer, relu=True), last)
    assert compile_step(network, batch, P).macs == macs_of_step(network, batch)


def test_macs_do_not_count_padded_ranks():
    network = load_network("fashion").with_ranks([(12, 5, 13), (16,)])
    assert compile_step(network, 64, P).macs == macs_of_step(network, 64)


def test_cutting_ranks_cuts_the_work():
    network = load_network("fashion")
    whole = compile_step(network, 64, P)
    cut = compile_step(network.with_ranks([(12, 5, 13), (16,)]), 64, P)
    assert cut.macs < 0.75 * whole.macs


# Form.


@pytest.mark.parametrize("seed", range(12))
def test_programs_are_well_formed(seed):
    case = random_case(seed)
    p = case.parameters
    step = compile_step(case.network, case.batch, p)
    for program in (step.forward, step.backward):
        assert isinstance(program.descriptors[-1], Halt)
        assert len(program.descriptors) <= p.program_depth
        assert len(program.tensors) <= p.statistics_depth
        depth = 0
        for d in program.descriptors:
            depth += isinstance(d, Loop) - isinstance(d, End)
            assert 0 <= depth <= p.loop_depth
            assert not isinstance(d, Compute) or len(d.levels) <= p.nest_levels
            assert isinstance(d, Loop | Halt) or d.operation is not Operation.HALT
        assert depth == 0
        encode(Program(program.descriptors, program.fingerprint))


@pytest.mark.parametrize("seed", range(12))
def test_buffers_do_not_overlap(seed):
    case = random_case(seed)
    step = compile_step(case.network, case.batch, case.parameters)
    buffers = sorted(step.buffers.values(), key=lambda b: b.address)
    for before, after in pairwise(buffers):
        assert before.address + before.size <= after.address
        assert after.address % 64 == 0
    assert buffers[-1].address + buffers[-1].size <= step.memory_bytes


def test_every_tensor_has_its_own_slot_and_exponent():
    step = compile_step(load_network("digits"), 64, P)
    operands = {f"l{n}.{k}": -3 for n in (1, 2) for k in ("G1", "G2", "b")} | {"x": -7}
    bound = step.forward.bind({}, operands)
    assert bound.program.slots == ("l1.z1", "l1.y", "l1.a", "l2.z1", "l2.y", "l2.a")
    assert bound.exponents["l1.y"] == bound.floors["l1.y"] == -13
    wanted = {"l1.z1": -4, "l1.y": -99}
    moved = step.forward.bind(wanted, operands)
    assert moved.exponents["l1.z1"] == -4
    assert moved.exponents["l1.y"] == moved.floors["l1.y"] == -7  # no shift goes to the left
    shifts = {d.tensor: d.shift for d in moved.program.descriptors if isinstance(d, Compute)}
    assert shifts["l1.z1"] == 6 and shifts["l1.y"] == 0


def test_exponents_out_of_reach_take_the_largest_shift():
    step = compile_step(load_network("digits"), 64, P)
    operands = {f"l{n}.{k}": -3 for n in (1, 2) for k in ("G1", "G2", "b")} | {"x": -7}
    bound = step.forward.bind({"l1.z1": 500}, operands)
    assert bound.exponents["l1.z1"] == -10 + 63


@pytest.mark.parametrize(("bias", "used"), [(-40, -28), (-20, -20), (30, 2)])
def test_bias_is_aligned_within_the_shifts_there_are(bias, used):
    step = compile_step(load_network("digits"), 64, P)
    operands = {f"l{n}.{k}": -3 for n in (1, 2) for k in ("G1", "G2", "b")} | {"x": -7}
    bound = step.forward.bind({}, operands | {"l1.b": bias})
    assert bound.exponents["l1.b"] == used
    d = next(d for d in bound.program.descriptors if d.operation is Operation.BIAS)
    floor = min(-13, used)
    assert (d.x_shift, d.g_shift) == (-13 - floor, used - floor)


# Waits.


@pytest.mark.parametrize("seed", range(60))
def test_waits_of_random_networks(seed):
    case = random_case(seed)
    p, tight = case.parameters, None
    while tight is None:
        try:
            p = replace(p, scratchpad_rows=p.scratchpad_rows // 2)
            compile_step(case.network, case.batch, p)
        except ValueError:
            tight = replace(p, scratchpad_rows=2 * p.scratchpad_rows)
    for parameters in (case.parameters, tight):
        assert check_step_waits(compile_step(case.network, case.batch, parameters)) > 10


@pytest.mark.parametrize(
    ("name", "ranks", "batch"),
    [
        ("digits", ((16,), (8,)), 64),
        ("digits", ((13,), (5,)), 7),
        ("fashion", ((16, 16, 16), (16,)), 64),
        ("fashion", ((12, 5, 13), (16,)), 33),
    ],
)
def test_waits_of_built_in_networks(name, ranks, batch):
    step = compile_step(load_network(name).with_ranks(ranks), batch, P)
    assert check_step_waits(step) > 50


def without_wait(descriptors, index: int):
    changed = list(descriptors)
    changed[index] = replace(changed[index], wait=Engine.NONE)
    return changed


def test_checker_finds_missing_waits():
    """Most waits are needed: without one of them the checker objects."""
    step = compile_step(load_network("digits"), 6, replace(P, scratchpad_rows=512))
    for program in (step.forward, step.backward):
        waiting = [
            n
            for n, d in enumerate(program.descriptors)
            if isinstance(d, Compute | Transfer) and d.wait
        ]
        found = 0
        for index in waiting:
            try:
                check_waits(without_wait(program.descriptors, index), P, step.memory_bytes)
            except HazardError:
                found += 1
        assert found > 0.6 * len(waiting), f"{found} of {len(waiting)}"


def test_checker_finds_loops_that_do_not_wait():
    step = compile_step(load_network("fashion"), 8, P)
    descriptors = step.backward.descriptors
    ends = [n for n, d in enumerate(descriptors) if isinstance(d, End)]
    with pytest.raises(HazardError, match="while"):
        changed = list(descriptors)
        for index in ends:
            changed[index] = replace(changed[index], wait=Engine.NONE)
        check_waits(changed, P, step.memory_bytes)

"""The compiler: what it refuses, how much work it schedules, and the waits it sets."""

from dataclasses import replace
from math import prod
from random import Random

import pytest
from cases import random_case
from hazards import HazardError, check_waits
from sequence_networks import small_encoder

from trainwright.compiler import CompileError, compile_step
from trainwright.compiler.base.limits import require_accumulator
from trainwright.compiler.emit.emit import COPIES
from trainwright.compiler.step.compile import order_cost
from trainwright.formats import Fixed
from trainwright.graph.named import paper_order
from trainwright.graph.step import step_graph
from trainwright.network import Layer, Network, Widths, load_network
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Compute, End, Halt, Loop, Program, Transfer
from trainwright.program.encoding import encode
from trainwright.program.fields import Engine, Operation

P = AcceleratorParameters()


def network_of(*layers: Layer, widths: Widths | None = None) -> Network:
    size = layers[0].input_size
    return Network("test", layers, 2, (1, size), (1, size), widths or Widths())


# Errors.


@pytest.mark.parametrize("batch", [0, -1, 4097])
def test_batch_out_of_range(batch):
    with pytest.raises(CompileError, match=f"batch must be from 1 to 4096 samples, not {batch}"):
        compile_step(load_network("digits"), batch, P)


def test_compiler_rejects_unknown_plan():
    with pytest.raises(CompileError, match="'fast'; give one of auto, paper, small"):
        compile_step(load_network("digits"), 4, P, plan="fast")


def test_factors_wider_than_the_accelerators():
    network = replace(load_network("digits"), widths=Widths(factor=8))
    with pytest.raises(CompileError, match="factors of 8 bits, the accelerator takes at most 4"):
        compile_step(network, 4, P)
    compile_step(network, 4, replace(P, factor_width=8))


@pytest.mark.parametrize("width", [32, 34])
def test_accumulators_hold_the_worst_sum(width):
    """2^n products of 2^22 fit n + 24 bits, sign included, but for the last one."""
    p, operands = replace(P, accumulator_width=width), (Fixed(8), Fixed(16))
    fitting = (1 << width - 23) - 1
    require_accumulator(fitting, operands, p, "t")
    message = (
        rf"t: {fitting + 1} products of 8 x 16 bits need accumulators of {width + 1} bits, these "
        f"have {width}; .*accumulator_width={width + 1} or more"
    )
    with pytest.raises(CompileError, match=message):
        require_accumulator(fitting + 1, operands, p, "t")


def test_compiler_programs_can_be_encoded():
    """A gradient of 2^16 rows: transfers in runs that a field can hold."""
    p = replace(P, scratchpad_rows=1 << 17, accumulator_width=48)
    layer = Layer((16, 64), (16, 64), (4,))
    step = compile_step(Network("wide", (layer,), 10, (32, 32), (32, 32)), 4, p)
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


def macs_of_paper_order(network: Network, batch: int) -> int:
    """Count multiply-accumulates of a step's contractions, without bias gradients."""
    graph = step_graph(network, batch)
    widths = {"word": P.word_width, "accumulator": P.accumulator_width}
    return sum(
        paper_order(graph.whole, site, cost=order_cost(P), **widths).macs
        for site in graph.sites.values()
    )


def macs_of_step(network: Network, batch: int) -> int:
    """Count multiply-accumulates by the equations, without bias gradients."""
    return sum(
        sum(macs_by_equations(layer, batch, first=n == 0)) for n, layer in enumerate(network.layers)
    )


def test_macs_of_the_papers_network():
    """The design's 175 M: 115 forward, 8.9 input gradient, 29.9 outer product, 20.8 factors."""
    network = load_network("fashion")
    parts = [macs_by_equations(layer, 64, first=n == 0) for n, layer in enumerate(network.layers)]
    forward, gradient, outer, factors = (sum(part) for part in zip(*parts, strict=True))
    assert [forward, gradient, outer, factors] == [115_343_360, 8_912_896, 29_884_416, 20_807_680]
    assert macs_of_paper_order(network, 64) == forward + gradient + outer + factors


def test_macs_of_a_compiled_step():
    network = load_network("digits")
    biases = 7 * (128 + 16)
    assert compile_step(network, 7, P, plan="paper").macs == macs_of_step(network, 7) + biases
    assert compile_step(network, 7, P).macs < 0.6 * macs_of_step(network, 7)


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
    assert macs_of_paper_order(network, batch) == macs_of_step(network, batch)


def test_macs_do_not_count_padded_ranks():
    network = load_network("fashion").with_ranks([(12, 5, 13), (16,)])
    assert macs_of_paper_order(network, 64) == macs_of_step(network, 64)


# Form.


@pytest.mark.usefixtures("first_program")
@pytest.mark.parametrize("seed", range(6))
def test_programs_are_well_formed(seed):
    case = random_case(seed)
    p = replace(case.parameters, scratchpad_rows=4096, accumulator_width=48)
    step = compile_step(case.network, case.batch, p)
    for program in (step.forward, step.backward):
        assert isinstance(program.descriptors[-1], Halt)
        depth = 0
        for d in program.descriptors:
            depth += isinstance(d, Loop) - isinstance(d, End)
            assert 0 <= depth <= p.loop_depth
            assert not isinstance(d, Compute) or len(d.levels) <= p.nest_levels
            assert isinstance(d, Loop | Halt) or d.operation is not Operation.HALT
        assert depth == 0
        encode(Program(program.descriptors, program.fingerprint))


GIVEN = {f"l{n}.{k}": -3 for n in (1, 2) for k in ("G1", "G2", "b")}
GIVEN |= {"x": -7, "l1.a": -7, "l2.dy": -9}
"""Exponents of what a step of ``digits`` is given."""


def test_every_tensor_has_its_own_slot_and_exponent():
    step = compile_step(load_network("digits"), 64, P, plan="paper")
    bound = step.backward.bind({}, GIVEN)
    slots = [name for name in bound.program.slots if name != COPIES]
    results = {rule.z.name for rule in step.backward.rules.values()} - {COPIES}
    assert len(slots) == len(results) and {*slots} == results >= {"l2.G1.dy", "l2.dx", "l1.dG1"}
    assert bound.exponents["l2.G1.dy"] == bound.floors["l2.G1.dy"] == -12
    assert bound.exponents["l2.dx"] == bound.floors["l2.dx"] == -15
    wanted = {"l2.G1.dy": -6, "l2.dx": -99}
    moved = step.backward.bind(wanted, GIVEN)
    assert moved.exponents["l2.G1.dy"] == -6
    assert moved.exponents["l2.dx"] == moved.floors["l2.dx"] == -9  # no shift goes to the left
    shifts = {d.tensor: d.shift for d in moved.program.descriptors if isinstance(d, Compute)}
    assert shifts["l2.G1.dy"] == 6 and shifts["l2.dx"] == 0


def test_exponents_out_of_reach_take_the_largest_shift():
    step = compile_step(load_network("digits"), 64, P, plan="paper")
    bound = step.backward.bind({"l2.G1.dy": 500}, GIVEN)
    assert bound.exponents["l2.G1.dy"] == -12 + 63


@pytest.mark.parametrize(
    ("bias", "used", "total"), [(-40, -28, -13), (-20, -20, -13), (2, 2, -13), (30, 30, 15)]
)
def test_bias_is_aligned_within_the_shifts_there_are(bias, used, total):
    # Shifts have 15 bits: a finer bias is made coarser, a coarser one makes the sum coarser.
    step = compile_step(load_network("digits"), 64, P)
    bound = step.forward.bind({}, GIVEN | {"l1.b": bias})
    assert (bound.exponents["l1.b"], bound.exponents["l1.y"]) == (used, total)
    d = next(d for d in bound.program.descriptors if d.tensor == "l1.a")
    floor = min(total, used)
    assert (d.x_shift, d.g_shift) == (total - floor, used - floor)


def test_running_sum_of_gradients_can_have_any_exponents():
    """A gradient of zeros sinks far below the others, as behind a softmax of one word."""
    parameters = replace(P, vector_engine=1)
    backward = compile_step(small_encoder(), 4, parameters, effort=1).backward
    results = {rule.z.name for rule in backward.rules.values()}
    rules = backward.rules.values()
    given = {
        n: -7 for rule in rules for n in (rule.x, rule.g) if n is not None and n not in results
    }
    for seed in range(50):
        random = Random(seed)
        bound = backward.bind({name: random.randint(-200, 0) for name in sorted(results)}, given)
        added = [
            d for d in bound.program.descriptors if isinstance(d, Compute) and d.exponent_rule.adds
        ]
        assert added and all(max(d.x_shift, d.g_shift) <= P.most_alignment for d in added)


def test_compiler_binding_ignores_earlier_bindings():
    program = compile_step(load_network("digits"), 64, P).forward
    wanted, moved = {"l1.y": 0}, GIVEN | {"x": -8}
    asked = [({}, GIVEN, None), ({}, GIVEN, 5), ({}, GIVEN, 6), ({}, GIVEN, None)]
    asked += [(wanted, GIVEN, None), (wanted, moved, None), (wanted, moved, 6)]
    for which in (*asked, *reversed(asked)):
        fresh = replace(program, _last=type(program._last)())
        bound = program.bind(*which[:2], seed=which[2])
        assert bound == fresh.bind(*which[:2], seed=which[2])
        bound.exponents.clear()
        bound.floors.clear()


# Waits.


def without_wait(descriptors, index: int):
    changed = list(descriptors)
    changed[index] = replace(changed[index], wait=Engine.NONE)
    return changed


def test_checker_finds_missing_waits():
    """Most waits are needed: without one of them the checker objects."""
    step = compile_step(load_network("digits"), 6, replace(P, scratchpad_rows=1024))
    for program in (step.forward, step.backward):
        waiting = [
            n
            for n, d in enumerate(program.descriptors)
            if isinstance(d, Compute | Transfer) and d.wait
        ]
        detected = 0
        for index in waiting:
            try:
                check_waits(without_wait(program.descriptors, index), P, step.memory_bytes)
            except HazardError:
                detected += 1
        assert detected > 0.6 * len(waiting), f"{detected} of {len(waiting)}"

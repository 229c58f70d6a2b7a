"""Programs of large batches: blocks of samples, sums over samples in parts, arrays in balance."""

from dataclasses import replace

import numpy as np
import pytest
from graph_cases import random_words
from graph_runner import Runner
from hazards import check_waits
from sequence_networks import small_encoder
from test_lowering import DEFAULT, checked, in_parts, stored_bytes

from trainwright.compiler.base.progress import MOST_EFFORT
from trainwright.compiler.choose.choose import Chooser
from trainwright.compiler.choose.clocks import SearchState
from trainwright.compiler.choose.divisions import Divisions, balanced
from trainwright.compiler.cut.slices import Stage
from trainwright.compiler.cut.slices import in_parts as in_slices
from trainwright.compiler.forms.choices import ProgramSpec
from trainwright.compiler.step.blocks import MODES, blocks_of, sections_of
from trainwright.compiler.step.compile import compile_network, order_cost, with_ones
from trainwright.golden.backend import GoldenAccelerator
from trainwright.graph.ir import Einsum, Kernel, View
from trainwright.graph.network import SAMPLES, SEQUENCES
from trainwright.graph.order import ordered
from trainwright.graph.step import step_graph
from trainwright.network import Layer, Network, Widths, network_from_dict
from trainwright.parameters import AcceleratorParameters
from trainwright.program.elementwise import SUM

SHORT = AcceleratorParameters(scratchpad_rows=1024)


def ttm(outputs, inputs, ranks, *, bias=False):
    """Return one layer without a ReLU."""
    image = 1, 768 if sum(inputs) > 12 else 64
    layer = Layer(outputs, inputs, ranks, relu=False, bias=bias)
    return Network("ttm", (layer,), 2, image, image, Widths())


WIDE = ttm((6, 8, 16), (6, 8, 16), (8, 8))
"""768 -> 768, rank 8."""
TALL = ttm((12, 8, 8), (8, 8, 12), (8, 8))


def blocked(program):
    """Return whether a program is computed for blocks of samples."""
    return any(stage.blocked for stage in program.lowered.stages)


def three_layers():
    layers = [
        {"outputs": [4, 6], "inputs": [6, 8], "ranks": [5], "relu": True},
        {"outputs": [4, 6], "inputs": [6, 4], "ranks": [6], "relu": True},
        {"outputs": [2, 2], "inputs": [6, 4], "ranks": [3]},
    ]
    return network_from_dict({"classes": 4, "image": [6, 8], "layers": layers})


def test_lowering_blocks_last_block_has_the_rest():
    assert blocks_of(40, 16) == ((0, 16), (16, 32), (32, 40))


def two_layers():
    layers = [
        {"outputs": [3, 4], "inputs": [6, 8], "ranks": [3], "relu": True},
        {"outputs": [2, 2], "inputs": [4, 3], "ranks": [3]},
    ]
    return network_from_dict({"classes": 4, "image": [6, 8], "layers": layers})


def test_blocks_of_samples_are_exact(tune):
    tune("choose", huge=0)
    tune("block", cuts=2, timed=1, enough=float("inf"))  # no other program is looked for
    step = checked(three_layers(), 84, SHORT)
    assert blocked(step.forward) and blocked(step.backward)
    parts = in_parts(step)
    assert {"l1.db", "l2.db", "l3.db"} <= parts.keys()
    assert all(count > 1 for count in parts.values())
    sizes = {outer.tensor: step.buffers[outer.name].size
             for outer in step.backward.lowered.outer.values()}  # fmt: skip
    stored = stored_bytes(step.backward)
    assert all(stored[name] == sizes[name] for name in ("l1.db", "l2.db", "l3.db"))
    for program in (step.forward, step.backward):
        assert check_waits(program.descriptors, SHORT, step.memory_bytes)


def test_blocks_of_sequences_are_exact(tune):
    tune("choose", large=0)
    tune("block", cuts=1, timed=1, sizes={SEQUENCES: (2,)})
    p = replace(SHORT, scratchpad_rows=2048, vector_engine=1, exponents=64)
    step = checked(small_encoder(), 11, p)
    assert blocked(step.forward) and blocked(step.backward)
    assert 6 in in_parts(step).values()  # the last block has one sequence
    for program in (step.forward, step.backward):
        assert check_waits(program.descriptors, p, step.memory_bytes)


def made(network, batch, parameters):
    """Return results of a step with 16-bit integer sums, and the sums that it splits."""
    step = compile_network(network, batch, parameters)
    rng = np.random.default_rng(7)
    graph = step.graph.whole
    words = {n: np.sign(w) * (rng.random(w.shape) < 0.3) for n, w in random_words(graph, 7).items()}
    for op in graph.ops:
        if isinstance(op, View) and op.x in words:
            words[op.out] = words[op.x].reshape(graph.shape(op.out))
    exponents = dict.fromkeys(words, 0)
    with GoldenAccelerator(
        parameters, memory_bytes=step.memory_bytes, interpreted=True
    ) as accelerator:
        runner = Runner(step, accelerator)
        forward = runner.run(step.forward, words, exponents, {})
        between = {**exponents, **forward.binding.exponents}
        backward = runner.run(step.backward, words, between, {})
    assert all(counted.saturations == 0 for counted in backward.counted.values())
    results = {**forward.words, **backward.words}
    return {n: results[n] for n in (*graph.results,)}, in_parts(step)


def test_divisions_of_blocks_are_along_other_axes_than_samples():
    graph = program(small_encoder(), "forward", 16)
    divisions = Divisions(ProgramSpec(graph, dict.fromkeys(graph.given, ()), {}, DEFAULT))
    divisions.use(MODES[0])
    contractions = [op for op in graph.ops if isinstance(op, Einsum)]
    axes = {pair.axis for op in contractions for pairs in divisions.alike(op) for pair in pairs}
    assert axes and not axes & {SAMPLES, SEQUENCES}


def test_sums_that_are_exact_do_not_depend_on_the_tiling(tune):
    batch, runs, parts = 96, [], []
    for size in (0, 16):
        tune("block", cuts=1, timed=1, sizes={SAMPLES: (size,) if size else ()})
        tune("choose", huge=0 if size else 2)
        words, cut = made(two_layers(), batch, SHORT)
        runs.append(words)
        parts.append(cut)
    words, cut = made(two_layers(), batch, replace(SHORT, lanes=8, pe1_rows=4, pe2_rows=4))
    assert parts[0] != parts[1]
    for other in (*runs[1:], words):
        for name, values in runs[0].items():
            np.testing.assert_array_equal(other[name], values, err_msg=name)
    assert any(values.any() for values in runs[0].values())


def test_sums_of_samples_come_after_all_blocks():
    graph = with_ones(step_graph(three_layers(), 96).backward)
    sections = sections_of(graph)
    assert sections and "l1.db" in sections.inside and not sections.before
    bias_sum = Kernel("late", ("l2.dy", "l2.db"), SUM)
    tensors = {**graph.tensors, "late": graph.tensors["l2.dy"]}
    assert sections_of(replace(graph, ops=(*graph.ops, bias_sum), tensors=tensors)) is None


def test_in_parts_lists_each_part_of_a_sum_once_whatever_the_blocks():
    """Blocks complete sums over other axes than the samples; these have the same parts in each."""
    graph = program(WIDE, "forward", 128)
    spec = ProgramSpec(graph, dict.fromkeys(graph.given, ()), {}, DEFAULT)
    choices = Chooser(spec).search(MODES[0]).choices
    of_y = tuple(choice for choice in choices if choice.op.out == "l1.y")
    stage = Stage(of_y, (("l1.r2", 4),), blocked=True)
    (choice,) = in_slices(graph, stage, DEFAULT.lanes, blocks_of(128, 16)).choices
    assert choice.op.parts == ((("l1.r2", (0, 4)),), (("l1.r2", (4, 8)),))


def program(network, which, batch):
    graph = step_graph(network, batch)
    cost = order_cost(DEFAULT)
    orders = [ordered(graph.whole, site, cost=cost)[0] for site in graph.sites.values()]
    return with_ones(getattr(graph.ordered(orders), which))


def test_arrays_have_as_much_to_do():
    """Each array computes half of the forward pass of 768 -> 768; nothing is transposed."""
    graph = program(WIDE, "forward", 1024)
    given = dict.fromkeys(graph.given, ())
    stored = dict.fromkeys((*graph.results, "l1.G1.G2.x"))
    chooser = Chooser(ProgramSpec(graph, given, stored, DEFAULT))
    best = graph.work / DEFAULT.multipliers
    for mode in MODES:
        chosen = chooser.search(mode)
        every = [
            chooser.divisions.taken(choice.op, choice.works)
            for choice in chosen.choices
            if isinstance(choice.op, Einsum)
        ]
        clocks = [sum(cycles) for cycles in zip(*every, strict=True)]
        assert len(clocks) == 2 and max(clocks) < 1.02 * best
        state = SearchState(clocks, 0.0, {}, chosen.choices, chosen.pads)
        cycles, again = balanced(chooser.divisions, state)
        assert again.choices == chosen.choices and cycles == max(clocks)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("network", "effort", "least"),
    [(WIDE, MOST_EFFORT, 0.70), (TALL, MOST_EFFORT, 0.40), (TALL, 8 * MOST_EFFORT, 0.55)],
    ids=("wide", "tall", "tall-long"),
)
def test_lowering_blocks_large_layer_fills_the_arrays(network, effort, least):
    step = compile_network(network, 1024, DEFAULT, effort=effort)
    assert step.macs / step.cycles / DEFAULT.multipliers > least
    for program in (step.forward, step.backward):
        assert check_waits(program.descriptors, DEFAULT, step.memory_bytes)


@pytest.mark.slow
def test_lowering_blocks_large_layer_is_exact():
    checked(WIDE, 128, DEFAULT)

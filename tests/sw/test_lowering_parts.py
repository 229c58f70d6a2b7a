"""Tensors between the passes in two layouts, sums divided between the arrays, chains of samples."""

from dataclasses import replace

import pytest
from graph_cases import random_words, settled
from graph_shifts import bind
from graph_values import evaluate
from hazards import check_waits

from trainwright.compiler.base.errors import CompileError
from trainwright.compiler.base.hazards import Hazards
from trainwright.compiler.base.tuning import TUNING
from trainwright.compiler.cut.slices import Stage, divided_sum, in_parts
from trainwright.compiler.forms.choices import Choice, Work
from trainwright.compiler.forms.external import External
from trainwright.compiler.forms.layout import Layout
from trainwright.compiler.step import compile as compile_module
from trainwright.compiler.step.compile import compile_network
from trainwright.fixed.scale import TensorClass
from trainwright.formats import Fixed
from trainwright.graph.ir import Einsum, Graph, Kernel, Tensor
from trainwright.network import load_network
from trainwright.parameters import AcceleratorParameters
from trainwright.program.fields import Engine
from trainwright.program.footprint import Touch

DEFAULT = AcceleratorParameters()
SMALL = load_network("fashion").with_ranks(((6, 5, 6), (6,)))
CROSSING = "l1.G1.G2.x"


@pytest.fixture(scope="module")
def step():
    return compile_network(SMALL, 64, DEFAULT)


def crossing(step, name=CROSSING):
    """Return how the forward pass stores a tensor: its parts by layout."""
    return [outer for outer in step.forward.lowered.outer.values() if outer.tensor == name]


def test_external_serves_only_readers_within_its_values_and_lanes():
    axes = ("i", "s")
    tensor = Tensor("t", axes, TensorClass.ACTIVATION, Fixed(8))
    graph = Graph({"i": 16, "s": 64}, {"t": tensor}, (), ("t",), ())
    part = External.of(graph, "t", Layout(("i",), ("s",)), {"s": (30, 64)}, 16)
    assert part.serves(("s",), {"s": (30, 64)}) and part.serves(("s",), {"s": (32, 48)})
    assert part.serves(None, {"s": (32, 48), "i": (0, 4)})
    assert not part.serves(("i",), {"s": (32, 48)})  # the other axis is along the lanes
    assert not part.serves(None, {"s": (29, 31)}) and not part.serves(None, {})
    whole = External.of(graph, "t", Layout(("i",), ("s",)), {}, 16)
    assert whole.serves(None, {}) and not whole.serves(("i",), {})


def test_each_array_stores_its_part_and_reads_the_other_backward(step):
    """Samples in lanes for PE1, which sums them; for PE2 the others, each its half of one sum."""
    parts = crossing(step)
    assert sorted(part.ranges["s"] for part in parts) == [(0, 32), (32, 64)]
    assert len({part.layout.lanes for part in parts}) == 2
    size = step.graph.whole.count(CROSSING) * 2
    assert sum(step.buffers[part.name].size for part in parts) >= size
    assert {part.name for part in parts} <= set(step.backward.lowered.outer)
    by_lanes = {part.layout.lanes: part.ranges["s"] for part in parts}
    divided = {
        choice.op.out: choice
        for stage in step.backward.lowered.stages
        for choice in stage.choices
        if CROSSING in choice.op.operands and len(choice.works) == 2
    }
    (choice,) = divided.values()
    for work in choice.works:
        (need,) = (need for need in work.impl.needs if need.tensor == CROSSING)
        assert work.cut == ("s", *by_lanes[need.lanes])
    op = {op.out: op for op in step.backward.lowered.graph.ops}[choice.op.out]
    whole = {values for cell in op.parts for axis, values in cell if axis == "s"}
    assert {n for lo, hi in whole for n in range(lo, hi)} == set(range(64))
    for program in (step.forward, step.backward):
        assert check_waits(program.descriptors, DEFAULT, step.memory_bytes)


def test_lowering_parts_one_layout_is_taken_where_backward_cannot_read_two(monkeypatch, tune):
    asked = []

    def refusing(spec):
        asked.append(any(len(sources) > 1 for sources in spec.given.values()))
        if asked[-1]:
            raise CompileError("no")
        return lower(spec)

    lower = compile_module.lower
    monkeypatch.setattr(compile_module, "lower", refusing)
    tune("order", idle_below=0)  # no second search, by plan `small`
    step = compile_network(SMALL, 64, DEFAULT)
    assert asked == [False, True, False, False]
    assert [outer.ranges for outer in crossing(step)] == [{}]


def test_lowering_parts_refusal_is_not_tried_again_where_all_lies_in_one_layout(monkeypatch):
    asked = []

    def refusing(spec):
        asked.append(spec.which)
        if spec.which == "backward":
            raise CompileError("no")
        return lower(spec)

    lower = compile_module.lower
    monkeypatch.setattr(compile_module, "lower", refusing)
    with pytest.raises(CompileError, match="no"):
        compile_network(load_network("digits"), 64, DEFAULT)
    assert asked == ["forward", "backward"] * TUNING.order.tried


def divided_choice(step):
    """Return a sum over the samples, divided between the arrays, and its stage."""
    lowered = step.backward.lowered
    for stage in lowered.stages:
        for choice in stage.choices:
            if CROSSING in choice.op.operands and len(choice.works) == 2:
                return lowered.graph, stage, choice
    raise AssertionError


def test_parts_of_a_divided_sum_are_in_the_order_of_the_arrays(step):
    graph, _, choice = divided_choice(step)
    choice = replace(choice, op=replace(choice.op, parts=None))
    cuts = [("s", work.cut[1:]) for work in choice.works]
    assert divided_sum(graph, choice, Stage((choice,))) == cuts
    (cut,) = in_parts(graph, Stage((choice,)), 16).choices
    assert cut.op.parts == tuple((part,) for part in cuts)
    # an axis that slices cut, too, is in their cells
    sliced = Stage((choice,), (("s", 16),))
    assert divided_sum(graph, choice, sliced) == []
    cells = in_parts(graph, sliced, 16).choices[0].op.parts
    assert sorted(values for ((_, values),) in cells) == [(n, n + 16) for n in range(0, 64, 16)]
    # before it comes what slices cut of other sums
    (axis,) = (a for a in graph.summed(choice.op) if a == "l1.j1")
    two = in_parts(graph, Stage((choice,), ((axis, 2),)), 16).choices[0].op.parts
    assert two == tuple(((axis, (n, n + 2)), part) for n in (0, 2) for part in cuts)


def test_lowering_parts_operation_that_is_not_divided_along_its_sum_is_whole(step):
    graph, _, choice = divided_choice(step)
    alone = Choice(replace(choice.op, parts=None), (Work(choice.works[0].impl, None),), ())
    assert divided_sum(graph, alone, Stage((alone,))) == []
    assert in_parts(graph, Stage((alone,)), 16).choices[0].op.parts is None


def test_rounding_of_the_parts_is_in_the_graph(step):
    """The sum in parts has other bits than the sum at once: the graph says which."""
    words = random_words(step.graph.whole, 1)
    exponents = dict.fromkeys(words, -3)
    _, words, exponents = settled(step.forward.lowered.graph, words, exponents)
    graph = step.backward.lowered.graph
    wanted, settled_words, _ = settled(graph, words, exponents)
    shifts = bind(graph, wanted, exponents, most_alignment=DEFAULT.most_alignment).shifts
    name = divided_choice(step)[2].op.out
    once = tuple(
        replace(op, parts=None) if isinstance(op, Einsum) and op.out == name else op
        for op in graph.ops
    )
    given = {n: words[n] for n in graph.given if n in words}
    other, _ = evaluate(replace(graph, ops=once), given, shifts)
    difference = abs(other[name] - settled_words[name])
    assert 0 < difference.max() <= len({op.out: op for op in graph.ops}[name].parts)


def test_small_operations_go_along_with_slices_of_samples():
    """`digits`: bias, ReLU and the second layer of some samples, beside the first one of others."""
    step = compile_network(load_network("digits"), 64, DEFAULT)
    chains = [
        stage
        for stage in step.forward.lowered.stages
        if any(isinstance(choice.op, Kernel) for choice in stage.choices)
    ]
    (chain,) = chains
    results = {choice.op.out for choice in chain.choices}
    assert {axis for axis, _ in chain.loops} == {"s"}
    assert results == {op.out for op in step.forward.lowered.graph.ops
                    if "s" in step.graph.whole.tensors[op.out].axes}  # fmt: skip


def test_rows_among_each_others_are_not_waited_for():
    """Two arrays write every other row; a third command reads one array's rows."""
    first = Touch("SCRATCHPAD", 0, 63, True, ((0, ((32, 2),)),))
    second = Touch("SCRATCHPAD", 1, 64, True, ((1, ((32, 2),)),))
    reading = Touch("SCRATCHPAD", 1, 64, False, ((1, ((32, 2),)),))
    hazards = Hazards()
    assert hazards.issue(Engine.PE1, (first,)).wait == Engine.NONE
    assert hazards.issue(Engine.PE2, (second,)).wait == Engine.NONE
    assert hazards.issue(Engine.STORE, (reading,)).wait == Engine.PE2

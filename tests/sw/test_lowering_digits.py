"""Tensors and factors by digits in the compiler: every word against the graph's own."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from graph_cases import (
    deep_network,
    graph_network,
    mixed_widths,
    odd_network,
    random_words,
    settled,
)
from graph_runner import Runner
from graph_shifts import Binding, bind
from graph_values import Counted, evaluate
from hazards import check_waits

from trainwright.compiler.step.compile import StepPrograms, compile_network
from trainwright.golden.backend import GoldenAccelerator
from trainwright.graph.ir import Graph
from trainwright.network import Network
from trainwright.parameters import AcceleratorParameters

pytestmark = pytest.mark.usefixtures("first_program")

P = AcceleratorParameters(word_width=8, factor_width=8, wide_tensors=True)
SMALL = replace(P, lanes=4, pe1_rows=2, pe2_rows=2, scratchpad_rows=8192)
FLAT = replace(P, lanes=8, pe1_rows=4, pe2_rows=8, nest_levels=7)
graphs = partial(graph_network, windows=False)
windows = partial(graph_network, windows=True)


def made(
    graph: Graph, words: dict[str, np.ndarray], exponents: Mapping[str, int], most: int
) -> tuple[dict[str, int], Binding, dict[str, Counted]]:
    """Return (wanted exponents, binding, statistics) and add the results to ``words``."""
    wanted, _, _ = settled(graph, dict(words), dict(exponents), most)
    binding = bind(graph, wanted, exponents, most_alignment=most)
    given = {name: words[name] for name in graph.given if name in words}
    outputs, counted = evaluate(graph, given, binding.shifts)
    words |= outputs
    return wanted, binding, counted


def checked(network: Network, batch: int, p: AcceleratorParameters, seed: int = 0) -> StepPrograms:
    """Check that each word and statistic of a step equals its graph's; return the step."""
    step = compile_network(network, batch, p)
    words = random_words(step.graph.whole, seed)
    tensors = step.graph.whole.tensors
    exponents = {name: 1 - tensors[name].format.width for name in words}
    with GoldenAccelerator(p, memory_bytes=step.memory_bytes, interpreted=True) as accelerator:
        runner = Runner(step, accelerator)
        for program in (step.forward, step.backward):
            graph = program.lowered.graph
            wanted, binding, counted = made(graph, words, exponents, p.most_alignment)
            ran = runner.run(program, words, exponents, wanted)
            exponents = {**exponents, **binding.exponents}
            assert ran.words and ran.counted
            for name, value in ran.words.items():
                np.testing.assert_array_equal(value, words[name], err_msg=name)
            assert ran.counted == {name: counted[name] for name in ran.counted}
            assert check_waits(program.descriptors, p, step.memory_bytes)
    return step


def digits_in(step: StepPrograms) -> set[int]:
    return {tensor.digits for tensor in step.graph.whole.tensors.values()}


FAST = {(odd_network, 4), (graphs, 0), (windows, 1)}


@pytest.mark.parametrize(
    ("kind", "seed"),
    [
        pytest.param(kind, seed, marks=[] if (kind, seed) in FAST else [pytest.mark.slow])
        for kind in (odd_network, graphs, windows, deep_network)
        for seed in range(8)
    ],
)
def test_random_graphs_of_any_widths_are_exact(kind, seed):
    network, batch = kind(seed)
    step = checked(mixed_widths(network, seed), batch, P, seed)
    assert max(digits_in(step)) > 1


@pytest.mark.parametrize(
    ("kind", "seed"),
    [
        pytest.param(
            kind, seed, marks=[] if kind is odd_network and seed < 3 else [pytest.mark.slow]
        )
        for kind in (odd_network, graphs, windows)
        for seed in range(1, 5)
    ],
)
@pytest.mark.parametrize("p", [SMALL, FLAT], ids=("small", "flat"))
def test_random_graphs_on_other_accelerators(p, kind, seed):
    """4 lanes, where groups of PE2's operands lie in several rows; 8 rows for 8 lanes."""
    network, batch = kind(seed)
    checked(mixed_widths(network, 10 + seed), min(batch, 17), p, seed)

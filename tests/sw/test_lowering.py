"""Programs of graphs: every word and statistic against the graph's own values, and their waits."""

import re
from collections import Counter
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from graph_cases import (
    colour_network,
    deep_network,
    graph_network,
    odd_network,
    random_words,
    settled,
)
from graph_runner import Runner
from hazards import check_waits
from slowly import mostly_slow

from trainwright.check.step import check_step
from trainwright.compiler import compile_step
from trainwright.compiler.base.compiled import PAPER, SMALL
from trainwright.compiler.base.errors import DoesNotFitError, ResourceError
from trainwright.compiler.base.limits import STREAMED
from trainwright.compiler.base.progress import followed
from trainwright.compiler.base.tuning import TUNING
from trainwright.compiler.step import lower as lower_module
from trainwright.compiler.step.compile import compile_network, order_cost
from trainwright.golden.backend import GoldenAccelerator
from trainwright.graph.ir import Einsum
from trainwright.graph.order import Site, search, varied
from trainwright.graph.remake import MARK
from trainwright.graph.step import step_graph
from trainwright.network import load_network, network_from_dict
from trainwright.parameters import AcceleratorParameters, preset
from trainwright.program.descriptors import Transfer
from trainwright.program.fields import Operation

DEFAULT = AcceleratorParameters()
FAST = ((True, 5),)
LOW = load_network("fashion").with_ranks(((12, 5, 13), (16,)))


def in_parts(step):
    """Count the parts of each sum that a step splits."""
    ops = (*step.forward.lowered.graph.ops, *step.backward.lowered.graph.ops)
    return {op.out: len(op.parts) for op in ops if isinstance(op, Einsum) and op.parts}


def stored_bytes(program):
    """Count the bytes that a program stores of each tensor."""
    stored = Counter()
    for d in program.descriptors:
        if isinstance(d, Transfer) and d.operation is Operation.STORE:
            stored[d.tensor] += d.runs * d.beats * DEFAULT.beat_bytes
    return stored


def checked(network, batch, parameters, seed=0, **options):
    """Check that each word and statistic of a step equals its graph's; return the step."""
    step = compile_network(network, batch, parameters, **options)
    words = random_words(step.graph.whole, seed)
    exponents = dict.fromkeys(words, -3)
    ahead, words, all_exponents = settled(step.forward.lowered.graph, words, exponents)
    behind, words, _ = settled(step.backward.lowered.graph, words, all_exponents)
    with GoldenAccelerator(
        parameters, memory_bytes=step.memory_bytes, interpreted=True
    ) as accelerator:
        garbage = np.random.default_rng(seed).integers(0, 256, step.memory_bytes, np.uint8)
        accelerator.write(0, garbage)
        programs = step.forward, step.backward
        computed = {op.out for program in programs for op in program.lowered.graph.ops}
        given = {name: value for name, value in words.items() if name not in computed}
        runner = Runner(step, accelerator)
        forward = runner.run(step.forward, given, exponents, ahead)
        between = {**exponents, **forward.binding.exponents}
        backward = runner.run(step.backward, given, between, behind)
    for ran in (forward, backward):
        assert ran.words.keys() and ran.counted.keys()
        for name, value in ran.words.items():
            np.testing.assert_array_equal(value, words[name], err_msg=name)
        for name, counted in ran.counted.items():
            assert counted.total == np.abs(words[name]).sum(), name
    return step


@mostly_slow("seed", (1, 2, 3, 4, 6, 8, 9, 10, 13, 14, 18, 30, 31), quick=(1, 2))
def test_random_networks_are_exact(seed):
    network, batch = odd_network(seed)
    checked(network, batch, DEFAULT, seed)


@pytest.mark.parametrize("seed", (1, pytest.param(6, marks=pytest.mark.slow)))
@pytest.mark.parametrize("name", ("ecp5-85f", "gw5ast-138c"))
def test_random_networks_on_small_accelerators(name, seed):
    network, batch = odd_network(seed)
    checked(network, batch, preset(name), seed)


@mostly_slow("seed", range(14), quick=[9])
def test_deep_networks_are_exact(seed):
    network, batch = deep_network(seed)
    checked(network, batch, DEFAULT, seed)


@pytest.mark.parametrize("batch", (1, 33))
def test_layers_of_one_factor_are_exact(batch):
    """Dense layers, beside one of two factors."""
    layers = [
        {"outputs": [37], "inputs": [64], "ranks": [], "relu": True},
        {"outputs": [5, 3], "inputs": [1, 37], "ranks": [4], "relu": True},
        {"outputs": [10], "inputs": [15], "ranks": []},
    ]
    network = network_from_dict({"classes": 10, "image": [8, 8], "layers": layers})
    checked(network, batch, DEFAULT)


@pytest.mark.slow
def test_views_are_not_taken_of_rows_that_lie_otherwise():
    """A tensor that is stored in between lies by axes that its view, of other factors, lacks."""
    layers = [
        {"outputs": [3, 5, 2], "inputs": [6, 2, 2], "ranks": [3, 2], "relu": True},
        {"outputs": [2, 2, 3], "inputs": [5, 2, 3], "ranks": [3, 2], "relu": True},
        {"outputs": [2, 1], "inputs": [6, 2], "ranks": [2]},
    ]
    network = network_from_dict({"classes": 2, "image": [12, 2], "layers": layers})
    with pytest.raises(DoesNotFitError, match="needs 320 rows of the scratchpad, there are 512"):
        compile_network(network, 64, AcceleratorParameters(scratchpad_rows=512))


def test_tensors_that_are_but_large_are_sliced_where_nothing_else_fits(monkeypatch):
    layer = {"outputs": [3, 7], "inputs": [9, 6], "ranks": [3]}
    network = network_from_dict({"classes": 2, "image": [9, 6], "layers": [layer]})
    few = AcceleratorParameters(scratchpad_rows=128)
    checked(network, 16, few)
    monkeypatch.setattr(lower_module, "SCARCE_MODES", ())
    with pytest.raises(DoesNotFitError, match=r"needs \d+ rows of the scratchpad"):
        compile_network(network, 16, few)


@pytest.mark.slow
def test_lowering_stores_tensor_before_first_of_its_loads():
    """Parts of the first layer's results are stored, and slices of them loaded, of all parts."""
    few = AcceleratorParameters(lanes=8, pe1_rows=4, pe2_rows=8, scratchpad_rows=1024)
    checked(load_network("digits"), 64, few)


@pytest.mark.slow
def test_digits_with_few_rows():
    checked(load_network("digits"), 64, AcceleratorParameters(scratchpad_rows=256))


def test_sums_in_parts_are_exact():
    network, batch = odd_network(3)
    step = checked(network, batch, AcceleratorParameters(scratchpad_rows=1024), 3)
    assert in_parts(step).items() >= {"l1.db": 4, "l1.x.dy": 4}.items()
    for program in (step.forward, step.backward):
        assert stored_bytes(program) == {
            outer.tensor: step.buffers[outer.name].size
            for outer in program.lowered.outer.values()
            if outer.tensor in stored_bytes(program)
        }


@pytest.mark.parametrize(
    ("network", "most"),
    [(load_network("digits"), 15_100), pytest.param(LOW, 161_000, marks=pytest.mark.slow)],
    ids=("digits", "low"),
)
def test_networks_are_exact_and_fast(network, most):
    step = checked(network, 64, DEFAULT)
    assert step.cycles <= most
    for program in (step.forward, step.backward):
        assert check_waits(program.descriptors, DEFAULT, step.memory_bytes)


def test_lowering_papers_order_is_exact_and_has_its_products():
    step = checked(load_network("digits"), 64, DEFAULT, plan=PAPER)
    paper = compile_step(load_network("digits"), 64, DEFAULT, plan="paper")
    assert paper.plan == "paper"
    assert (paper.macs, paper.predicted_cycles) == (step.macs, step.cycles)


@pytest.mark.parametrize(
    ("network", "batch"),
    [
        (load_network("digits"), 32),
        pytest.param(LOW, 32, marks=pytest.mark.slow),
        odd_network(9),  # reads a product twice
        pytest.param(load_network("fashion"), 16, marks=pytest.mark.slow),
    ],
    ids=("digits", "low", "odd", "fashion"),
)
def test_lowering_small_step_is_exact_and_keeps_no_products(network, batch, tune):
    """Contractions equal the fast step's; some occur in both passes."""
    tune("order", idle_below=0)  # "auto" takes the small step where it is the faster one
    fast, small = checked(network, batch, DEFAULT), checked(network, batch, DEFAULT, plan=SMALL)
    assert [order.text for order in small.orders] == [order.text for order in fast.orders]
    ahead, behind = (program.lowered.graph for program in (small.forward, small.backward))
    again = {op.out: op for op in behind.ops if op.out.endswith(MARK)}
    assert len(behind.makers) == len(behind.ops)
    assert again.keys() >= {name + MARK for name in _crossing(fast)} and not _crossing(small)
    assert {name.removesuffix(MARK) for name in again} <= ahead.makers.keys()
    assert small.macs == fast.macs + sum(map(behind.products, again.values()))


@pytest.mark.parametrize("most", (360_000, pytest.param(300_000, marks=pytest.mark.slow)))
@pytest.mark.usefixtures("first_program")
def test_compile_auto_of_idle_arrays_makes_products_again(most, tune):
    """48 samples take two thirds of the multipliers where a large product crosses the passes."""
    network = load_network("fashion")
    step = compile_network(network, 48, DEFAULT)
    assert not _crossing(step) and step.cycles < most
    tune("order", idle_below=0)
    kept = compile_network(network, 48, DEFAULT)
    assert _crossing(kept) and kept.cycles > 1.15 * step.cycles


def test_compile_second_search_keeps_to_a_share_of_the_effort(tune):
    """With a small effort it ends at its first program: more effort evaluates twice as much."""
    efforts = []
    for share in (TUNING.effort.small_share, 75.0):
        tune("effort", small_share=share)
        with followed() as progress:
            compile_network(load_network("fashion"), 48, DEFAULT, effort=1000)
        efforts.append(progress.effort)
    assert efforts[0] < 20_000 < efforts[1]


def test_order_cost_of_large_crossing_product_counts_it_twice():
    graph = step_graph(load_network("fashion"), 48)
    contractions = next(iter(graph.sites.values()))
    kept, again = (
        Site(graph.whole, contractions, order_cost(DEFAULT, remade=remade))
        for remade in (False, True)
    )
    (tree,) = search(graph.whole, contractions, cost=kept.cost, most=1)
    leaves = sum(1 << kept.leaves.index(name) for name in ("l1.G1", "l1.G2", "l1.x"))
    assert again.recomputed(tree) == kept.recomputed(tree) + kept.cost_of(*tree[leaves])


def _first_layer(ranks, cost) -> Site:
    graph = step_graph(load_network("fashion").with_ranks(ranks), 64)
    return Site(graph.whole, next(iter(graph.sites.values())), cost)


def test_order_cost_of_large_product_counts_the_array_that_waits():
    """Large are G1 G2 X and G3 G4 Y', of 12 * 16 * 64 * 32 values each.

    Products that make or read G1 G2 X have 28, 32 (Y) and 32 times as many terms (in the other
    program): what one array reads alone beyond what the other one makes is 4 and 32 times. Making
    G3 G4 Y' takes longer than reading it. The rows of both take a cycle each.
    """
    site = _first_layer(((12, 12, 12), (12,)), order_cost(DEFAULT, remade=True))
    text = "G1.G2=G1*G2 G3.G4=G3*G4 G1.G2.x=G1.G2*x G3.G4.dy=G3.G4*dy y=G1.G2.x*G3.G4"
    text += " G1.G2.x.dy=G1.G2.x*dy G3.G4.x.dy=G3.G4.dy*x"
    bit = {leaf.removeprefix("l1."): 1 << n for n, leaf in enumerate(site.leaves)}
    bit["y"] = site.whole ^ bit["dy"]
    tree = {}
    for out, first, second in (re.split("[=*]", product) for product in text.split()):
        bit.setdefault(out, bit[first] | bit[second])
        tree[bit[out]] = bit[first], bit[second]
    large = 12 * 16 * 64 * 32
    assert site.waited(tree) == 2 * large // 16 * DEFAULT.multipliers + (4 + 32) * large


def test_order_search_of_products_made_again_ends_where_no_neighbour_is_cheaper():
    site = _first_layer(((2, 14, 8), (16,)), order_cost(DEFAULT, remade=True))
    (best,) = search(site.graph, site.contractions, cost=site.cost, most=1)
    targets = sorted(set(site.wanted.values()))
    assert site.total(best) <= min(map(site.total, varied(site, best, targets)))


def test_compile_of_uneven_ranks_takes_no_longer_than_rank_16():
    """Rank 12 has three quarters of the products; the order of fewest takes 543,149 cycles."""
    network = load_network("fashion").with_ranks(((12, 12, 12), (12,)))
    assert compile_network(network, 64, DEFAULT, plan=SMALL).cycles < 330_000


def _crossing(step) -> set[str]:
    """Return products of factors, or of factors and inputs, that cross the passes."""
    ahead, behind = (program.lowered.graph for program in (step.forward, step.backward))
    products = {op.out for op in ahead.ops if isinstance(op, Einsum)}
    return {name for name in products & set(behind.given) if "." in name[3:]}


@pytest.mark.parametrize("seed", (3, 6))
def test_gradients_to_inputs_are_exact(seed):
    network, batch = odd_network(seed)
    step = checked(network, batch, DEFAULT, seed, inputs=True)
    assert "dx" in step.graph.backward.results


POSITS = {
    "factor": "posit(4,0)",
    "activation": "posit(8,0)",
    "intermediate": "posit(8,1)c",
    "gradient": "posit(8,1)c",
}


@mostly_slow("underflow", ("gradients", "never", "zero"), quick=["gradients"])
def test_posits_are_exact(underflow):
    network = load_network("digits").with_formats({**POSITS, "underflow": underflow})
    formats = tuple(dict.fromkeys(POSITS.values()))
    step = checked(network, 64, AcceleratorParameters(formats=formats))
    results = {op.out: step.graph.whole.tensors[op.out].format for op in step.graph.whole.ops}
    products = {f"{layer}.G1.G2" for layer in ("l1", "l2")}  # of factors alone: fixed point
    assert {name for name, form in results.items() if str(form) not in formats} == products
    assert all(str(results[name]).startswith("fixed") for name in products)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            128,
            r"l1\.G1\.G2 has 8,192 values, 512 rows .* are 128, and no cut of it fits .*=512 or",
        ),
        (512, r"l\d\.\w+ needs \d+ rows of the scratchpad, there are 512, \d+ of them .*=\d+ or"),
    ],
)
def test_lowering_names_tensor_that_does_not_fit(rows, message):
    with pytest.raises(DoesNotFitError, match=message):
        compile_network(load_network("digits"), 64, AcceleratorParameters(scratchpad_rows=rows))


def test_programs_longer_than_their_memory_are_exact():
    parameters = AcceleratorParameters(program_depth=8)
    step = checked(load_network("digits"), 64, parameters)
    whole = compile_network(load_network("digits"), 64, DEFAULT)
    assert len(step.backward.descriptors) == len(whole.backward.descriptors) > 32
    assert step.cycles < 1.05 * whole.cycles


def test_lowering_program_that_is_too_long_is_named(monkeypatch):
    short = replace(STREAMED, fixed=16)
    monkeypatch.setattr("trainwright.compiler.step.lower.STREAMED", short)
    message = r"program needs \d+ descriptors, there are 16; use fewer layers or a smaller batch"
    with pytest.raises(ResourceError, match=message):
        compile_network(load_network("digits"), 64, DEFAULT)


FEW_SAMPLES = ((True, 114), (True, 134), (True, 138))
"""Cases in which samples fill fewer lanes than the positions of windows, which cannot lie there."""
GRAPHS = [
    pytest.param(windows, seed, marks=[] if (windows, seed) in FAST else [pytest.mark.slow])
    for windows in (False, True)
    for seed in range(8)
]
GRAPHS += [
    pytest.param(*sample, marks=[] if sample == FEW_SAMPLES[0] else [pytest.mark.slow])
    for sample in FEW_SAMPLES
]
AS_MANY_ROWS = (True, 14)
"""Some samples of an image with zeros around it have as many rows as all of it outside."""
GRAPHS += [AS_MANY_ROWS]


@pytest.mark.parametrize(("windows", "seed"), GRAPHS)
def test_random_graphs_are_exact(windows, seed):
    network, batch = graph_network(seed, windows=windows)
    step = checked(network, batch, DEFAULT, seed)
    for program in (step.forward, step.backward):
        assert check_waits(program.descriptors, DEFAULT, step.memory_bytes)


@pytest.mark.parametrize("seed", (0, pytest.param(1, marks=pytest.mark.slow)))
@pytest.mark.usefixtures("first_program")
def test_images_of_several_channels_are_exact(seed):
    """In a batch of 4 channels lie along the lanes: a layer that reads the image has other axes."""
    network, batch = colour_network(seed)
    step = checked(network, batch, DEFAULT, seed, inputs=True)
    for program in (step.forward, step.backward):
        assert check_waits(program.descriptors, DEFAULT, step.memory_bytes)


@pytest.mark.usefixtures("first_program")
def test_gradient_of_an_image_in_external_memory_is_exact():
    """The gradient is stored in slices as the layer has its axes, and read as pixels."""
    layer = {"from": "x", "kernel": [3, 3], "padding": [1, 1]}
    network = network_from_dict({
        "classes": 2, "image": [8, 128], "inputs": [{"name": "x", "channels": 16}],
        "layers": [{**layer, "outputs": [4, 4], "inputs": [9, 16], "ranks": [4]}],
    })  # fmt: skip
    parameters = AcceleratorParameters(scratchpad_rows=2048)
    step = checked(network, 16, parameters, inputs=True)
    outer = {outer.tensor: outer.view_of for outer in step.backward.lowered.outer.values()}
    assert outer["dx"] == "l1.dx" and outer["l1.dx"] == ""
    assert check_waits(step.backward.descriptors, parameters, step.memory_bytes)


def test_statistics_of_sums_over_stored_slices_count_no_row_of_zeros():
    """Slices are stored without the rows of zeros behind seven rows, and loaded whole."""
    layer = {"outputs": [7, 5, 2], "inputs": [3, 4, 4], "ranks": [6, 7], "relu": False}
    network = network_from_dict({"classes": 2, "image": [6, 8], "layers": [layer]})
    step = checked(network, 128, AcceleratorParameters(scratchpad_rows=1024), inputs=True)
    padded = {outer.tensor: outer.layout.padded for outer in step.backward.lowered.outer.values()}
    assert padded["l1.x.dy"] == ()


def test_gradients_through_strides_are_exact():
    """Zeros lie between the values of what windows are of."""
    windows = {"kernel": [3, 2], "padding": [1, 0], "stride": [2, 2]}
    layers = [
        {"outputs": [1, 2], "inputs": [6, 1], "ranks": [2], **windows},
        {"outputs": [1, 2], "inputs": [6, 2], "ranks": [2], **windows},
        {"outputs": [1, 2], "inputs": [2, 2], "ranks": [2]},
    ]
    network = network_from_dict({"classes": 2, "image": [5, 4], "layers": layers})
    checked(network, 3, DEFAULT)


@pytest.mark.slow
@pytest.mark.parametrize(("batch", "most"), [(8, 250_000), (64, 1_400_000)])
def test_fashion_on_a_short_scratchpad(batch, most):
    """Slices of huge tensors, sums in parts along several axes, programs longer than the memory."""
    step = checked(load_network("fashion"), batch, preset("ecp5-85f"))
    sums = [op for op in step.backward.lowered.graph.ops if isinstance(op, Einsum) and op.parts]
    assert batch < 64 or any(op.parts and len(op.parts[0]) > 1 for op in sums)
    memories = 4 if batch == 64 else 1
    assert len(step.backward.descriptors) > memories * preset("ecp5-85f").program_depth
    assert step.cycles <= most
    for program in (step.forward, step.backward):
        assert check_waits(program.descriptors, preset("ecp5-85f"), step.memory_bytes)


@pytest.mark.slow
def test_fashion_with_an_sdram():
    """Both arrays make slices and read each other's, what is read again stays where it is."""
    parameters = preset("ecp5-85f-sdram")
    step = checked(load_network("fashion"), 64, parameters)
    assert step.cycles <= 940_000
    (stage,) = (s for s in step.backward.lowered.stages if len(s.choices) == 4)
    choice = next(choice for choice in stage.choices if choice.op.out == "l1.x.dy")
    assert len(choice.works) == 2 and "l1.x" in dict(stage.kept)
    for program in (step.forward, step.backward):
        assert check_waits(program.descriptors, parameters, step.memory_bytes)


@pytest.mark.slow
@pytest.mark.parametrize("batch", (8, 32, 64))
def test_fashion_conv_is_exact(batch):
    """Windows in slices along positions and samples, sums in parts, tensors that are spilled."""
    checked(load_network("fashion-conv"), batch, DEFAULT)


@pytest.mark.parametrize("kind", (odd_network, partial(graph_network, windows=False)))
def test_lowering_driver_takes_a_graph(kind):
    parameters = AcceleratorParameters()
    with GoldenAccelerator(parameters, memory_bytes=1 << 22) as golden:
        if golden.interpreted:
            pytest.skip("no C compiler")
        network, batch = kind(3)
        result = check_step(network, batch, golden)
    assert result.comparison.values and not result.comparison.differing

"""Functions in networks of coded formats: fixed point around them, casts, and exact programs."""

import random

import pytest
from format_kinds import KINDS
from function_networks import image_network, two_layers, with_functions
from graph_cases import colour_network, graph_network
from group_cases import require_exact
from sequence_networks import classifier, decoder, dropping_classifier, small_encoder
from slowly import mostly_slow
from test_overlapping_pools import CASES as POOLS
from test_overlapping_pools import pooling

from trainwright.compiler.step.compile import compile_network
from trainwright.functions import FunctionKernel
from trainwright.golden.backend import GoldenAccelerator
from trainwright.graph.ir import Einsum, Kernel
from trainwright.graph.step import step_graph
from trainwright.network import load_network, network_from_dict
from trainwright.parameters import AcceleratorParameters
from trainwright.program.elementwise import MASK, SUM

pytestmark = pytest.mark.usefixtures("first_programs")

POSITS, FLOATS = [kind.training for kind in KINDS.values()][:2]
MIXED = (
    "activation=posit(8,0)", "gradient=float(4,3)", "intermediate=posit(8,1)c,gradient=fixed(16)",
)  # fmt: skip
FORMATS = (*(kind.training for kind in KINDS.values()), *MIXED)


def engine_for(network):
    """Return an accelerator with a vector engine and the formats of a network."""
    names = dict.fromkeys(str(fmt) for _, fmt in network.coded_used)
    return AcceleratorParameters(vector_engine=1, pe1_rows=2, pe2_rows=2, formats=tuple(names),
                                 scratchpad_rows=32768)  # fmt: skip


def require_golden(network, batch, seed=0):
    """Compile a step; require that the golden model has the values of its graph."""
    p = engine_for(network)
    step = compile_network(network, batch, p, effort=1)  # any program has these values
    with GoldenAccelerator(p, memory_bytes=step.memory_bytes) as golden:
        require_exact(step, golden, seed)
    return step


RELU_AND_POOL = image_network({"pool": [2, 4], "function": "max_pool"}, [4, 16])


@pytest.mark.parametrize(
    "network", (small_encoder(), two_layers("gelu"), pooling(*POOLS[0]), RELU_AND_POOL)
)
def test_functions_have_fixed_point_and_products_of_two_coded_operands(network):
    step = step_graph(network.with_formats(FLOATS), 2)
    tensors, casts = step.whole.tensors, 0
    for op in step.whole.ops:
        formats = [tensors[name].format for name in (op.out, *op.operands)]
        if isinstance(op, Kernel) and isinstance(op.body, FunctionKernel):
            assert all(fmt.width in (2, 15, 16) and not fmt.coded for fmt in formats), op
        elif isinstance(op, Kernel) and op.body == MASK:
            assert formats[0] == formats[1], op
        elif isinstance(op, Einsum) and tensors[op.out].exact:
            assert formats[0] == formats[2], op  # a copy of windows, selected by words of 1
        elif isinstance(op, Einsum) and len(op.operands) > 1:
            assert all(fmt.coded or fmt.width == 2 for fmt in formats[1:]), op
        elif isinstance(op, Einsum) and not step.whole.summed(op):
            casts += 1
            assert formats[0].coded != formats[1].coded, op
    assert casts
    # Fixed point has no rule for sums that underflow: its words have the digits' flag there.
    assert not any(t.zero for t in tensors.values() if not t.format.coded)
    assert all(tensors[name].format.coded for name in ("l1.G1", step.whole.given[0]))


def test_sum_that_rounds_reads_coded_operand_without_cast():
    step = step_graph(small_encoder().with_formats(FLOATS), 2)
    sums = [op for op in step.whole.ops if isinstance(op, Kernel) and op.body == SUM]
    formats = {str(step.whole.tensors[op.operands[0]].format) for op in sums}
    assert formats == {"fixed(16)", "float(2,3)", "float(4,3)"}


def test_network_without_functions_has_no_tensor_in_fixed_point_but_biases():
    network = load_network("digits").with_formats(FLOATS)
    tensors = step_graph(network, 2).whole.tensors.values()
    assert {t.name for t in tensors if not t.format.coded} == {"l1.b", "l2.b"}


@mostly_slow("formats", FORMATS, quick=(*FORMATS[:2], FORMATS[-1]))
def test_encoder_in_coded_formats_has_the_values_of_its_graph(formats):
    require_golden(small_encoder().with_formats(formats), 1)


@mostly_slow("seed", range(6), quick=range(3))
def test_random_networks_with_functions_in_coded_formats_have_the_values_of_their_graphs(seed):
    draw = random.Random(f"coded {seed}")
    network, batch = colour_network(seed) if seed % 3 == 1 else graph_network(seed, windows=False)
    network = with_functions(network, seed).with_formats(draw.choice(FORMATS))
    require_golden(network, min(batch, 8), seed)


def of_input(table):
    """Describe a table that reads the image itself, and a layer behind it."""
    layer = {"outputs": [1, 16], "inputs": [8, 8], "ranks": [4]}
    return network_from_dict({"classes": 4, "image": [8, 8], "layers": [table, layer]})


OTHERS = {
    "padding and a mean of tokens": (classifier(), 2),
    "first token": (classifier(over="first"), 2),
    "dropout": (dropping_classifier(), 2),
    "causal attention": (decoder(padding=True), 2),
    "overlapping pool": (pooling(*POOLS[0]), 3),
    "padded pool": (pooling(*POOLS[1]), 3),
    "pool": (RELU_AND_POOL, 3),
    "function over channels": (image_network({"function": "batch_norm(0.25, 0.5)"}, [8, 64]), 3),
    "function of the image": (of_input({"function": "tanh"}), 5),
    "norm of the image": (of_input({"norm": "layer"}), 5),
}


@pytest.mark.parametrize("formats", (FLOATS, pytest.param(POSITS, marks=pytest.mark.slow)))
@pytest.mark.parametrize("name", OTHERS)
def test_every_kind_of_function_in_coded_formats_has_the_values_of_its_graph(name, formats):
    network, batch = OTHERS[name]
    require_golden(network.with_formats(formats), batch)

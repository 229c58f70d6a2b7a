"""What bounds a network, and what is said where it is too large: the resource, need and remedy."""

import contextlib
import re
from dataclasses import replace

import pytest
from odd_networks import odd_network

from trainwright.compiler import PLANS, CompileError
from trainwright.compiler.errors import ResourceError
from trainwright.compiler.nests import fitted
from trainwright.compiler.step import PAPER
from trainwright.lowering import compile_step
from trainwright.network import Layer, Network, load_network
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Compute, Level
from trainwright.program.fields import Operation

P = AcceleratorParameters()


def one_layer(layer: Layer) -> Network:
    size = layer.input_size
    return Network("test", (layer,), 2, (1, size), (1, size))


def stack(count: int, order: int = 2) -> Network:
    sizes = (*[2] * (order - 1), 16)
    layer = Layer(sizes, sizes, (2,) * (order - 1), relu=True)
    layers = (*[layer] * (count - 1), replace(layer, relu=False))
    return Network("stack", layers, 2, (1, layer.input_size), (1, layer.input_size))


def test_what_bounds_the_layers():
    """The paper's loops over the samples need registers; what is searched has no such bound."""
    compile_step(stack(4), 2, P, plan="paper")
    with pytest.raises(CompileError, match=r"backward program needs 9 address registers .* are 7;"):
        compile_step(stack(5), 2, P, plan="paper")
    with pytest.raises(CompileError, match=r"forward program needs 8 address registers .* are 7;"):
        compile_step(stack(7), 2, P, plan="paper")
    step = compile_step(stack(12), 2, P)
    assert len(step.backward.tensors) > P.statistics_depth


@pytest.mark.parametrize("plan", PLANS)
def test_external_memory_that_cannot_be_addressed(plan):
    p = replace(P)
    object.__setattr__(p, "address_width", 16)  # of 32 bits no network needs as many
    with pytest.raises(CompileError, match=r"external memory, addresses of 16 bits reach 65536"):
        compile_step(load_network("digits"), 64, p, plan=plan)


def test_advice_fits_what_is_lacking():
    """A full factor store is no matter of the batch, and the size that is named is enough."""
    network = one_layer(Layer((32, 32), (96, 96), (4,)))
    with pytest.raises(CompileError) as found:
        compile_step(network, 64, P, plan="paper")
    text = str(found.value)
    assert "batch" not in text
    advised = re.search(r"pe1_store_depth=(\d+) or more", text)
    assert advised
    compile_step(network, 64, replace(P, pe1_store_depth=int(advised[1])), plan="paper")


@pytest.mark.parametrize("seed", range(30))
def test_any_network_ends_in_a_plan_or_an_error(seed):
    network, batch, p = odd_network(seed)
    for plan in PLANS if seed == 2 else (PAPER,):
        with contextlib.suppress(CompileError):
            compile_step(network, batch, p, plan=plan)


def test_summed_levels_that_alone_fill_a_nest():
    """A nest is split along what it makes, never along what it sums."""
    summed = (Level(3, x=1), Level(2, x=9), Level(2, x=33))
    made = (Level(5, x=100, z=40), Level(2, g=1, z=8))
    d = Compute(
        operation=Operation.PE3, levels=(*made, *summed), reduce_levels=3, tile_level=1,
        x=0, g=0, z=0, last_rows=2, tensor="l1.y",
    )  # fmt: skip
    assert [len(part.levels) for part in fitted(d, 5)] == [5]
    assert [(part.x, part.z, len(part.levels)) for part in fitted(d, 4)] == [
        (100 * n, 40 * n, 4) for n in range(5)
    ]
    with pytest.raises(
        ResourceError, match=r"l1\.y is summed over 3 loop levels.* have 3"
    ) as error:
        fitted(d, 3)
    assert str(error.value).endswith("use one with nest_levels=4 or more")

"""Limits of a network, and errors beyond them: resource, need and remedy."""

import contextlib
from dataclasses import replace

import pytest
from odd_networks import odd_network

from trainwright.compiler import PLANS, CompileError, compile_step
from trainwright.compiler.base.errors import ResourceError
from trainwright.compiler.forms.nests import fitted
from trainwright.network import Layer, Network, load_network
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Compute, Level
from trainwright.program.fields import Operation

P = AcceleratorParameters()


def stack(count: int, order: int = 2) -> Network:
    sizes = (*[2] * (order - 1), 16)
    layer = Layer(sizes, sizes, (2,) * (order - 1), relu=True)
    layers = (*[layer] * (count - 1), replace(layer, relu=False))
    return Network("stack", layers, 2, (1, layer.input_size), (1, layer.input_size))


@pytest.mark.usefixtures("first_program")
def test_any_number_of_layers():
    """Tensors more than statistics slots: they share them."""
    step = compile_step(stack(12), 2, P)
    assert len(step.backward.tensors) > P.statistics_depth


@pytest.mark.usefixtures("first_program")
@pytest.mark.parametrize("plan", PLANS)
def test_external_memory_that_cannot_be_addressed(plan):
    p = replace(P)
    object.__setattr__(p, "address_width", 16)  # of 32 bits no network needs as many
    with pytest.raises(CompileError, match=r"external memory, addresses of 16 bits reach 65536"):
        compile_step(load_network("digits"), 256, p, plan=plan)


RANDOM = [
    pytest.param(seed, plan, marks=[pytest.mark.slow] * (seed > 2 or seed % len(PLANS) != number))
    for seed in range(9)
    for number, plan in enumerate(PLANS)
]


@pytest.mark.parametrize(("seed", "plan"), RANDOM)
def test_any_network_ends_in_a_plan_or_an_error(seed, plan):
    network, batch, p = odd_network(seed)
    with contextlib.suppress(CompileError):
        compile_step(network, batch, p, plan=plan)


def test_summed_levels_that_alone_fill_a_nest():
    """A nest is split along what it makes, never along what it sums."""
    summed = (Level(3, x=1), Level(2, x=9), Level(2, x=33))
    outer_levels = (Level(5, x=100, z=40), Level(2, g=1, z=8))
    d = Compute(
        operation=Operation.PE3, levels=(*outer_levels, *summed), reduce_levels=3, tile_level=1,
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

"""What bounds a network, and what is said where it is too large: the resource, need and remedy."""

import contextlib
import re
from dataclasses import replace

import pytest
from odd_networks import odd_network

from trainwright.compiler import PLANS, CompileError, NotPlannedError, compile_step, plan_layers
from trainwright.compiler.errors import ResourceError
from trainwright.compiler.nests import fitted
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
    """The paper's loops over the samples need registers, planned programs statistics slots."""
    compile_step(stack(4), 2, P, plan="paper")
    with pytest.raises(CompileError, match=r"backward program needs 9 address registers .* are 7;"):
        compile_step(stack(5), 2, P, plan="paper")
    with pytest.raises(CompileError, match=r"forward program needs 8 address registers .* are 7;"):
        compile_step(stack(7), 2, P, plan="paper")
    for layers in (5, 8):
        assert compile_step(stack(layers), 2, P).layers
    needs = r"no other plan takes .* backward program needs (\d+) statistics slots .* are 64$"
    graph = compile_step(stack(10), 2, P)
    found = re.search(needs, graph.fallback)
    assert found and graph.plan == "graph" and not graph.layers
    needed = int(found[1])
    enough = replace(P, statistics_depth=128)
    assert len(compile_step(stack(10), 2, enough).backward.tensors) == needed


def test_order_4_is_refused_for_what_it_lacks():
    with pytest.raises(CompileError, match=r"statistics_depth=128 or more$"):
        plan_layers(stack(5, order=4), 2, P)
    compile_step(stack(5, order=4), 2, replace(P, statistics_depth=128))


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


def test_a_fallback_is_said_with_its_reasons():
    network = one_layer(Layer((32, 16), (96, 16), (4,)))
    step = compile_step(network, 64, P)
    assert not step.layers
    assert step.plan == "graph"
    assert re.search(r"and no planned program fits: l1\.dw needs \d+ rows", step.fallback)
    with pytest.raises(NotPlannedError) as found:
        plan_layers(network, 64, P)
    kinds = {(one.layer, one.forward, one.kind, one.bond) for one in found.value.refusals}
    measured = {one.plan.bond for one in found.value.alternatives if one.forward}
    assert measured == {1}
    assert kinds == {
        (1, True, "bidirectional", 1),
        (1, False, "bidirectional", 1),
        (1, False, "full", 1),
    }
    assert not compile_step(load_network("digits"), 64, P).fallback


def test_a_candidate_that_does_not_fit_is_refused_with_what_it_lacks():
    refusals = plan_layers(load_network("fashion"), 64, P).refusals
    reasons = {(r.layer, r.forward, r.kind, r.bond): r.reason for r in refusals}
    assert re.match(r"l1\.right needs 16384 rows of the scratchpad", reasons[1, True, "rebuild", 1])
    assert "times the multiply-accumulates" in reasons[2, False, "bidirectional", 1]
    assert "not bidirectional" in reasons[1, False, "bidirectional", 2]


@pytest.mark.parametrize("seed", range(30))
def test_any_network_ends_in_a_plan_or_an_error(seed):
    network, batch, p = odd_network(seed)
    try:
        planned = plan_layers(network, batch, p)
    except NotPlannedError as error:
        assert error.refusals
    except CompileError as error:
        assert "must be a multiple of the accelerator's" in str(error)
    else:
        assert len(planned.layers) == len(network.layers)
    for plan in PLANS if seed < 4 else PLANS[1:]:  # auto is that of the graph for odd sizes
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

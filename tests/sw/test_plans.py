"""The planned schedules compute the layer's own equations: integers small enough to be exact."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from cases import random_case
from hazards import check_step_waits

from trainwright.compiler import CompileError, compile_step, plan_layers
from trainwright.compiler.plans import LayerPlan
from trainwright.driver import Driver, QuantisedModel
from trainwright.fixed.scale import Scales
from trainwright.golden.backend import GoldenAccelerator
from trainwright.network import Layer, Network, Widths, load_network
from trainwright.parameters import AcceleratorParameters

WIDE = Widths(factor=4, bias=8, activation=16, gradient=16, intermediate=16)
"""Wide enough for every sum below."""
INPUT = 1 - WIDE.activation
"""Exponent of the inputs; the factors have 0."""


def matrix(factors: list[torch.Tensor]) -> torch.Tensor:
    """W (J, I) of factors (R, J, I, S)."""
    w = factors[0]
    for g in factors[1:]:
        w = torch.einsum("ajib,bkmc->ajkimc", w, g)
        r, j, k, i, m, s = w.shape
        w = w.reshape(r, j * k, i * m, s)
    return w[0, :, :, 0]


def sparse(shape: tuple[int, ...], nonzero: float, rng: torch.Generator) -> torch.Tensor:
    """Values of -1, 0 and 1."""
    signs = torch.randint(0, 2, shape, generator=rng) * 2 - 1
    return signs * (torch.rand(shape, generator=rng) < nonzero)


class Exactly(dict):
    """Exponents that keep every value: of W X' and of what has no factor of X."""

    def get(self, name: str, default: int = 0) -> int:
        """Gradients of the sums and of biases carry no input, weights' gradients one."""
        what = name.split(".")[1] if "." in name else name
        if what.startswith(("dx", "dy", "u", "db")):
            return 0
        return INPUT if what.startswith(("d", "r")) else default


def check(network: Network, batch: int, p: AcceleratorParameters, plan, seed: int) -> None:
    """One step in integers that nothing rounds: equal to the equations, gradient by gradient."""
    rng = torch.Generator().manual_seed(seed)
    factors = [
        [sparse(shape, min(1.0, 4 / (shape[0] * shape[2])), rng) for shape in layer.factor_shapes]
        for layer in network.layers
    ]
    x = sparse((batch, network.layers[0].input_size), 0.3, rng)
    gradient = sparse((batch, network.layers[-1].output_size), 0.3, rng).double()
    biases = [None for _ in network.layers]
    exponents = [[0] * layer.order for layer in network.layers]
    model = QuantisedModel(network, factors, exponents, biases)
    step = compile_step(network, batch, p, plan=plan)
    check_step_waits(step)
    with GoldenAccelerator(p, memory_bytes=step.memory_bytes) as accelerator:
        driver = Driver(accelerator, network, batch, plan=plan)
        scales = Scales(exponents=Exactly())
        forward = driver.forward(x, model, scales)
        backward = driver.backward(gradient, scales)
    for name, counted in (forward.statistics | backward.statistics).items():
        assert counted.saturations == 0, f"{name}: the test's integers are too large"
    parameters = [[g.double().requires_grad_() for g in layer] for layer in factors]
    shifts = []
    h = x.double() * 2.0**INPUT
    for layer, own in zip(network.layers, parameters, strict=True):
        shift = torch.zeros(layer.output_size, dtype=torch.float64, requires_grad=True)
        shifts.append(shift)
        h = h @ matrix(own).T + shift
        h = h.relu() if layer.relu else h
    h.backward(gradient)
    assert torch.equal(forward.logits, h.detach())
    for number, own in enumerate(parameters):
        for n, g in enumerate(own):
            assert g.grad is not None
            assert torch.equal(backward.factors[number][n], g.grad), f"l{number + 1}.G{n + 1}"
        found = backward.biases[number]
        if found is not None:
            assert torch.equal(found, shifts[number].grad), f"l{number + 1}.b"


def every_plan(
    network: Network, batch: int, p: AcceleratorParameters
) -> Iterator[tuple[LayerPlan, ...]]:
    """What the planner chose, and that with each of the alternatives for one layer."""
    planned = plan_layers(network, batch, p)
    yield planned.layers
    for one in dict.fromkeys((a.layer, a.plan, a.forward) for a in planned.alternatives):
        number, way, forward = one
        layer = planned.layers[number - 1]
        if way in (layer.forward, layer.backward):
            continue
        changed = replace(layer, **{"forward" if forward else "backward": way})
        yield (*planned.layers[: number - 1], changed, *planned.layers[number:])


def fits(network: Network, batch: int, p: AcceleratorParameters, plan) -> bool:
    """Whether a plan can be compiled: an alternative beside others than it was tried with."""
    try:
        compile_step(network, batch, p, plan=plan)
    except CompileError:
        return False
    return True


@pytest.mark.parametrize("seed", range(40))
def test_random_networks(seed):
    case = random_case(seed)
    network = replace(case.network, widths=replace(WIDE, factor=2))
    p = replace(case.parameters, accumulator_width=48, scratchpad_rows=1 << 12)
    try:
        plans = list(every_plan(network, case.batch, p))
    except CompileError:
        pytest.skip("no planned schedule fits this accelerator")
    for plan in plans:
        if fits(network, case.batch, p, plan):
            check(network, case.batch, p, plan, seed)


NARROW = Layer((4, 4, 16), (4, 4, 16), (2, 3))


@pytest.mark.parametrize("batch", [1, 16, 40, 64])
@pytest.mark.parametrize("layers", [1, 2])
def test_narrow_ranks_go_both_ways(layers, batch):
    last = replace(NARROW, outputs=(1, 1, 16))
    size = NARROW.input_size
    network = Network(
        "narrow",
        (replace(NARROW, relu=True), last) if layers > 1 else (NARROW,),
        2,
        (1, size),
        (1, size),
        replace(WIDE, factor=2),
    )
    p = AcceleratorParameters()
    plans = list(every_plan(network, batch, p))
    kinds = {type(way).__name__ for plan in plans for one in plan for way in vars(one).values()}
    assert "ForwardBidirectional" in kinds
    for plan in plans:
        if fits(network, batch, p, plan):
            check(network, batch, p, plan, batch)


def test_alternatives_are_never_better_than_the_choice():
    for name in ("digits", "fashion"):
        network, p = load_network(name), AcceleratorParameters()
        planned = plan_layers(network, 64, p)
        chosen = compile_step(network, 64, p, plan=planned.layers).predicted_cycles
        for plan in every_plan(network, 64, p):
            if fits(network, 64, p, plan):
                assert compile_step(network, 64, p, plan=plan).predicted_cycles >= chosen

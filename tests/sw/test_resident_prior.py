"""The rank prior by passes of a resident step: coefficients and state as they are defined."""

import numpy as np
import pytest
from chip_models import model_of, put_batch
from test_chip_step import only
from test_resident import DIGITS, MEMORY, Case, P

from trainwright.check.training import random_state
from trainwright.compiler.chip.memory import gradient_of
from trainwright.compiler.chip.update import UpdateRule
from trainwright.driver.resident import ResidentDriver, ResidentRun
from trainwright.golden.backend import GoldenAccelerator
from trainwright.network import load_network
from trainwright.onchip.prior import require_cost
from trainwright.onchip.schedule import Entry, RateTable
from trainwright.onchip.state import UpdateStep

pytestmark = pytest.mark.usefixtures("first_programs")

FASHION = load_network("fashion")


def entries(seed):
    """Return weights that pull not at all, a little, and beyond all words."""
    random = np.random.default_rng(seed)
    weights = [(int(random.integers(128, 256)), e) for e in (-14, -30, -9, 30)]
    return tuple(Entry(9, 4, *weight) for weight in [(0, 0), *weights])


def states(driver, state, step, table, seed, distance=None, optimiser="esgd"):
    """Return the driver's state after a step, and the definition's by its gradients."""
    driver.run_steps(1, step=step)
    names = [gradient_of(part) for part in state.layout.parts]
    shapes = [operand.shape for operand in state.quantised(state.compiled)]
    gradients = [
        driver._get(name).numpy().reshape(shape) for name, shape in zip(names, shapes, strict=True)
    ]
    state.step(
        gradients, driver.moments(), UpdateStep(step, seed, table.at(step), optimiser, distance)
    )
    actual = random_state(state.layout.network, 0)
    actual.kept = state.kept
    actual.take(driver.rows("state"), driver.factors(), np.array(driver.moments()))
    actual.pulls = driver.pulls()
    return state.to_arrays(), actual.to_arrays()


@pytest.mark.parametrize(
    ("network", "kept", "batch"),
    [
        (DIGITS, None, 16),
        (DIGITS.with_ranks([[16], [8]]), ((1, 2, 5, 9), (0, 7)), 16),
        (FASHION.with_ranks([[3, 9, 2], [5]]), None, 16),
        pytest.param(
            FASHION.with_ranks([[16, 12, 16], [11]]),
            ((0, 3, 15), (0, 1, 2, 8, 11), (2, 3), (5,)),
            16,
            marks=pytest.mark.slow,
        ),
    ],
)
def test_steps_are_those_of_the_definition(network, kept, batch):
    """From a step of old coefficients on, over two renewals with other weights each."""
    case = Case(network, batch, 3)
    state, seed = case.state, case.seed
    if kept:
        only(state, kept)
        case = Case(network, batch, 3, state=state)
    table = RateTable(entries(1), steps=4)
    first = 6
    state.renew_pulls(UpdateStep(0, seed, Entry(9, 4, 200, -13)))
    with GoldenAccelerator(P, memory_bytes=MEMORY) as golden:
        driver = ResidentDriver(
            golden, state.layout, batch,
            ResidentRun(UpdateRule(table, pulled=True), seed, case.scales.ranges),
            kept=tuple(tuple(map(int, columns)) for columns in state.kept),
        )  # fmt: skip
        driver.put(state, model_of(state))
        driver.begin(case.scales, state, first)
        put_batch(driver, case.inputs, case.labels)
        seen = []
        for step in range(first, first + 12):
            expected, actual = states(driver, state, step, table, seed)
            assert all((expected[name] == actual[name]).all() for name in expected), step
            seen.append(actual["coefficients"].tolist())
    assert seen[0] == seen[1] != seen[2] == seen[9] != seen[10] == seen[11]
    assert any(seen[2]) and (network != DIGITS or any(seen[10]))


def test_resident_prior_weight_of_nothing_pulls_nothing():
    case = Case(DIGITS, 16, 3)
    table = RateTable(entries(1)[:1], steps=4)
    case.state.renew_pulls(UpdateStep(0, case.seed, Entry(9, 4, 200, -13)))
    with GoldenAccelerator(P, memory_bytes=MEMORY) as golden:
        driver = ResidentDriver(
            golden, case.state.layout, 16, ResidentRun(UpdateRule(table, pulled=True), case.seed)
        )
        driver.put(case.state, model_of(case.state))
        driver.begin(case.scales, case.state, 7)
        put_batch(driver, case.inputs, case.labels)
        for step in (7, 8):
            expected, actual = states(driver, case.state, step, table, case.seed)
            assert all((expected[name] == actual[name]).all() for name in expected)
            assert actual["coefficients"].any() == (step == 7)


def test_costs_beyond_a_word_are_refused():
    require_cost((1 << 15) - 1)
    with pytest.raises(ValueError, match="a column of 32768 elements; the chip's prior takes up"):
        require_cost(1 << 15)

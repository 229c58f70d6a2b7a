"""Cuts by passes of a resident step: columns, coefficients and state as they are defined."""

from dataclasses import replace

import numpy as np
import pytest
from chip_models import RANKED, model_of, put_batch
from slowly import mostly_slow
from test_resident import DIGITS, MEMORY, Case, P
from test_resident_prior import states

from trainwright.check.training import random_state
from trainwright.compiler.chip.prior import CutRule
from trainwright.compiler.chip.update import UpdateRule
from trainwright.driver.resident import ResidentDriver, ResidentRun
from trainwright.golden.backend import GoldenAccelerator
from trainwright.network import Layer, load_network
from trainwright.onchip.prior import sums_of_squares
from trainwright.onchip.schedule import LOOK, MOST_STEPS, Entry, RateTable, schedule_words

pytestmark = pytest.mark.usefixtures("first_programs")

FASHION = load_network("fashion")
SMALL = FASHION.with_ranks([[6, 9, 5], [8]])
LONG = replace(
    DIGITS,
    layers=(
        DIGITS.layers[0],
        *(Layer((8, 16), (8, 16), (2 + n % 3,), relu=True) for n in range(7)),
        DIGITS.layers[1],
    ),
)
"""Nine bonds: more than the engine has threads."""
TABLE = RateTable((Entry(9, 4, 200, -14), Entry(9, 4, 130, -11)), steps=4)
CUT_RULE = CutRule(interval=3, distance=7)


def weaken(state, bond, column, by):
    """Divide a column's weights on both sides by 2^by."""
    for side in (bond.left, bond.right):
        weaken_side(state, side, column, by)


def weaken_side(state, side, column, by):
    part = state.layout.parts[side.part]
    whole = state.weights.ravel()[part.places].reshape(part.shape)
    chosen = [slice(None)] * 4
    chosen[side.axis] = column
    whole[tuple(chosen)] >>= by
    state.weights.ravel()[part.places] = whole.ravel()


def weakened(network, seed):
    """Weaken some columns of each bond, some nearly to nothing; one side of a bond is all zeros."""
    state, random = random_state(network, seed), np.random.default_rng(seed)
    for number, bond in enumerate(state.layout.bonds):
        for column in range(1, bond.left.columns):
            weaken(state, bond, column, int(random.integers(0, 4)))
        for side in (bond.left, bond.right)[number % 2 :][:1]:
            weaken_side(state, side, 1, 12)
        state.weights[state.weights == -1] = 0
    return state


def stepped(case, cuts, steps, *, p=P, first=0):
    """Step a resident driver and the definition; return the arrays of both."""
    state = case.state
    with GoldenAccelerator(p, memory_bytes=MEMORY) as golden:
        driver = ResidentDriver(
            golden, state.layout, case.batch,
            ResidentRun(
                UpdateRule(TABLE, pulled=True, cut_rule=cuts), case.seed, case.scales.ranges
            ),
        )  # fmt: skip
        driver.put(state, model_of(state))
        driver.begin(case.scales, state, first)
        put_batch(driver, case.inputs, case.labels)
        for number in range(first, first + steps):
            distance = None if number % cuts.interval else cuts.distance
            expected, actual = states(driver, state, number, TABLE, case.seed, distance)
            actual["kept"] = kept_array(state.layout, driver.kept())
            yield expected, actual


def kept_array(layout, kept):
    array = np.zeros(layout.columns, np.uint8)
    for bond, own in zip(layout.bonds, kept, strict=True):
        for side in (bond.left, bond.right):
            array[side.first + own] = 1
    return array


def equal(expected, actual):
    return all((expected[name] == actual[name]).all() for name in expected)


@pytest.mark.parametrize(
    ("network", "seed"),
    [
        (DIGITS, 3),
        (SMALL, 4),
        (RANKED, 6),
        pytest.param(FASHION, 5, marks=pytest.mark.slow),
    ],
)
def test_columns_are_cut_as_they_are_defined(network, seed):
    """Over two looks, of which the first cuts and leaves gaps, and a renewal."""
    case = Case(network, 16, seed, state=weakened(network, seed))
    left = []
    for expected, actual in stepped(case, CUT_RULE, 8, first=1):
        assert equal(expected, actual)
        left.append(int(actual["kept"].sum()))
    assert left[1] == case.state.layout.columns - 1 > left[2] == left[4]
    assert any(len(own) != own[-1] + 1 for own in case.state.kept)


@pytest.mark.slow  # a compilation of nine layers
def test_more_bonds_than_threads():
    p = replace(P, exponents=256, statistics_depth=256)
    state = weakened(LONG, 2)
    state.weights >>= 1  # logits of nine layers would be too large
    case = Case(LONG, 16, 2, state=state, p=p)
    before = [len(own) for own in case.state.kept]
    assert all(equal(*both) for both in stepped(case, CutRule(2, 5), 3, p=p))
    after = [len(own) for own in case.state.kept]
    assert len(after) == 9 and after[8] < before[8] and after[:8] != before[:8]


@mostly_slow("distance", [1, 2, 6, 13, 25, 400_000], quick=(1, 25, 400_000))
def test_resident_cuts_are_exact_at_every_distance(distance):
    """The distances cut all but the strongest columns, some, only those of zeros, or none."""
    case = Case(SMALL, 16, 6, state=weakened(SMALL, 6))
    assert all(equal(*both) for both in stepped(case, CutRule(8, distance), 1, first=8))
    cut = sum(8 - len(own) for own in case.state.kept[3:])
    assert (cut == 0) == (distance == 400_000)


def test_resident_cuts_of_a_bond_without_weights_the_first_column_stays():
    """Also where the first of all is cut already; a column of zeros is weak, but not beyond all."""
    case = Case(DIGITS, 16, 3)
    state = case.state
    state.kept = [np.array([1, 2, 4]), np.arange(7)]
    for part in state.layout.parts[:2]:
        state.weights.ravel()[part.places] = 0
    weaken(state, state.layout.bonds[1], 3, 12)
    for side in (state.layout.bonds[1].left, state.layout.bonds[1].right):
        part = state.layout.parts[side.part]
        whole = state.weights.ravel()[part.places].reshape(part.shape)
        whole[whole == -1] = 0
        state.weights.ravel()[part.places] = whole.ravel()
    assert sums_of_squares(state.layout, state.weights)[state.layout.bonds[1].left.first + 3] == 0
    assert all(equal(*both) for both in stepped(case, CutRule(4, 60), 2))
    assert [own.tolist() for own in state.kept] == [[1], [0, 1, 2, 3, 4, 5, 6]]


@pytest.mark.parametrize("kept", [[3, 17], [17, 19]])
def test_resident_cuts_of_several_rows_without_weights_the_first_column_stays(kept):
    case = Case(RANKED, 16, 3)
    state = case.state
    state.kept[1] = np.array(kept)
    for part in state.layout.parts[1:3]:
        state.weights.ravel()[part.places] = 0
    assert all(equal(*both) for both in stepped(case, CutRule(4, 60), 2))
    assert [own.tolist() for own in state.kept] == [[0], kept[:1], list(range(17))]


def test_resident_cuts_reject_unsupported_settings():
    with pytest.raises(ValueError, match=r"every 32768 steps; the chip counts to 32767: give a sm"):
        schedule_words(TABLE, 0, MOST_STEPS + 1)
    assert schedule_words(TABLE, 9, MOST_STEPS)[LOOK].tolist() == [9] * 16

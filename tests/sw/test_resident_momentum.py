"""Momentum in a resident step: its shift follows the gradient's exponent, as it is defined."""

import numpy as np
import pytest
from chip_models import model_of, put_batch
from test_resident import DIGITS, MEMORY, Case, P
from test_resident_prior import states

from trainwright.compiler.chip.update import UpdateRule
from trainwright.driver.resident import ResidentDriver, ResidentRun
from trainwright.golden.backend import GoldenAccelerator
from trainwright.onchip.schedule import Entry, RateTable
from trainwright.onchip.update import momentum_offset

pytestmark = pytest.mark.usefixtures("first_programs")

SHIFTS = (0, 31, 20, 22)
TABLE = RateTable(tuple(Entry(9, shift, 200, -14) for shift in SHIFTS), steps=1)


@pytest.mark.parametrize("pulled", [False, True])
def test_resident_momentum_shifts_stay_within_units(pulled):
    """Exponents of some gradients start far above the others and go down in each step.

    A shift to the left would be an error.
    """
    case = Case(DIGITS, 16, 3)
    names = ("l1.dG1", "l2.dG2", "l1.db")
    for name in names:
        case.scales.exponents[name] += 12
    seen = []
    with GoldenAccelerator(P, memory_bytes=MEMORY) as golden:
        driver = ResidentDriver(
            golden, case.state.layout, 16,
            ResidentRun(
                UpdateRule(TABLE, pulled, optimiser="momentum"), case.seed, case.scales.ranges
            ),
        )  # fmt: skip
        driver.put(case.state, model_of(case.state))
        driver.begin(case.scales, case.state, 0)
        put_batch(driver, case.inputs, case.labels)
        for number in range(len(SHIFTS)):
            if not pulled:  # no coefficients are renewed
                case.state.renew_pulls = lambda _: None
            expected, actual = states(
                driver, case.state, number, TABLE, case.seed, optimiser="momentum"
            )
            assert all((expected[name] == actual[name]).all() for name in expected)
            offsets = [momentum_offset(part) for part in case.state.layout.parts]
            shifts = TABLE.at(number).rate_shift + np.array(offsets) - driver.moments()
            seen.append((int(shifts.clip(0, 31).min()), int(shifts.clip(0, 31).max())))
    assert seen[0] == (0, 0) and seen[1][0] < seen[1][1] == 31 and 0 < seen[3][0] < seen[3][1] < 31

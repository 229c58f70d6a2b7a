"""Re-quantisation against exact fractions."""

import random
from fractions import Fraction

import numpy as np
import pytest
import torch

from trainwright.fixed.quantise import fitting_exponent
from trainwright.formats import Posit
from trainwright.formats.rounding import MAX_SHIFT, half_even, limits, requantise

WIDTHS = range(2, 17)
SHIFTS = range(MAX_SHIFT + 1)


def by_fractions(value: int, shift: int, width: int) -> tuple[int, bool]:
    rounded = round(Fraction(value, 1 << shift))  # Python rounds half to even
    least, greatest = limits(width)
    q = max(least, min(greatest, rounded))
    return q, q != rounded


def values_for(shift: int, width: int, bits: int, seed: int) -> list[int]:
    """Return corners of format, rounding and saturation, and random values of ``bits`` bits."""
    rng = random.Random(seed)
    least, greatest = limits(width)
    half = 1 << shift >> 1
    centres = [0, 1, 2, 3, least, least - 1, least - 2, greatest, greatest + 1, greatest + 2]
    values = {
        (centre << shift) + side * half + nudge
        for centre in centres
        for side in (-1, 0, 1)
        for nudge in (-1, 0, 1)
    }
    values |= {-(1 << (bits - 1)), (1 << (bits - 1)) - 1, -1}
    values |= {rng.randrange(-(1 << n), 1 << n) for n in range(1, bits)}
    spread = min(bits - 1, shift + width)
    values |= {rng.randrange(-(1 << spread), 1 << spread) for _ in range(20)}
    return sorted(v for v in values if -(1 << (bits - 1)) <= v < 1 << (bits - 1))


@pytest.mark.parametrize("width", WIDTHS)
def test_requantise_is_exact(width):
    for shift in SHIFTS:
        values = values_for(shift, width, 63, seed=100 * width + shift)
        q, saturated = requantise(np.array(values), shift, width)
        assert list(zip(q.tolist(), saturated.tolist(), strict=True)) == [
            by_fractions(value, shift, width) for value in values
        ]


def test_half_even_with_shift_of_each_element_is_exact():
    values = np.array([values_for(shift, 8, 63, seed=shift)[:60] for shift in SHIFTS])
    shifts = np.array(SHIFTS)[:, None]
    assert half_even(values, shifts).tolist() == [
        [round(Fraction(value, 1 << shift)) for value in row]
        for shift, row in zip(SHIFTS, values.tolist(), strict=True)
    ]


def test_rounding_is_half_to_even():
    values = np.array([-7, -6, -5, -3, -2, -1, 1, 2, 3, 5, 6, 7])
    assert half_even(values, 2).tolist() == [-2, -2, -1, -1, 0, 0, 0, 0, 1, 1, 2, 2]


def test_saturation_is_at_the_limits_of_the_width():
    q, saturated = requantise(np.array([-9, -8, 7, 8]), 0, 4)
    assert q.tolist() == [-8, -8, 7, 7]
    assert saturated.tolist() == [True, False, False, True]


def test_rounding_can_saturate():
    """31 / 4 = 7.75 rounds to 8, one too many for 4 bits."""
    q, saturated = requantise(np.array([29, 30, 31]), 2, 4)
    assert (q.tolist(), saturated.tolist()) == ([7, 7, 7], [False, True, True])


@pytest.mark.parametrize("shift", [-1, 64])
def test_shift_out_of_range(shift):
    with pytest.raises(ValueError, match=f"shift must be from 0 to 63, not {shift}"):
        requantise(np.array([1]), shift, 8)


@pytest.mark.parametrize(("width", "pair"), [(2, (-2, 1)), (4, (-8, 7)), (16, (-32768, 32767))])
def test_fixed_limits_follow_width(width, pair):
    assert limits(width) == pair


@pytest.mark.parametrize("greatest", [1.0, 1.99, 3.0, 1e-4])
@pytest.mark.parametrize("es", [0, 1, 2])
def test_fixed_largest_value_has_the_digits_of_a_posit_near_1(es, greatest):
    """Below 2^(2^es), and not by more than one power of two."""
    fmt = Posit(6, es)
    exponent = fitting_exponent(torch.tensor([greatest, -greatest / 2]), fmt)
    value = greatest / 2.0 ** (exponent + fmt.scale)
    assert 2.0 ** ((1 << es) - 1) <= value < 2.0 ** (1 << es)

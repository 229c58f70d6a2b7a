"""Tables and functions of the vector engine: every input, against float64."""

from fractions import Fraction

import numpy as np
import pytest
import table_functions as tabled

from trainwright.formats.rounding import clamp, half_even, half_up
from trainwright.kernels import functions as f
from trainwright.kernels.tables import ENTRIES, WORD_WIDTH

TIGHT = 0.95
"""A bound that is this much above the worst case would hide a worse table."""


def test_onchip_functions_roundings_are_those_of_fractions():
    values = np.arange(-600, 600)
    for shift in range(12):
        exact = [Fraction(int(v), 1 << shift) for v in values]
        assert half_even(values, shift).tolist() == [round(e) for e in exact]
        assert half_up(values, shift).tolist() == [(e + Fraction(1, 2)).__floor__() for e in exact]
    shifts = np.resize(np.arange(5), values.shape)  # an element its own
    for rounding in (half_even, half_up):
        one_by_one = [
            int(rounding(np.array([v]), int(s))[0]) for v, s in zip(values, shifts, strict=True)
        ]
        assert rounding(values, shifts).tolist() == one_by_one


def test_clamp_saturates_at_both_ends():
    assert clamp(np.array([-129, -128, 127, 128]), 8).tolist() == [-128, -128, 127, 127]


@pytest.mark.parametrize("name", ["exp2", "reciprocal", "root", "log2"])
def test_onchip_functions_table_fits_one_slot_or_two_of_18_bit_words(name):
    table = getattr(f, f"{name}_table")()
    assert table.bases.size == table.slopes.size == ENTRIES * (2 if name == "root" else 1)
    for words in (table.bases, table.slopes):
        assert words.min() >= -(1 << (WORD_WIDTH - 1)) and words.max() < 1 << (WORD_WIDTH - 1)


def test_exp2_of_every_fraction_and_whole_part():
    v = np.arange(1 << 16)
    worst = 0.0
    for whole in range(18):
        exact = 2.0 ** (f.EXP2_UNIT - whole - v / 65536)
        errors = np.abs(tabled.exp2(v + (whole << 16)) - exact)
        if not whole:
            assert tabled.exp2(v)[0] == 32767  # 1 saturates, by a unit
            errors = errors[1:]
        worst = max(worst, errors.max())
    assert TIGHT * f.EXP2_ERROR < worst <= f.EXP2_ERROR
    assert tabled.exp2(np.array([1 << 40])).tolist() == [0]


@pytest.mark.parametrize(
    ("function", "least", "exact", "bound"),
    [
        (tabled.reciprocal, 1 << 15, lambda x: 1 / x, f.RECIPROCAL_ERROR),
        (tabled.reciprocal_root, 1 << 14, lambda x: 1 / np.sqrt(x), f.ROOT_ERROR),
    ],
)
def test_reciprocals_of_every_mantissa(function, least, exact, bound):
    x = np.arange(least, 1 << 16)
    r, exponent = function(x)
    assert r.min() >= 1 << 16 and r.max() < 1 << 17
    worst = np.abs(r * 2.0**exponent / exact(x) - 1).max()
    assert TIGHT * bound < worst <= bound


def test_log2_of_every_mantissa():
    x = np.arange(1 << 15, 1 << 16)
    worst = np.abs(tabled.log2(x) / 65536 - np.log2(x)).max()
    assert TIGHT * f.LOG2_ERROR < worst <= f.LOG2_ERROR


def test_arguments_of_any_length_are_normalised():
    lengths = np.arange(1, 62)
    x = np.concatenate([(1 << lengths) - 1, 1 << lengths, (1 << lengths) + (1 << lengths >> 1)])
    x = x[x < 1 << 61]
    mantissa, exponent = tabled.normalised(x)
    assert mantissa.min() >= 1 << 15 and mantissa.max() < 1 << 16
    for m, e, value in zip(mantissa.tolist(), exponent.tolist(), x.tolist(), strict=True):
        assert m == (value >> e if e >= 0 else value << -e)
    r, e = tabled.reciprocal(x)
    assert np.abs(r * 2.0**e * x - 1).max() <= f.RECIPROCAL_ERROR + f.TRUNCATION_ERROR
    r, e = tabled.reciprocal_root(x)
    assert np.abs(r * 2.0**e * np.sqrt(x) - 1).max() <= f.ROOT_ERROR + f.TRUNCATION_ERROR / 2
    off = np.abs(tabled.log2(x) / 65536 - np.log2(x))
    assert off.max() <= f.LOG2_ERROR + 1.4427 * f.TRUNCATION_ERROR

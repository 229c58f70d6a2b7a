"""The C kernel's tables of posits, read as the kernel reads them, against ``Format.encode``."""

import numpy as np
import pytest
from folded import each
from format_kinds import SAMPLES

from trainwright.formats import UNDERFLOWS, Posit
from trainwright.formats.coded import OPERAND_WIDTH, _bounds
from trainwright.golden.tables import FRACTION_BITS, LEAST_EXPONENT, table

FORMATS = dict.fromkeys(
    [
        *(Posit(n, 0) for n in range(3, 11)),
        *(Posit(n, 1) for n in range(3, 7)),
        *(Posit(n, 2) for n in range(3, 5)),
        Posit(8, 1, clamped=True),
        Posit(6, 2, clamped=True),
        Posit(11, 0, clamped=True),
        Posit(4, 3, clamped=True),
        Posit(9, 1, clamped=True),
        *SAMPLES,
    ]
)


def sizes_of(sums: np.ndarray, shift: int) -> np.ndarray:
    """Return bits of sums / 2^shift as float32, cut, with a sticky last bit."""
    exact = np.abs(sums.astype(np.float64)) * 2.0**-shift
    bits = exact.view(np.int64)
    cut = (bits >> 29) - ((1023 - 127) << FRACTION_BITS) | (bits & ((1 << 29) - 1) != 0)
    return np.where(exact > 0, cut, 0)


def looked_up(
    starts: np.ndarray, cuts: np.ndarray, greatest: int, sums: np.ndarray, shift: int
) -> np.ndarray:
    """Follow ``encode_plain`` of ``native/numbers.h``."""
    sizes = sizes_of(sums, shift)
    places = (sizes >> FRACTION_BITS) - (127 + LEAST_EXPONENT)
    places = places.clip(0, len(cuts) - 1)
    exact = starts[places] + (sizes & ((1 << FRACTION_BITS) - 1))
    cut = cuts[places]
    words = (exact + (1 << (cut - 1)) - 1 + (exact >> cut & 1)) >> cut
    return np.sign(sums) * np.where(sizes > 0, np.minimum(words, greatest), 0)


@pytest.mark.parametrize("fmt", FORMATS, ids=str)
@pytest.mark.parametrize("rule", range(len(UNDERFLOWS)), ids=UNDERFLOWS.__getitem__)
@each("shift", (0, 1, 3, 9, 20, 30))
def test_every_bound_and_its_neighbours(fmt, rule, shift):
    t, underflow = table(fmt), UNDERFLOWS[rule]
    bounds = _bounds(fmt, shift, underflow)
    ends = np.array([0, 0.5, 1, 2, 2.0**OPERAND_WIDTH, t.largest])
    places = np.floor(np.ldexp(np.concatenate([ends, np.arange(200) / 8]), shift)).astype(np.int64)
    at = np.concatenate([places, bounds[bounds < 1 << 50]])
    near = np.unique(at[:, None] + np.arange(-2, 3))
    sums = np.concatenate([near, -near, [1 << 52, 1 - (1 << 52)]])
    expected, _, _ = fmt.encode(sums, shift, underflow=underflow)
    values = looked_up(t.starts[rule], t.cuts, t.greatest, sums, shift)
    assert np.array_equal(values, expected)
    if t.registers is not None:
        assert np.array_equal(t.registers[rule, : len(t.cuts)], t.starts[rule])
        assert np.array_equal(t.registers[-1, : len(t.cuts)], t.cuts)
        assert (t.registers[:, len(t.cuts) :] == t.registers[:, len(t.cuts) - 1 :][:, :1]).all()


def test_formats_of_eight_bits_are_encoded_in_registers():
    """Among them those that a network is trained with."""
    fit = {str(fmt) for fmt in FORMATS if table(fmt).registers is not None}
    assert {"posit(8,0)", "posit(8,1)c", "posit(6,1)", "posit(4,0)", "posit(9,0)"} <= fit
    assert "posit(10,0)" not in fit  # a start would take 33 bits


@pytest.mark.parametrize("fmt", FORMATS, ids=str)
def test_tables_of_functions_are_integers(fmt):
    t = table(fmt)
    integers = t.integers
    words = np.arange(-fmt.largest, fmt.largest + 1)
    assert np.array_equal(integers[words.astype(np.uint16)], fmt.decode(words))
    assert np.isnan(integers).sum() == len(integers) - len(words)
    assert t.largest == fmt.decode(fmt.largest)
    if t.upper is None:
        assert fmt.width > 8
    else:
        halves = (
            t.upper[0, : fmt.largest + 1] | t.upper[1, : fmt.largest + 1].astype(np.uint32) << 8
        )
        assert np.array_equal((halves << 16).view(np.float32), fmt.decode(words[fmt.largest :]))

"""The C kernel's tables of posits, read as the kernel reads them, against ``Format.encode``."""

import numpy as np
import pytest

from trainwright.formats import UNDERFLOWS, Posit
from trainwright.formats.posit import CLAMPED_WIDTH
from trainwright.golden.tables import table

FORMATS = [
    *(Posit(n, 0) for n in range(3, 11)),
    *(Posit(n, 1) for n in range(3, 7)),
    *(Posit(n, 2) for n in range(3, 5)),
    Posit(8, 1, clamped=True),
    Posit(6, 2, clamped=True),
    Posit(11, 0, clamped=True),
    Posit(4, 3, clamped=True),
]


def looked_up(fmt: Posit, sums: np.ndarray, shift: int, rule: int) -> np.ndarray:
    """``encode`` of ``native/numbers.h``."""
    t = table(fmt)
    sizes = np.abs(sums.astype(np.float64)) * 2.0**-shift
    places = (sizes.view(np.int64) >> (52 - t.kept)) - t.first
    places = places.clip(0, len(t.words[rule]) - 1)
    return np.sign(sums) * (t.words[rule][places] + (sizes >= t.bounds[rule][places]))


@pytest.mark.parametrize("fmt", FORMATS, ids=str)
@pytest.mark.parametrize("rule", range(len(UNDERFLOWS)), ids=UNDERFLOWS.__getitem__)
@pytest.mark.parametrize("shift", (0, 1, 3, 9, 20, 30))
def test_every_bound_and_its_neighbours(fmt, rule, shift):
    bounds = table(fmt).bounds[rule]
    ends = np.array([0, 0.5, 1, 2, 2.0**CLAMPED_WIDTH, table(fmt).largest])
    places = np.concatenate([bounds[np.isfinite(bounds)], ends, np.arange(200) / 8])
    exact = np.floor(np.ldexp(places, shift)).astype(np.int64)
    near = np.unique(exact[:, None] + np.arange(-2, 3))
    sums = np.concatenate([near, -near, [1 << 52, 1 - (1 << 52)]])
    expected, _, _ = fmt.encode(sums, shift, underflow=UNDERFLOWS[rule])
    assert np.array_equal(looked_up(fmt, sums, shift, rule), expected)


@pytest.mark.parametrize("fmt", FORMATS, ids=str)
def test_integers(fmt):
    integers = table(fmt).integers
    words = np.arange(-fmt.largest, fmt.largest + 1)
    assert np.array_equal(integers[words.astype(np.uint16)], fmt.decode(words))
    assert np.isnan(integers).sum() == len(integers) - len(words)
    assert table(fmt).largest == fmt.decode(fmt.largest)

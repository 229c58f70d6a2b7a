"""Proofs that a float operation and a rounding are one correct rounding (docs/reference/posit.md).

Let p = ``fmt.digits`` and P = 24 or 53, the digits of the float. Rounding twice goes wrong only
where the float is the midpoint of two posits, a number of at most p + 1 digits, and the exact
result differs from the midpoint.

- Products are exact if 2 p <= P; quotients then miss a midpoint by more than the float's error.
- Square roots miss a midpoint if 2 p + 2 <= P; they always go through rounding to odd here.
- Sums do so if 2 p + 1 <= P, and with fewer digits where tapered precision allows it:
  ``sums_round_once`` decides by checking every pair of exponents. In float64 every format
  passes (a test checks this), so float64 sums need no correction.

Results must also stay normal floats: S <= 63 in float32, always in float64 (S <= 480).
"""

from functools import cache

import torch

from trainwright.posit.format import PositFormat, check_format

SINGLE, DOUBLE = 24, 53
"""Significant bits of float32 and float64."""


@cache
def carrier(fmt: PositFormat) -> torch.dtype:
    """Return the float type in which values on the grid live between operations.

    float32 where + - x / in float32 and one rounding are correctly rounded, as for posit(16,2);
    float64 for all other formats. The carrier represents every value exactly. Raises ``TypeError``
    unless ``fmt`` is a format.
    """
    check_format(fmt)
    narrow = fmt.max_scale <= 63 and 2 * fmt.digits <= SINGLE
    return torch.float32 if narrow and sums_round_once(fmt, SINGLE) else torch.float64


def products_round_once(fmt: PositFormat) -> bool:
    """Return whether float64 products and quotients round correctly without correction."""
    return 2 * fmt.digits <= DOUBLE


@cache
def sums_round_once(fmt: PositFormat, digits: int) -> bool:
    """Return whether a sum in floats of ``digits`` digits rounds correctly without correction.

    x of scale i plus y of scale j < i is inexact only if the sum spans more than ``digits`` bits.
    Then x and the nearest midpoint are multiples of some 2^g. If y and the float's error together
    are below 2^g, the float can be a midpoint only if x is that midpoint, but x is a posit.
    """
    if 2 * fmt.digits + 1 <= digits:
        return True
    top = fmt.max_scale
    return all(
        _pair_rounds_once(fmt, digits, i, j) for i in range(-top, top + 1) for j in range(-top, i)
    )


def _lowest(fmt: PositFormat, scale: int) -> int:
    """Return the exponent of the last significant bit at a scale."""
    return scale - fmt.digits_at(scale) + 1


def _pair_rounds_once(fmt: PositFormat, digits: int, i: int, j: int) -> bool:
    for scale in (i - 1, i, i + 1):  # scales that an inexact sum can have
        if scale - _lowest(fmt, j) < digits:
            continue  # the sum is exact, as for i = j
        grid = min(_lowest(fmt, i), scale - fmt.digits_at(scale))
        if 2.0 ** (j + 1 - grid) + 2.0 ** (scale - digits - grid) > 1:
            return False
    return True

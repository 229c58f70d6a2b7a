"""Float64 operations with their rounding errors, and rounding to odd, which avoids double rounding.

An inexact number whose last bit is made 1 (rounded to odd in 53 digits) is never a tie of a format
of at most 51, and rounds to it as the exact number does (Boldo and Melquiond 2008). Plain IEEE
operations; no fused multiply-add is needed.
"""

import torch
from torch import Tensor

_SPLITTER = float((1 << 27) + 1)


def two_sum(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Return (s, e) with s = fl(a + b) and s + e = a + b exactly (Knuth); NaN e for infinite s."""
    s = a + b
    c = s - a
    return s, (a - (s - c)) + (b - c)


def _halves(x: Tensor) -> tuple[Tensor, Tensor]:
    c = _SPLITTER * x
    high = c - (c - x)
    return high, x - high


def two_product(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return (p, e) with p = fl(x y) and p + e = x y exactly (Dekker).

    Each factor below 2^995, the product 0 or from 2^-968 to 2^1021; e is NaN where p is infinite.
    """
    p = x * y
    (a, b), (c, d) = _halves(x), _halves(y)
    return p, ((a * c - p) + a * d + b * c) + b * d


def round_to_odd(s: Tensor, rest: Tensor) -> Tensor:
    """Return ``s`` + ``rest`` in float64: where inexact, the odd one of its two neighbours.

    ``s`` must be one of the two float64 neighbours of the sum; only the sign of ``rest`` counts.
    """
    inexact = rest.nonzero(as_tuple=True)
    if s.ndim and 8 * len(inexact[0]) < s.numel():  # few: touch only those
        if len(inexact[0]):
            s = s.clone()
            s[inexact] = _odd(s[inexact], rest[inexact])
        return s
    return _odd(s, rest)


def _odd(s: Tensor, rest: Tensor) -> Tensor:
    bits = s.view(torch.int64)
    move = (rest != 0) & ((bits & 1) == 0) & torch.isfinite(s)
    away = (s > 0) == (rest > 0)
    return torch.where(move, torch.where(away, bits + 1, bits - 1), bits).view(torch.float64)

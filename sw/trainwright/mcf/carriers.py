"""Types that components are computed in, and conversions to and from them.

Two components of float32 are a double in all but 5 digits; three fit a pair of doubles. Half types
are widened to float32 components and narrowed again. Nothing here depends on rounding of the wider
type being seen: its digits are at least 4 more than those that are kept.
"""

import torch
from torch import Tensor

from trainwright.mcf import native
from trainwright.mcf.errorfree import PRECISION, fast_two_sum, two_sum
from trainwright.mcf.expansion import Terms, finished, stacked, terms_of

HALF = (torch.float16, torch.bfloat16)


def digits(dtype: torch.dtype, nc: int) -> int:
    """Binary digits that nc components hold."""
    return PRECISION[dtype] * nc


def in_double(dtype: torch.dtype, nc: int) -> bool:
    """Whether a double holds what nc components do, with digits to spare. Never for doubles."""
    return dtype is not torch.float64 and (digits(dtype, nc) <= 48 or dtype is torch.float16)


def join(x: Tensor) -> Tensor:
    """The number (...) that components (..., nc) make, rounded to float64."""
    if x.shape[-1] == 1:
        return x[..., 0].double()
    if _kernels(x, x.shape[-1]):
        return native.join(x)
    tail, *rest = reversed(terms_of(x))
    tail = tail.to(torch.float64)
    for part in rest:
        tail = part.to(torch.float64) + tail
    return tail


def _kernels(x: Tensor, nc: int) -> bool:
    carried = x.dtype is torch.float32 and nc in (2, 3)
    return carried and native.usable(x, nc)


def join_pair(x: Tensor) -> tuple[Tensor, Tensor]:
    """The same as an unevaluated sum of two doubles, the first the rounded total."""
    lead, *rest = terms_of(x.to(torch.float64))
    low = torch.zeros_like(lead)
    for part in rest:
        lead, lost = two_sum(lead, part)
        low = low + lost
    return fast_two_sum(lead, low)


def part(high: Tensor, low: Tensor | None, dtype: torch.dtype, nc: int) -> Terms:
    """nc components of ``dtype`` from a double, or from a pair of them with |low| << |high|."""
    terms = []
    for _ in range(nc):
        kept = high.to(dtype)
        terms.append(kept)
        high = high - kept.to(torch.float64)
        if low is not None:
            high, low = two_sum(high, low)
    return terms


def parted(z: Tensor, dtype: torch.dtype, nc: int, plain: Tensor | None = None) -> Tensor:
    """Components (..., nc) of float64 numbers, each rounded to nearest.

    ``plain``: see ``finished``; without it the double itself decides.
    """
    if (
        plain is None
        and dtype is torch.float32
        and nc in (2, 3)
        and native.usable_for(z, dtype, nc)
    ):
        return native.parted(z, nc)
    terms = part(z, None, dtype, nc)
    return finished(terms, terms[0] if plain is None else plain)


def narrowed(x: Tensor, dtype: torch.dtype) -> Tensor:
    """float32 components (..., nc) as as many of a half type."""
    rest = terms_of(x)
    terms = []
    for _ in range(len(rest)):
        kept = rest[0].to(dtype)
        terms.append(kept)
        rest[0] = rest[0] - kept.to(torch.float32)
        for k in range(len(rest) - 2, -1, -1):
            rest[k], rest[k + 1] = two_sum(rest[k], rest[k + 1])
    return finished(terms, terms[0])


def widened(x: Tensor) -> Tensor:
    """Components of a half type as float32 ones, exactly; each plane contiguous."""
    return stacked(terms_of(x.to(torch.float32)))

"""Wider types that carry the computation of components, and conversions to and from them.

Two float32 components fit a double with 5 digits to spare; three fit a pair of doubles. Half types
are widened to float32 components and narrowed again. A carrier has at least 4 more digits than are
kept, so its own rounding never shows.
"""

import torch
from torch import Tensor

from trainwright.mcf import native
from trainwright.mcf.errorfree import PRECISION, fast_two_sum, two_sum
from trainwright.mcf.expansion import cut, finished, stacked, terms_of

HALF = (torch.float16, torch.bfloat16)


def digits(dtype: torch.dtype, nc: int) -> int:
    """Return the binary digits that nc components hold."""
    return PRECISION[dtype] * nc


def in_double(dtype: torch.dtype, nc: int) -> bool:
    """Return whether a double holds nc components with digits to spare; never for float64."""
    return dtype is not torch.float64 and (digits(dtype, nc) <= 48 or dtype is torch.float16)


def join(x: Tensor) -> Tensor:
    """Sum components (..., nc) to float64 numbers (...), rounded."""
    if x.shape[-1] == 1:
        return x[..., 0].double()
    if _kernels(x, x.shape[-1]):
        return native.join(x)
    tail, *parts = reversed(terms_of(x))
    tail = tail.to(torch.float64)
    for part in parts:
        tail = part.to(torch.float64) + tail
    return tail


def _kernels(x: Tensor, nc: int) -> bool:
    carried = x.dtype is torch.float32 and nc in (2, 3)
    return carried and native.usable(x, nc)


def join_pair(x: Tensor) -> tuple[Tensor, Tensor]:
    """Sum components to an unevaluated pair of doubles, the first being the rounded total."""
    lead, *parts = terms_of(x.to(torch.float64))
    low = torch.zeros_like(lead)
    for part in parts:
        lead, lost = two_sum(lead, part)
        low = low + lost
    return fast_two_sum(lead, low)


def parted(z: Tensor, dtype: torch.dtype, nc: int, plain: Tensor | None = None) -> Tensor:
    """Split float64 numbers into components (..., nc), each rounded to nearest.

    ``plain``: see ``finished``; by default the double itself decides.
    """
    if (
        plain is None
        and dtype is torch.float32
        and nc in (2, 3)
        and native.usable_for(z, dtype, nc)
    ):
        return native.parted(z, nc)
    terms = cut([z], dtype, nc)
    return finished(terms, terms[0] if plain is None else plain)


def narrowed(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Convert float32 components (..., nc) to the same count of components of a half type."""
    terms = cut(terms_of(x), dtype, x.shape[-1])
    return finished(terms, terms[0])


def widened(x: Tensor) -> Tensor:
    """Convert components of a half type to float32, exactly; each plane is contiguous."""
    return stacked(terms_of(x.to(torch.float32)))

"""Expansions: numbers as unevaluated sums of floats, and how they are brought into order.

Component tensors have shape (..., nc), the largest component first. An expansion is *normalised* if
every component is the rounding of itself plus all that follow: no component can be merged into the
one before it. Zeros come last. What is not finite has a leading component and zeros.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from trainwright.mcf.errorfree import fast_two_sum, two_sum

Terms = list[Tensor]
"""Floats whose sum is meant, all of one shape."""


def terms_of(x: Tensor) -> Terms:
    """The components of (..., nc) as nc tensors of shape (...)."""
    return list(x.unbind(-1))


def stacked(terms: Sequence[Tensor]) -> Tensor:
    """The opposite: (..., nc), with each component contiguous by itself."""
    return torch.stack(torch.broadcast_tensors(*terms)).movedim(0, -1)


def vec_sum(terms: Sequence[Tensor]) -> Terms:
    """One error-free pass of Two-Sum from the last term to the first (Ogita, Rump, Oishi 2005).

    The first result is the rounded sum, the others what its additions lost; nothing else is lost.
    """
    out = list(terms)
    for k in range(len(out) - 2, -1, -1):
        out[k], out[k + 1] = two_sum(out[k], out[k + 1])
    return out


def distilled(terms: Sequence[Tensor], nc: int, passes: int) -> Terms:
    """The first nc of the terms after so many passes of ``vec_sum``, one after the other.

    A pass that begins after the first k terms are settled leaves them alone, so that it is shorter.
    """
    out = list(terms)
    for _ in range(passes):
        out = vec_sum(out)
    for k in range(len(out) - 1):  # settles what ties left: component k before component k + 1
        out[k], out[k + 1] = fast_two_sum(out[k], out[k + 1])
    return out[:nc]


def finished(terms: Sequence[Tensor], plain: Tensor) -> Tensor:
    """Components (..., nc) of a result, IEEE where floats are special.

    ``plain`` is the operation on the leading components alone. It decides where the expansion is
    not finite (infinities, NaN, intermediate overflow) and which sign a zero has.
    """
    lead, *rest = terms
    special = ~torch.isfinite(lead)
    zero = torch.zeros_like(lead)
    lead = torch.where(special | ((lead == 0) & (plain == 0)), plain, lead)
    special = ~torch.isfinite(lead) | special
    return stacked([lead, *(torch.where(special, zero, part) for part in rest)])


def padded(x: Tensor, nc: int) -> Tensor:
    """Components (..., n) as (..., nc), zeros appended. n <= nc."""
    if x.shape[-1] == nc:
        return x
    zero = torch.zeros_like(x[..., 0])
    return stacked([*terms_of(x), *[zero] * (nc - x.shape[-1])])

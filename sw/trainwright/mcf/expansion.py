"""Expansions: numbers as unevaluated sums of floats, and their normalisation.

Component tensors have shape (..., nc), with the largest component first. An expansion is
*normalised* if every component is the rounding of the sum of itself and all that follow: no
component can be merged into its predecessor. Zeros come last. Numbers that are not finite have a
leading component followed by zeros.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from trainwright.mcf.errorfree import fast_two_sum, two_sum

Terms = list[Tensor]
"""Floats of one shape that represent their sum."""


def terms_of(x: Tensor) -> Terms:
    """Split components (..., nc) into nc tensors of shape (...)."""
    return list(x.unbind(-1))


def stacked(terms: Sequence[Tensor]) -> Tensor:
    """Combine terms to components (..., nc), each component contiguous in memory."""
    return torch.stack(torch.broadcast_tensors(*terms)).movedim(0, -1)


def vec_sum(terms: Sequence[Tensor]) -> Terms:
    """Run one error-free pass of Two-Sum from last to first term (Ogita, Rump, Oishi 2005).

    The first result is the rounded sum; the other results are the errors of its additions. Nothing
    is lost.
    """
    out = list(terms)
    for k in range(len(out) - 2, -1, -1):
        out[k], out[k + 1] = two_sum(out[k], out[k + 1])
    return out


def distilled(terms: Sequence[Tensor], nc: int, passes: int) -> Terms:
    """Return the first nc terms after ``passes`` passes of ``vec_sum``."""
    out = list(terms)
    for _ in range(passes):
        out = vec_sum(out)
    for k in range(len(out) - 1):  # restore the order that ties may leave undone
        out[k], out[k + 1] = fast_two_sum(out[k], out[k + 1])
    return out[:nc]


def cut(terms: Sequence[Tensor], dtype: torch.dtype, nc: int) -> Terms:
    """Return nc terms of ``dtype``, each the rounding of the first term that is left."""
    rest, kept = list(terms), []
    for _ in range(nc):
        kept.append(rest[0].to(dtype))
        rest = vec_sum([rest[0] - kept[-1].to(rest[0].dtype), *rest[1:]])
    return kept


def finished(terms: Sequence[Tensor], plain: Tensor) -> Tensor:
    """Combine terms to components (..., nc), following IEEE 754 for special values.

    ``plain`` is the operation on the leading components alone. It decides where the expansion is
    not finite (infinities, NaN, intermediate overflow) and which sign a zero has.
    """
    lead, *lower = terms
    special = ~torch.isfinite(lead)
    zero = torch.zeros_like(lead)
    lead = torch.where(special | ((lead == 0) & (plain == 0)), plain, lead)
    special = ~torch.isfinite(lead) | special
    return stacked([lead, *(torch.where(special, zero, part) for part in lower)])


def padded(x: Tensor, nc: int) -> Tensor:
    """Append zeros to components (..., n) to get (..., nc). n <= nc."""
    if x.shape[-1] == nc:
        return x
    zero = torch.zeros_like(x[..., 0])
    return stacked([*terms_of(x), *[zero] * (nc - x.shape[-1])])

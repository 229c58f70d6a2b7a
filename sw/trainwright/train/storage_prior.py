"""A rank prior that weighs every column by what it costs to store.

The paper's prior (``train/prior.py``) sees bond n in G_n alone and weighs a column by
c_n = 1 + R_{n-1} I_n J_n, about the elements that it has there. Without column r of bond n,
however, G_n loses R_{n-1} J_n I_n elements and G_{n+1} loses J_{n+1} I_{n+1} R_{n+1}: k_n together.
This prior is

    sum over bonds n and columns r of k_n / 4 * log(||G_n(:,:,:,r)||_F^2 ||G_{n+1}(r,:,:,:)||_F^2),

what equations 2 and 4 leave of the paper's, c_n / 2 log ||G_n(:,:,:,r)||_F^2, with the pull shared
by both sides. It does not change when a column grows on one side and shrinks on the other, which
leaves W as it is; so a column is judged by the product of its norms, too.
"""

from collections.abc import Sequence
from itertools import pairwise
from math import log

import torch

LEAST = 1e-30
"""Floor of a squared norm: a column of zeros has no direction to shrink in."""


def column_cost(left: torch.Tensor, right: torch.Tensor) -> int:
    """Return k_n: the elements of ``left`` (R_{n-1}, J_n, I_n, R_n) and ``right`` in a column."""
    return left[..., 0].numel() + right[0].numel()


def _squares(left: torch.Tensor, right: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return squared norms of every column of the bond on its two sides; float64 (R_n,)."""
    return (
        left.to(torch.float64).square().sum((0, 1, 2)),
        right.to(torch.float64).square().sum((1, 2, 3)),
    )


def storage_strengths(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Return the product of every column's norms on both sides of its bond; float64 (R_n,)."""
    on_left, on_right = _squares(left, right)
    return (on_left * on_right).sqrt()


def storage_loss(factors: Sequence[torch.Tensor]) -> float:
    """Return the prior of one layer, without its weight."""
    total = 0.0
    for left, right in pairwise(factors):
        quarter = column_cost(left, right) / 4
        for squares in _squares(left, right):
            total += quarter * sum(log(max(s, LEAST)) for s in squares.tolist())
    return total


def storage_gradients(factors: Sequence[torch.Tensor], weight: float) -> list[torch.Tensor]:
    """Return the gradient of the weighted prior at every factor of a layer; float64."""
    gradients = [torch.zeros_like(factor, dtype=torch.float64) for factor in factors]
    for n, (left, right) in enumerate(pairwise(factors)):
        # The derivative of k/4 log s by an element g of the column is k/4 x 2 g / s, as s is the
        # sum of squares: k/2 g / s.
        scale = weight * column_cost(left, right) / 2
        on_left, on_right = (scale / s.clamp_min(LEAST) for s in _squares(left, right))
        # An inner factor has a bond on either side and gets both pulls.
        gradients[n] += left.to(torch.float64) * on_left
        gradients[n + 1] += right.to(torch.float64) * on_right[:, None, None, None]
    return gradients

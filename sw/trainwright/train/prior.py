"""The paper's rank prior (equations 1, 2 and 4).

For bond n and column r of a layer, with c_n = 1 + R_{n-1} I_n J_n and s = ||G_n(:,:,:,r)||_F^2:
lambda = 2 s / c_n (equation 4), and the prior adds w (s / lambda + c_n / 2 log lambda) to the loss.
With lambda held constant its gradient is 2 w G_n / lambda.

It is taken at the master weight, and the gradient of the cross-entropy at the quantised factor. At
the quantised factor a column whose elements all round to 0 would stop shrinking.
"""

from collections.abc import Sequence
from math import log

import torch

from trainwright.train.storage_prior import LEAST


def rank_parameters(factor: torch.Tensor) -> torch.Tensor:
    """Return lambda_n (equation 4), float64 (R_n,), for a factor (R_{n-1}, J_n, I_n, R_n)."""
    left, j, i, _ = factor.shape
    squares = factor.to(torch.float64).square().sum((0, 1, 2))
    return 2 * squares / (1 + left * i * j)


def prior_loss(factors: Sequence[torch.Tensor]) -> float:
    """Return g of equation 2 over the bonds of one layer, without its weight."""
    total = 0.0
    for factor in factors[:-1]:
        left, j, i, right = factor.shape
        half = (1 + left * i * j) / 2
        # s / lambda is half of c_n by equation 4, whatever s is.
        total += half * right
        total += half * sum(log(max(v, LEAST)) for v in rank_parameters(factor).tolist())
    return total


def prior_gradient(factor: torch.Tensor, weight: float) -> torch.Tensor:
    """Return the gradient of the weighted prior at a factor that has a bond on its right.

    Float64.
    """
    # The floor keeps the scale finite for a column of zeros, whose gradient is then 0 x finite = 0.
    scale = 2 * weight / rank_parameters(factor).clamp_min(LEAST)
    return factor.to(torch.float64) * scale

"""Matrices that the tests of QR share."""

from functools import cache

import torch


@cache
def conditioned(m: int, n: int, alpha: float, seed: int = 0) -> torch.Tensor:
    """Return Q'(alpha E + I) over its norm, E all ones: kappa_2 = n alpha + 1 (float64)."""
    generator = torch.Generator().manual_seed(seed)
    q, _ = torch.linalg.qr(torch.randn(m, n, generator=generator, dtype=torch.float64))
    a = q @ (alpha * torch.ones(n, n, dtype=torch.float64) + torch.eye(n, dtype=torch.float64))
    return a / torch.linalg.matrix_norm(a)


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """Draw a matrix of the normal distribution."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)

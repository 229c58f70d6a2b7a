"""Panel factorisation in machine arithmetic with few torch calls.

Fast path of ``reflectors.factor_panel`` for one matrix in float32 or float64. Columns have elements
of at most about 1 (``result.prepared`` scales them), but the part of a column that earlier
reflectors leave may have any size, down to subnormal numbers.
"""

import math

import torch

_LEAST_NORM = {torch.float32: 2.0**-40, torch.float64: 2.0**-400}
"""Norms below which squares may underflow: the column is scaled first."""


def _scale_up(v: torch.Tensor) -> tuple[float, int]:
    """Scale ``v`` in place to a largest element in [1/2, 1); return its norm and the exponent."""
    exponent = math.frexp(float(v.abs().max()))[1]
    half = -exponent // 2  # 2^-exponent overflows for a subnormal column: two steps
    v.mul_(math.ldexp(1.0, half)).mul_(math.ldexp(1.0, -exponent - half))
    return float(torch.linalg.vector_norm(v)), exponent


def eliminate(rows: torch.Tensor, j: int) -> tuple[float, float]:
    """Reflect column j of the matrix whose columns are ``rows`` (n, m) to sigma e_j.

    The reflector replaces the column from row j on, and is applied to all later columns. Returns
    beta and sigma, with the signs of ``reflectors.hh_vec``.
    """
    v = rows[j, j:]
    norm, exponent = float(torch.linalg.vector_norm(v)), 0
    if norm < _LEAST_NORM[rows.dtype]:
        norm, exponent = _scale_up(v)
    head = float(v[0])
    sigma = (norm if head < 0 else -norm) if norm else 0.0
    beta = -(head - sigma) / sigma if norm else 0.0
    if norm:
        v.div_(head - sigma)
    v[0] = 1
    if beta and j + 1 < len(rows):
        right_rows = rows[j + 1 :, j:]
        right_rows.addr_(torch.mv(right_rows, v), v, alpha=-beta)
    return beta, math.ldexp(sigma, exponent)


def factor_machine_panel(a: torch.Tensor, vectors: torch.Tensor) -> torch.Tensor:
    """Run Algorithm 3 in place: ``a`` (m, n) becomes R over zeros; returns ``beta`` (n,).

    ``vectors`` (m, n) is overwritten with V. Fast where ``a`` is column-major: each reflector then
    takes one matrix-vector product and one rank-1 update of the remaining columns, over contiguous
    memory.
    """
    steps = [eliminate(a.mT, j) for j in range(a.shape[-1])]
    return parted(a, vectors, steps)


def factor_machine_block(a: torch.Tensor, vectors: torch.Tensor) -> torch.Tensor:
    """Run ``factor_machine_panel`` in one call of LAPACK's geqrf, on (..., m, n).

    LAPACK has the same signs, and scales columns that are too small to be squared.
    """
    factored, tau = torch.geqrf(a)
    vectors.copy_(factored).tril_(-1)
    vectors.diagonal(dim1=-2, dim2=-1).fill_(1)
    a.copy_(factored).triu_()
    return tau


def parted(
    a: torch.Tensor, vectors: torch.Tensor, steps: list[tuple[float, float]]
) -> torch.Tensor:
    """Split eliminated columns of ``a`` (m, n) into ``vectors`` and R; return ``beta``."""
    betas, sigmas = zip(*steps, strict=True)
    count = len(steps)
    vectors.copy_(a[:, :count])
    vectors.tril_()
    a.triu_(1)
    a.diagonal()[:count].copy_(torch.tensor(sigmas, dtype=a.dtype))
    return torch.tensor(betas, dtype=a.dtype, device=a.device)

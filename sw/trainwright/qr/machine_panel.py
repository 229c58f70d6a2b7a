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


def factor_machine_panel(a: torch.Tensor, vectors: torch.Tensor) -> torch.Tensor:
    """Run Algorithm 3 in place: ``a`` (m, n) becomes R over zeros; returns ``beta`` (n,).

    ``vectors`` (m, n) is overwritten with V. Fast where ``a`` is column-major: each reflector then
    takes one matrix-vector product and one rank-1 update of the remaining columns, over contiguous
    memory.
    """
    rows = a.mT  # (n, m)
    betas: list[float] = []
    sigmas: list[float] = []
    least = _LEAST_NORM[a.dtype]
    for j in range(a.shape[-1]):
        v = rows[j, j:]
        norm, exponent = float(torch.linalg.vector_norm(v)), 0
        if norm < least:
            norm, exponent = _scale_up(v)
        head = float(v[0])
        sigma = (norm if head < 0 else -norm) if norm else 0.0
        beta = -(head - sigma) / sigma if norm else 0.0
        if norm:
            v.div_(head - sigma)
        v[0] = 1
        sigmas.append(math.ldexp(sigma, exponent))
        betas.append(beta)
        if beta and j + 1 < a.shape[-1]:
            right_rows = rows[j + 1 :, j:]
            right_rows.addr_(torch.mv(right_rows, v), v, alpha=-beta)
    vectors.copy_(a)
    vectors.tril_()
    a.triu_(1)
    a.diagonal().copy_(torch.tensor(sigmas, dtype=a.dtype))
    return torch.tensor(betas, dtype=a.dtype, device=a.device)

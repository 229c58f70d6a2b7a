"""Factor a panel in machine arithmetic, with as few calls as it takes.

The fast path of ``reflectors.factor_panel`` for one matrix in float32 or float64. Columns have
elements of at most about 1 (``result.prepared`` scales them), but what earlier reflectors leave of
a column may be of any size, down to subnormal numbers.
"""

import math

import torch

_LEAST_NORM = {torch.float32: 2.0**-40, torch.float64: 2.0**-400}
"""Norms below which squares that matter may underflow: the column is scaled first."""


def _scale_up(v: torch.Tensor) -> tuple[float, int]:
    """Divide ``v`` in place by the power of two over its largest element; return norm, exponent."""
    exponent = math.frexp(float(v.abs().max()))[1]
    half = -exponent // 2  # 2^-exponent overflows where the column is subnormal
    v.mul_(math.ldexp(1.0, half)).mul_(math.ldexp(1.0, -exponent - half))
    return float(torch.linalg.vector_norm(v)), exponent


def factor_machine_panel(a: torch.Tensor, vectors: torch.Tensor) -> torch.Tensor:
    """Algorithm 3 in place: ``a`` (m, n) becomes R over zeros; ``vectors`` (m, n) is overwritten
    with V. Returns ``beta`` (n,).

    Fast where ``a`` is column-major: the products with the remaining columns are then one
    matrix-vector product and one rank-1 update over contiguous memory.
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
            rest = rows[j + 1 :, j:]
            rest.addr_(torch.mv(rest, v), v, alpha=-beta)
    vectors.copy_(a)
    vectors.tril_()
    a.triu_(1)
    a.diagonal().copy_(torch.tensor(sigmas, dtype=a.dtype))
    return torch.tensor(betas, dtype=a.dtype, device=a.device)

"""Householder reflectors: construction (Algorithm 2), application, and panels (Algorithm 3)."""

from itertools import product

import torch

from trainwright.precision.rounding import exponent_of, power_of_two
from trainwright.qr.arithmetic import Arithmetic, MachineArithmetic, norm_shift
from trainwright.qr.machine_panel import factor_machine_panel

_LARGE = 1 << 12
"""Elements from which a batch is factored matrix by matrix: each is enough work per call."""


def hh_vec(
    x: torch.Tensor, arithmetic: Arithmetic
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Run Algorithm 2 on ``x`` (..., m): ``v`` (..., m) with v_1 = 1, ``beta``, ``sigma`` (...).

    (I - beta v v^T) x = sigma e_1, sigma = -sign(x_1) ||x||_2, sign(0) = +1. A column that is zero
    already has beta = 0 and sigma = 0. The column is scaled by a power of two first, without
    rounding, so that neither the norm's squares nor x_1 - sigma overflow or underflow.
    """
    ar = arithmetic
    top = x.abs().amax(-1)
    exponent = exponent_of(top)
    reach = 1000 if x.dtype is torch.float64 else 120  # powers of two that are normal numbers
    shift = (exponent - norm_shift(x.shape[-1], ar.format)).clamp(-reach, reach)
    scaled = x * power_of_two(-shift, x.dtype).unsqueeze(-1)
    norm = torch.sqrt(ar.matmul(scaled.unsqueeze(-2), scaled.unsqueeze(-1))[..., 0, 0])
    head = scaled[..., 0]
    length = ar.round(norm)
    sigma = torch.where(head < 0, length, -length)
    first = ar.round(head - sigma)
    zero = top == 0
    divisor = torch.where(zero, 1.0, first)
    beta = torch.where(zero, 0.0, ar.round(-first / torch.where(zero, 1.0, sigma)))
    v = ar.round(scaled / divisor.unsqueeze(-1))
    v[..., 0] = 1
    return v, beta, ar.round(sigma * power_of_two(shift, x.dtype))


def apply_reflector(
    c: torch.Tensor, v: torch.Tensor, beta: torch.Tensor, arithmetic: Arithmetic
) -> None:
    """Compute c <- c - v (beta v^T c) in place: c (..., m, q), v (..., m), beta (...)."""
    t = arithmetic.matmul(v.unsqueeze(-2), c)[..., 0, :]
    arithmetic.subtract_outer(c, v, arithmetic.round(beta.unsqueeze(-1) * t))


def factor_panel(a: torch.Tensor, vectors: torch.Tensor, arithmetic: Arithmetic) -> torch.Tensor:
    """Run Algorithm 3 in place: ``a`` (..., m, n) becomes R over zeros; return ``beta`` (..., n).

    ``vectors`` (..., m, n), zeros at first, is filled with V: lower trapezoidal, ones on the
    diagonal.
    """
    n = a.shape[-1]
    if isinstance(arithmetic, MachineArithmetic):
        if a.dim() == 2:
            return factor_machine_panel(a, vectors)
        if a.dim() > 2 and a.shape[-2] * n >= _LARGE:
            parts = [
                factor_panel(a[index], vectors[index], arithmetic)
                for index in product(*map(range, a.shape[:-2]))
            ]
            return torch.stack(parts).reshape(*a.shape[:-2], n)
    betas = a.new_zeros(*a.shape[:-2], n)
    for j in range(n):
        v, beta, sigma = hh_vec(a[..., j:, j], arithmetic)
        vectors[..., j:, j] = v
        betas[..., j] = beta
        a[..., j, j] = sigma
        a[..., j + 1 :, j] = 0
        if j + 1 < n:
            apply_reflector(a[..., j:, j + 1 :], v, beta, arithmetic)
    return betas


def apply_panel(
    c: torch.Tensor,
    vectors: torch.Tensor,
    betas: torch.Tensor,
    arithmetic: Arithmetic,
    *,
    transposed: bool,
    triangular: bool = False,
) -> None:
    """Compute c <- P_1 ... P_n c in place, or P_n ... P_1 c if ``transposed``; ``c`` (..., m, q).

    ``triangular``: row j of c is zero left of column j, as in the identity, so columns that a
    reflector leaves unchanged, exactly, are skipped.
    """
    n = betas.shape[-1]
    for j in range(n) if transposed else reversed(range(n)):
        part = c[..., j:, j if triangular else 0 :]
        apply_reflector(part, vectors[..., j:, j], betas[..., j], arithmetic)


def fill_wy(
    w: torch.Tensor, vectors: torch.Tensor, betas: torch.Tensor, arithmetic: Arithmetic
) -> None:
    """Fill ``w`` (..., m, r) with the W of P_1 ... P_r = I - W V^T (3.2).

    w_j = beta_j [v_j - W_(1:j-1) (V_(1:j-1)^T v_j)]; machine arithmetic computes all j at once.
    """
    ar = arithmetic
    gram = ar.matmul(vectors.mT, vectors)
    if isinstance(ar, MachineArithmetic):
        w.copy_(vectors @ _triangle(gram, betas))
        return
    for j in range(betas.shape[-1]):
        column = w[..., :, j : j + 1]
        column.copy_(vectors[..., :, j : j + 1])
        if j:
            ar.subtract_product(column, w[..., :, :j], gram[..., :j, j : j + 1])
        column.copy_(ar.round(column * betas[..., j, None, None]))


def _triangle(gram: torch.Tensor, betas: torch.Tensor) -> torch.Tensor:
    """Return T (..., r, r), W = V T: the inverse of triu(V^T V, 1) + diag(1 / beta).

    A reflector with beta = 0 is the identity and takes no part in the others.
    """
    idle = betas == 0
    alone = idle.unsqueeze(-1) | idle.unsqueeze(-2)
    inverse = gram.masked_fill(alone, 0).triu(1)
    inverse.diagonal(dim1=-2, dim2=-1).copy_(1 / betas.masked_fill(idle, 1))
    eye = torch.eye(betas.shape[-1], dtype=gram.dtype, device=gram.device).expand_as(gram)
    t = torch.linalg.solve_triangular(inverse, eye, upper=True)
    return t.masked_fill(idle.unsqueeze(-2), 0)

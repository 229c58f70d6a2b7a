"""Errors of a factorisation, measured in float64 with about twice its digits.

In plain float64 the product Q^T Q of a float64 Q errs as much as Q itself. Both factors are
therefore split: x = h + l with h on a grid so coarse (about 20 bits below the largest element) that
products of h and their sums are exact.
"""

import torch

from trainwright.precision.rounding import exponent_of, power_of_two, scale_by_power


def _split(x: torch.Tensor, bits: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (h, l), h + l = x exactly, h with ``bits`` bits below a power of two over max |x|."""
    top = x.abs().amax((-2, -1), keepdim=True)
    exponent = exponent_of(top).clamp(-900, 900)
    unit = power_of_two(exponent - bits, x.dtype)
    h = (x / unit).round() * unit
    return h, x - h


def product_minus(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    """Compute a b - c in float64, ``a`` (..., p, k), ``b`` (..., k, q).

    The error is a small multiple of 2^-70 k max|a| max|b|, because sums of k products of ``bits``
    bits each fit into the 53 bits of float64.
    """
    bits = (52 - (a.shape[-1] - 1).bit_length()) // 2
    (ah, al), (bh, bl) = _split(a, bits), _split(b, bits)
    return (ah @ bh - c) + (ah @ bl + al @ b)


def residual(a: torch.Tensor, q: torch.Tensor, r: torch.Tensor) -> torch.Tensor:
    """Return ||QR - A||_F / ||A||_F of each matrix of a batch in float64; 0 if A and QR are 0."""
    top = torch.maximum(a.abs().amax((-2, -1)), r.abs().amax((-2, -1)))
    exponent = -exponent_of(top)[..., None, None]  # squares of norms stay in range
    a, r = scale_by_power(a, exponent), scale_by_power(r, exponent)
    size = torch.linalg.matrix_norm(a)
    difference = torch.linalg.matrix_norm(product_minus(q, r, a))
    return torch.where(size > 0, difference / torch.where(size > 0, size, 1.0), difference)


def least_norm(a: torch.Tensor) -> tuple[float, int]:
    """Return the smallest nonzero ||A||_F of a batch as (f, e), f 2^e; (0, 0) if there is none."""
    wide = a.detach().to(torch.float64)
    exponent = exponent_of(wide.abs().amax((-2, -1)))
    norms = torch.linalg.matrix_norm(scale_by_power(wide, -exponent[..., None, None]))
    f, e = torch.frexp(norms)
    pairs = zip((e + exponent).flatten().tolist(), f.flatten().tolist(), strict=True)
    least, size = min(((e, f) for e, f in pairs if f), default=(0, 0.0))
    return size, least


def orthogonality(q: torch.Tensor) -> torch.Tensor:
    """Return ||Q^T Q - I||_2 of each matrix of a batch in float64."""
    eye = torch.eye(q.shape[-1], dtype=q.dtype, device=q.device)
    return torch.linalg.matrix_norm(product_minus(q.mT, q, eye), ord=2)

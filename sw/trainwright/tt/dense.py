"""The matrix of a tensor train, and how far two trains are apart."""

import torch

from trainwright.precision.rounding import scale_by_power
from trainwright.support.arguments import is_real_type
from trainwright.support.graphs import library_call, with_own_settings
from trainwright.tt.numbers import Numbers
from trainwright.tt.orthogonal import left_orthogonal
from trainwright.tt.scaling import near_one, norm, quotient, widened
from trainwright.tt.trains import Factors, TensorTrainError, check_factors


@with_own_settings
def to_matrix(factors: Factors, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """Return W (J, I) in ``dtype``, rows j_1 .. j_d and columns i_1 .. i_d in order.

    Raises ``TensorTrainError`` where an element overflows ``dtype``.

    >>> from trainwright.tt import tt_svd
    >>> W = torch.randn(6, 6, dtype=torch.float64)
    >>> bool((to_matrix(tt_svd(W, (2, 3), (3, 2))) - W).norm() < 1e-14 * W.norm())
    True
    """
    check_factors(factors, differentiable=True)
    if not is_real_type(dtype):
        raise TensorTrainError(f"dtype must be a real floating-point type, not {dtype!r}")
    wide = dtype if dtype is torch.float32 else torch.float64
    w = torch.ones(1, 1, 1, dtype=wide, device=factors[0].device)
    total = 0
    for factor in factors:
        g, exponent = near_one(widened(factor))
        w, power = near_one(torch.einsum("jir,rkls->jkils", w, g.to(wide)))
        total += exponent + power
        j, k, i, m, r = w.shape
        w = w.reshape(j * k, i * m, r)  # (J, I, R_n)
    result = scale_by_power(w[..., 0], torch.tensor(total)).to(dtype)
    if not bool(result.detach().isfinite().all()):
        raise TensorTrainError(f"W overflows {dtype}: its elements reach 2^{total}")
    return result


@library_call
def distance(factors: Factors, second: Factors) -> float:
    """Return ||W - W'||_F / ||W||_F without forming either, accurate also where both nearly agree.

    Measures the train of W - W' itself, whose cores hold differences of factors: equal trains are
    exactly 0 apart, and 2e-8, the square root of float64's round-off, is no limit. Raises
    ``TensorTrainError`` for NaN or infinite elements and for different dimensions.

    >>> from trainwright.tt import tt_svd
    >>> factors = tt_svd(torch.randn(6, 6, dtype=torch.float64), (2, 3), (3, 2))
    >>> distance(factors, factors)
    0.0
    """
    check_factors(factors)
    check_factors(second)
    shapes = [[tuple(f.shape[1:3]) for f in train] for train in (factors, second)]
    if shapes[0] != shapes[1]:
        raise TensorTrainError(f"factors of {shapes[0]} and of {shapes[1]} have no difference")
    cores, exponent = _difference(factors, second)
    return quotient(_norm(cores, exponent), _norm(factors))


def _norm(factors: Factors, exponent: int = 0) -> tuple[float, int]:
    """Return ||W||_F 2^exponent as f and e, f 2^e."""
    result, power = left_orthogonal(factors, Numbers())
    size, own = norm(result[-1])
    return size, own + power + exponent


_CLOSE = 2.0**-10
"""Relative difference up to which factors count as nearly equal: a hundred change W by 10 %."""


def _difference(factors: Factors, second: Factors) -> tuple[list[torch.Tensor], int]:
    """Return cores of (W - W') 2^-e, and e."""
    gs, hs = ([near_one(x.detach().to(torch.float64)) for x in f] for f in (factors, second))
    exponent = sum(a for _, a in gs)
    aligned = [
        (g, scale_by_power(h, torch.tensor(b - a))) for (g, a), (h, b) in zip(gs, hs, strict=True)
    ]
    if all(g.shape == h.shape and (g - h).norm() <= _CLOSE * g.norm() for g, h in aligned):
        cores = [_telescoped(g, h) for g, h in aligned]
        cores[0] = cores[0][:1]  # begins with P = 1 and D = 0
        cores[-1] = cores[-1][..., 1:]  # ends with D
        return cores, exponent
    lead = sum(b for _, b in hs) - exponent  # powers of two that W' has beyond W
    (g, _), (h, _) = gs[-1], hs[-1]
    gs[-1] = scale_by_power(g, torch.tensor(min(-lead, 0))), 0
    hs[-1] = scale_by_power(-h, torch.tensor(min(lead, 0))), 0
    cores = [_beside(g, h) for (g, _), (h, _) in zip(gs, hs, strict=True)]
    cores[0] = cores[0].sum(0, keepdim=True)
    cores[-1] = cores[-1].sum(3, keepdim=True)
    return cores, exponent + max(lead, 0)


def _telescoped(g: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
    """Build the core that takes prefixes P of W, and D of W - W', to the next prefixes.

    P <- P G and D <- P (G - H) + D H: only nearly equal factors are subtracted, without error.
    """
    above, below = torch.cat([g, g - h], 3), torch.cat([torch.zeros_like(h), h], 3)
    return torch.cat([above, below], 0)


def _beside(g: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
    """Build the core that takes prefixes of W and of W' to the next prefixes, side by side."""
    pad = torch.nn.functional.pad
    return torch.cat([pad(g, (0, h.shape[3])), pad(h, (g.shape[3], 0))], 0)

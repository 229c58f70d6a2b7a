"""QR of matrices of chosen condition: every variant, block widths, TSQR levels, and LAPACK."""

import time
from collections.abc import Sequence
from dataclasses import astuple, dataclass

import torch

from trainwright.qr.experiments.variants import Variant, variants
from trainwright.qr.measure import orthogonality, residual
from trainwright.support.finding import Progress, silent

ALPHAS = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)


@dataclass(frozen=True)
class ConditionErrors:
    """Errors of one factorisation relative to ||A||_F; bounds are inf where none is known."""

    variant: str
    m: int
    n: int
    alpha: float
    condition: float
    residual: float
    orthogonality: float
    seconds: float
    """Time for Q and R."""
    residual_bound: float | None = None
    orthogonality_bound: float | None = None
    residual_probable: float | None = None
    orthogonality_probable: float | None = None
    leading: float | None = None


def conditioned(m: int, n: int, alpha: float, seed: int = 0) -> torch.Tensor:
    """Return Q'(alpha E + I) over its Frobenius norm, E all ones: kappa_2 = n alpha + 1."""
    generator = torch.Generator().manual_seed(seed)
    q, _ = torch.linalg.qr(torch.randn(m, n, generator=generator, dtype=torch.float64))
    a = q @ (alpha * torch.ones(n, n, dtype=torch.float64) + torch.eye(n, dtype=torch.float64))
    return a / torch.linalg.matrix_norm(a)


def measure(a: torch.Tensor, alpha: float, variant: Variant) -> ConditionErrors:
    """Factor a matrix, timing Q and R, and measure the errors."""
    m, n = a.shape
    begin = time.perf_counter()
    result = variant(a)
    _ = result.Q
    seconds = time.perf_counter() - begin
    e = result.errors
    limits = *astuple(e.bound), *astuple(e.probable), e.leading
    errors = e.residual, e.orthogonality, seconds, *limits
    return ConditionErrors(variant.name, m, n, alpha, n * alpha + 1, *errors)


def lapack(a: torch.Tensor, alpha: float, dtype: torch.dtype = torch.float64) -> ConditionErrors:
    """Measure ``torch.linalg.qr``, which calls LAPACK's geqrf and orgqr."""
    m, n = a.shape
    begin = time.perf_counter()
    q, r = torch.linalg.qr(a.to(dtype))
    seconds = time.perf_counter() - begin
    q, r = q.double(), r.double()
    off, skew = float(residual(a, q, r)), float(orthogonality(q))
    name = "LAPACK fp64" if dtype is torch.float64 else "LAPACK fp32"
    return ConditionErrors(name, m, n, alpha, n * alpha + 1, off, skew, seconds)


def run(
    m: int = 4000,
    n: int = 100,
    *,
    alphas: Sequence[float] = ALPHAS,
    blocks: tuple[int, ...] = (4, 8, 16, 32, 64),
    levels: tuple[int, ...] = (1, 2, 3, 4, 5),
    progress: Progress = silent,
) -> list[ConditionErrors]:
    """Measure every variant on one matrix per alpha, omitting levels that leave too few rows."""
    levels = tuple(level for level in levels if m >> level >= n)
    chosen = variants(blocks=tuple(b for b in blocks if b <= n), levels=levels)
    rows: list[ConditionErrors] = []
    for number, alpha in enumerate(alphas):
        a = conditioned(m, n, alpha, seed=number)
        rows += [lapack(a, alpha), lapack(a, alpha, torch.float32)]
        for variant in chosen:
            rows.append(measure(a, alpha, variant))
            progress(len(rows), len(alphas) * (len(chosen) + 2))
    return rows

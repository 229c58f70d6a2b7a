"""Times and errors of every QR variant, and of torch's and LAPACK's blocked routines."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import torch

from trainwright.qr import block_qr, householder_qr, tsqr
from trainwright.qr.experiments.variants import variants
from trainwright.qr.measure import orthogonality, residual
from trainwright.support.finding import Finding, Progress, Tell, silent
from trainwright.support.tables import table

Pair = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True)
class RoutineTiming:
    """Time and errors of one routine on one matrix, with thin Q and R."""

    m: int
    n: int
    routine: str
    seconds: float
    """CPU seconds, minimum of the repetitions."""
    times_torch: float
    """Time divided by ``torch.linalg.qr``'s, in float32 for fp32 routines, else float64."""
    residual: float
    orthogonality: float


def _scipy(kind: str, a: torch.Tensor) -> Callable[[], Pair]:
    """Return a call of LAPACK's geqrt and gemqrt, blocked in compact WY form."""
    import numpy as np
    from scipy.linalg import lapack

    matrix = np.asfortranarray(a.numpy())
    m, n = matrix.shape
    letter = {"fp32": "s", "fp64": "d"}[kind]
    geqrt, gemqrt = getattr(lapack, f"{letter}geqrt"), getattr(lapack, f"{letter}gemqrt")

    def call() -> Pair:
        factored, t, _ = geqrt(min(32, n), matrix)
        q, _ = gemqrt(factored, t, np.eye(m, n, dtype=matrix.dtype, order="F"))
        return torch.from_numpy(q), torch.from_numpy(np.triu(factored[:n]))

    return call


def routines(a: torch.Tensor) -> dict[str, Callable[[], Pair]]:
    """Return calls that factor ``a`` (float64), by name; times are relative to the first two."""
    single = a.to(torch.float32)
    calls: dict[str, Callable[[], Pair]] = {
        "torch.linalg.qr fp64": lambda: tuple(torch.linalg.qr(a)),
        "torch.linalg.qr fp32": lambda: tuple(torch.linalg.qr(single)),
    }
    if find_spec("scipy") is not None:
        calls["LAPACK geqrt fp64"] = _scipy("fp64", a)
        calls["LAPACK geqrt fp32"] = _scipy("fp32", single)

    def add(name: str, factor: Callable[[], object]) -> None:
        def call() -> Pair:
            result = factor()
            return getattr(result, "Q"), getattr(result, "R")  # noqa: B009

        calls[name] = call

    for high, matrix in (("fp64", a), ("fp32", single)):
        add(f"{high} block", lambda high=high, matrix=matrix: block_qr(matrix, high=high))
        add(f"{high} HQR", lambda high=high, matrix=matrix: householder_qr(matrix, high=high))
        if a.shape[0] >> 2 >= a.shape[1]:
            add(f"{high} TSQR, L = 2", lambda high=high, matrix=matrix: tsqr(matrix, high=high))
    levels = (2,) if a.shape[0] >> 2 >= a.shape[1] else ()
    for variant in variants(blocks=(32,), levels=levels):
        if variant.options.get("low"):
            add(variant.name, lambda variant=variant: variant(a))
    return calls


def run(
    m: int,
    n: int,
    repeat: int = 7,
    *,
    progress: Progress = silent,
) -> list[RoutineTiming]:
    """Measure every routine on one random matrix; low-precision simulations run at most twice."""
    a = torch.randn(m, n, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    a /= torch.linalg.matrix_norm(a)
    rows: list[RoutineTiming] = []
    least: dict[str, float] = {}
    calls = routines(a)
    for name, call in calls.items():
        times = []
        pair = call()
        for _ in range(repeat if "fp16" not in name else min(2, repeat)):
            begin = time.process_time()
            pair = call()
            times.append(time.process_time() - begin)
        least[name] = min(times)
        base = least["torch.linalg.qr fp32" if "fp32" in name else "torch.linalg.qr fp64"]
        q, r = (t.to(torch.float64) for t in pair)
        errors = float(residual(a, q, r)), float(orthogonality(q))
        rows.append(RoutineTiming(m, n, name, min(times), min(times) / base, *errors))
        progress(len(rows), len(calls))
    return rows


def _blas_threads(count: int) -> AbstractContextManager[Any]:
    """Hold scipy's LAPACK to as many threads as torch; scikit-learn brings the means."""
    if find_spec("threadpoolctl") is None or find_spec("scipy") is None:
        return nullcontext()
    import scipy.linalg  # noqa: F401  the limit holds for what is loaded
    from threadpoolctl import threadpool_limits

    return threadpool_limits(count)


def bench(options: Any, tell: Tell) -> Finding:
    """Measure every routine by the options of ``trainwright bench qr``."""
    rows = []
    with _blas_threads(options.threads):
        for m, n in options.size or ((2000, 200), (1024, 64)):
            rows += run(m, n, options.repeat, progress=tell(f"bench {m} x {n}"))
    head = ("rows", "columns", "routine", "seconds", "times torch", "residual", "orthogonality")
    return Finding({"rows": rows}, table(head, rows))

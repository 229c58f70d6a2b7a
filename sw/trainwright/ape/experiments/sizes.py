"""Figure 15: error of matrix products against the length of their sums."""

from dataclasses import dataclass

import torch

from trainwright.ape.accumulate import Accumulation
from trainwright.ape.experiments.magnitude import TYPES
from trainwright.ape.gemm import gemm
from trainwright.ape.schemes import NATIVE
from trainwright.support.finding import Progress, silent

SIZES = tuple(2**n for n in range(6, 14))


@dataclass(frozen=True)
class LengthErrors:
    """Errors of one type at one length, relative to the exact element."""

    dtype: str
    rounding: str
    block: int
    """Products between two roundings; 0 for the library's float32."""
    size: int
    largest: float
    mean: float


def run(
    sizes: tuple[int, ...] = SIZES,
    side: int = 32,
    seed: int = 0,
    progress: Progress = silent,
) -> list[LengthErrors]:
    """Measure a ``side`` x ``side`` sample of products of n x n uniform (0, 1) matrices.

    Accumulators truncate after 8 products (like tensor cores) or round to nearest; the library's
    float32 product is measured too. The reference is float64.
    """
    ways = [
        (name, Accumulation(rounding=r, block=8)) for name in TYPES for r in ("zero", "nearest")
    ]
    rows = []
    done, total = 0, sum(sizes) * (len(ways) + 1)
    for size in sizes:
        random = torch.Generator().manual_seed(seed)
        a, b = torch.rand(side, size, generator=random), torch.rand(size, side, generator=random)
        exact = a.to(torch.float64) @ b.to(torch.float64)
        for name, how in [*ways, (NATIVE, None)]:
            result = gemm(a, b, dtype=name, accumulation=how).to(torch.float64)
            error = (result - exact).abs() / exact
            rounding, block = (how.rounding, how.block) if how else ("library", 0)
            rows.append(
                LengthErrors(name, rounding, block, size, float(error.max()), float(error.mean()))
            )
            done += size
            progress(done, total)
    return rows

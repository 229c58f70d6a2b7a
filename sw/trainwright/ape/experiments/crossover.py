"""Figure 8: time against the share of blocks that need fp32-b, and the decider's choice."""

from dataclasses import dataclass

import torch
from torch import Tensor

from trainwright.ape.adapter import Adapter, hybrid
from trainwright.ape.decider import Decision, ProductKind, block_kinds, jobs_of
from trainwright.ape.performance import PerformanceModel, measure
from trainwright.ape.products import product
from trainwright.ape.schemes import scheme
from trainwright.support.finding import Progress, silent, tracked
from trainwright.support.stopwatch import least_seconds

SHARES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


@dataclass(frozen=True)
class CrossoverPoint:
    """Predicted and measured seconds, and the choice, at one share of fp32-b blocks."""

    share: float
    f_products: int
    b_products: int
    b_predicted: float
    b_measured: float
    hybrid_predicted: float
    hybrid_measured: float
    choice: str
    fastest: str
    """Faster method as measured: ``hybrid`` or ``fp32-b``."""


def matrices(size: int, block: int, share: float, seed: int) -> tuple[Tensor, Tensor]:
    """Draw two (size, size); ``share`` of the first one's blocks are too small for fp32-f."""
    random = torch.Generator().manual_seed(seed)
    a = 0.5 + torch.rand(size, size, generator=random)
    b = 0.5 + torch.rand(size, size, generator=random)
    side = -(-size // block)
    small = torch.zeros(side * side)
    small[torch.randperm(side * side, generator=random)[: round(share * side * side)]] = 1
    grown = small.reshape(side, side).repeat_interleave(block, 0).repeat_interleave(block, 1)
    return torch.where(grown[:size, :size] == 1, a * 2.0**-30, a), b


def _row(
    a: Tensor, b: Tensor, share: float, adapter: Adapter, model: PerformanceModel, repeats: int
) -> CrossoverPoint:
    block = adapter.blocks[0]
    kinds = block_kinds(a, b, adapter.blocks, strict=False)
    jobs = jobs_of(kinds)
    plan = Decision("hybrid", {}, {}, 0.0, jobs)
    whole = least_seconds(lambda: product(a[None], b[None], scheme("fp32-b")), a.device, repeats)
    mixed = least_seconds(lambda: hybrid(a, b, plan, adapter.blocks), a.device, repeats)
    predicted = sum(
        model.predict(job.kind.dtype, block * len(job.rows), block, block * len(job.columns))
        for job in jobs
    )
    f, wide = (int((kinds == kind).sum()) for kind in (ProductKind.F3, ProductKind.B))
    alone = model.predict("fp32-b", a.shape[0], a.shape[1], b.shape[1])
    times = alone, whole, predicted, mixed
    fastest = "hybrid" if mixed < whole else "fp32-b"
    return CrossoverPoint(share, f, wide, *times, adapter.decide(a, b).choice, fastest)


def run(
    size: int = 512,
    block: int = 128,
    repeats: int = 3,
    seed: int = 0,
    device: torch.device | None = None,
    model: PerformanceModel | None = None,
    progress: Progress = silent,
) -> tuple[list[CrossoverPoint], PerformanceModel, float]:
    """Return points over ``SHARES``, the model, and the measured seconds of fp32-f for everything.

    As in the paper, fp32-f is the type with three products (``strict=False``).
    """
    device = device or torch.device("cpu")
    model = model or PerformanceModel.calibrate(device)
    adapter = Adapter(blocks=(block, block, block), strict=False, model=model)
    rows = []
    for share in tracked(SHARES, progress):
        a, b = (x.to(device) for x in matrices(size, block, share, seed))
        rows.append(_row(a, b, share, adapter, model, repeats))
    return rows, model, measure("fp32-f", size, size, size, device, repeats)

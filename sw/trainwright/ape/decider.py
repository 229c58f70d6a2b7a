"""Choice of a type for each block product, and of the fastest method (sections 5.2 and 5.3)."""

from dataclasses import dataclass, field
from enum import IntEnum
from itertools import product
from math import inf

import torch
from torch import Tensor

from trainwright.ape import cuda
from trainwright.ape.masks import RangeLevel, block_extent, block_levels, fused_summaries
from trainwright.ape.performance import PerformanceModel
from trainwright.support.graphs import cached_constant

UNDERFLOW = 2.0**-122
"""Products above this keep 24 bits, and the roundings of three accumulators do not underflow."""
OVERFLOW = 2.0**126
"""Sums of |a b| below this cannot overflow, although parts are rounded up."""


class ProductKind(IntEnum):
    """Type of a block product. ``F3`` and ``F4``: fp32-f without and with lo*lo."""

    F3 = 0
    F4 = 1
    B = 2
    T = 3
    NATIVE = 4

    @property
    def dtype(self) -> str:
        """Name of the type in ``gemm``."""
        return ("fp32-f", "fp32-f4", "fp32-b", "fp32-t4", "fp32")[self]


@dataclass(frozen=True)
class BlockJob:
    """Product of some rows and columns of blocks within a strip of K."""

    kind: ProductKind
    strip: int
    rows: tuple[int, ...]
    columns: tuple[int, ...]


@dataclass(frozen=True)
class Decision:
    """Choice of ``auto`` for one pair of matrices."""

    choice: str
    """Type of the whole product, or ``hybrid``."""
    counts: dict[str, int]
    """Block products by the type that each needs."""
    seconds: dict[str, float]
    """Predicted time of every choice that keeps the promise; empty if there is only one."""
    promise: float
    """Largest relative error of a product under this choice."""
    jobs: tuple[BlockJob, ...] = field(default=(), repr=False)


def pair_kinds(a: Tensor, b: Tensor, *, strict: bool = True) -> Tensor:
    """Return the cheapest kind for each pair of levels, int8, broadcast over ``a`` and ``b``.

    fp32-f drops lo*lo, up to 2^-22 of the product, in addition to representation errors of 2^-23
    per factor: together more than its promise of 2^-22. ``strict`` drops lo*lo only where the
    levels guarantee the promise: lo is 0 in one of the blocks, or both blocks are represented
    without error.
    """
    pairs = a.to(torch.int64) * len(RangeLevel) + b
    return _pair_table(strict, a.device)[pairs]


@cached_constant
def _pair_table(strict: bool, device: torch.device) -> Tensor:
    """Return the kind of each pair of levels, int8, flat; made once a device."""
    table = torch.full(
        (len(RangeLevel), len(RangeLevel)), int(ProductKind.NATIVE), dtype=torch.int8
    )
    for a, b in product(RangeLevel, repeat=2):
        top, least = max(a, b), min(a, b)
        if top <= RangeLevel.EXACT or (top is RangeLevel.F and least is RangeLevel.HALF):
            table[a, b] = ProductKind.F3
        elif top is RangeLevel.F:
            table[a, b] = ProductKind.F4 if strict else ProductKind.F3
        elif top in (RangeLevel.B, RangeLevel.T):
            table[a, b] = ProductKind.B if top is RangeLevel.B else ProductKind.T
    return table.flatten().to(device)


def block_kinds(
    a: Tensor, b: Tensor, blocks: tuple[int, int, int], *, strict: bool = True
) -> Tensor:
    """Return the kinds of all block products of a (M, K) and b (K, N): int8 (K, M, N) of blocks.

    Levels of blocks do not suffice: a product may underflow or overflow where neither factor does.
    The native type computes products that could fall below ``UNDERFLOW`` and sums that could exceed
    ``OVERFLOW``.
    """
    bm, bk, bn = blocks
    kinds = pair_kinds(
        block_levels(a, bm, bk).T[:, :, None], block_levels(b, bk, bn)[:, None, :], strict=strict
    )
    wide = (kinds == ProductKind.B) | (kinds == ProductKind.T)
    if bool(wide.any()):
        (least_a, most_a), (least_b, most_b) = block_extent(a, bm, bk), block_extent(b, bk, bn)
        least = least_a.T[:, :, None] * least_b[:, None, :]
        kinds.masked_fill_((kinds > ProductKind.F4) & (least < UNDERFLOW), ProductKind.NATIVE)
        finite = torch.finfo(torch.float64).max
        most = most_a.clamp(max=finite).nan_to_num() @ most_b.clamp(max=finite).nan_to_num() * bk
        kinds.masked_fill_(wide.any(0) & ~(most < OVERFLOW), ProductKind.NATIVE)
    return kinds


def counted_kinds(
    a: Tensor, b: Tensor, blocks: tuple[int, int, int], *, strict: bool = True
) -> tuple[Tensor, dict[ProductKind, int]]:
    """Return ``block_kinds`` and how many block products are of each kind that is present.

    On a GPU three kernels compute kinds and counts, and the host waits once, for the counts.
    """
    summaries = fused_summaries(a, b, blocks)
    if summaries is None:
        kinds = block_kinds(a, b, blocks, strict=strict)
        every = torch.arange(len(ProductKind), dtype=torch.int8, device=kinds.device)
        totals = (kinds.flatten() == every[:, None]).sum(1)
    else:
        kinds, totals = cuda.kernels(a).pairs(
            *summaries, blocks[1], strict=strict, underflow=UNDERFLOW, overflow=OVERFLOW
        )
    return kinds, {
        kind: count for kind, count in zip(ProductKind, totals.tolist(), strict=True) if count
    }


def jobs_of(kinds: Tensor) -> tuple[BlockJob, ...]:
    """Group block products into few rectangles: rows of equal kinds in each strip go together."""
    jobs = []
    for strip, table in enumerate(kinds.cpu()):
        patterns, member = torch.unique(table, dim=0, return_inverse=True)
        for n, pattern in enumerate(patterns):
            rows = tuple((member == n).nonzero().flatten().tolist())
            for kind in pattern.unique().tolist():
                columns = tuple((pattern == kind).nonzero().flatten().tolist())
                jobs.append(BlockJob(ProductKind(kind), strip, rows, columns))
    return tuple(jobs)


_PROMISES = {
    ProductKind.F3: 2.0**-22,
    ProductKind.F4: 2.0**-22,
    ProductKind.B: 2.0**-23,
    ProductKind.T: 2.0**-22,
}


def _least_hybrid(
    model: PerformanceModel, counts: dict[str, int], blocks: tuple[int, int, int], shape: torch.Size
) -> float:
    """Return a lower bound of the hybrid's seconds: its work, and one start per strip.

    The bound saves finding the jobs, which takes longer than many products on a GPU.
    """
    bm, bk, bn = blocks
    # Blocks at the edges may be smaller than others, so a bound counts those before the last ones.
    strips, rows, columns = shape
    whole = max(0, (rows - 1) * (columns - 1) * (strips - 1)) / (rows * columns * strips)
    work = sum(count * bm * bk * bn * model.terms[kind][2] for kind, count in counts.items())
    return work * whole + strips * min(model.terms[kind][0] for kind in counts)


def decide(
    a: Tensor,
    b: Tensor,
    *,
    blocks: tuple[int, int, int],
    model: PerformanceModel | None,
    strict: bool = True,
    compete: bool = False,
) -> Decision:
    """Choose the fastest method to multiply float32 a (M, K) and b (K, N) that keeps the promise.

    Candidates are every type for the whole product, and the hybrid of blocks. The native type is a
    candidate only if no other type keeps the promise or, with ``compete``, if it is predicted to be
    faster. ``model`` (``None``: calibrated once per device) is used only where there is a choice.
    """
    if 0 in (*a.shape, b.shape[1]):
        return Decision("fp32", {}, {}, 0.0)
    kinds, present = counted_kinds(a, b, blocks, strict=strict)
    counts = {kind.dtype: count for kind, count in present.items()}
    promises = dict(_PROMISES)
    if not strict:
        promises[ProductKind.F3] = 2.0**-21
    only = present.keys() == {ProductKind.NATIVE}
    # A kind can compute blocks of all kinds below it, and so a whole product with such blocks.
    candidates = [kind for kind in _PROMISES if kind >= max(present)]
    if ProductKind.T not in present:  # fp32-b is a candidate then, and more exact than fp32-t4
        candidates = [kind for kind in candidates if kind is not ProductKind.T]
    if only or (len(present) == 1 and min(present) <= ProductKind.F4 and not compete):
        kind = min(present)
        return Decision(kind.dtype, counts, {}, promises.get(kind, 0.0))
    if compete:
        candidates.append(ProductKind.NATIVE)
    model = model or PerformanceModel.of(a.device)
    m, k, n = a.shape[0], a.shape[1], b.shape[1]
    seconds = {kind.dtype: model.predict(kind.dtype, m, k, n) for kind in candidates}
    jobs: tuple[BlockJob, ...] = ()
    if len(present) > 1 and _least_hybrid(model, counts, blocks, kinds.shape) < min(
        seconds.values(), default=inf
    ):
        jobs = jobs_of(kinds)
        bm, bk, bn = blocks
        seconds["hybrid"] = sum(
            model.predict(
                job.kind.dtype,
                min(m, bm * len(job.rows)),
                min(k, bk),
                min(n, bn * len(job.columns)),
            )
            for job in jobs
        )
    choice = min(seconds, key=lambda name: seconds[name])
    promise = max(
        promises.get(kind, 0.0)
        for kind in ProductKind
        if kind.dtype == choice or (choice == "hybrid" and kind in present)
    )
    return Decision(choice, counts, seconds, promise, jobs if choice == "hybrid" else ())

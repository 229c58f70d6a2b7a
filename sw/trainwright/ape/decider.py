"""Choice of a type for each block product, and of the fastest method (sections 5.2 and 5.3)."""

from dataclasses import dataclass, field
from enum import IntEnum

import torch
from torch import Tensor

from trainwright.ape.masks import RangeLevel, block_extent, block_levels
from trainwright.ape.performance import PerformanceModel

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
    top, least = torch.maximum(a, b), torch.minimum(a, b)
    kinds = torch.full(top.shape, int(ProductKind.NATIVE), dtype=torch.int8, device=top.device)
    kinds[top == RangeLevel.T] = ProductKind.T
    kinds[top == RangeLevel.B] = ProductKind.B
    kinds[top <= RangeLevel.F] = ProductKind.F4 if strict else ProductKind.F3
    kinds[(top <= RangeLevel.EXACT) | ((top == RangeLevel.F) & (least == RangeLevel.HALF))] = (
        ProductKind.F3
    )
    return kinds


def count_products(mask_a: Tensor, mask_b: Tensor) -> int:
    """Count the block products whose blocks are both marked: the small GEMM of section 5.3.

    Masks (M, K) and (K, N) are over blocks. The paper encodes FP32-F as 0 and FP32-B as 1 and says
    that the product counts FP32-F; this holds only with the codes exchanged.
    """
    return int((mask_a.to(torch.float64) @ mask_b.to(torch.float64)).sum().item())


def block_kinds(
    a: Tensor, b: Tensor, blocks: tuple[int, int, int], *, strict: bool = True
) -> Tensor:
    """Return the kinds of all block products of a (M, K) and b (K, N): int8 (K, M, N) of blocks.

    Levels of blocks do not suffice: a product may underflow or overflow where neither factor does.
    The native type computes products that could fall below ``UNDERFLOW`` and sums that could exceed
    ``OVERFLOW``.
    """
    bm, bk, bn = blocks
    left, right = block_levels(a, bm, bk), block_levels(b, bk, bn)
    kinds = pair_kinds(left.T[:, :, None], right[:, None, :], strict=strict)
    if bool(((kinds == ProductKind.B) | (kinds == ProductKind.T)).any()):
        (least_a, most_a), (least_b, most_b) = block_extent(a, bm, bk), block_extent(b, bk, bn)
        least = least_a.T[:, :, None] * least_b[:, None, :]
        kinds[(kinds > ProductKind.F4) & (least < UNDERFLOW)] = ProductKind.NATIVE
        finite = torch.finfo(torch.float64).max
        most = most_a.clamp(max=finite).nan_to_num() @ most_b.clamp(max=finite).nan_to_num() * bk
        kinds[:, ~(most < OVERFLOW)] = ProductKind.NATIVE
    return kinds


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
_SUBSTITUTES = {  # a kind for everything: the kinds that it can replace
    ProductKind.F3: {ProductKind.F3},
    ProductKind.F4: {ProductKind.F3, ProductKind.F4},
    ProductKind.B: {ProductKind.F3, ProductKind.F4, ProductKind.B},
    ProductKind.T: {ProductKind.F3, ProductKind.F4, ProductKind.B, ProductKind.T},
}


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

    Candidates are each type for everything, and the hybrid of blocks. The native type is a
    candidate only where nothing else holds or, with ``compete``, wherever it is predicted to be
    faster. ``model`` (``None``: calibrated once per device) is used only where there is a choice.
    """
    if 0 in (*a.shape, b.shape[1]):
        return Decision("fp32", {}, {}, 0.0)
    kinds = block_kinds(a, b, blocks, strict=strict)
    present = {ProductKind(n) for n in kinds.unique().tolist()}
    counts = {kind.dtype: int((kinds == kind).sum()) for kind in sorted(present)}
    promises = dict(_PROMISES)
    if not strict:
        promises[ProductKind.F3] = 2.0**-21
    only = present == {ProductKind.NATIVE}
    candidates = [kind for kind, stands in _SUBSTITUTES.items() if present <= stands]
    if ProductKind.T not in present:  # fp32-t4 is less exact than fp32-b, which suffices here
        candidates = [kind for kind in candidates if kind is not ProductKind.T]
    if only or (present in ({ProductKind.F3}, {ProductKind.F4}) and not compete):
        kind = present.pop()
        return Decision(kind.dtype, counts, {}, promises.get(kind, 0.0))
    if compete:
        candidates.append(ProductKind.NATIVE)
    model = model or PerformanceModel.of(a.device)
    m, k, n = a.shape[0], a.shape[1], b.shape[1]
    seconds = {kind.dtype: model.predict(kind.dtype, m, k, n) for kind in candidates}
    jobs = jobs_of(kinds)
    if len(present) > 1:
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

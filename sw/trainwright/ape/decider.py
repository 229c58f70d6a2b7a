"""Which type for which block product, and which method is fastest (sections 5.2 and 5.3)."""

from dataclasses import dataclass, field
from enum import IntEnum

import torch
from torch import Tensor

from trainwright.ape.masks import Level, block_extent, block_levels
from trainwright.ape.performance import PerformanceModel

UNDERFLOW = 2.0**-122
"""Products above this keep 24 bits and the roundings of three accumulators from underflow."""
OVERFLOW = 2.0**126
"""Sums of |a b| below this cannot overflow, though parts are rounded up."""


class Kind(IntEnum):
    """How a block product is computed. ``F3`` and ``F4``: fp32-f without and with lo*lo."""

    F3 = 0
    F4 = 1
    B = 2
    T = 3
    NATIVE = 4

    @property
    def dtype(self) -> str:
        """The type's name for ``gemm``."""
        return ("fp32-f", "fp32-f4", "fp32-b", "fp32-t4", "fp32")[self]


@dataclass(frozen=True)
class Job:
    """One product of rows and columns of blocks within a strip of K."""

    kind: Kind
    strip: int
    rows: tuple[int, ...]
    columns: tuple[int, ...]


@dataclass(frozen=True)
class Decision:
    """What ``auto`` does with one pair of matrices."""

    choice: str
    """A type for the whole product, or ``hybrid``."""
    counts: dict[str, int]
    """Block products by the type that each one needs."""
    seconds: dict[str, float]
    """Predicted time of every choice that keeps the promise; empty where there was only one."""
    promise: float
    """Largest relative error of a product under this choice."""
    jobs: tuple[Job, ...] = field(default=(), repr=False)


def pair_kinds(a: Tensor, b: Tensor, *, strict: bool = True) -> Tensor:
    """The cheapest kind for each pair of levels, int8, broadcast over ``a`` and ``b``.

    fp32-f drops lo*lo, up to 2^-22 of the product, beside representation errors of 2^-23 a
    factor: together more than its 2^-22. ``strict`` drops it only where the levels vouch for the
    sum: lo is 0 in one of the blocks, or both are represented without error.
    """
    top, least = torch.maximum(a, b), torch.minimum(a, b)
    kinds = torch.full(top.shape, int(Kind.NATIVE), dtype=torch.int8, device=top.device)
    kinds[top == Level.T] = Kind.T
    kinds[top == Level.B] = Kind.B
    kinds[top <= Level.F] = Kind.F4 if strict else Kind.F3
    kinds[(top <= Level.EXACT) | ((top == Level.F) & (least == Level.HALF))] = Kind.F3
    return kinds


def count_products(mask_a: Tensor, mask_b: Tensor) -> int:
    """How many block products have both blocks marked: the small GEMM of section 5.3.

    Masks (M, K) and (K, N) of blocks. The paper encodes FP32-F as 0 and FP32-B as 1 and says that
    the product counts FP32-F; it does so if the codes are exchanged.
    """
    return int((mask_a.to(torch.float64) @ mask_b.to(torch.float64)).sum().item())


def block_kinds(
    a: Tensor, b: Tensor, blocks: tuple[int, int, int], *, strict: bool = True
) -> Tensor:
    """Kinds of all block products of a (M, K) and b (K, N): int8 (K, M, N) of blocks.

    Beyond the levels of the blocks: a product may under- or overflow where neither factor does.
    Where a product could fall below ``UNDERFLOW`` or a sum exceed ``OVERFLOW`` the native type
    computes it.
    """
    bm, bk, bn = blocks
    left, right = block_levels(a, bm, bk), block_levels(b, bk, bn)
    kinds = pair_kinds(left.T[:, :, None], right[:, None, :], strict=strict)
    if bool(((kinds == Kind.B) | (kinds == Kind.T)).any()):
        (least_a, most_a), (least_b, most_b) = block_extent(a, bm, bk), block_extent(b, bk, bn)
        least = least_a.T[:, :, None] * least_b[:, None, :]
        kinds[(kinds > Kind.F4) & (least < UNDERFLOW)] = Kind.NATIVE
        finite = torch.finfo(torch.float64).max
        most = most_a.clamp(max=finite).nan_to_num() @ most_b.clamp(max=finite).nan_to_num() * bk
        kinds[:, ~(most < OVERFLOW)] = Kind.NATIVE
    return kinds


def jobs_of(kinds: Tensor) -> tuple[Job, ...]:
    """The fewest rectangles: in each strip, rows of equal kinds go together."""
    jobs = []
    for strip, table in enumerate(kinds.cpu()):
        patterns, member = torch.unique(table, dim=0, return_inverse=True)
        for n, pattern in enumerate(patterns):
            rows = tuple((member == n).nonzero().flatten().tolist())
            for kind in pattern.unique().tolist():
                columns = tuple((pattern == kind).nonzero().flatten().tolist())
                jobs.append(Job(Kind(kind), strip, rows, columns))
    return tuple(jobs)


_PROMISES = {Kind.F3: 2.0**-22, Kind.F4: 2.0**-22, Kind.B: 2.0**-23, Kind.T: 2.0**-22}
_SUBSTITUTES = {  # a kind for everything -> the kinds that it can stand for
    Kind.F3: {Kind.F3},
    Kind.F4: {Kind.F3, Kind.F4},
    Kind.B: {Kind.F3, Kind.F4, Kind.B},
    Kind.T: {Kind.F3, Kind.F4, Kind.B, Kind.T},
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
    """The fastest method to multiply float32 a (M, K) and b (K, N) that keeps the promise.

    Candidates are each type for everything, and the hybrid of blocks; the native type only where
    nothing else holds, or, with ``compete``, wherever it is predicted to be faster. ``model`` is
    asked (and calibrated by ``None``, once a device) only where there is a choice.
    """
    if 0 in (*a.shape, b.shape[1]):
        return Decision("fp32", {}, {}, 0.0)
    kinds = block_kinds(a, b, blocks, strict=strict)
    present = {Kind(n) for n in kinds.unique().tolist()}
    counts = {kind.dtype: int((kinds == kind).sum()) for kind in sorted(present)}
    promises = dict(_PROMISES)
    if not strict:
        promises[Kind.F3] = 2.0**-21
    only = present == {Kind.NATIVE}
    candidates = [kind for kind, stands in _SUBSTITUTES.items() if present <= stands]
    if Kind.T not in present:  # less exact than fp32-b: not where that holds
        candidates = [kind for kind in candidates if kind is not Kind.T]
    if only or (present in ({Kind.F3}, {Kind.F4}) and not compete):
        kind = present.pop()
        return Decision(kind.dtype, counts, {}, promises.get(kind, 0.0))
    if compete:
        candidates.append(Kind.NATIVE)
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
        for kind in Kind
        if kind.dtype == choice or (choice == "hybrid" and kind in present)
    )
    return Decision(choice, counts, seconds, promise, jobs if choice == "hybrid" else ())

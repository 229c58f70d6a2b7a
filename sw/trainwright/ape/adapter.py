"""``dtype="auto"``: levels of blocks, decision, and the hybrid of block products (section 5.2)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from trainwright.ape.accumulate import Accumulation
from trainwright.ape.decider import Decision, ProductKind, decide
from trainwright.ape.performance import PerformanceModel
from trainwright.ape.products import native_product, product
from trainwright.ape.schemes import NATIVE, scheme
from trainwright.support.arguments import check_flags, is_size, require_kind, take_numpy_sizes


@dataclass(frozen=True, kw_only=True)
class Adapter:
    """Options of ``auto``; see ``decider.decide`` for ``strict`` and ``compete``.

    >>> import torch
    >>> from trainwright import ape
    >>> a = torch.randn(64, 64)
    >>> adapter = ape.Adapter(blocks=(32, 32, 32))
    >>> product = ape.gemm(a, a, dtype="auto", adapter=adapter)
    >>> bool((product - a @ a).abs().max() < 1e-4)
    True
    """

    blocks: tuple[int, int, int] = (128, 128, 128)
    """Rows of a block of A, its columns (rows of a block of B), columns of a block of B."""
    strict: bool = True
    """False drops lo*lo everywhere, as the paper does: 2^-21 instead of 2^-22 per product."""
    compete: bool = False
    """True lets the native type win where it is predicted to be faster."""
    model: PerformanceModel | None = None
    """Time model; None calibrates one for the device, once, when there is a choice."""

    def __post_init__(self) -> None:
        check_flags({"strict": self.strict, "compete": self.compete})
        if self.model is not None:
            require_kind("model", self.model, PerformanceModel)
        take_numpy_sizes(self, "blocks")
        if len(self.blocks) != 3 or not all(map(is_size, self.blocks)):
            raise ValueError(f"blocks must be three sizes of at least 1, not {self.blocks!r}")

    def decide(self, a: Tensor, b: Tensor) -> Decision:
        """Decide how to multiply float32 a (M, K) by b (K, N)."""
        return decide(
            a, b, blocks=self.blocks, model=self.model, strict=self.strict, compete=self.compete
        )

    def product(self, a: Tensor, b: Tensor, how: Accumulation | None = None) -> Tensor:
        """Multiply float32 (M, K) by (K, N) as decided; float32 (M, N)."""
        decision = self.decide(a, b)
        if decision.choice == "hybrid":
            return hybrid(a, b, decision, self.blocks, how)
        if decision.choice == NATIVE:
            return native_product(a, b)
        return product(a[None], b[None], scheme(decision.choice), how)[0]


def hybrid(
    a: Tensor,
    b: Tensor,
    decision: Decision,
    blocks: tuple[int, int, int],
    how: Accumulation | None = None,
) -> Tensor:
    """Run the jobs of a decision, each in its type; add strips of K in float32, in order."""
    bm, bk, bn = blocks
    total = a.new_zeros(a.shape[0], b.shape[1])
    for job in decision.jobs:
        rows = _elements(job.rows, bm, a.shape[0]).to(a.device)
        columns = _elements(job.columns, bn, b.shape[1]).to(a.device)
        strip = slice(job.strip * bk, (job.strip + 1) * bk)
        left, right = a[rows, strip], b[strip][:, columns]
        if job.kind is ProductKind.NATIVE:
            part = native_product(left, right)
        else:
            part = product(left[None], right[None], scheme(job.kind.dtype), how)[0]
        where = (rows[:, None], columns[None, :])
        total[where] = total[where] + part
    return total


def _elements(numbers: tuple[int, ...], size: int, limit: int) -> Tensor:
    """Return the element indices of some blocks."""
    index = torch.tensor(numbers)[:, None] * size + torch.arange(size)
    return index[index < limit]

"""TSQR (3.3): QR of a tall matrix in 2^L row blocks, joined in a binary tree.

Block k of level i - 1 keeps its R in the top n rows of row block k 2^(i-1). Node k of level i takes
the R of two neighbours, so a level is a strided view of the row blocks, and all its nodes are
factored at once.
"""

from dataclasses import dataclass

import torch

from trainwright.precision import PrecisionFormat
from trainwright.qr.apriori import Shape
from trainwright.qr.precision import Precision, make_precision
from trainwright.qr.reflectors import apply_panel, factor_panel, fill_wy
from trainwright.qr.result import (
    QR,
    QRError,
    column_major,
    column_major_zeros,
    prepared,
    with_columns_restored,
)
from trainwright.support.arguments import is_size, plain
from trainwright.support.graphs import library_call
from trainwright.support.text import amount


@dataclass(frozen=True)
class TreeLevel:
    """Reflectors of one level: ``V`` (..., nodes, rows, n), ``beta`` (..., nodes, n).

    ``W`` has the shape of ``V`` where a node is applied as one block (rounding ``block``), else
    None.
    """

    V: torch.Tensor
    beta: torch.Tensor
    W: torch.Tensor | None

    def apply(self, x: torch.Tensor, precision: Precision, *, transposed: bool) -> None:
        """Compute x <- Q x or Q^T x in place, ``x`` (..., nodes, rows, q)."""
        if self.W is None:
            apply_panel(x, self.V, self.beta, precision.panel, transposed=transposed)
            return
        left, right = (self.V, self.W) if transposed else (self.W, self.V)
        arithmetic = precision.trailing
        arithmetic.subtract_product(x, left, arithmetic.matmul(right.mT, x))


@dataclass(frozen=True, eq=False)
class TallQR(QR):
    """QR by a tree: ``tree[0]`` has the row blocks, ``tree[i]`` the nodes of level i."""

    tree: tuple[TreeLevel, ...]

    @property
    def V(self) -> tuple[torch.Tensor, ...]:
        """Reflectors by level: (..., 2^L, rows, n), then (..., 2^(L-i), 2n, n)."""
        return tuple(level.V for level in self.tree)

    @property
    def beta(self) -> tuple[torch.Tensor, ...]:
        """Factors of the reflectors by level: (..., 2^(L-i), n)."""
        return tuple(level.beta for level in self.tree)

    def _apply(self, x: torch.Tensor, *, transposed: bool, triangular: bool = False) -> None:
        blocks = to_blocks(x, self.shape.levels)
        steps = list(enumerate(self.tree))
        for i, level in steps if transposed else reversed(steps):
            part = blocks if i == 0 else _pairs(blocks, i, self.n)
            level.apply(part, self.precision, transposed=transposed)
            if i:
                _put_pairs(blocks, i, part)
        x.copy_(from_blocks(blocks, self.m))


def _index(rows: int, levels: int) -> torch.Tensor:
    """Return the row of each place, (2^levels, height); ``rows`` stands for a row of zeros.

    The first blocks have one row more if the division leaves a remainder.
    """
    count = 1 << levels
    short, extra = divmod(rows, count)
    sizes = short + (torch.arange(count) < extra).to(torch.int64)
    begins = torch.cumsum(sizes, 0) - sizes
    place = torch.arange(short + (extra > 0))
    return torch.where(place < sizes[:, None], begins[:, None] + place, rows)


def to_blocks(x: torch.Tensor, levels: int) -> torch.Tensor:
    """Cut (..., m, q) to (..., 2^levels, height, q), padding short blocks with a row of zeros."""
    padded = torch.cat([x, x.new_zeros(*x.shape[:-2], 1, x.shape[-1])], -2)
    return padded[..., _index(x.shape[-2], levels).to(x.device), :]


def from_blocks(blocks: torch.Tensor, rows: int) -> torch.Tensor:
    """Join blocks of ``to_blocks`` to (..., rows, q)."""
    levels = blocks.shape[-3].bit_length() - 1
    x = blocks.new_zeros(*blocks.shape[:-3], rows + 1, blocks.shape[-1])
    x[..., _index(rows, levels).to(x.device), :] = blocks
    return x[..., :rows, :]


def _pairs(blocks: torch.Tensor, level: int, n: int) -> torch.Tensor:
    """Copy the operands of a level's nodes: (..., 2^(L-level), 2n, q)."""
    tops = blocks[..., :: 1 << (level - 1), :n, :]
    return tops.reshape(*tops.shape[:-3], tops.shape[-3] // 2, 2 * n, tops.shape[-1]).clone()


def _put_pairs(blocks: torch.Tensor, level: int, pairs: torch.Tensor) -> None:
    n = pairs.shape[-2] // 2
    tops = blocks[..., :: 1 << (level - 1), :n, :]
    tops.copy_(pairs.reshape(tops.shape))


def _factored(a: torch.Tensor, precision: Precision) -> TreeLevel:
    """Factor one level, ``a`` (..., nodes, rows, n), in place to R over zeros."""
    v = column_major_zeros(a)
    beta = factor_panel(a, v, precision.panel)
    if precision.low is None or precision.rounding != "block":
        return TreeLevel(v, beta, None)
    cast = precision.storage.round
    w = column_major_zeros(a)
    fill_wy(w, v, beta, precision.panel)
    a.copy_(cast(a))
    return TreeLevel(cast(v), beta, cast(w))


@library_call
def tsqr(
    A: torch.Tensor,
    *,
    levels: int = 2,
    low: str | PrecisionFormat | None = None,
    high: str | PrecisionFormat = "fp64",
    rounding: str = "end",
) -> TallQR:
    """Factor ``A`` (..., m, n) in 2^``levels`` row blocks of at least n rows each (3.3).

    The count of blocks need not divide m. ``rounding`` is that of ``householder_qr``: ``block``
    casts R and the reflectors once per level. Raises ``QRError`` also where a row block would have
    fewer than n rows.

    >>> A = torch.randn(1000, 4, dtype=torch.float64)
    >>> f = tsqr(A, levels=3)
    >>> bool((f.Q @ f.R - A).norm() < 1e-13 * A.norm())
    True
    """
    if not is_size(levels := plain(levels), 0):
        raise ValueError(f"levels must be an integer of at least 0, not {levels!r}")
    precision = make_precision(low, high, rounding)
    a, exponent = prepared(A, precision)
    m, n = a.shape[-2:]
    if m >> levels < n:
        raise QRError(
            f"{amount(m, 'row')} in 2^{levels} blocks leave {amount(m >> levels, 'row')} for "
            f"{amount(n, 'column')}: "
            f"take fewer levels"
        )
    blocks = column_major(to_blocks(a, levels))
    tree = [_factored(blocks, precision)]
    for level in range(1, levels + 1):
        pairs = column_major(_pairs(blocks, level, n))
        tree.append(_factored(pairs, precision))
        _put_pairs(blocks, level, pairs)
    r = with_columns_restored(blocks[..., 0, :n, :].triu(), exponent, "R", precision)
    return TallQR(A, r, precision, Shape(m, n, levels=levels), tuple(tree))

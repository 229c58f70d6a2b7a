"""TSQR over the ranks of torchrun, with bits that do not depend on their number.

Rows are cut into leaves of a fixed height, whoever holds them. Every rank factors its leaves, all
gather the leaves' R and factor the same binary tree of them: the operations on any element, and
their order, are the same for one rank and for many.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, distributed

from trainwright.precision.rounding import exponent_of, scale_by_power
from trainwright.qr.result import QRError, check_real
from trainwright.support.arguments import is_size, plain, require_kind
from trainwright.support.graphs import library_call
from trainwright.support.text import amount, shown


@dataclass(frozen=True)
class Ranks:
    """Place of this process among those that hold rows."""

    rank: int
    gather: Callable[[list[Tensor]], list[list[Tensor]]]
    """Function from this rank's tensors to those of every rank; all ranks call it at once."""


def default_ranks() -> Ranks:
    """Return the ranks of torch's default process group, or a single one without a group."""
    if not (distributed.is_available() and distributed.is_initialized()):
        return Ranks(0, lambda tensors: [tensors])

    def gather(tensors: list[Tensor]) -> list[list[Tensor]]:
        lists: list[list[Tensor]] = [[] for _ in range(distributed.get_world_size())]
        distributed.all_gather_object(lists, [t.cpu() for t in tensors])
        return lists

    return Ranks(distributed.get_rank(), gather)


@dataclass(frozen=True, eq=False)
class RankedQR:
    """A = Q R, with this rank's rows of Q and the whole R (n, n), the same on every rank."""

    Q: Tensor
    R: Tensor


@library_call
def tsqr_over_ranks(A: Tensor, *, leaf_rows: int, ranks: Ranks | None = None) -> RankedQR:
    """Factor the matrix whose rows the ranks hold in order; ``A`` (m, n) is this rank's part.

    Parts before the last that has rows need a multiple of ``leaf_rows`` rows, and a leaf at least
    n: the leaves, and the bits of Q and R, are then the same however many ranks there are, given
    the same processor and number of threads. Columns are divided by powers of two first. Raises
    ``QRError`` for parts that do not fit, NaN and infinities, on every rank.

    >>> A = torch.randn(96, 4, dtype=torch.float64)  # under torchrun: this rank's rows
    >>> f = tsqr_over_ranks(A, leaf_rows=16)
    >>> bool((f.Q @ f.R - A).norm() < 1e-13 * A.norm())
    True
    """
    check_real(A)
    if A.dim() != 2 or A.dtype not in (torch.float32, torch.float64):
        raise QRError(f"A must be a float32 or float64 matrix, not {A.dtype} {[*A.shape]}")
    if not is_size(leaf_rows := plain(leaf_rows), -(1 << 63)):
        raise ValueError(f"leaf_rows must be an integer, not {leaf_rows!r}")
    if ranks is not None:
        require_kind("ranks", ranks, Ranks)
    ranks, a, n = default_ranks() if ranks is None else ranks, A.detach(), A.shape[1]
    if leaf_rows < max(n, 1):
        raise QRError(f"leaf_rows must be at least the {amount(n, 'column')}, not {leaf_rows}")
    if leaf_rows >= 1 << 63:
        raise ValueError(f"leaf_rows must be below 2^63, not {shown(leaf_rows)}")
    tops = a.abs().amax(0) if len(a) else a.new_zeros(n)
    facts = torch.tensor([*a.shape, leaf_rows, torch.finfo(a.dtype).bits])
    parts = ranks.gather([facts, tops])
    _check([part[0].tolist() for part in parts])
    top = torch.stack([part[1] for part in parts]).amax(0)
    if not bool(torch.isfinite(top).all()):
        raise QRError("A has NaN or infinite elements")
    exponent = exponent_of(top).to(a.device)
    pieces = scale_by_power(a, -exponent).split(leaf_rows) if len(a) else ()
    leaves = [_factored(piece, n) for piece in pieces]
    gathered = ranks.gather([r for _, r in leaves])
    first = sum(len(part) for part in gathered[: ranks.rank])
    all_tops = [t.to(a.device) for part in gathered for t in part]
    r, shares = _tree(all_tops or [a.new_zeros(n, n)])
    rows = [
        (q @ share)[: len(piece)]
        for (q, _), share, piece in zip(leaves, shares[first:], pieces, strict=False)
    ]
    q = torch.cat(rows) if rows else a.clone()
    return RankedQR(q, scale_by_power(r, exponent))


def _check(facts: list[list[int]]) -> None:
    """Raise ``QRError`` unless the ranks' (rows, columns, leaf_rows, bits) fit together.

    Every rank reads the facts of all, so that all raise and none waits for another.
    """
    rows, columns, leaves, bits = map(list, zip(*facts, strict=True))
    for name, values in (("columns", columns), ("leaf_rows", leaves), ("bits of floats", bits)):
        if len(set(values)) > 1:
            raise QRError(f"ranks hold different {name}: {values}")
    if sum(rows) < columns[0]:
        had, least = amount(sum(rows), "row"), amount(columns[0], "column")
        raise QRError(f"{had} in all are fewer than the {least}")
    leaf_rows = leaves[0]
    for rank, count in enumerate(rows):
        if count % leaf_rows and any(rows[rank + 1 :]):
            raise QRError(
                f"rank {rank} holds {amount(count, 'row')}, no multiple of leaf_rows {leaf_rows}: "
                "only the last rows may be fewer"
            )


def _factored(a: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Factor one leaf or node, filled up with zeros to n rows."""
    if len(a) < n:
        a = torch.cat([a, a.new_zeros(n - len(a), n)])
    q, r = torch.linalg.qr(a)  # of a copy: its place in memory does not change the bits
    return q, r


def _tree(tops: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
    """Factor R of the leaves in pairs; return the root's R and each leaf's share of Q (n, n)."""
    n, levels = tops[0].shape[1], []
    while len(tops) > 1:
        nodes = [_factored(torch.cat(tops[k : k + 2]), n) for k in range(0, len(tops) - 1, 2)]
        levels.append([q for q, _ in nodes])
        tops = [r for _, r in nodes] + tops[len(tops) & ~1 :]
    shares = [torch.eye(n, dtype=tops[0].dtype, device=tops[0].device)]
    for nodes in reversed(levels):
        split = [(q @ share).split(n) for q, share in zip(nodes, shares, strict=False)]
        shares = [half for pair in split for half in pair] + shares[len(nodes) :]
    return tops[0], [share.clone() for share in shares]

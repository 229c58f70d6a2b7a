"""Time, memory and error of rounding a long tensor train, next to torch's own QR and SVD."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from trainwright.support.finding import Finding, Tell
from trainwright.support.memory import peak_bytes
from trainwright.support.tables import table
from trainwright.tt.dense import distance
from trainwright.tt.numbers import Numbers
from trainwright.tt.rounding import kept_rank, tt_round
from trainwright.tt.trains import Factors, ranks_of

_SIDE = 2
"""Rows, and columns, of the matrix that a factor belongs to."""
_SMALL = 1e-2
"""Share of the tolerance that the second half of the ranks contributes to W."""


@dataclass(frozen=True)
class RoundingTiming:
    """Rounding of a train in one way."""

    way: str
    seconds: float
    """CPU seconds."""
    rank: int
    """Greatest rank that is left."""
    error: float
    """||W - W'||_F / ||W||_F."""
    tolerance: float
    mebibytes: float
    """Maximum allocated at once in addition to the train, the result included."""
    train_mebibytes: float


def drawn(cores: int, rank: int, tolerance: float, *, seed: int = 0) -> list[torch.Tensor]:
    """Draw a train whose second half of ranks adds a hundredth of ``tolerance`` to W."""
    generator = torch.Generator().manual_seed(seed)
    half = max(1, rank // 2)

    def factor(left: int, right: int) -> torch.Tensor:
        shape = left, _SIDE, _SIDE, right
        return torch.randn(shape, generator=generator, dtype=torch.float64) / (_SIDE * left**0.5)

    train: list[torch.Tensor] = []
    for n in range(cores):
        left, right = (half if inner else 1 for inner in (n > 0, n < cores - 1))
        whole = torch.zeros(2 * left, _SIDE, _SIDE, 2 * right, dtype=torch.float64)
        whole[:left, ..., :right] = factor(left, right)
        whole[left:, ..., right:] = factor(left, right) * (1 if n else tolerance * _SMALL)
        train.append(whole)
    # The two trains side by side: their sum begins and ends with rank 1.
    train[0], train[-1] = train[0].sum(0, keepdim=True), train[-1].sum(3, keepdim=True)
    return train


def rounded_by_torch(factors: Factors, tolerance: float) -> list[torch.Tensor]:
    """Round a train by ``torch.linalg``, as ``tt_round`` does, without care for its range."""
    result = [factor.clone() for factor in factors]
    for n in range(len(result) - 1, 0, -1):
        left, j, i, right = result[n].shape
        q, r = torch.linalg.qr(result[n].reshape(left, -1).mT)
        result[n] = q.mT.reshape(-1, j, i, right)
        result[n - 1] = torch.einsum("ajib,cb->ajic", result[n - 1], r)
    allowed = tolerance * float(result[0].norm()) / (len(result) - 1) ** 0.5
    for n in range(len(result) - 1):
        left, j, i, right = result[n].shape
        u, s, vt = torch.linalg.svd(result[n].reshape(-1, right), full_matrices=False)
        rank = kept_rank(s, allowed, None)
        result[n] = u[:, :rank].reshape(left, j, i, rank)
        result[n + 1] = torch.einsum("ab,bjic->ajic", s[:rank, None] * vt[:rank], result[n + 1])
    return result


def run(cores: int, rank: int, tolerance: float) -> list[RoundingTiming]:
    """Measure ``tt_round`` by QR in blocks, in two precisions, and by ``torch.linalg``."""
    train = drawn(cores, rank, tolerance)
    size = sum(factor.nbytes for factor in train) / 2**20
    calls: dict[str, Callable[[], list[torch.Tensor]]] = {
        "tt_round, fp64": lambda: tt_round(train, tolerance=tolerance),
        "tt_round, fp32": lambda: tt_round(
            train, tolerance=tolerance, numbers=Numbers(high="fp32")
        ),
        "torch.linalg, fp64": lambda: rounded_by_torch(train, tolerance),
    }
    rows = []
    tt_round(drawn(3, 4, tolerance), tolerance=tolerance)  # compiles the kernels
    for way, call in calls.items():
        begin = time.process_time()
        result = call()
        seconds = time.process_time() - begin
        error = distance(train, result)
        peak = peak_bytes(call) / 2**20
        rank_left = max(ranks_of(result))
        rows.append(RoundingTiming(way, seconds, rank_left, error, tolerance, peak, size))
    return rows


def bench(options: Any, tell: Tell) -> Finding:
    """Measure every way by the options of ``trainwright bench tt``."""
    rows = run(options.cores, options.rank, options.tolerance)
    head = ("way", "seconds", "rank left", "error", "tolerance", "MiB at most", "MiB of the train")
    return Finding({"rows": rows}, table(head, rows))

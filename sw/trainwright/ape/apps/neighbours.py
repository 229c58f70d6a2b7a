"""k nearest neighbours and k-means, whose time goes into one product of all pairs."""

import torch
from torch import Tensor


def distances(x: Tensor, y: Tensor) -> Tensor:
    """Return squared distances (N, M) between x (N, D) and y (M, D): |x|^2 - 2 x y + |y|^2."""
    return (x * x).sum(1)[:, None] - 2 * (x @ y.T) + (y * y).sum(1)


def classify(train: Tensor, labels: Tensor, test: Tensor, k: int = 5) -> Tensor:
    """Return the commonest label (int64) of each test sample's ``k`` nearest; lowest at a tie."""
    nearest = distances(test, train).topk(k, largest=False).indices  # (M, k)
    votes = torch.nn.functional.one_hot(labels[nearest], int(labels.max()) + 1).sum(1)
    return votes.argmax(1)


def kmeans(x: Tensor, clusters: int, steps: int = 20, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Return centres (clusters, D) and each sample's cluster (N,) after ``steps`` of Lloyd's.

    A cluster that loses all samples keeps its centre.
    """
    random = torch.Generator().manual_seed(seed)
    centres = x[torch.randperm(len(x), generator=random)[:clusters]]
    member = torch.zeros(len(x), dtype=torch.int64)
    for _ in range(steps):
        member = distances(x, centres).argmin(1)
        chosen = torch.nn.functional.one_hot(member, clusters).to(x.dtype)  # (N, clusters)
        size = chosen.sum(0)[:, None]
        centres = torch.where(size > 0, chosen.T @ x / size.clamp(min=1), centres)
    return centres, member

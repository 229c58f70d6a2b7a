"""Spectral clustering of stochastic block models by subspace iteration, with every QR."""

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from trainwright.qr.experiments.variants import Variant, variants
from trainwright.qr.result import QRError
from trainwright.support.finding import Progress, silent


@dataclass(frozen=True)
class BlockModel:
    """Random graph of ``communities`` equal groups with ``nodes`` nodes in total.

    An edge within a group has the probability ``inside``, an edge between groups ``across``.
    """

    nodes: int
    communities: int
    inside: float
    across: float

    @property
    def difficulty(self) -> float:
        """Signal to noise of the second eigenvalue, (a - b)^2 / (k (a + (k - 1) b)).

        a = n inside, b = n across. The groups can be recovered only from 1 on (Kesten and Stigum).
        """
        k = self.communities
        a, b = self.nodes * self.inside, self.nodes * self.across
        return (a - b) ** 2 / (k * (a + (k - 1) * b))


MODELS = tuple(
    BlockModel(nodes, 4, inside, across)
    for nodes, pairs in (
        (256, ((0.30, 0.02), (0.30, 0.08), (0.30, 0.12))),
        (1024, ((0.15, 0.01), (0.15, 0.05), (0.15, 0.08))),
        (2048, ((0.10, 0.01), (0.10, 0.05), (0.10, 0.06))),
    )
    for inside, across in pairs
)
"""Graphs of three sizes, each easy, medium and hard."""


@dataclass(frozen=True)
class Clustering:
    """Result of one clustering, in fractions of the nodes under the best matching of groups."""

    variant: str
    nodes: int
    communities: int
    inside: float
    across: float
    difficulty: float
    agreement: float | None
    """Agreement with the partition that fp64 finds; None where the QR overflowed."""
    planted: float | None
    """Agreement with the groups from which the graph was drawn."""
    orthogonality: float | None


def draw(model: BlockModel, seed: int) -> tuple[torch.Tensor, npt.NDArray[np.int64]]:
    """Draw a random graph as D^(-1/2) A D^(-1/2) (nodes, nodes), float64; return its groups too."""
    random = np.random.RandomState(seed)
    groups = np.arange(model.nodes) * model.communities // model.nodes
    same = groups[:, None] == groups[None, :]
    chance = np.where(same, model.inside, model.across)
    upper = np.triu(random.random_sample(chance.shape) < chance, 1)
    adjacency = torch.from_numpy((upper | upper.T).astype(np.float64))
    root = adjacency.sum(1).clamp(min=1).rsqrt()
    return root[:, None] * adjacency * root[None, :], groups


def subspace_iteration(s: torch.Tensor, count: int, factor: Variant, steps: int) -> torch.Tensor:
    """Return an orthonormal basis (nodes, count) of the leading invariant subspace.

    ``s`` is shifted by 1 so that its largest and not its most negative eigenvalues lead. Products
    are computed in float64; every orthogonalisation uses ``factor``.
    """
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(s.shape[0], count, generator=generator, dtype=torch.float64)
    for _ in range(steps):
        x = factor(s @ x + x).Q.to(torch.float64)
    return x


def partition(basis: torch.Tensor, communities: int) -> npt.NDArray[np.int64]:
    """Cluster the rows by k-means, always from the same start."""
    from sklearn.cluster import KMeans

    means: Any = KMeans(communities, random_state=0)
    means.set_params(n_init=10)
    return np.asarray(means.fit(basis.numpy()).labels_, np.int64)


def agreement(a: npt.NDArray[np.int64], b: npt.NDArray[np.int64], communities: int) -> float:
    """Return the fraction of nodes in corresponding groups under the best matching of names."""
    from scipy.optimize import linear_sum_assignment

    table = np.zeros((communities, communities), np.int64)
    np.add.at(table, (a, b), 1)
    rows, columns = linear_sum_assignment(-table)
    return float(table[rows, columns].sum() / len(a))


def run(
    models: Sequence[BlockModel] = MODELS,
    *,
    steps: int = 60,
    seed: int = 0,
    progress: Progress = silent,
) -> list[Clustering]:
    """Cluster every model with every variant."""
    chosen = variants(blocks=(2,), levels=(2,))
    chosen += [Variant("HQR", {"high": "fp16"})]
    chosen += variants("bf16", blocks=(2,), levels=(2,))[3:]
    rows: list[Clustering] = []
    for model in models:
        s, groups = draw(model, seed)
        k = model.communities
        reference: npt.NDArray[np.int64] | None = None
        for variant in chosen:
            scores: tuple[float | None, float | None, float | None] = (None, None, None)
            try:
                basis = subspace_iteration(s, k, variant, steps)
                labels = partition(basis, k)
                reference = labels if reference is None else reference
                off = torch.linalg.matrix_norm(basis.mT @ basis - torch.eye(k).double(), ord=2)
                scores = agreement(labels, reference, k), agreement(labels, groups, k), float(off)
            except QRError:
                pass  # overflow: the row reports that there is no partition
            known: tuple[Any, ...] = (*astuple(model), model.difficulty, *scores)
            rows.append(Clustering(variant.name, *known))
            progress(len(rows), len(models) * len(chosen))
    return rows

"""Spectral clustering of stochastic block models by subspace iteration, with every QR."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from trainwright.qr.experiments.variants import Variant, variants
from trainwright.qr.result import QRError


@dataclass(frozen=True)
class BlockModel:
    """``communities`` equal groups of ``nodes`` together; an edge within with ``inside``, else
    with ``across``.
    """

    nodes: int
    communities: int
    inside: float
    across: float

    @property
    def difficulty(self) -> float:
        """Signal to noise of the second eigenvalue, (a - b)^2 / (k (a + (k - 1) b)); from 1 on
        the groups can be found at all (Kesten and Stigum). a = n inside, b = n across.
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
"""Three sizes, each easy, middling and hard."""


@dataclass(frozen=True)
class Row:
    """One clustering. Fractions of the nodes, groups matched as well as they can be."""

    variant: str
    nodes: int
    communities: int
    inside: float
    across: float
    difficulty: float
    agreement: float | None
    """With the partition that fp64 finds; None where the QR overflowed."""
    planted: float | None
    """With the groups that the graph was made of."""
    orthogonality: float | None


def draw(model: BlockModel, seed: int) -> tuple[torch.Tensor, npt.NDArray[np.int64]]:
    """D^(-1/2) A D^(-1/2) (nodes, nodes) float64 of a random graph, and its groups (nodes,)."""
    random = np.random.RandomState(seed)
    groups = np.arange(model.nodes) * model.communities // model.nodes
    same = groups[:, None] == groups[None, :]
    chance = np.where(same, model.inside, model.across)
    upper = np.triu(random.random_sample(chance.shape) < chance, 1)
    adjacency = torch.from_numpy((upper | upper.T).astype(np.float64))
    root = adjacency.sum(1).clamp(min=1).rsqrt()
    return root[:, None] * adjacency * root[None, :], groups


def subspace_iteration(
    s: torch.Tensor, count: int, factor: Variant, steps: int = 60, seed: int = 0
) -> torch.Tensor:
    """Orthonormal basis (nodes, count) of the leading invariant subspace, float64.

    ``s`` is shifted by 1 so that its largest and not its most negative eigenvalues lead. Products
    are in float64, every orthogonalisation is ``factor``'s.
    """
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(s.shape[0], count, generator=generator, dtype=torch.float64)
    for _ in range(steps):
        x = factor(s @ x + x).Q.to(torch.float64)
    return x


def partition(basis: torch.Tensor, communities: int) -> npt.NDArray[np.int64]:
    """k-means of the rows, always from the same start."""
    from sklearn.cluster import KMeans

    means: Any = KMeans(communities, random_state=0)
    means.set_params(n_init=10)
    return np.asarray(means.fit(basis.numpy()).labels_, np.int64)


def agreement(a: npt.NDArray[np.int64], b: npt.NDArray[np.int64], communities: int) -> float:
    """Fraction of nodes in corresponding groups under the best matching of the names."""
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
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Row]:
    """Every variant on every model."""
    chosen = variants(blocks=(2,), levels=(2,))
    chosen += [Variant("HQR", {"high": "fp16"})]
    chosen += variants("bf16", blocks=(2,), levels=(2,))[3:]
    rows: list[Row] = []
    for model in models:
        s, groups = draw(model, seed)
        k = model.communities
        reference: npt.NDArray[np.int64] | None = None
        for variant in chosen:
            scores: tuple[float | None, float | None, float | None] = (None, None, None)
            try:
                basis = subspace_iteration(s, k, variant, steps)
                found = partition(basis, k)
                reference = found if reference is None else reference
                off = torch.linalg.matrix_norm(basis.mT @ basis - torch.eye(k).double(), ord=2)
                scores = agreement(found, reference, k), agreement(found, groups, k), float(off)
            except QRError:
                pass  # overflow: there is no partition, and the row says so
            rows.append(
                Row(
                    variant.name,
                    model.nodes,
                    k,
                    model.inside,
                    model.across,
                    model.difficulty,
                    agreement=scores[0],
                    planted=scores[1],
                    orthogonality=scores[2],
                )
            )
            progress(len(rows), len(models) * len(chosen))
    return rows

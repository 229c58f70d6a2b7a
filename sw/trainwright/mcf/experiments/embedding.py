"""Table 3: WordNet's mammals in the hyperbolic plane, in one and in several components.

The paper gives the loss and 50 negative examples; rate, batch, epochs, the factor of distances and
the slow start are those of its published code. Negatives are drawn uniformly, with replacement,
from the nouns other than the noun itself and its ancestors.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainwright import mcf
from trainwright.mcf.experiments.halfspace import RiemannianSGD, distance
from trainwright.mcf.experiments.hierarchy import Hierarchy, Reconstruction, reconstruction
from trainwright.support.files import write_whole
from trainwright.support.finding import Progress, silent
from trainwright.support.tensor_file import CheckpointError, decode, encode
from trainwright.support.text import amount

FORMAT = "trainwright-mcf-halfspace-2"
PRINTED: dict[str, tuple[float, float]] = {
    "float32": (91.91, 1.399),
    "float64": (92.79, 1.340),
    "mcf float64 nc=1": (93.02, 1.296),
    "mcf float64 nc=2": (92.77, 1.304),
    "mcf float64 nc=3": (93.31, 1.282),
}
"""Paper's MAP in per cent and mean rank, averaged over five seeds."""
WAYS = tuple(PRINTED)


@dataclass(frozen=True)
class EmbeddingSettings:
    """Settings of a run; a checkpoint of other settings is rejected."""

    way: str
    seed: int = 0
    dimensions: int = 2
    negatives: int = 50
    batch: int = 32
    rate: float = 1.7
    slow_epochs: int = 20
    """Epochs at the start with a hundredth of the rate."""
    factor: float = 0.3
    """Factor of the distances in the loss."""
    spread: float = 1e-5
    """Spread of the initial points around (0, 1)."""


@dataclass(frozen=True)
class EmbeddingResult:
    """Result of one run."""

    way: str
    seed: int
    epochs: int
    reconstruction: Reconstruction
    losses: list[float]
    lowest: float
    """Smallest last coordinate of a point, which shows how far out the embedding reaches."""


def first_points(settings: EmbeddingSettings, count: int) -> Any:
    """Draw points (count, dimensions) around (0, .., 0, 1) as a parameter of the run's type."""
    draw = torch.Generator().manual_seed(settings.seed)
    points = torch.rand(count, settings.dimensions, generator=draw, dtype=torch.float64) * 2 - 1
    points = points * settings.spread
    points[:, -1] += 1
    if settings.way.startswith("mcf"):
        _, dtype, nc = settings.way.split()
        points = mcf.tensor(points, nc=int(nc[3:]), dtype=getattr(torch, dtype))
    else:
        points = points.to(getattr(torch, settings.way))
    return nn.Parameter(points)


class Examples:
    """Pairs with negatives, drawn for every epoch from the seed and the epoch alone."""

    def __init__(self, hierarchy: Hierarchy, settings: EmbeddingSettings):
        self._pairs, self._settings = hierarchy.pairs, settings
        free = ~hierarchy.related().numpy()
        np.fill_diagonal(free, False)
        self._count = free.sum(1)
        self._free = np.argsort(~free, axis=1, kind="stable")  # candidates first

    def of_epoch(self, epoch: int) -> tuple[Tensor, ...]:
        """Return batches of places (pairs, 2 + negatives): noun, ancestor, negatives."""
        draw = np.random.default_rng((self._settings.seed, epoch))
        pairs = draw.permutation(self._pairs)
        nouns = pairs[:, :1]
        chosen = draw.random((len(pairs), self._settings.negatives)) * self._count[nouns]
        places = np.concatenate([pairs, self._free[nouns, chosen.astype(np.int64)]], 1)
        return torch.from_numpy(places).split(self._settings.batch)


def step(points: Any, optimiser: torch.optim.Optimizer, places: Tensor, factor: float) -> float:
    """Train on one batch and return its mean loss."""
    optimiser.zero_grad()
    embedded = F.embedding(places, points)
    logits = -factor * distance(embedded[:, :1], embedded[:, 1:])
    loss = F.cross_entropy(logits, places.new_zeros(len(places)))
    loss.backward()
    optimiser.step()
    return loss.item()


def train(
    hierarchy: Hierarchy,
    settings: EmbeddingSettings,
    epochs: int,
    checkpoint: Path | None = None,
    *,
    every: int = 10,
    progress: Progress = silent,
) -> EmbeddingResult:
    """Train until there are ``epochs``; save a checkpoint after every ``every`` epochs.

    The random draws of an epoch depend on the seed and the epoch's number only, so an interrupted
    run continues as if it had not been interrupted. Raises ``CheckpointError`` for a checkpoint of
    other settings.
    """
    points = first_points(settings, len(hierarchy.names))
    losses: list[float] = []
    if checkpoint is not None and checkpoint.exists():
        losses = _load(checkpoint, settings, points)
    examples = Examples(hierarchy, settings)
    optimiser = RiemannianSGD([points], settings.rate)
    while len(losses) < epochs:
        slow = len(losses) < settings.slow_epochs
        optimiser.param_groups[0]["lr"] = settings.rate * (0.01 if slow else 1)
        batches = examples.of_epoch(len(losses))
        total = sum(step(points, optimiser, batch, settings.factor) for batch in batches)
        losses.append(total / len(batches))
        if checkpoint is not None and (len(losses) % every == 0 or len(losses) == epochs):
            _save(checkpoint, settings, points, losses)
        progress(len(losses), epochs)
    if len(losses) > epochs:
        raise CheckpointError(
            f"{checkpoint} is of {amount(len(losses), 'epoch')}, not {epochs}: choose another "
            "folder, or remove it"
        )
    quality = reconstruction(all_distances(points), hierarchy.related())
    lowest = _components(points)[:, -1, 0].min().item()
    return EmbeddingResult(settings.way, settings.seed, len(losses), quality, losses, lowest)


@torch.no_grad()
def all_distances(points: Any) -> Tensor:
    """Return the distances between all points (n, d): (n, n)."""
    held = points.detach()
    return torch.stack([distance(held[n : n + 1], held) for n in range(len(held))])


def _components(points: Any) -> Tensor:
    """Return components (n, d, nc); (n, d, 1) for plain points."""
    if isinstance(points, mcf.MCTensor):
        return points.components
    return points.detach().unsqueeze(-1)


def _save(path: Path, settings: EmbeddingSettings, points: Any, losses: list[float]) -> None:
    metadata = {"format": FORMAT, "settings": asdict(settings), "losses": losses}
    write_whole(path, encode(metadata, {"points": _components(points)}))


def _load(path: Path, settings: EmbeddingSettings, points: Any) -> list[float]:
    """Load the points in place and return the losses so far."""
    metadata, tensors = decode(path, FORMAT)
    stored = tensors.get("points", torch.empty(0))
    if metadata["settings"] != asdict(settings) or stored.shape != _components(points).shape:
        raise CheckpointError(
            f"{path} is of {metadata['settings']} and not of {asdict(settings)}, or of other data: "
            "choose another folder, or remove it"
        )
    _components(points).copy_(stored)
    return metadata["losses"]

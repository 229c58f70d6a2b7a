"""A transitive closure, such as WordNet's mammals, and how well distances reconstruct it."""

import csv
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from trainwright.data import DataError

FILE = "wordnet-mammals/mammal_closure.csv"


@dataclass(frozen=True)
class Hierarchy:
    """Nouns, and pairs of a noun and one of its ancestors."""

    names: tuple[str, ...]
    pairs: np.ndarray
    """Indices into ``names``, (pairs, 2) int64."""

    def related(self) -> Tensor:
        """Return (n, n) booleans: whether the second noun is an ancestor of the first."""
        matrix = torch.zeros(len(self.names), len(self.names), dtype=torch.bool)
        matrix[self.pairs[:, 0], self.pairs[:, 1]] = True
        return matrix


def read(root: str | None = None) -> Hierarchy:
    """Read ``root``/wordnet-mammals/mammal_closure.csv; default root: TRAINWRIGHT_DATA.

    Raises ``DataError`` in one line where the file is missing or holds no pairs.
    """
    base = root or os.environ.get("TRAINWRIGHT_DATA")
    if not base:
        raise DataError(f"give --data DIR or set TRAINWRIGHT_DATA to a folder with {FILE}")
    path = Path(base) / FILE
    try:
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file))
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}; it holds id1,id2,weight") from None
    if not rows or not {"id1", "id2"} <= rows[0].keys():
        raise DataError(f"{path} has no columns id1 and id2")
    names = tuple(sorted({row[key] for row in rows for key in ("id1", "id2")}))
    place = {name: n for n, name in enumerate(names)}
    return Hierarchy(names, np.array([(place[row["id1"]], place[row["id2"]]) for row in rows]))


@dataclass(frozen=True)
class Reconstruction:
    """Measures of how well the nearest neighbours of each noun are its ancestors."""

    map: float
    """Mean average precision over nouns with ancestors, in per cent."""
    mean_rank: float
    """Mean over pairs of 1 + the number of non-ancestors that are as near or nearer."""


def reconstruction(distances: Tensor, related: Tensor) -> Reconstruction:
    """Measure distances (n, n) between all nouns; NaN counts as infinite."""
    precisions, ranks = [], []
    distances = torch.nan_to_num(distances.double(), nan=torch.inf)
    for noun in torch.nonzero(related.any(1)).flatten().tolist():
        different = torch.arange(len(related)) != noun
        line, own = distances[noun][different], related[noun][different]
        ancestors = line[own].sort().values
        as_near = torch.searchsorted(line.sort().values, ancestors, right=True)
        hits = torch.searchsorted(ancestors, ancestors, right=True)
        precisions.append((hits / as_near).mean().item())
        ranks += (as_near - hits + 1).tolist()
    return Reconstruction(100 * float(np.mean(precisions)), float(np.mean(ranks)))

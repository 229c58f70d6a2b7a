"""Data of the experiments: regression, classification, breast cancer, a reduced MNIST.

The paper leaves open the seeds, the scaling and the test sets. Here breast cancer's features are
standardised and pixels are scaled to -1 .. 1, as in its published code, and a fifth of every set is
for testing.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trainwright.data import load_data_set

IMAGES_A_CLASS = 1000
"""Images per digit in the reduced MNIST."""


@dataclass(frozen=True)
class Data:
    """Training and test sets in float64, one sample per row; targets are float64 or classes."""

    x: Tensor
    y: Tensor
    test_x: Tensor
    test_y: Tensor


def regression(seed: int = 1234) -> Data:
    """Draw section 2.4's X (10,000 x 2) and w from N(-0.5, 0.5^2), y = X w, without a test set."""
    draw = np.random.default_rng(seed)
    x = torch.from_numpy(draw.normal(-0.5, 0.5, (10_000, 2)))
    w = torch.from_numpy(draw.normal(-0.5, 0.5, (2, 1)))
    return Data(x, x @ w, x[:0], (x @ w)[:0])


def synthetic(seed: int = 1234) -> Data:
    """Draw 1,000 points of two features by ``make_classification`` with the paper's settings."""
    from sklearn.datasets import make_classification

    x, y = make_classification(
        n_samples=1000, n_features=2, n_redundant=0, n_informative=1, n_clusters_per_class=1,
        random_state=seed,
    )  # fmt: skip
    return _divided(x, y, seed)


def cancer(seed: int = 1234) -> Data:
    """Load 569 tumours of 30 features, standardised by the training set."""
    from sklearn.datasets import load_breast_cancer
    from sklearn.preprocessing import StandardScaler

    tumours: Any = load_breast_cancer()
    raw = _divided(tumours.data, tumours.target, seed)
    scaler = StandardScaler().fit(raw.x.numpy())
    first, second = (torch.from_numpy(scaler.transform(part)) for part in (raw.x, raw.test_x))
    return Data(first, raw.y, second, raw.test_y)


def reduced_mnist(folder: str | None, seed: int = 1234) -> Data:
    """Draw 1,000 training images of each MNIST digit: 800 to learn and 200 to test."""
    images = load_data_set("mnist", folder).train
    draw = np.random.default_rng(seed)
    of_class = [np.flatnonzero(images.labels == digit) for digit in range(10)]
    kept = np.stack([draw.choice(places, IMAGES_A_CLASS, False) for places in of_class])
    last = IMAGES_A_CLASS // 5

    def part(places: np.ndarray) -> tuple[Tensor, Tensor]:
        pixels = torch.from_numpy(images.images[places].reshape(len(places), -1)).double()
        return pixels / 127.5 - 1, torch.from_numpy(images.labels[places].astype(np.int64))

    return Data(*part(kept[:, last:].ravel()), *part(kept[:, :last].ravel()))


def _divided(x: Any, y: Any, seed: int) -> Data:
    """Split at random into four fifths for training and one for testing."""
    from sklearn.model_selection import train_test_split

    parts = train_test_split(x, y, test_size=0.2, random_state=seed)
    first, second, y_first, y_second = (torch.from_numpy(np.asarray(part)) for part in parts)
    return Data(first.double(), y_first, second.double(), y_second)

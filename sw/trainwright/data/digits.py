"""scikit-learn's bundled 8 x 8 handwritten digits: 1,797 images of 16 grey levels."""

import gzip
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trainwright.data.dataset import DataError, DataSet, Split

TRAIN_SAMPLES = 1437
"""Samples of the train split; the other 360 are the test split."""
SPLIT_SEED = 0


def _images_and_labels() -> tuple[npt.ArrayLike, npt.ArrayLike]:
    """Read the file that scikit-learn bundles: importing scikit-learn takes a second."""
    spec = find_spec("sklearn")
    for folder in (spec and spec.submodule_search_locations) or ():
        file = Path(folder) / "datasets" / "data" / "digits.csv.gz"
        if file.is_file():
            with gzip.open(file, "rt") as lines:
                table = np.loadtxt(lines, delimiter=",")
            return table[:, :-1], table[:, -1]
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise DataError(
            "data set 'digits' comes with scikit-learn, which is not installed: "
            "pip install 'trainwright[train]'"
        ) from None
    bundled: Any = load_digits()
    return bundled["data"], bundled["target"]


def load_digits_data() -> DataSet:
    """Load the digits in their one fixed split.

    The split is ``RandomState(SPLIT_SEED).permutation(1797)``, cut after ``TRAIN_SAMPLES``; that
    generator's stream is frozen, so the split is the same everywhere and for every training seed.
    Raises ``DataError`` without scikit-learn.
    """
    images, labels = (np.asarray(values).astype(np.uint8) for values in _images_and_labels())
    images = images.reshape(-1, 8, 8)
    order = np.random.RandomState(SPLIT_SEED).permutation(len(labels))
    train, test = order[:TRAIN_SAMPLES], order[TRAIN_SAMPLES:]
    return DataSet(
        name="digits",
        train=Split(images[train], labels[train]),
        test=Split(images[test], labels[test]),
        full_scale=16,
        class_names=tuple("0123456789"),
    )

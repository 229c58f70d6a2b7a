"""scikit-learn's bundled 8 x 8 handwritten digits: 1,797 images of 16 grey levels."""

import numpy as np

from trainwright.data.dataset import DataError, DataSet, Split

TRAIN_SAMPLES = 1437
"""Samples of the train split; the other 360 are the test split."""
SPLIT_SEED = 0


def load_digits_data() -> DataSet:
    """Load the digits in their one fixed split.

    The split is ``RandomState(SPLIT_SEED).permutation(1797)``, cut after ``TRAIN_SAMPLES``; that
    generator's stream is frozen, so the split is the same everywhere and for every training seed.
    Raises ``DataError`` without scikit-learn.
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise DataError(
            "data set 'digits' comes with scikit-learn, which is not installed: "
            "pip install 'trainwright[train]'"
        ) from None
    images, labels = load_digits(return_X_y=True)
    images = np.asarray(images).reshape(-1, 8, 8).astype(np.uint8)
    labels = np.asarray(labels).astype(np.uint8)
    order = np.random.RandomState(SPLIT_SEED).permutation(len(labels))
    train, test = order[:TRAIN_SAMPLES], order[TRAIN_SAMPLES:]
    return DataSet(
        name="digits",
        train=Split(images[train], labels[train]),
        test=Split(images[test], labels[test]),
        full_scale=16,
        class_names=tuple("0123456789"),
    )

"""Batches in a seeded order, as the integers that the accelerator reads."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch

from trainwright.data import DataError, DataSet, Split
from trainwright.data.own import TASKS
from trainwright.fixed.quantise import quantise
from trainwright.network import Network
from trainwright.onchip.samples import epoch_order, expanded, stored_pixels


def check_data(network: Network, data: DataSet, batch: int) -> None:
    """Raise ``DataError`` unless the network can be trained on the data set in such batches."""
    check_fit(network, data)
    if len(data.train) < batch:
        raise DataError(
            f"batch {batch} is more than the {len(data.train)} training samples of {data.name!r}: "
            f"give --batch {1 << (len(data.train).bit_length() - 1)} or less"
        )


def check_fit(network: Network, data: DataSet) -> None:
    """Raise ``DataError`` unless the network can classify the data set."""
    if data.image != network.image:
        raise DataError(
            f"network {network.name!r} is made for images of {network.image[0]} x "
            f"{network.image[1]}, data set {data.name!r} has {data.image[0]} x {data.image[1]}"
        )
    if (data.scale is not None) != network.is_regression:
        predicts, has, classes = "classes", "a number to predict", "classes = 1"
        if network.is_regression:
            predicts, has, classes = "a number", "classes", f"classes = {data.classes}"
        raise DataError(
            f"network {network.name!r} predicts {predicts}, data set {data.name!r} has {has}: give "
            f"the network {classes}, or --task {TASKS[network.is_regression]}"
        )
    if data.classes > network.classes:
        raise DataError(
            f"network {network.name!r} tells {network.classes} classes apart, data set "
            f"{data.name!r} has {data.classes}"
        )


def label_tensor(labels: np.ndarray) -> torch.Tensor:
    """Return classes as int64, targets of a regression as float64."""
    kind = np.float64 if labels.dtype.kind == "f" else np.int64
    return torch.from_numpy(labels.astype(kind))


def class_names(network: Network, data: DataSet) -> tuple[str, ...]:
    """Return a name for each class of the network; classes that the data set lacks are numbered."""
    return (*data.class_names, *map(str, range(data.classes, network.classes)))


# Two epochs: a step near the end of an epoch and the first of the next one alternate when a run is
# verified or resumed, and a permutation costs as much as a step.
@lru_cache(maxsize=2)
def _order(samples: int, seed: int, epoch: int) -> np.ndarray:
    return np.random.RandomState([seed, 1, epoch]).permutation(samples)


def chip_batch_indices(samples: int, batch: int, seed: int, step: int) -> np.ndarray:
    """Return the indices (batch,) of ``step`` in the accelerator's order (``onchip.samples``)."""
    epoch, position = divmod(step, samples // batch)
    return epoch_order(samples, seed, epoch)[position * batch : (position + 1) * batch]


def batch_indices(samples: int, batch: int, seed: int, step: int) -> np.ndarray:
    """Return the indices (batch,) of the samples of ``step`` (from 0).

    Epoch e visits the samples in the order ``RandomState([seed, 1, e]).permutation(samples)``;
    samples after its last full batch are dropped. A pure function, so that the position of a run is
    its step number and nothing else.
    """
    epoch, position = divmod(step, samples // batch)
    return _order(samples, seed, epoch)[position * batch : (position + 1) * batch]


@dataclass(frozen=True)
class ImageQuantiser:
    """Map from images to the network's inputs: quantise, pad at the bottom and right, flatten."""

    network: Network
    full_scale: int
    exponent: int
    """Power of two of an input's unit: the driver's ``input_exponent``."""
    pixels: int | None = None
    """Bits of a pixel as the accelerator stores it; None where the host quantises each batch."""

    def __call__(self, images: np.ndarray) -> torch.Tensor:
        """Return inputs int64 (batch, I) for images uint8 (batch, rows, columns).

        A pixel is byte / ``full_scale``; its integer is that / 2^exponent, rounded half to even and
        saturated to the format of activations. A stored pixel is expanded by
        ``trainwright.onchip.samples.expanded``.
        """
        # 256 entries at most: quantising the table and indexing it is exact and spares a float64
        # division for each pixel.
        table = self._table()
        batch, rows, columns = images.shape
        padded = np.zeros((batch, *self.network.padded), np.int64)
        padded[:, :rows, :columns] = table[images]
        return torch.from_numpy(padded.reshape(batch, -1))

    def _table(self) -> np.ndarray:
        """Return the input word of each value that a pixel's byte can have."""
        if self.pixels is not None:
            stored = stored_pixels(np.arange(self.full_scale + 1), self.full_scale, self.pixels)
            return expanded(stored, self.pixels, self.network.widths.activation)
        network = self.network
        fmt = network.widths.activation if network.widths.is_float else network.format("activation")
        levels = torch.arange(256, dtype=torch.float64) / self.full_scale
        return quantise(levels, self.exponent, fmt, underflow=network.host_underflow).numpy()

    def padded_batch(self, split: Split, start: int, batch: int) -> tuple[torch.Tensor, int]:
        """Return the inputs from sample ``start`` on and the number of samples in them.

        Where fewer than ``batch`` samples are left, blank images fill the batch: programs have one
        size.
        """
        images = split.images[start : start + batch]
        real = len(images)
        if real < batch:
            images = np.concatenate([images, np.zeros((batch - real, *images.shape[1:]), np.uint8)])
        return self(images), real

"""Batches in a seeded order, as the integers that the accelerator reads."""

from dataclasses import dataclass
from functools import lru_cache
from math import prod

import numpy as np
import torch

from trainwright.data import DataError, DataSet, Split
from trainwright.data.dataset import TASKS
from trainwright.data.sentences import NO_TAG, PADDING, UNKNOWN
from trainwright.fixed.quantise import quantise
from trainwright.fixed.scale import ScaleRanges
from trainwright.network import Input, Network
from trainwright.onchip.samples import epoch_order, expanded, stored_pixels
from trainwright.support.text import amount
from trainwright.train.settings import ChipSettings, TrainSettings

LEAST_TARGETS, MOST_FEW, MOST_VARIANCE = 16, 0.02, 0.6
"""Least number of targets, share of them that are few, and share of the variance above which a few
targets get a note: normal targets have 0.15, exponential ones 0.3, and exp(2 x) 0.9."""
MOST_PADDED = 8
"""Outputs for each class from which a note asks for fewer. With 16 for one class gradients saturate
in half of the steps; `fashion` has 1.6 and any network for own data at most 1.9."""
MOST_UNKNOWN = 0.1
"""Share of unknown words of the test lines above which a note says so: 0.02 in ATIS, and most of
them where words are not separated by spaces."""


def check_data(network: Network, data: DataSet, batch: int) -> None:
    """Raise ``DataError`` unless the network can be trained on the data set in such batches."""
    check_fit(network, data)
    if len(data.train) < batch:
        raise DataError(
            f"batch {batch} is more than the {amount(len(data.train), 'training sample')} of "
            f"{data.name!r}: "
            f"give --batch {1 << (len(data.train).bit_length() - 1)} or less"
        )


def check_task(network: Network, data: DataSet, settings: TrainSettings) -> None:
    """Raise ``DataError`` for settings that a regression, or lines of words, do not go with."""
    if data.scale is not None and settings.scales == "all-frozen":
        raise DataError(
            "--scales all-frozen bounds the gradient by that of classes: a regression takes "
            "--scales automatic or frozen"
        )
    if network.tokens > 1 and settings.chip and settings.chip.pixels != ChipSettings.pixels:
        raise DataError(
            f"network {network.name!r} reads numbers of words, which have no pixels: omit --pixels"
        )


def labelled_for(network: Network, data: DataSet) -> DataSet:
    """Return a data set with the labels that a network predicts: of lines, of words, or of both."""
    return data.labelled(words=network.labels > 1, lines=network.is_joint)


_OTHER_SAMPLES = "give samples like those that the model was trained on"


def check_fit(network: Network, data: DataSet, *, is_trained: bool = False) -> None:
    """Raise ``DataError`` unless the network can classify the data set.

    A network that ``is_trained`` stays as it is: the remedy is another file.
    """
    if data.is_text or network.tokens > 1:
        _check_sequences(network, data)
    elif data.image != network.image:
        own = data.preparation is not None or data.name == "npz"
        remedy = f"give the network image = {list(data.image)}" + (
            ", or train without --network" if own else ""
        )
        raise DataError(
            f"network {network.name!r} is made for images of {network.image[0]} x "
            f"{network.image[1]}, data set {data.name!r} has {data.image[0]} x {data.image[1]}: "
            + (_OTHER_SAMPLES if is_trained else remedy)
        )
    if (data.scale is not None) != network.is_regression:
        predicts, has, classes = "classes", "a number to predict", "classes = 1"
        if network.is_regression:
            predicts, has, classes = "a number", "classes", f"classes = {data.classes}"
        remedy = f"give the network {classes}, or --task {TASKS[network.is_regression]}"
        raise DataError(
            f"network {network.name!r} predicts {predicts}, data set {data.name!r} has {has}: "
            + (_OTHER_SAMPLES if is_trained else remedy)
        )
    if data.classes > network.classes:
        raise DataError(
            f"network {network.name!r} tells {amount(network.classes, 'class')} apart, data set "
            f"{data.name!r} has {data.classes}"
        )


def _check_sequences(network: Network, data: DataSet) -> None:
    """Raise ``DataError`` unless the network classifies lines of text and the data are such."""
    if network.tokens == 1:
        raise DataError(
            f"data set {data.name!r} has lines of text, which a network of tokens reads; "
            f"{network.name!r} reads images: give --network encoder-64, or one of your own with "
            "tokens"
        )
    if not data.is_text:
        raise DataError(
            f"network {network.name!r} reads sequences of {amount(network.tokens, 'token')}, data "
            f"set {data.name!r} has {data.samples_are}: give --data with lines of text"
        )
    vocabulary_digits(network)
    if not set(network.heads) <= network.of_sequences and not data.has_tags:
        raise DataError(
            f"network {network.name!r} gives logits for every token, a line of text has one label: "
            'put a layer with over_tokens = "mean" before the last one, or give a folder with '
            "labels of words in seq.out"
        )
    for name in network.heads if data.line_names else ():
        if name in network.of_sequences and network.classes_of(name) < len(data.line_names):
            raise DataError(
                f"{name!r} of network {network.name!r} tells "
                f"{amount(network.classes_of(name), 'class')} apart, lines of data set "
                f"{data.name!r} have {len(data.line_names)}"
            )
    if not network.padding:
        raise DataError(
            f"network {network.name!r} takes sequences of {amount(network.tokens, 'token')} alone, "
            "lines of text have fewer: give it padding = true"
        )


def vocabulary_digits(network: Network) -> list[int]:
    """Return how many values each digit of a word's number has; each is a row of a token's image.

    Raises ``DataError`` for a network whose inputs are no such digits.
    """
    inputs = [node for node in network.nodes if isinstance(node, Input)]
    rows = [range(*node.rows) for node in inputs]
    if sorted(map(tuple, rows)) != [(n,) for n in range(network.image[0])] or any(
        node.columns[0] for node in inputs
    ):
        raise DataError(
            f"network {network.name!r} cannot read words: each of its inputs must be one row of "
            "the image, a digit of a word's number, and to begin at column 0"
        )
    return [node.columns[1] for node in sorted(inputs, key=lambda node: node.rows)]


def data_notes(network: Network, data: DataSet) -> list[str]:
    """Return notes on how data were read, on likely mistakes, and on data a network cannot hold."""
    own = _text_notes if data.is_text else _target_notes
    padded = [] if data.train is data.test else _padding_notes(network)
    return [*data.notes, *data.doubts, *own(network, data), *padded]


def _padding_notes(network: Network) -> list[str]:
    """Return notes on heads most of whose outputs belong to no class.

    Gradients of these outputs are zeros. They lower the mean by which the exponent of the gradients
    moves, until the gradients of the classes saturate.
    """
    if network.widths.is_float:
        return []
    sizes = {name: prod(network.shapes[name]) for name in network.heads}
    return [
        f"{size - network.classes_of(name):,} of the {size:,} outputs of {name!r} in network "
        f"{network.name!r} belong to no class, and gradients of the others can saturate among "
        f"their zeros: give {name!r} outputs that multiply to {network.classes_of(name)}, or to a "
        "few more"
        for name, size in sizes.items()
        if size >= MOST_PADDED * network.classes_of(name)
    ]


def _target_notes(network: Network, data: DataSet) -> list[str]:
    """Return a note on a few targets so far from the rest that an output hardly has steps for it.

    R2 is then that of the few, and a run that learns the rest well ends near 0.
    """
    if data.scale is None or data.train is data.test or len(data.train) < LEAST_TARGETS:
        return []
    labels, (mean, deviation) = data.train.labels, data.scale
    far = np.abs(labels).argsort()[::-1]
    parts = np.cumsum(labels[far] ** 2) / np.square(labels).sum()
    few = int(np.searchsorted(parts, MOST_VARIANCE, side="right")) + 1
    if few > max(1, MOST_FEW * len(labels)):
        return []
    value, rest = mean + deviation * float(labels[far[0]]), ""
    if not network.widths.is_float:
        # The finest step at which the mean of outputs is inside of its range.
        bits = network.format("activation").width
        step = np.abs(labels).mean() / ScaleRanges().activation.high / 2 ** (bits - 1)
        ordered = np.sort(labels[far[few:]])
        ends = np.searchsorted(ordered, ordered + step, side="right")
        crowd = (ends - np.arange(len(ordered))).max() / len(labels)
        rest = f", and {crowd:.0%} of all are within one step of an output of {bits} bits"
    which = "one" if few == 1 else f"{few:,}"
    are = f", {value:g}, has" if few == 1 else f", such as {value:g}, have"
    least = float(labels.min()) * deviation / mean + 1 if mean > 0 else -1.0
    remedy = "predict a function that brings them near"
    if least > -1e-9:  # rounded, where the least target is 0
        remedy = "predict their logarithms" if least > 1e-9 else "predict logarithms of 1 + target"
    return [
        f"{which} of {amount(len(labels), 'target')}{are} {parts[few - 1]:.0%} of their variance"
        f"{rest}: {remedy}, or correct or remove those far from the rest"
    ]


def _text_notes(network: Network, data: DataSet) -> list[str]:
    """Return notes on lines and words that a network of tokens does not hold."""
    if network.tokens == 1:
        return []
    notes = []
    splits = [data.test] if data.train is data.test else data.splits
    cut = sum(int(split.images[:, 0, network.tokens :].any(1).sum()) for split in splits)
    if cut:
        notes.append(
            f"{amount(cut, 'line')} of more than the {amount(network.tokens, 'token')} of network "
            f"{network.name!r}: the first words are read"
        )
    size = prod(vocabulary_digits(network))
    if data.full_scale > size:
        notes.append(
            f"network {network.name!r} has a vocabulary of {size:,}: "
            f"{amount(data.full_scale - size, 'word')}, the least frequent, read as unknown"
        )
    unknown = int((data.test.images == UNKNOWN).sum())
    words = int((data.test.images != PADDING).sum())
    if unknown > MOST_UNKNOWN * words:
        notes.append(
            f"{unknown:,} of {amount(words, 'word')} of the test lines are in no training line: "
            "they are read as unknown"
        )
    return notes


def label_tensor(labels: np.ndarray, count: int = 1) -> torch.Tensor:
    """Return classes as int64, targets of a regression as float64.

    Classes of words (samples, words) are cut and filled up with ``NO_TAG`` to (samples, count).
    """
    if labels.ndim == 2:
        cut = np.full((len(labels), count), NO_TAG, np.int64)
        words = labels[:, :count]
        cut[:, : words.shape[1]] = words
        return torch.from_numpy(cut)
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


def input_quantiser(
    network: Network, full_scale: int, exponent: int, pixels: int | None = None
) -> "ImageQuantiser":
    """Return the quantiser of a network's inputs: of words for a network of tokens."""
    kind = TokenQuantiser if network.tokens > 1 else ImageQuantiser
    return kind(network, full_scale, exponent, pixels)


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
        table = self.table()
        batch, rows, columns = images.shape
        padded = np.zeros((batch, *self.network.padded), np.int64)
        padded[:, :rows, :columns] = table[images]
        return torch.from_numpy(padded.reshape(batch, -1))

    def table(self) -> np.ndarray:
        """Return the input word of each value that a pixel's byte can have."""
        if self.pixels is not None and not self.network.format("activation").coded:
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
            blank = np.zeros((batch - real, *images.shape[1:]), images.dtype)
            images = np.concatenate([images, blank])
        return self(images), real


def stored_images(
    network: Network, images: np.ndarray, full_scale: int, exponent: int, pixels: int
) -> np.ndarray:
    """Return the pixels that an accelerator expands to the words of ``ImageQuantiser``.

    Words in a coded format are stored themselves, from the highest bit on. Raises ``ValueError``
    for one that does not fit.
    """
    fmt = network.format("activation")
    if not fmt.coded:
        return stored_pixels(images, full_scale, pixels)
    if (more := pixels - (fmt.width - 1)) < 0:
        raise ValueError(
            f"inputs in {fmt} take {fmt.width - 1} bits without a sign, stored pixels have "
            f"{pixels}: use {'--pixels 8' if fmt.width <= 9 else 'a narrower format'}, or "
            "--accelerator exponents=0"
        )
    table = ImageQuantiser(network, full_scale, exponent).table()
    return (table[images] << more).astype(np.uint8)


class TokenQuantiser(ImageQuantiser):
    """Map from numbers of words to one-hot digits; a token that is missing is all zeros."""

    def __call__(self, images: np.ndarray) -> torch.Tensor:
        """Return inputs int64 (batch, I) for numbers of words (batch, 1, words).

        Words beyond the network's tokens are left out, words beyond its vocabulary unknown.
        """
        network = self.network
        digits = vocabulary_digits(network)
        numbers = np.zeros((len(images), network.tokens), np.int64)
        words = images.reshape(len(images), -1)[:, : network.tokens]
        numbers[:, : words.shape[1]] = np.where(words > prod(digits), UNKNOWN, words)
        fmt = network.widths.activation if network.widths.is_float else network.format("activation")
        hot = int(quantise(torch.ones(1, dtype=torch.float64), self.exponent, fmt))
        sequences, places = np.nonzero(numbers != PADDING)
        rest = numbers[sequences, places] - UNKNOWN
        inputs = np.zeros((*numbers.shape, *network.padded), np.int64)
        for row in reversed(range(len(digits))):
            rest, digit = np.divmod(rest, digits[row])
            inputs[sequences, places, row, digit] = hot
        return torch.from_numpy(inputs.reshape(len(images), -1))

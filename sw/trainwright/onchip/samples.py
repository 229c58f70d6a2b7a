"""The data set in the accelerator's memory: pixels of 4 or 8 bits, and the order of the samples."""

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from trainwright.fixed.random_bits import derived_seed
from trainwright.onchip.choices import DIGIT_BITS, MOST_OUTPUTS, MOST_TARGET, label_bytes, no_label
from trainwright.onchip.layout import LANES
from trainwright.program.sample_order import EPOCH_STEP, MULTIPLIER, SampleOrder, order_mask

TARGET_UNIT = 1 << 10
"""Units of a regression's target in a standard deviation."""


def stored_pixels(
    images: npt.NDArray[np.generic], full_scale: int, width: int
) -> npt.NDArray[np.uint8]:
    """Return stored pixels (uint8) of ``width`` bits: byte / ``full_scale`` of the greatest.

    Halves go up. The host does this once, before it sends the data set.
    """
    greatest = (1 << width) - 1
    return ((2 * greatest * images.astype(np.int64) + full_scale) // (2 * full_scale)).astype(
        np.uint8
    )


def expanded(pixels: npt.NDArray[np.uint8], width: int, activation: int) -> npt.NDArray[np.int64]:
    """Return inputs of ``activation`` bits, sign 0, as the load engine makes them.

    The bits of a stored pixel are repeated from the top: the greatest pixel is the greatest input.
    """
    bits = activation - 1
    value = pixels.astype(np.int64)
    repeated, have = value, width
    while have < bits:
        repeated, have = repeated << width | value, have + width
    return repeated >> (have - bits)


def sample_bytes(pixels: int, width: int, beat: int = LANES) -> int:
    """Return the bytes of a record: beats of its pixels, a byte a lane, and one of targets."""
    return -(-pixels * width // (8 * beat)) * beat + beat


def records(
    pixels: npt.NDArray[np.uint8],
    labels: npt.NDArray[np.generic],
    width: int,
    classes: int,
    *,
    numbered: bool = False,
    beat: int = LANES,
) -> npt.NDArray[np.uint8]:
    """Return the data set in external memory, uint8 (samples, ``sample_bytes``).

    ``pixels`` (samples, n) are stored pixels. After the pixels comes a signed byte for each of
    ``beat`` classes: 1 at the label, 0 at other classes, -1 from ``classes`` on. Where labels are
    ``numbered``, the bytes are those of ``target_beats``. Raises ``ValueError`` where a pixel or a
    label does not fit.
    """
    most = MOST_OUTPUTS if numbered else beat
    if not 0 < classes <= most:
        raise ValueError(f"records have targets of 1 to {most} classes, not {classes}")
    if int(pixels.max(initial=0)) >> width:
        raise ValueError(f"a pixel of {pixels.max()} has more than {width} bits")
    require_labels(labels, classes, every=True)
    size = sample_bytes(pixels.shape[1], width, beat)
    packed = np.zeros((len(pixels), (size - beat) * 8 // width), np.uint8)
    packed[:, : pixels.shape[1]] = pixels
    if width < 8:
        packed = (packed[:, ::2] | packed[:, 1::2] << width).astype(np.uint8)
    targets = target_beats(labels.astype(np.int64), classes, numbered=numbered, beat=beat)
    return np.concatenate([packed, targets], 1)


def require_labels(labels: npt.NDArray[np.generic], classes: int, *, every: bool = False) -> None:
    """Raise ``ValueError`` for a label that is no class, or none where ``every`` sample has one."""
    least = no_label(classes) + every
    most = classes - 1 if classes > 1 else MOST_TARGET
    # A label beyond the classes is a byte or a digit of another class, or of none.
    if labels.size and not least <= int(labels.min()) <= int(labels.max()) <= most:
        span = f"labels from {labels.min()} to {labels.max()} of {classes} classes"
        raise ValueError(f"{span}: give labels from {least} to {most}")


def label_words(labels: npt.NDArray[np.generic]) -> npt.NDArray[np.int64]:
    """Return labels as integers: classes, or targets of a regression in units of 1 / TARGET_UNIT.

    Targets are rounded half to even and saturate at ``MOST_TARGET``, 8 deviations of the data.
    """
    if labels.dtype.kind != "f":
        return labels.astype(np.int64)
    units = np.rint(labels.astype(np.float64) * TARGET_UNIT)
    return units.clip(-MOST_TARGET, MOST_TARGET).astype(np.int64)


def target_beats(
    labels: npt.NDArray[np.int64], classes: int, *, numbered: bool, beat: int = LANES
) -> npt.NDArray[np.uint8]:
    """Return the beat of targets of each sample: its classes, or the label's number in each byte.

    A number of two bytes is stored once, as two digits and zeros (``digit_rows``). Raises
    ``ValueError`` for labels that are no classes.
    """
    require_labels(labels, classes)
    if not numbered:
        targets = target_rows(labels, classes, beat)
    elif label_bytes(classes) == 1:
        targets = labels[:, None].repeat(beat, 1)
    else:
        targets = digit_rows(labels, beat)
    return targets.astype(np.int8).view(np.uint8)


WEIGHTS_LABEL = 1 + (1 << 2 * DIGIT_BITS)
"""Label of two bytes whose digits are the weights of both digits in a label's number."""


def digit_rows(labels: npt.NDArray[np.int64], lanes: int) -> npt.NDArray[np.int64]:
    """Return a row for each label: its low digit, at least 0, its high digit, and zeros."""
    rows = np.zeros((len(labels), lanes), np.int64)
    rows[:, 0], rows[:, 1] = labels & (1 << DIGIT_BITS) - 1, labels >> DIGIT_BITS
    return rows


def target_rows(labels: npt.NDArray[np.int64], classes: int, lanes: int) -> npt.NDArray[np.int64]:
    """Return a row a sample: 1 at its label, 0 at other classes, -1 where there is no class.

    The label -1 says that a sample has no class. Raises ``ValueError`` for other labels that are
    not those of classes.
    """
    require_labels(labels, classes)
    targets = np.where(np.arange(lanes) < classes, 0, -1) * np.ones((len(labels), 1), np.int64)
    rows = np.flatnonzero(labels >= 0)
    targets[rows, labels[rows]] = 1
    return targets


def _increment(seed: int, epoch: int) -> int:
    return (derived_seed(seed, 1) + EPOCH_STEP * epoch | 1) % (1 << 32)


def first_of(samples: int, seed: int) -> int:
    """Return the generator's value at the start of every epoch."""
    return derived_seed(seed, 2) & order_mask(samples)


def order_at(samples: int, batch: int, seed: int, step: int) -> SampleOrder:
    """Return the accelerator's registers before ``step`` (from 0) of batches of whole epochs."""
    length = samples // batch * batch
    epoch, position = divmod(step * batch, length)
    increment, value = _increment(seed, epoch), first_of(samples, seed)
    if position:
        last = int(epoch_order(samples, seed, epoch)[position - 1])
        value = MULTIPLIER * last + increment & order_mask(samples)
    return SampleOrder(value, increment, length - position)


@lru_cache(maxsize=2)
def epoch_order(samples: int, seed: int, epoch: int) -> npt.NDArray[np.int64]:
    """Return every index below ``samples`` once, in the order of ``epoch``.

    x <- (MULTIPLIER x + c) mod 2^k visits all of 0 .. 2^k - 1; values of ``samples`` and more are
    skipped, half of them at most. c is odd and another in each epoch; both c and the first x come
    from ``seed``.
    """
    mask = order_mask(samples)
    increment = _increment(seed, epoch) & mask
    values = np.array([first_of(samples, seed)], np.uint64)
    multiplier, addend = MULTIPLIER & mask, increment
    while len(values) <= mask:  # twice as many values by one jump of the generator
        values = np.concatenate([values, (values * multiplier + addend) & np.uint64(mask)])
        multiplier, addend = (multiplier * multiplier & mask, (multiplier + 1) * addend & mask)
    return values[values < samples].astype(np.int64)

"""Choices of the training loop on the chip, by name: options list them without importing torch."""

from math import prod

from trainwright.network import Network
from trainwright.network.nodes import IMAGE

LANES = 16
"""Words of a row of state; a machine of fewer lanes has several rows for each."""
BYTE_CLASSES = 128
"""Classes up to which a label is a signed byte; more classes take two bytes."""
DIGIT_BITS = 6
"""Bits of the low digit of a label of two bytes; the high digit is a signed byte."""
MOST_OUTPUTS = BYTE_CLASSES << DIGIT_BITS
"""Outputs of a network whose loss the vector engine computes."""
LOSS_NAMES = ("cross-entropy", "squared-error")
OPTIMISERS = ("esgd", "momentum")


MOST_TARGET = MOST_OUTPUTS - 1
"""Greatest target of a regression, which takes two bytes as a label of many classes does."""


def label_bytes(classes: int) -> int:
    """Return the bytes of a label in memory; of a regression's target, if there is one class."""
    return 1 if 1 < classes <= BYTE_CLASSES else 2


def no_label(classes: int) -> int:
    """Return what stands for a sample without a label; of a regression, below all targets."""
    return -1 if classes > 1 else -MOST_OUTPUTS


def reads_images(network: Network) -> bool:
    """Return whether the inputs of a sample are one whole image; records hold any others."""
    inputs = [node.name for node in network.nodes if not node.sources]
    return (
        network.tokens == 1
        and inputs == [IMAGE]
        and prod(network.shapes[IMAGE]) == prod(network.padded)
    )

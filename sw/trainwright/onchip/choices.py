"""Choices of the training loop on the chip, by name: options list them without importing torch."""

from math import prod

from trainwright.network import Network
from trainwright.network.nodes import IMAGE

LANES = 16
"""Words of a row of state. A machine of 8 lanes takes two of its rows for each."""
MOST_OUTPUTS = 128
"""Outputs of a network whose loss the vector engine computes: labels have a signed byte."""
LOSS_NAMES = ("cross-entropy", "squared-error")
OPTIMISERS = ("esgd", "momentum")


def reads_images(network: Network) -> bool:
    """Return whether the inputs of a sample are one whole image; records hold any others."""
    inputs = [node.name for node in network.nodes if not node.sources]
    return (
        network.tokens == 1
        and inputs == [IMAGE]
        and prod(network.shapes[IMAGE]) == prod(network.padded)
    )

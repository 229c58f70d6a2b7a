"""Choices of the training loop on the chip, by name: options list them without importing torch."""

from trainwright.network import Network, Pool
from trainwright.network.nodes import IMAGE

LANES = 16
"""Words of a row of state. A machine of 8 lanes takes two of its rows for each."""
MOST_OUTPUTS = 128
"""Outputs of a network whose loss the vector engine computes: labels have a signed byte."""
LOSS_NAMES = ("cross-entropy", "squared-error")
OPTIMISERS = ("esgd", "momentum")


def reads_images(network: Network) -> bool:
    """Return whether a step takes only an image and a label for each sample."""
    inputs = [node.name for node in network.nodes if not node.sources]
    return (
        network.tokens == 1
        and network.output_size <= MOST_OUTPUTS
        and inputs == [IMAGE]
        and network.shapes[IMAGE] == (*network.padded, 1)
        # The host writes an identity that such a pool reads.
        and not any(isinstance(node, Pool) and network.writes_out(node) for node in network.nodes)
    )


def reads_records(network: Network) -> bool:
    """Return whether records can hold the samples of a step: images, or the digits of words."""
    return reads_images(network) or network.tokens > 1

"""Memory of a whole training state, beside the model bits that the paper counts."""

from dataclasses import dataclass

from ttforge.network import Network


@dataclass(frozen=True)
class MemoryItem:
    """One part of the training state."""

    name: str
    place: str
    """``accelerator`` (its external memory and what it copies from there) or ``host``."""
    bits: int


def training_memory(network: Network, batch: int) -> list[MemoryItem]:
    """What one training step of a batch has to keep, by arithmetic on shapes and widths.

    Intermediate results within a contraction chain are not counted: they depend on the schedule.
    """
    w = network.widths
    factors = sum(layer.factor_parameters for layer in network.layers)
    biases = sum(layer.bias_parameters for layer in network.layers)
    kept = sum(layer.input_size for layer in network.layers)
    outputs = network.layers[-1].output_size
    widest = max(layer.output_size for layer in network.layers)
    return [
        MemoryItem("factors and biases", "accelerator", network.model_bits),
        MemoryItem("activations kept for backward", "accelerator", batch * kept * w.activation),
        MemoryItem("logits", "accelerator", batch * outputs * w.activation),
        MemoryItem("gradient between layers", "accelerator", batch * widest * w.gradient),
        MemoryItem("gradients of the parameters", "accelerator", (factors + biases) * w.gradient),
        MemoryItem("master copies, float32", "host", 32 * (factors + biases)),
        MemoryItem("Adam moments, float32", "host", 64 * (factors + biases)),
    ]

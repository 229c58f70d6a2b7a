"""Values that are zeros of padding, and means that do not count them."""

from collections.abc import Sequence
from functools import cached_property
from math import prod

import numpy as np
import torch

from trainwright.compiler.base.rules import Written
from trainwright.fixed.scale import TensorClass
from trainwright.nn import TTLinear
from trainwright.offload.stretch import ProgramLayer

LEAST_ROWS = 1 / 2
"""Share of a matrix's rows in use below which the accelerator is given zeros for the other rows.

Unused rows have no gradient: their outputs would hold the mean of all where training began, and
the outputs in use would grow out of the word. The 10 of 16 rows of ten classes keep the values, and
so the bits, of a trainer's network.
"""
LEAST_SHARE = 1 / 4
"""Share of values in use below which zeros of padding are left out of a gradient's mean.

Ranges of means leave a factor of 30 to the largest value. Padding by less than 4 stays in the
counts, so that bits are those of a trainer's network, which knows its padded sizes alone.
"""


class Padding:
    """Padding of layers whose sizes were rounded up to factors that the accelerator takes.

    The gradient of a ``TTLinear(8, 1)`` has 8 values in a factor of 16 x 16. Exponents follow
    means, so that the 248 zeros made the 8 values saturate at a 34th of the largest one.
    """

    def __init__(self, layers: Sequence[ProgramLayer]) -> None:
        self.layers = layers

    def occupied(self, tensor: Written) -> int:
        """Return the number of values a step that a mean is taken of."""
        layer, _, path = tensor.name.partition(".")
        parts, share = path.rstrip("'").split("."), 1.0
        forward = tensor.kind is not TensorClass.GRADIENT
        # Gradients are zero where the result is padding; products with the input, and so the
        # gradients of factors, where the input is. Results are where ``without_unused_rows`` is.
        zero = {
            "j": forward or any(part.startswith("d") and part != "dx" for part in parts),
            "i": any(part.startswith("dG") or part == "x" for part in parts),
        }
        for letter, sizes, used in self._padded.get(layer, ()):
            kept = [n for n in range(len(sizes)) if f"{layer}.{letter}{n + 1}" in tensor.axes]
            if zero[letter]:
                share *= _projected(sizes, used, kept) / prod(sizes[n] for n in kept)
        least = LEAST_ROWS if forward else LEAST_SHARE
        return max(1, round(share * tensor.count)) if share < least else tensor.count

    @cached_property
    def _padded(self) -> dict[str, list[tuple[str, tuple[int, ...], int]]]:
        """Padded sizes of each layer: letter of the axes, sizes, and values in use."""
        padded_sizes: dict[str, list[tuple[str, tuple[int, ...], int]]] = {}
        for number, layer in enumerate(self.layers, 1):
            padded = padded_sizes.setdefault(f"l{number}", [])
            if layer.rows < prod(layer.outputs):
                padded.append(("j", tuple(layer.outputs), layer.rows))
            if isinstance(layer, TTLinear) and layer.padding_columns:
                padded.append(("i", tuple(layer.inputs), layer.in_features))
        return padded_sizes


def without_unused_rows(layer: ProgramLayer, factors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return a layer's factors with zeros at unused rows, where these are more than half of all.

    Slices that only unused rows read become zeros: at least half of the other rows are in use.
    """
    if layer.rows >= LEAST_ROWS * prod(layer.outputs):
        return list(factors)
    cut: list[torch.Tensor] = []
    for factor, size, used in zip(factors, layer.outputs, layer.used_outputs, strict=True):
        zeros = (0, 0, 0, 0, 0, size - used)
        cut.append(torch.nn.functional.pad(factor[:, :used], zeros) if used < size else factor)
    return cut


def _projected(sizes: Sequence[int], used: int, kept: Sequence[int]) -> int:
    """Return the number of places along some axes at which a value in use lies."""
    places = np.unravel_index(np.arange(used), sizes)
    flat = np.zeros(used, np.int64)
    for n in kept:
        flat = flat * sizes[n] + places[n]
    return len(np.unique(flat))

"""Consecutive factors of a layer whose gradients follow from one tensor, by two chains."""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

from trainwright.compiler.names import right_name
from trainwright.network import Layer, Network


@dataclass(frozen=True)
class Span:
    """Factors ``first`` to ``last`` (from 0, inclusive) of layer ``number`` (from 0).

    ``level(n)`` is the tensor (r_first, j_first, i_first, .., j_n, i_n, r_n), n from 1: the
    gradient of the contraction of factors first + 1 .. last with those after n contracted.
    """

    number: int
    first: int
    last: int
    level: Callable[[int], str]

    @property
    def source(self) -> str:
        """The tensor that all is computed from."""
        return self.level(self.last + 1)

    def leading(self, layer: Layer, n: int) -> int:
        """Size of the indices of ``level`` in front of factor ``n`` (from 0)."""
        sizes = prod(layer.outputs[self.first : n]) * prod(layer.inputs[self.first : n])
        return layer.bonds[self.first] * sizes

    def result(self, n: int) -> str:
        """Name of what is left when factor ``n`` (from 0) has been contracted from the right."""
        return self.level(n) if n > self.first + 1 else f"l{self.number + 1}.dG{self.first + 1}"


def whole_layer(network: Network, number: int) -> Span:
    """All factors of a layer: from the gradient of its weights."""
    last = network.layers[number].order - 1
    return Span(number, 0, last, lambda n: right_name(number + 1, n))

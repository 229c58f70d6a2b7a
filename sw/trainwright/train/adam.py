"""Adam on float32 parameters, written out: its moments are cut together with the ranks."""

from dataclasses import dataclass
from math import sqrt

import torch

BETA_1 = 0.9
BETA_2 = 0.999
EPSILON = 1e-8


@dataclass
class Parameter:
    """A float32 master weight with its two Adam moments, all of one shape."""

    value: torch.Tensor
    first: torch.Tensor
    second: torch.Tensor

    @classmethod
    def of(cls, value: torch.Tensor) -> "Parameter":
        """Return a parameter that has not been trained: both moments are 0."""
        value = value.to(torch.float32)
        return cls(value, torch.zeros_like(value), torch.zeros_like(value))

    def select(self, dimension: int, kept: torch.Tensor) -> None:
        """Keep only the indices ``kept`` (int64) of ``dimension``, moments included."""
        for name in ("value", "first", "second"):
            setattr(self, name, getattr(self, name).index_select(dimension, kept).contiguous())

    def step(self, gradient: torch.Tensor, rate: float, number: int) -> None:
        """Update the value by one step of Adam.

        ``gradient`` may have any float type; ``number`` counts updates from 1.
        """
        self.value = self.value - self.move(gradient, rate, number)

    def move(self, gradient: torch.Tensor, rate: float, number: int) -> torch.Tensor:
        """Update both moments and return the change to subtract from the value.

        Each operation rounds once to float32, or to float64 where the value has it, and no
        multiply-add is fused, so that the bits do not depend on how the tensor is cut into vectors.
        """
        g = gradient.to(torch.promote_types(self.value.dtype, torch.float32))
        self.first = self.first * BETA_1 + g * (1 - BETA_1)
        self.second = self.second * BETA_2 + g * g * (1 - BETA_2)
        # Both bias corrections are Python floats: they are computed once in float64 and reach the
        # tensors as scalars, which keeps the element-wise part free of further roundings.
        scale = rate / (1 - BETA_1**number)
        root = self.second.sqrt() * (1 / sqrt(1 - BETA_2**number)) + EPSILON
        return self.first * scale / root

"""The C kernels of posits; every caller has a torch path with the same bits."""

from torch import Tensor

from ttforge.posit.format import PositFormat


def usable(*tensors: Tensor) -> bool:
    """Whether the kernels can take these tensors: not yet."""
    return False


def round_to(x: Tensor, fmt: PositFormat, kind: object) -> Tensor:
    """Round ``x`` to the format."""
    raise NotImplementedError


def binary(name: str, x: Tensor, y: Tensor, fmt: PositFormat) -> Tensor:
    """One operation of two tensors."""
    raise NotImplementedError


def matmul(
    a: Tensor, b: Tensor, fmt: PositFormat, mode: str, initial: Tensor | None, shape: object
) -> Tensor:
    """A matrix product."""
    raise NotImplementedError

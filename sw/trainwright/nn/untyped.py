"""What torch leaves untyped, with types."""

from collections.abc import Iterator
from typing import Any

import torch


def node(function: Any, *arguments: Any) -> torch.Tensor:
    """The one output of an ``autograd.Function``, a node of autograd."""
    result = function.apply(*arguments)
    assert isinstance(result, torch.Tensor)
    return result


def integers(values: torch.Tensor) -> list[int]:
    """An integer tensor (n,) as Python's integers."""
    untyped: Any = values
    return untyped.tolist()


def named_modules(module: Any) -> Iterator[tuple[str, torch.nn.Module]]:
    """A module and all inside it, each with its name."""
    return module.named_modules()

"""What torch leaves untyped, with types, and what it leaves unsaid."""

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


def require_module(value: object) -> None:
    """Raise ``TypeError`` for what is no module."""
    if not isinstance(value, torch.nn.Module):
        raise TypeError(f"a torch.nn.Module is wanted, not {value!r}, a {type(value).__name__}")


def refuse_second_gradients() -> None:
    """Raise ``RuntimeError`` in a backward pass that is to be differentiated itself.

    torch would take its gradients for constants, and say nothing.
    """
    if torch.is_grad_enabled():
        raise RuntimeError(
            "tensor-train layers have no gradients of gradients: call backward or grad without "
            "create_graph=True, or compute that part with dense layers (trainwright.to_torch)"
        )

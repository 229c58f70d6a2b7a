"""Functions that ``torch.compile`` leaves out of its graphs, and kernels that no graph can hold."""

from collections.abc import Callable, Iterable
from functools import partial, wraps
from typing import Any, ParamSpec, TypeVar

import torch

P = ParamSpec("P")
T = TypeVar("T")
_torch: Any = torch


def outside_graphs(function: Callable[P, T], reason: str) -> Callable[P, T]:
    """Leave a function out of the graphs of ``torch.compile``; ``reason`` tells a strict export.

    ``torch.compiler.disable`` does the same and imports the compiler at once, which takes seconds.
    """
    left_out: Any = _torch._disable_dynamo(function)
    # What torch.compiler.disable(reason=...) sets: a strict export prints it in place of internals.
    left_out._torchdynamo_disable, left_out._torchdynamo_disable_msg = True, reason
    return left_out


def skipped_by_dynamo(reason: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Leave a function of every operator out of graphs: other calls import no compiler."""

    def decorated(function: Callable[P, T]) -> Callable[P, T]:
        left_out = outside_graphs(function, reason)

        @wraps(function)
        def called(*args: P.args, **kwargs: P.kwargs) -> T:
            traced = torch.compiler.is_dynamo_compiling()
            return left_out(*args, **kwargs) if traced else function(*args, **kwargs)

        return called

    return decorated


_PROXIES = partial(_torch._C._get_dispatch_mode, _torch._C._TorchDispatchModeKey.PROXY)


def addresses(arguments: Iterable[Any]) -> list[Any]:
    """Replace tensors among the arguments of a native kernel by their addresses.

    Raises ``RuntimeError`` where torch records operators: a graph would lack what the kernel
    computes. Memory of fake tensors does not exist, so a kernel that reads it ends the process.
    """
    given = list(arguments)
    tensors = [each for each in given if isinstance(each, torch.Tensor)]
    fake = any(type(each).__module__.startswith("torch._subclasses") for each in tensors)
    if fake or torch._C._get_tracing_state() is not None or _PROXIES() is not None:
        raise RuntimeError(
            "kernels of posits and multi-component floats cannot be recorded (jit.trace, make_fx, "
            "export), nor run on fake tensors: call the function itself, or record it on floats"
        )
    return [each.data_ptr() if isinstance(each, torch.Tensor) else each for each in given]

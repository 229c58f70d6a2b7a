"""Functions that ``torch.compile`` leaves out of its graphs."""

from collections.abc import Callable
from functools import wraps
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

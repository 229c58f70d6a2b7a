"""Functions that ``torch.compile`` leaves out of its graphs, and kernels that no graph can hold."""

from collections.abc import Callable, Iterable
from functools import _lru_cache_wrapper, cache, wraps
from typing import Any, ParamSpec, TypeVar

import torch
from torch.utils._device import DeviceContext
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils.data._utils.collate import default_collate_fn_map

from trainwright.support.arguments import require_unrecorded

P = ParamSpec("P")
T = TypeVar("T")
_torch: Any = torch
is_autocast, without_autocast = _torch._C._is_any_autocast_enabled, _torch._C._DisableAutocast
"""Whether ``torch.autocast`` is in force on any device, and a context without it."""


def outside_graphs(function: Callable[P, T], reason: str) -> Callable[P, T]:
    """Leave a function out of the graphs of ``torch.compile``; a strict export prints ``reason``.

    ``torch.compiler.disable`` does the same and imports the compiler at once, which takes seconds.
    """
    left_out: Any = _torch._disable_dynamo(function)
    # What torch.compiler.disable(reason=...) sets: a strict export prints it in place of internals.
    left_out._torchdynamo_disable, left_out._torchdynamo_disable_msg = True, reason
    return left_out


def skipped_by_dynamo(reason: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Leave a function out of graphs that every operator calls, at no cost outside of graphs.

    The compiler is imported only if dynamo traces the call.
    """

    def decorated(function: Callable[P, T]) -> Callable[P, T]:
        left_out = outside_graphs(function, reason)

        @wraps(function)
        def called(*args: P.args, **kwargs: P.kwargs) -> T:
            traced = torch.compiler.is_dynamo_compiling()
            return left_out(*args, **kwargs) if traced else function(*args, **kwargs)

        return called

    return decorated


def with_own_settings(function: Callable[P, T]) -> Callable[P, T]:
    """Call a function of numbers whatever ``torch.autocast`` and default device are in force.

    Autocast would multiply in 16 bits and leave error bounds behind; on a default device work
    tensors would lie where no kernel reads them.
    """

    @wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> T:
        if not (is_autocast() or _has_default_device()):
            return function(*args, **kwargs)
        with without_autocast(), torch.device("cpu"):
            return function(*args, **kwargs)

    return called


def _has_default_device() -> bool:
    modes = range(_torch._C._len_torch_function_stack())
    return any(isinstance(_torch._C._get_function_stack_at(n), DeviceContext) for n in modes)


_OUTSIDE_GRAPHS = skipped_by_dynamo(
    "trainwright's number libraries have no graph: they compute in Python and in kernels"
)


def library_call(function: Callable[P, T]) -> Callable[P, T]:
    """Return a public function of the number libraries that torch neither compiles nor alters.

    Without this decorator torch compiles each in dozens of parts between the calls of kernels
    (``posit.encode`` took over 100 s), and settings for networks change its results.
    """
    return _OUTSIDE_GRAPHS(with_own_settings(function))


library_maker = _OUTSIDE_GRAPHS
"""Decorator of public functions that make tensors of texts and numbers, on the default device."""


def cached_constant(function: Callable[P, T]) -> "_lru_cache_wrapper[T]":
    """Cache tensors that follow from hashable arguments, made outside of every mode of torch.

    Made within torch.func, a fake mode, ``torch.device("meta")`` or inference mode, a cached tensor
    would be none that later calls can use.
    """

    @cache
    @wraps(function)
    def made(*args: P.args, **kwargs: P.kwargs) -> T:
        with (
            _torch._C._DisableFuncTorch(),
            _torch._C.DisableTorchFunction(),
            _disable_current_modes(),
            torch.inference_mode(False),
            torch.no_grad(),
        ):
            return function(*args, **kwargs)

    return made


def stacked_by_loaders(kind: type[torch.Tensor]) -> None:
    """Let workers of a DataLoader stack tensors of a class, which torch does into shared memory."""

    def stacked(batch: list[torch.Tensor], **_: Any) -> torch.Tensor:
        return torch.stack(batch)

    default_collate_fn_map[kind] = stacked


def addresses(arguments: Iterable[Any]) -> list[Any]:
    """Replace tensors among the arguments of a native kernel by their addresses.

    Raises ``RuntimeError`` while torch records operations, in torch.func, and for fake tensors and
    those of other devices: a kernel that read their memory, which does not exist here, would end
    the process.
    """
    require_unrecorded()
    given = list(arguments)
    tensors = [each for each in given if isinstance(each, torch.Tensor)]
    if away := [each.device for each in tensors if each.device.type != "cpu"]:
        raise RuntimeError(
            f"kernels of trainwright's number libraries run on the CPU, not on {away[0]}: set no "
            "default device, or give tensors that all are on one"
        )
    if any(type(each).__module__.startswith("torch._subclasses") for each in tensors):
        raise RuntimeError(
            "kernels of trainwright's number libraries cannot run on fake tensors, which have no "
            "memory: call them outside of FakeTensorMode"
        )
    if any(map(_torch._C._functorch.is_functorch_wrapped_tensor, tensors)):
        raise RuntimeError(
            "torch.func (vmap, grad, jvp) hides the memory of tensors, which kernels of "
            "trainwright's number libraries need: call them outside of it"
        )
    return [each.data_ptr() if isinstance(each, torch.Tensor) else each for each in given]

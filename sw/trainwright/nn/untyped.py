"""Typed access to what torch leaves untyped, and the reasons behind it."""

import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

import torch

from trainwright.support import graphs
from trainwright.support.text import amount

P = ParamSpec("P")
T = TypeVar("T")


def node(function: Any, *arguments: Any) -> torch.Tensor:
    """Return the single output of an ``autograd.Function``, a node of autograd."""
    result = function.apply(*arguments)
    assert isinstance(result, torch.Tensor)
    return result


def integers(values: torch.Tensor) -> list[int]:
    """Return a tensor (n,) of whole numbers, or of averages of such, as Python's integers."""
    untyped: Any = values
    return [round(value) for value in untyped.tolist()]


def named_modules(module: Any) -> Iterator[tuple[str, torch.nn.Module]]:
    """Yield a module and all modules inside it, each with its name."""
    return module.named_modules()


def is_parameter(value: object) -> bool:
    """Return whether ``value`` is a module's own, not a tensor that functional_call puts there."""
    return isinstance(value, torch.nn.Parameter)


FLOATS = torch.float16, torch.bfloat16, torch.float32, torch.float64
"""Types of inputs and parameters of layers."""


def require_module(value: object) -> None:
    """Raise ``TypeError`` unless ``value`` is a module."""
    if not isinstance(value, torch.nn.Module):
        raise TypeError(f"a torch.nn.Module is wanted, not {value!r}, a {type(value).__name__}")


def require_tensor(value: object) -> None:
    """Raise ``TypeError`` for inputs of a layer that are no dense tensor."""
    if not isinstance(value, torch.Tensor):
        raise TypeError(
            f"inputs must be a torch.Tensor, not {type(value).__name__}: convert them, "
            "torch.as_tensor(x)"
        )
    if value.is_nested:
        raise TypeError(
            "inputs are a nested tensor: convert them, torch.nested.to_padded_tensor(x, 0.0)"
        )
    if value.layout is not torch.strided:
        raise TypeError(f"inputs have the layout {value.layout}: convert them, x.to_dense()")


def require_features(x: torch.Tensor, size: int, layer: str) -> None:
    """Raise ``ValueError`` for inputs whose last dimension is not ``size``; ``layer`` takes it."""
    if not x.dim():
        raise ValueError(f"inputs are a single number, {layer} takes tensors (..., {size})")
    if x.shape[-1] != size:
        raise ValueError(f"inputs have {amount(x.shape[-1], 'feature')}, {layer} takes {size}")


def refuse_second_gradients() -> None:
    """Raise ``RuntimeError`` in a backward pass that is to be differentiated itself.

    torch would take its gradients for constants, and say nothing.
    """
    if torch.is_grad_enabled():
        raise RuntimeError(
            "tensor-train layers have no gradients of gradients: call backward or grad without "
            "create_graph=True, or compute that part with dense layers (trainwright.to_torch)"
        )


_torch: Any = torch  # names below are not in its stubs, or have no types there


def transforming() -> bool:
    """Return whether a transform of ``torch.func`` (vmap, grad, jacrev) is running."""
    return _torch._C._are_functorch_transforms_active()


def is_batched(values: torch.Tensor) -> bool:
    """Return whether ``vmap`` hides a dimension of ``values``, so that no number can be read."""
    functorch = _torch._C._functorch
    inner: Any = values
    while functorch.is_functorch_wrapped_tensor(inner):
        if functorch.is_batchedtensor(inner):
            return True
        inner = functorch.get_unwrapped(inner)
    return False


_PROXIES = partial(_torch._C._get_dispatch_mode, _torch._C._TorchDispatchModeKey.PROXY)
"""Returns the mode in which tensors stand for the values of a graph that is made; else None."""


def without_batch_dim(values: torch.Tensor) -> tuple[torch.Tensor, int] | None:
    """Return the samples of gradients that autograd computes together, and their level.

    None where ``values`` are no such: ``torch.autograd.grad(..., is_grads_batched=True)`` and
    ``jacobian(..., vectorize=True)`` hide the first dimension by an older vmap than torch.func's.
    """
    if not _torch._C._functorch.is_legacy_batchedtensor(values):
        return None
    level: int = _torch._C._vmapmode_increment_nesting() - 1
    _torch._C._vmapmode_decrement_nesting()
    return _torch._remove_batch_dim(values, level, 1, 0), level


def with_batch_dim(samples: Sequence[torch.Tensor], level: int) -> torch.Tensor:
    """Return results of the samples of ``without_batch_dim`` as one tensor that hides them."""
    return _torch._add_batch_dim(torch.stack(list(samples)), 0, level)


def recording() -> bool:
    """Return whether torch records operations for use without Python.

    So do jit.trace, export and ONNX, and make_fx, which ``torch.func.linearize`` calls.
    """
    if torch.compiler.is_compiling():  # dynamo cannot look for the mode
        return _torch.jit.is_tracing() or torch.compiler.is_exporting()
    return _torch.jit.is_tracing() or _PROXIES() is not None


def dynamo_traces() -> bool:
    """Return whether dynamo traces Python (``torch.compile``, a strict export)."""
    return torch.compiler.is_compiling() and (
        torch.compiler.is_dynamo_compiling() or not recording()
    )


def traced() -> bool:
    """Return whether torch records operations (jit.trace, compile, export, ``torch.func``)."""
    return recording() or torch.compiler.is_compiling() or transforming()


def outside_graphs(function: Callable[P, T]) -> Callable[P, T]:
    """Leave a function of layers or compiled models out of the graphs of ``torch.compile``."""
    return graphs.outside_graphs(function, _WITHOUT_GRAPH)


_WITHOUT_GRAPH = (
    "tensor-train layers in fixed point and compiled models have no graph: export the dense model "
    "with the same rounded weights, trainwright.to_torch(model) or model.to_torch()"
)


def autocast_type(device: torch.device) -> torch.dtype | None:
    """Return the type ``torch.autocast`` asks for on a device, None where it is off."""
    kind = device.type
    if not torch.amp.is_autocast_available(kind) or not torch.is_autocast_enabled(kind):
        return None
    return torch.get_autocast_dtype(kind)


def in_forward_mode() -> bool:
    """Return whether ``torch.autograd.forward_ad`` may have given tensors tangents."""
    return _torch.autograd.forward_ad._current_level >= 0


def leaf_call(module: torch.nn.Module, x: Any) -> torch.Tensor:
    """Record the call of a module by ``torch.fx`` whole, as of those of ``torch.nn``.

    Raises ``RuntimeError`` if the module is all that is traced: a call needs a module around it.
    """
    tracer = x.tracer
    if module is tracer.root:
        raise RuntimeError(
            f"torch.fx keeps {type(module).__name__} whole, as a call within another module: trace "
            "torch.nn.Sequential(layer)"
        )
    return tracer.create_proxy("call_module", tracer.path_of_module(module), (x,), {})


def without_autocast(device: torch.device) -> AbstractContextManager[Any]:
    """Compute in the types of the operands, whatever ``torch.autocast`` asks for."""
    if autocast_type(device) is None:
        return nullcontext()
    return torch.autocast(device.type, enabled=False)


def unguarded() -> AbstractContextManager[Any]:
    """Call functions of tensors of a class of one's own as those of ordinary tensors."""
    return _torch._C.DisableTorchFunctionSubclass()


def saving_hooks() -> object | None:
    """Return the hooks that saved tensors go through, as within a checkpoint; None: no hooks."""
    return _torch._C._autograd._top_saved_tensors_default_hooks(True)


class _Elsewhere(threading.local):
    """Who computes the layers that are called in a thread; None for torch."""

    apply: Callable[[Any, Any], torch.Tensor] | None = None
    exact = False
    """Whether layers round nothing but their factors, to measure what rounding loses."""


elsewhere = _Elsewhere()
last_computed_by: WeakKeyDictionary[torch.nn.Module, Callable[[], Any]] = WeakKeyDictionary()
"""Weak references to what computed a layer last in a compiled model, and has ``compute_alone``."""


def computed_again(layer: torch.nn.Module, x: Any) -> torch.Tensor | None:
    """Compute a layer in a backward pass where a checkpoint's first pass did; None for torch."""
    if not last_computed_by:
        return None
    if torch._C._current_graph_task_id() == -1:  # pyright: ignore
        last_computed_by.pop(layer, None)  # no backward pass runs: torch is the latest
        return None
    place = last_computed_by.get(layer)
    plan = None if place is None else place()
    return None if plan is None else plan.compute_alone(layer, x)


@contextmanager
def unrounded() -> Generator[None]:
    """Let the body's layers round nothing but their factors, and compute no gradients."""
    elsewhere.exact = True
    try:
        with torch.no_grad():
            yield
    finally:
        elsewhere.exact = False


@contextmanager
def computed_by(apply: Callable[[Any, Any], torch.Tensor]) -> Generator[None]:
    """Let ``apply(layer, x)`` compute tensor-train layers that are called in the body."""
    before, elsewhere.apply = elsewhere.apply, apply
    try:
        yield
    finally:
        elsewhere.apply = before

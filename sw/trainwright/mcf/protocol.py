"""Table of the torch functions that ``MCTensor`` supports.

The modules ``elementwise``, ``reductions``, ``shapes`` and ``tensors`` fill the table. Functions
that concern only the leading component (shape, dtype, gradient) go to torch. Every other function
is an error, so that no lower component is lost silently.
"""

from collections.abc import Callable
from inspect import signature
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._ops import OpOverload

from trainwright.support.graphs import is_autocast, without_autocast

HANDLERS: dict[Any, Callable[..., Any]] = {}
"""Implementations by torch function."""

_OF_LEAD = {
    "__get__", "__hash__", "__len__", "backward", "dim", "element_size", "get_device", "grad",
    "grad_fn", "has_names", "is_complex", "is_contiguous", "is_conj", "is_floating_point",
    "is_inference", "is_leaf", "is_neg", "is_nonzero", "is_same_size", "is_shared", "is_signed",
    "ndimension", "nelement", "numel", "register_hook", "register_post_accumulate_grad_hook",
    "requires_grad_", "retain_grad", "signbit", "size", "storage_offset", "untyped_storage",
    "isfinite", "isinf", "isnan", "sign", "__set__", "data_ptr", "stride", "_is_view",
    "_has_compatible_shallow_copy_type",
}  # fmt: skip
"""Names of functions that concern only the leading component and give plain results."""
_PARTS = {"real", "imag"}
"""Names of properties that would read or write the leading component as a part of the number."""
_ALIASES = {"axis": "dim", "keepdims": "keepdim"}
"""numpy's names of arguments, which torch takes, too."""

_torch: Any = torch._C  # names below are not in its stubs
_is_excluded = _torch._dispatch_tls_is_dispatch_key_excluded
_exclude = _torch._dispatch_tls_set_dispatch_key_excluded
_PYTHON = _torch.DispatchKey.Python
"""Key of ``__torch_dispatch__``."""

_SHARING = {torch.ops.aten.alias.default, torch.ops.aten.detach.default}
"""Operators that give the leading component itself: autograd needs them."""


def handles(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register an implementation under names in torch, torch.Tensor and torch.nn.functional."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        targets = 0
        for name in names:
            for place in (torch, Tensor, F):
                target = getattr(place, name, None)
                if target is not None:
                    HANDLERS[target] = function
                    targets += 1
        assert targets, names
        return function

    return register


def handles_one(target: Any, function: Callable[..., Any]) -> None:
    """Register an implementation of a single torch function."""
    HANDLERS[target] = function


def call(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Implement ``__torch_function__``. Raises ``TypeError`` for unsupported functions."""
    if is_autocast():  # the repetition that is recorded for gradients would have 16 bits
        with without_autocast():
            return call(func, args, kwargs)
    handler = HANDLERS.get(func)
    if handler is not None:
        if kwargs:
            kwargs = _renamed(func, kwargs)
        try:
            return handler(*args, **kwargs)
        except TypeError:
            try:  # an error of the call itself would name the handler, not torch's function
                signature(handler).bind(*args, **kwargs)
            except TypeError as error:
                raise TypeError(f"{func.__name__} of MCTensor: {error}") from None
            raise
    if getattr(func, "__name__", "") in _OF_LEAD and _property(func) not in _PARTS:
        return on_lead(func, *args, **kwargs)
    raise undefined(_property(func) or getattr(func, "__name__", str(func)))


def _renamed(func: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return arguments by torch's names. Raises ``TypeError`` for ``out``, unless it is None."""
    if kwargs.get("out") is not None:
        raise TypeError(f"{func.__name__} of MCTensor: 'out' is not supported: assign the result")
    return {_ALIASES.get(name, name): value for name, value in kwargs.items() if name != "out"}


def _property(func: Any) -> str:
    """Return the name of the property that a function reads or writes, or an empty name."""
    is_accessor = getattr(func, "__name__", "") in ("__get__", "__set__", "__delete__")
    return getattr(func.__self__, "__name__", "") if is_accessor else ""


def call_below(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Implement ``__torch_dispatch__``: share memory, and refuse every other operator.

    Operators arrive here where torch calls no torch function, as in ``torch.tensor`` and ``vmap``:
    they would compute with the leading components.
    """
    if func not in _SHARING:
        raise undefined(str(func))
    # Torch functions stay enabled: torch.tensor detaches, too, and is refused there.
    with torch._C._DisableTorchDispatch():
        return func(*args, **kwargs)


def on_lead(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a function that reads ``MCTensor``s as plain tensors, their leading components."""
    # Recorded operations come here for each operand. torch._C._DisableTorchDispatch does the same
    # and takes 0.8 us, four times as long: 6 % of an operation on 8 x 8 numbers.
    is_below = _is_excluded(_PYTHON)
    _exclude(_PYTHON, True)
    try:
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **kwargs)
    finally:
        _exclude(_PYTHON, is_below)


def undefined(name: str) -> TypeError:
    """Return the error of a function without an implementation."""
    return TypeError(
        f"{name} is not defined for MCTensor; x.fc is the leading component and x.to_float64() "
        "the number in float64, both plain tensors"
    )

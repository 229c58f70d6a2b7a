"""Dispatch of torch's operators to posit tensors: below autograd, by the rules of ``operators``.

An operator without a rule raises an error: nothing becomes a float silently.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

import torch
from torch import Tensor
from torch._ops import OpOverload

from trainwright.posit.format import PositError, PositFormat
from trainwright.posit.operators import IN_PLACE, OUT, RULES, UncoveredError
from trainwright.posit.operators.registry import operator
from trainwright.posit.rounding import round_to

below = torch._C._DisableTorchDispatch
"""Context in which torch sees the values as plain floats, not as posits."""
_COPY = torch.ops.aten.copy_.default
_NUMBERS = {operator(name) for name in ("where.self", "fill_.Tensor", "index_put", "index_put_")}
"""Operators for which torch wraps Python numbers in tensors before dispatch."""
RESHAPES = {
    operator(name)
    for name in ("squeeze_", "squeeze_.dim", "squeeze_.dims", "unsqueeze_", "transpose_", "t_")
}
"""Operators that change a shape in place; a vector-matrix product uses them."""
_SET = torch.ops.aten.set_.source_Tensor


class GridTensor(Tensor):
    """Values on the grid of ``fmt``, in its carrier type; operators round to the format."""

    fmt: PositFormat

    # Functions of torch run unchanged, down to the operators they consist of.
    __torch_function__ = torch._C._disabled_torch_function_impl  # pyright: ignore[reportAssignmentType]

    @classmethod
    def of_values(cls, values: Tensor, fmt: PositFormat) -> Self:
        """Wrap values that are on the grid already (not checked), sharing their memory."""
        tensor: Any = Tensor._make_subclass(cls, values)
        tensor.fmt = fmt
        return tensor

    @classmethod
    def __torch_dispatch__(
        cls,
        func: OpOverload,
        types: Iterable[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        with below():
            return _dispatch(cls, func, args, kwargs or {})


def same_format(target: Tensor, source: Tensor, what: object) -> None:
    """Raise ``PositError`` unless both are posits of one format."""
    if not isinstance(target, GridTensor):
        raise PositError(f"{what}: posits do not go into {target.dtype}; decode() gives floats")
    if not isinstance(source, GridTensor):
        raise PositError(
            f"{what}: {source.dtype} does not go into {target.fmt}; PositTensor(x, fmt) rounds it"
        )
    if source.fmt != target.fmt:
        raise _mixed(what, target.fmt, source.fmt)


def _mixed(what: object, first: PositFormat, second: PositFormat) -> PositError:
    return PositError(f"{what} mixes {first} and {second}: convert one, as x.to({first!r}) does")


_SCATTER = torch.ops.aten.scatter.src


class _Reader:
    """Callable that unwraps posit tensors and finds the one format that all of them share."""

    def __init__(self, func: OpOverload) -> None:
        self.func = func
        self.fmt: PositFormat | None = None

    def __call__(self, x: Any) -> Any:
        if isinstance(x, GridTensor):
            if self.fmt is None:
                self.fmt = x.fmt
            elif x.fmt is not self.fmt and x.fmt != self.fmt:
                raise _mixed(self.func, self.fmt, x.fmt)
            return x.as_subclass(Tensor)
        if isinstance(x, Tensor) and (x.is_floating_point() or x.is_complex()):
            if x.dim() == 0 and self.func in _NUMBERS:
                return x.item()
            if self.func is _SCATTER and not bool(x.any()):
                return x  # torch up to 2.11 puts gradients of max() into zeros that it makes itself
            raise PositError(
                f"{self.func} mixes posits and {x.dtype}: PositTensor(x, fmt) makes posits of "
                "the one, decode() floats of the other"
            )
        if isinstance(x, list | tuple):
            return [self(item) for item in x]
        return x


def _dispatch(
    cls: type[GridTensor], func: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Any:
    rule = RULES.get(func)
    if rule is not None:
        values, fmt = _applied(func, rule, args, kwargs)
        return _wrapped(cls, values, fmt)
    if func in RESHAPES:  # runs on the posit tensor: no value changes
        return func(*args, **kwargs)
    if func is _COPY:
        return _copy(*args, **kwargs)
    if func is _SET:
        same_format(args[0], args[1], func)
        return args[0].set_(args[1].as_subclass(Tensor))
    if func in IN_PLACE:
        return _written(func, *_applied(func, IN_PLACE[func], args, kwargs), args[0])
    if func in OUT:
        inputs = {key: x for key, x in kwargs.items() if key != "out"}
        return _written(func, *_applied(func, OUT[func], args, inputs), kwargs["out"])
    raise UncoveredError(
        f"posit tensors do not cover {func}, and nothing falls back to floats: decode() gives "
        "floats, PositTensor(x, fmt) makes posits of them"
    )


def _applied(
    func: OpOverload, rule: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[Any, PositFormat]:
    read = _Reader(func)
    values = [read(x) for x in args]
    named = {key: read(x) for key, x in kwargs.items()}
    if read.fmt is None:
        raise PositError(f"{func} writes floats into posits: PositTensor(x, fmt) rounds them first")
    return rule(read.fmt, *values, **named), read.fmt


def _wrapped(cls: type[GridTensor], x: Any, fmt: PositFormat) -> Any:
    if isinstance(x, Tensor):
        return cls.of_values(x, fmt) if x.is_floating_point() else x
    return tuple(_wrapped(cls, item, fmt) for item in x) if isinstance(x, list | tuple) else x


def _written(func: OpOverload, values: Tensor, fmt: PositFormat, target: Tensor) -> Tensor:
    if not isinstance(target, GridTensor):
        raise PositError(f"{func}: posits do not go into {target.dtype}; decode() gives floats")
    if target.fmt != fmt:
        raise _mixed(func, target.fmt, fmt)
    if values.shape != target.shape:
        raise RuntimeError(
            f"{func}: the result's shape {tuple(values.shape)} is not {tuple(target.shape)}"
        )
    target.as_subclass(Tensor).copy_(values)
    return target


def _copy(target: Tensor, source: Tensor, non_blocking: bool = False) -> Tensor:
    """Copy into ``target``: float tensors are rounded, posits must have its format."""
    if isinstance(target, GridTensor) and not isinstance(source, GridTensor):
        values = round_to(source, target.fmt)
    else:
        same_format(target, source, _COPY)
        values = source.as_subclass(Tensor)
    target.as_subclass(Tensor).copy_(values, non_blocking)
    return target

"""``PositTensor``: a torch tensor of posits, every operation on which is rounded to its format.

It holds values on the grid in the format's carrier type (``ttforge.posit.exactness``). Operators
reach it below autograd and go to the rules of ``ttforge.posit.operators``, forward and backward
alike. An operator without a rule is an error: nothing becomes a float on the way.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Self

import torch
from torch import Tensor
from torch._ops import OpOverload

from ttforge.posit.exactness import carrier
from ttforge.posit.format import PositError, PositFormat
from ttforge.posit.operators import IN_PLACE, OUT, RULES, UncoveredError
from ttforge.posit.rounding import codes_of, decode, round_to

_below = torch._C._DisableTorchDispatch
"""Within it torch sees the values, not the posits."""
_COPY = torch.ops.aten.copy_.default


class PositTensor(Tensor):
    """Posits of the format ``fmt``: ``PositTensor(x, fmt)`` rounds real numbers or a tensor of them.

    Formats do not mix: ``to(fmt)`` converts, with a gradient that is converted back. ``decode()``
    gives float64, ``codes()`` the words; these and ``item()`` are the ways out. Copying floats into
    a posit tensor (``copy_``, ``load_state_dict``) rounds them. A posit is its own dtype's carrier
    for torch: ``dtype`` says float32 or float64. Raises ``PositError``.
    """

    fmt: PositFormat

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, data: Any, fmt: PositFormat, *, requires_grad: bool = False) -> "PositTensor":
        """Values nearest to ``data``: a tensor of real numbers, or numbers in nested sequences."""
        if isinstance(data, PositTensor):
            data = data.values()
        elif isinstance(data, Tensor):
            data = data.detach()
        else:
            data = torch.tensor(data, dtype=torch.float64)
        return _of_values(round_to(data, fmt), fmt).requires_grad_(requires_grad)

    def __init__(self, data: Any, fmt: PositFormat, *, requires_grad: bool = False) -> None:
        pass

    @classmethod
    def from_codes(cls, codes: Tensor, fmt: PositFormat) -> "PositTensor":
        """Of the words ``codes``, integers 0 .. 2^n - 1. Raises ``PositError``, ``TypeError``."""
        return cls(decode(codes, fmt), fmt)

    def values(self) -> Tensor:
        """The values in the carrier type, sharing memory; no history."""
        with _below():
            return self.detach().as_subclass(Tensor)

    def codes(self) -> Tensor:
        """The words, int64."""
        return codes_of(self.values(), self.fmt)

    def decode(self) -> Tensor:
        """The values in float64, NaN for NaR; no history."""
        return self.values().to(torch.float64)

    def to(self, *args: Any, **kwargs: Any) -> Self:
        """To a format (``to(PositFormat(8, 2))``), or to a device as any tensor."""
        if args and isinstance(args[0], PositFormat):
            fmt, *rest = args
            found = self if fmt == self.fmt else _Conversion.apply(self, fmt)
            assert isinstance(found, PositTensor)
            return super(PositTensor, found).to(*rest, **kwargs) if rest or kwargs else found
        return super().to(*args, **kwargs)

    def numpy(self, *, force: bool = False) -> Any:
        """A copy of the values in float64."""
        return self.decode().numpy(force=force)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return self.decode().__array__(dtype)

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        head = "PositTensor("
        text = torch._tensor_str._tensor_str(self.decode(), len(head)).replace("nan", "nar")
        tail = f", grad_fn=<{self.grad_fn.name()}>" if self.grad_fn is not None else ""
        if self.requires_grad and not tail:
            tail = ", requires_grad=True"
        return f"{head}{text}, {self.fmt}{tail})"

    def __deepcopy__(self, memo: dict[int, Any]) -> "PositTensor":
        if id(self) in memo:
            return memo[id(self)]
        if not self.is_leaf:
            raise RuntimeError("only posit tensors without history can be copied deeply")
        found = _rebuilt(self.values().clone(), self.fmt, self.requires_grad, _is_parameter(self))
        memo[id(self)] = found
        if self.grad is not None:
            found.grad = self.grad.__deepcopy__(memo)
        return found

    def __reduce_ex__(self, protocol: Any) -> Any:
        state = (self.values(), self.fmt, self.requires_grad, _is_parameter(self))
        return _rebuilt, state

    @classmethod
    def __torch_dispatch__(
        cls,
        func: OpOverload,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        with _below():
            return _dispatch(func, args, kwargs or {})


def _is_parameter(x: Tensor) -> bool:
    return isinstance(x, torch.nn.Parameter)


def _of_values(values: Tensor, fmt: PositFormat) -> PositTensor:
    """Of values that are on the grid already; shares their memory."""
    found = Tensor._make_subclass(PositTensor, values)
    found.fmt = fmt
    return found


def _rebuilt(
    values: Tensor, fmt: PositFormat, requires_grad: bool, parameter: bool
) -> PositTensor:
    found = _of_values(values, fmt).requires_grad_(requires_grad)
    if parameter:
        found._is_param = True
    return found


class _Conversion(torch.autograd.Function):
    """From one format to another, rounded once; the gradient is converted the other way."""

    @staticmethod
    def forward(ctx: Any, x: PositTensor, fmt: PositFormat) -> PositTensor:
        ctx.fmt = x.fmt
        return PositTensor(x, fmt)

    @staticmethod
    def backward(ctx: Any, gradient: PositTensor) -> tuple[PositTensor, None]:
        return PositTensor(gradient, ctx.fmt), None


class _Reader:
    """Takes posit tensors out of arguments, and finds the one format that all have."""

    def __init__(self, func: OpOverload) -> None:
        self.func = func
        self.fmt: PositFormat | None = None

    def __call__(self, x: Any) -> Any:
        if isinstance(x, PositTensor):
            if self.fmt is None:
                self.fmt = x.fmt
            elif x.fmt != self.fmt:
                raise PositError(
                    f"{self.func} mixes {self.fmt} and {x.fmt}: convert one, as x.to({x.fmt!r}) does"
                )
            return x.as_subclass(Tensor)
        if isinstance(x, Tensor) and (x.is_floating_point() or x.is_complex()):
            raise PositError(
                f"{self.func} mixes posits and {x.dtype}: PositTensor(x, fmt) makes posits of "
                "the one, decode() floats of the other"
            )
        if isinstance(x, list | tuple):
            return [self(item) for item in x]
        return x


def _dispatch(func: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    if func is _COPY:
        return _copy(*args, **kwargs)
    read = _Reader(func)
    rule = RULES.get(func)
    if rule is not None:
        plain = [read(x) for x in args]
        named = {key: read(x) for key, x in kwargs.items()}
        assert read.fmt is not None
        return _wrapped(rule(read.fmt, *plain, **named), read.fmt)
    rule, target = IN_PLACE.get(func), args[0] if args else None
    if rule is None:
        rule, target = OUT.get(func), kwargs.get("out")
    if rule is None:
        raise UncoveredError(
            f"posit tensors do not cover {func}, and nothing falls back to floats: decode() gives "
            "floats, PositTensor(x, fmt) makes posits of them"
        )
    plain = [read(x) for x in args]
    named = {key: read(x) for key, x in kwargs.items()}
    named.pop("out", None)
    return _written(func, rule(read.fmt, *plain, **named), target)


def _wrapped(x: Any, fmt: PositFormat) -> Any:
    if isinstance(x, Tensor):
        return _of_values(x, fmt) if x.is_floating_point() else x
    return tuple(_wrapped(item, fmt) for item in x) if isinstance(x, list | tuple) else x


def _written(func: OpOverload, values: Tensor, target: Any) -> PositTensor:
    if not isinstance(target, PositTensor):
        raise PositError(f"{func} writes posits into a tensor of {target.dtype}: make it posits")
    if values.shape != target.shape:
        raise RuntimeError(
            f"{func}: the result's shape {tuple(values.shape)} is not {tuple(target.shape)}"
        )
    target.as_subclass(Tensor).copy_(values)
    return target


def _copy(target: Tensor, source: Tensor, non_blocking: bool = False) -> Tensor:
    """Floats are rounded on their way in; another format is an error, and so are posits into floats."""
    if not isinstance(target, PositTensor):
        raise PositError(f"posits are not copied into {target.dtype}: decode() gives floats")
    if isinstance(source, PositTensor):
        if source.fmt != target.fmt:
            raise PositError(
                f"{_COPY} mixes {target.fmt} and {source.fmt}: convert one, as "
                f"x.to({target.fmt!r}) does"
            )
        values = source.as_subclass(Tensor)
    else:
        values = round_to(source, target.fmt)
    target.as_subclass(Tensor).copy_(values, non_blocking)
    return target

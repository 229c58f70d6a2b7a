"""Element-wise functions of torch on ``MCTensor``, mixed freely with plain tensors and numbers."""

import operator
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from trainwright.mcf import functions
from trainwright.mcf.arithmetic import absolute, binary, power, scaled_add, sqrt
from trainwright.mcf.expansion import padded
from trainwright.mcf.gelu import gelu
from trainwright.mcf.graph import leading, result
from trainwright.mcf.operands import check_broadcast, components_of, factor_of, model, written
from trainwright.mcf.protocol import handles, handles_one
from trainwright.mcf.tensor import MCTensor
from trainwright.support import arguments as numbers


def _computed(operation: str, x: Any, y: Any, negate: bool = False, alpha: Any = 1) -> Tensor:
    check_broadcast(x, y, operation)
    like = model(x, y)
    a, b = factor_of(x, like), factor_of(y, like)
    if alpha != 1:
        factor = factor_of(alpha, like)
        return padded(scaled_add(a, b, -factor if negate else factor), like.nc)
    computed = binary(operation, a, -b if negate else b)
    return padded(computed, like.nc)


def _binary(name: str, operation: str, negate: bool = False) -> Callable[..., MCTensor]:
    plain = getattr(torch, name)

    def run(input: Any, other: Any, *, alpha: Any = 1, rounding_mode: None = None) -> MCTensor:
        if rounding_mode is not None:
            raise TypeError(f"rounding_mode {rounding_mode!r} is not defined for MCTensor")
        computed = _computed(operation, input, other, negate, alpha)
        extra = {} if alpha == 1 else {"alpha": alpha}
        return result(
            computed, lambda lead: plain(lead(input), lead(other), **extra), input, other
        )  # fmt: skip

    return run


def _in_place(operation: str, negate: bool = False) -> Callable[..., MCTensor]:
    def run(self: Any, other: Any, *, alpha: Any = 1) -> MCTensor:
        computed = _computed(operation, self, other, negate, alpha)
        return written(self, computed, operation + "_")

    return run


def _tensor(x: Any, like: MCTensor) -> Any:
    return x if isinstance(x, Tensor) else torch.tensor(float(x), dtype=like.fc.dtype)


add = handles("add", "__add__", "__radd__")(_binary("add", "add"))
sub = handles("sub", "subtract", "__sub__")(_binary("sub", "add", negate=True))
mul = handles("mul", "multiply", "__mul__", "__rmul__")(_binary("mul", "mul"))
div = handles("div", "divide", "true_divide", "__truediv__", "__div__")(_binary("div", "div"))
handles("add_", "__iadd__")(_in_place("add"))
handles("sub_", "subtract_", "__isub__")(_in_place("add", negate=True))
handles("mul_", "multiply_", "__imul__")(_in_place("mul"))
handles("div_", "divide_", "true_divide_", "__idiv__", "__itruediv__")(_in_place("div"))


@handles("rsub", "__rsub__")
def _rsub(input: Any, other: Any, *, alpha: Any = 1) -> MCTensor:
    if alpha != 1:
        input = mul(input, alpha)
    computed = _computed("add", other, input, negate=True)
    return result(computed, lambda lead: lead(other) - lead(input), input, other)


@handles("__rtruediv__", "__rdiv__")
def _rdiv(self: MCTensor, other: Any) -> MCTensor:
    computed = _computed("div", other, self)
    return result(computed, lambda lead: lead(other) / lead(self), self, other)


handles("reciprocal")(lambda input: _rdiv(input, 1))


@handles("square")
def square(input: MCTensor) -> MCTensor:
    """Multiply x by itself."""
    computed = binary("mul", input._components, input._components)
    return result(computed, lambda lead: torch.square(lead(input)), input)


@handles("pow", "__pow__")
def _pow(input: Any, exponent: Any) -> MCTensor:
    is_number = isinstance(input, MCTensor) and not getattr(exponent, "ndim", 0)
    if not is_number or exponent not in (0.5, 1, 2, 3, 4, -1, -2):
        raise TypeError(f"powers of MCTensor are 0.5, 1, 2, 3, 4, -1 and -2, not {exponent!r}")
    if exponent == 0.5:
        return _sqrt(input)
    computed = power(input._components, exponent)
    return result(computed, lambda lead: torch.pow(lead(input), exponent), input)


def _unary(plain: Callable[..., Tensor], compute: Callable[..., Tensor]) -> Callable[..., MCTensor]:
    def run(input: MCTensor, inplace: bool = False, **options: Any) -> MCTensor:
        computed = compute(input._components, **options)
        if inplace:
            return written(input, computed, plain.__name__)
        return result(computed, lambda lead: plain(lead(input), **options), input)

    return run


neg = handles("neg", "negative", "__neg__")(_unary(torch.neg, torch.neg))
handles("abs", "absolute", "__abs__")(_unary(torch.abs, absolute))
_sqrt = handles("sqrt")(_unary(torch.sqrt, sqrt))
handles("exp")(_unary(torch.exp, functions.exp))
handles("expm1")(_unary(torch.expm1, functions.expm1))
handles("log")(_unary(torch.log, functions.log))
handles("tanh")(_unary(torch.tanh, functions.tanh))
handles("sigmoid")(_unary(torch.sigmoid, functions.sigmoid))
handles("relu")(_unary(torch.relu, functions.relu))
handles("logsigmoid")(_unary(F.logsigmoid, functions.log_sigmoid))
handles("gelu")(_unary(F.gelu, gelu))


handles("positive", "__pos__")(lambda input: input)


_COMPARISONS = {
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le,
    "gt": operator.gt, "ge": operator.ge,
}  # fmt: skip


def _comparison(compare: Callable[[Tensor, Any], Tensor]) -> Callable[..., Tensor]:
    def run(input: Any, other: Any) -> Tensor:
        """Compare by the sign of the difference, which is right however much cancels."""
        check_broadcast(input, other, "comparison")
        like = model(input, other)
        a, b = factor_of(input, like), factor_of(other, like)
        leads = a[..., 0], b[..., 0]
        difference = binary("add", a, -b)[..., 0]
        finite = torch.isfinite(leads[0]) & torch.isfinite(leads[1])
        return torch.where(finite, compare(difference, 0), compare(*leads))

    return run


for _name, _compare in _COMPARISONS.items():
    handles(_name, f"__{_name}__")(_comparison(_compare))


@handles("where")
def where(condition: Tensor, input: Any, other: Any) -> MCTensor:
    """Select elements of ``input`` where the condition holds, else of ``other``."""
    like = model(input, other)
    a, b = (padded(components_of(t, like), like.nc) for t in (input, other))
    computed = torch.where(condition.unsqueeze(-1), a, b)
    return result(
        computed,
        lambda lead: torch.where(condition, *(_tensor(lead(t), like) for t in (input, other))),
        input, other,
    )  # fmt: skip


handles_one(Tensor.where, lambda self, condition, other: where(condition, self, other))


@handles("clamp", "clip")
def clamp(input: MCTensor, min: Any = None, max: Any = None) -> MCTensor:
    """Limit numbers to a range; each limit may be any kind of operand, and NaN gives NaN."""
    if min is None and max is None:
        raise RuntimeError("clamp needs min, max or both")
    # ``!=`` of numpy's numbers is a truth value that tensors do not take.
    min, max = numbers.plain(min), numbers.plain(max)
    if min is not None:
        input = where((input < min) | (min != min), min, input)
    return input if max is None else where((input > max) | (max != max), max, input)


@handles("clamp_", "clip_")
def _clamp_(self: MCTensor, min: Any = None, max: Any = None) -> MCTensor:
    with torch.no_grad():
        computed = clamp(self, min, max)._components
    return written(self, computed, "clamp_")


def _greater(name: str, beats: Callable[[Any, Any], Any]) -> None:
    def run(input: Any, other: Any) -> MCTensor:
        ties = torch.eq(input, other)
        first = beats(input, other) | torch.isnan(leading(input)) | ties
        with torch.no_grad():
            computed = where(first, input, other)._components

        def shared(lead: Any) -> Tensor:  # equal numbers share the gradient, as in torch
            a, b = lead(input), lead(other)
            return torch.where(ties, (a + b) / 2, torch.where(first, a, b))

        return result(computed, shared, input, other)

    handles(name)(run)


_greater("maximum", torch.gt)
_greater("minimum", torch.lt)

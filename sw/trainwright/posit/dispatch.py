"""Dispatch of torch's operators to posit tensors: below autograd, by the rules of ``operators``.

Layers, losses and optimisers are torch's own, down to the operators that they consist of. An
operator without a rule raises an error: nothing becomes a float silently.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from itertools import repeat
from math import inf
from numbers import Integral, Real
from typing import Any, Self

import torch
from torch import Tensor
from torch._ops import OpOverload

from trainwright.posit.exactness import carrier
from trainwright.posit.format import PositError, PositFormat
from trainwright.posit.operators import IN_PLACE, OUT, RULES, UncoveredError
from trainwright.posit.operators.registry import FloatMask, number, operator
from trainwright.posit.overrides import OVERRIDES
from trainwright.posit.rounding import round_to
from trainwright.support.arguments import plain
from trainwright.support.graphs import skipped_by_dynamo, without_autocast
from trainwright.support.text import shown

below = torch._C._DisableTorchDispatch
"""Context in which torch sees the values as plain floats, not as posits."""
_COPY = torch.ops.aten.copy_.default
_NUMBERS = {operator(name) for name in ("where.self", "fill_.Tensor", "index_put", "index_put_",
                                       "clamp_min_.Tensor", "mul_.Tensor")}  # fmt: skip
"""Operators that get numbers as float tensors from torch or an optimiser (ASGD, AdamW's decay)."""
_SAMPLED = {operator(f"fractional_max_pool{dimensions}d") for dimensions in (2, 3)}
"""Operators that torch gives random floats from 0 to 1 to choose windows by."""
RESHAPES = {
    operator(name)
    for name in ("squeeze_", "squeeze_.dim", "squeeze_.dims", "unsqueeze_", "transpose_", "t_")
}
"""Operators that change a shape in place; a vector-matrix product uses them."""
_CAT = operator("cat")
_SET = torch.ops.aten.set_.source_Tensor
_LISTED = """
    abs add addcdiv addcmul clamp_max clamp_min div exp lerp log maximum minimum mul neg norm pow
    reciprocal rsqrt sigmoid sign sqrt sub
""".split()
EACH = {
    getattr(packet, overload): name
    for name in (*_LISTED, *(f"{name}_" for name in (*_LISTED, "copy", "zero")))
    if (packet := getattr(torch.ops.aten, f"_foreach_{name}", None)) is not None
    for overload in packet.overloads()
    if not overload.endswith("out") and (name[:4], overload) != ("addc", "Tensor")
}
"""Names of elementary operators by operators of lists, which ``foreach`` optimisers use."""
_ELEMENTARY = {
    "norm": "linalg_vector_norm",
    "maximum": "clamp_min", "maximum_": "clamp_min_",
    "minimum": "clamp_max", "minimum_": "clamp_max_",
}  # fmt: skip
"""Elementary operators with a name of their own; the clamps also take numbers."""
_MASKED = {operator(name) for name in ("add.Tensor", "add_.Tensor", "baddbmm")}
"""Operators that attention calls with float masks: 0, and -inf or the least number."""


_OUTSIDE_GRAPHS = skipped_by_dynamo("posits have no graph: operators compute codes in Python")


_EXACT = 1 << 53
"""Magnitude up to which float64 has every integer; torch passes numbers on as float64."""


def _is_inexact(x: Any) -> bool:
    """Return whether ``x`` is a number that torch may round to float64 before the format does."""
    if isinstance(x, Tensor | float):
        return False
    return not -_EXACT <= x <= _EXACT if isinstance(x, int) else isinstance(x, Real | Decimal)


_POWERS = {torch.pow, Tensor.pow, Tensor.pow_, Tensor.__pow__, Tensor.__ipow__}
"""Functions whose second argument is an exponent."""


def _exponent(x: Any) -> Any:
    """Return an exponent as a float64, which powers are computed from; other operands as they are.

    Raises ``PositError`` for an integer that is none, because its last bit decides the sign.
    """
    if isinstance(x, list | tuple) or not _is_inexact(x):
        return x
    try:
        nearest = float(x)
    except OverflowError:
        nearest = inf
    if isinstance(x, Integral) and nearest != plain(x):  # numpy compares in float64
        raise PositError(
            f"float64 does not hold the exponent {shown(x)}, and the power could have the other "
            "sign: give one that it holds"
        )
    return nearest


def _rounded(
    func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """Round inexact numbers among the arguments of a function to the format of its posits.

    torch would round them to float64 first, and two roundings can differ from one.
    """
    if func in _POWERS:
        args = [*args[:1], *map(_exponent, args[1:])]
        kwargs = {n: _exponent(x) if n == "exponent" else x for n, x in kwargs.items()}
    given = (*args, *kwargs.values())
    if not any(map(_is_inexact, given)):
        return args, kwargs
    each = (y for x in given for y in (x if isinstance(x, list | tuple) else (x,)))
    fmt = next((x.fmt for x in each if isinstance(x, GridTensor)), None)

    def once(x: Any) -> Any:
        if fmt is None or not _is_inexact(x):
            return x
        return float(x) if x in (inf, -inf) else number(x, fmt)

    return tuple(map(once, args)), {name: once(x) for name, x in kwargs.items()}


class GridTensor(Tensor):
    """Values on the grid of ``fmt``, in its carrier type; operators round to the format."""

    fmt: PositFormat

    @classmethod
    @_OUTSIDE_GRAPHS
    def __torch_function__(
        cls,
        func: Any,
        types: Iterable[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run a function of torch unchanged, or its override; see ``overrides``."""
        # Autocast would convert posits, whose type is the carrier's, to floats of 16 bits.
        with torch._C.DisableTorchFunctionSubclass(), without_autocast():
            call: Any = OVERRIDES.get(func, func)
            args, kwargs = _rounded(func, args, kwargs or {})
            return call(*args, **kwargs)

    @classmethod
    def of_values(cls, values: Tensor, fmt: PositFormat) -> Self:
        """Wrap values that are on the grid already (not checked), sharing their memory."""
        tensor: Any = Tensor._make_subclass(cls, values)
        tensor.fmt = fmt
        return tensor

    @classmethod
    @_OUTSIDE_GRAPHS
    def __torch_dispatch__(
        cls,
        func: OpOverload,
        types: Iterable[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func in EACH:
            return _each(EACH[func], args, kwargs)
        if func not in RULES and func._can_decompose():
            return _decomposed(func, args, kwargs)
        with below():
            return _dispatch(cls, func, args, kwargs)


def _decomposed(func: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Run a composite operator, which only ``torch.inference_mode`` passes whole, in its parts.

    The parts are those that autograd sees; torch's decompositions in Python have other ones.
    """
    key = torch.DispatchKey.CompositeImplicitAutograd
    if torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), key):
        return func._op_dk(key, *args, **kwargs)
    return func.decompose(*args, **kwargs)


def _each(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any] | None:
    """Run an operator of lists by its elementary operator, element by element of the lists."""
    call = getattr(torch.ops.aten, _ELEMENTARY.get(name, name))
    columns = [x if isinstance(x, list | tuple) else repeat(x) for x in args]
    results = []
    for row in zip(*columns, strict=False):  # not strict: `repeat` never ends
        divisor = row[1] if name in ("div", "div_") else None
        if isinstance(divisor, Tensor) and not (divisor.dim() or isinstance(divisor, GridTensor)):
            divisor = divisor.item()
        if isinstance(divisor, int | float) and divisor == 0:
            # RAdam divides by 0 in its first steps and takes the reciprocal: floats then give 0.
            raise PositError(
                "a list of posits is divided by 0, which is NaR: posits have no infinity, so "
                "optimisers that divide by 0, as RAdam does, need foreach=False"
            )
        row = (row[0], *(_number_like(row[0], x) for x in row[1:]))
        named = {"value": row[3]} if name.startswith("addc") and len(row) > 3 else kwargs
        results.append(call(*row[:3], **named))
    return None if name.endswith("_") else results


def _number_like(target: Any, x: Any) -> Any:
    """Round a float tensor without dimensions as a number: ASGD keeps its rates in such tensors."""
    if not isinstance(target, GridTensor) or isinstance(x, GridTensor):
        return x
    if not isinstance(x, Tensor) or x.dim() or not x.is_floating_point():
        return x
    return type(target).of_values(round_to(x, target.fmt), target.fmt)


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


def _named(func: OpOverload) -> str:
    """Name an operator, and in a backward pass the function that its caller differentiates."""
    node = torch._C._current_autograd_node()
    if node is None:
        return str(func)
    caller = re.sub(r"Backward\d*$", "", node.name())
    caller = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", caller).lower()
    return f"{func} in the gradient of {caller} (call it on x.decode() for a gradient of floats)"


def _mixed(what: object, first: PositFormat, second: PositFormat) -> PositError:
    return PositError(f"{what} mixes {first} and {second}: convert one, as x.to({first!r}) does")


def _common_format(func: OpOverload, operands: Iterable[Any]) -> PositFormat | None:
    """Return the format of all posits among the operands; ``None`` without any."""
    fmt = None
    for x in operands:
        own = None
        if isinstance(x, GridTensor):
            own = x.fmt
        elif isinstance(x, list | tuple):
            own = _common_format(func, x)
        if own is not None and fmt is not None and own is not fmt and own != fmt:
            raise _mixed(func, fmt, own)
        fmt = fmt or own
    return fmt


def _read(func: OpOverload, x: Any, fmt: PositFormat) -> Any:
    """Unwrap posit tensors; accept floats only where they are exact in every format."""
    if isinstance(x, GridTensor):
        return x.as_subclass(Tensor)
    if isinstance(x, Tensor) and (x.is_floating_point() or x.is_complex()):
        return _read_floats(func, x, fmt)
    if isinstance(x, list | tuple):
        return [_read(func, item, fmt) for item in x]
    return x


def _read_floats(func: OpOverload, x: Tensor, fmt: PositFormat) -> Any:
    """Accept numbers, zeros (torch makes initial states and gradients of them) and masks."""
    if x.dim() == 0 and func in _NUMBERS and not x.requires_grad:
        return x.item()
    if func in _SAMPLED:
        return x
    # The gradient of ``prod`` concatenates ones as floats; a task number says that autograd runs.
    ones = func is _CAT and torch._C._current_graph_task_id() >= 0 and bool((x == 1).all())
    if ones or not bool(x.any()):
        return x.to(carrier(fmt))
    if func in _MASKED and bool(((x == 0) | (x <= torch.finfo(x.dtype).min)).all()):
        return FloatMask(x != 0)
    raise PositError(
        f"{_named(func)} mixes posits and {x.dtype}: PositTensor(x, fmt) makes posits of "
        "the floats, decode() makes floats of the posits"
    )


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
        f"posit tensors do not cover {_named(func)}, and nothing falls back to floats: "
        "decode() gives floats, PositTensor(x, fmt) makes posits of them"
    )


def _applied(
    func: OpOverload, rule: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[Any, PositFormat]:
    fmt = _common_format(func, (*args, *kwargs.values()))
    if fmt is None:
        raise PositError(f"{func} writes floats into posits: PositTensor(x, fmt) rounds them first")
    values = [_read(func, x, fmt) for x in args]
    named = {key: _read(func, x, fmt) for key, x in kwargs.items()}
    return rule(fmt, *values, **named), fmt


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

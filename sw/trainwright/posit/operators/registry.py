"""Registry of the torch operators that posit tensors support, and of the rules that compute them.

A rule takes the format followed by the operator's arguments, where posit tensors are replaced by
tensors of values on the grid, all of that format. Floating-point results must be on the grid again.
"""

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache, wraps
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._ops import OpOverload

from trainwright.posit.exactness import carrier
from trainwright.posit.format import PositError, PositFormat
from trainwright.posit.rounding import round_to
from trainwright.posit.word import round_exact, value

Rule = Callable[..., Any]

RULES: dict[OpOverload, Rule] = {}
"""Rules whose result is the operator's result."""
IN_PLACE: dict[OpOverload, Rule] = {}
"""Rules whose result is written into the first argument."""
OUT: dict[OpOverload, Rule] = {}
"""Rules whose result is written into the argument ``out``."""


class UncoveredError(PositError, NotImplementedError):
    """An operator, or a use of one, that posit tensors do not support."""


def operator(name: str) -> OpOverload:
    """Look up torch's operator, such as ``add.Tensor``; the overload may be omitted."""
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), overload or "default")


def _variant(name: str) -> OpOverload | None:
    """Return the in-place operator with the same arguments, or ``None`` if torch has none."""
    packet, _, overload = name.partition(".")
    packet_ = getattr(torch.ops.aten, f"{packet}_", None)
    return getattr(packet_, overload or "default", None)


MOST_PASSED = 4096
"""Checks of one operator that are remembered."""


def covers(
    *names: str, in_place: str | None = None, out: str | None = None, checked: bool = False
) -> Callable[[Rule], Rule]:
    """Register a function as the rule of operators and of their in-place variants.

    ``in_place``, ``out``: variants whose names do not follow from the operators' names.
    ``checked``: torch's operator checks shapes and options first, on tensors without memory.
    """

    def register(rule: Rule) -> Rule:
        for name in names:
            checking = _after_check(operator(name), rule) if checked else rule
            RULES[operator(name)] = checking
            variant = _variant(name)
            if variant is not None:
                IN_PLACE[variant] = checking
        if in_place is not None:
            IN_PLACE[operator(in_place)] = rule
        if out is not None:
            OUT[operator(out)] = rule
        return rule

    return register


def _after_check(call: OpOverload, rule: Rule) -> Rule:
    def hollow(x: Any) -> Any:
        return x.to("meta") if isinstance(x, Tensor) else x

    def described(x: Any) -> object:
        return (x.shape, x.stride(), x.dtype) if isinstance(x, Tensor) else repr(x)

    passed: set[tuple[object, ...]] = set()

    @wraps(rule)
    def run(fmt: PositFormat, *args: Any, **kwargs: Any) -> Any:
        # A check takes up to twenty times as long as a small operation: once for equal arguments.
        given = (*map(described, args), *((key, described(x)) for key, x in kwargs.items()))
        if given not in passed:
            try:
                call(*map(hollow, args), **{key: hollow(x) for key, x in kwargs.items()})
            except AssertionError as error:  # torch's decompositions in Python assert
                raise RuntimeError(f"{call}: {error}") from None
            if len(passed) == MOST_PASSED:
                passed.clear()
            passed.add(given)
        return rule(fmt, *args, **kwargs)

    return run


def move(name: str) -> OpOverload:
    """Register an operator that selects values as its own rule; return the operator."""
    call = operator(name)
    RULES[call] = lambda fmt, *args, **kwargs: call(*args, **kwargs)
    return call


def writes(*names: str) -> Callable[[Rule], Rule]:
    """Register a function as the rule of operators that exist in place only."""

    def register(rule: Rule) -> Rule:
        IN_PLACE.update({operator(name): rule for name in names})
        return rule

    return register


_QUOTIENT_BITS = 64


def refuse_complex(x: object, fmt: PositFormat) -> None:
    """Raise ``PositError`` for a complex number."""
    if isinstance(x, complex):
        raise PositError(f"{fmt} and the complex number {x} do not mix")


@lru_cache(4096)
def number(x: float | Fraction | Decimal, fmt: PositFormat) -> float:
    """Return the format's value nearest to a Python number, exact in the carrier; NaN for NaR."""
    refuse_complex(x, fmt)
    if x != x or x in (float("inf"), float("-inf")):
        return float("nan")
    above, below = x.as_integer_ratio()
    shift = 1 - below.bit_length()
    if below & (below - 1):  # a quotient of more bits than any format has, and one for the rest
        shift = min(abs(above).bit_length() - below.bit_length() - _QUOTIENT_BITS, 0)
        above, shift = 2 * ((above << -shift) // below) + 1, shift - 1
    nearest = value(round_exact(above, shift, fmt), fmt)
    assert nearest is not None
    return float(nearest)


def bound(x: float, fmt: PositFormat) -> float:
    """Return ``number`` for a limit; an infinity, which no posit reaches, stays one."""
    return x if x in (float("inf"), float("-inf")) else number(x, fmt)


def operand(x: Any, fmt: PositFormat, like: Tensor) -> Tensor:
    """Return a tensor unchanged; turn a number, rounded to the format, into a 0-d tensor.

    Tensors of integers, such as counts, and of truth values (masks) are rounded like numbers.
    """
    if isinstance(x, Tensor) and not (x.is_floating_point() or x.is_complex()):
        return round_to(x.to(torch.int64), fmt)
    if isinstance(x, Tensor):
        if x.dtype is not carrier(fmt):
            raise PositError(
                f"{fmt} and {x.dtype} do not mix: PositTensor(x, {fmt}) makes posits of the other"
            )
        return x
    return torch.tensor(number(x, fmt), dtype=carrier(fmt), device=like.device)


class FloatMask(NamedTuple):
    """Float tensor of 0, and -inf or its type's least number, added to scores before a softmax."""

    hidden: Tensor
    """Whether the mask is not 0."""

    def hide(self, scores: Tensor, fmt: PositFormat) -> Tensor:
        """Replace hidden scores by -maxpos, for which a softmax is 0."""
        return torch.where(self.hidden, -fmt.maxpos, scores)


def filling(x: float, fmt: PositFormat) -> float:
    """Return ``number``, and -maxpos for -inf: posits have no -inf, which marks hidden scores."""
    return -fmt.maxpos if x == float("-inf") else number(x, fmt)


def own_type(dtype: torch.dtype | None, fmt: PositFormat) -> None:
    """Raise ``PositError`` for a float type other than the carrier."""
    if dtype is not None and dtype is not carrier(fmt):
        raise PositError(f"{fmt} does not turn into {dtype} on the way; decode() gives floats")


def in_own_type(rule: Rule) -> Rule:
    """Let a rule's operator take ``dtype``, which must be the carrier."""

    @wraps(rule)
    def typed(fmt: PositFormat, *args: Any, dtype: torch.dtype | None = None, **kwargs: Any) -> Any:
        own_type(dtype, fmt)
        return rule(fmt, *args, **kwargs)

    return typed

"""The operators that posit tensors have: which rule serves which of torch's operators.

A rule has the operator's arguments after the format: tensors of values on the grid instead of posit
tensors, all of that format. What it returns in floating point is on the grid again.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from trainwright.posit.exactness import carrier
from trainwright.posit.format import PositError, PositFormat
from trainwright.posit.word import round_exact, value

Rule = Callable[..., Any]

RULES: dict[OpOverload, Rule] = {}
"""Rules whose result is that of the operator."""
IN_PLACE: dict[OpOverload, Rule] = {}
"""Rules whose result is written into the first argument."""
OUT: dict[OpOverload, Rule] = {}
"""Rules whose result is written into the argument ``out``."""


class UncoveredError(PositError, NotImplementedError):
    """An operator, or a use of one, that posit tensors do not have."""


def operator(name: str) -> OpOverload:
    """``add.Tensor`` of torch; an overload that is not named is the default one."""
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), overload or "default")


def _variant(name: str) -> OpOverload | None:
    """The operator that works in place, if torch has one with the same arguments."""
    packet, _, overload = name.partition(".")
    found = getattr(torch.ops.aten, f"{packet}_", None)
    return getattr(found, overload or "default", None)


def covers(
    *names: str, in_place: str | None = None, out: str | None = None
) -> Callable[[Rule], Rule]:
    """Makes a function the rule for operators, and for their variants that work in place.

    ``in_place``, ``out``: variants whose names do not follow from theirs.
    """

    def register(rule: Rule) -> Rule:
        for name in names:
            RULES[operator(name)] = rule
            variant = _variant(name)
            if variant is not None:
                IN_PLACE[variant] = rule
        if in_place is not None:
            IN_PLACE[operator(in_place)] = rule
        if out is not None:
            OUT[operator(out)] = rule
        return rule

    return register


def writes(*names: str) -> Callable[[Rule], Rule]:
    """Makes a function the rule for operators that exist in place only."""

    def register(rule: Rule) -> Rule:
        IN_PLACE.update({operator(name): rule for name in names})
        return rule

    return register


@lru_cache(4096)
def number(x: float, fmt: PositFormat) -> float:
    """The value of the format nearest to a number of Python, exact in the carrier; NaN for NaR."""
    if x != x or x in (float("inf"), float("-inf")):
        return float("nan")
    above, below = x.as_integer_ratio()
    found = value(round_exact(above, 1 - below.bit_length(), fmt), fmt)
    assert found is not None
    return float(found)


def operand(x: Any, fmt: PositFormat, like: Tensor) -> Tensor:
    """A tensor as it is; a number, rounded to the format, as a tensor without dimensions.

    Counts, which torch has as tensors of integers without dimensions, are numbers too.
    """
    if isinstance(x, Tensor) and x.dim() == 0 and not x.is_floating_point():
        x = x.item()
    if isinstance(x, Tensor):
        if x.dtype is not carrier(fmt):
            raise PositError(
                f"{fmt} and {x.dtype} do not mix: PositTensor(x, {fmt}) makes posits of the other"
            )
        return x
    if isinstance(x, complex):
        raise PositError(f"{fmt} and the complex number {x} do not mix")
    return torch.tensor(number(x, fmt), dtype=carrier(fmt), device=like.device)


def own_type(dtype: torch.dtype | None, fmt: PositFormat) -> None:
    """Raises ``PositError`` where an operator is asked for a float type other than the carrier."""
    if dtype is not None and dtype is not carrier(fmt):
        raise PositError(f"{fmt} does not turn into {dtype} on the way; decode() gives floats")

"""Elementary functions: computed in float64 and rounded once; tabulated up to 16 bits.

A test compares every tabulated value with exact arithmetic. In wider formats the float64 result may
be on the wrong side of a tie; the posit is then off by at most one unit in its last place.
"""

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

from trainwright.posit import grid
from trainwright.posit.exactness import carrier
from trainwright.posit.format import PositFormat
from trainwright.posit.operators.registry import covers
from trainwright.posit.rounding import codes_of, decode, round_to

FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    name: getattr(torch, name) for name in ("exp", "expm1", "log", "log1p", "tanh", "sigmoid")
}
_TABLED = 16
"""Widest format, in bits, whose function values are tabulated."""


@cache
def _table(name: str, fmt: PositFormat, device: torch.device) -> Tensor:
    values = decode(torch.arange(1 << fmt.n), fmt)
    return round_to(_finite(name, values, fmt), fmt).to(device)


def _finite(name: str, x: Tensor, fmt: PositFormat) -> Tensor:
    """Apply a function, replacing float64 overflow by maxpos and underflow by minpos."""
    values = FUNCTIONS[name](x)
    if name in ("exp", "expm1"):
        values = torch.where(values == float("inf"), fmt.maxpos, values)
    if name in ("exp", "sigmoid"):
        values = torch.where(values == 0, fmt.minpos, values)
    return values


def apply(name: str, x: Tensor, fmt: PositFormat) -> Tensor:
    """Apply a function to each value, in the carrier type; NaR where the function is undefined."""
    if fmt.n <= _TABLED:
        return _table(name, fmt, x.device)[codes_of(x, fmt)]
    return round_to(_finite(name, x.to(torch.float64), fmt), fmt).to(carrier(fmt))


def _function(name: str) -> None:
    @covers(name)
    def rule(fmt: PositFormat, x: Tensor) -> Tensor:
        return apply(name, x, fmt)


for _name in FUNCTIONS:
    _function(_name)


@covers("tanh_backward")
def tanh_backward(fmt: PositFormat, g: Tensor, y: Tensor) -> Tensor:
    """Compute g (1 - y y)."""
    unit = y.new_ones(())
    return grid.mul(g, grid.sub(unit, grid.mul(y, y, fmt), fmt), fmt)


@covers("sigmoid_backward")
def sigmoid_backward(fmt: PositFormat, g: Tensor, y: Tensor) -> Tensor:
    """Compute (g (1 - y)) y."""
    unit = y.new_ones(())
    return grid.mul(grid.mul(g, grid.sub(unit, y, fmt), fmt), y, fmt)

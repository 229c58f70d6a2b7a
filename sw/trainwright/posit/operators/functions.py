"""Elementary functions: computed in float64, rounded once. Of up to 16 bits they are looked up.

For these formats a test holds every value against exact arithmetic. For wider ones the float64 may
lie on the wrong side of a tie, where the result is within one unit in its last place of one.
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
"""Widest format of which all values are kept."""


@cache
def _table(name: str, fmt: PositFormat, device: torch.device) -> Tensor:
    values = decode(torch.arange(1 << fmt.n), fmt)
    return round_to(_finite(name, values, fmt), fmt).to(device)


def _finite(name: str, x: Tensor, fmt: PositFormat) -> Tensor:
    """Overflow and underflow of float64 are no infinity and no 0 of posits."""
    found = FUNCTIONS[name](x)
    if name in ("exp", "expm1"):
        found = torch.where(found == float("inf"), fmt.maxpos, found)
    if name in ("exp", "sigmoid"):
        found = torch.where(found == 0, fmt.minpos, found)
    return found


def apply(name: str, x: Tensor, fmt: PositFormat) -> Tensor:
    """The function of each value, in the carrier; NaR where it has none."""
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
    """g (1 - y y)."""
    one = y.new_ones(())
    return grid.mul(g, grid.sub(one, grid.mul(y, y, fmt), fmt), fmt)


@covers("sigmoid_backward")
def sigmoid_backward(fmt: PositFormat, g: Tensor, y: Tensor) -> Tensor:
    """(g (1 - y)) y."""
    one = y.new_ones(())
    return grid.mul(grid.mul(g, grid.sub(one, y, fmt), fmt), y, fmt)

"""Elementary functions: computed in float64 and rounded once; tabulated up to 16 bits.

A test compares every tabulated value with exact arithmetic. In wider formats the float64 result may
be on the wrong side of a tie; the posit is then off by at most one unit in its last place.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from trainwright.posit import grid
from trainwright.posit.exactness import carrier
from trainwright.posit.format import PositFormat
from trainwright.posit.operators.registry import covers, number
from trainwright.posit.rounding import codes_of, decode, round_to
from trainwright.support.errorfree import round_to_odd
from trainwright.support.graphs import cached_constant


def _above_half(x: Tensor, y: Tensor) -> Tensor:
    """Return y, or for x near 0, where y is x / 2 and a little more, that sum rounded to odd.

    x / 2 may be half-way between two posits. From 2^-40 on float64 shows the difference.
    """
    return torch.where(x.abs() < 2.0**-40, round_to_odd(x / 2, x.abs()), y)


def _gelu(x: Tensor) -> Tensor:
    """Compute x Phi(x); erfc keeps the digits that 1 + erf loses below 0."""
    return _above_half(x, x / 2 * torch.erfc(x * -_ROOT_HALF))


def _gelu_slope(x: Tensor) -> Tensor:
    """Compute Phi(x) + x phi(x)."""
    return torch.erfc(x * -_ROOT_HALF) / 2 + x * torch.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def _tanh_argument(x: Tensor) -> Tensor:
    """Return u with gelu(x) = x sigmoid(u) in the approximation by tanh."""
    return math.sqrt(8 / math.pi) * (x + 0.044715 * x * x * x)


def _gelu_tanh_slope(x: Tensor) -> Tensor:
    x = x.clamp(-_FAR, _FAR)
    u, slope = _tanh_argument(x), math.sqrt(8 / math.pi) * (1 + 3 * 0.044715 * x * x)
    return u.sigmoid() * (1 + x * (-u).sigmoid() * slope)


def _silu_slope(x: Tensor) -> Tensor:
    return x.sigmoid() * (1 + x * (-x).sigmoid())


def _mish(x: Tensor) -> Tensor:
    """Compute x tanh(log(1 + e)), e = exp x, as x n / (n + 2) with n = e (e + 2)."""
    n = x.clamp(max=_FAR).exp() * (x.clamp(max=_FAR).exp() + 2)
    return x * (n / (n + 2))


def _mish_slope(x: Tensor) -> Tensor:
    x = x.clamp(max=_FAR)
    e = x.exp()
    n = e * (e + 2)
    return n / (n + 2) + x * (e / (e + 1)) * (2 * (e + 1) / (n + 2)).square()


def _softplus(x: Tensor) -> Tensor:
    return x.clamp(min=0) + x.abs().neg().exp().log1p()


_ROOT_HALF = math.sqrt(0.5)
_FAR = 300.0
"""Argument from which every activation is x or its limit in float64, and no intermediate is inf."""


def _logit(x: Tensor) -> Tensor:
    """Compute log(x / (1 - x)), by log1p from 1/4 to 3/4, where log would lose digits."""
    near = torch.log1p((2 * x - 1) / (1 - x))
    return torch.where((x - 0.5).abs() < 0.25, near, x.log() - (-x).log1p())


_OF_TORCH = """
    exp exp2 expm1 log log2 log10 log1p tanh sigmoid sin cos tan asin acos atan sinh cosh
    asinh acosh atanh erf erfc
""".split()
ELEMENTARY = (*_OF_TORCH, "silu", "mish")
"""Functions that are operators of torch without further arguments."""

FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    **{name: getattr(torch, name) for name in _OF_TORCH},
    "logit": _logit,
    "gelu": _gelu,
    "gelu slope": _gelu_slope,
    "gelu by tanh": lambda x: _above_half(x, x * _tanh_argument(x).sigmoid()),
    "gelu by tanh slope": _gelu_tanh_slope,
    "silu": lambda x: _above_half(x, x * x.sigmoid()),
    "silu slope": _silu_slope,
    "mish": _mish,
    "mish slope": _mish_slope,
    "softplus": _softplus,
}
"""Functions by name; a slope is the derivative, rounded as one function."""
_EXPONENTIAL = ("exp", "exp2", "expm1", "sinh", "cosh")
_POSITIVE = ("exp", "exp2", "sigmoid", "softplus", "erfc")
_POWER = "power"
_ZERO_AT_ZERO = ("gelu", "gelu by tanh", "silu", "mish")
_TABLED = 16
"""Widest format, in bits, whose function values are tabulated."""


@cached_constant
def _table(name: str, exponent: float, fmt: PositFormat, device: torch.device) -> Tensor:
    values = decode(torch.arange(1 << fmt.n), fmt)
    return round_to(_finite(name, exponent, values, fmt), fmt).to(device)


def _finite(name: str, exponent: float, x: Tensor, fmt: PositFormat) -> Tensor:
    """Apply a function, replacing float64 overflow by maxpos and underflow by minpos."""
    if name == _POWER:
        return _power(x, x.new_tensor(exponent), fmt)
    values = FUNCTIONS[name](x)
    if name in _EXPONENTIAL:
        values = torch.where(values.isinf(), values.sign() * fmt.maxpos, values)
    if name in _POSITIVE:
        values = torch.where(values == 0, fmt.minpos, values)
    elif name in _ZERO_AT_ZERO or name.endswith("slope"):
        values = torch.where((values == 0) & (x < 0), -fmt.minpos, values)
    return values


def _power(x: Tensor, exponents: Tensor, fmt: PositFormat) -> Tensor:
    values = x**exponents
    beyond = (x != 0) & values.isinf()
    values = torch.where(beyond, torch.copysign(values.new_tensor(fmt.maxpos), values), values)
    none = (x != 0) & (values == 0)
    values = torch.where(none, torch.copysign(values.new_tensor(fmt.minpos), values), values)
    return torch.where(x.isnan() | exponents.isnan(), math.nan, values)


def apply(name: str, x: Tensor, fmt: PositFormat, exponent: float = 1) -> Tensor:
    """Apply a function to each value, in the carrier type; NaR where the function is undefined."""
    if fmt.n <= _TABLED:
        return _table(name, exponent, fmt, x.device)[codes_of(x, fmt)]
    return round_to(_finite(name, exponent, x.to(torch.float64), fmt), fmt).to(carrier(fmt))


def raised(x: Tensor, exponent: float | Tensor, fmt: PositFormat) -> Tensor:
    """Raise each value to a number; NaR for a root of a negative value and 0 to a negative."""
    if isinstance(exponent, Tensor):
        wide = x.to(torch.float64), exponent.to(torch.float64)
        return round_to(_power(*wide, fmt), fmt)
    return apply(_POWER, x, fmt, exponent)


def _within(x: Tensor, eps: float, fmt: PositFormat) -> Tensor:
    """Clamp the argument of ``logit`` between limits that are rounded to the format."""
    return x.clamp(number(eps, fmt), number(1 - eps, fmt))


def _function(name: str) -> None:
    @covers(name)
    def rule(fmt: PositFormat, x: Tensor, eps: float | None = None) -> Tensor:
        return apply(name, x if eps is None else _within(x, eps, fmt), fmt)


for _name in (*ELEMENTARY, "logit"):
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

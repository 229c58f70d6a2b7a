"""Elementary functions of component tensors, accurate to the digits of all components.

Numbers that a double holds with digits to spare go through float64; the error of rounding the
argument to a double is corrected to first order. More components use a series after argument
reduction, in expansions with an extra component.
"""

import math
from collections.abc import Callable
from fractions import Fraction

import torch
from torch import Tensor

from trainwright.mcf import carriers, constants
from trainwright.mcf.arithmetic import (
    add_mcn,
    binary,
    div_mcn,
    grow_exp_n,
    mult_mcn,
    square_mcn,
    total,
)
from trainwright.mcf.errorfree import PRECISION
from trainwright.mcf.expansion import finished, padded, terms_of

_HALVINGS = 6
"""Binary exponent by which reduced arguments of exp are divided before the series."""


def through(
    x: Tensor, plain: Callable[[Tensor], Tensor], double: Callable[..., Tensor], wide: Callable
) -> Tensor:
    """Apply a function in float64 if a double holds the numbers, else by ``wide``.

    ``plain`` is torch's function and decides special values; ``double`` takes a pair of doubles,
    ``wide`` components of float32 or float64 with an extra component.
    """
    dtype, nc = x.dtype, x.shape[-1]
    lead = plain(x[..., 0])
    if nc == 1:
        return lead.unsqueeze(-1)
    if carriers.in_double(dtype, nc):
        high, low = carriers.join_pair(x)
        finite = torch.isfinite(x[..., 0])  # infinities have no error-free sums
        high = torch.where(finite, high, x[..., 0].to(high.dtype))
        components = carriers.parted(double(high, torch.where(finite, low, 0.0)), dtype, nc)
        return zeros_signed(components, lead)
    if dtype in carriers.HALF:
        return carriers.narrowed(through(carriers.widened(x), plain, double, wide), dtype)
    result = wide(padded(x, nc + 1))[..., :nc]
    usual = torch.isfinite(lead) & torch.isfinite(x[..., 0])
    ends = padded(lead.unsqueeze(-1), nc)
    return torch.where(usual.unsqueeze(-1), finished(terms_of(result), lead), ends)


def zeros_signed(x: Tensor, lead: Tensor) -> Tensor:
    """Give zeros the sign of the function of the leading components.

    First-order corrections add +0 to a zero, which drops its sign.
    """
    zero = (x[..., 0] == 0) & (lead == 0)
    if bool(zero.any()):
        x[..., 0] = torch.where(zero, lead, x[..., 0])
    return x


def exp(x: Tensor) -> Tensor:
    """Compute e^x (algorithm 14, where the paper rounds e^x0 to one component)."""
    return through(x, torch.exp, _exp_double, _exp)


def _exp_double(high: Tensor, low: Tensor) -> Tensor:
    value = torch.exp(high)
    return torch.where(torch.isfinite(value), value + value * low, value)


def _exp(x: Tensor) -> Tensor:
    n, reduced = _reduced(x)
    return _scaled(_add_number(_expm1_series(reduced), 1), n)


def expm1(x: Tensor) -> Tensor:
    """Compute e^x - 1, accurate near 0."""
    return through(x, torch.expm1, _expm1_double, _expm1)


def _expm1_double(high: Tensor, low: Tensor) -> Tensor:
    value = torch.expm1(high)
    return torch.where(torch.isfinite(value), value + (value + 1) * low, value)


def _expm1(x: Tensor) -> Tensor:
    """Compute 2^n e^r - 1; n is 0 near 0, where the series alone represents the small number."""
    n, reduced = _reduced(x)
    less_one = _expm1_series(reduced)
    far = _add_number(_scaled(_add_number(less_one, 1), n), -1)
    return torch.where((n == 0).unsqueeze(-1), less_one, far)


def _reduced(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return (n, r) with x = n ln 2 + r and |r| <= ln 2 / 2; clamps x to the range of exp."""
    nc = x.shape[-1]
    limit = math.log(torch.finfo(x.dtype).max) * 1.6
    # A larger x would leave an r beyond ln 2 / 2, whose series diverges: e^-700 was infinite in
    # float32.
    clamped = padded(x[..., :1].clamp(-limit, limit), nc)
    x = torch.where(x[..., :1].abs() > limit, clamped, x)
    n = torch.round(x[..., 0] / math.log(2))
    n = torch.where(torch.isfinite(n), n, torch.zeros_like(n))
    ln2 = constants.number(constants.ln2(PRECISION[x.dtype] * (nc + 1) + 12), x, nc)
    return n, add_mcn(x, -binary("mul", ln2, n.unsqueeze(-1)))


def _scaled(x: Tensor, n: Tensor) -> Tensor:
    """Multiply x by 2^n in two steps, so that neither power is out of range."""
    half = torch.trunc(n / 2)
    unit = torch.ones_like(n)
    first, second = (torch.ldexp(unit, part).unsqueeze(-1) for part in (half, n - half))
    return x * first * second


def _expm1_series(r: Tensor) -> Tensor:
    """Compute e^r - 1 by its series at r / 2^6, then double: (1 + s)^2 - 1 = 2 s + s^2."""
    digits = PRECISION[r.dtype] * r.shape[-1]
    reduced = r * 2.0**-_HALVINGS
    # |r / 2^6| < 2^-7.5: add terms until the next term, in log2, is below the last digit.
    terms, bound = 2, -(_HALVINGS + 1.5) * 2
    while bound > -digits - 4:
        bound += -(_HALVINGS + 1.5) - math.log2(terms)
        terms += 1
    s = number_like(Fraction(1, math.factorial(terms)), r)
    for k in range(terms - 1, 0, -1):
        s = add_mcn(mult_mcn(s, reduced), number_like(Fraction(1, math.factorial(k)), r))
    # Each s is kept times what is left to double: s of 2^-6 r would lose digits of a small r below
    # the least subnormal number.
    s = mult_mcn(s, r)
    for k in range(_HALVINGS):
        s = add_mcn(s, square_mcn(s) * 2.0 ** (k - _HALVINGS - 1))
    return s


def number_like(value: Fraction, like: Tensor) -> Tensor:
    """Return a constant with as many components as ``like``."""
    return constants.number(value, like, like.shape[-1])


def _add_number(x: Tensor, value: float) -> Tensor:
    return grow_exp_n(x, torch.full_like(x[..., 0], value))


def log(x: Tensor) -> Tensor:
    """Compute the natural logarithm, accurate near 1, where low components matter."""
    return through(x, torch.log, _log_double, _log)


def _log_double(high: Tensor, low: Tensor) -> Tensor:
    value, step = torch.log(high), low / high
    corrected = value + (step - 0.5 * step * step)
    return torch.where(torch.isfinite(value), corrected, value)


def _log(x: Tensor) -> Tensor:
    """Compute y + 2 artanh((t - 1) / (t + 1)), y = fl(log x0), t = x e^-y close to 1.

    Where x0 = 1, y = 0 and t = x exactly.
    """
    lead = torch.where(torch.isfinite(x[..., 0]) & (x[..., 0] > 0), x[..., 0], 1.0)
    # Take powers of two out first, so that x e^-y stays in range.
    shift = torch.frexp(lead)[1].to(x.dtype) - 1
    near = (lead > 0.7) & (lead < 1.5)
    shift = torch.where(near, torch.zeros_like(shift), shift)
    x = _scaled(x, -shift)
    y = torch.log(x[..., 0])
    y = torch.where(torch.isfinite(y), y, torch.zeros_like(y)).unsqueeze(-1)
    t = mult_mcn(x, _exp(padded(-y, x.shape[-1])))
    z = div_mcn(_add_number(t, -1), _add_number(t, 1))
    square = square_mcn(z)
    s = number_like(Fraction(0), x)
    count = -(-PRECISION[x.dtype] * x.shape[-1] // (2 * (PRECISION[x.dtype] - 3))) + 1
    for k in range(count, 0, -1):
        s = mult_mcn(add_mcn(s, number_like(Fraction(2, 2 * k + 1), x)), square)
    s = mult_mcn(_add_number(s, 2), z)
    nc = x.shape[-1]
    ln2 = constants.number(constants.ln2(PRECISION[x.dtype] * (nc + 1) + 12), x, nc)
    return add_mcn(add_mcn(binary("mul", ln2, shift.unsqueeze(-1)), y), s)


def tanh(x: Tensor) -> Tensor:
    """Compute tanh x as s / (s + 2) with s = e^2x - 1."""
    return through(x, torch.tanh, lambda high, low: torch.tanh(high), _tanh)


def _tanh(x: Tensor) -> Tensor:
    limit = PRECISION[x.dtype] * x.shape[-1] * math.log(2)  # beyond half of it, tanh is 1
    twice = x * 2
    near = (twice[..., :1].abs() < limit) | torch.isnan(twice[..., :1])
    ends = padded(torch.copysign(torch.full_like(x[..., :1], limit), x[..., :1]), x.shape[-1])
    s = _expm1(torch.where(near, twice, ends))
    return div_mcn(s, _add_number(s, 2))


def sigmoid(x: Tensor) -> Tensor:
    """Compute 1 / (1 + e^-x)."""
    return through(x, torch.sigmoid, sigmoid_of_pair, sigmoid_of_components)


def sigmoid_of_pair(high: Tensor, low: Tensor) -> Tensor:
    """Compute the sigmoid of an unevaluated pair of doubles, in one double."""
    value = torch.sigmoid(high)
    return torch.where(torch.isfinite(low), value + value * torch.sigmoid(-high) * low, value)


def sigmoid_of_components(x: Tensor) -> Tensor:
    """Compute e^x / (1 + e^x) for negative x, so that small results keep their digits."""
    s = _exp(torch.where(torch.signbit(x[..., :1]), x, -x))
    below = _add_number(s, 1)
    unit = padded(torch.ones_like(s[..., :1]), s.shape[-1])
    return div_mcn(torch.where(torch.signbit(x[..., :1]), s, unit), below)


def log_sigmoid(x: Tensor) -> Tensor:
    """Compute log(1 / (1 + e^-x))."""
    return through(x, torch.nn.functional.logsigmoid, _log_sigmoid_double, _log_sigmoid)


def _log_sigmoid_double(high: Tensor, low: Tensor) -> Tensor:
    value = torch.nn.functional.logsigmoid(high)
    return torch.where(torch.isfinite(low), value + torch.sigmoid(-high) * low, value)


def _log_sigmoid(x: Tensor) -> Tensor:
    """Compute min(x, 0) - log(1 + e^-|x|), which keeps the digits of small results."""
    negative = torch.signbit(x[..., :1])
    s = _exp(torch.where(negative, x, -x))
    return add_mcn(torch.where(negative, x, torch.zeros_like(x)), -_log1p(s))


def _log1p(s: Tensor) -> Tensor:
    """Compute log(1 + s) for s from 0 to 1 by Newton steps on e^y - 1 = s."""
    y = padded(torch.log1p(s[..., :1]), s.shape[-1])
    for _ in range(s.shape[-1]):
        less_one = _expm1(y)
        y = add_mcn(y, div_mcn(add_mcn(s, -less_one), _add_number(less_one, 1)))
    return y


def relu(x: Tensor) -> Tensor:
    """Return x where it is positive, else 0; keep NaN and -0."""
    lead = torch.relu(x[..., :1])
    return torch.where(lead == 0, padded(lead, x.shape[-1]), x)


def softmax(x: Tensor, dim: int) -> Tensor:
    """Divide e^x by its sum along a leading dimension (dim >= 0).

    The largest element is subtracted first, so that no power overflows.
    """
    if not x.shape[dim]:
        return x.clone()
    powers = exp(_below_largest(x, dim))
    return div_mcn(powers, total(powers, dim).unsqueeze(dim))


def log_softmax(x: Tensor, dim: int) -> Tensor:
    """Subtract the logarithm of the sum of e^x along a leading dimension (dim >= 0)."""
    if not x.shape[dim]:
        return x.clone()
    shifted = _below_largest(x, dim)
    return add_mcn(shifted, -log(total(exp(shifted), dim)).unsqueeze(dim))


def _below_largest(x: Tensor, dim: int) -> Tensor:
    """Subtract the largest element along ``dim``: its leading component, and more while over 1.

    The second component of a number of 10^12 in float32 is up to 10^4, whose power overflows.
    """
    shifted = add_mcn(x, -_largest(x, dim))
    for _ in range(x.shape[-1] - 1):
        rest = _largest(shifted, dim)
        if not bool((rest.abs() > 1).any()):
            break
        shifted = add_mcn(shifted, -torch.where(rest.abs() > 1, rest, 0.0))
    return shifted


def _largest(x: Tensor, dim: int) -> Tensor:
    """Return the largest leading component along ``dim``, kept as a dimension: (..., 1)."""
    return x[..., 0].amax(dim, keepdim=True).unsqueeze(-1)

"""Exact sums of products over tensors, equal to the quire's, in limbs of 32 bits.

Serves the elements for which a float64 sum cannot decide the rounding
(``trainwright.posit.products``). Every product is added, in three pieces, to the limbs at its
place. Carries are propagated at the end, and the sum is returned as a float64 rounded to odd, so
that one more rounding to the format is correct.
"""

import torch
from torch import Tensor

from trainwright.posit.format import PositFormat
from trainwright.posit.rounding import LAYOUTS, round_bits

_LIMB = 32
_LOW = (1 << _LIMB) - 1
_SIGNIFICAND = 31
"""Bits kept of a significand: posits have at most 30."""
_UNIT = 2 * (_SIGNIFICAND - 1)
"""Distance in bits from a product's scale down to its last bit."""


def exact_dot(x: Tensor, y: Tensor, fmt: PositFormat, initial: Tensor | None = None) -> Tensor:
    """Compute initial + sum of x y along the last dimension, rounded once to the format.

    ``x``, ``y`` (E, K) and ``initial`` (E) are float64 on the grid; the result (E) is float64. K is
    at most 2^28, because an int64 limb holds 2^30 pieces of 33 bits.
    """
    limbs = torch.zeros(x.shape[0], _limb_count(fmt), dtype=torch.int64, device=x.device)
    (sx, ex), (sy, ey) = _parts(x), _parts(y)
    _deposit(limbs, sx * sy, ex + ey + 2 * fmt.max_scale)
    if initial is not None:
        s, e = _parts(initial.unsqueeze(1))
        _deposit(limbs, s, e + 2 * fmt.max_scale + _UNIT - (_SIGNIFICAND - 1))
    value = round_bits(_to_odd(limbs, 2 * fmt.max_scale + _UNIT), fmt)
    nar = x.isnan().any(1) | y.isnan().any(1)
    if initial is not None:
        nar |= initial.isnan()
    return torch.where(nar, float("nan"), value)


def _limb_count(fmt: PositFormat) -> int:
    return -(-(fmt.quire_width + _UNIT) // _LIMB) + 2


def _parts(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return (signed significand of 31 bits, scale); (0, 0) for 0 and NaN."""
    layout = LAYOUTS[torch.float64]
    bits = x.contiguous().view(torch.int64)
    fraction = (bits >> (layout.fraction - _SIGNIFICAND + 1)) & ((1 << (_SIGNIFICAND - 1)) - 1)
    significand = fraction + (1 << (_SIGNIFICAND - 1))
    significand = torch.where(bits < 0, -significand, significand)
    scale = ((bits >> layout.fraction) & 0x7FF) - layout.bias
    empty = (x == 0) | x.isnan()
    return significand.masked_fill(empty, 0), scale.masked_fill(empty, 0)


def _deposit(limbs: Tensor, terms: Tensor, place: Tensor) -> None:
    """Add ``terms`` * 2^``place`` (E, K) to the limbs (E, L); |terms| < 2^62, places >= 0."""
    sign, size = terms.sign(), terms.abs()
    first, shift = place >> 5, place & (_LIMB - 1)
    low, high = (size & _LOW) << shift, (size >> _LIMB) << shift
    for step, piece in ((0, low & _LOW), (1, (low >> _LIMB) + (high & _LOW)), (2, high >> _LIMB)):
        limbs.scatter_add_(1, first + step, sign * piece)


def _settle(limbs: Tensor) -> None:
    """Propagate carries: all limbs but the last, which holds the sign, become 0 to 2^32 - 1."""
    for index in range(limbs.shape[1] - 1):
        limbs[:, index + 1] += limbs[:, index] >> _LIMB
        limbs[:, index] &= _LOW


def _to_odd(limbs: Tensor, unit: int) -> Tensor:
    """Return the sums times 2^-``unit`` as float64, rounded to odd at 33 digits or more."""
    _settle(limbs)
    negative = limbs[:, -1] < 0
    limbs = torch.where(negative.unsqueeze(1), -limbs, limbs)
    _settle(limbs)
    index = torch.arange(limbs.shape[1], device=limbs.device)
    top = torch.where(limbs != 0, index, 0).amax(1, keepdim=True).clamp_(min=2)
    first, second = limbs.gather(1, top).squeeze(1), limbs.gather(1, top - 1).squeeze(1)
    below = torch.where(index < top - 1, limbs, 0).amax(1) != 0
    # Keep 53 bits: the two top limbs, or 20 + 20 bits of them if the top limb is full. Everything
    # below only matters as a sticky bit.
    few = first < 1 << 20
    window = torch.where(few, (first << _LIMB) | second, (first << 20) | (second >> 12))
    rest = below | (~few & (second & 0xFFF != 0))
    exponent = _LIMB * top.squeeze(1) - torch.where(few, _LIMB, 20) - unit
    layout = LAYOUTS[torch.float64]
    power = ((exponent + layout.bias) << layout.fraction).view(torch.float64)
    value = (window | rest.to(torch.int64)).to(torch.float64) * power
    return torch.where(negative, -value, value)

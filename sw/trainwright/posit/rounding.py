"""Rounding float tensors to a posit grid, and codes from and to such tensors.

A float's bit pattern, its exponent shifted by one to make it a multiple of 2^es at a regime's
start, is the posit's word but for the regime: the word for a given regime grows linearly with it.
So to round the word to nearest, ties to even, is to round the pattern, an integer, to the bits that
the regime leaves. The carry into the next regime comes out by itself.

Runs in the native kernels where a compiler is found, else in torch with the same bits.
"""

from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from trainwright.posit import native
from trainwright.posit.exactness import carrier
from trainwright.posit.format import PositError, PositFormat, check_format


@dataclass(frozen=True)
class Layout:
    """A float type: its integer type of equal width, fraction bits, exponent bias."""

    integer: torch.dtype
    fraction: int
    bias: int
    infinity: int


LAYOUTS = {
    torch.float32: Layout(torch.int32, 23, 127, 0x7F800000),
    torch.float64: Layout(torch.int64, 52, 1023, 0x7FF0000000000000),
}


def as_float(x: Tensor) -> Tensor:
    """The tensor in float32 or float64 without error. Raises ``TypeError`` for other kinds."""
    if x.dtype in LAYOUTS:
        return x
    if x.dtype in (torch.float16, torch.bfloat16):
        return x.to(torch.float32)
    others = (torch.bool, torch.uint64)
    if x.dtype.is_complex or x.dtype.is_floating_point or x.dtype in others:
        raise TypeError(f"posits are made from real numbers, not {x.dtype}; convert them first")
    if x.dtype is torch.int64 and bool((x.abs() > 1 << 53).any()):
        raise TypeError("integers over 2^53 are not exact in float64; round them to it first")
    return x.to(torch.float64)


def round_to(x: Tensor, fmt: PositFormat) -> Tensor:
    """The nearest value of the format for each element, in the format's carrier type.

    Rounds once, whatever the carrier: ``x`` is any real tensor, float64 not going through float32.
    Ties go to the even word; beyond maxpos gives maxpos, below minpos minpos, never 0; NaN and
    infinities give NaN, which is NaR; -0 gives 0. Not differentiable: the result has no history.
    """
    x, kind = as_float(x), carrier(fmt)
    if kind is torch.float64:
        x = x.to(torch.float64)
    if native.usable(x):
        return native.round_to(x, fmt).to(kind)
    return round_bits(x, fmt).to(kind)


def round_bits(x: Tensor, fmt: PositFormat) -> Tensor:
    """``round_to`` in torch alone, in the type of ``x``: float64, or the carrier if float32."""
    layout = LAYOUTS[x.dtype]
    bits = x.contiguous().view(layout.integer)
    top = 1 << (8 * x.element_size() - 1)
    size = bits & (top - 1)
    real = size < layout.infinity
    nonzero = size != 0
    least, most = (((layout.bias + s) << layout.fraction) for s in (-fmt.max_scale, fmt.max_scale))
    size = size.clamp_(max=most - 1).clamp_(min=least)  # next below maxpos rounds to it
    regime = layout.fraction + fmt.es
    # A regime starts at a multiple of 2^es. Where nothing of exponent and fraction is left, the
    # last bit kept is the regime's: 0 in regime n - 3 and 1 in the lowest, 2 - n. So is the parity
    # of the number in front, one being added for even n.
    extra = 1 - fmt.n % 2
    shift = (1 << layout.fraction) + (extra << regime)
    size += shift
    k = (size >> regime) - ((layout.bias + 1) >> fmt.es) - extra
    regime_bits = k ^ (k >> (8 * x.element_size() - 1))  # k, or -k - 1 below one
    lost = regime_bits + (regime + (3 - fmt.n if fmt.n > 2 else 0))  # bits that do not fit
    odd = (size >> lost) & 1
    one = torch.ones((), dtype=layout.integer, device=x.device)
    size += (one << (lost - 1)) - 1 + odd
    size = ((size >> lost) << lost) - shift
    size *= nonzero
    value = size.view(x.dtype)
    value = torch.where(nonzero & (bits < 0), -value, value)
    return torch.where(real, value, float("nan"))


def encode(x: Tensor, fmt: PositFormat) -> Tensor:
    """Codes (int64, 0 to 2^n - 1) of the values nearest to ``x``, any real tensor."""
    return codes_of(round_to(x, fmt), fmt)


def codes_of(values: Tensor, fmt: PositFormat) -> Tensor:
    """Codes of values that are on the grid already: in the carrier or float64, NaN for NaR."""
    if values.dtype is not carrier(fmt):
        values = values.to(torch.float64)
    if native.usable(values):
        return native.encode(values, fmt)
    layout = LAYOUTS[torch.float64]
    bits = values.to(torch.float64).contiguous().view(torch.int64)
    size = (bits & (2**63 - 1)) + (1 << layout.fraction)
    regime = layout.fraction + fmt.es
    k = (size >> regime) - ((layout.bias + 1) >> fmt.es)
    tail = size & ((1 << regime) - 1)
    run = torch.where(k >= 0, k + 2, 1 - k)  # with the bit that ends it
    spare = fmt.n - 1 - run
    one = torch.ones((), dtype=torch.int64, device=values.device)
    ones = ((one << (k.clamp(0, 31) + 1)) - 1) << 1
    fits = spare.clamp(min=0, max=31)
    word = (torch.where(k >= 0, ones, 1) << fits) | (tail >> (regime - fits).clamp(0, 63))
    word = torch.where(spare < 0, fmt.nar - 1, word)  # maxpos: a run that nothing ends
    word = torch.where(bits < 0, -word & fmt.mask, word)
    word = torch.where(values == 0, 0, word)
    return torch.where(values.isnan(), fmt.nar, word)


def as_codes(codes: Tensor) -> Tensor:
    """The codes as int64. Raises ``TypeError`` for tensors of no integers."""
    kind = codes.dtype
    if kind.is_floating_point or kind.is_complex or kind is torch.bool:
        raise TypeError(f"posit codes are integers, not {kind}; encode(x, fmt) makes them")
    return codes.to(torch.int64)


def check_codes(codes: Tensor, fmt: PositFormat) -> None:
    """Raises ``PositError`` for codes (int64) outside 0 .. 2^n - 1."""
    if codes.numel():
        low, high = (int(v) for v in torch.aminmax(codes))
        if low < 0 or high > fmt.mask:
            raise PositError(
                f"codes of {fmt} are 0 to {fmt.mask}, not {low if low < 0 else high}; were they "
                "of another format? convert(codes, source, fmt) converts them"
            )


def decode(codes: Tensor, fmt: PositFormat) -> Tensor:
    """The exact values in float64, NaN for NaR. ``codes`` integers of any shape.

    Raises ``TypeError`` or ``PositError`` for codes that the format does not have.
    """
    check_format(fmt)
    return _values(codes, fmt, torch.float64)


def values_of(codes: Tensor, fmt: PositFormat) -> Tensor:
    """``decode`` in the carrier type."""
    return _values(codes, fmt, carrier(fmt))


def _values(codes: Tensor, fmt: PositFormat, kind: torch.dtype) -> Tensor:
    codes = as_codes(codes)
    if native.usable(codes, dtype=kind):
        values = native.decode(codes, fmt, kind)
        if values is not None:
            return values
    check_codes(codes, fmt)
    values = _table(fmt).to(codes.device)[codes] if fmt.n <= 16 else _decoded(codes, fmt)
    return values.to(kind)


@cache
def _table(fmt: PositFormat) -> Tensor:
    return _decoded(torch.arange(1 << fmt.n), fmt)


def _decoded(codes: Tensor, fmt: PositFormat) -> Tensor:
    layout = LAYOUTS[torch.float64]
    width = fmt.n - 1
    word = torch.where(codes > fmt.nar, (1 << fmt.n) - codes, codes) & (fmt.nar - 1)
    above = (word >> max(width - 1, 0)) & 1 == 1  # the run is of ones
    flipped = torch.where(above, (fmt.nar - 1) - word, word)
    # A run of m leading bits leaves a number below 2^(width - m): its length is a float's exponent.
    length = (flipped.to(torch.float64).view(torch.int64) >> layout.fraction) - layout.bias + 1
    run = width - torch.where(flipped == 0, 0, length)
    k = torch.where(above, run - 1, -run)
    spare = (width - 1 - run).clamp(min=0)
    one = torch.ones((), dtype=torch.int64, device=codes.device)
    tail = word & ((one << spare) - 1)
    regime = layout.fraction + fmt.es
    pattern = ((k + ((layout.bias + 1) >> fmt.es)) << regime) | (tail << (regime - spare))
    value = (pattern - (1 << layout.fraction)).view(torch.float64)
    value = torch.where(codes > fmt.nar, -value, value)
    value = torch.where(codes == 0, 0.0, value)
    return torch.where(codes == fmt.nar, float("nan"), value)

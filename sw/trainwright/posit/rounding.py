"""Rounding of float tensors to a posit grid, and conversion between codes and such tensors.

Shift a float's exponent by one, so that it is a multiple of 2^es at the start of a regime. Its bit
pattern then equals the posit's word except for the regime bits: within one regime the word grows
linearly with the pattern. To round the word to nearest, ties to even, it is therefore enough to
round the pattern, an integer, to the bits that the regime leaves. A carry into the next regime
needs no special case.

Runs in the native kernels where a C compiler is found, else in torch with the same bits.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from trainwright.posit import native
from trainwright.posit.exactness import carrier
from trainwright.posit.format import PositError, PositFormat, check_format
from trainwright.support.arguments import require_dense, require_plain
from trainwright.support.graphs import cached_constant, library_call


@dataclass(frozen=True)
class FloatLayout:
    """Bits of a float type: integer type of equal width, fraction bits, bias, infinity."""

    integer: torch.dtype
    fraction: int
    bias: int
    infinity: int


LAYOUTS = {
    torch.float32: FloatLayout(torch.int32, 23, 127, 0x7F800000),
    torch.float64: FloatLayout(torch.int64, 52, 1023, 0x7FF0000000000000),
}


def as_float(x: Tensor) -> Tensor:
    """Convert to float32 or float64 without error. Raises ``TypeError`` for other number types."""
    if not isinstance(x, Tensor):
        raise TypeError(
            f"a torch tensor is needed, not {type(x).__name__}; PositTensor takes lists"
        )
    require_dense("x", x)
    require_plain("x", x, meta=True)
    if x.dtype in LAYOUTS:
        return x
    if x.dtype in (torch.float16, torch.bfloat16):
        return x.to(torch.float32)
    inexact = (torch.bool, torch.uint64)
    if x.dtype.is_complex or x.dtype.is_floating_point or x.dtype in inexact:
        raise TypeError(f"posits are made from real numbers, not {x.dtype}; convert them first")
    if x.dtype is torch.int64 and bool((x.abs() > 1 << 53).any()):
        raise TypeError("integers over 2^53 are not exact in float64; round them to it first")
    return x.to(torch.float64)


@library_call
def round_to(x: Tensor, fmt: PositFormat) -> Tensor:
    """Round each element to the nearest value of the format, in the format's carrier type.

    Rounds once, whatever the carrier: ``x`` is any real tensor, and float64 does not pass through
    float32. Ties go to the even word; above maxpos gives maxpos, below minpos gives minpos, never
    0; NaN and infinities give NaN, which stands for NaR; -0 gives 0. Not differentiable: the result
    has no autograd history.
    """
    x, kind = as_float(x), carrier(fmt)
    if kind is torch.float64:
        x = x.to(torch.float64)
    if native.usable(x):
        return native.round_to(x, fmt).to(kind)
    return round_bits(x, fmt).to(kind)


def round_bits(x: Tensor, fmt: PositFormat) -> Tensor:
    """Round like ``round_to``, in torch alone and in the type of ``x``.

    The type is float64, or float32 if that is the carrier.
    """
    layout = LAYOUTS[x.dtype]
    bits = x.contiguous().view(layout.integer)
    top = 1 << (8 * x.element_size() - 1)
    size = bits & (top - 1)
    real = size < layout.infinity
    nonzero = size != 0
    least, most = (((layout.bias + s) << layout.fraction) for s in (-fmt.max_scale, fmt.max_scale))
    # Out-of-range magnitudes: the pattern just below maxpos rounds up to maxpos, minpos stays.
    size = size.clamp_(max=most - 1).clamp_(min=least)
    regime = layout.fraction + fmt.es
    # A regime starts at a multiple of 2^es. Ties go to even by the last kept bit of the pattern.
    # Where no exponent or fraction bit fits, that bit must equal the regime's last bit: 0 in regime
    # n - 3 and 1 in the lowest regime, 2 - n. The regime number has this parity for odd n; for even
    # n one regime is added first.
    extra = 1 - fmt.n % 2
    shift = (1 << layout.fraction) + (extra << regime)
    size += shift
    k = (size >> regime) - ((layout.bias + 1) >> fmt.es) - extra
    regime_bits = k ^ (k >> (8 * x.element_size() - 1))  # k, or -k - 1 below one
    lost = regime_bits + (regime + (3 - fmt.n if fmt.n > 2 else 0))  # bits that do not fit
    odd = (size >> lost) & 1
    unit = torch.ones((), dtype=layout.integer, device=x.device)
    size += (unit << (lost - 1)) - 1 + odd
    size = ((size >> lost) << lost) - shift
    size *= nonzero
    value = size.view(x.dtype)
    value = torch.where(nonzero & (bits < 0), -value, value)
    return torch.where(real, value, float("nan"))


@library_call
def encode(x: Tensor, fmt: PositFormat) -> Tensor:
    """Return codes (int64, 0 to 2^n - 1) of the values nearest to ``x``, any real tensor."""
    return codes_of(round_to(x, fmt), fmt)


def codes_of(values: Tensor, fmt: PositFormat) -> Tensor:
    """Return the codes of values already on the grid, in the carrier or float64, NaN for NaR."""
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
    run = torch.where(k >= 0, k + 2, 1 - k)  # regime bits, the ending bit included
    spare = fmt.n - 1 - run
    unit = torch.ones((), dtype=torch.int64, device=values.device)
    ones = ((unit << (k.clamp(0, 31) + 1)) - 1) << 1
    fits = spare.clamp(min=0, max=31)
    word = (torch.where(k >= 0, ones, 1) << fits) | (tail >> (regime - fits).clamp(0, 63))
    # maxpos: its run of ones fills the word, and no bit ends it.
    word = torch.where(spare < 0, fmt.nar - 1, word)
    word = torch.where(bits < 0, -word & fmt.mask, word)
    word = torch.where(values == 0, 0, word)
    return torch.where(values.isnan(), fmt.nar, word)


def as_codes(codes: Tensor) -> Tensor:
    """Convert codes to int64. Raises ``TypeError`` for tensors that are not integers."""
    if not isinstance(codes, Tensor):
        raise TypeError(f"posit codes are a tensor of integers, not {type(codes).__name__}")
    kind = codes.dtype
    if kind.is_floating_point or kind.is_complex or kind is torch.bool:
        raise TypeError(f"posit codes are integers, not {kind}; encode(x, fmt) makes them")
    return codes.to(torch.int64)


def check_codes(codes: Tensor, fmt: PositFormat) -> None:
    """Raise ``PositError`` for codes (int64) outside 0 .. 2^n - 1."""
    if codes.numel():
        low, high = (int(v) for v in torch.aminmax(codes))
        if low < 0 or high > fmt.mask:
            raise PositError(
                f"codes of {fmt} are 0 to {fmt.mask}, not {low if low < 0 else high}; were they "
                "of another format? convert(codes, source, fmt) converts them"
            )


@library_call
def decode(codes: Tensor, fmt: PositFormat) -> Tensor:
    """Return exact values in float64, NaN for NaR; ``codes`` are integers of any shape.

    Raises ``TypeError`` or ``PositError`` for codes outside the format.
    """
    check_format(fmt)
    return _values(codes, fmt, torch.float64)


def values_of(codes: Tensor, fmt: PositFormat) -> Tensor:
    """Decode to the carrier type instead of float64."""
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


@cached_constant
def _table(fmt: PositFormat) -> Tensor:
    return _decoded(torch.arange(1 << fmt.n), fmt)


def _decoded(codes: Tensor, fmt: PositFormat) -> Tensor:
    layout = LAYOUTS[torch.float64]
    width = fmt.n - 1
    word = torch.where(codes > fmt.nar, (1 << fmt.n) - codes, codes) & (fmt.nar - 1)
    above = (word >> max(width - 1, 0)) & 1 == 1  # the run is of ones
    flipped = torch.where(above, (fmt.nar - 1) - word, word)
    # Count leading bits by conversion to float: a run of m equal bits, flipped to zeros, leaves a
    # number below 2^(width - m), and the float's exponent is that number's length.
    length = (flipped.to(torch.float64).view(torch.int64) >> layout.fraction) - layout.bias + 1
    run = width - torch.where(flipped == 0, 0, length)
    k = torch.where(above, run - 1, -run)
    spare = (width - 1 - run).clamp(min=0)
    unit = torch.ones((), dtype=torch.int64, device=codes.device)
    tail = word & ((unit << spare) - 1)
    regime = layout.fraction + fmt.es
    pattern = ((k + ((layout.bias + 1) >> fmt.es)) << regime) | (tail << (regime - spare))
    value = (pattern - (1 << layout.fraction)).view(torch.float64)
    value = torch.where(codes > fmt.nar, -value, value)
    value = torch.where(codes == 0, 0.0, value)
    return torch.where(codes == fmt.nar, float("nan"), value)

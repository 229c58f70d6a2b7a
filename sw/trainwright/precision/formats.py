"""Number formats by name: what they can represent, and the correct rounding to them."""

import math
import re
from dataclasses import dataclass
from functools import cache

import torch

from trainwright.posit.format import PositError, PositFormat
from trainwright.posit.rounding import round_to
from trainwright.precision.rounding import round_float32_to_tf32, round_float64
from trainwright.support.errors import UserError


class PrecisionError(UserError, ValueError):
    """A number format that does not exist, or a pair that cannot be simulated exactly."""


@dataclass(frozen=True)
class PrecisionFormat:
    """Number format of ``digits`` significant bits, hidden bit included; posits: near 1."""

    name: str
    digits: int
    least: int
    """Exponent of the smallest normal number, 2^least."""
    greatest: float
    """Largest finite number."""
    dtype: torch.dtype | None = None
    """torch's type of the same numbers, where it has one."""
    overflow: float = float("inf")
    """Result for larger numbers: inf, or NaN where the format has no infinity."""
    posit: PositFormat | None = None

    @property
    def unit(self) -> float:
        """Unit round-off u = 2^-digits (the draft's Table 1); of posits only near 1."""
        return 2.0**-self.digits

    @property
    def tapered(self) -> bool:
        """Whether relative precision depends on the magnitude, so that no u holds everywhere."""
        return self.posit is not None

    @property
    def native(self) -> bool:
        """Whether the machine computes in the format, so that nothing needs to be simulated."""
        return self.dtype in (torch.float32, torch.float64)

    @property
    def carrier(self) -> torch.dtype:
        """Type that holds values of the format, and results of one operation before rounding.

        With 2 digits + 2 significant bits, rounding first to the carrier and then to the format
        equals rounding once, for + - x / and sqrt.
        """
        if self.dtype is torch.float32 or (self.digits <= 11 and not self.tapered):
            return torch.float32
        return torch.float64

    @property
    def exact_operations(self) -> bool:
        """Whether an operation in the carrier and one rounding are correctly rounded together."""
        return self.native or 2 * self.digits + 2 <= digits_of(self.carrier)

    def round(self, x: torch.Tensor) -> torch.Tensor:
        """Return the nearest numbers of the format, ties to even, as float32 or float64.

        ``x`` is floating point of any shape; narrower types than float32 become float32. float64 is
        rounded once, not through float32. Overflow gives ``overflow``; posits saturate instead.
        """
        if x.dtype not in (torch.float32, torch.float64):
            x = x.to(torch.float32)
        if self.posit is not None:
            return round_to(x, self.posit).to(x.dtype)
        if self.dtype is not None and self.dtype in (x.dtype, torch.float64):
            return x
        if x.dtype is torch.float32:
            if self.dtype is None:
                return round_float32_to_tf32(x)
            y = x.to(self.dtype).to(torch.float32)
            if self.overflow == self.overflow:
                return y
            # On overflow some versions of torch give NaN and some saturate: decide here.
            half = 2.0 ** (math.frexp(self.greatest)[1] - 1 - self.digits)
            return torch.where(x.abs() > self.greatest + half, self.overflow, y)
        if self.dtype is torch.float32:
            return x.to(torch.float32).to(torch.float64)
        x = x.resolve_neg()  # torch makes no new tensors like a view that it negates
        y = round_float64(x, self.digits, self.least)
        y = torch.where(y.abs() > self.greatest, torch.copysign(x.new_tensor(self.overflow), x), y)
        return torch.where(x.isfinite() & (y != 0), y, self._special(x))

    def _special(self, x: torch.Tensor) -> torch.Tensor:
        """Return signed zeros, NaN and infinities as the format has them."""
        zero = torch.copysign(torch.zeros_like(x), x)
        infinite = torch.copysign(x.new_tensor(self.overflow), x)
        return torch.where(x.isfinite(), zero, torch.where(x.isnan(), x, infinite))


def digits_of(dtype: torch.dtype) -> int:
    """Return the significant bits of float32 or float64."""
    return 24 if dtype is torch.float32 else 53


def _binary(name: str, digits: int, bits: int, dtype: torch.dtype | None) -> PrecisionFormat:
    greatest = (2.0 - 2.0 ** (1 - digits)) * 2.0 ** (2 ** (bits - 1) - 1)
    return PrecisionFormat(name, digits, 2 - 2 ** (bits - 1), greatest, dtype)


_FORMATS = {
    f.name: f
    for f in (
        _binary("fp64", 53, 11, torch.float64),
        _binary("fp32", 24, 8, torch.float32),
        _binary("tf32", 11, 8, None),
        _binary("fp16", 11, 5, torch.float16),
        _binary("bf16", 8, 8, torch.bfloat16),
        _binary("fp8_e5m2", 3, 5, torch.float8_e5m2),
        # A binade more than IEEE 754 would give, and no infinity.
        PrecisionFormat("fp8_e4m3", 4, -6, 448.0, torch.float8_e4m3fn, float("nan")),
    )
}
NAMES = (*_FORMATS, "posit8", "posit16", "posit32", "posit(n,es)")
"""Names that ``get_format`` understands."""


def _posit(name: str) -> PrecisionFormat:
    match = re.fullmatch(r"posit([0-9]+)|posit\(([0-9]+), ?([0-9]+)\)", name)
    if match is None:
        raise PrecisionError(f"unknown number format {name!r}; there are {', '.join(NAMES)}")
    width, es = (int(match[2]), int(match[3])) if match[2] else (int(match[1]), 2)
    try:
        posit = PositFormat(width, es)
    except PositError as error:
        raise PrecisionError(f"unknown number format {name!r}: {error}") from None
    return PrecisionFormat(str(posit), posit.digits, -posit.max_scale, posit.maxpos, posit=posit)


@cache
def _by_name(name: str) -> PrecisionFormat:
    return _FORMATS.get(name) or _posit(name)


def get_format(name: "str | PrecisionFormat") -> PrecisionFormat:
    """Return the format of a name such as ``fp16``, ``bf16``, ``posit16`` or ``posit(16,1)``.

    ``posit16`` is posit(16,2), the standard's. Raises ``PrecisionError``.
    """
    if isinstance(name, PrecisionFormat):
        return name
    if not isinstance(name, str):
        raise PrecisionError(f"a number format is a name such as fp16, not {name!r}")
    return _by_name(name)

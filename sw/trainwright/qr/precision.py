"""Precisions of a factorisation and the level at which it rounds."""

from dataclasses import dataclass

import torch

from trainwright.precision import PrecisionError, PrecisionFormat, get_format
from trainwright.precision.formats import digits_of
from trainwright.qr.arithmetic import Arithmetic, Inner, Level3, uniform

ROUNDINGS = ("end", "block", "inner")


@dataclass(frozen=True)
class Precision:
    """Uniform in ``high`` if ``low`` is None, else rounded to ``low`` at the level ``rounding``.

    end (3.4): everything in high, results cast once. block (3.5, BLAS-3): panels in high, products
    of low matrices summed in high, one cast per block. inner (3.6, BLAS-2): inner products under
    Assumption 2.4, everything else in low.
    """

    low: PrecisionFormat | None
    high: PrecisionFormat
    rounding: str

    @property
    def storage(self) -> PrecisionFormat:
        """Format of the results."""
        return self.high if self.low is None else self.low

    @property
    def panel(self) -> Arithmetic:
        """Arithmetic of operations on single columns."""
        if self.low is not None and self.rounding == "inner":
            return Inner(self.low, self.high)
        return uniform(self.high)

    @property
    def trailing(self) -> Arithmetic:
        """Arithmetic of matrix products."""
        if self.low is None or self.rounding == "end":
            return uniform(self.high)
        return {"block": Level3, "inner": Inner}[self.rounding](self.low, self.high)

    @property
    def carrier(self) -> torch.dtype:
        """Tensor type while calculating: the wider of both formats' carriers."""
        return max((f.carrier for f in (self.storage, self.high)), key=digits_of)

    def __str__(self) -> str:
        low = "" if self.low is None else f"{self.low.name}/"
        level = "" if self.low is None else f", rounded at {self.rounding}"
        return f"{low}{self.high.name}{level}"


def make_precision(
    low: str | PrecisionFormat | None, high: str | PrecisionFormat, rounding: str
) -> Precision:
    """Check and combine the options.

    Raises ``PrecisionError``, or ``ValueError`` for ``rounding``.
    """
    if rounding not in ROUNDINGS:
        raise ValueError(f"rounding must be one of {', '.join(ROUNDINGS)}, not {rounding!r}")
    wide = get_format(high)
    narrow = None if low is None else get_format(low)
    if narrow is not None and narrow.digits > wide.digits:
        raise PrecisionError(f"low is {narrow.name} and more precise than high, {wide.name}")
    result = Precision(narrow, wide, rounding)
    result.panel.check()
    result.trailing.check()
    return result

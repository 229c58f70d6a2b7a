"""Low-precision arithmetic, simulated in float32 and float64 (``docs/reference/qr.md``)."""

from trainwright.precision.dot import dot_mixed, dot_rounded
from trainwright.precision.formats import NAMES, PrecisionError, PrecisionFormat, get_format
from trainwright.precision.simulate import OPERATIONS, simulate, sqrt

__all__ = [
    "NAMES",
    "OPERATIONS",
    "PrecisionError",
    "PrecisionFormat",
    "dot_mixed",
    "dot_rounded",
    "get_format",
    "simulate",
    "sqrt",
]

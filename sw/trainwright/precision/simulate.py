"""simHalf (Algorithm 1 of the draft) for any format: cast up, one operation, cast down."""

from collections.abc import Callable

import torch

from trainwright.precision.formats import PrecisionError, PrecisionFormat, get_format
from trainwright.support.graphs import library_call

OPERATIONS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "add": torch.add,
    "subtract": torch.sub,
    "multiply": torch.mul,
    "divide": torch.div,
    "dot_product": lambda x, y: (x * y).sum(-1),
}
"""f of Algorithm 1: OP of the draft's section 2.1 and the dot product (over the last dimension)."""


def checked(name: str | PrecisionFormat) -> PrecisionFormat:
    """Return the format if its operations can be simulated exactly; else ``PrecisionError``."""
    format = get_format(name)
    if not format.exact_operations:
        raise PrecisionError(
            f"operations in {format.name} cannot be simulated through float64 without rounding "
            "twice; cast to it at the end only"
        )
    return format


@library_call
def simulate(
    operation: str, x: torch.Tensor, y: torch.Tensor, format: str | PrecisionFormat = "fp16"
) -> torch.Tensor:
    """Return fl(x op y) in ``format`` (Algorithm 1); ``x`` and ``y`` are rounded to it first.

    The result has the format's carrier type. A single operation is correctly rounded: the carrier
    has over twice the digits. ``dot_product`` is Algorithm 1 to the letter, summed in the carrier
    and cast once; ``dot_rounded`` rounds every operation. Raises ``PrecisionError`` for a format
    that the carrier cannot simulate, ``ValueError`` for an unknown operation.
    """
    if operation not in OPERATIONS:
        raise ValueError(f"operation must be one of {', '.join(OPERATIONS)}, not {operation!r}")
    f = checked(format)
    wide = [f.round(t.to(f.carrier) if t.dtype != torch.float64 else t) for t in (x, y)]
    return f.round(OPERATIONS[operation](*(t.to(f.carrier) for t in wide)))


@library_call
def sqrt(x: torch.Tensor, format: str | PrecisionFormat = "fp16") -> torch.Tensor:
    """Return the correctly rounded square root of ``x`` rounded to ``format``."""
    f = checked(format)
    return f.round(torch.sqrt(f.round(x).to(f.carrier)))

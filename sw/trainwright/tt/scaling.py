"""Keep numbers of tensor trains near 1: powers of two are taken out exactly and put back once.

Norms, products of factors and singular values then neither over- nor underflow, however large or
small W and its factors are, and every other bit stays as it is.
"""

import math

import torch

from trainwright.precision import PrecisionFormat
from trainwright.precision.rounding import exponent_of, scale_by_power
from trainwright.tt.trains import TensorTrainError


def widened(x: torch.Tensor) -> torch.Tensor:
    """Return ``x`` in float32 or float64: integers go to float64, as float32 has only 24 bits."""
    if x.dtype in (torch.float32, torch.float64):
        return x
    return x.to(torch.float32 if x.is_floating_point() else torch.float64)


def near_one(x: torch.Tensor) -> tuple[torch.Tensor, int]:
    """Return y and e, ``x`` = y 2^e, the largest element of y in [1/2, 1); e = 0 for zeros."""
    exponent = exponent_of(x.detach().abs().amax())
    return scale_by_power(x, -exponent), int(exponent)


def restored(x: torch.Tensor, exponent: int, storage: PrecisionFormat, what: str) -> torch.Tensor:
    """Return ``x`` 2^exponent, rounded once to ``storage``, in the type of ``x``.

    Raises ``TensorTrainError`` where the result overflows, or where nothing is left of it.
    """
    power = torch.tensor(exponent)
    result = storage.round(scale_by_power(x.to(torch.float64), power)).to(x.dtype)
    if not bool(result.isfinite().all()):
        raise TensorTrainError(
            f"{what} overflows {storage.name}, whose largest number is {storage.greatest:g}: its "
            f"elements reach 2^{exponent}; divide W by a power of two"
        )
    if bool(x.any()) and not bool(result.any()):
        raise TensorTrainError(
            f"{what} underflows {storage.name}: its elements are below 2^{exponent}; multiply W by "
            f"a power of two"
        )
    return result


def norm(x: torch.Tensor) -> tuple[float, int]:
    """Return ||x||_F as f 2^e: a pair, as the norm of finite elements can overflow."""
    scaled, exponent = near_one(x.detach().to(torch.float64))
    return float(torch.linalg.vector_norm(scaled)), exponent


def quotient(above: tuple[float, int], below: tuple[float, int]) -> float:
    """Return the ratio of two norms; 0 / 0 is 0."""
    if above[0] == 0:
        return 0.0
    if below[0] == 0:
        return math.inf
    try:
        return math.ldexp(above[0] / below[0], above[1] - below[1])
    except OverflowError:
        return math.inf


def relative_difference(wanted: torch.Tensor, approximate: torch.Tensor) -> float:
    """Return ||wanted - approximate||_F / ||wanted||_F of tensors of any magnitude."""
    exponent = exponent_of(torch.maximum(wanted.abs().amax(), approximate.abs().amax()))
    a, b = (scale_by_power(x.to(torch.float64), -exponent) for x in (wanted, approximate))
    return quotient(norm(a - b), norm(a))

"""Figure 14: errors of the emulated types against the magnitude of the numbers."""

from dataclasses import dataclass

import torch
from torch import Tensor

from trainwright.ape.parts import join, split
from trainwright.ape.schemes import Scheme, scheme, value_range

TYPES = ("fp32-f", "fp32-t", "fp32-b", "fp32-m")


@dataclass(frozen=True)
class BinadeErrors:
    """Relative errors over random numbers of one binade; inf where a part overflows."""

    dtype: str
    exponent: int
    in_range: bool
    """Whether the whole binade is in the type's range."""
    value: float
    """Largest error of split and join."""
    product: float
    """Largest error of a product with a number from (1, 2), not rounded afterwards."""


@dataclass(frozen=True)
class ErrorSummary:
    """Largest errors over all binades in range, with the stated bounds."""

    dtype: str
    minimum: float
    maximum: float
    value: float
    stated: float
    product: float
    product_bound: float


def exact_product(x: Tensor, y: Tensor, form: Scheme) -> Tensor:
    """Multiply float32 elementwise by the scheme in float64: exact parts, no accumulator."""
    left, right = split(x, form.name), split(y, form.name)
    total = torch.zeros(x.shape, dtype=torch.float64)
    for group in reversed(form.groups):
        for i, j in group.pairs:
            part = left[i].to(torch.float64) * right[j].to(torch.float64)
            total = total + part * 2.0**-group.shift
    return total


def largest_error(result: Tensor, exact: Tensor) -> float:
    """Return the largest |result - exact| / |exact|; inf where ``result`` is not finite."""
    error = ((result - exact).abs() / exact.abs()).nan_to_num(torch.inf, torch.inf)
    return float(error.max())


def run(samples: int = 16384, seed: int = 0, types: tuple[str, ...] = TYPES) -> list[BinadeErrors]:
    """Measure ``samples`` uniform numbers in (2^e, 2^(e+1)) for each e from -149 to 127."""
    rows = []
    random = torch.Generator().manual_seed(seed)
    for exponent in range(-149, 128):
        uniform = torch.rand(samples, generator=random, dtype=torch.float64)
        x = ((1 + uniform) * 2.0**exponent).to(torch.float32)
        x = x[torch.isfinite(x)]
        y = 1 + torch.rand(len(x), generator=random)
        for dtype in types:
            low, high = value_range(dtype)
            wide = x.to(torch.float64)
            rows.append(
                BinadeErrors(
                    dtype,
                    exponent,
                    low <= 2.0**exponent and 2.0 ** (exponent + 1) <= high * (1 + 2.0**-7),
                    largest_error(join(split(x, dtype), dtype), wide),
                    largest_error(exact_product(x, y, scheme(dtype)), wide * y.to(torch.float64)),
                )
            )
    return rows


def summary(rows: list[BinadeErrors]) -> list[ErrorSummary]:
    """Summarise each type; the binade that holds the type's largest number is left out."""
    summaries = []
    for dtype in dict.fromkeys(row.dtype for row in rows):
        inside = [row for row in rows if row.dtype == dtype and row.in_range]
        inside = [row for row in inside if 2.0 ** (row.exponent + 1) <= value_range(dtype)[1]]
        form = scheme(dtype)
        value, product = max(row.value for row in inside), max(row.product for row in inside)
        errors = value, form.precision, product, form.product_error
        summaries.append(ErrorSummary(dtype, form.minimum, form.maximum, *errors))
    return summaries

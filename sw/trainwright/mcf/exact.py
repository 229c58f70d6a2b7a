"""Between expansions and exact numbers: fractions, decimals, text, other component types."""

import math
from collections.abc import Sequence
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor

from trainwright.mcf.constants import components_of
from trainwright.mcf.errorfree import PRECISION, two_sum
from trainwright.mcf.expansion import distilled, finished, stacked, terms_of

Exact = int | float | Fraction | Decimal | str


def decimal_digits(dtype: torch.dtype, nc: int) -> int:
    """Significant decimal digits that tell any two numbers of nc full components apart."""
    return math.ceil(PRECISION[dtype] * nc * math.log10(2)) + 1


def fraction_of(parts: Sequence[float]) -> Fraction | float:
    """The exact number that components make; a float where it is not finite."""
    if not all(map(math.isfinite, parts)):
        return parts[0] if not math.isfinite(parts[0]) else math.nan
    return sum(map(Fraction, parts), Fraction(0))


def decimal_of(parts: Sequence[float], digits: int) -> Decimal:
    """The number rounded to so many significant decimal digits."""
    value = fraction_of(parts)
    if isinstance(value, float):
        return Decimal(value)
    if value == 0:
        return Decimal(math.copysign(0.0, parts[0])) if parts else Decimal(0)
    context = Context(prec=digits)
    return context.divide(Decimal(value.numerator), Decimal(value.denominator))


def mapped(x: Tensor, function: Any) -> Any:
    """``function`` of the components (a list of floats) of every number, as nested lists."""

    def walk(rows: Any, depth: int) -> Any:
        return function(rows) if depth == 0 else [walk(row, depth - 1) for row in rows]

    return walk(x.detach().to(torch.float64).tolist(), x.dim() - 1)


def components_from(data: Any, dtype: torch.dtype, nc: int, device: Any = None) -> Tensor:
    """Components (..., nc) of numbers, correctly rounded: of a tensor, or of nested sequences.

    Sequences may hold ints, floats, ``Fraction``, ``Decimal`` and decimal text, all taken exactly.
    Raises ``ValueError`` for ragged or unreadable ones.
    """
    if isinstance(data, Tensor):
        return _of_tensor(data.detach(), dtype, nc).to(device or data.device)
    if hasattr(data, "__array__"):
        return _of_tensor(torch.as_tensor(data), dtype, nc).to(device or "cpu")
    shape = _shape(data)
    flat: list[list[float]] = []
    _collect(data, shape, flat, dtype, nc)
    made = torch.tensor(flat, dtype=torch.float64).reshape(*shape, nc)
    return stacked(terms_of(made.to(dtype))).to(device or "cpu")


def _shape(data: Any) -> tuple[int, ...]:
    if isinstance(data, Sequence) and not isinstance(data, str):
        return (len(data), *(_shape(data[0]) if data else ()))
    return ()


def _collect(
    data: Any, shape: tuple[int, ...], flat: list[list[float]], dtype: torch.dtype, nc: int
) -> None:
    if not shape:
        flat.append(_components(data, dtype, nc))
        return
    if not isinstance(data, Sequence) or isinstance(data, str) or len(data) != shape[0]:
        raise ValueError(f"expected a sequence of {shape[0]} at this depth, not {data!r}")
    for item in data:
        _collect(item, shape[1:], flat, dtype, nc)


def _components(value: Any, dtype: torch.dtype, nc: int) -> list[float]:
    if isinstance(value, float) and (value == 0 or not math.isfinite(value)):
        return [value] + [0.0] * (nc - 1)
    try:
        exact = Fraction(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"a number or decimal text is needed, not {value!r}") from error
    return components_of(exact, dtype, nc)


def _of_tensor(data: Tensor, dtype: torch.dtype, nc: int) -> Tensor:
    """Numbers of any real type (...) as components: integers of 64 bits are taken exactly."""
    if not data.dtype.is_floating_point:
        if data.dtype.is_complex:
            raise ValueError(f"real numbers are needed, not {data.dtype}")
        high = (data.to(torch.int64) >> 32).to(torch.float64) * 2.0**32
        low = (data.to(torch.int64) & 0xFFFFFFFF).to(torch.float64)
        return converted(stacked(two_sum(high, low)), dtype, nc)
    return converted(data.unsqueeze(-1), dtype, nc)


def converted(x: Tensor, dtype: torch.dtype, nc: int) -> Tensor:
    """Components of one type as nc components of another, cut to nearest where they are fewer."""
    wide = x.dtype if PRECISION[x.dtype] >= PRECISION[dtype] else dtype
    if (x.dtype, dtype) in ((torch.float16, torch.bfloat16), (torch.bfloat16, torch.float16)):
        wide = torch.float32
    rest = distilled(terms_of(x.to(wide)), x.shape[-1], x.shape[-1])
    if wide is dtype:
        zero = torch.zeros_like(rest[0])
        return finished([*rest, *[zero] * nc][:nc], x[..., 0].to(dtype))
    terms = []
    for _ in range(nc):
        kept = rest[0].to(dtype)
        terms.append(kept)
        rest[0] = rest[0] - kept.to(wide)
        for k in range(len(rest) - 2, -1, -1):
            rest[k], rest[k + 1] = two_sum(rest[k], rest[k + 1])
    return finished(terms, terms[0])

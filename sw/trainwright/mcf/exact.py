"""Conversions between expansions and exact numbers: fractions, decimals, text, component types."""

import math
from collections.abc import Sequence
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor

from trainwright.mcf.constants import components_of
from trainwright.mcf.errorfree import PRECISION, two_sum
from trainwright.mcf.expansion import cut, distilled, finished, stacked, terms_of
from trainwright.support.arguments import plain, plain_array

Exact = int | float | Fraction | Decimal | str


def decimal_digits(dtype: torch.dtype, nc: int) -> int:
    """Return the decimal digits that distinguish any two numbers of nc full components."""
    return math.ceil(PRECISION[dtype] * nc * math.log10(2)) + 1


def fraction_of(parts: Sequence[float]) -> Fraction | float:
    """Return the exact number of some components; a float where it is not finite."""
    if not all(map(math.isfinite, parts)):
        return parts[0] if not math.isfinite(parts[0]) else math.nan
    return sum(map(Fraction, parts), Fraction(0))


def decimal_of(parts: Sequence[float], digits: int) -> Decimal:
    """Round the number to ``digits`` significant decimal digits."""
    value = fraction_of(parts)
    if isinstance(value, float):
        return Decimal(value)
    if value == 0:
        return Decimal(math.copysign(0.0, parts[0])) if parts else Decimal(0)
    context = Context(prec=digits)
    return context.divide(Decimal(value.numerator), Decimal(value.denominator))


def mapped(x: Tensor, function: Any) -> Any:
    """Apply ``function`` to the components (a list of floats) of every number, in nested lists."""

    def walk(rows: Any, depth: int) -> Any:
        return function(rows) if depth == 0 else [walk(row, depth - 1) for row in rows]

    return walk(x.detach().to(torch.float64).tolist(), x.dim() - 1)


def components_from(data: Any, dtype: torch.dtype, nc: int, device: Any = None) -> Tensor:
    """Round numbers of a tensor or nested sequences correctly to components (..., nc).

    Sequences may hold ints, floats, ``Fraction``, ``Decimal`` and decimal text, all taken exactly.
    Raises ``ValueError`` for ragged or unreadable sequences.
    """
    if isinstance(data, Tensor):
        return _tensor_components(data.detach(), dtype, nc).to(
            data.device if device is None else device
        )
    device = "cpu" if device is None else device
    data = plain_array(plain(data))
    if hasattr(data, "__array__") and not hasattr(data, "as_integer_ratio"):
        return _tensor_components(torch.as_tensor(data), dtype, nc).to(device)
    shape = _shape(data)
    flat: list[list[float]] = []
    _collect(data, shape, flat, dtype, nc)
    flat_components = torch.tensor(flat, dtype=torch.float64).reshape(*shape, nc)
    return stacked(terms_of(flat_components.to(dtype))).to(device)


def _shape(data: Any) -> tuple[int, ...]:
    if isinstance(data, Sequence) and not isinstance(data, str | bytes | bytearray):
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
    value = plain(value)
    if isinstance(value, float) and (value == 0 or not math.isfinite(value)):
        return [value] + [0.0] * (nc - 1)
    try:
        # Fraction knows no long double, which is exact as a ratio, too.
        ratio = getattr(value, "as_integer_ratio", None)
        exact = Fraction(*ratio()) if ratio else Fraction(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"a number or decimal text is needed, not {value!r}") from error
    parts = components_of(exact, dtype, nc)
    return parts if exact or not str(value).lstrip().startswith("-") else [-0.0, *parts[1:]]


def _tensor_components(data: Tensor, dtype: torch.dtype, nc: int) -> Tensor:
    """Convert numbers (...) of any real type to components; 64-bit integers stay exact."""
    if not data.dtype.is_floating_point:
        if data.dtype.is_complex:
            raise ValueError(f"real numbers are needed, not {data.dtype}")
        high = data.to(torch.int64) >> 32
        high = high & 0xFFFFFFFF if data.dtype is torch.uint64 else high
        high = high.to(torch.float64) * 2.0**32
        low = (data.to(torch.int64) & 0xFFFFFFFF).to(torch.float64)
        return converted(stacked(two_sum(high, low)), dtype, nc)
    return converted(data.unsqueeze(-1), dtype, nc)


def converted(x: Tensor, dtype: torch.dtype, nc: int) -> Tensor:
    """Convert components to nc components of another type, the last one rounded to nearest."""
    wide = x.dtype if PRECISION[x.dtype] >= PRECISION[dtype] else dtype
    if (x.dtype, dtype) in ((torch.float16, torch.bfloat16), (torch.bfloat16, torch.float16)):
        wide = torch.float32
    parts = distilled(terms_of(x.to(wide)), x.shape[-1], x.shape[-1])
    if wide is dtype:
        zero = torch.zeros_like(parts[0])
        return finished([*parts, *[zero] * nc][:nc], x[..., 0].to(dtype))
    terms = cut(parts, dtype, nc)
    # The passes make NaN of infinities and lose signs of zeros: the leading component has both.
    lead = x[..., 0]
    kept = torch.isfinite(lead) & (terms[0] != 0)
    return finished(terms, torch.where(kept, terms[0], lead.to(dtype)))

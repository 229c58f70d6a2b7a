"""Accuracy of every operator in bits: the worst of many random operands, against mpmath."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mpmath
import torch
from torch import Tensor

from trainwright import mcf
from trainwright.mcf.exact import mapped
from trainwright.support.finding import Progress, silent, tracked

_PRECISION = 600
"""Bits of the reference, which holds sums and products of three components exactly."""
LENGTH = 64
"""Terms of sums and matrix products."""
_ROW = 8
"""Numbers per softmax."""


@dataclass(frozen=True)
class Accuracy:
    """Worst measured accuracy of one operator."""

    operator: str
    nc: int
    bits: float
    """-log2 of the largest error."""
    relative_to: str
    """Quantity that errors are divided by."""
    count: int
    """Results compared."""


@dataclass(frozen=True)
class _Operator:
    """Operator on rows: ``function`` takes tensors (rows, ...), ``exact`` one row of numbers."""

    function: Callable[..., Any]
    exact: Callable[..., Any]
    """Exact result for lists of numbers, or for single numbers if a row has one."""
    operands: tuple["_Drawn", ...]
    relative_to: str = "the result"
    scale: Callable[..., Any] | None = None
    """Divisor of errors, computed like ``exact``; default: the result."""
    width: int = 1
    """Numbers per row."""
    elementwise: bool = True
    """Whether a row has a single result."""


@dataclass(frozen=True)
class _Drawn:
    """Distribution of an operand: sign times 2^uniform, with random lower components."""

    lowest: float = -20
    highest: float = 20
    """Largest exponent of two; ``lowest`` is the smallest."""
    signed: bool = True
    plain: bool = False
    """Whether the operand has one component."""
    cancelling: bool = False
    """Whether half of the rows nearly cancel the previous operand."""


def drawn(
    kind: _Drawn, shape: tuple[int, ...], nc: int, draw: torch.Generator, before: Tensor | None
) -> Tensor:
    """Draw normalised float32 components (*shape, nc)."""
    exponent = torch.rand(shape, generator=draw, dtype=torch.float64)
    lead = torch.exp2(kind.lowest + exponent * (kind.highest - kind.lowest))
    if kind.signed:
        lead = lead * torch.where(torch.rand(shape, generator=draw) < 0.5, -1, 1)
    count = 1 if kind.plain else nc
    below = 2.0 ** (-24.0 * torch.arange(count, dtype=torch.float64))
    noise = torch.rand(*shape, count, generator=draw, dtype=torch.float64) * 2 - 1
    noise[..., 0] = 1
    parts = (lead.unsqueeze(-1) * noise * below).float()
    if kind.cancelling and before is not None:
        half = shape[0] // 2
        shift = torch.exp2(-40 * torch.rand(half, *shape[1:], generator=draw)).unsqueeze(-1)
        near = -before[:half, ..., :count]
        parts[:half] = near + (near[..., :1] * shift) * (torch.arange(count) == count - 1)
    return mcf.MCTensor.from_components(parts).components


_ANY, _PLAIN = _Drawn(), _Drawn(plain=True)
_CLOSE = _Drawn(cancelling=True)
_POSITIVE = _Drawn(-30, 30, signed=False)
_SPREAD = "the sum of magnitudes"


def _unary(function: Any, exact: Any, kind: _Drawn = _ANY) -> _Operator:
    return _Operator(function, exact, (kind,))


def _magnitudes(a: list[Any], b: list[Any]) -> Any:
    return mpmath.fdot(map(abs, a), map(abs, b))


def _products(x: Any, y: Any) -> Any:
    """Multiply rows (rows, k) pairwise to dot products (rows)."""
    return torch.matmul(x.unsqueeze(-2), y.unsqueeze(-1))[:, 0, 0]


def _product(*kinds: _Drawn) -> _Operator:
    return _Operator(_products, mpmath.fdot, kinds, "the sum of |a b|", _magnitudes, LENGTH)


def _softmax(x: list[Any]) -> list[Any]:
    powers = [mpmath.exp(each) for each in x]
    whole = mpmath.fsum(powers)
    return [power / whole for power in powers]


def _spread(x: list[Any]) -> list[Any]:
    return [max(x) - min(x) + mpmath.log(len(x))] * len(x)


def _gelu(x: Any) -> Any:
    return x * mpmath.erfc(-x / mpmath.sqrt(2)) / 2


OPERATORS: dict[str, _Operator] = {
    "add": _Operator(torch.add, lambda x, y: x + y, (_ANY, _CLOSE)),
    "add plain": _Operator(torch.add, lambda x, y: x + y, (_ANY, _PLAIN)),
    "sub": _Operator(torch.sub, lambda x, y: x - y, (_ANY, _ANY)),
    "scaling": _Operator(torch.mul, lambda x, y: x * y, (_ANY, _PLAIN)),
    "multiply": _Operator(torch.mul, lambda x, y: x * y, (_ANY, _ANY)),
    "divide": _Operator(torch.div, lambda x, y: x / y, (_ANY, _ANY)),
    "divide by plain": _Operator(torch.div, lambda x, y: x / y, (_ANY, _PLAIN)),
    "square": _unary(torch.square, lambda x: x * x),
    "sqrt": _unary(torch.sqrt, mpmath.sqrt, _POSITIVE),
    "exp": _unary(torch.exp, mpmath.exp, _Drawn(-30, 5)),
    "log": _unary(torch.log, mpmath.log, _POSITIVE),
    "tanh": _unary(torch.tanh, mpmath.tanh, _Drawn(-30, 5)),
    "sigmoid": _unary(torch.sigmoid, lambda x: 1 / (1 + mpmath.exp(-x)), _Drawn(-30, 5)),
    "gelu": _unary(torch.nn.functional.gelu, _gelu, _Drawn(-30, 2.5)),
    "softmax": _Operator(lambda x: torch.softmax(x, -1), _softmax, (_Drawn(-10, 3),), width=_ROW,
                         elementwise=False),
    "log_softmax": _Operator(lambda x: torch.log_softmax(x, -1),
                             lambda x: [mpmath.log(p) for p in _softmax(x)], (_Drawn(-10, 3),),
                             "spread and log n", _spread, _ROW, elementwise=False),
    "sum": _Operator(lambda x: x.sum(-1), mpmath.fsum, (_ANY,), _SPREAD,
                     lambda x: mpmath.fsum(map(abs, x)), LENGTH),
    "mean": _Operator(lambda x: x.mean(-1), lambda x: mpmath.fsum(x) / len(x), (_ANY,), _SPREAD,
                      lambda x: mpmath.fsum(map(abs, x)) / len(x), LENGTH),
    "matmul plain": _product(_ANY, _PLAIN),
    "matmul": _product(_ANY, _CLOSE),
}  # fmt: skip
"""Operators by name; dot, mv, mm, bmm and addmm are matrix products like matmul."""


def run(
    count: int = 2000,
    components: tuple[int, ...] = (1, 2, 3),
    only: tuple[str, ...] = (),
    *,
    progress: Progress = silent,
) -> list[Accuracy]:
    """Measure the worst of ``count`` rows for every operator on float32 components."""
    chosen = [name for name in OPERATORS if not only or name in only]
    rows = []
    for name in tracked(chosen, progress):
        rows += [measured(name, nc, count) for nc in components]
    return rows


def measured(name: str, nc: int, count: int, seed: int = 0) -> Accuracy:
    """Measure one operator on ``count`` rows."""
    operator = OPERATORS[name]
    draw = torch.Generator().manual_seed(seed)
    shape = (count, operator.width) if operator.width > 1 else (count,)
    parts: list[Tensor] = []
    for kind in operator.operands:
        parts.append(drawn(kind, shape, nc, draw, parts[-1] if parts else None))
    operands = [
        part[..., 0] if kind.plain else mcf.MCTensor.from_components(part)
        for part, kind in zip(parts, operator.operands, strict=True)
    ]
    results = _numbers(operator.function(*operands).components)
    worst = mpmath.mpf(0)
    with mpmath.workprec(_PRECISION):
        rows = [_numbers(part) for part in parts]
        for at, row in enumerate(zip(*rows, strict=True)):
            wanted = operator.exact(*row)
            scale = operator.scale(*row) if operator.scale else wanted
            got = results[at]
            if operator.elementwise:
                wanted, scale, got = [wanted], [scale], [got]
            for g, w, s in zip(got, wanted, scale, strict=True):
                if g != w:
                    worst = max(worst, abs((g - w) / s))
        bits = float(-mpmath.log(worst, 2)) if worst else math.inf
    return Accuracy(name, nc, bits, operator.relative_to, len(results))


def _numbers(components: Tensor) -> Any:
    """Sum components exactly to mpmath numbers, in nested lists."""
    with mpmath.workprec(_PRECISION):
        return mapped(components, mpmath.fsum)

"""Times and accuracy of operations (tables 4 and 5): torch, ours, the published library."""

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any

import torch
from torch import Tensor

from trainwright import mcf
from trainwright.mcf.experiments.peer import Published
from trainwright.support.finding import Progress, silent, tracked

MULTI, PLAIN = "mc", "plain"
OPERATIONS: tuple[tuple[str, str, tuple[tuple[str, tuple[int, ...]], ...]], ...] = (
    ("add", "add", ((MULTI, (1000, 1000)), (MULTI, (1000, 1000)))),
    ("scaling", "mul", ((MULTI, (1000, 1000)), (PLAIN, (1000, 1000)))),
    ("multiply", "mul", ((MULTI, (1000, 1000)), (MULTI, (1000, 1000)))),
    ("divide", "div", ((MULTI, (1000, 1000)), (MULTI, (1000, 1000)))),
    ("dot", "dot", ((MULTI, (5000,)), (PLAIN, (5000,)))),
    ("mv", "mv", ((MULTI, (5000, 500)), (PLAIN, (500,)))),
    ("matmul", "matmul", ((MULTI, (500, 200)), (PLAIN, (200, 50)))),
    ("addmm", "addmm", ((MULTI, (500, 100)), (MULTI, (500, 200)), (PLAIN, (200, 100)))),
    ("bmm", "bmm", ((MULTI, (16, 500, 200)), (PLAIN, (16, 200, 50)))),
)
"""Name, torch function and operands of each operation, in the paper's sizes.

The paper's addmm adds a vector, where the published code fails; here it adds a matrix.
"""
_SAMPLE = 2000


@dataclass(frozen=True)
class OperationTiming:
    """Time and accuracy of one operation in one implementation."""

    operation: str
    way: str
    """``float32``, ``float64`` (torch's own), ``mcf nc=1`` to ``nc=3``, ``published``."""
    seconds: float
    """CPU seconds, median of the repetitions."""
    speedup: float | None
    """Published library's seconds divided by these, at the same nc."""
    times_float32: float
    """Seconds divided by torch's in float32."""
    bits: float | None
    """-log2 of the largest relative error in a sample, taking the components as exact.

    Errors of matrix products are relative to the sum of |a b|.
    """


def drawn(shape: tuple[int, ...], nc: int, generator: torch.Generator) -> Tensor:
    """Draw float32 components (*shape, nc), standard normal, each 2^-25 of its predecessor."""
    scale = 2.0 ** (-25.0 * torch.arange(nc)).reshape(nc, *[1] * len(shape))
    return (torch.randn(nc, *shape, generator=generator) * scale).movedim(0, -1)


def median_seconds(call: Callable[[], object], repeat: int, least: float = 0.1) -> float:
    """Return the median CPU seconds of a call; short calls are repeated per measurement."""
    call()
    begin = time.process_time()
    call()
    once = max(time.process_time() - begin, 1e-6)
    inner = max(1, math.ceil(least / once))
    taken = []
    for _ in range(repeat):
        begin = time.process_time()
        for _ in range(inner):
            call()
        taken.append((time.process_time() - begin) / inner)
    return statistics.median(taken)


def run(
    repeat: int = 5,
    peer: Published | None = None,
    only: tuple[str, ...] = (),
    *,
    progress: Progress = silent,
) -> list[OperationTiming]:
    """Measure every operation in every implementation; the peer at nc = 2."""
    rows: list[OperationTiming] = []
    chosen = [each for each in OPERATIONS if not only or each[0] in only]
    for name, function, kinds in tracked(chosen, progress):
        rows += _operation(name, function, kinds, repeat, peer)
    return rows


@dataclass(frozen=True)
class LargeTiming:
    """Time of a large product, by torch's own in the components' type."""

    operation: str
    """``matmul`` (n x n by n x n) or ``mv`` (n x n by n)."""
    dtype: str
    nc: int
    n: int
    seconds: float
    """CPU seconds of the median call."""
    ratio: float
    """Median of seconds by torch's, each pair measured one after the other."""


LARGE = (("float32", 3), ("float64", 2))
"""Component types and counts of large products: no float64 holds their digits."""


def large(
    sizes: tuple[int, ...],
    repeat: int = 5,
    *,
    progress: Progress = silent,
) -> list[LargeTiming]:
    """Measure square products and products with a vector, against torch's in the same run."""
    cases = [(name, *kind, n) for n in sizes for kind in LARGE for name in ("matmul", "mv")]
    return [_large(*case, repeat) for case in tracked(cases, progress)]


@dataclass(frozen=True)
class FusedTiming:
    """Time of an expression in one pass over memory, by that of its operations."""

    expression: str
    dtype: str
    nc: int
    elements: int
    seconds: float
    """CPU seconds of the median call of the fused function."""
    ratio: float
    """Median of the seconds of separate operations by these, each pair measured together."""


EXPRESSIONS: dict[str, Callable[..., Any]] = {
    "a * b + c": lambda a, b, c: a * b + c,
    "(a * b + c) * a - b * c": lambda a, b, c: (a * b + c) * a - b * c,
}
"""Expressions that are measured fused, by their text."""


def fused(elements: int = 1_000_000, repeat: int = 5) -> list[FusedTiming]:
    """Measure expressions by ``mcf.fused`` and operation by operation."""
    rows = []
    for dtype, nc in (("float32", 2), *LARGE):
        generator = torch.Generator().manual_seed(0)
        operands = [
            mcf.MCTensor.from_components(
                drawn((elements,), nc, generator).to(getattr(torch, dtype))
            )
            for _ in range(3)
        ]
        for text, function in EXPRESSIONS.items():
            calls = function, mcf.fused(function)
            pairs = [
                [median_seconds(partial(call, *operands), 1, least=0.02) for call in calls]
                for _ in range(repeat)
            ]
            seconds = statistics.median(together for _, together in pairs)
            ratio = statistics.median(apart / together for apart, together in pairs)
            rows.append(FusedTiming(text, dtype, nc, elements, seconds, ratio))
    return rows


def _large(name: str, dtype: str, nc: int, n: int, repeat: int) -> LargeTiming:
    generator, kind = torch.Generator().manual_seed(0), getattr(torch, dtype)
    digits = 25 if kind is torch.float32 else 54
    ours: list[Any] = []
    for shape in ((n, n), (n, n) if name == "matmul" else (n,)):
        scale = 2.0 ** (-digits * torch.arange(nc, dtype=torch.float64))
        parts = torch.randn(nc, *shape, generator=generator, dtype=torch.float64)
        parts = (parts.movedim(0, -1) * scale).to(kind).movedim(-1, 0).contiguous()
        ours.append(mcf.MCTensor.from_components(parts.movedim(0, -1)))
    plain, call = [x.fc.contiguous() for x in ours], getattr(torch, name)
    pairs = []
    for _ in range(repeat):
        base = median_seconds(lambda: call(*plain), 1, least=0.02)
        pairs.append((median_seconds(lambda: call(*ours), 1, least=0.02), base))
    seconds = statistics.median(mine for mine, _ in pairs)
    ratio = statistics.median(mine / base for mine, base in pairs)
    return LargeTiming(name, dtype, nc, n, seconds, ratio)


def _operation(
    name: str, function: str, kinds: Any, repeat: int, peer: Published | None
) -> list[OperationTiming]:
    generator = torch.Generator().manual_seed(0)
    parts = [drawn(shape, 3 if kind == MULTI else 1, generator) for kind, shape in kinds]
    call = getattr(torch, function)
    plain = [p[..., 0].contiguous() for p in parts]
    base = median_seconds(lambda: call(*plain), repeat)
    wide = [p.to(torch.float64) for p in plain]
    rows = [
        OperationTiming(name, "float32", base, None, 1.0, _bits(function, plain, call(*plain))),
        OperationTiming(name, "float64", (s := median_seconds(lambda: call(*wide), repeat)), None,
            s / base, _bits(function, wide, call(*wide))),
    ]  # fmt: skip
    for nc in (1, 2, 3):
        ours: list[Any] = [
            mcf.MCTensor.from_components(p[..., :nc]) if kind == MULTI else p[..., 0].contiguous()
            for p, (kind, _) in zip(parts, kinds, strict=True)
        ]
        seconds = median_seconds(lambda ours=ours: call(*ours), repeat)
        peer_seconds = None
        if nc == 2 and peer is not None:
            peer_seconds = _published(name, function, ours, repeat, peer, base, rows)
        bits = _bits(function, ours, call(*ours))
        speedup = peer_seconds / seconds if peer_seconds else None
        rows.append(OperationTiming(name, f"mcf nc={nc}", seconds, speedup, seconds / base, bits))
    return rows


def _published(
    name: str, function: str, ours: list[Any], repeat: int, peer: Published, base: float,
    rows: list[OperationTiming],
) -> float | None:  # fmt: skip
    """Measure the published library, add its row, and return its seconds."""
    peer_operands = [peer.tensor(x.components) if isinstance(x, mcf.MCTensor) else x for x in ours]
    call = peer.calls(function, tuple(peer_operands))
    if call is None:
        return None
    seconds = median_seconds(call, min(repeat, 3), least=0)
    bits = _bits(function, ours, call(), peer)
    rows.append(OperationTiming(name, peer.name, seconds, 1.0, seconds / base, bits))
    return seconds


def _bits(
    function: str, operands: list[Any], result: Any, peer: Published | None = None
) -> float | None:
    """Compare a sample of the result's elements with rational numbers."""
    components = [
        x.components if isinstance(x, mcf.MCTensor) else x.unsqueeze(-1) for x in operands
    ]
    if isinstance(result, mcf.MCTensor):
        results = result.components
    else:
        results = peer.components(result) if peer else result
        if results.dim() == len(_shape(function, operands)):
            results = results.unsqueeze(-1)
    shape = results.shape[:-1]
    count = math.prod(shape)
    places = torch.randperm(count, generator=torch.Generator().manual_seed(1))[:_SAMPLE].tolist()
    if function in ("dot", "mv", "matmul", "addmm", "bmm"):
        places = places[:24]
    worst = Fraction(0)
    for place in places:
        at = torch.unravel_index(torch.tensor(place), shape)
        at = tuple(int(i) for i in at)
        want, scale = _wanted(function, components, at)
        worst = max(worst, abs(_number(results[at]) - want) / scale if scale else Fraction(0))
    return -math.log2(worst) if worst else None


def _shape(function: str, operands: list[Any]) -> tuple[int, ...]:
    shapes = [tuple(x.shape) for x in operands]
    if function in ("dot",):
        return ()
    if function == "mv":
        return shapes[0][:1]
    return shapes[0]


def _number(parts: Tensor) -> Fraction:
    return sum(map(Fraction, parts.to(torch.float64).tolist()), Fraction(0))


def _wanted(
    function: str, components: list[Tensor], at: tuple[int, ...]
) -> tuple[Fraction, Fraction]:
    """Return the exact result at a place, and the divisor of its error."""
    if function in ("add", "mul", "div"):
        a, b = (_number(x[at]) for x in components)
        value = a + b if function == "add" else a * b if function == "mul" else a / b
        return value, abs(value)
    start, rest = Fraction(0), components
    if function == "addmm":
        start, rest = _number(components[0][at]), components[1:]
    left = rest[0][(*at[:-2], at[-2])] if function in ("matmul", "addmm", "bmm") else rest[0]
    right = (
        rest[1][(*at[:-2], slice(None), at[-1])]
        if function in ("matmul", "addmm", "bmm")
        else rest[1]
    )
    if function == "mv":
        left = rest[0][at]
    products = [_number(a) * _number(b) for a, b in zip(left, right, strict=True)]
    return start + sum(products), abs(start) + sum(map(abs, products))

"""Tables 2 and 3 of the draft: the reach of gamma, and dot products in half precision."""

from dataclasses import dataclass

import torch

from trainwright.precision import dot_mixed, dot_rounded, get_format
from trainwright.qr import bounds
from trainwright.support.finding import Progress, silent

PRINTED = {"normal": (1.627e-4, 1.640e-4, 2.838e-3), "uniform": (2.599e-3, 1.854e-3, 1.399e-2)}
"""Mean, standard deviation and maximum in the draft's Table 3."""

_CHUNK = 2048
"""Vectors per step, few enough that their data stays in the cache."""


@dataclass(frozen=True)
class Table2Row:
    """Largest k with gamma_k <= 1."""

    format: str
    unit: float
    most: int
    most_with_epsilon: int
    """k with the machine epsilon 2u instead of u: the figure that the draft prints."""


def table_2() -> list[Table2Row]:
    """Compute the rows of fp16, fp32 and fp64."""
    units = {name: get_format(name).unit for name in ("fp16", "fp32", "fp64")}
    return [
        Table2Row(name, u, bounds.most_operations(u), bounds.most_operations(2 * u))
        for name, u in units.items()
    ]


@dataclass(frozen=True, eq=False)
class DotErrors:
    """|x^T y - fl(x^T y)| / |x|^T |y| of many pairs of vectors; float64 (vectors,)."""

    distribution: str
    length: int
    every: torch.Tensor
    """Errors with every operation rounded to fp16 (Table 3)."""
    mixed: torch.Tensor
    """Errors under Assumption 2.4 with fp16 and fp32."""


def draw(distribution: str, shape: tuple[int, int], generator: torch.Generator) -> torch.Tensor:
    """Draw float16 numbers: ``normal`` N(0,1) or ``uniform`` on (0,1)."""
    if distribution == "normal":
        return torch.randn(shape, generator=generator).to(torch.float16)
    if distribution == "uniform":
        return torch.rand(shape, generator=generator).to(torch.float16)
    raise ValueError(f"distribution must be normal or uniform, not {distribution!r}")


def dot_errors(
    distribution: str,
    vectors: int = 2_000_000,
    length: int = 512,
    seed: int = 0,
    progress: Progress = silent,
) -> DotErrors:
    """Measure the errors of ``vectors`` dot products of ``length`` elements."""
    generator = torch.Generator().manual_seed(seed)
    every, mixed = torch.empty(vectors).double(), torch.empty(vectors).double()
    for begin in range(0, vectors, _CHUNK):
        count = min(_CHUNK, vectors - begin)
        # Vectors are columns: step k of all sums then reads contiguous memory.
        x, y = (draw(distribution, (length, count), generator) for _ in "xy")
        wide_x, wide_y = x.double(), y.double()
        exact = (wide_x * wide_y).sum(0)
        size = (wide_x.abs_() * wide_y.abs_()).sum(0)
        place = slice(begin, begin + count)
        every[place] = (dot_rounded(x.mT, y.mT).double() - exact).abs() / size
        mixed[place] = (dot_mixed(x.mT, y.mT).double() - exact).abs() / size
        progress(begin + count, vectors)
    return DotErrors(distribution, length, every, mixed)


@dataclass(frozen=True)
class Table3Row:
    """Statistics of one distribution in one arithmetic, with the bounds that apply."""

    distribution: str
    arithmetic: str
    mean: float
    deviation: float
    maximum: float
    printed: tuple[float, float, float] | None
    bound: float
    probable: float
    """Bound that holds with probability 0.99 for one dot product."""


def table_3(errors: DotErrors) -> list[Table3Row]:
    """Compute the rows of one distribution."""
    u, wide = get_format("fp16").unit, get_format("fp32").unit
    m = errors.length
    probable = bounds.dot_bound_probabilistic(m, wide) + u

    def row(arithmetic: str, values: torch.Tensor, bound: float, likely: float) -> Table3Row:
        printed = PRINTED[errors.distribution] if arithmetic == "fp16" and m == 512 else None
        average, spread, most = map(float, (values.mean(), values.std(), values.max()))
        measured = average, spread, most, printed, bound, likely
        return Table3Row(errors.distribution, arithmetic, *measured)

    return [
        row("fp16", errors.every, bounds.dot_bound(m, u), bounds.dot_bound_probabilistic(m, u)),
        row("fp16/fp32", errors.mixed, bounds.dot_bound_mixed(m, u, wide), probable),
    ]

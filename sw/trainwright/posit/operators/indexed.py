"""Sums of values that share a place: embeddings, gradients of indexing, and scatter_add."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from trainwright.posit import grid, products
from trainwright.posit.accumulation import get_accumulation
from trainwright.posit.format import PositFormat
from trainwright.posit.operators.arithmetic import scaled
from trainwright.posit.operators.registry import (
    UncoveredError,
    covers,
    number,
    operand,
    operator,
    writes,
)
from trainwright.posit.operators.sums import product_along, products_along, renorm

Reducing = Callable[[Tensor, PositFormat], Tensor]
"""Function that reduces terms (places, length, D), missing ones being 0, to (places, D)."""


def _sum(terms: Tensor, fmt: PositFormat) -> Tensor:
    return products.total(terms, [1], fmt, get_accumulation())


def by_place(
    rows: Tensor,
    places: Tensor,
    count: int,
    fmt: PositFormat,
    reduce: Reducing = _sum,
    neutral: float = 0.0,
) -> Tensor:
    """Sum rows (E, D) that share one of ``count`` places (E), in their order: (count, D).

    ``reduce`` replaces the sum, with ``neutral`` for missing terms; places without rows are 0.
    Places are handled by the number of their rows, padded to a power of two with zeros: memory
    stays below twice the rows, however often a place occurs.
    """
    sums = rows.new_zeros(count, rows.shape[1])
    order = places.argsort(stable=True)
    filled, numbers = torch.unique_consecutive(places[order], return_counts=True)
    first = numbers.cumsum(0) - numbers
    length = 1
    while filled.numel():
        fits = numbers <= length
        steps = torch.arange(length, device=rows.device)
        inside = (steps < numbers[fits].unsqueeze(1)).unsqueeze(2)
        which = (first[fits].unsqueeze(1) + steps).clamp(max=len(rows) - 1)
        terms = torch.where(inside, rows[order[which]], neutral)  # (places, length, D)
        sums[filled[fits]] = terms.squeeze(1) if length == 1 else reduce(terms, fmt)
        filled, numbers, first = filled[~fits], numbers[~fits], first[~fits]
        length *= 2
    return sums


def added(x: Tensor, places: Tensor, values: Tensor, fmt: PositFormat, *how: Any) -> Tensor:
    """Add values to the elements of x at places of its flat form; sums start from x."""
    own = torch.arange(x.numel(), device=x.device)
    rows = torch.cat([x.flatten(), values.flatten()]).unsqueeze(1)
    where = torch.cat([own, places.flatten()])
    return by_place(rows, where, x.numel(), fmt, *how).reshape(x.shape)


REDUCTIONS: dict[str, tuple[Reducing, float]] = {
    "sum": (_sum, 0.0),
    "mean": (_sum, 0.0),
    "prod": (lambda terms, fmt: product_along(fmt, terms, 1), 1.0),
    "amax": (lambda terms, fmt: terms.amax(1), -math.inf),
    "amin": (lambda terms, fmt: terms.amin(1), math.inf),
}
"""Reductions of values that share a place, and their neutral numbers."""


def reduced(
    x: Tensor, places: Tensor, values: Tensor, kind: str, include_self: bool, fmt: PositFormat
) -> Tensor:
    """Reduce values at places of the flat form of x, starting from x if ``include_self``.

    A mean divides the sum by the count of its terms, which is rounded first.
    """
    how = REDUCTIONS["prod" if kind == "multiply" else kind]
    counts = places.flatten().bincount(minlength=x.numel()).reshape(x.shape)
    if include_self:
        y, terms = added(x, places, values, fmt, *how), counts + 1
    else:
        y = by_place(values.flatten().unsqueeze(1), places.flatten(), x.numel(), fmt, *how)
        y, terms = torch.where(counts > 0, y.reshape(x.shape), x), counts.clamp(min=1)
    return grid.div(y, operand(terms, fmt, x), fmt) if kind == "mean" else y


def _flat_places(x: Tensor) -> Tensor:
    """Number the elements of x."""
    return torch.arange(x.numel(), device=x.device).reshape(x.shape)


@covers("index_put")
def index_put(
    fmt: PositFormat, x: Tensor, places: list[Any], values: Tensor, accumulate: bool = False
) -> Tensor:
    """Put values at places, replacing the present ones or, if ``accumulate``, adding to them."""
    values = operand(values, fmt, x)
    if not accumulate:
        return x.index_put(places, values)
    flat = _flat_places(x)[tuple(slice(None) if p is None else p for p in places)]
    return added(x, flat, values.expand(flat.shape), fmt)


@covers("scatter_add", checked=True)
def scatter_add(fmt: PositFormat, x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """Add values at places; a sum starts from x."""
    return added(x, *_scattered(x, dim, index, source), fmt)


def _scattered(x: Tensor, dim: int, index: Tensor, source: Tensor) -> tuple[Tensor, Tensor]:
    """Return places in the flat form of x, and the values that ``scatter_add`` adds there."""
    if not index.numel():  # of any number of dimensions
        return index, source.flatten()[:0]
    if not x.dim():  # torch takes lines of one element for numbers
        return torch.zeros_like(index), source.reshape(index.shape)
    region = source[tuple(slice(side) for side in index.shape)]
    sides = [slice(side) for side in index.shape]
    sides[dim] = slice(None)
    return _flat_places(x)[tuple(sides)].gather(dim, index), region


@covers("scatter_reduce.two", checked=True)
def scatter_reduce(
    fmt: PositFormat,
    x: Tensor,
    dim: int,
    index: Tensor,
    source: Tensor,
    kind: str,
    *,
    include_self: bool = True,
) -> Tensor:
    """Reduce values at places."""
    return reduced(x, *_scattered(x, dim, index, source), kind, include_self, fmt)


@covers("index_reduce", checked=True)
def index_reduce(
    fmt: PositFormat,
    x: Tensor,
    dim: int,
    index: Tensor,
    source: Tensor,
    kind: str,
    *,
    include_self: bool = True,
) -> Tensor:
    """Reduce slices at places along a dimension."""
    places = _flat_places(x).index_select(dim, index)
    return reduced(x, places, source, kind, include_self, fmt)


@covers("put")
def put(
    fmt: PositFormat, x: Tensor, index: Tensor, source: Tensor, accumulate: bool = False
) -> Tensor:
    """Put values at places of the flat form of x, or add them to the elements of x."""
    replaced = x.put(index, source)  # torch checks the places
    places = torch.where(index < 0, index + x.numel(), index)
    return added(x, places, source, fmt) if accumulate else replaced


@covers("index_add", checked=True)
def index_add(
    fmt: PositFormat, x: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: float = 1
) -> Tensor:
    """Add alpha times slices at places along a dimension; a sum starts from x."""
    return added(x, _flat_places(x).index_select(dim, index), scaled(source, alpha, fmt), fmt)


@covers("embedding_dense_backward")
def embedding_backward(
    fmt: PositFormat, g: Tensor, indices: Tensor, count: int, padding: int, by_frequency: bool
) -> Tensor:
    """Sum the gradients of each row of the table; divide by their number if ``by_frequency``."""
    places = indices.flatten()
    sums = by_place(g.reshape(places.numel(), g.shape[-1]), places, count, fmt)
    if by_frequency:
        numbers = places.bincount(minlength=count).clamp(min=1).tolist()
        counts = [number(float(n), fmt) for n in numbers]
        sums = grid.div(sums, sums.new_tensor(counts).unsqueeze(1), fmt)
    if padding >= 0:
        sums[padding] = 0
    return sums


@writes("embedding_renorm_")
def renormed(
    fmt: PositFormat, weight: Tensor, indices: Tensor, most: float, order: float
) -> Tensor:
    """Scale selected rows like ``renorm``."""
    rows = indices.unique()
    return weight.index_copy(0, rows, renorm(fmt, weight[rows], order, 0, most))


SUM, MEAN, LARGEST = range(3)
"""Modes of a bag of embeddings, as torch numbers them."""


@covers("_embedding_bag", "_embedding_bag_forward_only")
def embedding_bag(
    fmt: PositFormat,
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    by_frequency: bool = False,
    mode: int = SUM,
    sparse: bool = False,
    scales: Tensor | None = None,
    include_last: bool = False,
    padding: int = -1,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Sum the rows of each bag, take their mean or their maximum; padding is left out.

    Rows are multiplied by ``scales`` first; a mean divides by the count, which is rounded. Return
    the bag of each row and torch's buffers (counts and places of maxima), too.
    """
    plain = [weight.to(torch.float64), indices, offsets, by_frequency, mode, sparse]
    _, bags, counts, largest = operator("_embedding_bag")(
        *plain, None if scales is None else scales.double(), include_last, padding
    )
    if mode == LARGEST:
        rows = weight.gather(0, largest.long().clamp(min=0))
        return torch.where(counts.unsqueeze(1) > 0, rows, 0.0), bags, counts, largest
    bags = torch.bucketize(torch.arange(len(indices)), offsets[: len(counts)], right=True) - 1
    rows = weight[indices]
    rows = rows if scales is None else grid.mul(rows, scales.unsqueeze(1), fmt)
    kept = indices != padding
    y = by_place(rows[kept], bags[kept], len(counts), fmt)
    return (_shared(y, counts, fmt) if mode == MEAN else y), bags, counts, largest


def _shared(x: Tensor, counts: Tensor, fmt: PositFormat) -> Tensor:
    return grid.div(x, operand(counts.clamp(min=1), fmt, x).unsqueeze(1), fmt)


@covers("_embedding_bag_backward")
def embedding_bag_backward(
    fmt: PositFormat,
    g: Tensor,
    indices: Tensor,
    offsets: Tensor,
    bags: Tensor,
    counts: Tensor,
    largest: Tensor,
    count: int,
    by_frequency: bool,
    mode: int,
    sparse: bool,
    scales: Tensor | None,
    padding: int = -1,
) -> Tensor:
    """Sum the gradients of each row of the table: of all its bags, or where it was the maximum."""
    if sparse:
        raise UncoveredError("sparse gradients are not covered for posits: leave out sparse=True")
    if mode == LARGEST:
        full = (counts > 0).unsqueeze(1) & (largest >= 0)
        places = torch.arange(count * g.shape[1]).reshape(count, -1)
        at = places.gather(0, largest.long().clamp(min=0))[full]
        return by_place(g[full].unsqueeze(1), at, places.numel(), fmt).reshape(places.shape)
    rows = (_shared(g, counts, fmt) if mode == MEAN else g)[bags]
    rows = rows if scales is None else grid.mul(rows, scales.unsqueeze(1), fmt)
    kept = indices != padding
    return embedding_backward(fmt, rows[kept], indices[kept], count, -1, by_frequency)


@covers("_embedding_bag_per_sample_weights_backward")
def embedding_bag_scales_backward(
    fmt: PositFormat,
    g: Tensor,
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    bags: Tensor,
    mode: int,
    padding: int = -1,
) -> Tensor:
    """Multiply each row of the table by the gradient of its bag, by the mode; 0 for padding."""
    scales = products_along(g[bags], weight[indices], fmt)
    return torch.where(indices == padding, 0.0, scales)

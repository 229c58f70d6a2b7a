"""Sums of values that share a place: embeddings, gradients of indexing, and scatter_add."""

from typing import Any

import torch
from torch import Tensor

from trainwright.posit import grid, products
from trainwright.posit.accumulation import get_accumulation
from trainwright.posit.format import PositFormat
from trainwright.posit.operators.arithmetic import scaled
from trainwright.posit.operators.registry import covers, number, operand, operator, writes
from trainwright.posit.operators.sums import norm


def by_place(rows: Tensor, places: Tensor, count: int, fmt: PositFormat) -> Tensor:
    """Sum rows (E, D) that share one of ``count`` places (E), in their order: (count, D).

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
        terms = torch.where(inside, rows[order[which]], 0.0)  # (places, length, D)
        sums[filled[fits]] = (
            terms.squeeze(1) if length == 1 else products.total(terms, [1], fmt, get_accumulation())
        )
        filled, numbers, first = filled[~fits], numbers[~fits], first[~fits]
        length *= 2
    return sums


def added(x: Tensor, places: Tensor, values: Tensor, fmt: PositFormat) -> Tensor:
    """Add values to the elements of x at places of its flat form; sums start from x."""
    own = torch.arange(x.numel(), device=x.device)
    rows = torch.cat([x.flatten(), values.flatten()]).unsqueeze(1)
    return by_place(rows, torch.cat([own, places.flatten()]), x.numel(), fmt).reshape(x.shape)


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


@covers("scatter_add")
def scatter_add(fmt: PositFormat, x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """Add values at places; a sum starts from x."""
    region = source[tuple(slice(side) for side in index.shape)]
    sides = [slice(side) for side in index.shape]
    if x.dim():
        sides[dim] = slice(None)
    whole = _flat_places(x)[tuple(sides)]
    return added(x, whole.gather(dim, index), region, fmt)


@covers("index_add")
def index_add(
    fmt: PositFormat, x: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: float = 1
) -> Tensor:
    """Add alpha times slices at places along a dimension; a sum starts from x."""
    return added(x, _flat_places(x).index_select(dim, index), scaled(source, alpha, fmt), fmt)


@covers("embedding")
def embedding(
    fmt: PositFormat,
    weight: Tensor,
    indices: Tensor,
    padding: int = -1,
    by_frequency: bool = False,
    sparse: bool = False,
) -> Tensor:
    """Select rows of the table."""
    return operator("embedding")(weight, indices, padding, by_frequency, sparse)


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
    """Scale selected rows of norm above ``most`` by ``most`` / (norm + 1e-7)."""
    rows = indices.unique()
    norms = norm(fmt, weight[rows], order, [1], True)
    limit = operand(most, fmt, weight)
    small = operand(1e-7, fmt, weight)
    shrunk = grid.mul(weight[rows], grid.div(limit, grid.add(norms, small, fmt), fmt), fmt)
    result = weight.clone()
    result[rows] = torch.where(norms > limit, shrunk, weight[rows])
    return result

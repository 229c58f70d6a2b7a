"""Pooling over one to three dimensions, and the gradients of operators that select elements."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from trainwright.posit import grid
from trainwright.posit.format import PositError, PositFormat
from trainwright.posit.operators.indexed import by_place
from trainwright.posit.operators.registry import covers, move, operator
from trainwright.posit.operators.sums import products_along, total
from trainwright.posit.rounding import round_to
from trainwright.support.graphs import cached_constant

NOTHING = -1
"""Place of a window's element outside the image."""


@cached_constant
def strided(
    size: int, kernel: int, stride: int, padding: int, ceil_mode: bool
) -> tuple[Tensor, Tensor]:
    """Return the places of each window's elements (windows, kernel), and its size with padding.

    With ``ceil_mode`` windows may end beyond the padding, but none begins there.
    """
    room = size + 2 * padding - kernel + (stride - 1 if ceil_mode else 0)
    count = room // stride + 1
    if ceil_mode and (count - 1) * stride >= size + padding:
        count -= 1
    first = torch.arange(count).unsqueeze(1) * stride - padding
    places = first + torch.arange(kernel)
    sizes = (first.squeeze(1) + kernel).clamp(max=size + padding) - first.squeeze(1)
    return places.where((places >= 0) & (places < size), NOTHING), sizes


@cached_constant
def adaptive(size: int, count: int) -> Tensor:
    """Return the places of ``count`` windows that cover the image as evenly as they can."""
    window = torch.arange(count).unsqueeze(1)  # of integers, also for a count of 0
    first, end = window * size // max(count, 1), -(-(window + 1) * size // max(count, 1))
    longest = int((end - first).max()) if count else 0
    places = first + torch.arange(longest)
    return places.where(places < end, NOTHING)


def _inverse(places: Tensor, size: int) -> Tensor:
    """Return the windows that hold each element, in the order of the element in the window."""
    windows: list[list[int]] = [[] for _ in range(size)]
    for column in places.t().tolist():
        for window, place in enumerate(column):
            if place != NOTHING:
                windows[place].append(window)
    longest = max(1, *map(len, windows))
    return torch.tensor([row + [NOTHING] * (longest - len(row)) for row in windows])


def _gathered(x: Tensor, places: Sequence[Tensor]) -> Tensor:
    """Replace each of the last dimensions by rows of the elements at places, 0 for ``NOTHING``."""
    first = x.dim() - len(places)
    for i, index in enumerate(places):
        dim, index = first + 2 * i, index.to(x.device)
        x = x.index_select(dim, index.clamp(min=0).flatten()).unflatten(dim, index.shape)
        outside = index == NOTHING
        if bool(outside.any()):
            x = x.masked_fill(outside.reshape(*index.shape, *[1] * (x.dim() - dim - 2)), 0.0)
    return x


def _gathered_total(x: Tensor, places: Sequence[Tensor], fmt: PositFormat) -> Tensor:
    """Sum, along each of the last dimensions, the elements at the places of each row."""
    first, x = x.dim() - len(places), _gathered(x, places)
    over = [first + 2 * i + 1 for i in range(len(places))]
    if math.prod(x.shape[d] for d in over) == 1:
        return x.squeeze(over)
    return total(x, over, False, fmt)


def _weighted_total(
    x: Tensor, places: Sequence[Tensor], weights: Sequence[Tensor], fmt: PositFormat
) -> Tensor:
    """Sum the elements at the places of each row times their weights, by the mode.

    ``weights`` are like ``places``, one for each dimension; their products are rounded first.
    """
    count, first = len(places), x.dim() - len(places)
    y, w = _gathered(x, places), torch.ones((), dtype=torch.float64)
    for weight in weights:
        w = w[..., None, None] * weight
    order = [*range(0, 2 * count, 2), *range(1, 2 * count, 2)]
    w = round_to(w.permute(order).flatten(count), fmt).to(x.device)
    y = y.permute([*range(first), *(first + d for d in order)]).flatten(first + count)
    return products_along(y, w, fmt)


def _counts(sizes: Sequence[Tensor], fmt: PositFormat, like: Tensor) -> Tensor:
    """Return the products of sizes along each dimension, rounded to the format."""
    product = torch.ones((), dtype=torch.int64)
    for size in sizes:
        product = product.unsqueeze(-1) * size
    return round_to(product, fmt).to(like.device)


def _pools(kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int], dimensions: int):
    sides = [*kernel] * (dimensions if len(kernel) == 1 else 1)
    steps = ([*stride] * (dimensions if len(stride) == 1 else 1)) if stride else sides
    edges = [*padding] * (dimensions if len(padding) == 1 else 1)
    return zip(sides, steps, edges, strict=True)


class AveragePool:
    """Windows of an average pooling over images of given sizes, and the elements of each mean."""

    def __init__(
        self,
        sizes: Sequence[int],
        kernel: Sequence[int],
        stride: Sequence[int],
        padding: Sequence[int],
        ceil_mode: bool,
        count_include_pad: bool,
        divisor: int | None,
    ) -> None:
        """Take the arguments of torch's operator."""
        self.sizes = sizes
        ways = zip(sizes, _pools(kernel, stride, padding, len(sizes)), strict=True)
        windows = [strided(size, *how, ceil_mode) for size, how in ways]
        self.places = [places for places, _ in windows]
        self.counts = [count for _, count in windows]
        if not count_include_pad:
            self.counts = [(places != NOTHING).sum(1) for places in self.places]
        if divisor is not None:
            self.counts = [torch.tensor(divisor)]

    @classmethod
    def adaptive(cls, sizes: Sequence[int], counts: Sequence[int]) -> "AveragePool":
        """Make windows that cover the image as evenly as they can."""
        if 0 in sizes and 0 not in counts:
            raise PositError(f"an image of {tuple(sizes)} has no elements for adaptive pooling")
        pool = cls(sizes, [1] * len(sizes), (), [0] * len(sizes), False, True, None)
        pool.places = [adaptive(*how) for how in zip(sizes, counts, strict=True)]
        pool.counts = [(places != NOTHING).sum(1) for places in pool.places]
        return pool

    def forward(self, x: Tensor, fmt: PositFormat) -> Tensor:
        """Sum each window, row-major, and divide by the count, which is rounded first."""
        sums = _gathered_total(x, self.places, fmt)
        return grid.div(sums, _counts(self.counts, fmt, x), fmt)

    def backward(self, g: Tensor, fmt: PositFormat) -> Tensor:
        """Divide g by the count; sum the shares of all windows that hold an element."""
        share = grid.div(g, _counts(self.counts, fmt, g), fmt)
        ways = zip(self.places, self.sizes, strict=True)
        return _gathered_total(share, [_inverse(*how) for how in ways], fmt)


def _average(name: str, dimensions: int) -> None:
    @covers(name, checked=True)
    def average(
        fmt: PositFormat,
        x: Tensor,
        kernel: Sequence[int],
        stride: Sequence[int] = (),
        padding: Sequence[int] = (0,),
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor: int | None = None,
    ) -> Tensor:
        sizes = x.shape[-dimensions:]
        pool = AveragePool(sizes, kernel, stride, padding, ceil_mode, count_include_pad, divisor)
        return pool.forward(x, fmt)

    @covers(f"{name}_backward")
    def average_backward(fmt: PositFormat, g: Tensor, x: Tensor, *how: Any) -> Tensor:
        return AveragePool(x.shape[-dimensions:], *how).backward(g, fmt)

    @covers(f"_adaptive_{name}")
    def adaptive_average(fmt: PositFormat, x: Tensor, counts: Sequence[int]) -> Tensor:
        return AveragePool.adaptive(x.shape[-dimensions:], counts).forward(x, fmt)

    @covers(f"_adaptive_{name}_backward")
    def adaptive_average_backward(fmt: PositFormat, g: Tensor, x: Tensor) -> Tensor:
        pool = AveragePool.adaptive(x.shape[-dimensions:], g.shape[-dimensions:])
        return pool.backward(g, fmt)


def to_places(g: Tensor, places: Tensor, shape: torch.Size, fmt: PositFormat) -> Tensor:
    """Add g to the places of a tensor of zeros that its elements come from.

    Sums start at the last element of g: with windows that overlap, this is the order of an element
    in the window.
    """
    rows, where = g.flatten().flip(0).unsqueeze(1), places.flatten().flip(0)
    return by_place(rows, where, shape.numel(), fmt).reshape(shape)


def _largest(name: str, dimensions: int) -> None:
    """Cover an operator that takes each window's maximum, and its gradient."""
    move(name)

    @covers(f"{name}_backward")
    def largest_backward(fmt: PositFormat, g: Tensor, x: Tensor, *how: Any, **named: Any) -> Tensor:
        """Route g to the place of each maximum; sum where several windows share a place."""
        indices = named.get("indices", how[-1] if how else None)
        assert isinstance(indices, Tensor)
        sizes = x.shape[-dimensions:]
        planes = torch.arange(x.numel() // max(1, sizes.numel()), device=x.device)
        first = planes.reshape(*x.shape[:-dimensions], *[1] * dimensions) * sizes.numel()
        return to_places(g, indices + first, x.shape, fmt)


for _dimensions in (2, 3):
    _average(f"avg_pool{_dimensions}d", _dimensions)
    _largest(f"max_pool{_dimensions}d_with_indices", _dimensions)
    _largest(f"adaptive_max_pool{_dimensions}d", _dimensions)
    _largest(f"fractional_max_pool{_dimensions}d", _dimensions)


def _selection(name: str) -> None:
    """Cover an operator that repeats elements of its input, and its gradient."""
    forward: Callable[..., Tensor] = move(name)
    resizes = "upsample" in name

    @covers(f"{name}_backward")
    def backward(fmt: PositFormat, g: Tensor, x: Any, *how: Any) -> Tensor:
        """Give each element the sum of the gradients of its copies."""
        if resizes:  # (g, size of the result, size of x, scales)
            shape, how = torch.Size(how[0]), (x, *how[1:])
        else:
            shape = x.shape
        numbers = torch.arange(shape.numel(), dtype=torch.float64, device=g.device).reshape(shape)
        return to_places(g, forward(numbers, *how).to(torch.int64), shape, fmt)


for _dimensions in (1, 2, 3):
    for _name in ("reflection_pad", "replication_pad", "upsample_nearest",
                  "_upsample_nearest_exact"):  # fmt: skip
        _selection(f"{_name}{_dimensions}d")


def _resampling(name: str, dimensions: int) -> None:
    """Cover an operator that interpolates linearly or by cubics along each dimension."""
    forward: Callable[..., Tensor] = operator(name)

    def matrices(out: Sequence[int], sizes: Sequence[int], corners: bool, scales: Sequence[Any]):
        """Return the weights (size, result's size) of each dimension, as torch has them.

        Other sides are 2: the operators with anti-aliasing mistake a side of 1 for channels.
        """
        for d, (count, size) in enumerate(zip(out, sizes, strict=True)):
            sides, ends = [2] * dimensions, [2] * dimensions
            steps: list[float | None] = [None] * dimensions
            sides[d], ends[d], steps[d] = size, count, (*scales, *steps)[d]
            units = torch.eye(size, dtype=torch.float64)
            units = units.reshape(1, size, *[1] * d, size, *[1] * (dimensions - 1 - d))
            y = forward(units.expand(1, size, *sides).contiguous(), ends, corners, *steps)[0]
            yield y.movedim(1 + d, 1).reshape(size, count, -1)[..., 0]

    def resampled(x: Tensor, ways: Iterable[Tensor], fmt: PositFormat) -> Tensor:
        """Apply matrices (size, result's size) along the last dimensions."""
        places, weights = [], []
        for way in ways:
            most = max(1, int((way != 0).sum(0).max()))
            which = (way != 0).to(torch.int8).topk(most, 0).indices.sort(0).values.t()
            weight = way.t().gather(1, which)
            places.append(which.where(weight != 0, NOTHING))
            weights.append(weight)
        return _weighted_total(x, places, weights, fmt)

    @covers(name)
    def rule(
        fmt: PositFormat, x: Tensor, out: Sequence[int], corners: bool, *scales: Any
    ) -> Tensor:
        return resampled(x, matrices(out, x.shape[2:], corners, scales), fmt)

    @covers(f"{name}_backward")
    def backward(
        fmt: PositFormat,
        g: Tensor,
        out: Sequence[int],
        shape: Sequence[int],
        corners: bool,
        *scales: Any,
    ) -> Tensor:
        """Sum the gradients of all results times the weights that an element has in them."""
        ways = matrices(out, shape[2:], corners, scales)
        return resampled(g, (way.t() for way in ways), fmt)


for _name in ("bilinear2d", "bicubic2d"):
    _resampling(f"upsample_{_name}", 2)
    _resampling(f"_upsample_{_name}_aa", 2)
_resampling("upsample_linear1d", 1)
_resampling("upsample_trilinear3d", 3)


@covers("col2im")
def folded(
    fmt: PositFormat, x: Tensor, size: Sequence[int], kernel: Sequence[int], *how: Sequence[int]
) -> Tensor:
    """Sum the elements of patches that share a place of the image, in the order of the patch."""
    batch = x if x.dim() == 3 else x.unsqueeze(0)
    shape = torch.Size((len(batch), batch.shape[1] // math.prod(kernel), *size))
    numbers = torch.arange(1, shape.numel() + 1, dtype=torch.float64, device=x.device)
    places = operator("im2col")(numbers.reshape(shape), kernel, *how).to(torch.int64) - 1
    rows = batch.transpose(1, 2)[(inside := places.transpose(1, 2) >= 0)].unsqueeze(1)
    y = by_place(rows, places.transpose(1, 2)[inside], shape.numel(), fmt).reshape(shape)
    return y if x.dim() == 3 else y.squeeze(0)


@covers("unfold_backward")
def unfold_backward(
    fmt: PositFormat, g: Tensor, sizes: Sequence[int], dim: int, size: int, step: int
) -> Tensor:
    """Sum the gradients of the windows that hold an element."""
    shape = torch.Size(sizes)
    numbers = torch.arange(shape.numel(), device=g.device).reshape(shape)
    return to_places(g, numbers.unfold(dim, size, step), shape, fmt)

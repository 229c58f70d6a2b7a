"""Convolution and pooling, and their gradients."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from trainwright.posit import convolution, grid, products
from trainwright.posit.accumulation import get_accumulation
from trainwright.posit.format import PositFormat
from trainwright.posit.operators.registry import UncoveredError, covers, operand, operator
from trainwright.posit.operators.sums import total

Pair = tuple[int, int]


def _pair(x: Sequence[int], default: int = 0) -> Pair:
    if not x:
        return default, default
    return (x[0], x[-1])


def _geometry(
    x: Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    groups: int,
) -> convolution.Geometry:
    if x.dim() != 4 or transposed:
        kind = "transposed" if transposed else f"{x.dim() - 2}-d"
        raise UncoveredError(f"{kind} convolution is not covered for posits, only 2-d, forwards")
    return convolution.Geometry(_pair(stride), _pair(padding), _pair(dilation), groups)


@covers("convolution")
def convolve(
    fmt: PositFormat,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Tensor:
    """Apply ``trainwright.posit.convolution`` to two-dimensional images."""
    geometry = _geometry(x, stride, padding, dilation, transposed, groups)
    return convolution.conv2d(x, weight, bias, geometry, fmt, get_accumulation())


@covers("convolution_backward")
def convolve_backward(
    fmt: PositFormat,
    g: Tensor,
    x: Tensor,
    weight: Tensor,
    bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    wanted: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Return gradients of x, weight and bias, ``None`` for those not in ``wanted``."""
    geometry = _geometry(x, stride, padding, dilation, transposed, groups)
    how = (geometry, fmt, get_accumulation())
    image, kernel = (x.shape[2], x.shape[3]), (weight.shape[2], weight.shape[3])
    return (
        convolution.input_gradient(g, weight, image, *how) if wanted[0] else None,
        convolution.weight_gradient(x, g, kernel, *how) if wanted[1] else None,
        total(g, (0, 2, 3), False, fmt) if wanted[2] else None,
    )


@dataclass(frozen=True)
class PoolingWindows:
    """Windows of a pooling over images of ``size``, as (vertical, horizontal) pairs."""

    size: Pair
    kernel: Pair
    stride: Pair
    padding: Pair
    dilation: Pair = (1, 1)

    @property
    def out(self) -> Pair:
        """Windows in each direction."""
        how = convolution.Geometry(self.stride, self.padding, self.dilation)
        return how.size(self.size, self.kernel)

    @property
    def apart(self) -> bool:
        """Whether no two windows share an element."""
        return all(self.stride[i] >= self.dilation[i] * (self.kernel[i] - 1) + 1 for i in (0, 1))

    def padded(self, x: Tensor) -> Tensor:
        """Pad images with zeros."""
        (up, left) = self.padding
        return F.pad(x, (left, left, up, up)) if up or left else x

    def places(self) -> list[tuple[slice, slice]]:
        """List slices into the padded image: one per window element, row-major."""
        (rows, columns), (out_rows, out_columns) = self.kernel, self.out
        return [
            (
                slice(r, r + (out_rows - 1) * self.stride[0] + 1, self.stride[0]),
                slice(c, c + (out_columns - 1) * self.stride[1] + 1, self.stride[1]),
            )
            for r in range(0, rows * self.dilation[0], self.dilation[0])
            for c in range(0, columns * self.dilation[1], self.dilation[1])
        ]

    def spread(self, pieces: Sequence[Tensor], fmt: PositFormat) -> Tensor:
        """Sum, for each element of the image, the pieces of all windows that hold the element.

        Transposes unfolding. ``pieces`` has one tensor (B, C, *out) per window element; they are
        summed in this order.
        """
        (up, left), (height, width) = self.padding, self.size
        shape = (*pieces[0].shape[:2], height + 2 * up, width + 2 * left)
        count = 1 if self.apart else len(pieces)
        # Overlapping windows need one layer per window element, so that the sum is accumulated in
        # the
        # mode in force; windows that are apart write disjoint elements of a single layer.
        layers = pieces[0].new_zeros(count, *shape)
        for index, (piece, place) in enumerate(zip(pieces, self.places(), strict=True)):
            layers[index % count][(..., *place)] = piece
        whole = layers[0] if count == 1 else products.total(layers, [0], fmt, get_accumulation())
        return whole[..., up : up + height, left : left + width]


def _windows(
    x: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int] = (),
    ceil_mode: bool = False,
) -> PoolingWindows:
    if x.dim() != 4:
        raise UncoveredError(f"pooling of {x.dim()} dimensions is not covered for posits, only 4")
    if ceil_mode:
        raise UncoveredError("pooling with ceil_mode=True is not covered for posits")
    size, sides = (x.shape[2], x.shape[3]), _pair(kernel)
    steps = _pair(stride) if stride else sides
    return PoolingWindows(size, sides, steps, _pair(padding), _pair(dilation, 1))


def _divisor(
    x: Tensor, windows: PoolingWindows, include_pad: bool, override: int | None, fmt: PositFormat
) -> Tensor:
    """Return the elements per mean: a number, or (*out) where padding does not count."""
    if override is not None or include_pad or windows.padding == (0, 0):
        count = windows.kernel[0] * windows.kernel[1] if override is None else override
        return operand(count, fmt, x)
    inside = windows.padded(x.new_ones(1, 1, *windows.size))
    return total(_stacked(inside, windows), 0, False, fmt)


def _stacked(x: Tensor, windows: PoolingWindows) -> Tensor:
    """Return (elements of a window, B, C, *out) of a padded image."""
    return torch.stack([x[(..., *place)] for place in windows.places()])


@covers("avg_pool2d")
def average(
    fmt: PositFormat,
    x: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """Sum each window, row-major, and divide by the count, which is rounded to the format first."""
    windows = _windows(x, kernel, stride, padding, ceil_mode=ceil_mode)
    sums = total(_stacked(windows.padded(x), windows), 0, False, fmt)
    return grid.div(sums, _divisor(x, windows, count_include_pad, divisor_override, fmt), fmt)


@covers("avg_pool2d_backward")
def average_backward(
    fmt: PositFormat,
    g: Tensor,
    x: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Tensor:
    """Divide g by the count for every element of a window; sum where windows overlap."""
    windows = _windows(x, kernel, stride, padding, ceil_mode=ceil_mode)
    share = grid.div(g, _divisor(x, windows, count_include_pad, divisor_override, fmt), fmt)
    return windows.spread([share] * (windows.kernel[0] * windows.kernel[1]), fmt)


@covers("max_pool2d_with_indices")
def largest(
    fmt: PositFormat,
    x: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil_mode: bool = False,
) -> tuple[Tensor, Tensor]:
    """Take each window's maximum, which is exact; NaR if an element is NaR."""
    _windows(x, kernel, stride, padding, dilation, ceil_mode)
    call = operator("max_pool2d_with_indices")
    return call(x, kernel, stride, padding, dilation, ceil_mode)


@covers("max_pool2d_with_indices_backward")
def largest_backward(
    fmt: PositFormat,
    g: Tensor,
    x: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
    indices: Tensor,
) -> Tensor:
    """Route g to the position of each maximum; sum where several windows share a position."""
    windows = _windows(x, kernel, stride, padding, dilation, ceil_mode)
    (up, left), (height, width) = windows.padding, windows.size
    rows = torch.arange(-up, height + up, device=x.device).unsqueeze(1) * width
    numbers = rows + torch.arange(-left, width + left, device=x.device)
    pieces = [torch.where(indices == numbers[place], g, 0.0) for place in windows.places()]
    return windows.spread(pieces, fmt)

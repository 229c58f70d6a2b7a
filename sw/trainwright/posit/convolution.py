"""Convolutions on a posit grid and their gradients: matrix products of unfolded images.

Each element of each result is one dot product, accumulated by ``trainwright.posit.products``; a
bias is the initial value of the sum. ``x`` is (B, C, H, W), ``weight`` (O, C / groups, kh, kw).
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from trainwright.posit import grid, native
from trainwright.posit.exactness import products_round_once
from trainwright.posit.format import PositError, PositFormat
from trainwright.posit.products import Mode, check_mode, matmul, quire
from trainwright.support.convolution import check_convolution

Pair = tuple[int, int]


@dataclass(frozen=True)
class Geometry:
    """Stride, padding and dilation as (vertical, horizontal) pairs, and the number of groups."""

    stride: Pair = (1, 1)
    padding: Pair = (0, 0)
    dilation: Pair = (1, 1)
    groups: int = 1

    def size(self, image: Pair, kernel: Pair) -> Pair:
        """Return height and width of the result."""
        height, width = (
            (image[i] + 2 * self.padding[i] - self.dilation[i] * (kernel[i] - 1) - 1)
            // self.stride[i]
            + 1
            for i in (0, 1)
        )
        return height, width

    def whole(self, image: Pair, kernel: Pair) -> bool:
        """Return whether the kernel covers the unpadded image, which makes one matrix product."""
        return image == kernel and self.padding == (0, 0) and self.dilation == (1, 1)


def _windows(
    x: Tensor, kernel: Pair, stride: Pair, before: Pair, dilation: Pair, out: Pair
) -> Tensor:
    """Unfold x to (B, C kh kw, L): patches at ``out`` places, ``before`` zeros at top and left."""
    edges: list[int] = []  # F.pad: last dimension first; negative crops
    for i in (1, 0):
        end = (out[i] - 1) * stride[i] + dilation[i] * (kernel[i] - 1) + 1
        edges += [before[i], end - before[i] - x.shape[2 + i]]
    return F.unfold(F.pad(x, edges), kernel, dilation, 0, stride)


def _correlate(
    x: Tensor,
    rows: Tensor,
    initial: Tensor | None,
    window: native.KernelWindow,
    fmt: PositFormat,
    mode: Mode,
) -> Tensor:
    """Multiply rows (G, M, C/G kh kw) by the patches of x (B, C, H, W): (B, G M, *window.out)."""
    groups, m, depth = rows.shape
    shape = (x.shape[0], groups, m, math.prod(window.out))
    start = None if initial is None else initial.expand(shape)
    if native.usable(x, rows, dtype=torch.float64 if mode == "quire" else x.dtype):
        out = _native(x, rows, start, window, shape, fmt, mode)
    else:
        patches = _windows(x, *window)
        out = matmul(rows, patches.unflatten(1, (groups, depth)), fmt, mode, start)
    return out.reshape(x.shape[0], groups * m, *window.out)


def _native(
    x: Tensor,
    rows: Tensor,
    start: Tensor | None,
    window: native.KernelWindow,
    shape: tuple[int, ...],
    fmt: PositFormat,
    mode: Mode,
) -> Tensor:
    if mode == "quire":
        x, rows = x.to(torch.float64), rows.to(torch.float64)
        start = None if start is None else start.to(torch.float64).contiguous()
        return native.convolve_quire(x, rows, start, window, shape, fmt)
    total = x.new_zeros(shape) if start is None else start.contiguous().clone()
    to_odd = not products_round_once(fmt)
    native.convolve_sequential(x, rows, total, window, fmt, to_odd=to_odd)
    return total


def conv2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    geometry: Geometry,
    fmt: PositFormat,
    mode: Mode = "quire",
) -> Tensor:
    """Compute the convolution (B, O, H', W'), summed over the kernel's (channel, row, column).

    ``bias`` is (O) or None. Raises ``PositError`` for shapes that do not match.
    """
    check_mode(mode)
    high, wide = geometry.padding
    try:
        check_convolution(
            x.shape,
            weight.shape,
            None if bias is None else bias.shape,
            stride=geometry.stride,
            padding=(wide, wide, high, high),
            dilation=geometry.dilation,
            groups=geometry.groups,
        )
    except ValueError as error:
        raise PositError(str(error)) from None
    grid.on_grid(fmt, x, weight, *([] if bias is None else [bias]))
    groups, kernel = geometry.groups, (weight.shape[2], weight.shape[3])
    image = (x.shape[2], x.shape[3])
    if geometry.whole(image, kernel):
        start = None if bias is None else bias.reshape(groups, 1, -1)
        columns = weight.reshape(groups, weight.shape[0] // groups, -1).mT
        return _grouped(matmul(_by_group(x, groups), columns, fmt, mode, start), (1, 1))
    out = geometry.size(image, kernel)
    window = native.KernelWindow(kernel, geometry.stride, geometry.padding, geometry.dilation, out)
    rows = weight.reshape(groups, weight.shape[0] // groups, -1)
    initial = None if bias is None else bias.reshape(1, groups, -1, 1)
    return _correlate(x, rows, initial, window, fmt, mode)


def _by_group(x: Tensor, groups: int) -> Tensor:
    """Reshape (B, G C, H, W) to (G, B, C H W)."""
    return x.reshape(x.shape[0], groups, -1).transpose(0, 1)


def _grouped(x: Tensor, image: Pair) -> Tensor:
    """Reshape (G, B, C H W) to (B, G C, H, W), ``image`` being (H, W)."""
    return x.transpose(0, 1).reshape(x.shape[1], -1, *image)


def input_gradient(
    gradient: Tensor,
    weight: Tensor,
    image: Pair,
    geometry: Geometry,
    fmt: PositFormat,
    mode: Mode = "quire",
    bias: Tensor | None = None,
) -> Tensor:
    """Return the gradient to x (B, C, *image) from the gradient to the result (B, O, H', W').

    The flipped kernels pass over the gradient, spread by the stride: each element is one dot
    product over (output channel, row, column), products with the inserted and surrounding zeros
    included. If the kernel covers the image, the dot product runs over output channels only. All
    sums of a channel start from ``bias`` (C), as a transposed convolution does.
    """
    check_mode(mode)
    grid.on_grid(fmt, gradient, weight, *([] if bias is None else [bias]))
    groups, (outputs, inputs, *sides) = geometry.groups, weight.shape
    stride, kernel = geometry.stride, (sides[0], sides[1])
    if geometry.whole(image, kernel):
        rows = weight.reshape(groups, outputs // groups, -1)
        start = None if bias is None else bias.repeat_interleave(math.prod(image))
        start = None if start is None else start.reshape(groups, 1, -1)
        return _grouped(matmul(_by_group(gradient, groups), rows, fmt, mode, start), image)
    spread = gradient
    if stride != (1, 1):
        height, width = gradient.shape[2:]
        size = ((height - 1) * stride[0] + 1, (width - 1) * stride[1] + 1)
        spread = gradient.new_zeros(*gradient.shape[:2], *size)
        spread[:, :, :: stride[0], :: stride[1]] = gradient
    up, left = (geometry.dilation[i] * (kernel[i] - 1) - geometry.padding[i] for i in (0, 1))
    window = native.KernelWindow(kernel, (1, 1), (up, left), geometry.dilation, image)
    flipped = weight.flip(2, 3).reshape(groups, outputs // groups, inputs, -1)
    rows = flipped.transpose(1, 2).reshape(groups, inputs, -1)  # (G, C / G, O / G kh kw)
    initial = None if bias is None else bias.reshape(1, groups, -1, 1)
    return _correlate(spread, rows, initial, window, fmt, mode)


def weight_gradient(
    x: Tensor,
    gradient: Tensor,
    kernel: Pair,
    geometry: Geometry,
    fmt: PositFormat,
    mode: Mode = "quire",
) -> Tensor:
    """Return the weight's gradient (O, C/groups, *kernel), summed over image, row and column."""
    check_mode(mode)
    grid.on_grid(fmt, x, gradient)
    groups, out = geometry.groups, (gradient.shape[2], gradient.shape[3])
    window = native.KernelWindow(kernel, geometry.stride, geometry.padding, geometry.dilation, out)
    if mode == "quire":
        x = x.to(torch.float64)
    if native.usable(x):
        columns = native.lines(x, window, groups)
    else:
        patches = _windows(x, *window).unflatten(1, (groups, -1))
        columns = patches.permute(1, 0, 3, 2).flatten(1, 2)
    rows = gradient.flatten(2).unflatten(1, (groups, -1)).permute(1, 2, 0, 3).flatten(2)
    if mode == "quire":
        shape = (groups, rows.shape[1], columns.shape[2])
        product = quire(rows, columns, fmt, None, shape)
    else:
        product = matmul(rows, columns, fmt, mode)
    # product: (G, O / G, B L) times (G, B L, C / G kh kw)
    outputs = groups * product.shape[1]
    return product.reshape(outputs, x.shape[1] // groups, *kernel)

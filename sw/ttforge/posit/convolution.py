"""Convolutions on a posit grid, and their gradients: matrix products of unfolded images.

Each element of each result is one dot product, accumulated as ``ttforge.posit.products`` has it; a
bias is what the sum starts from. ``x`` (B, C, H, W), ``weight`` (O, C / groups, kh, kw).
"""

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from ttforge.posit.format import PositFormat
from ttforge.posit.products import Mode, matmul

Pair = tuple[int, int]


@dataclass(frozen=True)
class Geometry:
    """Of a convolution: (vertical, horizontal) pairs, and the number of groups."""

    stride: Pair = (1, 1)
    padding: Pair = (0, 0)
    dilation: Pair = (1, 1)
    groups: int = 1

    def size(self, image: Pair, kernel: Pair) -> Pair:
        """Height and width of the result."""
        height, width = (
            (image[i] + 2 * self.padding[i] - self.dilation[i] * (kernel[i] - 1) - 1)
            // self.stride[i]
            + 1
            for i in (0, 1)
        )
        return height, width


def _columns(x: Tensor, kernel: Pair, geometry: Geometry) -> Tensor:
    """(B, G, C / G * kh * kw, L): the patches that a kernel meets, channel by channel."""
    columns = F.unfold(x, kernel, geometry.dilation, geometry.padding, geometry.stride)
    return columns.unflatten(1, (geometry.groups, -1))


def conv2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    geometry: Geometry,
    fmt: PositFormat,
    mode: Mode = "quire",
) -> Tensor:
    """(B, O, H', W'), summed over the kernel's (channel, row, column). ``bias`` (O) or None."""
    groups, kernel = geometry.groups, (weight.shape[2], weight.shape[3])
    columns = _columns(x, kernel, geometry)
    rows = weight.reshape(1, groups, weight.shape[0] // groups, -1)
    initial = None if bias is None else bias.reshape(1, groups, -1, 1)
    out = matmul(rows, columns, fmt, mode, initial)  # (B, G, O / G, L)
    return out.reshape(x.shape[0], -1, *geometry.size((x.shape[2], x.shape[3]), kernel))


def input_gradient(
    gradient: Tensor,
    weight: Tensor,
    image: Pair,
    geometry: Geometry,
    fmt: PositFormat,
    mode: Mode = "quire",
) -> Tensor:
    """Of the loss to x (B, C, *image), from that to the result (B, O, H', W').

    The turned kernels pass over the gradient, spread by the stride and padded: one dot product an
    element, over (output channel, row, column), products with the zeros in between included.
    """
    groups, (outputs, inputs, *kernel) = geometry.groups, weight.shape
    stride = geometry.stride
    spread = gradient
    if stride != (1, 1):
        height, width = gradient.shape[2:]
        size = ((height - 1) * stride[0] + 1, (width - 1) * stride[1] + 1)
        spread = gradient.new_zeros(*gradient.shape[:2], *size)
        spread[:, :, :: stride[0], :: stride[1]] = gradient
    edges: list[int] = []  # as F.pad has them, last dimension first
    for i in (1, 0):
        reach = geometry.dilation[i] * (kernel[i] - 1)
        before = reach - geometry.padding[i]
        edges += [before, image[i] + reach - before - spread.shape[2 + i]]
    spread = F.pad(spread, edges)
    turned = weight.flip(2, 3).reshape(groups, outputs // groups, inputs, -1)
    rows = turned.transpose(1, 2).reshape(1, groups, inputs, -1)  # (1, G, C / G, O / G * kh * kw)
    plain = Geometry(dilation=geometry.dilation, groups=groups)
    out = matmul(rows, _columns(spread, (kernel[0], kernel[1]), plain), fmt, mode)
    return out.reshape(gradient.shape[0], groups * inputs, *image)


def weight_gradient(
    x: Tensor,
    gradient: Tensor,
    kernel: Pair,
    geometry: Geometry,
    fmt: PositFormat,
    mode: Mode = "quire",
) -> Tensor:
    """Of the loss to the weight (O, C / groups, *kernel), accumulated over (image, row, column)."""
    groups = geometry.groups
    columns = _columns(x, kernel, geometry).permute(1, 0, 3, 2).flatten(1, 2)  # (G, B L, C/G kh kw)
    rows = gradient.flatten(2).unflatten(1, (groups, -1)).permute(1, 2, 0, 3).flatten(2)
    out = matmul(rows, columns, fmt, mode)  # (G, O / G, C / G * kh * kw)
    return out.reshape(-1, x.shape[1] // groups, *kernel)

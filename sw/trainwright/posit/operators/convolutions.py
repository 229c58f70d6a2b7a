"""Convolutions of one to three dimensions, transposed ones, and their gradients.

All are ``trainwright.posit.convolution`` in two dimensions: images of one dimension are one line
high, and the depth of a kernel in three dimensions joins its channels. Each element of a result is
one sum of products in the kernel's order (channel, depth, row, column).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from trainwright.posit import convolution
from trainwright.posit.accumulation import get_accumulation
from trainwright.posit.format import PositError, PositFormat
from trainwright.posit.operators.registry import covers
from trainwright.posit.operators.sums import total
from trainwright.support.text import amount

Sizes = tuple[int, int, int]


def _three(sizes: Sequence[int], dimensions: int, missing: int) -> Sizes:
    """Return (depth, height, width) from one size for all, or one for each dimension."""
    given = tuple(sizes) * dimensions if len(sizes) == 1 else tuple(sizes)
    depth, height, width = (missing,) * (3 - len(given)) + given
    return depth, height, width


def _volume(x: Tensor) -> Tensor:
    """Reshape (B, C, ...) to (B, C, D, H, W), with sizes of 1 first."""
    return x.reshape(*x.shape[:2], *[1] * (5 - x.dim()), *x.shape[2:])


@dataclass(frozen=True)
class VolumeGeometry:
    """Stride, padding and dilation as (depth, height, width), and the number of groups."""

    stride: Sizes
    padding: Sizes
    dilation: Sizes
    groups: int

    @classmethod
    def of(
        cls,
        x: Tensor,
        stride: Sequence[int],
        padding: Sequence[int],
        dilation: Sequence[int],
        groups: int,
    ) -> "VolumeGeometry":
        """Complete torch's arguments for a tensor of one to three spatial dimensions."""
        count = x.dim() - 2
        return cls(
            _three(stride, count, 1), _three(padding, count, 0), _three(dilation, count, 1), groups
        )

    @property
    def plane(self) -> convolution.Geometry:
        """Geometry of height and width."""
        return convolution.Geometry(
            self.stride[1:], self.padding[1:], self.dilation[1:], self.groups
        )

    def depth(self, image: int, kernel: int) -> int:
        """Return the depth of the result. Raises ``PositError`` if the kernel does not fit."""
        if min(*self.stride, *self.dilation) < 1:
            raise PositError(
                f"stride and dilation must be at least 1, not {self.stride} and {self.dilation}"
            )
        reach = self.dilation[0] * (kernel - 1) + 1
        if reach > image + 2 * self.padding[0]:
            raise PositError(
                f"a kernel {kernel} deep with dilation {self.dilation[0]} does not fit "
                f"{amount(image + 2 * self.padding[0], 'plane')}"
            )
        return (image + 2 * self.padding[0] - reach) // self.stride[0] + 1


def _fold(x: Tensor, kernel: int, stride: int, before: int, dilation: int, out: int) -> Tensor:
    """Join the planes under the kernel, at ``out`` depths, to channels: (B D', C kd, H, W).

    ``before``: planes of zeros in front, left out if negative.
    """
    batch, channels, planes, *image = x.shape
    reach = dilation * (kernel - 1) + 1
    behind = (out - 1) * stride + reach - before - planes
    if before or behind:
        x = F.pad(x, (0, 0, 0, 0, before, behind))
    if kernel == 1 and out == 1:
        return x.reshape(batch, channels, *image)
    windows = x.unfold(2, reach, stride)[..., ::dilation]  # (B, C, D', H, W, kd)
    return windows.permute(0, 2, 1, 5, 3, 4).reshape(batch * out, channels * kernel, *image)


def _unfold(planes: Tensor, batch: int, depth: int) -> Tensor:
    """Reshape (B D', O, H', W') to (B, O, D', H', W')."""
    return planes.unflatten(0, (batch, depth)).transpose(1, 2)  # B may be 0: infer nothing


def _fold_input(x: Tensor, kernel: int, geometry: VolumeGeometry, out: int) -> Tensor:
    stride, before, dilation = geometry.stride[0], geometry.padding[0], geometry.dilation[0]
    return _fold(x, kernel, stride, before, dilation, out)


def forwards(
    x: Tensor, weight: Tensor, bias: Tensor | None, geometry: VolumeGeometry, fmt: PositFormat
) -> Tensor:
    """Convolve x (B, C, D, H, W) with weight (O, C / groups, kd, kh, kw)."""
    if geometry.groups < 1 or x.shape[1] != weight.shape[1] * geometry.groups:
        raise PositError(
            f"cannot convolve {tuple(x.shape)} with {tuple(weight.shape)} in "
            f"{amount(geometry.groups, 'group')}: a kernel has the channels of one group"
        )
    out = geometry.depth(x.shape[2], weight.shape[2])
    planes = _fold_input(x, weight.shape[2], geometry, out)
    kernel = weight.flatten(1, 2)
    y = convolution.conv2d(planes, kernel, bias, geometry.plane, fmt, get_accumulation())
    return _unfold(y, x.shape[0], out)


def to_input(
    g: Tensor,
    weight: Tensor,
    image: Sizes,
    geometry: VolumeGeometry,
    fmt: PositFormat,
    bias: Tensor | None = None,
) -> Tensor:
    """Return the gradient to x (B, C, *image); sums start from ``bias`` (C)."""
    kernel, stride, dilation = weight.shape[2], geometry.stride[0], geometry.dilation[0]
    spread = g
    if stride > 1:
        planes = (g.shape[2] - 1) * stride + 1
        spread = g.new_zeros(*g.shape[:2], planes, *g.shape[3:])
        spread[:, :, ::stride] = g
    before = dilation * (kernel - 1) - geometry.padding[0]
    folded = _fold(spread, kernel, 1, before, dilation, image[0])
    turned = weight.flip(2).transpose(1, 2).flatten(0, 1)  # (O kd, C / groups, kh, kw)
    dx = convolution.input_gradient(
        folded, turned, image[1:], geometry.plane, fmt, get_accumulation(), bias
    )
    return _unfold(dx, g.shape[0], image[0])


def to_weight(
    x: Tensor, g: Tensor, kernel: Sizes, geometry: VolumeGeometry, fmt: PositFormat
) -> Tensor:
    """Return the gradient to weight (O, C / groups, *kernel)."""
    planes = _fold_input(x, kernel[0], geometry, g.shape[2])
    gradient = g.transpose(1, 2).flatten(0, 1)
    dw = convolution.weight_gradient(
        planes, gradient, kernel[1:], geometry.plane, fmt, get_accumulation()
    )
    return dw.unflatten(1, (-1, kernel[0]))


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
    """Convolve, or spread x (B, C, ...) by a weight (C, O / groups, ...) if ``transposed``."""
    geometry = VolumeGeometry.of(x, stride, padding, dilation, groups)
    volume, kernel = _volume(x), _volume(weight)
    if not transposed:
        y = forwards(volume, kernel, bias, geometry, fmt)
    else:
        extra = _three(output_padding, x.dim() - 2, 0)
        most = [max(sides) - 1 for sides in zip(geometry.stride, geometry.dilation, strict=True)]
        if any(e > m for e, m in zip(extra, most, strict=True)):
            raise PositError(
                f"output_padding {tuple(output_padding)} must be below stride {tuple(stride)} or "
                f"dilation {tuple(dilation)}"
            )
        y = _spread(volume, kernel, bias, geometry, extra, fmt)
    return y.reshape(*y.shape[:2], *y.shape[7 - x.dim() :])


def _spread(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    geometry: VolumeGeometry,
    extra: Sizes,
    fmt: PositFormat,
) -> Tensor:
    depth, height, width = (
        (x.shape[2 + i] - 1) * geometry.stride[i]
        - 2 * geometry.padding[i]
        + geometry.dilation[i] * (weight.shape[2 + i] - 1)
        + extra[i]
        + 1
        for i in range(3)
    )
    groups, channels = geometry.groups, weight.shape[0]
    if x.shape[1] != channels or channels % groups or min(depth, height, width) < 1:
        raise PositError(
            f"cannot convolve {tuple(x.shape)} transposed with {tuple(weight.shape)} in "
            f"{amount(groups, 'group')} to an image of {(depth, height, width)}"
        )
    if bias is not None and tuple(bias.shape) != (weight.shape[1] * groups,):
        wanted = (weight.shape[1] * groups,)
        raise PositError(f"bias has shape {tuple(bias.shape)}, not {wanted}: one value an output")
    return to_input(x, weight, (depth, height, width), geometry, fmt, bias)


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
    geometry = VolumeGeometry.of(x, stride, padding, dilation, groups)
    volume, gradient, kernel = _volume(x), _volume(g), _volume(weight)
    image, sides = _three(volume.shape[2:], 3, 1), _three(kernel.shape[2:], 3, 1)
    dx = dw = None
    if wanted[0] and transposed:  # past the last of x, output padding may leave room for more
        dx = forwards(gradient, kernel, None, geometry, fmt)
        dx = dx[:, :, : image[0], : image[1], : image[2]].reshape(x.shape)
    elif wanted[0]:
        dx = to_input(gradient, kernel, image, geometry, fmt).reshape(x.shape)
    if wanted[1]:
        ends = (gradient, volume) if transposed else (volume, gradient)
        dw = to_weight(*ends, sides, geometry, fmt).reshape(weight.shape)
    over = [0, *range(2, g.dim())]
    return dx, dw, total(g, over, False, fmt) if wanted[2] else None

"""Batch, layer and group normalisation, with every step rounded.

The elements that share a mean form a line. Forward:

    m = sum of x / count        d = x - m        v = sum of d d / count
    r = 1 / root (v + eps)      y = (d r) w + b

Sums are rounded as the mode says; 1 / root, and the last product with its sum, are rounded once.
Backward, where g is the gradient to y:

    h = g w        a = sum of h / count        c = sum of h (d r) / count
    gradient to x = (h - a - (d r) c) r

The product (d r) c and its subtraction are rounded once.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from trainwright.posit import grid
from trainwright.posit.format import PositFormat
from trainwright.posit.operators.arithmetic import lerp
from trainwright.posit.operators.registry import covers, operand
from trainwright.posit.operators.sums import (
    dim_mean,
    dims_of,
    divided,
    lines_along,
    products_along,
    put_back,
    total,
)

Optional = Tensor | None
Gradients = tuple[Optional, Optional, Optional]


def _root(variance: Tensor, eps: float, fmt: PositFormat) -> Tensor:
    return grid.rsqrt(grid.add(variance, operand(eps, fmt, variance), fmt), fmt)


def _centred(lines: Tensor, fmt: PositFormat) -> tuple[Tensor, Tensor, Tensor]:
    """Return means, lines minus their means, and sums of their squares, of lines (..., K)."""
    mean = divided(total(lines, -1, True, fmt), lines.shape[-1], fmt)
    d = grid.sub(lines, mean, fmt)
    return mean, d, products_along(d, d, fmt).unsqueeze(-1)


def _affine(x: Tensor, weight: Optional, bias: Optional, fmt: PositFormat) -> Tensor:
    """Compute x w + b, rounded once."""
    if weight is None:
        return x if bias is None else grid.add(x, bias, fmt)
    return grid.mul(x, weight, fmt) if bias is None else grid.fma(x, weight, bias, fmt)


def _to_lines(g: Tensor, weight: Optional, unit: Tensor, root: Tensor, fmt: PositFormat) -> Tensor:
    """Return the gradient to lines; ``unit`` has their normalised values d r."""
    h = g if weight is None else grid.mul(g, weight, fmt)
    count = h.shape[-1]
    a = divided(total(h, -1, True, fmt), count, fmt)
    c = divided(products_along(h, unit, fmt).unsqueeze(-1), count, fmt)
    return grid.mul(grid.fma(0 - unit, c, grid.sub(h, a, fmt), fmt), root, fmt)


def _channels(x: Tensor) -> Tensor:
    """Reshape (B, C, ...) to a line for each channel."""
    return x.transpose(0, 1).flatten(1)


def _images(lines: Tensor, shape: Sequence[int]) -> Tensor:
    """Undo ``_channels``."""
    return lines.reshape(shape[1], shape[0], *shape[2:]).transpose(0, 1)


def _column(x: Optional) -> Optional:
    return None if x is None else x.unsqueeze(-1)


@covers("native_batch_norm")
def batch_norm(
    fmt: PositFormat,
    x: Tensor,
    weight: Optional,
    bias: Optional,
    running_mean: Optional,
    running_var: Optional,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Normalise by channel, and move running statistics: r + momentum (new - r), by ``lerp``.

    The running variance takes the sum of squares divided by count - 1.
    """
    lines = _channels(x)
    if training:
        mean, d, squares = _centred(lines, fmt)
        root = _root(divided(squares, lines.shape[1], fmt), eps, fmt)
        unbiased = divided(squares, lines.shape[1] - 1, fmt)
        for running, new in ((running_mean, mean), (running_var, unbiased)):
            if running is not None:
                running.copy_(lerp(fmt, running, new.squeeze(1), momentum))
        kept = mean.squeeze(1), root.squeeze(1)
    else:
        d, root = _running(lines, running_mean, running_var, eps, fmt)
        kept = lines.new_empty(0), lines.new_empty(0)
    y = _affine(grid.mul(d, root, fmt), _column(weight), _column(bias), fmt)
    return _images(y, x.shape), *kept


def _running(
    lines: Tensor, mean: Optional, variance: Optional, eps: float, fmt: PositFormat
) -> tuple[Tensor, Tensor]:
    assert mean is not None and variance is not None  # torch checks
    return grid.sub(lines, mean.unsqueeze(1), fmt), _root(variance.unsqueeze(1), eps, fmt)


@covers("native_batch_norm_backward")
def batch_norm_backward(
    fmt: PositFormat,
    g: Tensor,
    x: Tensor,
    weight: Optional,
    running_mean: Optional,
    running_var: Optional,
    mean: Optional,
    root: Optional,
    training: bool,
    eps: float,
    wanted: Sequence[bool],
) -> Gradients:
    """Return gradients of x, weight and bias.

    With running statistics, which are constants, the gradient of x is (g w) r.
    """
    lines, gradient = _channels(x), _channels(g)
    if training:
        assert mean is not None and root is not None
        d, root = grid.sub(lines, mean.unsqueeze(1), fmt), root.unsqueeze(1)
    else:
        d, root = _running(lines, running_mean, running_var, eps, fmt)
    unit, dx = grid.mul(d, root, fmt), None
    if wanted[0] and training:
        dx = _to_lines(gradient, _column(weight), unit, root, fmt)
    elif wanted[0]:
        dx = grid.mul(_affine(gradient, _column(weight), None, fmt), root, fmt)
    return (
        None if dx is None else _images(dx, x.shape),
        products_along(gradient, unit, fmt) if wanted[1] else None,
        total(gradient, 1, False, fmt) if wanted[2] else None,
    )


@covers("native_layer_norm", checked=True)
def layer_norm(
    fmt: PositFormat,
    x: Tensor,
    shape: Sequence[int],
    weight: Optional,
    bias: Optional,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Normalise over the last dimensions, ``shape``."""
    outer = x.shape[: x.dim() - len(shape)]
    mean, d, squares = _centred(x.flatten(len(outer)), fmt)
    root = _root(divided(squares, d.shape[-1], fmt), eps, fmt)
    y = _affine(grid.mul(d, root, fmt), _flat(weight), _flat(bias), fmt)
    kept = (*outer, *[1] * len(shape))
    return y.reshape(x.shape), mean.reshape(kept), root.reshape(kept)


def _flat(x: Optional) -> Optional:
    return None if x is None else x.flatten()


@covers("native_layer_norm_backward")
def layer_norm_backward(
    fmt: PositFormat,
    g: Tensor,
    x: Tensor,
    shape: Sequence[int],
    mean: Tensor,
    root: Tensor,
    weight: Optional,
    bias: Optional,
    wanted: Sequence[bool],
) -> Gradients:
    """Return gradients of x, weight and bias."""
    length = weight.numel() if weight is not None else torch.Size(shape).numel()
    lines, gradient = x.reshape(-1, length), g.reshape(-1, length)
    root = root.reshape(-1, 1)
    unit = grid.mul(grid.sub(lines, mean.reshape(-1, 1), fmt), root, fmt)
    dx = _to_lines(gradient, _flat(weight), unit, root, fmt) if wanted[0] else None
    return (
        None if dx is None else dx.reshape(x.shape),
        products_along(gradient.t(), unit.t(), fmt).reshape(shape) if wanted[1] else None,
        total(gradient, 0, False, fmt).reshape(shape) if wanted[2] else None,
    )


def _by_group(x: Optional, groups: int) -> Optional:
    """Reshape weights of channels to (groups, channels of a group, 1)."""
    return None if x is None else x.reshape(groups, -1, 1)


@covers("native_group_norm")
def group_norm(
    fmt: PositFormat,
    x: Tensor,
    weight: Optional,
    bias: Optional,
    batch: int,
    channels: int,
    size: int,
    groups: int,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Normalise over groups of channels of each image."""
    mean, d, squares = _centred(x.reshape(batch, groups, channels // groups * size), fmt)
    root = _root(divided(squares, d.shape[-1], fmt), eps, fmt)
    unit = grid.mul(d, root, fmt).reshape(batch, groups, channels // groups, size)
    y = _affine(unit, _by_group(weight, groups), _by_group(bias, groups), fmt)
    return y.reshape(x.shape), mean.squeeze(-1), root.squeeze(-1)


@covers("native_group_norm_backward")
def group_norm_backward(
    fmt: PositFormat,
    g: Tensor,
    x: Tensor,
    mean: Tensor,
    root: Tensor,
    weight: Optional,
    batch: int,
    channels: int,
    size: int,
    groups: int,
    wanted: Sequence[bool],
) -> Gradients:
    """Return gradients of x, weight and bias."""
    root = root.unsqueeze(-1)
    shape = (batch, groups, channels // groups * size)
    lines, gradient = x.reshape(shape), g.reshape(shape)
    unit = grid.mul(grid.sub(lines, mean.unsqueeze(-1), fmt), root, fmt)
    scale = _by_group(weight, groups)
    if scale is not None:
        scale = scale.expand(groups, -1, size).reshape(groups, -1)
    dx = _to_lines(gradient, scale, unit, root, fmt) if wanted[0] else None
    by_channel, units = (_channels(t.reshape(batch, channels, size)) for t in (gradient, unit))
    return (
        None if dx is None else dx.reshape(x.shape),
        products_along(by_channel, units, fmt) if wanted[1] else None,
        total(by_channel, 1, False, fmt) if wanted[2] else None,
    )


@covers("var.correction")
def variance(
    fmt: PositFormat,
    x: Tensor,
    dims: list[int] | None = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
) -> Tensor:
    """Compute the variance, sum of d d / (count - correction) with d = x - mean."""
    over = dims_of(x, dims)
    lines = lines_along(x, over)
    _, _, squares = _centred(lines, fmt)
    count = lines.shape[-1] - (1 if correction is None else correction)  # as torch: 1 by default
    y = grid.div(squares.squeeze(-1), operand(max(0, count), fmt, x), fmt)
    return put_back(y, over, keepdim)


@covers("var_mean.correction")
def variance_and_mean(
    fmt: PositFormat, x: Tensor, dims: list[int] | None = None, *, keepdim: bool = False, **how: Any
) -> tuple[Tensor, Tensor]:
    """Return the variance and the mean."""
    mean = dim_mean(fmt, x, dims, keepdim)
    return variance(fmt, x, dims, keepdim=keepdim, **how), mean


@covers("std_mean.correction")
def deviation_and_mean(
    fmt: PositFormat, x: Tensor, dims: list[int] | None = None, **how: Any
) -> tuple[Tensor, Tensor]:
    """Return the root of the variance, and the mean."""
    variances, mean = variance_and_mean(fmt, x, dims, **how)
    return grid.sqrt(variances, fmt), mean


@covers("std.correction")
def deviation(fmt: PositFormat, x: Tensor, dims: list[int] | None = None, **how: Any) -> Tensor:
    """Take the root of the variance."""
    return grid.sqrt(variance(fmt, x, dims, **how), fmt)

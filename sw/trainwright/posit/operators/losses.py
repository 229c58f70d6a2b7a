"""Softmax and losses, with every step rounded."""

import torch
from torch import Tensor

from trainwright.posit import grid
from trainwright.posit.format import PositFormat
from trainwright.posit.operators import functions
from trainwright.posit.operators.registry import UncoveredError, covers, own_type
from trainwright.posit.operators.sums import divided, products_along, total

NONE, MEAN, SUM = range(3)
"""Reductions, as torch numbers them."""


def _exponentials(
    x: Tensor, dim: int | list[int], fmt: PositFormat
) -> tuple[Tensor, Tensor, Tensor]:
    """Return z = x - max x, exp z, and the sum of exp z; exp z is 0 for a hidden x, -maxpos."""
    if not x.numel():  # torch: no maximum of an empty tensor, but a softmax
        return x.clone(), x.clone(), total(x, dim, True, fmt)
    z = grid.sub(x, x.amax(dim, keepdim=True), fmt)
    e = torch.where(x == -fmt.maxpos, 0.0, functions.apply("exp", z, fmt))
    return z, e, total(e, dim, True, fmt)


@covers("_softmax")
def softmax(fmt: PositFormat, x: Tensor, dim: int, to_float: bool) -> Tensor:
    """Compute exp(x - max) / sum of exp(x - max)."""
    _, e, s = _exponentials(x, dim, fmt)
    return grid.div(e, s, fmt)


@covers("logsumexp")
def logsumexp(fmt: PositFormat, x: Tensor, dims: list[int], keepdim: bool = False) -> Tensor:
    """Compute max x + log(sum of exp(x - max x))."""
    over = dims or list(range(x.dim()))
    _, _, s = _exponentials(x, over, fmt)
    y = grid.add(x.amax(over, keepdim=True), functions.apply("log", s, fmt), fmt)
    return y if keepdim else y.squeeze(over)


@covers("_safe_softmax")
def safe_softmax(fmt: PositFormat, x: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor:
    """Compute the softmax, and 0 where all of a line is hidden."""
    own_type(dtype, fmt)
    hidden = (x == -fmt.maxpos).all(dim, keepdim=True)
    return torch.where(hidden, 0.0, softmax(fmt, x, dim, False))


@covers("_log_softmax")
def log_softmax(fmt: PositFormat, x: Tensor, dim: int, to_float: bool) -> Tensor:
    """Compute (x - max) - log(sum of exp(x - max))."""
    z, _, s = _exponentials(x, dim, fmt)
    y = grid.sub(z, functions.apply("log", s, fmt), fmt)
    return torch.where(x == -fmt.maxpos, -fmt.maxpos, y)


@covers("_softmax_backward_data")
def softmax_backward(
    fmt: PositFormat, g: Tensor, y: Tensor, dim: int, dtype: torch.dtype
) -> Tensor:
    """Compute (g - sum of g y) y."""
    own_type(dtype, fmt)
    a, b = g.movedim(dim, -1), y.movedim(dim, -1)
    inner = products_along(a, b, fmt).unsqueeze(dim)
    return grid.mul(grid.sub(g, inner, fmt), y, fmt)


@covers("_log_softmax_backward_data")
def log_softmax_backward(
    fmt: PositFormat, g: Tensor, y: Tensor, dim: int, dtype: torch.dtype
) -> Tensor:
    """Compute g - exp(y) sum of g."""
    own_type(dtype, fmt)
    p = torch.where(y == -fmt.maxpos, 0.0, functions.apply("exp", y, fmt))
    return grid.sub(g, grid.mul(p, total(g, dim, True, fmt), fmt), fmt)


def _reduced(x: Tensor, reduction: int, fmt: PositFormat) -> Tensor:
    if reduction == NONE:
        return x
    summed = total(x, None, False, fmt)
    return divided(summed, x.numel(), fmt) if reduction == MEAN else summed


@covers("mse_loss")
def mse_loss(fmt: PositFormat, x: Tensor, y: Tensor, reduction: int = MEAN) -> Tensor:
    """Compute (x - y)^2, its sum, or the sum divided by the count."""
    difference = grid.sub(x, y, fmt)
    return _reduced(grid.mul(difference, difference, fmt), reduction, fmt)


@covers("mse_loss_backward")
def mse_loss_backward(fmt: PositFormat, g: Tensor, x: Tensor, y: Tensor, reduction: int) -> Tensor:
    """Compute (2 (x - y)) g, divided by the count for a mean."""
    difference = grid.sub(x, y, fmt)
    gradient = grid.mul(grid.add(difference, difference, fmt), g, fmt)
    return divided(gradient, x.numel(), fmt) if reduction == MEAN else gradient


def _weights(
    fmt: PositFormat, x: Tensor, target: Tensor, weight: Tensor | None, ignored: int
) -> tuple[Tensor, Tensor]:
    """Return (places of the classes, their weights), 0 where the target is ignored.

    ``x`` is (B, C).
    """
    if x.dim() != 2:
        raise UncoveredError(f"nll_loss of {x.dim()} dimensions is not covered for posits, only 2")
    counts = target != ignored
    place = target.where(counts, 0).unsqueeze(1)
    w = x.new_ones(place.shape) if weight is None else weight[place]
    return place, w * counts.unsqueeze(1)


@covers("nll_loss_forward")
def nll_loss(
    fmt: PositFormat,
    x: Tensor,
    target: Tensor,
    weight: Tensor | None,
    reduction: int,
    ignore_index: int,
) -> tuple[Tensor, Tensor]:
    """Compute -w x at the target, its sum, or the sum divided by the sum of w.

    ``x`` is (B, C) and ``target`` (B).
    """
    place, w = _weights(fmt, x, target, weight, ignore_index)
    loss = grid.mul(0 - x.gather(1, place), w, fmt)
    loss = torch.where(w == 0, 0.0, loss).squeeze(1)
    if reduction == NONE:
        return loss, x.new_zeros(())
    weights = total(w, None, False, fmt)
    loss = total(loss, None, False, fmt)
    return (grid.div(loss, weights, fmt) if reduction == MEAN else loss), weights


@covers("nll_loss_backward")
def nll_loss_backward(
    fmt: PositFormat,
    g: Tensor,
    x: Tensor,
    target: Tensor,
    weight: Tensor | None,
    reduction: int,
    ignore_index: int,
    weights: Tensor,
) -> Tensor:
    """Return -w g at the target and 0 elsewhere; a mean uses g / sum of w for g."""
    place, w = _weights(fmt, x, target, weight, ignore_index)
    g = grid.div(g, weights, fmt) if reduction == MEAN else g
    g = g.unsqueeze(1) if g.dim() else g.expand(w.shape)
    return torch.zeros_like(x).scatter_(1, place, 0 - grid.mul(w, g, fmt))


def _pixels(x: Tensor) -> Tensor:
    """Reshape (B, C, H, W) to (B H W, C)."""
    return x.permute(0, 2, 3, 1).flatten(0, 2)


@covers("nll_loss2d_forward")
def nll_loss_of_images(
    fmt: PositFormat,
    x: Tensor,
    target: Tensor,
    weight: Tensor | None,
    reduction: int,
    ignore_index: int,
) -> tuple[Tensor, Tensor]:
    """Compute ``nll_loss`` over pixels: ``x`` is (B, C, H, W) and ``target`` (B, H, W)."""
    loss, weights = nll_loss(fmt, _pixels(x), target.flatten(), weight, reduction, ignore_index)
    return loss.reshape(target.shape if reduction == NONE else ()), weights


@covers("nll_loss2d_backward")
def nll_loss_of_images_backward(
    fmt: PositFormat,
    g: Tensor,
    x: Tensor,
    target: Tensor,
    weight: Tensor | None,
    reduction: int,
    ignore_index: int,
    weights: Tensor,
) -> Tensor:
    """Return the gradient of ``nll_loss`` over pixels."""
    batch, channels, height, width = x.shape
    dx = nll_loss_backward(
        fmt, g.flatten() if g.dim() else g, _pixels(x), target.flatten(), weight, reduction,
        ignore_index, weights,
    )  # fmt: skip
    return dx.reshape(batch, height, width, channels).permute(0, 3, 1, 2)


@covers("binary_cross_entropy_with_logits")
def binary_cross_entropy_of_logits(
    fmt: PositFormat,
    x: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    positive: Tensor | None = None,
    reduction: int = MEAN,
) -> Tensor:
    """Compute (1 - t) x + u softplus(-x), u = 1 + (p - 1) t for a weight p of positive classes."""
    unit = x.new_ones(())
    loss = functions.apply("softplus", 0 - x, fmt)
    if positive is not None:
        scale = grid.add(grid.mul(grid.sub(positive, unit, fmt), target, fmt), unit, fmt)
        loss = grid.mul(loss, scale, fmt)
    loss = grid.add(grid.mul(grid.sub(unit, target, fmt), x, fmt), loss, fmt)
    return _reduced(loss if weight is None else grid.mul(loss, weight, fmt), reduction, fmt)

"""Softmax and losses, with every step rounded."""

import torch
from torch import Tensor

from trainwright.posit import grid
from trainwright.posit.format import PositFormat
from trainwright.posit.operators import functions
from trainwright.posit.operators.registry import covers, number, operand, own_type
from trainwright.posit.operators.sums import dims_of, divided, products_along, total

NONE, MEAN, SUM = range(3)
"""Reductions, as torch numbers them."""


def _exponentials(
    x: Tensor, dim: int | list[int], fmt: PositFormat
) -> tuple[Tensor, Tensor, Tensor]:
    """Return z = x - max x, exp z, and the sum of exp z; exp z is 0 for a hidden x, -maxpos."""
    dims_of(x, dim)
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
    """Compute max x + log(sum of exp(x - max x)); NaR, the log of 0, where the sum is empty.

    Elements of -maxpos count as 0, as hidden scores; a line of them alone gives -maxpos.
    """
    over = dims or list(range(x.dim()))
    _, _, s = _exponentials(x, over, fmt)
    y = functions.apply("log", s, fmt)
    if x.numel():
        most = x.amax(over, keepdim=True)
        y = torch.where(most == -fmt.maxpos, most, grid.add(most, y, fmt))
    return y if keepdim else y.squeeze(over)


@covers("logcumsumexp")
def cumulative_logsumexp(fmt: PositFormat, x: Tensor, dim: int) -> Tensor:
    """Compute the ``logsumexp`` of the elements up to each place."""
    dims_of(x, dim)
    if not x.numel() or not x.dim():
        return x.clone()
    places = range(1, x.shape[dim] + 1)
    return torch.cat([logsumexp(fmt, x.narrow(dim, 0, k), [dim], True) for k in places], dim)


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
    if not y.dim():  # torch takes a number for a tensor of one
        return softmax_backward(fmt, g[None], y[None], 0, dtype)[0]
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
    difference = grid.sub(x, operand(y, fmt, x), fmt)
    return _reduced(grid.mul(difference, difference, fmt), reduction, fmt)


@covers("mse_loss_backward")
def mse_loss_backward(fmt: PositFormat, g: Tensor, x: Tensor, y: Tensor, reduction: int) -> Tensor:
    """Compute (2 (x - y)) g, divided by the count for a mean."""
    difference = grid.sub(x, operand(y, fmt, x), fmt)
    return _shared(grid.mul(grid.add(difference, difference, fmt), g, fmt), reduction, fmt)


@covers("huber_loss", checked=True)
def huber_loss(
    fmt: PositFormat, x: Tensor, y: Tensor, reduction: int = MEAN, width: float = 1.0
) -> Tensor:
    """Compute (1/2) d^2 up to the width w, w (|d| - (1/2) w) from there, d = x - y."""
    d, half, w = grid.sub(x, operand(y, fmt, x), fmt), operand(0.5, fmt, x), operand(width, fmt, x)
    far = grid.mul(w, grid.sub(d.abs(), grid.mul(half, w, fmt), fmt), fmt)
    near = grid.mul(half, grid.mul(d, d, fmt), fmt)
    return _reduced(torch.where(d.abs() > w, far, near), reduction, fmt)


@covers("huber_loss_backward")
def huber_loss_backward(
    fmt: PositFormat, g: Tensor, x: Tensor, y: Tensor, reduction: int, width: float
) -> Tensor:
    """Compute d g, d clamped to the width; a mean divides by the count."""
    w = number(width, fmt)
    return _shared(
        grid.mul(grid.sub(x, operand(y, fmt, x), fmt).clamp(-w, w), g, fmt), reduction, fmt
    )


@covers("smooth_l1_loss")
def smooth_l1_loss(
    fmt: PositFormat, x: Tensor, y: Tensor, reduction: int = MEAN, width: float = 1.0
) -> Tensor:
    """Compute ((1/2) d^2) / w below the width w, |d| - (1/2) w from there, d = x - y."""
    if width < 0:
        raise RuntimeError(f"beta of smooth_l1_loss must be at least 0, not {width}")
    d, half, w = grid.sub(x, operand(y, fmt, x), fmt), operand(0.5, fmt, x), operand(width, fmt, x)
    far = grid.sub(d.abs(), grid.mul(half, w, fmt), fmt)
    near = grid.div(grid.mul(half, grid.mul(d, d, fmt), fmt), w, fmt)
    return _reduced(torch.where(d.abs() < w, near, far), reduction, fmt)


@covers("smooth_l1_loss_backward")
def smooth_l1_loss_backward(
    fmt: PositFormat, g: Tensor, x: Tensor, y: Tensor, reduction: int, width: float
) -> Tensor:
    """Compute g clamp(d, -w, w) / w, sign d where w is 0; a mean divides by the count."""
    d, w = grid.sub(x, operand(y, fmt, x), fmt), operand(width, fmt, x)
    slope = torch.where(d.abs() < w, grid.div(d, w, fmt), d.sign() + 0.0)
    return _shared(grid.mul(torch.where(d.isnan(), d, slope), g, fmt), reduction, fmt)


def _shared(gradient: Tensor, reduction: int, fmt: PositFormat) -> Tensor:
    """Divide a gradient by its count if the loss is a mean."""
    return divided(gradient, gradient.numel(), fmt) if reduction == MEAN else gradient


def _require_chances(**tensors: Tensor) -> None:
    """Raise ``RuntimeError`` for values outside 0 to 1, NaR among them."""
    for name, values in tensors.items():
        outside = values[~((values >= 0) & (values <= 1))]
        if len(outside):
            first = "NaR" if outside[0].isnan() else f"{outside[0].item():g}"
            raise RuntimeError(
                f"binary_cross_entropy needs elements of {name} from 0 to 1, not {first}"
                + (": take sigmoid first, or *_with_logits" if name == "input" else "")
            )


@covers("binary_cross_entropy")
def binary_cross_entropy(
    fmt: PositFormat,
    x: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    reduction: int = MEAN,
) -> Tensor:
    """Compute -(t log x + (1 - t) log(1 - x)), with logarithms of at least -100.

    Raises ``RuntimeError`` for an input or a target outside 0 to 1, and for NaR, as torch does.
    """
    target, unit, low = operand(target, fmt, x), x.new_ones(()), number(-100.0, fmt)
    _require_chances(input=x, target=target)

    def logarithm(t: Tensor) -> Tensor:
        return torch.where(t == 0, low, functions.apply("log", t, fmt).clamp(min=low))

    parts = (
        grid.mul(target, logarithm(x), fmt),
        grid.mul(grid.sub(unit, target, fmt), logarithm(grid.sub(unit, x, fmt)), fmt),
    )
    loss = 0 - grid.add(*parts, fmt)
    return _reduced(loss if weight is None else grid.mul(loss, weight, fmt), reduction, fmt)


@covers("binary_cross_entropy_backward")
def binary_cross_entropy_backward(
    fmt: PositFormat,
    g: Tensor,
    x: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    reduction: int = MEAN,
) -> Tensor:
    """Compute (g (x - t)) / max((1 - x) x, 1e-12); a mean divides by the count."""
    slope = grid.mul(grid.sub(x.new_ones(()), x, fmt), x, fmt).clamp(min=number(1e-12, fmt))
    y = grid.div(grid.mul(g, grid.sub(x, operand(target, fmt, x), fmt), fmt), slope, fmt)
    return _shared(y if weight is None else grid.mul(y, weight, fmt), reduction, fmt)


@covers("soft_margin_loss")
def soft_margin_loss(fmt: PositFormat, x: Tensor, y: Tensor, reduction: int = MEAN) -> Tensor:
    """Compute softplus(-(y x)), which is log(1 + exp(-y x)) as one function."""
    z = grid.mul(operand(y, fmt, x), x, fmt)
    return _reduced(functions.apply("softplus", 0 - z, fmt), reduction, fmt)


@covers("soft_margin_loss_backward")
def soft_margin_loss_backward(
    fmt: PositFormat, g: Tensor, x: Tensor, y: Tensor, reduction: int
) -> Tensor:
    """Compute -((y sigmoid(-(y x))) g); a mean divides by the count."""
    y = operand(y, fmt, x)
    s = functions.apply("sigmoid", 0 - grid.mul(y, x, fmt), fmt)
    return _shared(0 - grid.mul(grid.mul(y, s, fmt), g, fmt), reduction, fmt)


def _margins(
    fmt: PositFormat, x: Tensor, target: Tensor, margin: float, weight: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return places (B, 1), margins m - x_t + x_j above 0, and their weights, (B, C) each.

    The own class has margin 0. A weight is that of the target, or 1.
    """
    place = target.reshape(-1, 1)
    z = grid.add(grid.sub(operand(margin, fmt, x), x.gather(1, place), fmt), x, fmt)
    z = z.clamp(min=0).scatter(1, place, 0.0)
    return place, z, z.new_ones(()) if weight is None else weight[place]


@covers("multi_margin_loss")
def multi_margin_loss(
    fmt: PositFormat,
    x: Tensor,
    target: Tensor,
    p: float = 1,
    margin: float = 1,
    weight: Tensor | None = None,
    reduction: int = MEAN,
) -> Tensor:
    """Compute (sum of w z^p, z = m - x_t + x_j above 0) / C of each sample."""
    rows = x if x.dim() == 2 else x.reshape(1, -1)
    _, z, w = _margins(fmt, rows, target, margin, weight)
    terms = grid.mul(z if p == 1 else grid.mul(z, z, fmt), w, fmt)
    loss = divided(total(terms, 1, False, fmt), rows.shape[1], fmt)
    return _reduced(loss.reshape(target.shape), reduction, fmt)


@covers("multi_margin_loss_backward")
def multi_margin_loss_backward(
    fmt: PositFormat,
    g: Tensor,
    x: Tensor,
    target: Tensor,
    p: float,
    margin: float,
    weight: Tensor | None = None,
    reduction: int = MEAN,
) -> Tensor:
    """Compute ((w or (2 z) w) / C) g where z is above 0; less the sum of these at the target."""
    rows = x if x.dim() == 2 else x.reshape(1, -1)
    place, z, w = _margins(fmt, rows, target, margin, weight)
    slope = w.expand(z.shape) if p == 1 else grid.mul(grid.add(z, z, fmt), w, fmt)
    slope = torch.where(z == 0, 0.0, divided(slope, rows.shape[1], fmt))
    y = grid.mul(slope, g.reshape(-1, 1) if g.dim() else g, fmt)
    y = divided(y, len(rows), fmt) if reduction == MEAN else y
    return y.scatter(1, place, 0 - total(y, 1, True, fmt)).reshape(x.shape)


def _weights(
    fmt: PositFormat, x: Tensor, target: Tensor, weight: Tensor | None, ignored: int
) -> tuple[Tensor, Tensor]:
    """Return (places of the classes, their weights), 0 where the target is ignored.

    ``x`` is (B, C).
    """
    counts = target != ignored
    place = target.where(counts, 0).unsqueeze(1)
    w = x.new_ones(place.shape) if weight is None else weight[place]
    return place, w * counts.unsqueeze(1)


def _rows(x: Tensor) -> Tensor:
    """Reshape (C), (B, C) or (B, C, H, W) to rows of classes."""
    return (x if x.dim() > 1 else x.unsqueeze(0)).movedim(1, -1).flatten(0, -2)


@covers("nll_loss_forward", "nll_loss2d_forward", checked=True)
def nll_loss(
    fmt: PositFormat,
    x: Tensor,
    target: Tensor,
    weight: Tensor | None,
    reduction: int,
    ignore_index: int,
) -> tuple[Tensor, Tensor]:
    """Compute -w x at the target, its sum, or the sum divided by the sum of w.

    ``x`` is (B, C) or (B, C, H, W) and ``target`` (B) or (B, H, W), or (C) and ().
    """
    rows = _rows(x)
    place, w = _weights(fmt, rows, target.flatten(), weight, ignore_index)
    loss = grid.mul(0 - rows.gather(1, place), w, fmt)
    loss = torch.where(w == 0, 0.0, loss).squeeze(1)
    if reduction == NONE:
        return loss.reshape(target.shape if x.dim() > 1 else ()), x.new_zeros(())
    weights = total(w, None, False, fmt)
    loss = total(loss, None, False, fmt)
    return (grid.div(loss, weights, fmt) if reduction == MEAN else loss), weights


@covers("nll_loss_backward", "nll_loss2d_backward")
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
    rows = _rows(x)
    place, w = _weights(fmt, rows, target.flatten(), weight, ignore_index)
    g = grid.div(g, weights, fmt) if reduction == MEAN else g
    g = g.flatten().unsqueeze(1).expand(w.shape)
    dx = torch.zeros_like(rows).scatter_(1, place, 0 - grid.mul(w, g, fmt))
    batch, *sides = x.shape if x.dim() > 1 else (1, *x.shape)
    return dx.reshape(batch, *sides[1:], sides[0]).movedim(-1, 1).reshape(x.shape)


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
    target = operand(target, fmt, x)
    unit = x.new_ones(())
    loss = functions.apply("softplus", 0 - x, fmt)
    if positive is not None:
        scale = grid.add(grid.mul(grid.sub(positive, unit, fmt), target, fmt), unit, fmt)
        loss = grid.mul(loss, scale, fmt)
    loss = grid.add(grid.mul(grid.sub(unit, target, fmt), x, fmt), loss, fmt)
    return _reduced(loss if weight is None else grid.mul(loss, weight, fmt), reduction, fmt)

"""Cases of functions, losses, convolutions and pooling."""

import torch
import torch.nn.functional as F
from posit_operator_bench import registry

from trainwright import posit

CASES, case = registry()


@case
def functions(b):
    x = b.some(200, scale=3.0)
    positive = torch.where(posit.decode(x, b.fmt) > 0, x, b.number(1.5))
    for name in ("exp", "expm1", "tanh", "sigmoid", "log", "log1p"):
        at = positive if name in ("log", "log1p") else x
        yield getattr(torch, name)(b.posits(at)), b.apply(name, at)
        yield getattr(torch, f"{name}_")(b.posits(at)), b.apply(name, at)
    p = b.posits(x, grad=True)
    g, unit = b.some(200), b.number(1.0)
    y = b.apply("tanh", x)
    (gradient,) = torch.autograd.grad(p.tanh(), p, b.posits(g))
    yield gradient, b.mul(g, b.sub(unit, b.mul(y, y)))
    y = b.apply("sigmoid", x)
    (gradient,) = torch.autograd.grad(p.sigmoid(), p, b.posits(g))
    yield gradient, b.mul(b.mul(g, b.sub(unit, y)), y)


def _softmax(b, x):
    """Return x - max along the last dimension, its exponentials, and their sum."""
    largest = posit.encode(posit.decode(x, b.fmt).amax(-1, keepdim=True), b.fmt)
    z = b.sub(x, largest)
    e = b.apply("exp", z)
    return z, e, b.total(e, e.dim() - 1).unsqueeze(-1)


@case
def softmax(b):
    x, g = b.some(4, 6, scale=2.0), b.some(4, 6)
    p = b.posits(x, grad=True)
    z, e, s = _softmax(b, x)
    y = b.div(e, s)
    yield p.softmax(1), y
    yield p.t().softmax(0), y.t()
    (gradient,) = torch.autograd.grad(p.softmax(1), p, b.posits(g))
    yield gradient, b.mul(b.sub(g, b.dot(g, y).unsqueeze(1)), y)
    y = b.sub(z, b.apply("log", s))
    yield p.log_softmax(1), y
    (gradient,) = torch.autograd.grad(p.log_softmax(1), p, b.posits(g))
    yield gradient, b.sub(g, b.mul(b.apply("exp", y), b.total(g, 1).unsqueeze(1)))


@case
def squared_errors(b):
    x, y = b.some(3, 4), b.some(3, 4)
    p, q = b.posits(x, grad=True), b.posits(y)
    difference = b.sub(x, y)
    square, count = b.mul(difference, difference), b.number(12.0)
    twice = b.add(difference, difference)
    for reduction, want, gradient in (
        ("none", square, None),
        ("sum", b.total(square, 0, 1), twice),
        ("mean", b.div(b.total(square, 0, 1), count), b.div(twice, count)),
    ):
        loss = F.mse_loss(p, q, reduction=reduction)
        yield loss, want
        if gradient is not None:
            yield torch.autograd.grad(loss, p)[0], gradient


@case
def likelihoods(b):
    x = b.some(4, 3)
    p = b.posits(x, grad=True)
    target = torch.tensor([0, 2, 1, 2])
    weight = b.some(3)
    place = torch.arange(4)
    picked = b.neg(x[place, target])
    w = weight[target]

    def placed(values, where=place):
        scattered = torch.zeros_like(x)
        scattered[where, target[where]] = values
        return scattered

    loss = F.nll_loss(p, target, reduction="none")
    yield loss, picked
    g = b.some(4)
    yield torch.autograd.grad(loss, p, b.posits(g))[0], placed(b.neg(g))
    loss = F.nll_loss(p, target)
    yield loss, b.div(b.total(picked, 0), b.number(4.0))
    yield torch.autograd.grad(loss, p)[0], placed(b.div(b.number(-1.0), b.number(4.0)))
    loss = F.nll_loss(p, target, b.posits(weight), reduction="sum")
    yield loss, b.total(b.mul(picked, w), 0)
    yield torch.autograd.grad(loss, p)[0], placed(b.neg(w))
    loss = F.nll_loss(p, target, b.posits(weight), ignore_index=2)
    kept = torch.tensor([0, 2])
    weights = torch.where(target == 2, 0, w)
    yield (
        loss,
        b.div(b.total(torch.where(target == 2, 0, b.mul(picked, w)), 0), b.total(weights, 0)),
    )
    share = b.div(b.number(1.0), b.total(weights, 0))
    yield torch.autograd.grad(loss, p)[0], placed(b.neg(b.mul(w[kept], share)), kept)


@case
def losses_of_pixels_and_logits(b):
    x, target = b.some(2, 3, 2, 2), torch.tensor([[[0, 2], [1, 2]], [[2, 0], [0, 1]]])
    p = b.posits(x, grad=True)
    picked = b.neg(x.permute(0, 2, 3, 1).gather(3, target.unsqueeze(3)).squeeze(3))
    yield F.nll_loss(p, target, reduction="none"), picked
    loss = F.nll_loss(p, target)
    yield loss, b.div(b.total(picked.flatten(), 0), b.number(8.0))
    share = b.neg(b.div(b.number(1.0), b.number(8.0))).expand(2, 1, 2, 2)
    want = torch.zeros_like(x).scatter(1, target.unsqueeze(1), share)
    yield torch.autograd.grad(loss, p)[0], want
    x, t, w, u = b.special(b.some(12)), b.some(12), b.some(12), b.some(12)
    p, q, r, s = b.posits(x, t, w, u)
    unit, soft = b.number(1.0), b.apply("softplus", b.neg(x))
    loss = b.add(b.mul(b.sub(unit, t), x), soft)
    call = F.binary_cross_entropy_with_logits
    yield call(p, q, reduction="none"), loss
    yield call(p, q), b.div(b.total(loss, 0), b.number(12.0))
    scale = b.add(b.mul(b.sub(u, unit), t), unit)
    loss = b.mul(b.add(b.mul(b.sub(unit, t), x), b.mul(soft, scale)), w)
    yield call(p, q, r, pos_weight=s, reduction="none"), loss
    x = b.some(3, 5)
    _, _, s = _softmax(b, x)
    largest = b.number_of(b.value(x).amax(1))
    yield b.posits(x).logsumexp(1), b.add(largest, b.apply("log", s.squeeze(1)))
    yield b.posits(x).logcumsumexp(1)[:, -1], b.add(largest, b.apply("log", s.squeeze(1)))


def _patches(x, kernel, stride=1):
    """Return (B, H', W', C kh kw) of codes (B, C, H, W)."""
    windows = x.unfold(2, kernel[0], stride).unfold(3, kernel[1], stride)
    return windows.permute(0, 2, 3, 1, 4, 5).flatten(3)


@case
def convolutions(b):
    x, w, bias = b.some(2, 3, 6, 7), b.some(4, 3, 3, 2), b.some(4)
    p, q, r = b.posits(x, w, bias, grad=True)
    patches = _patches(x, (3, 2))  # (2, 4, 6, 18)
    rows, unit = w.flatten(1), b.number(1.0)
    starting = torch.cat([bias.unsqueeze(1), rows], 1)
    lines = torch.cat([unit.expand(*patches.shape[:3], 1), patches], 3).unsqueeze(3)
    want = b.dot(lines, starting).permute(0, 3, 1, 2)
    y = F.conv2d(p, q, r)
    yield y, want
    g = b.some(*want.shape)
    dx, dw, db = torch.autograd.grad(y, (p, q, r), b.posits(g))
    yield db, b.total(g, 0, 2, 3)
    columns = patches.flatten(0, 2)  # (48, 18)
    by_output = g.permute(1, 0, 2, 3).flatten(1)  # (4, 48)
    yield dw, b.matmul(by_output, columns).reshape(w.shape)
    around = F.pad(g, (1, 1, 2, 2))
    turned = w.flip(2, 3).transpose(0, 1).flatten(1)  # (3, 4 * 6)
    yield dx, b.dot(_patches(around, (3, 2)).unsqueeze(3), turned).permute(0, 3, 1, 2)


@case
def convolutions_of_whole_images(b):
    x, w, bias = b.some(2, 3, 4, 5), b.some(6, 3, 4, 5), b.some(6)
    p, q = b.posits(x, w, grad=True)
    y = F.conv2d(p, q)
    yield y, b.matmul(x.flatten(1), w.flatten(1).t())[:, :, None, None]
    g = b.some(2, 6)
    dx, dw = torch.autograd.grad(y, (p, q), b.posits(g[:, :, None, None]))
    yield dx, b.matmul(g, w.flatten(1)).reshape(x.shape)
    yield dw, b.matmul(g.t(), x.flatten(1)).reshape(w.shape)
    unit = b.number(1.0).expand(2, 1)
    start = torch.cat([unit, x.flatten(1)], 1), torch.cat([bias.unsqueeze(1), w.flatten(1)], 1)
    yield F.conv2d(p, q, b.posits(bias)), b.matmul(start[0], start[1].t())[:, :, None, None]


@case
def average_pooling(b):
    x = b.some(2, 3, 6, 8)
    p = b.posits(x, grad=True)
    windows = x.unfold(2, 2, 2).unfold(3, 2, 2).flatten(4)
    four = b.number(4.0)
    y = F.avg_pool2d(p, 2)
    yield y, b.div(b.total(windows, 4), four)
    g = b.some(*y.shape)
    (dx,) = torch.autograd.grad(y, p, b.posits(g))
    yield dx, b.div(g, four).repeat_interleave(2, 2).repeat_interleave(2, 3)
    yield F.avg_pool2d(p, 2, divisor_override=3), b.div(b.total(windows, 4), b.number(3.0))
    # Overlapping windows: an element has the sum of the shares of all that it is in.
    y = F.avg_pool2d(p, (3, 2), 1)
    windows = x.unfold(2, 3, 1).unfold(3, 2, 1).flatten(4)
    yield y, b.div(b.total(windows, 4), b.number(6.0))
    g = b.some(*y.shape)
    (dx,) = torch.autograd.grad(y, p, b.posits(g))
    share = b.div(g, b.number(6.0))
    layers = [F.pad(share, (c, 1 - c, r, 2 - r)) for r in range(3) for c in range(2)]
    yield dx, b.total(torch.stack(layers), 0)
    # Padding that does not count
    y = F.avg_pool2d(p, 3, 3, 1, count_include_pad=False)
    around = F.pad(x, (1, 1, 1, 1)).unfold(2, 3, 3).unfold(3, 3, 3).flatten(4)
    inside = F.pad(torch.ones(6, 8), (1, 1, 1, 1)).unfold(0, 3, 3).unfold(1, 3, 3).sum((2, 3))
    yield y, b.div(b.total(around, 4), posit.encode(inside, b.fmt))


@case
def largest_of_windows(b):
    x = b.some(2, 3, 6, 8)
    p = b.posits(x, grad=True)
    y = F.max_pool2d(p, 2)
    values = posit.decode(x, b.fmt).requires_grad_()
    want = F.max_pool2d(values, 2)
    yield y, posit.encode(want.detach(), b.fmt)
    g = b.some(*y.shape)
    (dx,) = torch.autograd.grad(y, p, b.posits(g))
    (dv,) = torch.autograd.grad(want, values, posit.decode(g, b.fmt))
    yield dx, posit.encode(dv, b.fmt)  # no two windows share an element
    y = F.max_pool2d(p, (3, 2), 1)
    _, index = F.max_pool2d(values.detach(), (3, 2), 1, return_indices=True)
    g = b.some(*y.shape)
    (dx,) = torch.autograd.grad(y, p, b.posits(g))
    layers = []
    for r in range(3):
        for c in range(2):
            at = torch.arange(48).view(6, 8)[r : r + 4, c : c + 7]
            layers.append(F.pad(torch.where(index == at, g, 0), (c, 1 - c, r, 2 - r)))
    yield dx, b.total(torch.stack(layers), 0)

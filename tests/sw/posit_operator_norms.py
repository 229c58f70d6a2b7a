"""Cases of normalisation and of 1 / root, with words of the whole format among them."""

import torch
import torch.nn.functional as F
from posit_operator_bench import registry

CASES, case = registry()
EPS = 0.01


@case
def reciprocal_roots(b):
    x = b.special(b.some(30, scale=4.0))
    yield b.posits(x).rsqrt(), b.rsqrt(x)
    yield b.posits(x).rsqrt_(), b.rsqrt(x)


def statistics(b, lines):
    """Return mean, deviations, their squares' sum and 1 / root (variance + eps) of lines (R, K)."""
    count = b.number(float(lines.shape[-1]))
    mean = b.div(b.total(lines, lines.dim() - 1), count).unsqueeze(-1)
    d = b.sub(lines, mean)
    squares = b.dot(d, d).unsqueeze(-1)
    return mean, d, squares, b.rsqrt(b.add(b.div(squares, count), b.number(EPS)))


def to_lines(b, h, unit, root):
    """Return the gradient to lines from the gradient to their normalised values."""
    count = b.number(float(h.shape[-1]))
    a = b.div(b.total(h, h.dim() - 1), count).unsqueeze(-1)
    c = b.div(b.dot(h, unit), count).unsqueeze(-1)
    return b.mul(b.fma(b.neg(unit), c, b.sub(h, a)), root)


def by_channel(x):
    return x.transpose(0, 1).flatten(1)


def by_image(lines, shape):
    return lines.reshape(shape[1], shape[0], *shape[2:]).transpose(0, 1)


@case
def batch_norms(b):
    for x in (b.some(3, 2, 2, 3), b.special(b.some(4, 3, 5))):
        channels = x.shape[1]
        w, c, old_mean, old_var = (b.some(channels) for _ in range(4))
        old_var = b.mul(old_var, old_var)
        g = b.some(*x.shape)
        p, q, r = b.posits(x, w, c, grad=True)
        mean_now, var_now = b.posits(old_mean, old_var)
        y = F.batch_norm(p, mean_now, var_now, q, r, True, 0.3, EPS)
        lines = by_channel(x)
        mean, d, squares, root = statistics(b, lines)
        unit = b.mul(d, root)
        columns = w.unsqueeze(1), c.unsqueeze(1)
        yield y, by_image(b.fma(unit, *columns), x.shape)
        variance = b.div(squares, b.number(float(lines.shape[1] - 1))).squeeze(1)
        for now, old, new in ((mean_now, old_mean, mean[:, 0]), (var_now, old_var, variance)):
            yield now, b.add(old, b.mul(b.sub(new, old), b.number(0.3)))
        dx, dw, db = torch.autograd.grad(y, (p, q, r), b.posits(g))
        by = by_channel(g)
        yield db, b.total(by, 1)
        yield dw, b.dot(by, unit)
        yield dx, by_image(to_lines(b, b.mul(by, columns[0]), unit, root), x.shape)
        yield (
            F.batch_norm(p, None, None, q, training=True, eps=EPS),
            by_image(b.mul(unit, columns[0]), x.shape),
        )
        yield (
            F.batch_norm(p, None, None, None, r, training=True, eps=EPS),
            by_image(b.add(unit, columns[1]), x.shape),
        )
        y = F.batch_norm(p, *b.posits(old_mean, old_var), q, r, False, 0.3, EPS)
        root = b.rsqrt(b.add(old_var, b.number(EPS))).unsqueeze(1)
        unit = b.mul(b.sub(lines, old_mean.unsqueeze(1)), root)
        yield y, by_image(b.fma(unit, *columns), x.shape)
        dx, dw, db = torch.autograd.grad(y, (p, q, r), b.posits(g))
        yield db, b.total(by, 1)
        yield dw, b.dot(by, unit)
        yield dx, by_image(b.mul(b.mul(by, columns[0]), root), x.shape)


@case
def layer_norms(b):
    for x in (b.some(2, 3, 4), b.special(b.some(2, 3, 4))):
        w, c, g = b.some(3, 4), b.some(3, 4), b.some(2, 3, 4)
        p, q, r = b.posits(x, w, c, grad=True)
        y = F.layer_norm(p, (3, 4), q, r, EPS)
        lines, by = x.flatten(1), g.flatten(1)
        _, d, _, root = statistics(b, lines)
        unit = b.mul(d, root)
        yield y, b.fma(unit, w.flatten(), c.flatten()).reshape(x.shape)
        dx, dw, db = torch.autograd.grad(y, (p, q, r), b.posits(g))
        yield db, b.total(by, 0).reshape(3, 4)
        yield dw, b.dot(by.t(), unit.t()).reshape(3, 4)
        yield dx, to_lines(b, b.mul(by, w.flatten()), unit, root).reshape(x.shape)
        y = F.layer_norm(p, (4,), eps=EPS)
        _, d, _, root = statistics(b, x)
        unit = b.mul(d, root)
        yield y, unit
        yield torch.autograd.grad(y, p, b.posits(g))[0], to_lines(b, g, unit, root)


@case
def group_norms(b):
    x, w, c, g = b.some(2, 6, 4), b.some(6), b.some(6), b.some(2, 6, 4)
    p, q, r = b.posits(x, w, c, grad=True)
    y = F.group_norm(p, 2, q, r, EPS)
    lines, by = x.reshape(2, 2, 12), g.reshape(2, 2, 12)
    _, d, _, root = statistics(b, lines)
    unit = b.mul(d, root)
    channels, scale = unit.reshape(2, 6, 4), w.unsqueeze(1).expand(6, 4)
    yield y, b.fma(channels, w.unsqueeze(1), c.unsqueeze(1))
    dx, dw, db = torch.autograd.grad(y, (p, q, r), b.posits(g))
    yield db, b.total(by_channel(g), 1)
    yield dw, b.dot(by_channel(g), by_channel(channels))
    yield dx, to_lines(b, b.mul(by, scale.reshape(2, 12)), unit, root).reshape(x.shape)
    yield F.group_norm(p, 2, eps=EPS), channels


@case
def variances(b):
    for x in (b.some(3, 4, 2), b.special(b.some(4, 4, 2))):
        p = b.posits(x)
        for dims, lines, correction in (
            ((0, 2), x.permute(1, 0, 2).flatten(1), 1),
            ((1,), x.transpose(1, 2), 0),
            (None, x.flatten(), 1),
        ):
            lines = lines if lines.dim() > 1 else lines.unsqueeze(0)
            _, _, squares, _ = statistics(b, lines)
            count = b.number(float(lines.shape[-1] - correction))
            want = b.div(squares.squeeze(-1), count).squeeze()
            yield p.var(dims, correction=correction), want
            yield p.std(dims, correction=correction), b.sqrt(want)
    yield b.posits(x).var(1, keepdim=True).shape, (4, 1, 2)

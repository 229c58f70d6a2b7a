"""For every operator of posit tensors: what it gives, and the same by functions on codes.

A case takes a ``Bench`` and yields pairs: a posit tensor, or what else torch returns, and codes.
"""

import torch
import torch.nn.functional as F
from posit_cases import generator

from ttforge import posit
from ttforge.posit import PositTensor

CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


class Bench:
    """Random posits, and arithmetic on codes, in one format and mode."""

    def __init__(self, fmt, mode):
        self.fmt, self.mode, self.g = fmt, mode, generator(1)

    def some(self, *shape, scale=1.0):
        x = torch.randn(shape, generator=self.g, dtype=torch.float64) * scale
        return posit.encode(x, self.fmt)

    def posits(self, *codes, grad=False):
        made = [PositTensor.from_codes(c, self.fmt).requires_grad_(grad) for c in codes]
        return made if len(made) > 1 else made[0]

    def number(self, x):
        return posit.encode(torch.tensor(x, dtype=torch.float64), self.fmt)

    def add(self, a, b):
        return posit.add(a, b, self.fmt)

    def sub(self, a, b):
        return posit.sub(a, b, self.fmt)

    def mul(self, a, b):
        return posit.mul(a, b, self.fmt)

    def div(self, a, b):
        return posit.div(a, b, self.fmt)

    def neg(self, a):
        return self.sub(torch.zeros_like(a), a)

    def dot(self, a, b):
        return posit.dot(a, b, self.fmt, self.mode)

    def matmul(self, a, b):
        return posit.matmul(a, b, self.fmt, self.mode)

    def total(self, a, *dims):
        kept = [d for d in range(a.dim()) if d not in dims]
        lines = a.permute(*kept, *dims).reshape([*(a.shape[d] for d in kept), -1])
        return self.dot(lines, self.number(1.0).expand(lines.shape))

    def apply(self, name, a):
        return posit.encode(getattr(torch, name)(posit.decode(a, self.fmt)), self.fmt)


@case
def additions(b):
    x, y = b.some(4, 5), b.some(5)
    p, q = b.posits(x, y)
    yield p + q, b.add(x, y)
    yield p - q, b.sub(x, y)
    yield torch.add(p, q, alpha=0.3), b.add(x, b.mul(y, b.number(0.3)))
    yield torch.sub(p, q, alpha=3), b.sub(x, b.mul(y, b.number(3.0)))
    yield torch.rsub(p, q, alpha=3), b.sub(y, b.mul(x, b.number(3.0)))
    yield p + 1.7, b.add(x, b.number(1.7))
    yield p - 1.7, b.sub(x, b.number(1.7))
    yield 1.7 - p, b.sub(b.number(1.7), x)
    aten = torch.ops.aten
    yield aten.add.Scalar(p, 1.7, 2), b.add(x, b.mul(b.number(1.7), b.number(2.0)))
    yield aten.sub.Scalar(p, 1.7), b.sub(x, b.number(1.7))
    r = p.clone()
    r += q
    yield r, b.add(x, y)
    r -= q
    yield r, b.sub(b.add(x, y), y)
    yield aten.add_.Scalar(p.clone(), 1), b.add(x, b.number(1.0))
    yield aten.sub_.Scalar(p.clone(), 1), b.sub(x, b.number(1.0))


@case
def products_and_quotients(b):
    x, y = b.some(4, 5), b.some(4, 1)
    p, q = b.posits(x, y)
    aten = torch.ops.aten
    yield p * q, b.mul(x, y)
    yield p * 0.1, b.mul(x, b.number(0.1))
    yield aten.mul.Scalar(p, 0.1), b.mul(x, b.number(0.1))
    yield p / q, b.div(x, y)
    yield p / 0.3, b.div(x, b.number(0.3))
    yield aten.div.Scalar(p, 0.3), b.div(x, b.number(0.3))
    yield 1 / p, b.div(b.number(1.0), x)
    yield p.reciprocal(), b.div(b.number(1.0), x)
    yield aten.reciprocal_.default(p.clone()), b.div(b.number(1.0), x)
    yield p.clone().mul_(q), b.mul(x, y)
    yield p.clone().div_(q), b.div(x, y)
    yield aten.mul_.Scalar(p.clone(), 3), b.mul(x, b.number(3.0))
    yield aten.div_.Scalar(p.clone(), 3), b.div(x, b.number(3.0))


@case
def roots_and_powers(b):
    x = b.some(30)
    p = b.posits(x)
    root, square = posit.sqrt(x, b.fmt), b.mul(x, x)
    yield p.sqrt(), root
    yield p.clone().sqrt_(), root
    yield p.square(), square
    yield torch.ops.aten.square.default(p), square
    yield torch.ops.aten.square_.default(p.clone()), square
    for exponent, want in (
        (2, square),
        (0.5, root),
        (1, x),
        (3, b.mul(square, x)),
        (-1, b.div(b.number(1.0), x)),
        (-2, b.div(b.number(1.0), square)),
        (-0.5, b.div(b.number(1.0), root)),
        (0, b.number(1.0).expand(x.shape)),
    ):
        yield torch.ops.aten.pow.Tensor_Scalar(p, exponent), want
        yield p.clone().pow_(exponent), want


@case
def optimisers(b):
    """What Adam and SGD are made of, in the order of the paper's Listing 9: (value a) b."""
    x, y, z = (b.some(3, 4) for _ in range(3))
    p, q, r = b.posits(x, y, z)
    scaled = b.mul(y, b.number(0.3))
    yield torch.addcmul(p, q, r, value=0.3), b.add(x, b.mul(scaled, z))
    yield torch.addcmul(p, q, r), b.add(x, b.mul(y, z))
    yield p.clone().addcmul_(q, r, value=0.3), b.add(x, b.mul(scaled, z))
    yield torch.addcdiv(p, q, r, value=0.3), b.add(x, b.div(scaled, z))
    yield p.clone().addcdiv_(q, r, value=0.3), b.add(x, b.div(scaled, z))
    way = b.sub(y, x)
    yield torch.lerp(p, q, 0.3), b.add(x, b.mul(way, b.number(0.3)))
    yield p.clone().lerp_(q, 0.8), b.sub(y, b.mul(way, b.number(1 - 0.8)))


@case
def sums(b):
    x = b.some(3, 4, 5)
    p = b.posits(x)
    yield p.sum(), b.total(x, 0, 1, 2)
    yield p.sum((0, 2)), b.total(x, 0, 2)
    yield p.sum(1, keepdim=True), b.total(x, 1).unsqueeze(1)
    yield p.mean(), b.div(b.total(x, 0, 1, 2), b.number(60.0))
    yield p.mean((1, 2)), b.div(b.total(x, 1, 2), b.number(20.0))
    yield p.mean(0, keepdim=True), b.div(b.total(x, 0), b.number(3.0)).unsqueeze(0)
    yield p[0, 0, 0].sum(), x[0, 0, 0]
    flat = x.flatten()
    yield p.norm(), posit.sqrt(b.dot(flat, flat), b.fmt)
    yield (
        torch.linalg.vector_norm(p, dim=1, keepdim=True),
        posit.sqrt(b.dot(x.mT, x.mT), b.fmt).unsqueeze(1),
    )


@case
def matrix_products(b):
    x, y, z = b.some(3, 4), b.some(4, 5), b.some(3, 5)
    p, q, r = b.posits(x, y, z)
    product = b.matmul(x, y)
    yield p @ q, product
    yield torch.mv(p, q[:, 0]), product[:, 0]
    yield torch.dot(p[0], q[:, 0]), product[0, 0]
    yield torch.bmm(p.expand(2, 3, 4), q.expand(2, 4, 5)), product.expand(2, 3, 5)
    # The start is in the sum: a product with 1 before the others.
    one = b.number(1.0)
    rows = torch.cat([z.unsqueeze(2), x.unsqueeze(1).expand(3, 5, 4)], 2)
    columns = torch.cat([one.expand(5, 1), y.t()], 1)
    whole = b.dot(rows, columns)
    yield torch.addmm(r, p, q), whole
    yield (
        torch.baddbmm(r.expand(2, 3, 5), p.expand(2, 3, 4), q.expand(2, 4, 5)),
        whole.expand(2, 3, 5),
    )
    two, half = b.number(2.0), b.number(0.3)
    want = b.add(b.mul(z, two), b.mul(product, half))
    yield torch.addmm(r, p, q, beta=2, alpha=0.3), want
    yield r.clone().addmm_(p, q, beta=2, alpha=0.3), want
    yield (
        r.expand(2, 3, 5).clone().baddbmm_(p.expand(2, 3, 4), q.expand(2, 4, 5)),
        whole.expand(2, 3, 5),
    )


@case
def functions(b):
    x = b.some(200, scale=3.0)
    positive = torch.where(posit.decode(x, b.fmt) > 0, x, b.number(1.5))
    for name in ("exp", "expm1", "tanh", "sigmoid", "log", "log1p"):
        at = positive if name in ("log", "log1p") else x
        yield getattr(torch, name)(b.posits(at)), b.apply(name, at)
        yield getattr(torch, f"{name}_")(b.posits(at)), b.apply(name, at)
    p = b.posits(x, grad=True)
    g, one = b.some(200), b.number(1.0)
    y = b.apply("tanh", x)
    (found,) = torch.autograd.grad(p.tanh(), p, b.posits(g))
    yield found, b.mul(g, b.sub(one, b.mul(y, y)))
    y = b.apply("sigmoid", x)
    (found,) = torch.autograd.grad(p.sigmoid(), p, b.posits(g))
    yield found, b.mul(b.mul(g, b.sub(one, y)), y)


def _softmax(b, x):
    """Along the last dimension: (x - max, its exponentials, their sum)."""
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
    (found,) = torch.autograd.grad(p.softmax(1), p, b.posits(g))
    yield found, b.mul(b.sub(g, b.dot(g, y).unsqueeze(1)), y)
    y = b.sub(z, b.apply("log", s))
    yield p.log_softmax(1), y
    (found,) = torch.autograd.grad(p.log_softmax(1), p, b.posits(g))
    yield found, b.sub(g, b.mul(b.apply("exp", y), b.total(g, 1).unsqueeze(1)))


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
        found = torch.zeros_like(x)
        found[where, target[where]] = values
        return found

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
    some = torch.where(target == 2, 0, w)
    yield loss, b.div(b.total(torch.where(target == 2, 0, b.mul(picked, w)), 0), b.total(some, 0))
    share = b.div(b.number(1.0), b.total(some, 0))
    yield torch.autograd.grad(loss, p)[0], placed(b.neg(b.mul(w[kept], share)), kept)


def _patches(x, kernel, stride=1):
    """(B, H', W', C kh kw) of codes (B, C, H, W)."""
    found = x.unfold(2, kernel[0], stride).unfold(3, kernel[1], stride)
    return found.permute(0, 2, 3, 1, 4, 5).flatten(3)


@case
def convolutions(b):
    x, w, bias = b.some(2, 3, 6, 7), b.some(4, 3, 3, 2), b.some(4)
    p, q, r = b.posits(x, w, bias, grad=True)
    patches = _patches(x, (3, 2))  # (2, 4, 6, 18)
    rows, one = w.flatten(1), b.number(1.0)
    starting = torch.cat([bias.unsqueeze(1), rows], 1)
    lines = torch.cat([one.expand(*patches.shape[:3], 1), patches], 3).unsqueeze(3)
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
    one = b.number(1.0).expand(2, 1)
    start = torch.cat([one, x.flatten(1)], 1), torch.cat([bias.unsqueeze(1), w.flatten(1)], 1)
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


@case
def signs_and_limits(b):
    x, y = b.some(40), b.some(40)
    p, q = b.posits(x, y)
    for found, of in (
        (-p, b.neg(x)),
        (torch.neg_(p.clone()), b.neg(x)),
    ):
        yield found, of
    v, w = posit.decode(x, b.fmt), posit.decode(y, b.fmt)

    def codes(values):
        return posit.encode(values, b.fmt)

    low, high = (posit.decode(b.number(end), b.fmt).item() for end in (-0.3, 0.7))
    aten = torch.ops.aten
    for found, want in (
        (p.abs(), v.abs()),
        (p.clone().abs_(), v.abs()),
        (p.sign(), v.sign()),
        (p.clone().sign_(), v.sign()),
        (p.sgn(), v.sgn()),
        (p.clone().sgn_(), v.sgn()),
        (p.relu(), v.relu()),
        (p.clone().relu_(), v.relu()),
        (p.clamp(-0.3, 0.7), v.clamp(low, high)),
        (p.clone().clamp_(-0.3, 0.7), v.clamp(low, high)),
        (aten.clamp_min.default(p, -0.3), v.clamp(min=low)),
        (aten.clamp_min_.default(p.clone(), -0.3), v.clamp(min=low)),
        (aten.clamp_max.default(p, 0.7), v.clamp(max=high)),
        (aten.clamp_max_.default(p.clone(), 0.7), v.clamp(max=high)),
        (torch.maximum(p, q), torch.maximum(v, w)),
        (torch.minimum(p, q), torch.minimum(v, w)),
        (torch.maximum(p, q, out=p.clone()), torch.maximum(v, w)),
        (torch.minimum(p, q, out=p.clone()), torch.minimum(v, w)),
    ):
        yield found, codes(want)
    r = p.clone().requires_grad_()
    (g,) = torch.autograd.grad(r.relu(), r, q)
    yield g, torch.where(v > 0, y, 0)


@case
def comparisons(b):
    x, y = b.some(40), b.some(40)
    y[:5], x[5], y[6] = x[:5], b.fmt.nar, b.fmt.nar
    x[7] = y[7] = b.fmt.nar
    p, q = b.posits(x, y)
    signed = [torch.where(c >= b.fmt.nar, c - (1 << b.fmt.n), c) for c in (x, y)]  # the order
    aten = torch.ops.aten
    for name in ("eq", "ne", "lt", "le", "gt", "ge"):
        compare = getattr(torch, name)
        yield compare(p, q), compare(*signed)
        yield compare(p, 0.0), compare(signed[0], 0)
        ones = torch.where(compare(*signed), b.number(1.0), 0)
        yield getattr(p.clone(), f"{name}_")(q), ones
        ones = torch.where(compare(signed[0], 0), b.number(1.0), 0)
        yield getattr(aten, f"{name}_").Scalar(p.clone(), 0), ones
    yield torch.equal(p, p.clone()), True
    yield torch.equal(p, q), False
    yield p.isnan(), x == b.fmt.nar
    yield p.isfinite(), x != b.fmt.nar
    yield p.isinf(), torch.zeros_like(x, dtype=torch.bool)


@case
def fillings(b):
    x = b.some(3, 4)
    p = b.posits(x)
    third, mask = b.number(1 / 3), x % 2 == 0
    yield p.clone().fill_(1 / 3), third.expand(3, 4)
    yield p.clone().fill_(p[0, 0]), x[0, 0].expand(3, 4)
    yield p.clone().zero_(), torch.zeros_like(x)
    yield torch.zeros_like(p), torch.zeros_like(x)
    yield torch.ones_like(p), b.number(1.0).expand(3, 4)
    yield torch.full_like(p, 1 / 3), third.expand(3, 4)
    yield p.new_zeros(2), torch.zeros(2, dtype=torch.int64)
    yield p.new_ones(2), b.number(1.0).expand(2)
    yield p.new_full((2,), 1 / 3), third.expand(2)
    yield torch.ops.aten.new_empty_strided(p, (2, 3), (3, 1)).shape, (2, 3)
    yield p.new_empty(2).shape, (2,)
    yield torch.empty_like(p).shape, (3, 4)
    yield torch.zeros_like(p, dtype=torch.int64), torch.zeros_like(x)
    yield torch.full_like(p, 3, dtype=torch.int64), torch.full_like(x, 3)
    yield p.new_full((2,), 3, dtype=torch.int64), torch.full((2,), 3)
    yield p.masked_fill(mask, 1 / 3), torch.where(mask, third, x)
    yield p.clone().masked_fill_(mask, 1 / 3), torch.where(mask, third, x)
    yield p.masked_fill(mask, p[0, 0]), torch.where(mask, x[0, 0], x)
    yield p.clone().masked_fill_(mask, p[0, 0]), torch.where(mask, x[0, 0], x)
    half = b.number(0.5)
    yield torch.where(mask, p, 0.5), torch.where(mask, x, half)
    yield torch.where(mask, 0.5, p), torch.where(mask, half, x)
    yield torch.where(mask, p, p.flip(0)), torch.where(mask, x, x.flip(0))
    aten = torch.ops.aten
    yield F.pad(p, (1, 2), value=1 / 3), F.pad(x, (1, 2), value=int(third))
    yield p.clone().copy_(p.flip(0)), x.flip(0)
    yield p.clone().copy_(torch.full((3, 4), 1 / 3, dtype=torch.float64)), third.expand(3, 4)
    yield aten._to_copy.default(p), x
    yield p.clone().set_(p.flip(0)), x.flip(0)
    yield torch.cat([p, p]) / mask.sum(), b.div(torch.cat([x, x]), b.number(float(mask.sum())))


@case
def places(b):
    x, y = b.some(3, 4), b.some(3, 4)
    p, q = b.posits(x, y)
    index = torch.tensor([[1, 0, 2, 3]])
    third, changed = b.number(1 / 3), x.clone()
    rows = torch.tensor([2, 0])
    changed[rows] = y[rows]
    yield p.index_put((rows,), q[rows]), changed
    yield p.clone().index_put_((rows,), q[rows]), changed
    yield p.scatter(1, index, q), x.scatter(1, index, y)
    yield p.clone().scatter_(1, index, q), x.scatter(1, index, y)
    yield p.scatter(1, index, 1 / 3), x.scatter(1, index, int(third))
    yield p.clone().scatter_(1, index, 1 / 3), x.scatter(1, index, int(third))
    r, changed = p.clone(), x.clone()
    r[0], r[1, 1:], r[x < 1000] = 0.5, q[1, 1:], 0.25
    changed[0], changed[1, 1:], changed[x < 1000] = b.number(0.5), y[1, 1:], b.number(0.25)
    yield r, changed
    # Gradients of what selects each element once go back to its place.
    r = b.posits(x, grad=True)
    picked = r.max(1)
    (g,) = torch.autograd.grad(picked.values, r, q[:, 0])
    yield g, torch.zeros_like(x).scatter(1, picked.indices.unsqueeze(1), y[:, :1])


@case
def selections(b):
    x = b.some(3, 4)
    p = b.posits(x)
    aten = torch.ops.aten
    index = torch.tensor([2, 0])
    both = p, x
    for move in (
        lambda t: t.t(),
        lambda t: t.view(4, 3),
        lambda t: aten._unsafe_view.default(t, [12]),
        lambda t: aten._reshape_alias.default(t, [12], [1]),
        lambda t: aten.alias.default(t),
        lambda t: t.as_strided((2, 2), (4, 1), 1),
        lambda t: torch.cat([t, t[:1]]),
        lambda t: torch.stack([t, t]),
        lambda t: t.clone(),
        lambda t: t.detach(),
        lambda t: t.diagonal(),
        lambda t: t[:, None].expand(3, 2, 4),
        lambda t: t.flip(1),
        lambda t: t.gather(1, torch.tensor([[3], [0], [1]])),
        lambda t: t[index],
        lambda t: t.index_select(1, index),
        lambda t: t.masked_select(x % 2 == 0),
        lambda t: t.permute(1, 0),
        lambda t: t.repeat(2, 1),
        lambda t: t.roll(1, 0),
        lambda t: t[1],
        lambda t: t[1:, ::2],
        lambda t: t.split(2)[1],
        lambda t: t.split([1, 2])[1],
        lambda t: t.chunk(2, 1)[1],
        lambda t: t.unbind(1)[3],
        lambda t: t[None].squeeze(),
        lambda t: t[None].squeeze(0),
        lambda t: t[None].squeeze((0, 1)),
        lambda t: t.take(index),
        lambda t: t.transpose(0, 1),
        lambda t: t.tril(),
        lambda t: t.triu(1),
        lambda t: t.unfold(1, 2, 1),
        lambda t: t.unsqueeze(1),
        lambda t: t.reshape(2, 6),
        lambda t: aten.select_backward.default(t[0], [3, 4], 0, 1),
        lambda t: aten.slice_backward.default(t[:2], [3, 4], 0, 1, 3, 1),
        lambda t: aten.diagonal_backward.default(t.diagonal(), [3, 4], 0, 0, 1),
    ):
        yield tuple(map(move, both))
    yield p.nonzero(), x.nonzero()
    yield p[0, 0].item(), posit.decode(x, b.fmt)[0, 0].item()
    yield p.tolist(), posit.decode(x, b.fmt).tolist()


@case
def orders(b):
    x = b.some(3, 4)
    p, v = b.posits(x), posit.decode(x, b.fmt)
    for pick in (
        lambda t: t.max(),
        lambda t: t.min(),
        lambda t: t.amax(1),
        lambda t: t.amin(0),
        lambda t: t.max(1).values,
        lambda t: t.min(0).values,
        lambda t: t.sort(1).values,
        lambda t: t.sort(dim=1, stable=True).values,
        lambda t: t.topk(2, 1).values,
    ):
        yield pick(p), posit.encode(pick(v), b.fmt)
    yield p.argmax(1), v.argmax(1)
    yield p.argmin(), v.argmin()
    yield torch.ops.aten.sort.default(p, 1)[1], v.sort(dim=1, stable=True).indices


@case
def random_numbers(b):
    """The values that torch draws, rounded."""
    p = b.posits(b.some(50))
    for draw in (
        lambda t, g: t.uniform_(-1, 1, generator=g),
        lambda t, g: t.normal_(2, 3, generator=g),
        lambda t, g: t.exponential_(2.0, generator=g),
        lambda t, g: t.bernoulli_(0.3, generator=g),
    ):
        plain = draw(p.values().clone(), generator(7))
        yield draw(p.clone(), generator(7)), posit.encode(plain, b.fmt)
    half = torch.full_like(p, 0.5)
    plain = torch.bernoulli(half.values(), generator=generator(7))
    yield torch.bernoulli(half, generator=generator(7)), posit.encode(plain, b.fmt)

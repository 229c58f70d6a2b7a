"""Cases of further reductions, products, losses and lists, as libraries of models use them."""

import itertools
import math

import torch
import torch.nn.functional as F
from posit_operator_bench import registry
from posit_reference import nearest, value

from trainwright import posit
from trainwright.posit.dispatch import EACH

CASES, case = registry()


def stacked(results, dim):
    return torch.stack(results, dim)


@case
def running_sums_and_products(b):
    x, g = b.special(b.some(3, 6)), b.some(3, 6)
    p = b.posits(x, grad=True)
    y = p.cumsum(1)
    yield y, stacked([b.total(x[:, : k + 1], 1) for k in range(6)], 1)
    yield b.posits(x).cumsum_(0), stacked([b.total(x[: k + 1], 0) for k in range(3)], 0)
    back = g.flip(1)
    want = stacked([b.total(back[:, : k + 1], 1) for k in range(6)], 1).flip(1)
    yield torch.autograd.grad(y, p, b.posits(g))[0], want
    rows = list(itertools.accumulate(x.unbind(1), b.mul))
    yield p.cumprod(1), stacked(rows, 1)
    yield b.posits(x).cumprod_(1), stacked(rows, 1)
    yield p.prod(1), rows[-1]
    yield p.prod(1, keepdim=True), rows[-1].unsqueeze(1)
    yield p.prod(), list(itertools.accumulate(x.flatten(), b.mul))[-1]
    yield p[:, :0].prod(1), b.number(1.0).expand(3)
    yield p[:, :0].cumsum(1).shape, (3, 0)
    yield p.cummax(0).values, b.number_of(b.value(x).cummax(0).values)
    yield p.cummin(0).indices, b.value(x).cummin(0).indices
    x = b.some(4)
    p = b.posits(x, grad=True)
    (gradient,) = torch.autograd.grad(p.prod(), p)
    unit = b.number(1.0)  # torch multiplies the products before and after each element
    before = list(itertools.accumulate([unit, *x[:-1]], b.mul))
    after = list(itertools.accumulate([unit, *x.flip(0)[:-1]], b.mul))[::-1]
    yield gradient, torch.stack(list(map(b.mul, before, after)))


@case
def sums_without_nar_and_diagonals(b):
    x = b.special(b.some(4, 4))
    p = b.posits(x)
    clean = torch.where(x == b.fmt.nar, 0, x)
    yield p.nansum(), b.total(clean, 0, 1)
    yield p.nansum(1, keepdim=True), b.total(clean, 1).unsqueeze(1)
    yield p.nan_to_num(), clean
    third = b.number(1 / 3)
    yield p.clone().nan_to_num_(1 / 3), torch.where(x == b.fmt.nar, third, x)
    yield b.posits(clean).trace(), b.total(clean.diagonal(), 0)
    for dims in ((0, 1), (1,)):
        lines = b.some(4, 4)
        q = b.posits(lines)
        variance, mean = torch.var_mean(q, dims)
        yield variance, q.var(dims).codes()
        yield mean, q.mean(dims).codes()
        deviation, mean = torch.std_mean(q, dims, keepdim=True)
        yield deviation, q.std(dims, keepdim=True).codes()
        yield mean, q.mean(dims, keepdim=True).codes()


@case
def norms_of_any_order(b):
    x = b.special(b.some(4, 5))
    p = b.posits(x)
    size = b.number_of(b.value(x).abs())
    cubes = b.total(b.mul(b.mul(size, size), size), 1)
    yield torch.linalg.vector_norm(p, 3, 1), b.apply_power(cubes, 1 / 3)
    yield torch.norm(p, 3, 1, True), b.apply_power(cubes, 1 / 3).unsqueeze(1)
    counts = torch.where(x == 0, 0, torch.where(x == b.fmt.nar, x, b.number(1.0)))
    yield torch.linalg.vector_norm(p, 0, 1), b.total(counts, 1)
    yield torch.ops.aten.norm.ScalarOpt_dim(p, None, [1]), b.sqrt(b.dot(x, x))
    yield torch.ops.aten.norm.Scalar(p, 2), b.sqrt(b.dot(x.flatten(), x.flatten()))
    x = b.some(4, 5)
    p = b.posits(x)
    lengths = b.sqrt(b.dot(x, x)).unsqueeze(1)
    factor = b.div(b.number(1.5), b.add(lengths, b.number(1e-7)))
    long = b.value(lengths) > b.value(b.number(1.5))
    want = torch.where(long, b.mul(x, factor), x)
    yield torch.renorm(p, 2, 0, 1.5), want
    yield p.clone().renorm_(2, 0, 1.5), want


@case
def weight_norms(b):
    v, g = b.some(3), b.some(3)
    unit = b.div(g, b.sqrt(b.mul(v, v)))
    yield torch._weight_norm(*b.posits(v, g), 0), b.mul(v, unit)
    v, g, h = b.some(3, 2, 2), b.some(3, 1, 1), b.some(3, 2, 2)
    p, q = b.posits(v, g, grad=True)
    w = torch._weight_norm(p, q, 0)
    lines, by = v.flatten(1), h.flatten(1)
    norms = b.sqrt(b.dot(lines, lines)).reshape(3, 1, 1)
    yield w, b.mul(v, b.div(g, norms))
    dv, dg = torch.autograd.grad(w, (p, q), b.posits(h))
    unit = b.div(v, norms)
    along = b.dot(by, unit.flatten(1)).reshape(3, 1, 1)
    yield dg, along
    yield dv, b.mul(b.div(g, norms), b.fma(b.neg(unit), along, h))


@case
def bilinear_layers(b):
    x, y, w, c = b.some(4, 3), b.some(4, 2), b.some(5, 3, 2), b.some(5)
    p, q, r, s = b.posits(x, y, w, c, grad=True)
    z = F.bilinear(p, q, r, s)
    # (4, 5, 2): x W, then its products with y.
    half = b.matmul(x, w.permute(1, 0, 2).flatten(1)).reshape(4, 5, 2)
    yield z, b.add(b.dot(half, y.unsqueeze(1).expand(4, 5, 2)), c)
    g = b.some(4, 5)
    dx, dy, dw, dc = torch.autograd.grad(z, (p, q, r, s), b.posits(g))
    yield dc, b.total(g, 0)
    rows = b.dot(g.reshape(4, 1, 1, 5), w.permute(1, 2, 0).unsqueeze(0).expand(4, 3, 2, 5))
    yield dx, b.dot(rows, y.unsqueeze(1).expand(4, 3, 2))
    yield dy, b.dot(half.transpose(1, 2), g.unsqueeze(1).expand(4, 2, 5))
    by = b.mul(g.t().unsqueeze(1), x.t().unsqueeze(0))  # (5, 3, 4)
    yield dw, b.matmul(by.flatten(0, 1), y).reshape(5, 3, 2)


@case
def products_with_a_start(b):
    a, m, v, u = b.some(3), b.some(3, 4), b.some(4), b.some(3)
    p, q, r, s = b.posits(a, m, v, u)
    unit = b.number(1.0)

    def started(start, rows, columns):
        """Sum from the start: a product with 1 before the others."""
        left = torch.cat([start.unsqueeze(-1), rows], -1)
        return b.dot(left, torch.cat([unit.expand(*columns.shape[:-1], 1), columns], -1))

    want = started(a, m, v.expand(3, 4))
    yield torch.addmv(p, q, r), want
    yield p.clone().addmv_(q, r), want
    whole = started(m, u.reshape(3, 1, 1).expand(3, 4, 1), v.reshape(1, 4, 1).expand(3, 4, 1))
    yield torch.addr(q, s, r), whole
    yield q.clone().addr_(s, r), whole
    left, right = b.some(2, 3, 5), b.some(2, 5, 4)
    rows = left.transpose(0, 1).flatten(1)
    columns = right.flatten(0, 1).t()
    want = started(m, rows.unsqueeze(1).expand(3, 4, 10), columns.unsqueeze(0).expand(3, 4, 10))
    yield torch.addbmm(q, *b.posits(left, right)), want
    yield q.clone().addbmm_(*b.posits(left, right)), want
    yield torch.vdot(p, s), b.dot(a, u)
    x, y = b.some(4, 3), b.some(4, 3)
    (i, j, k), (e, f, g) = x.unbind(1), y.unbind(1)
    pairs = ((j, g, k, f), (k, e, i, g), (i, f, j, e))
    crossed = [b.dot(torch.stack([c, b.neg(d)], 1), torch.stack([h, o], 1)) for c, h, d, o in pairs]
    yield torch.linalg.cross(*b.posits(x, y)), torch.stack(crossed, 1)


@case
def reductions_by_place(b):
    x, rows = b.some(5, 2), b.some(7, 2)
    places = torch.tensor([3, 0, 3, 1, 3, 0, 4])
    p, q = b.posits(x, rows)
    wide = places.unsqueeze(1).expand(7, 2)
    for kind in ("sum", "mean", "prod", "amax", "amin"):
        for whole in (True, False):
            want = x.clone()
            for place in set(places.tolist()):
                terms = [x[place]] * whole + [rows[i] for i in range(7) if places[i] == place]
                values = torch.stack(terms)
                if kind in ("sum", "mean"):
                    want[place] = b.total(values, 0)
                elif kind == "prod":
                    want[place] = list(itertools.accumulate(terms, b.mul))[-1]
                else:
                    want[place] = b.number_of(getattr(b.value(values), kind)(0))
                if kind == "mean":
                    want[place] = b.div(want[place], b.number(float(len(terms))))
            yield p.scatter_reduce(0, wide, q, kind, include_self=whole), want
            yield p.clone().scatter_reduce_(0, wide, q, kind, include_self=whole), want
            if kind != "sum":
                name = "prod" if kind == "prod" else kind
                yield p.index_reduce(0, places, q, name, include_self=whole), want
                yield p.clone().index_reduce_(0, places, q, name, include_self=whole), want
    flat = x.flatten().clone()
    flat[[1, 4]] = rows[0]
    index = torch.tensor([1, 4])
    yield p.put(index, q[0]), flat.reshape(5, 2)
    yield p.clone().put_(index, q[0]), flat.reshape(5, 2)
    flat = x.flatten().clone()
    flat[1] = b.total(torch.stack([flat[1], *rows[0]]), 0)
    yield p.put(torch.tensor([1, 1]), q[0], True), flat.reshape(5, 2)


@case
def bags_of_embeddings(b):
    table = b.some(6, 2)
    indices, offsets = torch.tensor([4, 0, 4, 2, 5, 0, 4]), torch.tensor([0, 3, 3, 6])
    ends = [0, 3, 3, 6, 7]
    p = b.posits(table, grad=True)
    scales = b.some(7)
    s = b.posits(scales, grad=True)
    g = b.some(4, 2)
    for padding in (None, 0):
        kept = [
            [i for i in range(low, high) if padding is None or indices[i] != padding]
            for low, high in itertools.pairwise(ends)
        ]
        bag_of = {i: bag for bag, own in enumerate(kept) for i in own}
        for mode, weights in (("sum", None), ("mean", None), ("sum", s)):
            rows = table[indices]
            if weights is not None:
                rows = b.mul(rows, scales.unsqueeze(1))
            shares = g
            want = torch.stack([b.total(rows[own], 0) for own in kept])
            if mode == "mean":
                counts = b.number_of(torch.tensor([float(max(1, len(own))) for own in kept]))
                want, shares = b.div(want, counts[:, None]), b.div(g, counts[:, None])
            y = F.embedding_bag(
                indices, p, offsets, mode=mode, per_sample_weights=weights, padding_idx=padding
            )
            yield y, want
            terms = {i: shares[bag] for i, bag in bag_of.items()}
            if weights is not None:
                terms = {i: b.mul(row, scales[i]) for i, row in terms.items()}
            gradient = torch.zeros_like(table)
            for place in range(6):
                own = [row for i, row in terms.items() if indices[i] == place]
                if own:
                    gradient[place] = b.total(torch.stack(own), 0)
            wanted = (p,) if weights is None else (p, s)
            got = torch.autograd.grad(y, wanted, b.posits(g))
            yield got[0], gradient
            if weights is not None:
                lines = [b.dot(g[bag_of[i]], table[indices[i]]) if i in bag_of else torch.tensor(0)
                         for i in range(7)]  # fmt: skip
                yield got[1], torch.stack(lines)
            with torch.no_grad():
                yield (
                    F.embedding_bag(indices, b.posits(table), offsets, mode=mode,
                                    per_sample_weights=None if weights is None else s.detach(),
                                    padding_idx=padding),
                    want,
                )  # fmt: skip
        y = F.embedding_bag(indices, p, offsets, mode="max", padding_idx=padding)
        values = b.value(table)
        tops = [values[indices[own]] for own in kept]
        want = torch.stack([t.amax(0) if len(t) else torch.zeros(2, dtype=t.dtype) for t in tops])
        yield y, b.number_of(want)
        gradient = [[[] for _ in range(2)] for _ in range(6)]
        for bag, own in enumerate(kept):
            for column in range(2 if own else 0):
                row = indices[own[int(tops[bag][:, column].argmax())]]
                gradient[row][column].append(g[bag, column])
        want = [[b.total(torch.stack(t), 0) if t else torch.tensor(0) for t in row]
                for row in gradient]  # fmt: skip
        want = torch.stack([torch.stack(row) for row in want])
        yield torch.autograd.grad(y, p, b.posits(g))[0], want


@case
def further_functions(b):
    x = b.special(b.some(60, scale=3.0))
    p = b.posits(x)
    for name in (
        "exp2", "log2", "log10", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh",
        "asinh", "acosh", "atanh", "erf", "erfc", "logit",
    ):  # fmt: skip
        yield getattr(torch, name)(p), b.apply(name, x)
        yield getattr(torch, f"{name}_")(p.clone()), b.apply(name, x)
    for name in ("floor", "ceil", "trunc", "round"):
        yield getattr(torch, name)(p), b.number_of(getattr(torch, name)(b.value(x)))
        yield getattr(torch, f"{name}_")(p.clone()), b.number_of(getattr(torch, name)(b.value(x)))
    eps = 0.2
    y = b.some(60)
    r, g = b.posits(y, grad=True), b.some(60)
    limited = b.clamp(y, eps, 1 - eps)
    z = torch.logit(r, eps)
    yield z, b.apply("logit", limited)
    slope = b.div(g, b.mul(y, b.sub(b.number(1.0), y)))
    outside = b.value(limited) != b.value(y)
    yield torch.autograd.grad(z, r, b.posits(g))[0], torch.where(outside, 0, slope)
    v = b.value(x)
    signs = torch.where(b.value(y) < 0, -v.abs(), v.abs())
    yield torch.copysign(p, r.detach()), b.number_of(signs)
    yield p.clone().copysign_(r.detach()), b.number_of(signs)
    yield torch.copysign(p, -2.0), b.number_of(-v.abs())
    yield torch.ops.aten.copysign_.Scalar(p.clone(), -2.0), b.number_of(-v.abs())
    steps = torch.where(v == 0, y, b.number_of(torch.where(v.isnan(), v, (v > 0).double())))
    yield torch.heaviside(p, r.detach()), steps
    yield p.clone().heaviside_(r.detach()), steps
    below = v <= b.value(b.number(0.3)).item()
    want = torch.where(below, b.number(1.7), x)
    yield F.threshold(p, 0.3, 1.7), want
    yield F.threshold(p.clone(), 0.3, 1.7, inplace=True), want


@case
def functions_of_two(b):
    x, y = b.special(b.some(40)), b.special(b.some(40))
    p, q = b.posits(x, y)
    whole = b.number_of(torch.tensor([2.0, 3.0, -2.0, 1.0, -1.0, 4.0, 0.0, 5.0] * 5))

    def powers(bases, exponents):
        words = []
        for code, exponent in zip(bases.tolist(), b.value(exponents).tolist(), strict=True):
            undefined = code == b.fmt.nar or (code == 0 and exponent < 0)
            words.append(b.fmt.nar if undefined else nearest(
                value(code, b.fmt.n, b.fmt.es) ** int(exponent), b.fmt.n, b.fmt.es))  # fmt: skip
        return torch.tensor(words)

    yield p.pow(b.posits(whole)), powers(x, whole)
    yield p.clone().pow_(b.posits(whole)), powers(x, whole)
    yield 2 ** b.posits(whole), powers(b.number(2.0).expand(40), whole)
    yield p.pow(0), torch.where(x == b.fmt.nar, x, b.number(1.0))
    product = b.mul(x, b.apply("log", y))
    zero = (x == 0) & (y != b.fmt.nar)
    yield torch.xlogy(p, q), torch.where(zero, 0, product)
    yield torch.xlogy(p.clone(), q), torch.where(zero, 0, product)
    yield p.clone().xlogy_(q), torch.where(zero, 0, product)
    log2 = b.apply("log", b.number(2.0))
    yield torch.xlogy(p, 2.0), torch.where(x == 0, 0, b.mul(x, log2))
    yield torch.ops.aten.xlogy_.Scalar_Other(p.clone(), 2.0), b.mul(x, log2)
    yield torch.xlogy(2.0, q), b.mul(b.number(2.0), b.apply("log", y))
    high = b.number_of(torch.maximum(b.value(x), b.value(y)))
    low = b.number_of(torch.minimum(b.value(x), b.value(y)))
    want = b.add(high, b.apply("log1p", b.apply("exp", b.sub(low, high))))
    yield torch.logaddexp(p, q), want
    w = b.some(40)
    difference, rest = b.sub(y, x), b.sub(b.number(1.0), w)
    far = b.value(w).abs() >= 0.5
    want = torch.where(far, b.sub(y, b.mul(difference, rest)), b.add(x, b.mul(w, difference)))
    yield torch.lerp(p, q, b.posits(w)), want
    yield p.clone().lerp_(q, b.posits(w)), want
    v, u = b.value(x), b.value(y)
    for got, want in (
        (torch.clamp(p, q), torch.maximum(v, u)),
        (p.clone().clamp_(max=q), torch.minimum(v, u)),
        (torch.clamp(p, max=q), torch.minimum(v, u)),
        (torch.clamp_min(p, q), torch.maximum(v, u)),
        (p.clone().clamp_min_(q), torch.maximum(v, u)),
        (torch.clamp_max(p, q), torch.minimum(v, u)),
        (p.clone().clamp_max_(q), torch.minimum(v, u)),
        (torch.fmax(p, q), torch.fmax(v, u)),
        (torch.fmin(p, q), torch.fmin(v, u)),
    ):
        yield got, b.number_of(want)
    for name in ("add", "sub", "mul", "div"):
        yield getattr(torch, name)(p, q, out=p.clone()), getattr(b, name)(x, y)


@case
def further_moves(b):
    x = b.some(3, 4)
    p = b.posits(x)
    index, mask = torch.tensor([2, 0]), x % 2 == 0
    aten = torch.ops.aten
    for move in (
        lambda t: torch.block_diag(t, t),
        lambda t: F.channel_shuffle(t.reshape(1, 4, 3, 1), 2),
        lambda t: torch.diag_embed(t),
        lambda t: t.diagonal_scatter(t[2, :3]),
        lambda t: t.index_copy(0, index, t[:2]),
        lambda t: t.clone().index_copy_(0, index, t[:2]),
        lambda t: t.masked_scatter(mask, t.flip(0)),
        lambda t: t.clone().masked_scatter_(mask, t.flip(0)),
        lambda t: aten.masked_scatter_backward(t, mask, [3, 4]),
        lambda t: t.rot90(),
        lambda t: t.select_scatter(t[0], 0, 2),
        lambda t: t.slice_scatter(t[:1], 0, 2),
        lambda t: t.clone().tril_(),
        lambda t: t.clone().triu_(),
    ):
        yield move(p), move(x)
    third = b.number(1 / 3)
    yield p.index_fill(0, index, 1 / 3), x.index_fill(0, index, int(third))
    yield p.clone().index_fill_(0, index, 1 / 3), x.index_fill(0, index, int(third))
    yield p.index_fill(0, index, p[0, 0]), x.index_fill(0, index, int(x[0, 0]))
    yield p.clone().index_fill_(0, index, p[0, 0]), x.index_fill(0, index, int(x[0, 0]))
    v = b.value(x)
    for pick in (
        lambda t: t.aminmax(dim=1).min,
        lambda t: t.kthvalue(2, 1).values,
        lambda t: t.median(),
        lambda t: t.median(1).values,
        lambda t: t.nanmedian(),
        lambda t: t.nanmedian(1).values,
        lambda t: t.mode(1).values,
        lambda t: t.unique(),
        lambda t: torch.unique(t, dim=0),
    ):
        yield pick(p), b.number_of(pick(v))
    zeros = b.posits(torch.where(mask, 0, x))
    u = b.value(zeros.codes())
    for ask in (
        lambda t: t.all(),
        lambda t: t.all(1),
        lambda t: torch.all(t, (0, 1)),
        lambda t: t.any(),
        lambda t: t.any(0),
        lambda t: torch.any(t, (0, 1)),
        lambda t: t.count_nonzero(),
        lambda t: t.count_nonzero((0, 1)),
        lambda t: t.logical_not(),
        lambda t: torch.logical_and(t, t.flip(0)),
        lambda t: torch.logical_or(t, t.flip(0)),
        lambda t: torch.logical_xor(t, t.flip(0)),
        lambda t: t.isposinf(),
        lambda t: t.isneginf(),
        lambda t: torch.bucketize(t, t.flatten().sort().values),
        lambda t: torch.searchsorted(t.sort(1).values, t),
        lambda t: t.long(),
        lambda t: t.to(torch.uint8) if t is None else t.bool(),
    ):
        yield ask(zeros), ask(u)
    yield torch.allclose(p, p.clone()), True
    yield torch.allclose(p, p.flip(0)), False
    # Truth values and integers are numbers, as masks and counts of attention are.
    yield p * mask, torch.where(mask, x, 0)
    counts = torch.arange(4)
    yield p + counts, b.add(x, b.number_of(counts.double()))
    y = b.posits(x, grad=True)
    top = torch.zeros_like(x)
    top.view(-1)[v.argmax()] = b.number(1.0)
    yield torch.autograd.grad(y.max(), y)[0], top


@case
def further_losses(b):
    x, y, g = b.some(4, 3), b.some(4, 3), b.some(4, 3)
    p, q = b.posits(x, grad=True), b.posits(y)
    number = b.number
    d = b.sub(x, y)
    size, half, count = b.number_of(b.value(d).abs()), number(0.5), number(12.0)
    square = b.mul(half, b.mul(d, d))
    w = 0.7
    edge = b.value(number(w))
    sign = b.number_of(b.value(d).sign())
    above = b.mul(number(w), b.sub(size, b.mul(half, number(w))))
    far = b.value(size) > edge
    want = torch.where(far, above, square)
    yield F.huber_loss(p, q, delta=w), b.div(b.total(want, 0, 1), count)
    loss = F.huber_loss(p, q, delta=w, reduction="none")
    yield loss, want
    slope = torch.where(far, b.mul(sign, number(w)), d)
    yield torch.autograd.grad(loss, p, b.posits(g))[0], b.mul(slope, g)
    far = b.value(size) >= edge
    want = torch.where(far, b.sub(size, b.mul(half, number(w))), b.div(square, number(w)))
    yield F.smooth_l1_loss(p, q, beta=w, reduction="sum"), b.total(want, 0, 1)
    loss = F.smooth_l1_loss(p, q, beta=w)
    yield loss, b.div(b.total(want, 0, 1), count)
    slope = torch.where(far, sign, b.div(d, number(w)))
    yield torch.autograd.grad(loss, p)[0], b.div(slope, count)
    unit = number(1.0)
    chance, target = (b.number_of(torch.rand(4, 3, generator=b.g)) for _ in range(2))
    chance[0, :2] = torch.stack([unit, torch.tensor(0)])
    p, q = b.posits(chance, grad=True), b.posits(target)
    low = b.value(number(-100.0)).item()

    def logarithm(t):
        values = b.value(b.apply("log", t)).clamp(min=low)
        return b.number_of(torch.where(t == 0, low, values))

    parts = (
        b.mul(target, logarithm(chance)),
        b.mul(b.sub(unit, target), logarithm(b.sub(unit, chance))),
    )
    want = b.neg(b.add(*parts))
    loss = F.binary_cross_entropy(p, q, weight=b.posits(y), reduction="none")
    yield loss, b.mul(want, y)
    floor = b.value(number(1e-12)).item()
    slope = b.number_of(b.value(b.mul(b.sub(unit, chance), chance)).clamp(min=floor))
    dx = b.div(b.mul(g, b.sub(chance, target)), slope)
    yield torch.autograd.grad(loss, p, b.posits(g))[0], b.mul(dx, y)
    yield F.binary_cross_entropy(p, q), b.div(b.total(want, 0, 1), count)
    present = torch.tensor([[0, 1, 1]]).expand(4, 3)
    p, same = b.posits(chance, grad=True), b.posits(b.number_of(present.double()))
    for loss in (F.binary_cross_entropy, F.binary_cross_entropy_with_logits, F.mse_loss,
                 F.huber_loss, F.smooth_l1_loss):  # fmt: skip
        losses = loss(p, present), loss(p, same)
        yield losses[0], losses[1].codes()
        yield torch.autograd.grad(losses[0], p)[0], torch.autograd.grad(losses[1], p)[0].codes()
    p = b.posits(x, grad=True)
    labels = torch.tensor([[1, -1, 1]]).expand(4, 3)
    signs = b.number_of(labels.double())
    z = b.mul(signs, x)
    loss = F.soft_margin_loss(p, labels, reduction="sum")
    yield loss, b.total(b.apply("softplus", b.neg(z)), 0, 1)
    s = b.mul(signs, b.apply("sigmoid", b.neg(z)))
    yield torch.autograd.grad(loss, p)[0], b.neg(b.mul(s, unit))
    classes, weight = torch.tensor([2, 0, 1, 1]), b.some(3)
    place = classes.unsqueeze(1)
    for power, weights in ((1, None), (2, weight)):
        z = b.add(b.sub(number(0.8), x.gather(1, place)), x)
        z = b.number_of(b.value(z).clamp(min=0)).scatter(1, place, 0)
        scale = unit if weights is None else weight[place]
        terms = b.mul(z if power == 1 else b.mul(z, z), scale)
        rows = b.div(b.total(terms, 1), number(3.0))
        given = None if weights is None else b.posits(weights)
        loss = F.multi_margin_loss(p, classes, power, 0.8, given)
        yield loss, b.div(b.total(rows, 0), number(4.0))
        slope = scale.expand(4, 3) if power == 1 else b.mul(b.add(z, z), scale)
        slope = b.div(torch.where(z == 0, 0, b.div(slope, number(3.0))), number(4.0))
        slope = slope.scatter(1, place, b.neg(b.total(slope, 1)).unsqueeze(1))
        yield torch.autograd.grad(loss, p)[0], slope
    row = b.posits(x[0], grad=True)
    loss = F.nll_loss(row, torch.tensor(2))
    yield loss, b.neg(x[0, 2])
    yield torch.autograd.grad(loss, row)[0], torch.stack([x[0, 0] * 0] * 2 + [b.neg(unit)])


@case
def random_slopes(b):
    x, g = b.special(b.some(40)), b.some(40)
    p = b.posits(x, grad=True)
    mean = b.number((0.2 + 0.7) / 2)
    up = b.value(x) > 0
    y = F.rrelu(p, 0.2, 0.7, training=False)
    yield y, torch.where(up, x, b.mul(x, mean))
    yield torch.autograd.grad(y, p, b.posits(g))[0], torch.where(up, g, b.mul(g, mean))
    yield F.rrelu(b.posits(x), 0.2, 0.7, inplace=True), torch.where(up, x, b.mul(x, mean))
    torch.manual_seed(3)
    y = F.rrelu(p, 0.2, 0.7, training=True)
    torch.manual_seed(3)
    drawn = torch.empty(40, dtype=p.dtype).uniform_(0.2, 0.7)
    factors = torch.where(up, b.number(1.0), b.number_of(drawn))
    yield y, b.mul(x, factors)
    yield torch.autograd.grad(y, p, b.posits(g))[0], b.mul(g, factors)


@case
def operators_of_lists(b):
    """Give what the elementary operator gives on each element, which other cases check."""
    columns = [[b.some(3), b.some(2, 2)] for _ in range(3)]
    x, y, z = ([posit.PositTensor.from_codes(c, b.fmt) for c in column] for column in columns)
    x[0][0] = 0.3
    for func, name in EACH.items():
        plain = name.rstrip("_")
        overload = func._overloadname
        numbers = {"Scalar": 0.7, "ScalarList": [0.7, 2.0], "List": y, "Tensor": x[0][0].clone()}
        left = [t.abs() + 0.5 for t in x] if plain in ("log", "pow", "rsqrt", "sqrt") else x
        given = [[t.clone() for t in left]]
        if plain in ("copy",):
            given.append(y)
        elif plain.startswith("addc"):
            given += [y, z, numbers[overload]]
        elif plain == "lerp":
            given += [y, z if overload == "List" else numbers[overload]]
        elif plain == "norm":
            given.append(2)
        elif overload == "ScalarAndTensor":
            given.insert(0, 2.0)
        elif overload != "default":
            given.append(numbers[overload])
        rows = [[a[i] if isinstance(a, list) else a for a in given] for i in range(2)]
        rows = [[a.clone() if isinstance(a, torch.Tensor) else a for a in row] for row in rows]
        got = func(*given)
        got = given[0] if got is None else got
        for result, row in zip(got, rows, strict=True):
            if plain.startswith("addc"):
                want = getattr(torch, plain)(*row[:3], value=row[3])
            elif plain in ("maximum", "minimum") and not isinstance(row[1], torch.Tensor):
                want = row[0].clamp(**{"min" if plain == "maximum" else "max": row[1]})
            elif plain in ("copy", "zero"):
                want = row[1] if plain == "copy" else torch.zeros_like(row[0])
            else:
                want = getattr(torch, plain)(*row)
            yield result, want.codes()
    assert math.isfinite(x[0][0].item())

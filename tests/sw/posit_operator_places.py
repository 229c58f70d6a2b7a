"""Cases of comparisons, indices, order and whatever moves words."""

import torch
import torch.nn.functional as F
from posit_cases import generator
from posit_operator_bench import registry

from trainwright import posit

CASES, case = registry()


@case
def signs_and_limits(b):
    x, y = b.some(40), b.some(40)
    p, q = b.posits(x, y)
    for result, operand in (
        (-p, b.neg(x)),
        (torch.neg_(p.clone()), b.neg(x)),
    ):
        yield result, operand
    v, w = posit.decode(x, b.fmt), posit.decode(y, b.fmt)

    def codes(values):
        return posit.encode(values, b.fmt)

    low, high = (posit.decode(b.number(end), b.fmt).item() for end in (-0.3, 0.7))
    aten = torch.ops.aten
    for result, want in (
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
        yield result, codes(want)
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
        lambda t: t[None].clone().squeeze_(),
        lambda t: t[None].clone().squeeze_(0),
        lambda t: aten.squeeze_.dims(t[None].clone(), [0, 1]),
        lambda t: t.clone().unsqueeze_(1),
        lambda t: t.clone().transpose_(0, 1),
        lambda t: t.clone().t_(),
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
    """Return the values that torch draws, rounded."""
    p = b.posits(b.some(50))
    for draw in (
        lambda t, g: t.uniform_(-1, 1, generator=g),
        lambda t, g: t.normal_(2, 3, generator=g),
        lambda t, g: t.exponential_(2.0, generator=g),
        lambda t, g: t.bernoulli_(0.3, generator=g),
    ):
        plain = draw(p.values().clone(), generator(7))
        yield draw(p.clone(), generator(7)), posit.encode(plain, b.fmt)
    for draw in (
        torch.randn_like,
        torch.rand_like,
        lambda t: torch.randint_like(t, 9),
        lambda t: torch.randint_like(t, -9, 9),
        lambda t: torch.randint_like(t, 9, dtype=torch.int64),
        lambda t: torch.multinomial(t.abs(), 3),
    ):
        torch.manual_seed(7)
        plain = draw(p.values())
        torch.manual_seed(7)
        yield draw(p), posit.encode(plain, b.fmt) if plain.is_floating_point() else plain
    half = torch.full_like(p, 0.5)
    plain = torch.bernoulli(half.values(), generator=generator(7))
    yield torch.bernoulli(half, generator=generator(7)), posit.encode(plain, b.fmt)

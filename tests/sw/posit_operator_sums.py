"""Cases of arithmetic, sums and products of matrices."""

import torch
from posit_operator_bench import registry

from trainwright import posit

CASES, case = registry()


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
    x = b.special(b.some(30))
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
        (0, torch.where(x == b.fmt.nar, x, b.number(1.0))),
        *((exponent, b.powers(x, exponent)) for exponent in (4, -5, 7)),
    ):
        yield torch.ops.aten.pow.Tensor_Scalar(p, exponent), want
        yield p.clone().pow_(exponent), want


@case
def optimisers(b):
    """Compute parts of Adam and SGD in the order of the paper's Listing 9: (value a) b."""
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
    v = b.value(x)
    yield p.norm(1, (0, 2)), b.total(b.number_of(v.abs()), 0, 2)
    yield p.norm(float("inf"), 1), b.number_of(v.abs().amax(1))
    yield p.norm(-float("inf")), b.number_of(v.abs().min())
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
    unit = b.number(1.0)
    rows = torch.cat([z.unsqueeze(2), x.unsqueeze(1).expand(3, 5, 4)], 2)
    columns = torch.cat([unit.expand(5, 1), y.t()], 1)
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

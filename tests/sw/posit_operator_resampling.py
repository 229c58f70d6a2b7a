"""Cases of interpolation and of patches, held against Jacobians of torch's float64 operators."""

import torch
import torch.nn.functional as F
from posit_operator_bench import registry

CASES, case = registry()


def jacobian(function, shape):
    """Return the weights (results, elements) of a linear function."""
    x = torch.zeros(shape, dtype=torch.float64)
    return torch.autograd.functional.jacobian(function, x).reshape(-1, x.numel())


@case
def interpolations(b):
    for function, shape in (
        (lambda t: F.interpolate(t, scale_factor=2, mode="linear"), (1, 2, 4)),
        (lambda t: F.interpolate(t, 7, mode="linear", align_corners=True), (2, 1, 4)),
        (lambda t: F.interpolate(t, scale_factor=2, mode="bilinear"), (1, 2, 3, 4)),
        (lambda t: F.interpolate(t, (5, 2), mode="bilinear", align_corners=True), (1, 1, 3, 4)),
        (lambda t: F.interpolate(t, scale_factor=1.7, mode="bilinear"), (1, 1, 3, 4)),
        (lambda t: F.interpolate(t, (3, 4), mode="bicubic"), (1, 1, 5, 3)),
        (lambda t: F.interpolate(t, (2, 3), mode="bilinear", antialias=True), (1, 1, 5, 7)),
        (lambda t: F.interpolate(t, (2, 3), mode="bicubic", antialias=True), (1, 1, 5, 7)),
        (lambda t: F.interpolate(t, scale_factor=2, mode="trilinear"), (1, 1, 2, 1, 2)),
        (lambda t: F.interpolate(t, scale_factor=1.5, mode="nearest-exact"), (1, 2, 4)),
        (lambda t: F.interpolate(t, (3, 5), mode="nearest-exact"), (1, 1, 2, 3)),
        (lambda t: F.interpolate(t, scale_factor=2, mode="nearest-exact"), (1, 1, 2, 1, 2)),
    ):
        weights = b.number_of(jacobian(function, shape))
        x = b.some(*shape)
        p = b.posits(x, grad=True)
        y = function(p)
        yield y, b.matmul(weights, x.reshape(-1, 1)).reshape(y.shape)
        g = b.some(*y.shape)
        want = b.matmul(weights.t().flip(1), g.reshape(-1, 1).flip(0))
        if y.grad_fn.name().startswith("Upsample") and "Nearest" not in y.grad_fn.name():
            want = b.matmul(weights.t(), g.reshape(-1, 1))
        yield torch.autograd.grad(y, p, b.posits(g))[0], want.reshape(shape)


@case
def one_nar_reaches_only_its_neighbours(b):
    def doubled(t):
        return F.interpolate(t, 8, mode="linear")

    reached = jacobian(doubled, (1, 1, 4)) != 0
    for place in range(4):
        x = b.some(1, 1, 4)
        x[0, 0, place] = b.fmt.nar
        yield doubled(b.posits(x)).isnan().flatten(), reached[:, place]


@case
def patches(b):
    for how, size in (
        ({"kernel_size": 2, "stride": 2}, (4, 6)),
        ({"kernel_size": (3, 2), "padding": 1, "dilation": (1, 2), "stride": (2, 1)}, (4, 5)),
    ):
        shape = (2, 2, *size)
        image = b.some(*shape)
        p = b.posits(image, grad=True)
        columns = F.unfold(p, **how)
        yield columns, F.unfold(image.double(), **how).to(torch.int64)
        g = b.some(*columns.shape)
        fold = jacobian(lambda t, how=how, size=size: F.fold(t, size, **how), tuple(g.shape))
        places = torch.arange(g.numel()).reshape(g.shape).transpose(1, 2).flatten()
        # An element sums its patches in their order, patch by patch.
        ones = torch.where(fold[:, places] != 0, b.number(1.0), 0)
        want = b.matmul(ones, g.flatten()[places].unsqueeze(1)).reshape(shape)
        yield torch.autograd.grad(columns, p, b.posits(g))[0], want
        q = b.posits(g, grad=True)
        y = F.fold(q, size, **how)
        yield y, want
        yield F.fold(b.posits(g[0]), size, **how).shape, (2, *size)
        yield (
            torch.autograd.grad(y, q, p.detach())[0],
            F.unfold(image.double(), **how).to(torch.int64),
        )
    x = b.some(3, 5)
    p = b.posits(x, grad=True)
    y = p.unfold(1, 3, 1)
    g = b.some(*y.shape)
    ones = torch.where(jacobian(lambda t: t.unfold(1, 3, 1), (3, 5)) != 0, b.number(1.0), 0)
    want = b.matmul(ones.t().flip(1), g.reshape(-1, 1).flip(0)).reshape(3, 5)
    yield torch.autograd.grad(y, p, b.posits(g))[0], want

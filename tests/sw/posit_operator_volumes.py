"""Cases of convolutions of one to three dimensions, of pooling, and of what repeats elements."""

import itertools
import math

import torch
import torch.nn.functional as F
from posit_operator_bench import registry

CASES, case = registry()


def padded(x, edges):
    """Pad codes with zeros, or leave some out, by (before, behind) of each dimension."""
    flat = [side for pair in reversed(edges) for side in pair]
    return F.pad(x, flat)


def spread(x, stride):
    """Put zeros between codes (B, C, ...)."""
    for d, step in enumerate(stride, 2):
        sizes = list(x.shape)
        sizes[d] = (x.shape[d] - 1) * step + 1
        wider = x.new_zeros(sizes)
        wider[(slice(None),) * d + (slice(None, None, step),)] = x
        x = wider
    return x


def patches(x, kernel, stride, dilation):
    """Return positions and the codes under the kernel at each, (B, positions, C, *kernel)."""
    counts = [
        (size - d * (k - 1) - 1) // s + 1
        for size, k, s, d in zip(x.shape[2:], kernel, stride, dilation, strict=True)
    ]
    cut = [
        x[
            (
                ...,
                *(
                    slice(i * s, i * s + d * (k - 1) + 1, d)
                    for i, s, d, k in zip(at, stride, dilation, kernel, strict=True)
                ),
            )
        ]
        for at in itertools.product(*map(range, counts))
    ]
    return counts, torch.stack(cut, 1)


def convolved(b, x, w, bias, stride, dilation, groups):
    """Convolve padded codes; sums run over (channel, *kernel) and start from the bias."""
    counts, under = patches(x, w.shape[2:], stride, dilation)
    results = []
    for cut, kernels, start in zip(
        under.chunk(groups, 2), w.chunk(groups), bias.chunk(groups), strict=True
    ):
        lines = cut.flatten(2).unsqueeze(2)
        rows = torch.cat([start.unsqueeze(1), kernels.flatten(1)], 1)
        unit = b.number(1.0).expand(*lines.shape[:3], 1)
        results.append(b.dot(torch.cat([unit, lines], 3), rows))
    return torch.cat(results, 2).transpose(1, 2).reshape(len(x), len(w), *counts)


def by_weight(b, x, g, kernel, stride, dilation, groups):
    """Sum products of padded codes and gradients over (image, *position)."""
    _, under = patches(x, kernel, stride, dilation)
    results = []
    for cut, gradient in zip(under.chunk(groups, 2), g.chunk(groups, 1), strict=True):
        columns = cut.flatten(0, 1).flatten(1)
        rows = gradient.transpose(0, 1).flatten(1)
        results.append(b.matmul(rows, columns).reshape(-1, *cut.shape[2:]))
    return torch.cat(results)


def turned(w, groups):
    """Flip kernels and exchange inputs and outputs of each group."""
    flipped = w.flip(*range(2, w.dim()))
    return torch.cat([part.transpose(0, 1) for part in flipped.chunk(groups)])


GEOMETRIES = (  # image, kernel, stride, padding, dilation, groups, output padding
    ((7,), (3,), (2,), (2,), (2,), 2, (1,)),
    ((2, 3), (3, 2), (2, 3), (1, 0), (3, 1), 2, (2, 2)),
    ((2, 3, 3), (2, 3, 1), (2, 1, 2), (1, 2, 0), (1, 2, 1), 1, (1, 0, 0)),
    ((1, 1), (2, 3), (1, 1), (0, 0), (1, 1), 1, (0, 0)),
)


@case
def volumes_convolved(b):
    for image, kernel, stride, padding, dilation, groups, _ in GEOMETRIES[::2]:
        call = (F.conv1d, F.conv2d, F.conv3d)[len(image) - 1]
        x = b.some(2, groups, *image)
        w, bias = b.some(2 * groups, 1, *kernel), b.some(2 * groups)
        p, q, r = b.posits(x, w, bias, grad=True)
        y = call(p, q, r, stride, padding, dilation, groups)
        around = padded(x, [(side, side) for side in padding])
        yield y, convolved(b, around, w, bias, stride, dilation, groups)
        g = b.some(*y.shape)
        dx, dw, db = torch.autograd.grad(y, (p, q, r), b.posits(g))
        yield db, b.total(g, 0, *range(2, g.dim()))
        yield dw, by_weight(b, around, g, kernel, stride, dilation, groups)
        wide = spread(g, stride)
        edges = []
        for size, out, k, d, side in zip(
            image, wide.shape[2:], kernel, dilation, padding, strict=True
        ):
            before = d * (k - 1) - side
            edges.append((before, size + d * (k - 1) - out - before))
        unit = (1,) * len(image)
        none = torch.zeros(groups, dtype=torch.int64)
        yield dx, convolved(b, padded(wide, edges), turned(w, groups), none, unit, dilation, groups)


@case
def convolutions_transposed(b):
    for image, kernel, stride, padding, dilation, groups, extra in GEOMETRIES:
        call = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[len(image) - 1]
        x = b.some(2, groups, *image)
        w, bias = b.some(groups, 2, *kernel), b.some(2 * groups)
        p, q, r = b.posits(x, w, bias, grad=True)
        y = call(p, q, r, stride, padding, extra, groups, dilation)
        edges = [
            (d * (k - 1) - side, d * (k - 1) - side + more)
            for k, d, side, more in zip(kernel, dilation, padding, extra, strict=True)
        ]
        unit = (1,) * len(image)
        wide = padded(spread(x, stride), edges)
        yield y, convolved(b, wide, turned(w, groups), bias, unit, dilation, groups)
        g = b.some(*y.shape)
        dx, dw, db = torch.autograd.grad(y, (p, q, r), b.posits(g))
        yield db, b.total(g, 0, *range(2, g.dim()))
        around = padded(g, [(side, side) for side in padding])
        places = tuple(slice(size) for size in image)
        none = torch.zeros(groups, dtype=torch.int64)
        back = convolved(b, around, w, none, stride, dilation, groups)
        yield dx, back[(..., *places)]
        needed = [
            (size - 1) * s + d * (k - 1) + 1
            for size, s, d, k in zip(image, stride, dilation, kernel, strict=True)
        ]
        cut = around[(..., *(slice(size) for size in needed))]
        yield dw, by_weight(b, cut, x, kernel, stride, dilation, groups)


def selection(function, shape):
    """Return the Jacobian of torch's own function: 0 where a result ignores an element."""
    x = torch.arange(math.prod(shape), dtype=torch.float64).sin().reshape(shape)
    rows = torch.autograd.functional.jacobian(function, x)
    return rows.reshape(-1, math.prod(shape))


def backwards(b, chosen, g, shape):
    """Sum the gradients of all results that hold an element, the last result first."""
    columns = torch.where(chosen, b.number(1.0), 0).t().flip(1)
    return b.matmul(columns, g.flatten().flip(0).unsqueeze(1)).reshape(shape)


@case
def averages_of_windows(b):
    for function, shape in (
        (lambda t: F.avg_pool1d(t, 3, 2, 1, True), (2, 6)),
        (lambda t: F.avg_pool2d(t, 3, 2, 1, ceil_mode=True), (2, 5, 6)),
        (lambda t: F.avg_pool2d(t, (2, 3), (1, 2), (1, 0), False, False), (1, 2, 4, 7)),
        (lambda t: F.avg_pool3d(t, (2, 3, 2), (1, 2, 2), (1, 1, 0), True), (1, 3, 5, 3)),
        (lambda t: F.avg_pool3d(t, 2, 2, 1, True, False), (1, 1, 3, 3, 4)),
        (lambda t: F.adaptive_avg_pool1d(t, 3), (2, 7)),
        (lambda t: F.adaptive_avg_pool2d(t, (7, 2)), (1, 5, 4)),
        (lambda t: F.adaptive_avg_pool2d(t, 1), (1, 2, 3, 3)),
        (lambda t: F.adaptive_avg_pool3d(t, (2, 3, 1)), (1, 3, 4, 2)),
    ):
        x = b.special(b.some(*shape))
        p = b.posits(x, grad=True)
        y = function(p)
        shares = selection(function, shape)
        chosen = shares != 0
        counts = b.number_of((1 / shares.amax(1)).round()).reshape(y.shape)
        terms = torch.where(chosen, x.flatten(), 0)
        yield y, b.div(b.total(terms, 1).reshape(y.shape), counts)
        g = b.some(*y.shape)
        share = b.div(g, counts)
        yield torch.autograd.grad(y, p, b.posits(g))[0], backwards(b, chosen, share, shape)


@case
def maxima_of_windows(b):
    samples = torch.rand(1, 1, 3, generator=b.g, dtype=torch.float64)
    for function, shape in (
        (lambda t: F.max_pool1d(t, 3, 1, 1), (2, 6)),
        (lambda t: F.max_pool2d(t, (3, 2), 2, 1, (1, 2), True), (2, 5, 6)),
        (lambda t: F.max_pool3d(t, 2, 1), (1, 1, 3, 4, 3)),
        (lambda t: F.adaptive_max_pool1d(t, 4), (2, 7)),
        (lambda t: F.adaptive_max_pool2d(t, 3), (1, 1, 5, 4)),
        (lambda t: F.adaptive_max_pool3d(t, 2), (1, 3, 4, 3)),
        (lambda t: F.fractional_max_pool2d(t, 2, 3, _random_samples=samples[..., :2].to(t.dtype)),
         (1, 5, 5)),
        (lambda t: F.fractional_max_pool3d(t, 2, 2, _random_samples=samples.to(t.dtype)),
         (1, 4, 4, 5)),
        (lambda t: F.max_unpool2d(*F.max_pool2d(t, 2, return_indices=True), 2), (1, 4, 4)),
        (lambda t: F.max_unpool3d(*F.max_pool3d(t, 2, return_indices=True), 2), (1, 2, 4, 4)),
        (lambda t: F.pad(t, (2, 1), "reflect"), (2, 4)),
        (lambda t: F.pad(t, (2, 1, 1, 0), "reflect"), (1, 3, 4)),
        (lambda t: F.pad(t, (2, 1, 1, 0, 1, 1), "reflect"), (1, 3, 2, 4)),
        (lambda t: F.pad(t, (2, 1), "replicate"), (2, 4)),
        (lambda t: F.pad(t, (2, 1, 1, 0), "replicate"), (1, 3, 4)),
        (lambda t: F.pad(t, (2, 1, 1, 0, 1, 1), "replicate"), (1, 3, 2, 4)),
        (lambda t: F.interpolate(t, scale_factor=1.5), (1, 2, 4)),
        (lambda t: F.interpolate(t, size=(3, 5)), (1, 1, 2, 3)),
        (lambda t: F.interpolate(t, scale_factor=2), (1, 1, 2, 1, 2)),
    ):  # fmt: skip
        x = b.some(*shape)
        p, value = b.posits(x, grad=True), b.value(x)
        y = function(p)
        yield y, b.number_of(function(value))
        g = b.some(*y.shape)
        rows = torch.autograd.functional.jacobian(function, value).reshape(-1, x.numel())
        yield torch.autograd.grad(y, p, b.posits(g))[0], backwards(b, rows != 0, g, shape)


@case
def pixels_moved(b):
    x = b.some(1, 4, 2, 2)
    yield F.pixel_shuffle(b.posits(x), 2), F.pixel_shuffle(x, 2)
    yield F.pixel_unshuffle(b.posits(x), 2), F.pixel_unshuffle(x, 2)

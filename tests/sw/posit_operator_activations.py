"""Cases of activations."""

import torch
import torch.nn.functional as F
from posit_operator_bench import registry

CASES, case = registry()


@case
def smooth_activations(b):
    x, g = b.special(b.some(60, scale=3.0)), b.some(60)
    p = b.posits(x, grad=True)
    for function, name in (
        (F.gelu, "gelu"),
        (lambda t: F.gelu(t, approximate="tanh"), "gelu by tanh"),
        (F.silu, "silu"),
        (F.mish, "mish"),
    ):
        y = function(p)
        yield y, b.apply(name, x)
        yield torch.autograd.grad(y, p, b.posits(g))[0], b.mul(g, b.apply(f"{name} slope", x))
    yield F.silu(b.posits(x), inplace=True), b.apply("silu", x)
    yield F.mish(b.posits(x), inplace=True), b.apply("mish", x)
    yield torch.ops.aten.gelu_(b.posits(x)), b.apply("gelu", x)
    above = b.value(b.mul(x, b.number(2.0))) > b.value(b.number(3.0))
    y = F.softplus(p, 2, 3)
    half = b.div(b.apply("softplus", b.mul(x, b.number(2.0))), b.number(2.0))
    yield y, torch.where(above, x, half)
    slope = b.mul(g, b.apply("sigmoid", b.mul(x, b.number(2.0))))
    yield torch.autograd.grad(y, p, b.posits(g))[0], torch.where(above, g, slope)
    y = F.logsigmoid(p)
    yield y, b.neg(b.apply("softplus", b.neg(x)))
    yield torch.autograd.grad(y, p, b.posits(g))[0], b.mul(g, b.apply("sigmoid", b.neg(x)))
    y = F.glu(p.reshape(10, 6))
    a, s = x.reshape(10, 6).split(3, 1)
    s = b.apply("sigmoid", s)
    yield y, b.mul(a, s)
    half = g[:30].reshape(10, 3)
    rest = b.mul(b.mul(b.mul(half, a), b.sub(b.number(1.0), s)), s)
    dx = torch.autograd.grad(y, p, b.posits(half))[0]
    yield dx, torch.cat([b.mul(half, s), rest], 1).flatten()


@case
def pieced_activations(b):
    x, g = b.special(b.some(60, scale=3.0)), b.some(60)
    p, number = b.posits(x, grad=True), b.number
    value, zero = b.value(x), torch.zeros_like(x)
    up = value > 0

    def below(lam, scale, input_scale):
        return b.mul(b.apply("expm1", b.mul(x, number(input_scale))), number(lam * scale))

    def slope(lam, scale, input_scale):
        e = b.apply("exp", b.mul(x, number(input_scale)))
        return b.mul(b.mul(g, number(input_scale * lam * scale)), e)

    lam, scale = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946
    times = b.mul(x, number(0.2))
    ramp = b.clamp(b.add(x, number(3.0)), 0.0, 6.0)
    low, high = value <= -3, value >= 3
    moved = torch.where(up, b.sub(x, number(0.6)), b.add(x, number(0.6)))
    outside = (value.abs() > b.value(number(0.6))) | value.isnan()
    edges = b.value(number(-0.3)), b.value(number(0.7))
    between = ~((value <= edges[0]) | (value >= edges[1]))
    six, third = number(6.0), b.add(b.div(x, number(3.0)), number(0.5))
    for function, want, gradient in (
        (lambda t: F.elu(t, 0.3), torch.where(up, x, below(0.3, 1, 1.0)),
         torch.where(up, g, slope(0.3, 1, 1.0))),
        (lambda t: F.celu(t, 0.5), torch.where(up, x, below(0.5, 1, 2.0)),
         torch.where(up, g, slope(0.5, 1, 2.0))),
        (F.selu, torch.where(up, b.mul(x, number(scale)), below(lam, scale, 1.0)),
         torch.where(up, b.mul(g, number(scale)), slope(lam, scale, 1.0))),
        (lambda t: F.leaky_relu(t, 0.2), torch.where(up, x, times),
         torch.where(up, g, b.mul(g, number(0.2)))),
        (lambda t: F.hardtanh(t, -0.3, 0.7), b.clamp(x, -0.3, 0.7), torch.where(between, g, zero)),
        (F.hardsigmoid, b.div(ramp, six), torch.where(low | high, zero, b.div(g, six))),
        (F.hardswish, b.div(b.mul(x, ramp), six),
         torch.where(high, g, torch.where(low, zero, b.mul(g, third)))),
        (lambda t: F.softshrink(t, 0.6), torch.where(outside, moved, zero),
         torch.where(outside, g, zero)),
        (lambda t: F.hardshrink(t, 0.6), torch.where(outside, x, zero),
         torch.where(outside, g, zero)),
    ):  # fmt: skip
        y = function(p)
        yield y, want
        yield torch.autograd.grad(y, p, b.posits(g))[0], gradient
    for function, want in (
        (lambda t: F.elu_(t, 0.3), torch.where(up, x, below(0.3, 1, 1.0))),
        (lambda t: F.celu_(t, 0.3), torch.where(up, x, below(0.3, 1, 1 / 0.3))),
        (lambda t: F.leaky_relu_(t, 0.2), torch.where(up, x, times)),
        (lambda t: F.hardtanh_(t, -0.3, 0.7), b.clamp(x, -0.3, 0.7)),
        (lambda t: F.hardsigmoid(t, inplace=True), b.div(ramp, six)),
        (lambda t: F.hardswish(t, inplace=True), b.div(b.mul(x, ramp), six)),
    ):
        yield function(b.posits(x)), want
    y = torch.ops.aten.elu_backward(b.posits(g), 0.3, 1.0, 1.0, True, b.posits(x))
    yield y, torch.where(up, g, b.mul(g, b.add(x, number(0.3))))
    w = b.some(1)
    q = b.posits(w, grad=True)
    y = F.prelu(p, q)
    yield y, torch.where(up, x, b.mul(x, w))
    dx, dw = torch.autograd.grad(y, (p, q), b.posits(g))
    yield dx, torch.where(up, g, b.mul(g, w))
    yield dw, b.total(torch.where(up, zero, b.mul(g, x)), 0).reshape(1)

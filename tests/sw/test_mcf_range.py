"""Multi-component numbers at the ends: magnitudes, signed zeros, infinities, sizes of 0 and 0-d."""

import itertools
import math
import random
from fractions import Fraction
from typing import Any

import mpmath
import pytest
import torch
import torch.nn.functional as F
from folded import each
from slowly import mostly_slow

from trainwright import mcf
from trainwright.mcf import arithmetic, reference
from trainwright.mcf.constants import components_of
from trainwright.mcf.errorfree import PRECISION
from trainwright.support.native import without

KINDS = [
    (torch.float32, 2), (torch.float32, 3), (torch.float32, 4), (torch.float32, 5),
    (torch.float64, 2), (torch.float64, 3), (torch.float64, 4), (torch.float16, 3),
    (torch.bfloat16, 3), (torch.bfloat16, 5),
]  # fmt: skip
MANY = [(torch.float32, 5), (torch.bfloat16, 5)]
"""Kinds whose functions are computed as those of 4 components are."""
LONGEST = (torch.float64, 4)
SOME_KINDS = [(torch.float32, 1), (torch.float32, 2), (torch.float32, 4), (torch.float64, 2),
              (torch.bfloat16, 3)]  # fmt: skip
SLACK = 64
"""Greatest error of results, in halves of the last place of nc components, or of subnormals."""


def _least(dtype):
    return Fraction(torch.finfo(dtype).smallest_normal) / 2 ** (PRECISION[dtype] - 1)


def _numbers(dtype, nc, count, seed):
    """Draw numbers from the whole range: subnormal ones, the greatest, of few digits and of all."""
    draw = random.Random(seed)
    low = math.frexp(float(_least(dtype)))[1]
    high = math.frexp(torch.finfo(dtype).max)[1] - 1
    numbers = []
    while len(numbers) < count:
        ends = [low, low + 1, low + PRECISION[dtype], high, high - 1, 0, 1]
        exponent = draw.choice(ends) if draw.random() < 0.3 else draw.randint(low, high)
        bits = draw.choice([1, 5, PRECISION[dtype], PRECISION[dtype] * nc])
        mantissa = Fraction(draw.getrandbits(bits) | 1 << (bits - 1), 1 << (bits - 1))
        parts = components_of(mantissa * Fraction(2) ** (exponent - 1), dtype, nc)
        if parts[0] and all(map(math.isfinite, parts)):
            sign = draw.choice([-1, 1])
            numbers.append([sign * part for part in parts])
    numbers[0] = [torch.finfo(dtype).max, *[0.0] * (nc - 1)]
    return torch.tensor(numbers, dtype=torch.float64).to(dtype)


def _root(x):
    with mpmath.workprec(500):
        return _fraction(mpmath.sqrt(mpmath.mpf(x.numerator) / x.denominator))


def _fraction(x):
    return Fraction(int(x.man)) * Fraction(2) ** int(x.exp) * (1 if x >= 0 else -1)


OPERATIONS = {
    "add": (torch.add, lambda x, y: x + y),
    "mul": (torch.mul, lambda x, y: x * y),
    "div": (torch.div, lambda x, y: x / y if y else None),
    "reciprocal": (lambda x, _: torch.reciprocal(x), lambda x, _: 1 / x if x else None),
    "sqrt": (lambda x, _: torch.sqrt(abs(x)), lambda x, _: _root(abs(x))),
    "cube": (lambda x, _: x**3, lambda x, _: x**3),
    "inverse square": (lambda x, _: x**-2, lambda x, _: 1 / x**2 if x else None),
    "plain divisor": (lambda x, y: x / y.fc, None),
    "plain dividend": (lambda x, y: x.fc / y, None),
    "product": (lambda x, y: (x[:, None] @ y[None]).diagonal(), lambda x, y: x * y),
}


@pytest.mark.parametrize("name", OPERATIONS)
@each("dtype, nc", KINDS)
def test_operation_over_the_whole_range_has_all_components(name, dtype, nc):
    compute, exact = OPERATIONS[name]
    x, y = (mcf.MCTensor.from_components(_numbers(dtype, nc, 40, seed)) for seed in (1, 2))
    greatest = Fraction(torch.finfo(dtype).max)
    plain = [t.fc.double().tolist() for t in (x, y)]
    for a, b, c, d, result in zip(
        x.fractions(), y.fractions(), *plain, compute(x, y).fractions(), strict=True
    ):
        if exact is None:
            wanted = a / Fraction(d) if name == "plain divisor" else Fraction(c) / b
        else:
            wanted = exact(a, b)
        if isinstance(result, float):
            assert abs(wanted) >= greatest * (1 - Fraction(1, 2 ** (PRECISION[dtype] + 1)))
            continue
        last = abs(wanted) / 2 ** (PRECISION[dtype] * nc) + _least(dtype) / 2
        assert abs(result - wanted) <= SLACK * last, (a, b)


def test_reported_quotient_and_root_have_all_components():
    x = mcf.tensor(["1e-30"], nc=4, dtype=torch.float32)
    exact = x.exact_item() / Fraction(0.003)
    quotient = (x / 0.003).exact_item()
    assert abs(quotient - exact) < 2 * _least(torch.float32)
    for dtype, nc in KINDS:
        greatest = torch.finfo(dtype).max
        root = torch.sqrt(mcf.tensor([greatest], nc=nc, dtype=dtype)).exact_item()
        assert abs(root**2 / Fraction(greatest) - 1) < Fraction(
            SLACK, 2 ** min(PRECISION[dtype] * nc, 30)
        )


@pytest.mark.parametrize(
    ("dtype", "nc"), [(torch.float32, 4), (torch.float64, 2), (torch.float64, 3)]
)
@pytest.mark.parametrize("name", ["div", "mul"])
def test_kernels_and_torch_agree_at_the_ends(name, dtype, nc):
    x, y = _numbers(dtype, nc, 2000, 3), _numbers(dtype, nc, 2000, 4)
    for a, b in ((x, y), (x, y[:, :1]), (x[:, :1], y), (x, y[:1]), (x[:1], y)):
        fast = arithmetic.binary(name, a, b)
        assert torch.equal(fast, getattr(reference, name)(a, b))
    with without():
        assert torch.equal(arithmetic.binary(name, x, y), getattr(reference, name)(x, y))


def _float(x):
    """Return a fraction as a number of mpmath."""
    return mpmath.mpf(x.numerator) / x.denominator


def _exact_tanh_gelu(x):
    cubic = x + x**3 * mpmath.mpf(44715) / 10**6
    return x / (1 + mpmath.exp(-2 * mpmath.sqrt(2 / mpmath.pi) * cubic))


SMALL_RESULTS = {
    "exp": (torch.exp, mpmath.exp), "expm1": (torch.expm1, mpmath.expm1),
    "tanh": (torch.tanh, mpmath.tanh),
    "sigmoid": (torch.sigmoid, lambda x: 1 / (1 + mpmath.exp(-x))),
    "logsigmoid": (F.logsigmoid, lambda x: -mpmath.log1p(mpmath.exp(-x))),
    "tanh gelu": (lambda x: F.gelu(x, approximate="tanh"), _exact_tanh_gelu),
}  # fmt: skip
HALVES = 5
"""Greatest error of functions, in halves of the last place of nc components, or of subnormals."""


def check_small_results(name, dtype, nc):
    compute, exact = SMALL_RESULTS[name]
    draw, least = random.Random(nc), _least(dtype)
    low = math.frexp(float(least))[1] - 1
    # Small arguments down to the subnormal numbers, and those whose results are as small.
    numbers = [
        Fraction(draw.getrandbits(PRECISION[dtype] * nc) | 1) / 2 ** (PRECISION[dtype] * nc)
        * Fraction(2) ** draw.randint(low, min(-1, low + PRECISION[dtype] * (nc + 2)))
        for _ in range(40)
    ] + [Fraction(draw.random()) * -low * Fraction(3, 4) for _ in range(20)]  # fmt: skip
    parts = [components_of(draw.choice([-1, 1]) * x, dtype, nc) for x in numbers]
    x = mcf.MCTensor.from_components(torch.tensor(parts, dtype=torch.float64).to(dtype))
    for argument, result in zip(x.fractions(), compute(x).fractions(), strict=True):
        with mpmath.workprec(1500):
            wanted = exact(_float(argument))
        # Results of 2^-40,000,000 as fractions took 15 s for one kind of numbers.
        with mpmath.workprec(8000):
            last = abs(wanted) / 2 ** (PRECISION[dtype] * nc) + _float(least) / 2
            if argument and abs(wanted) < torch.finfo(dtype).max:
                assert abs(_float(result) - wanted) <= HALVES * last, float(argument)


@pytest.mark.parametrize("name", SMALL_RESULTS)
@each("dtype, nc", [kind for kind in KINDS if kind not in MANY])
def test_function_of_tiny_and_of_large_numbers_has_all_components(name, dtype, nc):
    check_small_results(name, dtype, nc)


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL_RESULTS)
@each("dtype, nc", MANY)
def test_function_of_tiny_and_of_large_numbers_has_all_of_many_components(name, dtype, nc):
    check_small_results(name, dtype, nc)


UNARY = {
    "neg": torch.neg, "abs": torch.abs, "sqrt": torch.sqrt, "exp": torch.exp, "log": torch.log,
    "expm1": torch.expm1, "tanh": torch.tanh, "sigmoid": torch.sigmoid, "relu": torch.relu,
    "logsigmoid": F.logsigmoid, "square": torch.square, "reciprocal": torch.reciprocal,
    "cube": lambda x: x**3, "inverse square": lambda x: x**-2, "clamp": lambda x: x.clamp(-1, 1),
    "clamp to nan": lambda x: x.clamp(min=math.nan),
    "clamp over nan": lambda x: x.clamp(max=math.nan),
    "plus -0": lambda x: x + -0.0, "times 0": lambda x: x * 0, "-0 over": lambda x: -0.0 / x,
    "plus inf": lambda x: x + math.inf, "over -inf": lambda x: x / -math.inf,
    "where": lambda x: torch.where(x > 0, x, -0.0), "sum": lambda x: x.unsqueeze(-1).sum(-1),
    "gelu": lambda x: F.gelu(x.clamp(min=-1)), "mean": lambda x: x.unsqueeze(-1).mean(-1),
    "tanh gelu": lambda x: F.gelu(x.clamp(min=-1), approximate="tanh"),
}  # fmt: skip
SPECIAL = torch.tensor([0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0, 0.5, -3.0])


def _same(x, y):
    signs = torch.signbit(x) == torch.signbit(y)
    return bool((((x == y) & signs) | (x.isnan() & y.isnan())).all())


GROWING = {
    "exp": torch.exp, "expm1": torch.expm1, "tanh": torch.tanh, "sigmoid": torch.sigmoid,
    "logsigmoid": F.logsigmoid, "gelu": F.gelu, "tanh gelu": UNARY["tanh gelu"],
    "softmax": lambda x: torch.softmax(torch.stack([x, 0 * x], 1), 1)[:, 0],
}  # fmt: skip


def check_limit(name, dtype, nc):
    sizes = [12.0, 88.0, 104.0, 699.0, 701.0, 1e3, 1e4, 6e4, 1e10, 1e30, 1e300]
    x = torch.tensor([s for size in sizes for s in (size, -size)], dtype=torch.float64)
    x = x[x.abs() < torch.finfo(dtype).max].to(dtype)
    result = GROWING[name](mcf.tensor(x, nc=nc)).to_float64()
    wanted = GROWING[name](x.double())
    wanted[wanted.abs() > torch.finfo(dtype).max] *= math.inf
    assert torch.allclose(result, wanted, rtol=1e-3, atol=1e-7), list(zip(x, result, strict=True))


@pytest.mark.parametrize("name", GROWING)
@each("dtype, nc", [kind for kind in KINDS if kind not in (*MANY, LONGEST)])
def test_function_of_numbers_beyond_the_range_of_exp_is_its_limit(name, dtype, nc):
    check_limit(name, dtype, nc)


@pytest.mark.slow
@pytest.mark.parametrize("name", GROWING)
@each("dtype, nc", [*MANY, LONGEST])
def test_function_of_many_components_beyond_the_range_of_exp_is_its_limit(name, dtype, nc):
    check_limit(name, dtype, nc)


@pytest.mark.parametrize("name", UNARY)
@each("dtype, nc", SOME_KINDS)
def test_function_of_zeros_infinities_and_nan_is_torchs(name, dtype, nc):
    wanted = UNARY[name](SPECIAL.double())
    result = UNARY[name](mcf.tensor(SPECIAL, nc=nc, dtype=dtype)).to_float64()
    ends = (wanted == 0) | ~wanted.isfinite() | (result == 0) | ~result.isfinite()
    assert _same(result[ends], wanted[ends])


@each("dtype, nc", KINDS)
@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "eq", "ne", "lt", "le", "gt", "ge"])
def test_operation_on_zeros_infinities_and_nan_is_torchs(name, dtype, nc):
    x, y = SPECIAL.repeat(len(SPECIAL)), SPECIAL.repeat_interleave(len(SPECIAL))
    compute = getattr(torch, name)
    ours = [mcf.tensor(t, nc=nc, dtype=dtype) for t in (x, y)]
    wanted = compute(x.double(), y.double()).double()
    for pair in (ours, (ours[0], y.to(dtype)), (x.to(dtype), ours[1])):
        result = compute(*pair)
        result = result.to_float64() if isinstance(result, mcf.MCTensor) else result.double()
        ends = (wanted == 0) | ~wanted.isfinite() | (result == 0) | ~result.isfinite()
        assert _same(result[ends], wanted[ends])


ALONG = {
    "sum": torch.sum, "mean": torch.mean, "softmax": torch.softmax,
    "log_softmax": torch.log_softmax, "flip": lambda x, d: x.flip(d),
    "unsqueeze": lambda x, d: x.unsqueeze(d), "cat": lambda x, d: torch.cat([x, x], d),
    "stack": lambda x, d: torch.stack([x, x], d), "squeeze": lambda x, d: x.squeeze(d),
    "kept": lambda x, d: x.sum(d, keepdim=True), "unbind": lambda x, d: x.unbind(d)[0],
    "select": lambda x, d: x.select(d, 0), "chunk": lambda x, d: x.chunk(2, d)[0],
}  # fmt: skip
WHOLE = {
    "sum": torch.sum, "mean": torch.mean, "flatten": torch.flatten, "view": lambda x: x.view(-1),
    "expand": lambda x: x.expand(4, *x.shape) * 2, "new": lambda x: x[None],
    "first": lambda x: x[0], "mask": lambda x: x[x > 0], "linear": F.linear,
    "mse": lambda x: F.mse_loss(x, x + 1),
    "product": lambda x: x @ x.transpose(-1, -2), "turned": lambda x: x.transpose(-1, -2) @ x,
    "strided": lambda x: x.transpose(0, -1).exp() * x.transpose(0, -1), "zeros": torch.zeros_like,
    "gelu": F.gelu, "sqrt": lambda x: torch.sqrt(abs(x)), "log": lambda x: torch.log(abs(x)),
    "tanh": torch.tanh, "div": lambda x: x / (x + 9), "clamp": lambda x: x.clamp(0, 1),
    "items": lambda x: torch.tensor(x.tolist()), "text": lambda x: torch.ones(len(repr(x)) > 0),
}  # fmt: skip
SHAPES = [(), (1,), (2, 0), (0, 3), (2, 0, 3), (1, 2, 3)]


def _outcome(compute, *operands):
    try:
        result = compute(*operands)
    except (IndexError, RuntimeError, TypeError, ValueError) as error:
        return error
    return result.to_float64() if isinstance(result, mcf.MCTensor) else result.double()


def _check_outcome(compute, plain, ours, dtype):
    wanted = _outcome(compute, *plain)
    if isinstance(wanted, Exception):
        return
    result = _outcome(compute, *ours)
    assert not isinstance(result, Exception), repr(result)
    assert result.shape == wanted.shape
    tolerance = {torch.float32: 1e-5, torch.float64: 1e-12, torch.float16: 3e-2}[dtype]
    torch.testing.assert_close(result, wanted, rtol=tolerance, atol=tolerance, equal_nan=True)


@pytest.mark.filterwarnings("ignore:Using a target size")
@mostly_slow(
    "shape, kind",
    itertools.product(
        SHAPES, [(torch.float32, 2), (torch.float32, 4), (torch.float64, 3), (torch.float16, 2)]
    ),
    lambda shape, kind: kind[1] < 4 or shape in ((), (2, 0, 3), (1, 2, 3)),
    ids=str,
)
def test_function_of_any_size_has_torchs_shape_and_values(shape, kind):
    dtype, nc = kind
    generator = torch.Generator().manual_seed(len(shape))
    plain = torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)
    ours = mcf.tensor(plain, nc=nc)
    slow = ("gelu", "tanh", "log") if nc > 2 else ()
    for name, compute in WHOLE.items():
        if name in slow and plain.numel():
            continue
        _check_outcome(compute, (plain,), (ours,), dtype)
    reach = max(1, len(shape))
    for compute, dim in itertools.product(ALONG.values(), range(-reach, reach)):
        _check_outcome(lambda x, c=compute, d=dim: c(x, d), (plain,), (ours,), dtype)


PRODUCTS = [
    ((2, 0, 3), (3, 4)), ((2, 3), (3, 0)), ((0, 3), (3, 2)), ((2, 0), (0, 3)), ((0,), (0,)),
    ((3,), (3, 2)), ((2, 3), (3,)), ((2, 0), (0,)), ((0,), (0, 2)), ((0, 2, 3), (3, 4)),
    ((0, 2, 3), (3,)), ((2, 0, 3), (2, 3, 4)), ((5, 2, 3), (1, 3, 0)), ((0, 1, 2, 3), (4, 3, 2)),
    ((1, 2, 0), (5, 0, 3)), ((2, 3), (0, 3, 4)), ((3,), (0, 3, 2)), ((2, 1, 3), (2, 3, 1)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("dtype", "nc"),
    [(torch.float32, 2), (torch.float32, 4), (torch.float64, 3), (torch.float16, 2)],
)
def test_product_of_any_sizes_has_torchs_shape_and_values(dtype, nc):
    generator = torch.Generator().manual_seed(5)
    for shapes in PRODUCTS:
        x, y = (torch.randn(s, generator=generator, dtype=torch.float64).to(dtype) for s in shapes)
        a, b = mcf.tensor(x, nc=nc), mcf.tensor(y, nc=nc)
        for pair in ((a, b), (a, y), (x, b)):
            _check_outcome(torch.matmul, (x, y), pair, dtype)


VIEWS = [
    lambda x: x.t(), lambda x: x[::2, :4], lambda x: x[:1].expand(4, 5),
    lambda x: x[:, :1].expand(4, 5), lambda x: x.flip(0), lambda x: x[:, 1:].contiguous()[:, ::2],
]  # fmt: skip


@pytest.mark.parametrize(
    ("dtype", "nc"), [(torch.float32, 2), (torch.float32, 4), (torch.float64, 3)]
)
def test_operation_on_strided_and_expanded_views_has_torchs_values(dtype, nc):
    generator = torch.Generator().manual_seed(6)
    plain = torch.randn(4, 5, generator=generator, dtype=torch.float64).to(dtype)
    ours = mcf.tensor(plain, nc=nc)
    for first, second in itertools.product(VIEWS, VIEWS):
        if first(plain).shape != second(plain).shape:
            continue
        for compute in (torch.add, torch.mul, torch.div, lambda x, y: x.mT @ y):
            views = [(first(t), second(t)) for t in (plain, ours)]
            _check_outcome(compute, *views, dtype)


@pytest.mark.parametrize("nc", [2, 3])
def test_mean_of_half_numbers_is_finite_where_their_sum_is_not(nc):
    x = mcf.tensor([[60000, 60000], [1, 2]], nc=nc, dtype=torch.float16)
    assert torch.mean(x, 1).fractions() == [60000, 1.5]


@pytest.mark.parametrize(
    ("dtype", "nc", "size"),
    [
        (torch.float32, 2, 10**12), (torch.float32, 3, -(10**18)), (torch.float64, 2, -(10**30)),
        (torch.bfloat16, 2, 60011),
    ],
)  # fmt: skip
def test_softmax_of_large_numbers_subtracts_every_component_of_the_largest(dtype, nc, size):
    x = mcf.tensor([[size, size + 1], [size, size]], nc=nc, dtype=dtype)
    exact = torch.softmax(torch.tensor([[0, 1], [0, 0]], dtype=torch.float64), 1)
    for function, wanted in ((torch.softmax, exact), (torch.log_softmax, exact.log())):
        ours: Any = function(x, 1)
        assert torch.allclose(ours.to_float64(), wanted, rtol=2.0**-8)

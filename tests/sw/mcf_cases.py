"""Operands for multi-component floats and exact references, in integers."""

import math
import random

import torch

from trainwright.mcf.errorfree import PRECISION

SPAN = {torch.float16: 2, torch.bfloat16: 20, torch.float32: 20, torch.float64: 100}
UNIT = 1200
"""Exact numbers are integers of 2^-UNIT, products of two of them of 2^-(2 UNIT)."""


def exact(x):
    """Return the numbers of components (..., nc), flat, in units of 2^-UNIT."""
    rows = x.to(torch.float64).reshape(-1, x.shape[-1]).tolist()
    return [sum(map(_units, row)) for row in rows]


def _units(value):
    top, bottom = value.as_integer_ratio()
    return top << (UNIT + 1 - bottom.bit_length())


def _cut(value, digits):
    """Return the nearest integer of at most ``digits`` significant bits, ties to even."""
    size = abs(value)
    drop = size.bit_length() - digits
    if drop <= 0:
        return value
    kept, rest = size >> drop, size & ((1 << drop) - 1)
    half = 1 << (drop - 1)
    kept += rest > half or (rest == half and kept & 1)
    return (kept << drop) * (1 if value > 0 else -1)


def _components(value, exponent, dtype, nc):
    """Split value 2^exponent into components; only float16 becomes subnormal."""
    parts = []
    for _ in range(nc):
        part = _cut(value, PRECISION[dtype])
        if dtype is torch.float16:  # multiples of 2^-24
            unit = max(0, -24 - exponent)
            part = _cut(value, min(PRECISION[dtype], max(abs(value).bit_length() - unit, 1)))
            part = (part >> unit) << unit if part > 0 else -((-part >> unit) << unit)
        parts.append(math.ldexp(part >> max(0, part.bit_length() - 60), exponent
                                + max(0, part.bit_length() - 60)))  # fmt: skip
        value -= part
    return parts


def of_integers(pairs, dtype, nc):
    """Return normalised components of numbers (value, exponent)."""
    rows = [_components(value, exponent, dtype, nc) for value, exponent in pairs]
    return torch.tensor(rows, dtype=torch.float64).to(dtype)


def _number(rng, width):
    """Draw an integer of at most ``width`` + 1 bits: random bits, or a few far apart."""
    kind = rng.random()
    if kind < 0.7:
        return rng.getrandbits(width) | 1 << (width - 1)
    places = [1 << rng.randrange(width - 1) for _ in range(2)]
    return (1 << width) + rng.choice((1, -1)) * places[0] + rng.choice((0, 1, -1)) * places[1]


def pairs(count, nc, dtype, seed=0):
    """Draw two tensors (count, nc): a third of mixed magnitude, the rest near or cancelling."""
    rng = random.Random(seed)
    width, span = PRECISION[dtype] * nc + 5, SPAN[dtype]
    first, second = [], []
    for _ in range(count):
        a, place = _number(rng, width) * rng.choice((1, -1)), rng.randint(-span, span) - width
        kind = rng.random()
        if kind < 0.35:
            b, other = _number(rng, width), rng.randint(-span, span) - width
        elif kind < 0.6:
            b, other = _number(rng, width), place + rng.randint(-3, 3)
        else:
            near = (a * (rng.getrandbits(8) + 1)) >> rng.randint(4, width)
            b, other = -a + rng.choice((1, -1)) * near, place
        sides = [(a, place), (b or 1, other)]
        rng.shuffle(sides)
        first.append(sides[0])
        second.append(sides[1])
    return of_integers(first, dtype, nc), of_integers(second, dtype, nc)


def errors(name, results, a, b):
    """Return (error, exact result) of each sum, product or quotient, in integer units."""
    for got, i, j in zip(results, a, b, strict=True):
        if name == "add":
            yield got - (i + j), i + j
        elif name == "mul":
            yield (got << UNIT) - i * j, i * j
        else:
            yield got * j - (i << UNIT), i << UNIT


def worst_bits(rows):
    """Return -log2 of the largest relative error of (error, exact result or scale)."""
    worst = 0.0
    for error, scale in rows:
        if error:
            assert scale, "an error where the exact result is 0"
            worst = max(worst, abs(error / scale))
    return -math.log2(worst) if worst else math.inf


SPECIAL = [0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.5]


def special(dtype, nc):
    """Return zeros, infinities, NaN, subnormal numbers and the ends of the range."""
    info = torch.finfo(dtype)
    ends = [info.max, -info.max, info.max / 2, info.smallest_normal, -info.smallest_normal / 4,
            info.smallest_normal * info.eps]  # fmt: skip
    lead = torch.tensor([*SPECIAL, *ends], dtype=torch.float64).to(dtype)
    return torch.stack([lead, *[torch.zeros_like(lead)] * (nc - 1)], -1)


def same(x, y):
    """Return whether bits are equal, with any NaN equal to any other."""
    signs = (torch.signbit(x) == torch.signbit(y)) | x.isnan()
    return bool((((x == y) & signs) | (x.isnan() & y.isnan())).all())

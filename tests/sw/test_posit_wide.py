"""Double rounding, looked for where it hides: results a hair off a tie of the widest posits."""

from fractions import Fraction
from math import isqrt

import pytest
import torch
from posit_reference import nearest, parts, reciprocal_root

from trainwright import posit
from trainwright.posit import PositFormat, grid, round_to
from trainwright.posit.exactness import DOUBLE, carrier, products_round_once, sums_round_once
from trainwright.posit.rounding import codes_of

WIDE = [PositFormat(32, es) for es in range(5)] + [PositFormat(29, 0), PositFormat(30, 1)]
FORMATS = pytest.mark.parametrize("fmt", WIDE, ids=str)


def reals(integers, shift):
    return torch.tensor(integers, dtype=torch.float64) * 2.0**-shift


def of_format(x, fmt):
    """Check that each value of ``x`` belongs to the format; return ``x``."""
    assert torch.equal(round_to(x, fmt), x)
    return x


def expected(fmt, exact, *operands):
    rows = zip(*(x.tolist() for x in operands), strict=True)
    return [nearest(exact(*map(Fraction, row)), fmt.n, fmt.es) for row in rows]


def odd_numbers(digits, count, seed):
    g = torch.Generator().manual_seed(seed)
    return (torch.randint(1 << (digits - 1), 1 << digits, (count,), generator=g) | 1).tolist()


def products_beside_ties(p):
    """Draw odd a, b of p digits with a product next to a tie of p digits."""
    pairs = []
    for a in odd_numbers(p, 200, p):
        for off in (1, -1):
            b = ((1 << (p - 1)) + off) * pow(a, -1, 1 << p) % (1 << p)
            if b >> (p - 1) and (a * b) >> (2 * p - 1):
                pairs.append((a, b))
    a, b = zip(*pairs, strict=True)
    return reals(a, p - 1), reals(b, p)  # [1, 2) and [1/2, 1), product in [1, 2)


@FORMATS
def test_products_a_bit_off_a_tie(fmt, posit_path):
    a, b = (of_format(x, fmt) for x in products_beside_ties(fmt.digits))
    want = expected(fmt, lambda x, y: x * y, a, b)
    assert codes_of(grid.mul(a, b, fmt), fmt).tolist() == want
    for row in along_vectors(a, b, fmt):
        assert row == want
    if not products_round_once(fmt):
        assert posit.encode(a * b, fmt).tolist() != want  # what float64 alone would give


def along_vectors(a, b, fmt):
    """Return products as elements of outer products, which kernels form in vectors."""
    outer = posit.matmul(codes_of(a, fmt)[:, None], codes_of(b, fmt)[None], fmt, "sequential")
    exact = posit.matmul(codes_of(a, fmt)[:, None], codes_of(b, fmt)[None], fmt, "quire")
    return outer.diagonal().tolist(), exact.diagonal().tolist()


@FORMATS
def test_quotients_beside_ties(fmt, posit_path):
    p, xs, ys = fmt.digits, [], []
    for y in odd_numbers(p, 400, 7 * p):
        for off in (1, -1):  # x 2^(p + 1) = m y + off with a tie m of p + 1 digits
            m = -off * pow(y, -1, 1 << (p + 1)) % (1 << (p + 1))
            x = (m * y + off) >> (p + 1)
            if m >> p and x >> (p - 1):
                xs.append(x)
                ys.append(y)
    assert len(xs) > 20
    x, y = of_format(reals(xs, p - 1), fmt), of_format(reals(ys, p), fmt)  # quotients in [1, 2)
    for a, b in ((x, y), (x, -y), (-x, y)):
        want = expected(fmt, lambda x, y: x / y, a, b)
        assert codes_of(grid.div(a, b, fmt), fmt).tolist() == want


def roots_beside_ties(p):
    """Draw x of p digits whose root is next to an odd number of p + 1 digits."""
    bits, roots = p + 1, set()
    for r in range(-63, 64, 8):  # odd squares are 1 modulo 8
        root = 1
        for k in range(3, bits + 1):  # one more bit at a time
            if (root * root - r) % (1 << k):
                root += 1 << (k - 2)
        for m in (root, -root, root + (1 << (bits - 1)), -root + (1 << (bits - 1))):
            m %= 1 << bits
            x = (m * m - r) >> bits
            if m >> p and x >> (p - 1) == 1 and (m * m - r) % (1 << bits) == 0:
                roots.add((x, m))
    return roots


@FORMATS
def test_roots_beside_ties(fmt, posit_path):
    p = fmt.digits
    roots = roots_beside_ties(p)
    assert len(roots) > 4
    x = of_format(reals([x for x, _ in roots], p - 1), fmt)  # [1, 2), root in [1, sqrt 2)
    want = []
    for number, m in roots:
        root = isqrt(number << (p + 1))  # below or at the exact root
        assert abs(root - m) <= 1
        above = Fraction(2 * root + 1, 1 << (p + 1))  # between root and root + 1
        want.append(nearest(above, fmt.n, fmt.es))
    assert codes_of(grid.sqrt(x, fmt), fmt).tolist() == want
    if fmt.digits > 27:
        assert posit.encode(x.sqrt(), fmt).tolist() != want  # what float64 alone would give


@FORMATS
def test_reciprocal_roots_beside_ties_are_nearest(fmt):
    """Take x next to 1 / m^2 for half-way numbers m, the powers of four, and words at random."""
    p = fmt.digits
    ties = reals(odd_numbers(p + 1, 100, p), p)
    x = torch.cat([round_to(ties**-2, fmt).to(torch.float64), reals([1, 2, 4, 16, 1 << 20], 10)])
    g = torch.Generator().manual_seed(p)
    codes = torch.cat(
        [posit.encode(x, fmt), torch.randint(0, 1 << fmt.n, (100,), generator=g),
         torch.tensor([0, fmt.nar, fmt.nar - 1, 1, fmt.mask])]
    )  # fmt: skip
    got = codes_of(grid.rsqrt(round_to(posit.decode(codes, fmt), fmt), fmt), fmt)
    assert got.tolist() == [reciprocal_root(code, fmt.n, fmt.es) for code in codes.tolist()]


@pytest.mark.parametrize("fmt", [PositFormat(16, 2), PositFormat(16, 0)], ids=str)
def test_reciprocal_roots_of_every_word_are_nearest(fmt):
    codes = torch.arange(1, fmt.nar)
    got = codes_of(grid.rsqrt(round_to(posit.decode(codes, fmt), fmt), fmt), fmt).tolist()
    for code, root in zip(codes.tolist(), got, strict=True):
        x, exponent = parts(code, fmt.n, fmt.es)
        for half, above in ((2 * root - 1, False), (2 * root + 1, True)):
            if half in (1, 2 * fmt.nar - 1):
                continue  # nothing rounds to 0 or NaR
            size, scale = parts(half, fmt.n + 1, fmt.es)
            product, places = x * size * size, exponent + 2 * scale
            unit = 1 << max(0, -places)  # compare h^2 x with 1
            excess = (product << max(0, places)) - unit
            assert excess >= 0 if above else excess <= 0, code
            assert excess or root % 2 == 0, code  # a tie goes to the even word


@pytest.mark.parametrize("fmt", [*WIDE, PositFormat(16, 2), PositFormat(8, 0)], ids=str)
def test_posit_wide_tiny_addend_decides_a_product_on_a_tie(fmt, posit_path):
    p = fmt.digits
    ties = []
    for a in odd_numbers(p - 1, 40, p):
        if (3 * a).bit_length() == p + 1:  # odd: a tie of p digits
            ties.append((a, 3))
    a, b = zip(*ties, strict=True)
    x, y = of_format(reals(a, p - 2), fmt), of_format(reals(b, 2), fmt)
    kind = carrier(fmt)
    for tiny in (fmt.minpos, -fmt.minpos, 2.0**-40 if fmt.max_scale > 40 else fmt.minpos, 0.0):
        z = torch.full_like(x, tiny)
        want = expected(fmt, lambda x, y, z: x * y + z, x, y, z)
        got = grid.fma(x.to(kind), y.to(kind), z.to(kind), fmt)
        assert codes_of(got, fmt).tolist() == want
    if fmt.max_scale > 53:
        twice = posit.encode(x * y + fmt.minpos, fmt), posit.encode(x * y - fmt.minpos, fmt)
        assert torch.equal(*twice)  # float64 alone does not see the addend
        up = grid.fma(x.to(kind), y.to(kind), torch.full_like(x, fmt.minpos).to(kind), fmt)
        down = grid.fma(x.to(kind), y.to(kind), torch.full_like(x, -fmt.minpos).to(kind), fmt)
        assert (up > down).all()


def left_over_beside_ties(fmt):
    """Draw a, b of p digits whose product less its upper half is next to a tie."""
    p = fmt.digits
    spare = p - fmt.digits_at(-p)  # digits that the lower half has too many
    triples = []
    for a in odd_numbers(p, 300, p):
        for b in odd_numbers(p, 40, a):
            product = a * b
            if product >> (2 * p - 1) and product >> (p - 1) & 1:
                off = product % (1 << spare) - (1 << (spare - 1))
                b -= off * pow(a, -1, 1 << spare) % (1 << spare)
                b += pow(a, -1, 1 << spare) if len(triples) % 2 else -pow(a, -1, 1 << spare)
                product = a * b
                if b >> (p - 1) == 1 and product >> (2 * p - 1) and product >> (p - 1) & 1:
                    assert abs(product % (1 << spare) - (1 << (spare - 1))) == 1
                    triples.append((a, b, product >> p))
    return triples[:100]


@pytest.mark.parametrize("es", [1, 2, 3])
def test_posit_wide_rounds_rest_of_cancellation_by_last_bit(es, posit_path):
    fmt = PositFormat(32, es)
    p = fmt.digits
    a, b, c = zip(*left_over_beside_ties(fmt), strict=True)
    assert len(a) > 20
    x, y, z = reals(a, p - 1), reals(b, p), -reals(c, p - 1)  # x y in [1, 2)
    for t in (x, y, z):
        of_format(t, fmt)
    want = expected(fmt, lambda x, y, z: x * y + z, x, y, z)
    assert codes_of(grid.fma(x, y, z, fmt), fmt).tolist() == want
    unit = torch.ones_like(z)
    dots = posit.dot(*(codes_of(torch.stack(t, 1), fmt) for t in ((x, z), (y, unit))), fmt)
    assert dots.tolist() == want


def test_float64_sums_need_no_correction_in_any_format():
    assert all(sums_round_once(PositFormat(n, es), DOUBLE) for n in range(2, 33) for es in range(5))

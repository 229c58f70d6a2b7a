"""Every operation on codes, correctly rounded: all of them for 8 bits, and against rationals."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from folded import each
from posit_reference import nearest, parts, table, value

from trainwright import posit
from trainwright.posit import PositFormat, word
from trainwright.posit.exactness import carrier
from trainwright.posit.rounding import codes_of, values_of

OPERATIONS = {"add": 2, "sub": 2, "mul": 2, "div": 2, "sqrt": 1, "fma": 3}
EVERY_FORMAT = [PositFormat(n, es) for n in range(2, 33) for es in range(5)]


def wrong(operation, codes, fmt):
    """Count results that are not correctly rounded."""
    got = getattr(posit, operation)(*codes, fmt)
    return int(
        table(fmt.n, fmt.es).wrong(operation, got.numpy(), *(c.numpy() for c in codes)).sum()
    )


@pytest.mark.parametrize("operation", ["add", "sub", "mul", "div"])
@pytest.mark.parametrize("es", [0, 1, 2])
def test_posit_exact_operations_round_all_8_bit_pairs(es, operation, posit_path):
    every = torch.arange(256)
    a, b = every.repeat_interleave(256), every.repeat(256)
    assert wrong(operation, (a, b), PositFormat(8, es)) == 0


def test_posit_exact_check_of_these_tests_tells_a_neighbour_from_the_nearest():
    every = torch.arange(256)
    a, b = every.repeat_interleave(256), every.repeat(256)
    got = posit.add(a, b, PositFormat(8, 2))
    for off in (1, 255):
        assert table(8, 2).wrong("add", ((got + off) % 256).numpy(), a.numpy(), b.numpy()).all()
    assert (
        table(8, 2).wrong("sqrt", np.array([0x80]), np.array([0x40])).all()
    )  # root of 1 is no NaR


@pytest.mark.parametrize("fmt", [PositFormat(16, 1), PositFormat(16, 2)], ids=str)
def test_posit_exact_functions_round_all_65536_codes(fmt, posit_path):
    every = torch.arange(1 << 16)
    decoded = posit.decode(every, fmt)
    expected = table(16, fmt.es).floats()
    expected[fmt.nar] = np.nan
    np.testing.assert_array_equal(decoded.numpy(), expected)
    assert torch.equal(posit.encode(decoded, fmt), every)
    assert wrong("sqrt", (every,), fmt) == 0


@pytest.mark.parametrize("fmt", [PositFormat(16, 1), PositFormat(16, 2)], ids=str)
def test_posit_ties_of_16_bits_round_to_even(fmt, posit_path):
    codes = torch.arange(1 << 16)
    within = ~torch.isin(codes, torch.tensor([0, fmt.nar - 1, fmt.nar, fmt.mask]))
    low = codes[within]  # below a tie, whose upper neighbour in value is the next code
    ties = torch.from_numpy(table(16, fmt.es).floats("halves")[1::2])[within]
    assert torch.equal(posit.encode(ties, fmt), low + low % 2)
    infinity = torch.tensor(float("inf"), dtype=torch.float64)
    assert torch.equal(posit.encode(torch.nextafter(ties, -infinity), fmt), low)
    assert torch.equal(posit.encode(torch.nextafter(ties, infinity), fmt), low + 1)


@pytest.mark.parametrize("source", [PositFormat(16, 1), PositFormat(16, 2)], ids=str)
@pytest.mark.parametrize("n, es", [(16, 1), (16, 2), (8, 0), (8, 2), (12, 3), (2, 2), (3, 0)])
def test_conversions_of_all_65536_codes(source, n, es, posit_path):
    every, fmt = torch.arange(1 << 16), PositFormat(n, es)
    got = posit.convert(every, source, fmt)
    exact = table(16, source.es).floats()
    expected = table(n, es).nearest(exact)
    expected[source.nar] = fmt.nar
    np.testing.assert_array_equal(got.numpy(), expected)
    wide = PositFormat(32, source.es)
    assert torch.equal(posit.convert(every, source, wide), every << 16)
    assert torch.equal(posit.convert(every << 16, wide, source), every)


def pairs(count, seed, n=16):
    """Draw codes: half of any kind, half of like magnitude, where sums cancel."""
    g = torch.Generator().manual_seed(seed)
    a, b, c = (torch.randint(0, 1 << n, (count,), generator=g) for _ in range(3))
    near = (a[::2] + torch.randint(-64, 65, a[::2].shape, generator=g)) % (1 << n)
    b[::2] = torch.where(b[::2] % 2 == 0, near, ((1 << n) - near) % (1 << n))
    return a, b, c


@pytest.mark.parametrize("operation", ["add", "sub", "mul", "div", "fma"])
@pytest.mark.parametrize(
    "count", [250_000, pytest.param(10_000_000, marks=pytest.mark.slow)], ids=str
)
def test_random_pairs_of_posit_16_2(operation, count, posit_path):
    fmt, chunk = PositFormat(16, 2), 250_000
    for seed in range(count // chunk):
        codes = pairs(chunk, seed)[: OPERATIONS[operation]]
        assert wrong(operation, codes, fmt) == 0, seed


@pytest.mark.parametrize("es", range(5))
@each("n", range(2, 17))
def test_every_format_up_to_16_bits(n, es, posit_path):
    fmt = PositFormat(n, es)
    codes = pairs(600, n, n)
    specials = torch.tensor([0, 1, fmt.nar - 1, fmt.nar, (fmt.nar + 1) & fmt.mask, fmt.mask])
    for operand, repeat in zip(codes, (36, 6, 1), strict=True):
        cycle = specials.repeat_interleave(repeat).repeat(216 // (6 * repeat))
        operand[:216] = cycle
    for operation, count in OPERATIONS.items():
        assert wrong(operation, codes[:count], fmt) == 0


EXACT = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y if y else None,
    "fma": lambda x, y, z: x * y + z,
}


@each("fmt", [f for f in EVERY_FORMAT if f.n > 16], ids=str)
def test_every_format_over_16_bits_against_rationals(fmt, posit_path):
    codes = pairs(12, fmt.n * 5 + fmt.es, fmt.n)
    codes[2][::3] = posit.sub(codes[2] * 0, posit.mul(*codes[:2], fmt), fmt)[::3]  # fma cancels
    for operation, exact in EXACT.items():
        operands = codes[: OPERATIONS[operation]]
        got = getattr(posit, operation)(*operands, fmt).tolist()
        for result, *words in zip(got, *(c.tolist() for c in operands), strict=True):
            real = fmt.nar not in words
            x = exact(*(value(w, fmt.n, fmt.es) for w in words)) if real else None
            assert result == nearest(x, fmt.n, fmt.es), (operation, words)


@each("fmt", EVERY_FORMAT, ids=str)
def test_words_one_at_a_time_and_tensors_are_the_same(fmt):
    g = torch.Generator().manual_seed(fmt.n)
    codes = torch.randint(0, 1 << fmt.n, (40,), generator=g)
    codes[:4] = torch.tensor([0, 1, fmt.nar - 1, fmt.mask])
    floats = posit.decode(codes, fmt)
    assert torch.equal(posit.encode(floats, fmt), codes)
    assert torch.equal(codes_of(values_of(codes, fmt), fmt), codes)
    assert values_of(codes, fmt).dtype is carrier(fmt)
    for code, x in zip(codes.tolist(), floats.tolist(), strict=True):
        if code == fmt.nar:
            assert word.value(code, fmt) is None and x != x
            continue
        assert word.value(code, fmt) == value(code, fmt.n, fmt.es) == Fraction(x)
        fields = parts(code, fmt.n, fmt.es)
        assert fields is not None and word.round_exact(*fields, fmt) == code
        nudged = Fraction(x) * Fraction(2**70 + 7, 2**70)
        exponent = nudged.denominator.bit_length() - 1
        got = word.round_exact(nudged.numerator, -exponent, fmt)
        assert got == nearest(nudged, fmt.n, fmt.es)

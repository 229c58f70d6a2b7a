"""Number formats of tensors, held against ``trainwright.posit`` and ``trainwright.fixed``."""

from bisect import bisect
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
import torch

from trainwright.fixed.quantise import quantise
from trainwright.formats import (
    UNDERFLOWS,
    Fixed,
    FormatError,
    Posit,
    parse_format,
    parse_formats,
    sum_width,
)
from trainwright.formats.base import SUM_WIDTH
from trainwright.formats.rounding import MAX_SHIFT, limits
from trainwright.posit import PositFormat, codes
from trainwright.posit.quire import Quire
from trainwright.posit.word import round_exact, value

PLAIN = [
    Posit(n, es) for n in range(3, 11) for es in range(3) if 2 * ((n - 2) << es) + 2 <= SUM_WIDTH
]
CLAMPED = [Posit(7, 1, clamped=True), Posit(8, 1, clamped=True), Posit(6, 2, clamped=True)]
POSITS = [*PLAIN, *CLAMPED]
SHIFTS = (0, 1, 2, 3, 5, 12, 24, 40)


def reference(fmt: Posit) -> PositFormat:
    return PositFormat(fmt.n, fmt.es)


def signed(code: int, fmt: Posit) -> int:
    return code - (1 << fmt.n) if code >> (fmt.n - 1) else code


@cache  # both rules for what underflows round the same sums, which takes most of the time
def rounded(fmt: Posit, total: int, shift: int) -> int:
    return signed(round_exact(total, -shift - fmt.scale, reference(fmt)), fmt)


@cache
def greatest(fmt: Posit) -> int:
    return int(value(fmt.largest, reference(fmt)) * 2**fmt.scale)


def nearest(fmt: Posit, total: int, shift: int, underflow: str) -> tuple[int, bool, bool]:
    """Round as the posit library does, then apply the clamp and the rule for what underflows."""
    word = rounded(fmt, total, shift)
    if underflow == "zero" and 2 * abs(total) <= 1 << shift:
        word = 0
    word = max(-fmt.largest, min(fmt.largest, word))
    return word, abs(total) > greatest(fmt) << shift, 0 < abs(total) < 1 << shift


def expected(fmt: Posit, sums: list[int], shift: int, underflow: str) -> list[list[int]]:
    rows = [nearest(fmt, total, shift, underflow) for total in sums]
    return [list(each) for each in zip(*rows, strict=True)]


def encoded(fmt: Posit, sums: list[int], shift: int, underflow: str) -> list[list[int]]:
    return [each.tolist() for each in fmt.encode(np.array(sums), shift, underflow=underflow)]


@cache
def near(fmt: Posit, shift: int) -> list[int]:
    """Return words, ties and powers of two with their neighbours, of either sign, and the ends."""
    finer = PositFormat(fmt.n + 1, fmt.es)
    magnitudes = {(1 << (SUM_WIDTH - 1)) - 2, *(1 << place for place in range(SUM_WIDTH - 1))}
    for code in range(1, finer.nar):
        magnitudes.add(int(value(code, finer) * 2 ** (fmt.scale + shift)))
    sums = {sign * (size + off) for size in magnitudes for off in (-1, 0, 1) for sign in (1, -1)}
    return sorted(s for s in sums if abs(s) < 1 << (SUM_WIDTH - 1))


@pytest.mark.parametrize("fmt", POSITS, ids=str)
def test_format_decodes_every_word(fmt):
    words = range(-fmt.largest, fmt.largest + 1)
    scaled = [value(word & reference(fmt).mask, reference(fmt)) * 2**fmt.scale for word in words]
    decoded = fmt.decode(list(words)).tolist()
    assert decoded == scaled
    assert max(decoded) == fmt.most
    assert max(decoded).bit_length() + 1 <= fmt.decoded_width
    assert fmt.fits(fmt.decoded_width) and not fmt.fits(fmt.decoded_width - 1)
    if not fmt.clamped:
        assert max(decoded).bit_length() + 1 == fmt.decoded_width == 2 * fmt.scale + 2
        assert fmt.largest == reference(fmt).nar - 1
    else:
        beyond = value(fmt.largest + 1, reference(fmt)) * 2**fmt.scale
        assert beyond >= 1 << 17  # the next one would not fit


@pytest.mark.parametrize("fmt", [Fixed(4), Posit(8, 0), Posit(8, 1, clamped=True)], ids=str)
@pytest.mark.parametrize("terms", [1, 3, 512])
def test_accumulators_are_as_wide_as_the_greatest_sum(fmt, terms):
    """Words have both signs: the magnitude of the least fixed-point one exceeds the greatest."""
    products = np.multiply.outer(fmt.decode(fmt.limits), fmt.decode(fmt.limits))
    width = sum_width(terms, fmt, fmt)
    assert max(abs(products * terms).ravel()) < 1 << (width - 1)
    assert max(abs(products * terms).ravel()) >= 1 << (width - 2)


@pytest.mark.parametrize("underflow", UNDERFLOWS)
@pytest.mark.parametrize("fmt", POSITS, ids=str)
def test_words_ties_and_neighbours(fmt, underflow):
    for shift in SHIFTS:
        sums = near(fmt, shift)
        assert encoded(fmt, sums, shift, underflow) == expected(fmt, sums, shift, underflow), shift


@pytest.mark.parametrize("underflow", UNDERFLOWS)
def test_formats_encode_at_every_shift(underflow):
    for fmt in (Posit(8, 0), Posit(8, 1, clamped=True), Posit(6, 1)):
        for shift in range(MAX_SHIFT + 1):
            sums = near(fmt, shift)[::7]
            assert encoded(fmt, sums, shift, underflow) == expected(fmt, sums, shift, underflow)


@pytest.mark.parametrize("fmt", [fmt for fmt in PLAIN if fmt.decoded_width <= 26], ids=str)
def test_sums_of_products_are_the_quires(fmt):
    """1 to 512 products, rounded once: as the quire of the posit library has them."""
    random = np.random.default_rng(fmt.n * 8 + fmt.es)
    for terms in (1, 2, 3, 17, 512):
        # words of small and of all sizes: else the greatest terms decide every sum
        reach = random.integers(1, fmt.largest + 1, size=(60, 1))
        x, g = (random.integers(-reach, reach + 1, size=(60, terms)) for _ in range(2))
        sums = (fmt.decode(x) * fmt.decode(g)).sum(axis=1)
        mask = reference(fmt).mask
        wanted = codes.dot(torch.from_numpy(x & mask), torch.from_numpy(g & mask), reference(fmt))
        words, _, _ = fmt.encode(sums, fmt.scale)  # exponents of all three are -S
        assert (words & mask).tolist() == wanted.tolist()
        quire = Quire(reference(fmt))
        for a, b in zip(x[0] & mask, g[0] & mask, strict=True):
            quire.add_product(int(a), int(b))
        assert int(words[0]) & mask == quire.code()


def test_two_formats_and_three_exponents():
    """A product of posit(8,0) and fixed(4), rounded to posit(6,1) at an exponent of its own."""
    random = np.random.default_rng(5)
    left, right, result = Posit(8, 0), Fixed(4), Posit(6, 1)
    x, g = random.integers(-127, 128, size=(40, 9)), random.integers(-8, 8, size=(40, 9))
    e_x, e_g, e_z = -9, -2, -7  # of the last bits of the integers
    words, _, _ = result.encode((left.decode(x) * right.decode(g)).sum(axis=1), e_z - e_x - e_g)
    for row, word in enumerate(words.tolist()):
        products = (
            value(int(a) & 255, reference(left))
            * 2**left.scale
            * int(b)
            * Fraction(2) ** (e_x + e_g)
            for a, b in zip(x[row], g[row], strict=True)
        )
        exact = sum(products) / Fraction(2) ** (e_z + result.scale)  # a posit of the result
        numerator, denominator = exact.as_integer_ratio()
        code = round_exact(numerator, 1 - denominator.bit_length(), reference(result))
        assert word == signed(code, result)


@pytest.mark.parametrize("width", (2, 4, 8, 11, 16))
def test_fixed_encode_is_exact_at_every_shift(width):
    random = np.random.default_rng(width)
    limit, (least, greatest) = 1 << (SUM_WIDTH - 1), limits(width)
    for shift in range(MAX_SHIFT + 1):
        anywhere = random.integers(-limit, limit, size=300) >> random.integers(0, SUM_WIDTH, 300)
        halves = (random.integers(-40, 40, size=100) << shift) + ((1 << shift) >> 1)
        near_halves = halves + random.integers(-1, 2, size=100)
        sums = np.concatenate([anywhere, near_halves.clip(-limit, limit - 1)])
        words, saturated, underflowed = Fixed(width).encode(sums, shift)
        exact = [round(Fraction(total, 1 << shift)) for total in sums.tolist()]  # halves to even
        assert words.tolist() == [max(least, min(greatest, value)) for value in exact]
        assert saturated.tolist() == [not least <= value <= greatest for value in exact]
        assert not underflowed.any()


def test_words_of_fixed_point():
    fmt = Fixed(5)
    assert fmt.decode(range(-16, 16)).tolist() == list(range(-16, 16))
    assert (fmt.width, fmt.decoded_width, fmt.scale, fmt.largest) == (5, 5, 0, 15)
    assert fmt.magnitude([-16, 3]).tolist() == [16, 3]
    with pytest.raises(FormatError, match=r"words of fixed\(5\) are -16 to 15, not 16"):
        fmt.decode([16])


def test_magnitude_of_posit_words_is_unsigned():
    assert Posit(8, 0).magnitude([-127, 0, 5]).tolist() == [127, 0, 5]


def test_words_that_are_no_numbers():
    with pytest.raises(FormatError, match=r"the word -128 of posit\(8,0\) is no number: it is NaR"):
        Posit(8, 0).decode([[3, -128]])
    with pytest.raises(FormatError, match=r"116 of posit\(8,1\)c .* beyond its greatest, 115"):
        Posit(8, 1, clamped=True).decode([116])
    with pytest.raises(FormatError, match=r"are -128 to 127, not 128"):
        Posit(8, 0).decode([128])
    with pytest.raises(FormatError, match="integers, not float64"):
        Posit(8, 0).decode([0.5])


def test_sums_that_cannot_be_encoded():
    for fmt in (Fixed(8), Posit(8, 0)):
        with pytest.raises(ValueError, match="shift must be from 0 to 63, not -1"):
            fmt.encode([1], -1)
        with pytest.raises(ValueError, match="underflow must be one of never, zero, not 'up'"):
            fmt.encode([1], 1, underflow="up")
        with pytest.raises(ValueError, match="at most 62 bits"):
            fmt.encode([1 << 61], 1)
        with pytest.raises(ValueError, match="integers, not float64"):
            fmt.encode([0.5], 1)


NAMES = ("fixed(8)", "posit(8,0)", "posit(8,1)c", "posit(6,1)", "posit(4,0)", "posit(10,0)")


@pytest.mark.parametrize("name", NAMES)
def test_format_names_parse_back(name):
    assert str(parse_format(name)) == name
    spaced = name.replace("(", " ( ").replace(",", " , ").replace(")", " )")
    assert parse_format(f" {spaced} ") == parse_format(name)


@pytest.mark.parametrize(
    "text",
    ("", "posit", "posit(8)", "posit(8,0", "fixed(8,0)", "fixed(8)c", "float(8)", "posit(-8,0)", 8),
)
def test_names_that_there_are_not(text):
    with pytest.raises(FormatError) as error:
        parse_format(text)
    assert repr(text) in str(error.value) and "posit(N,ES)c" in str(error.value)


@pytest.mark.parametrize(
    ("text", "reason"),
    (
        ("fixed(1)", "2 to 16 bits, not 1"),
        ("fixed(17)", "2 to 16 bits, not 17"),
        ("posit(2,0)", "n from 3 to 16, not 2"),
        ("posit(17,0)", "n from 3 to 16, not 17"),
        ("posit(8,5)", "es from 0 to 4, not 5"),
        ("posit(16,2)", r"need 114 bits; there are 62"),
        ("posit(8,0)c", r"posit\(8,0\) fits 18 bits whole, choose it"),
        ("posit(8,2)c", "hold none of its values from 1 on"),
    ),
)
def test_formats_that_there_are_not(text, reason):
    with pytest.raises(FormatError, match=reason):
        parse_format(text)


def test_formats_by_class():
    text = "factor=posit(4,0),activation=posit(8,0), intermediate = posit(8,1)c,gradient=fixed(8)"
    table = {
        "factor": Posit(4, 0),
        "activation": Posit(8, 0),
        "intermediate": Posit(8, 1, clamped=True),
        "gradient": Fixed(8),
    }
    assert parse_formats(text) == table
    assert parse_formats({name: str(fmt) for name, fmt in table.items()}) == table
    assert parse_formats("gradient=posit(6,1)") == {"gradient": Posit(6, 1)}
    assert parse_formats({}) == {}


@pytest.mark.parametrize(
    ("given", "message"),
    (
        ("weight=fixed(8)", "no class of tensors 'weight'; there are factor, activation"),
        ({"weight": "fixed(8)"}, "no class of tensors 'weight'"),
        ("factor=fixed(99)", r"factor: no number format 'fixed\(99\)'"),
        ({"factor": 8}, "factor: no number format 8"),
        (
            "factor=fixed(8),gradient=fixed(8),factor=posit(8,0)",
            r"factor has two formats, fixed\(8\) and posit\(8,0\): leave one",
        ),
        ("", "formats are written CLASS=FORMAT"),
        ("factor=fixed(8),", "formats are written CLASS=FORMAT"),
        ("posit(8,0)", r"as in activation=posit\(8,0\), not 'posit\(8,0\)'"),
    ),
)
def test_tables_that_cannot_be(given, message):
    with pytest.raises(FormatError, match=message):
        parse_formats(given)


@pytest.mark.parametrize("fmt", [Posit(8, 0), Posit(6, 1)], ids=str)
def test_format_rounds_neighbour_of_tie_away_from_tie(fmt):
    """Real numbers closer to a bound than all bits that are kept: the side counts."""
    words = np.arange(1, fmt.largest)
    bounds = [int(fmt.encode(2 * int(fmt.decode(w)), 1)[0]) for w in words]
    assert bounds == words.tolist()
    low, high = fmt.decode(words).astype(float), fmt.decode(words + 1).astype(float)
    arithmetic = (high == low + 1) | (high - low == np.ldexp(1.0, np.frexp(high - low)[1] - 1))
    ties = ((low + high) / 2)[arithmetic & (high < 2 * low)]
    below, above = (fmt.nearest(np.nextafter(ties, to)) for to in (0, np.inf))
    assert (above == below + 1).all()
    even = fmt.nearest(ties)
    assert (even % 2 == 0).all()
    assert len(ties) > 8


@pytest.mark.parametrize("name", ["posit(16,1)", "posit(12,1)", "posit(8,2)", "posit(9,2)"])
def test_nearest_of_wide_formats_is_one_of_the_two_neighbours(name):
    # The integers of these formats have 42 to 58 bits: results of layers, no operands.
    fmt = parse_format(name)
    table = [int(n) for n in fmt.decode(fmt.words())]
    rng = np.random.default_rng(0)
    values = np.ldexp(rng.standard_normal(2000), rng.integers(-3, fmt.decoded_width + 2, 2000))
    for number, word in zip(values, fmt.nearest(values), strict=True):
        place = bisect(table, number)
        neighbours = table[max(place - 1, 0) : place + 1]
        assert int(fmt.decode(np.array([word]))[0]) in neighbours


@pytest.mark.parametrize("name", ["fixed(8)", "posit(8,0)", "posit(8,1)c", "float(4,3)"])
def test_nearest_of_nan_is_an_error_and_of_infinity_saturates(name):
    fmt = parse_format(name)
    ends = [*reversed(fmt.limits)]
    assert fmt.nearest(np.array([np.inf, -np.inf])).tolist() == ends
    with pytest.raises(FormatError, match=r"has no word for NaN, in 1 of 3 values"):
        fmt.nearest(np.array([1.0, np.nan, 2.0]))


@pytest.mark.parametrize("fmt", [8, parse_format("fixed(8)"), parse_format("posit(8,0)")])
def test_quantise_of_nan_is_an_error(fmt):
    assert quantise(torch.tensor([np.inf]), 0, fmt).tolist() == [127]
    with pytest.raises(FormatError, match=r"has no word for NaN, in 2 of 2 values"):
        quantise(torch.tensor([np.nan, np.nan]), 0, fmt)

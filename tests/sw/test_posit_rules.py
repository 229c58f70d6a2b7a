"""The standard's rules one by one, the format object, and the errors."""

import math

import pytest
import torch

from trainwright import posit
from trainwright.posit import PositError, PositFormat, grid, round_to, word
from trainwright.posit.exactness import carrier, sums_round_once

P16, P8, P32 = PositFormat(16, 2), PositFormat(8, 2), PositFormat(32, 2)
FORMATS = pytest.mark.parametrize(
    "fmt", [P8, P16, P32, PositFormat(8, 0), PositFormat(16, 4)], ids=str
)
NAN, INF = float("nan"), float("inf")


def code(x, fmt):
    return int(posit.encode(torch.tensor(x, dtype=torch.float64), fmt))


def codes(*values):
    return torch.tensor(values)


@FORMATS
def test_zero_has_one_word_and_minus_zero_has_it_too(fmt, posit_path):
    assert code(0.0, fmt) == code(-0.0, fmt) == 0
    zero = round_to(torch.tensor([-0.0, 0.0]), fmt)
    assert torch.equal(torch.signbit(zero), torch.tensor([False, False]))
    x = posit.encode(torch.tensor([3.0, -3.0]), fmt)
    assert posit.sub(x, x, fmt).tolist() == [0, 0]
    assert posit.mul(x, codes(0), fmt).tolist() == [0, 0]


@FORMATS
def test_posit_nar_stands_for_non_reals_and_spreads(fmt, posit_path):
    nar, unit = codes(fmt.nar), posit.encode(torch.tensor([1.0]), fmt)
    for x in (NAN, INF, -INF):
        assert code(x, fmt) == fmt.nar
    assert posit.decode(nar, fmt).isnan().all()
    for operation in (posit.add, posit.sub, posit.mul, posit.div):
        assert operation(nar, unit, fmt) == operation(unit, nar, fmt) == fmt.nar
        assert operation(nar, nar, fmt) == operation(nar, codes(0), fmt) == fmt.nar
    assert posit.sqrt(nar, fmt) == fmt.nar
    for operands in (
        (nar, unit, unit),
        (unit, nar, unit),
        (unit, unit, nar),
        (codes(0), nar, unit),
    ):
        assert posit.fma(*operands, fmt) == fmt.nar
    x = torch.stack([unit, nar, unit]).T
    for mode in ("quire", "sequential"):
        assert posit.dot(x, x, fmt, mode=mode) == fmt.nar
        assert posit.dot(x, codes(0, 0, 0), fmt, mode=mode) == fmt.nar


@FORMATS
def test_division_by_zero_and_roots_of_negative_numbers_are_nar(fmt, posit_path):
    x = codes(*(code(v, fmt) for v in (1.0, -1.0, 0.0, fmt.maxpos, fmt.minpos)))
    assert (posit.div(x, codes(0), fmt) == fmt.nar).all()
    assert posit.div(codes(0), x[:2], fmt).tolist() == [0, 0]
    below = codes(*(code(v, fmt) for v in (-1.0, -fmt.minpos, -fmt.maxpos)))
    assert (posit.sqrt(below, fmt) == fmt.nar).all()
    assert posit.sqrt(codes(0), fmt) == 0


@FORMATS
def test_maxpos_is_never_left(fmt, posit_path):
    most = codes(fmt.nar - 1)
    assert posit.decode(most, fmt) == fmt.maxpos == 2.0 ** ((fmt.n - 2) * 2**fmt.es)
    assert code(fmt.maxpos * 1.5, fmt) == code(1e308, fmt) == fmt.nar - 1
    assert code(-1e308, fmt) == fmt.nar + 1
    assert posit.add(most, most, fmt) == posit.mul(most, most, fmt) == most
    assert posit.sub(fmt.nar + 1 + codes(0), most, fmt) == fmt.nar + 1
    assert posit.div(most, codes(1), fmt) == posit.fma(most, most, most, fmt) == most
    many = most.repeat(9)
    for mode in ("quire", "sequential"):
        assert posit.dot(many, many, fmt, mode=mode) == most


@FORMATS
def test_minpos_never_becomes_zero(fmt, posit_path):
    least = codes(1)
    assert posit.decode(least, fmt) == fmt.minpos == 1 / fmt.maxpos
    assert code(fmt.minpos / 1024, fmt) == code(5e-324, fmt) == 1
    assert code(-5e-324, fmt) == fmt.mask
    assert posit.mul(least, least, fmt) == 1
    assert posit.mul(least, codes(fmt.mask), fmt) == fmt.mask
    assert posit.div(least, codes(fmt.nar - 1), fmt) == 1
    assert posit.fma(least, least, codes(0), fmt) == 1
    assert posit.dot(least, least, fmt) == posit.dot(least, least, fmt, "sequential") == 1


@pytest.mark.parametrize(
    "x, fmt, word_of_it",
    [
        (1 + 2.0**-12, P16, "0100000000000000"),  # down to the even fraction
        (1 + 3 * 2.0**-12, P16, "0100000000000010"),  # up to it
        (2 - 2.0**-12, P16, "0100100000000000"),  # the carry goes into the exponent
        (16 - 2.0**-9, P16, "0110000000000000"),  # and into the regime
        (2.0**49, P16, "0111111111111100"),  # an exponent bit is left: 2^48 (even) or 2^50
        (2.0**51, P16, "0111111111111110"),  # 2^50 or 2^52 (even)
        (2.0**54, P16, "0111111111111110"),  # 2^52 (even) or maxpos
        (2.0**-54, P16, "0000000000000010"),  # minpos (odd) or 2^-52
        (1.5, PositFormat(2, 0), "01"),
        (3.0, PositFormat(4, 0), "0110"),  # 2 (0110) or 4 (0111)
        (0.375, PositFormat(4, 0), "0010"),  # 1/4 (0001) or 1/2 (0010)
    ],
)
def test_ties_go_to_the_even_word(x, fmt, word_of_it, posit_path):
    assert format(code(x, fmt), f"0{fmt.n}b") == word_of_it
    assert code(-x, fmt) == (1 << fmt.n) - int(word_of_it, 2)


def test_float64_is_rounded_once_and_not_through_float32(posit_path):
    x = torch.tensor([1 + 2.0**-12 + 2.0**-40, 1 + 3 * 2.0**-12 - 2.0**-40], dtype=torch.float64)
    assert x.to(torch.float32)[0] == 1 + 2.0**-12  # a tie, which it was not
    assert posit.encode(x, P16).tolist() == [0x4001, 0x4001]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.int32])
def test_other_types_are_widened_without_error(dtype, posit_path):
    x = torch.tensor([-3, 0, 1, 100]).to(dtype)
    assert posit.decode(posit.encode(x, P32), P32).tolist() == [-3, 0, 1, 100]
    assert round_to(x, P16).dtype is torch.float32
    assert round_to(x, P32).dtype is torch.float64


@pytest.mark.parametrize("text", ["16,2", "posit(16,2)", "(16, 2)", " 16 , 2 "])
def test_formats_by_name(text):
    assert PositFormat.parse(text) == P16
    assert str(P16) == "posit(16,2)"


@pytest.mark.parametrize(
    "n, es", [(1, 0), (33, 2), (16, 5), (16, -1), (0, 0), (16.0, 2), (True, 0)]
)
def test_formats_that_do_not_exist(n, es):
    with pytest.raises(PositError, match=r"n from 2 to 32 bits and es from 0 to 4, not (n|es) = "):
        PositFormat(n, es)


@pytest.mark.parametrize("text", ["16", "16,", "(16,2", "16,2)", "float16", "posit16,2,3", "-16,2"])
def test_names_that_are_no_formats(text):
    with pytest.raises(PositError, match="written n,es such as 16,2, not "):
        PositFormat.parse(text)
    with pytest.raises(PositError, match="not n = 40"):
        PositFormat.parse("40,2")


@pytest.mark.parametrize("wrong", [256, -1, 1 << 40])
def test_codes_that_the_format_does_not_have(wrong):
    bad, good = codes(3, wrong), codes(3, 5)
    message = rf"codes of posit\(8,2\) are 0 to 255, not {wrong}; .*convert\("
    for call in (
        lambda: posit.decode(bad, P8),
        lambda: posit.add(bad, good, P8),
        lambda: posit.fma(good, good, bad, P8),
        lambda: posit.dot(good, bad, P8),
        lambda: posit.convert(bad, P8, P16),
    ):
        with pytest.raises(PositError, match=message):
            call()
    with pytest.raises(PositError, match=r"codes of posit\(8,2\) are 0 to 255, not 256"):
        word.fields(256, P8)


@FORMATS
def test_codes_of_more_bits_than_the_format_has(fmt, posit_path):
    for bit in range(fmt.n, 63):
        with pytest.raises(PositError, match=f", not {1 << bit}; "):
            posit.decode(codes(0, 1 << bit), fmt)


@pytest.mark.parametrize("es", range(5))
def test_two_bits_are_zero_one_minus_one_and_nar(es, posit_path):
    x = torch.tensor([-3, -1e-9, 0, 1e-30, 0.4, 1, 7])
    for given in (x, x.double()):
        assert round_to(given, PositFormat(2, es)).tolist() == [-1, -1, 0, 1, 1, 1, 1]


def test_tensors_of_the_wrong_kind():
    with pytest.raises(TypeError, match=r"posit codes are integers, not torch.float32; encode"):
        posit.add(torch.ones(1), codes(1), P16)
    with pytest.raises(TypeError, match=r"made from real numbers, not torch.complex64"):
        posit.encode(torch.ones(1, dtype=torch.complex64), P16)
    with pytest.raises(TypeError, match=r"not torch.uint64"):
        posit.encode(torch.ones(1, dtype=torch.uint64), P16)
    with pytest.raises(TypeError, match=r"not torch.bool"):
        round_to(torch.ones(1, dtype=torch.bool), P16)
    with pytest.raises(TypeError, match=r"over 2\^53 are not exact"):
        posit.encode(codes(2**53 + 1), P32)


def test_values_of_two_formats_do_not_mix():
    x, y = round_to(torch.ones(2), P16), round_to(torch.ones(2), P32)
    with pytest.raises(PositError, match=r"posit\(16,2\) live in torch.float32, not torch.float64"):
        grid.add(x, y, P16)


def test_limits_and_quire_of_a_format():
    assert (P16.maxpos, P16.minpos, P16.nar, P16.digits) == (2.0**56, 2.0**-56, 0x8000, 12)
    for n in (8, 16, 32):
        assert PositFormat(n, 2).quire_width == 16 * n
    assert P16.quire_fraction == 112
    for fmt in (P8, P16, PositFormat(9, 4)):
        for c in range(1, fmt.nar):
            fields = word.fields(c, fmt)
            assert fields is not None
            assert fmt.digits_at(fields.scale) == len(fields.fraction) + 1


def test_fields_of_a_word():
    fields = word.fields(int(posit.encode(torch.tensor(3.14159), P16)), P16)
    assert fields is not None
    assert (fields.negative, fields.regime, fields.exponent) == (False, "10", "01")
    assert (fields.fraction, fields.k, fields.scale) == ("10010010001", 0, 1)
    assert word.fields(0, P16) is None and word.fields(P16.nar, P16) is None
    cut = word.fields(0b1000000000000011, P16)  # -(0111111111111101): an exponent bit is left
    assert cut is not None
    assert (cut.negative, cut.regime, cut.exponent, cut.fraction) == (
        True,
        "11111111111110",
        "1",
        "",
    )
    assert (cut.k, cut.scale) == (12, 50)


def test_float32_carries_the_formats_whose_operations_it_decides():
    for name in ("16,2", "8,0", "8,1", "8,2", "15,1", "14,0", "12,2"):
        assert carrier(PositFormat.parse(name)) is torch.float32, name
    for name in ("16,0", "16,1", "16,3", "17,2", "8,4", "32,2"):
        assert carrier(PositFormat.parse(name)) is torch.float64, name
    assert not sums_round_once(PositFormat(17, 2), 24)


def test_float32_would_round_roots_of_posit_16_2_twice():
    every = posit.decode(torch.arange(1 << 15), P16).to(torch.float32)
    twice = round_to(every.sqrt(), P16)
    once = grid.sqrt(every, P16)
    assert int((twice != once).sum()) == 4


def test_every_value_is_a_multiple_of_minpos():
    for fmt in (P8, PositFormat(10, 4), PositFormat(5, 1)):
        x = posit.decode(torch.arange(1, fmt.nar), fmt) / fmt.minpos
        assert all(math.floor(v) == v for v in x.tolist())


@pytest.mark.parametrize("fmt", [P16, P32], ids=str)
def test_shapes_broadcast_and_strides_do_not_matter(fmt, posit_path):
    wide = posit.encode(torch.randn(6, 8, generator=torch.Generator().manual_seed(1)), fmt)
    shapes = ((wide, wide[:1]), (wide.T, wide[:, 2]), (wide[::2, 1::3], wide[1, 1]))
    shapes = (*shapes, (wide[:, :1], wide[3]), (wide[0, 0], wide[1, 1]), (wide[:0], wide[:1]))
    for a, b in shapes:
        x, y = torch.broadcast_tensors(a, b)
        for operation in (posit.add, posit.sub, posit.mul, posit.div):
            flat = [operation(p, q, fmt) for p, q in zip(x.flatten(), y.flatten(), strict=True)]
            want = torch.stack(flat).reshape(x.shape) if flat else x
            assert torch.equal(operation(a, b, fmt), want)
        got = posit.fma(a, b, wide[0, 0], fmt)
        assert torch.equal(got, posit.fma(x.clone(), y.clone(), wide[0, 0], fmt))

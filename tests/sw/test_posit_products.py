"""Dot and matrix products, quire and sequential."""

from fractions import Fraction
from itertools import product

import pytest
import torch
from posit_cases import any_codes, generator, normal_codes
from posit_reference import nearest, parts, value
from slowly import mostly_slow

from trainwright import posit
from trainwright.posit import PositError, PositFormat, products, round_to
from trainwright.posit.exact import exact_dot
from trainwright.posit.quire import Quire
from trainwright.posit.rounding import codes_of, values_of
from trainwright.support.native import without

P16, P8, P32 = PositFormat(16, 2), PositFormat(8, 2), PositFormat(32, 2)
SOME = [P16, P8, P32, *(PositFormat(n, es) for n, es in ((8, 0), (16, 1), (32, 4), (5, 1), (2, 0)))]
FORMATS = pytest.mark.parametrize("fmt", SOME, ids=str)


def exact_sum(x, y, fmt, start=0):
    """Return start + sum of products of codes."""
    unit = 2 * fmt.max_scale + 4  # negative words are held with a bit or two below minpos
    total = 0
    for a, b in zip(x, y, strict=True):
        (s, e), (t, f) = parts(a, fmt.n, fmt.es), parts(b, fmt.n, fmt.es)
        total += s * t << (e + f + unit)
    return Fraction(total, 1 << unit) + value(start, fmt.n, fmt.es)


def cancelling(length, fmt, seed, spread):
    """Draw codes whose products cancel in pairs, in random order, but for one or two."""
    half = length // 2
    g = generator(seed)
    exponent = torch.randint(-spread, spread + 1, (half,), generator=g)
    x = torch.randn(half, generator=g, dtype=torch.float64) * torch.exp2(exponent.double())
    x = posit.encode(x, fmt)
    y = any_codes((half,), fmt, seed + 1)
    minus = ((1 << fmt.n) - x) % (1 << fmt.n)
    order = torch.randperm(2 * half, generator=g)
    x, y = torch.cat([x, minus])[order], torch.cat([y, y])[order]
    if length > 2:
        x[0], y[0] = any_codes((2,), fmt, seed + 2)
    if length % 2:
        last = any_codes((2, 1), fmt, seed + 3)
        x, y = torch.cat([x, last[0]]), torch.cat([y, last[1]])
    return x, y


@FORMATS
@pytest.mark.parametrize("length", [1, 2, 7, 64, 1000, 4096])
def test_quire_dots_with_cancellation(fmt, length, posit_path):
    for seed in range(3 if length < 1000 else 1):  # sums of fractions take most of the time
        x, y = cancelling(length, fmt, 10 * length + seed, min(fmt.max_scale, 40))
        want = nearest(exact_sum(x.tolist(), y.tolist(), fmt), fmt.n, fmt.es)
        assert posit.dot(x, y, fmt, mode="quire") == want, seed
        z = any_codes((length,), fmt, seed)
        want = nearest(exact_sum(x.tolist(), z.tolist(), fmt), fmt.n, fmt.es)
        assert posit.dot(x, z, fmt) == want, seed


@pytest.mark.slow
@FORMATS
def test_many_quire_dots_with_cancellation(fmt, posit_path):
    for seed in range(300):
        length = int(torch.randint(1, 4097, (), generator=generator(seed)))
        x, y = cancelling(length, fmt, seed, min(fmt.max_scale, seed))
        want = nearest(exact_sum(x.tolist(), y.tolist(), fmt), fmt.n, fmt.es)
        assert posit.dot(x, y, fmt, mode="quire") == want, seed


@FORMATS
def test_posit_products_sum_that_cancels_entirely_is_zero_and_a_minpos_squared_is_left_over(
    fmt, posit_path
):
    x = any_codes((500,), fmt, 3)
    minus = ((1 << fmt.n) - x) % (1 << fmt.n)
    y = any_codes((500,), fmt, 4)
    pair, twice = torch.cat([x, minus]), torch.cat([y, y])
    assert posit.dot(pair, twice, fmt) == 0
    unit = torch.tensor([1])
    assert posit.dot(torch.cat([pair, unit]), torch.cat([twice, unit]), fmt) == 1
    last = torch.cat([pair, unit]), torch.cat([twice, torch.tensor([fmt.mask])])
    assert posit.dot(*last, fmt) == fmt.mask


@FORMATS
def test_posit_products_quire_of_integers_is_the_same(fmt):
    x, y = cancelling(60, fmt, 5, min(fmt.max_scale, 30))
    quire = Quire(fmt)
    for a, b in zip(x.tolist(), y.tolist(), strict=True):
        quire.add_product(a, b)
    assert quire.code() == posit.dot(x, y, fmt)
    assert 0 <= quire.word < 1 << fmt.quire_width
    quire.add_product(int(x[0]), int(y[0]), negate=True)
    quire.add(int(x[1]))
    want = exact_sum(x[1:].tolist(), y[1:].tolist(), fmt, int(x[1]))
    assert quire.code() == nearest(want, fmt.n, fmt.es)
    quire.add(fmt.nar)
    quire.add(0)
    assert quire.code() == fmt.nar and quire.word == 1 << (fmt.quire_width - 1)
    quire.clear()
    assert quire.code() == quire.word == 0


def test_quire_holds_as_many_products_as_the_standard_says():
    quire, most = Quire(P8), P8.nar - 1
    quire.add_product(most, most)
    quire.sum *= 2**31 - 1
    quire.add(0)
    assert not quire.nar
    quire.add_product(most, most)
    quire.add(most)
    assert quire.nar


def neighbours(fmt):
    """Return codes whose distance to the next is of the format, with the tie between."""
    for code in any_codes((200,), fmt, 8).tolist():
        if fmt.nar in (code, code + 1) or code + 1 > fmt.mask:
            continue
        low, high = (value(c, fmt.n, fmt.es) for c in (code, code + 1))
        step = nearest(high - low, fmt.n, fmt.es)
        middle = value(2 * code + 1, fmt.n + 1, fmt.es) == (low + high) / 2
        if middle and value(step, fmt.n, fmt.es) == high - low:
            yield code, step


@pytest.mark.parametrize("fmt", [f for f in SOME if f.n > 2], ids=str)
def test_sums_on_a_tie_and_beside_it(fmt, posit_path):
    """code * 1 + step * 1/2, and a minpos^2 more or less."""
    whole, half = posit.encode(torch.tensor([1.0, 0.5]), fmt).tolist()
    cases = list(neighbours(fmt))
    assert len(cases) > 20
    x = torch.tensor([[[code, step, a] for a in (0, 1, fmt.mask)] for code, step in cases])
    got = posit.dot(x, torch.tensor([whole, half, 1]), fmt)
    assert got.tolist() == [[code + code % 2, code + 1, code] for code, _ in cases]


@FORMATS
@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 17, 5), (20, 70, 33), (5, 130, 97)], ids=str)
def test_matrix_products_against_rationals(fmt, shape, posit_path):
    m, depth, n = shape
    for make in (any_codes, normal_codes):
        a, b = make((m, depth), fmt, m), make((depth, n), fmt, n)
        quire = posit.matmul(a, b, fmt)
        for i, j in {(0, 0), (m - 1, n - 1), (m // 2, n // 3)}:
            want = exact_sum(a[i].tolist(), b[:, j].tolist(), fmt)
            assert quire[i, j] == nearest(want, fmt.n, fmt.es)


@FORMATS
def test_sequential_products_round_every_operation_in_order(fmt, posit_path):
    for seed, make in enumerate((any_codes, normal_codes)):
        a, b = make((4, 19), fmt, seed), make((19, 6), fmt, seed + 9)
        total = torch.zeros(4, 6, dtype=torch.int64)
        for k in range(19):
            total = posit.add(total, posit.mul(a[:, k, None], b[k], fmt), fmt)
        assert torch.equal(posit.matmul(a, b, fmt, mode="sequential"), total)
        dots = posit.dot(a[:, None], b.T[None], fmt, "sequential")
        assert torch.equal(dots, total)


SHAPES = [(64, 64, 64), (1, 140, 65), (65, 130, 16), (90, 65, 1), (7, 3, 33), (40, 150, 10)]


@mostly_slow(
    "mode, fmt",
    product(("sequential", "quire"), (*SOME, PositFormat(12, 0), PositFormat(24, 3))),
    lambda mode, fmt: mode == "quire" or fmt in (P16, P32, SOME[3], PositFormat(24, 3)),
    ids=str,
)
def test_kernels_and_torch_give_the_same_bits(fmt, mode):
    for seed, (m, depth, n) in enumerate(SHAPES):
        for number, scale in enumerate((1.0, 2.0**-12, 2.0**9, None)):  # None: the whole format
            if m * depth * n > 1 << 17 and number not in (0, 3):
                continue  # the largest shapes take most of the time: blocks, whatever the scale
            if scale is None:
                a, b = any_codes((m, depth), fmt, seed), any_codes((depth, n), fmt, seed + 50)
            else:
                a = normal_codes((m, depth), fmt, seed, scale)
                b = normal_codes((depth, n), fmt, seed + 50, scale)
            if seed == 2:
                a[3, 7] = fmt.nar
            start = normal_codes((m, 1), fmt, seed + 70)
            x, y, z = (values_of(c, fmt) for c in (a, b, start))
            initial = z if (seed + number) % 2 else None
            got = products.matmul(x, y, fmt, mode, initial)
            with without():
                want = products.matmul(x, y, fmt, mode, initial)
            torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)


def test_sequential_sums_that_leave_the_quick_range_within_a_block(posit_path):
    """Sums grow, cancel, and pass through every regime of the format in one row."""
    for fmt in (P16, PositFormat(16, 1), PositFormat(12, 1)):
        scales = torch.arange(-fmt.max_scale, fmt.max_scale + 1, dtype=torch.float64)
        x = round_to(1.37 * 2.0**scales, fmt)
        x = torch.cat([x, -x.flip(0), x.flip(0), -x])
        a = codes_of(x, fmt)[None].repeat(3, 1)
        b = posit.encode(torch.tensor([1.0, -1.25, 2.0**-9] * 12), fmt).repeat(a.shape[1], 1)
        total = torch.zeros(3, 36, dtype=torch.int64)
        for k in range(a.shape[1]):
            total = posit.add(total, posit.mul(a[:, k, None], b[k], fmt), fmt)
        assert torch.equal(posit.matmul(a, b, fmt, "sequential"), total)


QUICK = [P16, PositFormat(15, 2), PositFormat(16, 1), PositFormat(12, 1), PositFormat(13, 0)]
FEWER = [P16, PositFormat(12, 1), PositFormat(13, 0)]
"""A format of each exponent size."""


def odd_matrices(scale, depth, fmt):
    """Draw (6, depth) and (depth, 24) of short numbers with products of this scale."""
    g = generator(1000 + scale)
    short = torch.tensor([1, 1.25, 1.5, 1.75, 1.375, -1, -1.5, 1.03125], dtype=torch.float64)
    pick = [short[torch.randint(8, size, generator=g)] for size in ((6, depth), (depth, 24))]
    x, y = pick[0] * 2.0 ** (scale // 2), pick[1] * 2.0 ** (scale - scale // 2)
    return round_to(x, fmt), round_to(y, fmt)


@mostly_slow(
    "depth, fmt",
    product((1, 3, 66), QUICK),
    lambda depth, fmt: depth < 66 or fmt in FEWER,
    ids=str,
)
def test_sequential_sums_at_every_scale(fmt, depth):
    """Ties of words would go wrong where the kernel's quick rounding ends."""
    top = fmt.max_scale + 8
    for scale in range(-top, top + 1, 1 if depth < 66 else 3):
        x, y = odd_matrices(scale, depth, fmt)
        if depth == 66:
            x = x.abs()
            y[:, ::2] = y[:, ::2].abs()  # sums that grow
        got = products.matmul(x, y, fmt, "sequential")
        with without():
            assert torch.equal(got, products.matmul(x, y, fmt, "sequential")), scale


@mostly_slow("fmt", QUICK, FEWER, ids=str)
def test_sequential_sums_with_one_row_at_every_scale(fmt):
    """The quick rounding is for blocks all of whose numbers allow it, the last ones as well."""
    x, y = odd_matrices(0, 20, fmt)
    for scale in range(-fmt.max_scale, fmt.max_scale + 1):
        other = y.clone()
        other[15] = round_to(other[15] * 2.0**scale, fmt)
        got = products.matmul(x, other, fmt, "sequential")
        with without():
            assert torch.equal(got, products.matmul(x, other, fmt, "sequential")), scale


@pytest.mark.parametrize("depth", [20, 64, 128])
def test_sequential_products_with_extreme_last_factor_follow_the_rule(depth):
    """The quick rounding is for rows all of whose factors allow it, in short and whole blocks."""
    x, y = odd_matrices(0, depth, P16)
    for scale in (-40, 40):
        other = x.clone()
        other[:, -1] = round_to(other[:, -1] * 2.0**scale, P16)
        got = products.matmul(other, y, P16, "sequential")
        with without():
            assert torch.equal(got, products.matmul(other, y, P16, "sequential")), scale


@pytest.mark.parametrize("columns", [1, 16, 17, 63, 65, 97, 128, 161, 225])
def test_sequential_products_of_any_width(columns):
    x, y = (values_of(normal_codes(size, P16, 3), P16) for size in ((5, 65), (65, columns)))
    got = products.matmul(x, y, P16, "sequential")
    with without():
        assert torch.equal(got, products.matmul(x, y, P16, "sequential"))


@pytest.mark.parametrize("fmt", QUICK, ids=str)
def test_posit_products_tiny_sum_stays_where_nothing_is_added(fmt, posit_path):
    x, y = round_to(torch.ones(3, 5), fmt), round_to(torch.ones(5, 16), fmt)
    y[:, ::2] = 0
    for scale in range(-fmt.max_scale, 0):
        tiny = round_to(torch.full((3, 16), 2.0**scale, dtype=torch.float64), fmt)
        got = products.matmul(x, y, fmt, "sequential", tiny)
        assert torch.equal(got[:, ::2], tiny[:, ::2])


@mostly_slow("fmt", QUICK, FEWER, ids=str)
def test_sequential_start_of_every_scale_is_rounded_with_each_product(fmt):
    """Sums that begin beyond the quick rounding's range are left to the rule."""
    x, y = odd_matrices(0, 20, fmt)
    start = torch.full((x.shape[0], y.shape[1]), 1.37, dtype=torch.float64)
    for scale in range(-fmt.max_scale, fmt.max_scale + 1):
        first = round_to(start * 2.0**scale, fmt).to(x.dtype)
        got = products.matmul(x, y, fmt, "sequential", first)
        with without():
            assert torch.equal(got, products.matmul(x, y, fmt, "sequential", first)), scale


@pytest.mark.parametrize("mode", ["sequential", "quire"])
def test_posit_products_take_batches_and_initial_sums(mode, posit_path):
    a, b = normal_codes((2, 3, 4, 9), P16, 1), normal_codes((3, 9, 20), P16, 2)
    bias = normal_codes((20,), P16, 3)
    x, y, z = (values_of(c, P16) for c in (a, b, bias))
    got = codes_of(products.matmul(x, y, P16, mode, z), P16)
    ones = torch.ones(4, 1)
    for i in range(2):
        for j in range(3):
            rows, columns = torch.cat([ones, x[i, j]], 1), torch.cat([z[None], y[j]])
            assert torch.equal(got[i, j], codes_of(products.matmul(rows, columns, P16, mode), P16))
    assert torch.equal(
        products.total(x, (0, 2), P16, mode),
        products.dot(x.permute(1, 3, 0, 2).flatten(2), torch.ones(8), P16, mode),
    )


@pytest.mark.parametrize("mode", ["sequential", "quire"])
def test_empty_sums_are_zero(mode, posit_path):
    empty = torch.zeros(3, 0, dtype=torch.int64)
    assert torch.equal(
        posit.matmul(empty, empty.T, P16, mode), torch.zeros(3, 3, dtype=torch.int64)
    )
    assert posit.matmul(empty.T, torch.zeros(3, 2, dtype=torch.int64), P16, mode).shape == (0, 2)


def test_exact_sums_in_limbs(posit_path):
    for fmt in SOME:
        x, y = any_codes((4, 50), fmt, 1), any_codes((4, 50), fmt, 2)
        start = any_codes((4,), fmt, 3)
        wide = [posit.decode(c, fmt) for c in (x, y, start)]
        got = codes_of(exact_dot(*wide[:2], fmt, wide[2]), fmt).tolist()
        rows = zip(x.tolist(), y.tolist(), start.tolist(), strict=True)
        assert got == [nearest(exact_sum(*row[:2], fmt, row[2]), fmt.n, fmt.es) for row in rows]


def test_errors_of_products():
    x = torch.zeros(2, 3, dtype=torch.int64)
    with pytest.raises(ValueError, match=r"mode must be one of sequential, quire, not 'exact'"):
        posit.dot(x, x, P16, mode="exact")
    with pytest.raises(ValueError, match=r"needs \(..., M, K\) and \(..., K, N\), not \(2, 3\)"):
        posit.matmul(x, x, P16)
    with pytest.raises(ValueError, match="one dimension or more"):
        posit.dot(x[0, 0], x[0, 0], P16)
    with pytest.raises(PositError, match=r"live in torch.float64, not torch.float32"):
        products.matmul(torch.ones(2, 2), torch.ones(2, 2), P32)


@pytest.mark.parametrize(
    ("start", "a", "b"),
    [
        (1.0, [2.0**-12, 2.0**-30], [1.0, 2.0**-30]),  # a tie, but for 2^-60
        (2.0**-56, [1.0, 2.0**-6], [1.0, 2.0**-6]),  # the start decides
        (-(2.0**-56), [1.0, 2.0**-5, 2.0**-6], [1.0, 2.0**-6, 2.0**-6]),
    ],
)
def test_quire_start_beside_a_tie_decides_the_rounding(start, a, b, posit_path):
    x, y, z = (round_to(torch.tensor(t, dtype=torch.float64), P16) for t in (a, b, start))
    exact = Fraction(start) + sum(Fraction(p) * Fraction(q) for p, q in zip(a, b, strict=True))
    for columns in (1, 20):
        got = products.matmul(x[None], y[:, None].expand(-1, columns), P16, "quire", z)
        assert set(codes_of(got, P16).flatten().tolist()) == {nearest(exact, 16, 2)}


@pytest.mark.parametrize("sign", [1, -1])
def test_quire_sums_beyond_float32_saturate(sign, posit_path):
    count = 1 << 17  # maxpos squared, 2^112, as often: 2^129
    x = torch.full((1, count), sign * P16.maxpos)
    got = products.matmul(x, torch.full((count, 1), P16.maxpos), P16, "quire")
    assert got.item() == sign * P16.maxpos
    x[0, 0] = float("nan")
    assert products.matmul(x, x.mT.abs(), P16, "quire").isnan().all()


@pytest.mark.parametrize("mode", ["quire", "sequential"])
@pytest.mark.parametrize("fmt", [P8, P16, P32], ids=str)
def test_addmm_from_a_transposed_start_adds_it_in_place(fmt, mode, posit_path):
    """Torch gives a sum the memory order of its start, which the kernel does not read."""
    values = [
        torch.randn(shape, dtype=torch.float64, generator=generator(7 + i))
        for i, shape in enumerate(((5, 3), (3, 4), (4, 5)))
    ]
    a, b, start = (posit.PositTensor(x, fmt) for x in values)
    codes = [x.codes().tolist() for x in (a, b.mT, start.mT)]
    with posit.accumulation(mode):
        result = torch.addmm(start.mT, a, b)
        assert torch.equal(result, torch.addmm(start.mT.contiguous(), a, b))
    if mode == "quire":
        wanted = [
            [
                nearest(exact_sum(row, column, fmt, first), fmt.n, fmt.es)
                for column, first in zip(codes[1], firsts, strict=True)
            ]
            for row, firsts in zip(codes[0], codes[2], strict=True)
        ]
        assert result.codes().tolist() == wanted


@pytest.mark.parametrize("fmt", [P8, P16, P32], ids=str)
def test_contractions_of_any_memory_layout_are_rounded_once(fmt):
    values = torch.randn(2, 3, 4, dtype=torch.float64, generator=generator(9))
    x = posit.PositTensor(values, fmt)
    codes = x.codes().flatten().tolist()
    whole = nearest(exact_sum(codes, codes, fmt), fmt.n, fmt.es)
    rows = [
        nearest(exact_sum(row, row, fmt), fmt.n, fmt.es) for row in x.codes().reshape(6, 4).tolist()
    ]
    for strided in (x, x.mT.clone(memory_format=torch.contiguous_format).mT):
        assert torch.tensordot(strided, strided, 3).codes() == whole
        around = strided.permute(1, 2, 0)
        assert torch.tensordot(strided, around, ([0, 1, 2], [2, 0, 1])).codes() == whole
        assert torch.linalg.vecdot(strided, strided).codes().flatten().tolist() == rows
        assert torch.inner(strided[1, 2], strided[1, 2]).codes() == rows[5]


def test_contractions_take_names_outputs_and_single_numbers_as_torch_does():
    x, y = (posit.PositTensor(torch.tensor([[1.0, 2.0], [3.0, 4.0]]) + n, P16) for n in (0, 1))
    inner = [[8.0, 14.0], [18.0, 32.0]]
    assert torch.inner(input=x, other=y).decode().tolist() == inner
    assert x.inner(other=y).decode().tolist() == inner
    assert torch.tensordot(a=x, b=y, dims=2).item() == 40
    out = x.new_zeros(2)
    torch.linalg.vecdot(x, y, out=out)
    assert out.decode().tolist() == [8.0, 32.0]
    assert torch.linalg.vecdot(x[1, 0], y[1, 0]).item() == 12

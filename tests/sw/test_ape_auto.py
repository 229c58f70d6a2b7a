"""Masks, decisions, the hybrid, and the promise of ``auto``."""

from fractions import Fraction

import pytest
import torch

from trainwright import ape
from trainwright.ape.adapter import hybrid
from trainwright.ape.decider import (
    ProductKind,
    block_kinds,
    decide,
    jobs_of,
    pair_kinds,
)
from trainwright.ape.masks import RangeLevel, block_levels, element_levels
from trainwright.ape.performance import KINDS, PerformanceModel

# seconds fixed, a term of K, a product: as the types' numbers of products
MODEL = PerformanceModel(
    "none", {"fp32-f": (0, 0, 3.0), "fp32-f4": (0, 0, 4.0), "fp32-b": (0, 0, 6.0),
             "fp32-t4": (0, 0, 8.0), "fp32": (0, 0, 10.0)},
)  # fmt: skip
SLOW_CALLS = PerformanceModel("none", {k: (1e9, 0, v[2]) for k, v in MODEL.terms.items()})
ADAPTER = ape.Adapter(blocks=(4, 4, 4), model=MODEL)
UNIT = 2.0**-24


NAMES = {level: "fp32-f" if level <= RangeLevel.F else "fp32" for level in RangeLevel}
NAMES[RangeLevel.B] = "fp32-b"


def block_mask(x, rows, columns):
    """Name the type of listing 5 for each block."""
    return [[NAMES[level] for level in line] for line in block_levels(x, rows, columns).tolist()]


def printed_listing_5(values):
    """Compute the paper's listing, as printed."""
    mask = "fp32-f"
    for v in values:
        if v < 2.0**-110 or v > 3.39e38:
            return "fp32"
        if v < 2.0**-14 or v > 65504:
            mask = "fp32-b"
    return mask


@pytest.mark.parametrize(
    "values,wanted",
    [
        ([1.0, 2.0, 65504.0, 2.0**-14], "fp32-f"),
        ([-1.0, -65504.0, -(2.0**-14), 3.0], "fp32-f"),
        ([0.0, 0.0, 0.0, 0.0], "fp32-f"),
        ([0.0, -0.0, 1.0, -2.0], "fp32-f"),
        ([1.0, 2.0**-14 * (1 - UNIT), 1.0, 1.0], "fp32-b"),
        ([1.0, -65504.01, 1.0, 0.0], "fp32-b"),
        ([2.0**-110, -(2.0**-110), 3.39e38, -3.39e38], "fp32-b"),
        ([1.0, 2.0**-111, 1.0, 1.0], "fp32"),
        ([-(2.0**-149), 1.0, 1.0, 1.0], "fp32"),
        ([1.0, -3.4028e38, 1.0, 1.0], "fp32"),
        ([torch.inf, 1.0, 1.0, 1.0], "fp32"),
        ([1.0, -torch.inf, 0.0, 1.0], "fp32"),
        ([1.0, torch.nan, 0.0, 1.0], "fp32"),
    ],
)
def test_listing_5_for_all_signs_and_zero(values, wanted):
    block = torch.tensor(values).reshape(2, 2)
    assert block_mask(block, 2, 2) == [[wanted]]
    assert block_mask(-block, 2, 2) == [[wanted]]


def test_listing_5_as_printed_misses_negatives_and_zeros():
    for values in ([-1.0, 1.0], [0.0, 1.0]):
        assert printed_listing_5(values) == "fp32"
        assert block_mask(torch.tensor([values]), 1, 2) == [["fp32-f"]]


def test_masks_of_blocks_that_do_not_fill_the_matrix():
    x = torch.ones(5, 7)
    x[4, 6], x[0, 0], x[2, 3] = -1e-10, 0.0, torch.inf
    assert block_mask(x, 2, 4) == [["fp32-f", "fp32-f"], ["fp32", "fp32-f"], ["fp32-f", "fp32-b"]]
    assert block_mask(torch.ones(0, 4), 2, 2) == []
    assert block_levels(torch.ones(0, 4), 2, 2).shape == (0, 2)


def test_ape_auto_levels_follow_range():
    fine = 1 + 2.0**-23
    x = torch.tensor(
        [0.0, 1.5, 1 + 2.0**-20, 1 + 2.0**-12 + 2.0**-23, 32768 + 16.0, 65504.0, 2.0**-15 * fine,
         2.0**-111, 3.4e38, 2.0**-115, torch.inf, torch.nan]
    )  # fmt: skip
    L = RangeLevel
    wanted = [L.HALF, L.HALF, L.EXACT, L.F, L.B, L.HALF, L.B, L.T, L.T, L.NATIVE, L.NATIVE,
              L.NATIVE]  # fmt: skip
    assert element_levels(x).tolist() == wanted
    assert element_levels(-x).tolist() == wanted


def test_ape_auto_tie_in_the_top_binade_is_exact_or_not_fp32_f():
    bits = torch.arange(2**23, dtype=torch.int32)[:: 2**11] | (127 + 15 << 23)
    x = bits.view(torch.float32)
    x = x[x <= 65504]
    good = x[element_levels(x) <= RangeLevel.F]
    assert 0 < len(good) < len(x)
    error = (ape.join(ape.split(good, "fp32-f"), "fp32-f") - good.double()).abs() / good.double()
    assert float(error.max()) <= 2.0**-23


def test_kinds_of_pairs():
    levels = torch.arange(6)
    table = pair_kinds(levels[:, None], levels[None, :])
    f, g, b, t, n = ProductKind.F3, ProductKind.F4, ProductKind.B, ProductKind.T, ProductKind.NATIVE
    assert table.tolist() == [
        [f, f, f, b, t, n],
        [f, f, g, b, t, n],
        [f, g, g, b, t, n],
        [b, b, b, b, t, n],
        [t, t, t, t, t, n],
        [n, n, n, n, n, n],
    ]
    loose = pair_kinds(levels[:, None], levels[None, :], strict=False)
    assert (loose[:3, :3] == f).all()


def test_ape_auto_small_product_counts_block_products():
    random = torch.Generator().manual_seed(0)
    a, b = torch.rand(3, 5, generator=random) < 0.5, torch.rand(5, 4, generator=random) < 0.5
    wanted = sum(bool(a[i, k] and b[k, j]) for i in range(3) for k in range(5) for j in range(4))
    x = torch.where(a.repeat_interleave(4, 0).repeat_interleave(4, 1), 1.0, 1e-9)
    y = torch.where(b.repeat_interleave(4, 0).repeat_interleave(4, 1), 1.0, 1e-9)
    kinds = block_kinds(x, y, (4, 4, 4))
    assert int((kinds == ProductKind.F3).sum()) == wanted


def test_jobs_cover_every_block_product_once():
    random = torch.Generator().manual_seed(1)
    kinds = torch.randint(0, 5, (3, 4, 5), dtype=torch.int8, generator=random)
    seen = torch.full_like(kinds, -1)
    for job in jobs_of(kinds):
        for row in job.rows:
            for column in job.columns:
                assert seen[job.strip, row, column] == -1
                seen[job.strip, row, column] = int(job.kind)
    assert torch.equal(seen, kinds)


def of_levels(rows, columns, seed, *, level):
    """Draw numbers of 1 to 2 that no two float16 hold, scaled down for ``level``."""
    random = torch.Generator().manual_seed(seed)
    bits = torch.randint(1024, (rows, columns), generator=random) * 2**13 + 4093
    x = (1 + bits.double() * 2.0**-23).float()
    return x * {RangeLevel.F: 1.0, RangeLevel.B: 2.0**-40, RangeLevel.T: 2.0**-113}[level]


def test_ape_auto_decider_takes_the_least():
    f, b = of_levels(8, 8, 0, level=RangeLevel.F), of_levels(8, 8, 1, level=RangeLevel.B)
    mixed = torch.cat([f, b], 0)
    assert ADAPTER.decide(f, f).choice == "fp32-f4"
    assert ADAPTER.decide(f.half().float(), f).choice == "fp32-f"
    assert ADAPTER.decide(b, f).choice == "fp32-b"
    decision = ADAPTER.decide(mixed, f)
    assert decision.choice == "hybrid" and decision.counts == {"fp32-f4": 8, "fp32-b": 8}
    assert decision.seconds["hybrid"] < decision.seconds["fp32-b"]
    assert decision.promise == 2.0**-22
    slow = decide(mixed, f, blocks=(4, 4, 4), model=SLOW_CALLS)
    assert slow.choice == "fp32-b" and slow.promise == 2.0**-23
    loose = decide(f, f, blocks=(4, 4, 4), model=MODEL, strict=False)
    assert loose.choice == "fp32-f" and loose.promise == 2.0**-21
    fast = PerformanceModel("none", MODEL.terms | {"fp32": (0, 0, 1.0)})
    assert decide(f, f, blocks=(4, 4, 4), model=fast).choice == "fp32-f4"
    assert decide(f, f, blocks=(4, 4, 4), model=fast, compete=True).choice == "fp32"


def test_native_where_nothing_else_holds():
    f = of_levels(8, 8, 0, level=RangeLevel.F)
    t = of_levels(8, 8, 0, level=RangeLevel.T)
    lost = torch.full((8, 8), 2.0**-130)
    assert ADAPTER.decide(f * 2.0**50, t).choice == "fp32-t4"
    assert ADAPTER.decide(lost, f).choice == "fp32"
    assert ADAPTER.decide(t, t).choice == "fp32"  # every product underflows
    assert ADAPTER.decide(f * 2.0**-70, f * 2.0**-70).choice == "fp32"
    assert ADAPTER.decide(f * 2.0**70, f * 2.0**70).choice == "fp32"  # overflows, or could
    assert ADAPTER.decide(f * 2.0**59, f * 2.0**59).choice == "fp32-b"
    single = f.clone()
    single[0, 0] = torch.inf
    assert ADAPTER.decide(single, f).counts == {"fp32-f4": 6, "fp32": 2}
    assert ADAPTER.decide(torch.full((8, 8), torch.nan), f).choice == "fp32"


def promised(a, b, result, promise):
    """Check each element against the product's promise plus float32's roundings of the sum."""
    exact = a.double() @ b.double()
    size = a.double().abs() @ b.double().abs()
    roundings = (a.shape[1] / 4 + 4) * UNIT  # blocks of 16 or so, the groups, the strips
    return bool(((result.double() - exact).abs() <= (promise + roundings) * size).all())


def test_ape_auto_meets_bound_that_fp32_f_exceeds():
    worst = torch.tensor([[1 + 4093 * 2.0**-23]])
    exact = Fraction(float(worst)) ** 2

    def error(dtype):
        options = {"adapter": ADAPTER} if dtype == "auto" else {}
        result = ape.gemm(worst, worst, dtype=dtype, **options)
        return float(abs(Fraction(float(result)) - exact) / exact)

    assert 1.9 * 2.0**-22 < error("fp32-f") < 2.0**-21 + UNIT
    assert error("auto") <= 2.0**-22 + UNIT
    assert error("fp32-b") <= 2.0**-23 + UNIT


def near_ones(count, random):
    """Draw significands just above a power of two, where relative errors are largest."""
    offset = torch.randint(1, 3 * 2**12, (count,), generator=random)
    sign = (torch.rand(count, generator=random) - 0.5).sign()
    return ((2**23 + offset).double() * 2.0**-23).float() * sign


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("scale_a,scale_b", [(0, 0), (14, -14), (-40, 0), (-113, 60), (100, -100)])
def test_every_single_product_keeps_the_promise(scale_a, scale_b, seed):
    random = torch.Generator().manual_seed(seed)
    a = near_ones(600, random)[:, None] * 2.0**scale_a
    b = near_ones(600, random)[None, :] * 2.0**scale_b
    decision = ADAPTER.decide(a, b)
    assert 0 < decision.promise <= 2.0**-22
    products = ape.gemm(a, b, dtype="auto", adapter=ADAPTER).double()
    exact = a.double() * b.double()
    error = ((products - exact).abs() / exact.abs()).max()
    assert float(error) <= decision.promise + 1.01 * UNIT  # the result is a float32


@pytest.mark.parametrize("seed", range(6))
def test_auto_keeps_its_promise_for_mixed_blocks(seed):
    random = torch.Generator().manual_seed(seed)

    def matrix(rows, columns):
        x = torch.randn(rows, columns, generator=random)
        exponents = torch.tensor([0.0, 0, 0, 12, -9, -40, 60, -112, -130, 30])
        which = torch.randint(10, (-(-rows // 4), -(-columns // 4)), generator=random)
        scale = torch.exp2(exponents[which]).repeat_interleave(4, 0).repeat_interleave(4, 1)
        x = x * scale[:rows, :columns]
        return torch.where(torch.rand(rows, columns, generator=random) < 0.1, 0.0, x)

    a, b = matrix(18, 22), matrix(22, 13)
    how = ape.Accumulation(rounding=("nearest", "zero")[seed % 2])
    decision = ADAPTER.decide(a, b)
    result = ape.gemm(a, b, dtype="auto", adapter=ADAPTER, accumulation=how)
    assert decision.choice == "hybrid" and len(decision.counts) > 1
    exact, size = a.double() @ b.double(), a.double().abs() @ b.double().abs()
    roundings = (22 / 4 + 8) * 2 * UNIT
    slack = 22 * 2.0**-149  # native products below the normal range
    assert bool(((result.double() - exact).abs() <= (2.0**-22 + roundings) * size + slack).all())


def test_hybrid_is_the_types_block_by_block():
    f, b = of_levels(8, 8, 0, level=RangeLevel.F), of_levels(8, 8, 1, level=RangeLevel.B)
    a = torch.cat([f, b], 0)
    decision = ADAPTER.decide(a, f)
    result = hybrid(a, f, decision, ADAPTER.blocks)
    upper = sum(ape.gemm(f[:, k : k + 4], f[k : k + 4], dtype="fp32-f4") for k in (0, 4))
    lower = sum(ape.gemm(b[:, k : k + 4], f[k : k + 4], dtype="fp32-b") for k in (0, 4))
    assert torch.equal(result, torch.cat([upper, lower]))


def test_infinity_nan_subnormal_zero():
    random = torch.Generator().manual_seed(0)
    a, b = torch.randn(9, 10, generator=random), torch.randn(10, 7, generator=random)
    a[0, 0], a[2, 3], a[5, 9] = torch.inf, torch.nan, -torch.inf
    b[4, 4], b[9, 1] = torch.inf, 0.0
    result, native = ape.gemm(a, b, dtype="auto", adapter=ADAPTER), a @ b
    fine = torch.isfinite(native)
    assert torch.equal(torch.isfinite(result), fine)
    assert torch.equal(
        result.nan_to_num(1.0, 2.0, 3.0)[~fine], native.nan_to_num(1.0, 2.0, 3.0)[~fine]
    )
    tiny = torch.full((4, 4), 3 * 2.0**-149)
    eye = torch.eye(4)
    assert torch.equal(ape.gemm(tiny, eye, dtype="auto", adapter=ADAPTER), tiny)
    assert not ape.gemm(torch.zeros(5, 6), torch.ones(6, 7), dtype="auto", adapter=ADAPTER).any()
    zero = ape.gemm(torch.zeros(4, 4), torch.full((4, 4), 2.0**120), dtype="auto", adapter=ADAPTER)
    assert not zero.any()
    for shape in ((0, 3, 2), (3, 0, 2), (2, 3, 0)):
        empty = ape.gemm(torch.ones(shape[:2]), torch.ones(shape[1:]), dtype="auto")
        assert empty.shape == (shape[0], shape[2]) and not empty.any()


def test_no_overflow_that_native_does_not_have():
    a = torch.tensor([[2 - 2.0**-23]])
    b = torch.tensor([[(2 - 2.0**-23) * 2.0**126]])
    assert torch.isfinite(a @ b).all()
    assert ape.gemm(a, b, dtype="fp32-b").isinf().all()  # hi is rounded up to 2, twice
    assert torch.equal(ape.gemm(a, b, dtype="auto", adapter=ADAPTER), a @ b)


def test_ape_auto_model_is_measured_on_this_machine():
    model = PerformanceModel.of(torch.device("cpu"))
    assert model is PerformanceModel.of(torch.device("cpu")) and set(model.terms) == set(KINDS)
    for kind in KINDS:
        assert 0 < model.predict(kind, 64, 64, 64) <= model.predict(kind, 512, 512, 512)
    f, b = of_levels(8, 8, 0, level=RangeLevel.F), of_levels(8, 8, 1, level=RangeLevel.B)
    decision = ape.Adapter(blocks=(4, 4, 4)).decide(torch.cat([f, b], 0), f)
    assert decision.choice == min(decision.seconds, key=lambda name: decision.seconds[name])


def test_ape_auto_fit_finds_the_terms():
    sizes = [(32, 64, 32), (64, 64, 64), (128, 64, 128), (64, 256, 64), (300, 64, 100)]
    rows = [(m, k, n, 2e-4 + 3e-6 * k * (-(-m // 128)) + 4e-9 * m * n * k) for m, k, n in sizes]
    model = PerformanceModel.fit("none", {"fp32-f": rows})
    assert model.terms["fp32-f"] == pytest.approx((2e-4, 3e-6, 4e-9), rel=1e-6)


def test_ape_auto_rejects_bad_arguments():
    with pytest.raises(ValueError, match=r"not \(4, 0, 4\)"):
        ape.Adapter(blocks=(4, 0, 4))

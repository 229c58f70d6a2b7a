"""Large matrix products of expansions, through integers: against exact rational numbers."""

import math
import time
from fractions import Fraction

import pytest
import torch

from trainwright import mcf
from trainwright.mcf import fixedpoint, products
from trainwright.mcf.errorfree import PRECISION
from trainwright.precision import residues
from trainwright.support.native import without

F32, F64 = torch.float32, torch.float64
KINDS = [(F32, 3), (F64, 2), (F32, 4), (F64, 3)]


def _drawn(shape, dtype, nc, seed, spread=0.0):
    """Draw normal numbers with random lower components, times powers of two up to the spread."""
    random = torch.Generator().manual_seed(seed)
    lead = torch.randn(shape, generator=random, dtype=F64)
    power = ((torch.rand(shape, generator=random, dtype=F64) * 2 - 1) * spread).round()
    lead = lead * torch.exp2(power)
    noise = torch.rand(*shape, nc, generator=random, dtype=F64) * 2 - 1
    noise[..., 0] = 1
    below = 2.0 ** (-PRECISION[dtype] * torch.arange(nc, dtype=F64))
    return mcf.MCTensor.from_components((lead.unsqueeze(-1) * noise * below).to(dtype)).components


def _numbers(x):
    rows = x.to(F64).tolist()
    return [[sum(map(Fraction, parts)) for parts in row] for row in rows]


def _worst_share(x, y, computed, places=40):
    """Return the largest error by its bound, 1 at most, of some elements."""
    dtype, nc, k = x.dtype, computed.shape[-1], x.shape[1]
    digits = PRECISION[dtype] * nc
    least = Fraction(torch.finfo(dtype).smallest_normal) / 2 ** (PRECISION[dtype] - 1)
    random, worst = torch.Generator().manual_seed(0), Fraction(0)
    chosen = torch.randperm(computed[..., 0].numel(), generator=random)[:places].tolist()
    for i, j in (divmod(place, computed.shape[1]) for place in chosen):
        (left,), (right,), ((value,),) = (
            _numbers(x[i : i + 1]),
            _numbers(y[:, j : j + 1].transpose(0, 1)),
            _numbers(computed[i : i + 1, j : j + 1]),
        )
        terms = [a * b for a, b in zip(left, right, strict=True)]
        bound = Fraction(3 + math.log2(k)) * sum(map(abs, terms)) / 2**digits + least
        worst = max(worst, abs(value - sum(terms)) / bound)
    return worst


def _graded(name, dtype, nc):
    x, y = _drawn((9, 40), dtype, nc, 1), _drawn((40, 7), dtype, nc, 2)
    far = 60 if dtype is F32 else 400
    slopes = {
        "as drawn": (torch.zeros(40), torch.zeros(40)),
        "columns against rows": (torch.linspace(-far, far, 40), torch.linspace(far, -far, 40)),
        "columns with rows": (torch.linspace(-far, 0, 40), torch.linspace(-far, 0, 40)),
        "terms that do not matter": (torch.linspace(-far, far, 40), torch.zeros(40)),
    }
    up, down = (torch.exp2(s.double().round()).to(dtype) for s in slopes[name])
    return x * up[None, :, None], y * down[:, None, None]


@pytest.mark.parametrize("dtype, nc", KINDS)
@pytest.mark.parametrize(
    "name",
    ["as drawn", "columns against rows", "columns with rows", "terms that do not matter"],
)
def test_fixedpoint_product_of_graded_terms_is_within_its_bound(name, dtype, nc):
    x, y = _graded(name, dtype, nc)
    computed = fixedpoint.product(x, y)
    if (dtype, nc) == (F64, 3) and name != "as drawn":  # there are no moduli for so many bits
        assert computed is None or _worst_share(x, y, computed) <= 1
        return
    assert computed is not None
    assert _worst_share(x, y, computed) <= 1


@pytest.mark.parametrize("dtype, nc", KINDS[:2])
def test_fixedpoint_product_of_badly_scaled_rows_is_within_its_bound(dtype, nc):
    x, y = _drawn((12, 30), dtype, nc, 3), _drawn((30, 11), dtype, nc, 4)
    far = 50 if dtype is F32 else 450
    x = x * torch.exp2(torch.linspace(-far, far, 12, dtype=F64).round()).to(dtype)[:, None, None]
    y = y * torch.exp2(torch.linspace(far, -far, 11, dtype=F64).round()).to(dtype)[:, None]
    computed = fixedpoint.product(x, y)
    assert computed is not None
    assert _worst_share(x, y, computed, places=132) <= 1


@pytest.mark.parametrize("dtype, nc, spread", [(F32, 3, 40), (F64, 2, 60), (F32, 3, 12)])
def test_fixedpoint_product_of_any_magnitudes_is_within_its_bound(dtype, nc, spread):
    """Some elements see small numbers alone, and are summed one by one."""
    x, y = _drawn((30, 20), dtype, nc, 5, spread), _drawn((20, 30), dtype, nc, 6, spread)
    computed = fixedpoint.product(x, y)
    assert computed is not None
    assert _worst_share(x, y, computed, places=120) <= 1
    assert _worst_share(x, y, products.sequential(x, y), places=20) <= 20


@pytest.mark.parametrize("dtype, nc", KINDS[:2])
def test_fixedpoint_elements_of_small_sums_are_summed_one_by_one(dtype, nc):
    x, y = _drawn((64, 64), dtype, nc, 7), _drawn((64, 64), dtype, nc, 8)
    x, y = x * 2.0**30, y * 2.0**30
    x[3, :32] *= 2.0**-80  # against a column whose other half is small: one sum is tiny
    y[32:, 5] *= 2.0**-80
    sizes = fixedpoint._magnitudes(x), fixedpoint._magnitudes(y)
    needed, _ = fixedpoint._needed_bits(*sizes, fixedpoint._exponents(*sizes), nc)
    usual = needed.flatten().median()
    assert needed[3, 5] > usual + 60 and int((needed > usual + 20).sum()) == 1
    computed = fixedpoint.product(x, y)
    assert computed is not None
    assert _worst_share(x[3:4], y[:, 5:6], computed[3:4, 5:6]) <= 1


@pytest.mark.parametrize("dtype, nc", KINDS)
def test_fixedpoint_products_of_whole_numbers_are_exact(dtype, nc):
    random = torch.Generator().manual_seed(9)
    x, y = (torch.randint(-(2**20), 2**20, shape, generator=random) for shape in ((6, 33), (33, 5)))
    a, b = (mcf.tensor(t, nc=nc, dtype=dtype).components for t in (x, y))
    computed = fixedpoint.product(a, b)
    wanted = (x.double() @ y.double()).to(torch.int64)
    assert computed is not None and torch.equal(computed.double().sum(-1).to(torch.int64), wanted)


def test_fixedpoint_product_of_largest_and_smallest_numbers_follows_floats():
    for dtype, nc in KINDS[:2]:
        info = torch.finfo(dtype)
        tiny = info.smallest_normal * info.eps
        x = torch.zeros(4, 3, nc, dtype=dtype)
        x[0, :, 0], x[1, :, 0], x[2, 1, 0] = info.max, tiny, -tiny
        y = torch.zeros(3, 4, nc, dtype=dtype)
        y[:, 0, 0], y[:, 1, 0], y[:, 2, 0] = info.max, tiny, 0.5
        computed = fixedpoint.product(x, y)
        assert computed is not None
        assert computed[0, 0].tolist() == [math.inf, *[0] * (nc - 1)]
        assert computed[1, 1].tolist() == [0] * nc and not computed[1, 1].signbit().any()
        assert not computed[2, 1].signbit().any()  # underflow of a sum that began with 0
        assert not computed[3].any() and not computed[:, 3].any()
        exact = 3 * Fraction(info.max) * Fraction(tiny)
        assert abs(sum(map(Fraction, computed[0, 1].tolist())) - exact) <= exact / 2 ** (
            PRECISION[dtype] * nc
        )
        assert sum(computed[1, 2].tolist()) == 2 * tiny  # 1.5, to even


@pytest.mark.parametrize("dtype, nc", KINDS[:2])
def test_fixedpoint_infinities_and_nan_are_those_of_floats(dtype, nc):
    x, y = _drawn((20, 30), dtype, nc, 10), _drawn((30, 20), dtype, nc, 11)
    x[2, 4] = torch.tensor([math.inf, *[0] * (nc - 1)])
    y[7, 3] = torch.tensor([math.nan, *[0] * (nc - 1)])
    y[4, 9] = 0
    computed, plain = fixedpoint.product(x, y), x[..., 0] @ y[..., 0]
    assert computed is not None
    special = ~plain.isfinite()
    assert special[2].all() and special[:, 3].all() and plain[2, 9].isnan()
    assert torch.equal(computed[special][:, 0].nan_to_num(7), plain[special].nan_to_num(7))
    assert not computed[special][:, 1:].any()
    assert int(special.sum()) == 39
    rows, columns = torch.arange(20) != 2, torch.arange(20) != 3
    assert _worst_share(x[rows], y[:, columns], computed[rows][:, columns]) <= 1


@pytest.mark.parametrize("dtype, nc", KINDS)
def test_fixedpoint_kernels_and_torch_have_the_same_bits(dtype, nc):
    x, y = _drawn((5, 70), dtype, nc, 12, 8), _drawn((70, 67), dtype, nc, 13, 8)
    computed = fixedpoint.product(x, y)
    plain = fixedpoint.product(x, y[..., :1])
    assert computed is not None and plain is not None
    with without():
        assert torch.equal(computed, fixedpoint.product(x, y))
        assert torch.equal(plain, fixedpoint.product(x, y[..., :1]))


def test_fixedpoint_product_in_blocks_has_the_same_bits(monkeypatch):
    x, y = _drawn((40, 30), F32, 3, 14), _drawn((30, 50), F32, 3, 15)
    whole = fixedpoint.product(x, y)
    monkeypatch.setattr(fixedpoint, "TUNING", fixedpoint.Tuning(block=16))
    assert torch.equal(fixedpoint.product(x, y), whole)


def test_fixedpoint_product_without_exact_int8_units_has_the_same_bits(monkeypatch):
    x, y = _drawn((9, 1100), F32, 3, 16), _drawn((1100, 8), F32, 3, 17)
    computed = fixedpoint.product(x, y)
    for serves in (False, residues._exact_int8()):
        monkeypatch.setattr(residues, "_int8_serves", lambda serves=serves: serves)
        assert torch.equal(fixedpoint.product(x, y), computed)


@pytest.mark.parametrize(
    ("multiply", "serves"),
    [(lambda a, b: None, False), (lambda a, b: time.sleep(0.1), residues._exact_int8())],
    ids=["at once", "slowly"],
)
def test_int8_units_serve_if_float32_is_not_faster(monkeypatch, multiply, serves):
    monkeypatch.setattr(residues, "_by_float32", multiply)
    assert residues._int8_serves.__wrapped__() == serves


def test_residues_of_long_sums_are_added_in_parts(monkeypatch):
    monkeypatch.setattr(residues, "_INT32_TERMS", 64)
    x, y = _drawn((3, 300), F64, 2, 18), _drawn((300, 4), F64, 2, 19)
    computed = fixedpoint.product(x, y)
    monkeypatch.undo()
    assert computed is not None and torch.equal(fixedpoint.product(x, y), computed)


def test_large_products_of_three_components_go_through_integers(monkeypatch):
    calls = []
    real = fixedpoint.product
    monkeypatch.setattr(fixedpoint, "product", lambda *xy: calls.append(1) or real(*xy))
    x, y = (mcf.MCTensor.from_components(_drawn((120, 120), F32, 3, s)) for s in (20, 21))
    computed = x @ y
    assert calls == [1]
    assert _worst_share(x.components, y.components, computed.components) <= 1
    batch = torch.stack([x, y]) @ x.mT
    assert len(calls) == 3 and torch.equal(batch[1].components, (y @ x.mT).components)
    x.requires_grad_()
    (x @ y).sum().backward()
    assert torch.allclose(x.grad, y.fc.sum(1).expand(120, 120))
    assert (x[:5, :5] @ y[:5]).shape == (5, 120) and len(calls) == 5
    assert (x[:0] @ y).shape == (0, 120) and not (x[:, :0] @ y[:0]).components.any()


@pytest.mark.parametrize("dtype, nc", [(F32, 3), (F64, 2)])
@pytest.mark.parametrize("rows, columns", [(1, 1), (3, 15), (2, 16), (5, 129)])
def test_vector_product_is_within_its_bound_with_the_same_bits(dtype, nc, rows, columns):
    x, v = (_drawn(s, dtype, nc, i, 30) for i, s in enumerate([(rows, columns), (columns, 1)], 30))
    v[columns // 2 :, 0] *= -1
    for a, b in ((x, v[:, 0]), (x, v[:, 0, :1]), (x[..., :1], v[:, 0])):
        computed = products.matmul(a, b)
        with without():
            assert torch.equal(computed, products.matmul(a, b))
        assert torch.equal(products.matmul(b, a.transpose(0, 1)), products.matmul(a, b))
        assert _worst_share(a, b.unsqueeze(1), computed.unsqueeze(1)) <= 1
    assert torch.equal(products.matmul(x[None], v[:, 0]), products.matmul(x, v[:, 0])[None])


@pytest.mark.parametrize("dtype, nc", [(F32, 3), (F64, 2)])
def test_vector_product_of_special_numbers_follows_floats(dtype, nc):
    top = torch.finfo(dtype).max
    rows = [[math.inf, 1], [math.inf, -math.inf], [top, top], [-0.0, 0], [math.nan, 1]]
    x, v = mcf.tensor(rows, nc=nc, dtype=dtype), mcf.tensor([1.0, 1.0], nc=nc, dtype=dtype)
    for computed in (x @ v, v @ x.mT):
        assert computed.fc.tolist()[:4] == [
            math.inf,
            pytest.approx(math.nan, nan_ok=True),
            math.inf,
            0,
        ]
        assert computed.fc[4].isnan() and not computed.components[..., 1:].any()
        assert not computed.fc[3].signbit()
    empty = x[:, :0] @ v[:0]
    assert empty.shape == (5,) and not empty.components.any()


def test_moduli_of_any_bits_are_the_fewest_that_hold_them():
    for bits in (1, 64, 170.5, 290):
        moduli = residues.moduli_for(bits)
        assert math.prod(moduli[:-1]) <= 2**bits < math.prod(moduli)
    with pytest.raises(ValueError, match="up to 256 hold at most 342 bits, not 400"):
        residues.moduli_for(400)

"""Number formats against ml_dtypes, numpy and a table of every posit; Algorithm 1."""

from fractions import Fraction
from math import isnan

import ml_dtypes
import numpy as np
import pytest
import torch

from trainwright.precision import PrecisionError, dot_mixed, dot_rounded, get_format, simulate, sqrt
from trainwright.precision.dot import matmul_exact_products, matmul_rounded

LIBRARY = {
    "fp16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "fp8_e4m3": ml_dtypes.float8_e4m3fn,
    "fp8_e5m2": ml_dtypes.float8_e5m2,
}


def _grid(name):
    """Return every number of a format of 8 or 16 bits, float64."""
    kind = np.dtype(LIBRARY[name])
    words = np.arange(1 << (8 * kind.itemsize), dtype=np.uint16)
    with np.errstate(invalid="ignore"):
        values = words.astype(f"u{kind.itemsize}").view(kind).astype(np.float64)
    return np.unique(values[np.isfinite(values)])


def _candidates(grid):
    """Return points of the grid, midpoints, and the float64 numbers next to midpoints."""
    middles = (grid[1:] + grid[:-1]) / 2
    points = [grid, middles, np.nextafter(middles, np.inf), np.nextafter(middles, -np.inf)]
    return np.concatenate(points)


def _equal(left, right):
    return np.array_equal(left, right, equal_nan=True)


@pytest.mark.parametrize("name", LIBRARY)
def test_float64_is_rounded_once_at_every_boundary(name):
    grid = _grid(name)
    x = _candidates(grid)
    above = np.clip(np.searchsorted(grid, x), 0, len(grid) - 1)
    below = np.clip(above - 1, 0, None)
    up, down = grid[above] - x, x - grid[below]
    even = (np.arange(len(grid)) - np.searchsorted(grid, 0.0)) % 2 == 0
    nearest = np.where(
        up < down, above, np.where(down < up, below, np.where(even[above], above, below))
    )
    expected = np.where(grid[above] == x, x, grid[nearest])
    assert _equal(get_format(name).round(torch.from_numpy(x)).numpy(), expected)


@pytest.mark.parametrize("name", LIBRARY)
def test_float32_agrees_with_the_libraries(name):
    x = _candidates(_grid(name)).astype(np.float32)
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e38, -1e38, 464.0, 465.0, 65520.0])
    x = np.concatenate([x, special.astype(np.float32)])
    with np.errstate(over="ignore"):
        expected = x.astype(LIBRARY[name]).astype(np.float32)
    f = get_format(name)
    for wide in (torch.float32, torch.float64):
        got = f.round(torch.from_numpy(x).to(wide)).to(torch.float32).numpy()
        assert _equal(got, expected)
        assert np.array_equal(
            np.signbit(got[~np.isnan(got)]), np.signbit(expected[~np.isnan(expected)])
        )


@pytest.mark.parametrize("name", ("fp16", "tf32", "fp32"))
@pytest.mark.parametrize("dtype", (torch.complex64, torch.complex128))
def test_rounding_of_a_negated_view_is_that_of_its_values(name, dtype):
    x = torch.randn(9, dtype=dtype).conj().imag  # torch negates where it is read
    assert torch.equal(get_format(name).round(x), get_format(name).round(x.clone()))


def test_tf32_cuts_13_bits_in_both_carriers():
    rng = np.random.default_rng(1)
    words = rng.integers(0, 1 << 32, 200_000, dtype=np.uint64).astype(np.uint32)
    x = torch.from_numpy(words.view(np.float32).copy())
    x = x[x.isfinite()]
    f = get_format("tf32")
    narrow = f.round(x)
    assert (narrow.view(torch.int32) & 0x1FFF).eq(0).all()
    assert torch.equal(f.round(x.double()).float(), narrow)
    normal = x.abs() > 2.0**-126
    assert ((narrow - x).abs() <= f.unit * x.abs())[normal & narrow.isfinite()].all()
    assert f.round(torch.tensor([float("nan")])).isnan().all()


def _posits(width, es):
    """Return (value, encoding) of each positive posit, exact, by decoding bit by bit."""
    table = []
    for word in range(1, 1 << (width - 1)):
        bits = f"{word:0{width - 1}b}"
        run = len(bits) - len(bits.lstrip(bits[0]))
        k = run - 1 if bits[0] == "1" else -run
        rest = bits[run + 1 :]
        exponent = int((rest[:es] + "0" * es)[:es] or "0", 2)
        fraction = rest[es:]
        significand = 1 + Fraction(int(fraction or "0", 2), 1 << len(fraction))
        table.append((significand * Fraction(2) ** (k * 2**es + exponent), word))
    return table


def _posit_by_encoding(x, width, es, tables={}):  # noqa: B006
    """Round as the standard words it: half a step on is the posit one bit longer."""
    key = (width, es)
    if key not in tables:
        longer = dict((word, value) for value, word in _posits(width + 1, es))
        tables[key] = dict((w, v) for v, w in _posits(width, es)), longer
    table, longer = tables[key]
    size = abs(x)
    if size >= table[max(table)]:
        word = max(table)
    elif size <= table[1]:
        word = 1
    else:
        low, high = 1, max(table)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if table[middle] <= size else (low, middle)
        boundary = longer[2 * low + 1]
        up = size > boundary or (size == boundary and low % 2 == 1)
        word = low + 1 if up and table[low] != size else low
    return float(table[word]) if x > 0 else -float(table[word])


@pytest.mark.parametrize(("width", "es"), [(6, 0), (6, 1), (6, 2), (8, 0), (8, 2), (8, 4), (10, 1)])
def test_posits_round_as_their_encodings_do(width, es):
    exact = [float(v) for v, _ in _posits(width + 2, es)]  # halves and quarters of every step
    x = [s * v for v in exact for s in (1, -1)]
    x += [v * 1.000001 for v in exact] + [v * 0.999999 for v in exact]
    got = get_format(f"posit({width},{es})").round(torch.tensor(x, dtype=torch.float64))
    assert got.tolist() == [_posit_by_encoding(Fraction(v), width, es) for v in x]


def test_precision_rounds_posit_specials():
    f = get_format("posit16")
    assert f.name == "posit(16,2)" and f.digits == 12
    x = torch.tensor([0.0, -0.0, 1e300, -1e300, 1e-300, float("inf"), float("nan")]).double()
    x[2:5] = torch.tensor([1e300, -1e300, 1e-300], dtype=torch.float64)
    got = f.round(x).tolist()
    assert got[:5] == [0.0, 0.0, 2.0**56, -(2.0**56), 2.0**-56]
    assert isnan(got[5]) and isnan(got[6])


@pytest.mark.parametrize("name", ["posit33", "posit(8,5)", "fp12", "posit1", ""])
def test_unknown_formats_are_named(name):
    with pytest.raises(PrecisionError, match=r"posit|unknown"):
        get_format(name)


@pytest.mark.parametrize("name", ["fp16", "bf16"])
@pytest.mark.parametrize("operation", ["add", "subtract", "multiply", "divide"])
def test_operations_are_correctly_rounded(name, operation):
    """Algorithm 1 against the same operation through float64, then one rounding by ours."""
    rng = np.random.default_rng(2)
    f = get_format(name)
    x, y = (f.round(torch.from_numpy(rng.standard_normal(50_000) * 10.0**k)) for k in (0, 1))
    exact = {"add": x + y, "subtract": x - y, "multiply": x * y, "divide": x / y}[operation]
    assert torch.equal(simulate(operation, x, y, name).double(), f.round(exact))


def test_precision_all_formats_simulate_or_say_why_not():
    x = torch.tensor([1.5, -2.25, 0.375])
    for name in (
        "fp16",
        "bf16",
        "tf32",
        "fp8_e4m3",
        "fp8_e5m2",
        "fp32",
        "fp64",
        "posit8",
        "posit16",
    ):
        f = get_format(name)
        assert simulate("multiply", x, x, name).tolist() == f.round(f.round(x) ** 2).tolist()
        assert sqrt(x.abs(), name).shape == (3,)
    with pytest.raises(PrecisionError, match="twice"):
        simulate("add", x, x, "posit32")
    with pytest.raises(ValueError, match="dot_product"):
        simulate("pow", x, x)


def test_dot_rounds_every_operation():
    rng = np.random.default_rng(3)
    x, y = (torch.from_numpy(rng.standard_normal((20, 33))).to(torch.float16) for _ in range(2))
    for name in ("fp16", "bf16", "tf32", "posit16", "fp8_e4m3"):
        f = get_format(name)
        a, b = f.round(x).double(), f.round(y).double()
        total = f.round(a[:, 0] * b[:, 0])
        for k in range(1, 33):
            total = f.round(total + f.round(a[:, k] * b[:, k]))
        assert torch.equal(dot_rounded(x, y, name).double(), total), name


def test_algorithm_1_for_a_dot_product_casts_once():
    rng = np.random.default_rng(4)
    x, y = (torch.from_numpy(rng.standard_normal((50, 64))).to(torch.float16) for _ in range(2))
    exact = (x.double() * y.double()).sum(-1)
    got = simulate("dot_product", x, y)
    assert torch.equal(got.half().float(), got)
    assert ((got.double() - exact).abs() <= 2.0**-11 * exact.abs() + 1e-5).all()


@pytest.mark.parametrize(
    ("low", "high"), [("fp16", "fp32"), ("bf16", "fp32"), ("fp32", "fp64"), ("posit16", "fp64")]
)
def test_assumption_2_4_has_exact_products(low, high):
    """Two products that cancel to their last bits: any rounding of a product would show."""
    f, h = get_format(low), get_format(high)
    x = f.round(torch.tensor([1.0 + 4 * f.unit, -(1.0 + 8 * f.unit)], dtype=torch.float64))
    y = f.round(torch.tensor([1.0 + 12 * f.unit, 1.0 + 8 * f.unit], dtype=torch.float64))
    exact = float((x * y).sum())
    assert exact == -16 * f.unit**2  # (1+4u)(1+12u) - (1+8u)^2
    got = matmul_exact_products(x[None].to(f.carrier), y[:, None].to(f.carrier), f, h)
    assert float(got) == exact
    assert float(dot_mixed(x, y, low, high)) == exact


def test_assumption_2_4_with_a_sum_in_a_simulated_type():
    rng = np.random.default_rng(5)
    x, y = (get_format("fp8_e4m3").round(torch.from_numpy(rng.standard_normal(40))) for _ in "xy")
    f, total = get_format("fp16"), torch.zeros((), dtype=torch.float64)
    for a, b in zip(x, y, strict=True):
        total = f.round(total + a * b)
    assert float(dot_mixed(x, y, "fp8_e4m3", "fp16")) == float(get_format("fp8_e4m3").round(total))


def test_products_of_matrices_have_shapes_of_matmul():
    f = get_format("fp16")
    a, b = torch.ones(3, 2, 4, 5), torch.ones(2, 5, 6)
    assert torch.equal(matmul_rounded(a, b, f), a @ b)
    with pytest.raises(ValueError, match="elements"):
        dot_rounded(torch.ones(3), torch.ones(4))

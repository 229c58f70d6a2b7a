"""Splits hold every float32 in range to the stated precision."""

import ape_reference as reference
import pytest
import torch

from trainwright import ape
from trainwright.ape.rounding import round_tf32
from trainwright.ape.schemes import SCHEMES

TYPES = tuple(SCHEMES)
PARTS = {"fp32-f": torch.float16, "fp32-t": torch.float32, "fp32-b": torch.bfloat16}


def error(x, dtype):
    """Return the largest relative error of split and join."""
    wide = x.to(torch.float64)
    return float(((ape.join(ape.split(x, dtype), dtype) - wide).abs() / wide.abs()).max())


def significands(random):
    """Return edge and random 23-bit significands."""
    edges = [0, 1, 2, 3, 2**23 - 1, 2**23 - 2, 2**22, 2**22 - 1, 2**22 + 1]
    for bit in range(23):
        edges += [1 << bit, (1 << bit) - 1, (1 << bit) + 1, 2**23 - (1 << bit)]
    for tie in (1 << 12, 1 << 15):  # ties of 11 and of 8 bits, and beside them
        edges += [tie * odd + d for odd in (1, 3, 5, 2**10 - 1) for d in (-2, -1, 0, 1, 2)]
    chosen = torch.tensor(edges, dtype=torch.int64) & 0x7FFFFF
    return torch.cat([chosen, torch.randint(2**23, (300,), generator=random)]).to(torch.int32)


def floats(exponents, fractions, sign):
    """Return float32 of every exponent with every significand."""
    bits = (exponents[:, None] + 127 << 23) | fractions[None, :]
    return bits.to(torch.int32).view(torch.float32).flatten() * sign


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("dtype", TYPES)
def test_every_exponent_in_range(dtype, sign):
    random = torch.Generator().manual_seed(1)
    x = floats(torch.arange(-126, 128), significands(random), sign)
    low, high = ape.value_range(dtype)
    x = x[(x.abs() >= low) & (x.abs() <= high)]
    assert x.abs().min() == low
    assert error(x, dtype) <= ape.precision(dtype)


@pytest.mark.parametrize("dtype", TYPES)
def test_ape_split_ends_of_the_range(dtype):
    low, high = (torch.tensor([v], dtype=torch.float32) for v in ape.value_range(dtype))
    assert float(low) == ape.value_range(dtype)[0] and float(high) == ape.value_range(dtype)[1]
    assert error(torch.cat([low, high, -low, -high]), dtype) <= ape.precision(dtype)
    above = torch.nextafter(high, torch.tensor([torch.inf]))
    if dtype in ("fp32-t", "fp32-b"):  # float16's hi still holds up to 65520
        assert ape.join(ape.split(above, dtype), dtype).isinf().all()


@pytest.mark.parametrize("dtype", ["fp32-f", "fp32-b"])
def test_ape_split_all_significands_of_a_binade(dtype):
    fractions = torch.arange(2**23, dtype=torch.int32)
    x = (fractions | (127 << 23)).view(torch.float32)
    assert len(x) == 2**23 and x[0] == 1 and x[-1] == 2 - 2.0**-23
    parts = ape.split(x, dtype)
    difference = (ape.join(parts, dtype) - x.to(torch.float64)).abs()
    if dtype == "fp32-b":
        assert not difference.any()
    else:
        assert float(difference.max()) == 2.0**-23  # half of what is stated
        assert float((parts[0].to(torch.float32) - x).abs().max()) <= 2.0**-11
    negative = ape.split(-x[::7], dtype)
    assert all(torch.equal(m, -p[::7]) for m, p in zip(negative, parts, strict=True))


def test_ape_split_top_binade_of_float16_saturates():
    x = torch.tensor([32768 + 16.0, 32768 + 48.0, 65488.0 - 32, 65504.0 - 2.0**-8, 65504.0])
    high, low = ape.split(torch.cat([x, -x]), "fp32-f")
    assert torch.isfinite(low).all() and torch.isfinite(high).all()
    assert error(torch.cat([x, -x]), "fp32-f") <= 2.0**-22


@pytest.mark.parametrize("dtype", TYPES)
def test_parts_are_those_of_the_reference(dtype):
    random = torch.Generator().manual_seed(2)
    low, high = ape.value_range(dtype)
    size = torch.exp(torch.empty(300).uniform_(-30, 30, generator=random))
    x = size * torch.empty(300).uniform_(-1, 1, generator=random).sign()
    x = x[(x.abs() <= high)]  # below the range too: gradual underflow of the parts
    parts = ape.split(x, dtype)
    for n, value in enumerate(x.tolist()):
        assert [float(part[n]) for part in parts] == [
            float(part) for part in reference.split(value, dtype)
        ]
    assert low < high


@pytest.mark.parametrize("dtype", PARTS)
def test_form_of_the_parts(dtype):
    parts = ape.split(torch.randn(3, 4, 5), dtype)
    assert isinstance(parts, tuple)
    assert [part.dtype for part in parts] == [PARTS[dtype]] * SCHEMES[dtype].parts
    assert all(part.shape == (3, 4, 5) for part in parts)
    assert ape.join(parts, dtype).dtype == torch.float64
    for part in parts if dtype == "fp32-t" else ():
        assert torch.equal(round_tf32(part), part)


@pytest.mark.parametrize("dtype", TYPES)
def test_zero_infinity_nan_empty(dtype):
    x = torch.tensor([0.0, -0.0, torch.inf, -torch.inf, torch.nan])
    joined = ape.join(ape.split(x, dtype), dtype)
    assert joined[:4].tolist() == [0, 0, torch.inf, -torch.inf] and joined[4].isnan()
    assert all(part.shape == (0, 3) for part in ape.split(torch.zeros(0, 3), dtype))


def test_subnormals_below_the_range_lose_no_more_than_a_part_holds():
    x = torch.tensor([2.0**-149, 2.0**-140 * 1.37, -(2.0**-127)])
    for dtype, unit in (("fp32-b", 2.0**-133), ("fp32-t", 2.0**-136), ("fp32-f", 2.0**-36)):
        difference = ape.join(ape.split(x, dtype), dtype) - x.to(torch.float64)
        assert float(difference.abs().max()) <= unit / 2


def test_split_of_a_negated_view_is_that_of_its_values():
    x = torch.randn(9, dtype=torch.complex64).conj().imag  # torch negates where it is read
    for dtype in SCHEMES:
        torch.testing.assert_close(ape.split(x, dtype), ape.split(x.clone(), dtype))


def test_tf32_rounds_to_nearest_even():
    x = torch.tensor([1 + 2.0**-11, 1 + 3 * 2.0**-11, 1 + 2.0**-11 + 2.0**-23, 2 - 2.0**-12])
    assert round_tf32(x).tolist() == [1, 1 + 2.0**-9, 1 + 2.0**-10, 2]
    assert torch.equal(round_tf32(-x), -round_tf32(x))
    assert round_tf32(torch.tensor([torch.finfo(torch.float32).max])).isinf().all()
    assert round_tf32(torch.tensor([torch.nan, -torch.nan])).isnan().all()


def test_int16_splits_every_value():
    x = torch.arange(-32768, 32768).to(torch.int16)
    high, low = ape.split(x, "int16")
    assert (high.dtype, low.dtype) == (torch.int8, torch.uint8)
    assert torch.equal(ape.join((high, low), "int16"), x.to(torch.float64))
    assert ape.value_range("int16") == (0, 32768) and ape.precision("int16") == 0


def test_ape_split_rejects_bad_arguments():
    with pytest.raises(ValueError, match="not 'fp8'"):
        ape.split(torch.zeros(1), "fp8")
    with pytest.raises(TypeError, match="float64"):
        ape.split(torch.zeros(1, dtype=torch.float64), "fp32-f")
    with pytest.raises(TypeError, match="int32"):
        ape.split(torch.zeros(1, dtype=torch.int32), "int16")
    with pytest.raises(ValueError, match="3 parts, not 2"):
        ape.join((torch.zeros(1), torch.zeros(1)), "fp32-b")
    with pytest.raises(ValueError, match="2 parts, not 1"):
        ape.join((torch.zeros(1),), "int16")

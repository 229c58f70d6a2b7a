"""Elementary functions of posits, beside arithmetic of 60 digits."""

import math
from fractions import Fraction

import pytest
import torch
from posit_reference import nearest, value

from trainwright.posit import PositFormat, PositTensor, decode
from trainwright.posit.explain import nearest as nearest_to
from trainwright.posit.operators.functions import FUNCTIONS, apply
from trainwright.posit.rounding import codes_of, round_to

mpmath = pytest.importorskip("mpmath")
NAMES = list(FUNCTIONS)
NARROW = [
    PositFormat(n, es) for n, es in ((16, 2), (16, 1), (8, 0), (8, 1), (8, 2), (11, 4), (2, 0))
]
EXACT = {
    "exp": mpmath.exp,
    "expm1": mpmath.expm1,
    "log": mpmath.log,
    "log1p": mpmath.log1p,
    "tanh": mpmath.tanh,
    "sigmoid": lambda x: 1 / (1 + mpmath.exp(-x)),
}
UNITS = 4
"""Units in the last place within which torch's float64 functions are taken to be."""


def exact(name, code, fmt):
    """Return the code of the function at a code, by 60 digits."""
    x = value(code, fmt.n, fmt.es)
    if (name == "log" and x <= 0) or (name == "log1p" and x <= -1):
        return fmt.nar
    if name == "log" and x == 1:
        return 0
    if x == 0:
        zero = {"exp": 1, "sigmoid": Fraction(1, 2)}.get(name, 0)
        return nearest(Fraction(zero), fmt.n, fmt.es)
    with mpmath.workdps(60):
        y = EXACT[name](mpmath.mpf(x.numerator) / x.denominator)
        if y == 0:  # nothing but 0 becomes 0
            return 1
        sign, man, exponent, _ = y._mpf_
        if abs(exponent) > 10_000:
            return fmt.nar - 1 if exponent > 0 else 1
        size = Fraction(int(man)) * Fraction(2) ** exponent
        return nearest(-size if sign else size, fmt.n, fmt.es)


@pytest.mark.parametrize("fmt", NARROW, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_functions_of_every_word_of_up_to_16_bits(name, fmt):
    """Trust float64 where values some units away round alike; else use 60 digits."""
    codes = torch.arange(1 << fmt.n)
    values = decode(codes, fmt)
    got = codes_of(apply(name, PositTensor.from_codes(codes, fmt).values(), fmt), fmt)
    y = FUNCTIONS[name](values)
    slack = y.abs() * (UNITS * 2.0**-52)
    sides = [codes_of(round_to(y + side, fmt), fmt) for side in (-slack, slack)]
    sure = (sides[0] == sides[1]) & y.isfinite() & (y != 0)
    assert torch.equal(got[sure], sides[0][sure])
    rest = (~sure).nonzero().squeeze(1).tolist()
    assert len(rest) < 40_000
    # Beyond the range of float64 there are as many as there are regimes; they are all alike.
    step = max(1, len(rest) // 500)
    for code in {*rest[::step], *rest[:100], *rest[-100:]} - {fmt.nar}:
        assert got[code] == exact(name, code, fmt), value(code, fmt.n, fmt.es)
    assert got[fmt.nar] == fmt.nar


@pytest.mark.parametrize("name", NAMES)
def test_functions_of_32_bits(name):
    fmt = PositFormat(32, 2)
    g = torch.Generator().manual_seed(1)
    codes = torch.randint(0, 1 << 32, (400,), generator=g)
    codes = torch.cat([codes, torch.tensor([0, 1, fmt.nar - 1, fmt.nar + 1, fmt.mask])])
    got = codes_of(apply(name, PositTensor.from_codes(codes, fmt).values(), fmt), fmt)
    for code, result in zip(codes.tolist(), got.tolist(), strict=True):
        assert result == exact(name, code, fmt), code


def test_functions_without_a_value_are_nar():
    p = PositTensor([-1.0, -2.0, 0.0], PositFormat(16, 2))
    assert p.log().isnan().all()
    assert p.log1p().isnan().tolist() == [True, True, False]


def test_rounding_of_exact_numbers():
    """The cut at 64 digits is not seen: thirds and numbers beside ties."""
    fmt = PositFormat(16, 2)
    assert nearest_to(Fraction(1, 3), fmt) == nearest(Fraction(1, 3), 16, 2)
    tie = (value(0x4C91, 16, 2) + value(0x4C92, 16, 2)) / 2
    for tiny in (Fraction(1, 10**80), Fraction(1, 3**200)):
        assert nearest_to(tie + tiny, fmt) == 0x4C92 == nearest_to(tie, fmt)
        assert nearest_to(tie - tiny, fmt) == 0x4C91
        assert nearest_to(tiny, fmt) == 1 and nearest_to(-1 / tiny, fmt) == 0x8001
    assert nearest_to(Fraction(math.pi), fmt) == 0x4C91 and nearest_to(None, fmt) == fmt.nar

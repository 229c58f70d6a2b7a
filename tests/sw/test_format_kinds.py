"""Every coded format against an oracle of its own: words, ties, neighbours, tensors, spelling."""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from math import log2
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
import torch
from format_kinds import KINDS, SAMPLES, oracle_of, sums_near

from trainwright.fixed.quantise import dequantise, fitting_exponent, quantise
from trainwright.formats import (
    UNDERFLOWS,
    Coded,
    Format,
    FormatError,
    Posit,
    parse_format,
    parse_formats,
)
from trainwright.network import load_network
from trainwright.parameters import AcceleratorParameters

REFERENCE = Path(__file__).parents[2] / "docs/reference/formats.md"
SHIFTS = (0, 1, *(pytest.param(shift, marks=pytest.mark.slow) for shift in (2, 12)), 5, 33)


def test_every_coded_class_has_samples_of_its_own() -> None:
    coded = {
        kind for kind in Format.kinds if kind.coded and kind.__module__.startswith("trainwright.")
    }
    missing = ", ".join(sorted(kind.__name__ for kind in coded - set(KINDS)))
    assert not missing, f"add samples and an oracle of {missing} to KINDS in tests/format_kinds.py"
    assert coded == set(KINDS) == {type(fmt) for fmt in SAMPLES}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_reference_shows_every_class_of_formats(kind: type[Coded]) -> None:
    shown = kind.spelling.search(REFERENCE.read_text())
    assert shown, f"explain {kind.allowed} in {REFERENCE}, with an example"


def test_identifiers_of_samples_tell_them_apart() -> None:
    same = [
        fmt
        for fmt in SAMPLES
        for other in SAMPLES
        if fmt != other and fmt.identifier == other.identifier
    ]
    assert not same, f"these formats share an `identifier`: {', '.join(map(str, same))}"


@dataclass(frozen=True)
class Knots(Posit):
    """Words of 6 bits with any knots."""

    knots: Callable[[int], Any] = int
    last: int = 0

    @property
    def largest(self) -> int:
        return self.last

    def knot(self, place: int) -> Fraction:
        knot: Any = self.knots(place)
        return Fraction(knot) if isinstance(knot, int) else knot


@pytest.mark.parametrize(
    ("knots", "largest", "match"),
    (
        # no subnormal numbers: words 1, 2 and 3 would stand for 5/4, 3/2 and 7/4
        (lambda p: 4 * p, 31, "the word 1 would stand for 5/4, no integer"),
        # no subnormal numbers, words from 1: exact, but no shift makes 1 .. 4 of 4 .. 7
        (lambda p: Fraction(1 << p, 4) if p < 3 else 4 * p - 7, 31, r"knot\(2\) is 1 and .* 5"),
        (lambda p: 3 * p, 31, r"knot\(0\) is 0 and knot\(1\) is 3; the difference"),
        (lambda p: 1, 31, r"knot\(0\) is 1 and knot\(1\) is 1; the difference"),
        (lambda p: 2 * p - 2, 31, r"knot\(0\) is -2, which must not be below 0"),
        (lambda p: 1 << p, 32, "the largest word is 32; 6 bits have words to 31"),
        (lambda p: 1 << p, 0, "the largest word is 0, which must be at least 1"),
        (lambda p: 2.0**p, 31, r"knot\(0\) is 1.0, which rounds: return Fraction"),
    ),
    ids=("fraction", "offset", "three", "constant", "negative", "largest", "empty", "rounded"),
)
def test_knots_that_no_table_follows_are_refused(
    knots: Callable[[int], Any], largest: int, match: str
) -> None:
    fmt = Knots(6, 0, False, knots, largest)
    for use in (lambda: fmt.most, lambda: fmt.encode([5], 0), lambda: fmt.decode([0])):
        with pytest.raises(FormatError, match=match):
            use()


@pytest.mark.parametrize("fmt", SAMPLES, ids=str)
def test_words_decode_to_the_oracles_integers(fmt: Coded) -> None:
    integers = oracle_of(fmt).integers
    words = fmt.words()
    assert words.tolist() == sorted(integers)
    assert fmt.decode(words).tolist() == [integers[word] for word in words.tolist()]
    assert max(integers.values()) == fmt.most
    assert fmt.most.bit_length() + 1 <= fmt.decoded_width <= 18
    ends = -(1 << (fmt.width - 1)), (1 << (fmt.width - 1)) - 1
    for word in {*ends, fmt.largest + 1, -fmt.largest - 1} - set(integers):
        with pytest.raises(FormatError, match=rf"{word} of .*no number|words of .* are"):
            fmt.decode([word])


@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize("underflow", UNDERFLOWS)
@pytest.mark.parametrize("fmt", SAMPLES, ids=str)
def test_sums_are_encoded_as_the_oracle_rounds(fmt: Coded, underflow: str, shift: int) -> None:
    oracle, sums = oracle_of(fmt), sums_near(fmt, shift, 60)
    encoded = zip(
        *(each.tolist() for each in fmt.encode(sums, shift, underflow=underflow)), strict=True
    )
    for total, result in zip(sums, encoded, strict=True):
        assert result == oracle.encoded(total, shift, underflow == "zero"), total


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("fmt", SAMPLES, ids=str)
def test_random_tensors_become_the_nearest_words(fmt: Coded, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(40, generator=generator) * 2.0 ** torch.randint(
        -12, 12, (40,), generator=generator
    )
    exponent = int(torch.randint(-9, 4, (), generator=generator))
    words = quantise(values, exponent, fmt)
    oracle = oracle_of(fmt)
    for value, word in zip(values.tolist(), words.tolist(), strict=True):
        numerator, denominator = (value * 2.0**-exponent).as_integer_ratio()
        shift = denominator.bit_length() - 1
        assert word == oracle.encoded(numerator, shift, True)[0]
    again = dequantise(words, exponent, fmt)
    assert torch.equal(quantise(again, exponent, fmt), words)


@pytest.mark.parametrize("fmt", SAMPLES, ids=str)
def test_fitting_exponent_uses_the_upper_half_of_the_words(fmt: Coded) -> None:
    for greatest in (1.0, 0.75, 3.0e-5, 7.7e8):
        values = torch.tensor([greatest, -greatest / 3])
        word = int(quantise(values, fitting_exponent(values, fmt), fmt)[0])
        assert fmt.largest // 2 <= word <= fmt.largest
        scaled = greatest * 2.0 ** -fitting_exponent(values, fmt)
        assert scaled <= fmt.most


def rounding_error(fmt: Coded, values: np.ndarray, exponent: float) -> float:
    """Return the root mean square of the errors of values in units of 2^exponent."""
    scaled = values * 2.0**-exponent
    return float(np.sqrt(np.mean((fmt.decode(fmt.nearest(scaled)) - scaled) ** 2))) * 2.0**exponent


@pytest.mark.parametrize("fmt", SAMPLES, ids=str)
def test_scale_is_that_of_the_oracles_integer_of_one(fmt: Coded) -> None:
    assert Fraction(2) ** fmt.scale == oracle_of(fmt).integer_of_one


@pytest.mark.parametrize("fmt", SAMPLES, ids=str)
def test_inputs_from_0_to_1_round_as_well_as_at_the_best_exponent(fmt: Coded) -> None:
    """1 does not saturate, and the exponent is within 2 of the one that fits a largest value of 1.

    Posits of es = 0 and 2 are 1 below and 2 above it: they have 1 in the middle of their range.
    """
    oracle, exponent = oracle_of(fmt), fmt.input_exponent
    greatest = oracle.integers[oracle.largest]
    assert Fraction(2) ** -exponent <= greatest, "1 saturates"
    fitting = fmt.fitting_exponent(1.0)
    assert abs(exponent - fitting) <= 2, f"input_exponent {exponent} is far from {fitting}"
    values, every = np.linspace(0, 1, 1000), range(-20, 2)
    best = min(rounding_error(fmt, values, e) for e in every if Fraction(2) ** -e <= greatest)
    assert rounding_error(fmt, values, exponent) <= 1.05 * best


@pytest.mark.parametrize("mean", [1.5, 3.6])
@pytest.mark.parametrize("fmt", SAMPLES, ids=str)
def test_factors_round_as_well_in_steps_as_at_the_best_exponent(fmt: Coded, mean: float) -> None:
    """8 steps are numbers, as 4 bits of fixed point have them; exponents keep means in between."""
    oracle = oracle_of(fmt)
    assert 8 * fmt.step <= oracle.integers[oracle.largest]
    normal = np.array([NormalDist().inv_cdf((n + 0.5) / 999) for n in range(999)])
    values = (normal * (mean / np.abs(normal).mean())).clip(-8, 8)
    best = min(rounding_error(fmt, values, e / 4) for e in range(-80, 20))
    assert rounding_error(fmt, values, -log2(fmt.step)) <= 1.5 * best


@pytest.mark.parametrize("fmt", SAMPLES, ids=str)
def test_spelling_is_read_wherever_formats_are_written(fmt: Coded) -> None:
    spaced = f" {fmt} ".replace("(", " ( ").replace(",", " , ")
    assert type(fmt).spelling.fullmatch(spaced.strip()), r"allow \s* around ( and , in `spelling`"
    assert parse_format(str(fmt)) == parse_format(spaced) == fmt
    assert parse_formats(f"activation={fmt},gradient=fixed(8)")["activation"] == fmt
    assert parse_formats({"factor": str(fmt)}) == {"factor": fmt}
    network = load_network("digits").with_formats(f"factor={fmt},l1.G1={fmt}")
    assert network.format("factor") == network.factor_format(0, 0) == fmt
    p = AcceleratorParameters(formats=str(fmt), accumulator_width=44)
    assert p.coded_formats == (fmt,) and p.format_number(fmt) == 1

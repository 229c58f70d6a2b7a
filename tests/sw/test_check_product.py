"""Products by residues on the accelerator: exact sums, and the bits of a wide multiplier."""

import json
import math
from itertools import combinations

import pytest
import torch

from trainwright.ape.residues import TYPES, exponents
from trainwright.check.product import ResidueOperands, check_product, passes_for
from trainwright.cli import main
from trainwright.compiler import CompileError
from trainwright.golden.backend import GoldenAccelerator
from trainwright.parameters import AcceleratorParameters

P = AcceleratorParameters(
    lanes=4, pe1_rows=2, pe2_rows=2, word_width=8, wide_tensors=True, scratchpad_rows=8192
)
MEMORY_BYTES = 1 << 22


class Wrong(GoldenAccelerator):
    """The golden model, but a run changes one byte of a sum."""

    def read(self, address, size):
        data = super().read(address, size)
        if self._ran and size > 8:
            data[7] ^= 4
        return data

    _ran = False

    def run(self, program, address, *, trace=False):
        done = super().run(program, address, trace=trace)
        self._ran = True
        return done


@pytest.mark.parametrize(
    ("dtype", "sizes"),
    [
        *((dtype, sizes) for dtype in TYPES for sizes in ((1, 1, 1), (5, 7, 3))),
        ("fp32-i8", (9, 41, 6)),
        ("fp64-i8", (9, 41, 6)),
    ],
)
def test_check_product_of_golden_model_equals_wide_multiplier(dtype, sizes):
    with GoldenAccelerator(P, memory_bytes=MEMORY_BYTES) as accelerator:
        outcome = check_product(dtype, sizes, accelerator, seed=sum(sizes))
    assert outcome.comparison.mismatches == {}
    m, _, n = sizes
    assert outcome.comparison.tensors["product"] == m * n * TYPES[dtype].components
    assert outcome.comparison.tensors["sums"] >= m * n * outcome.operands.passes.count
    # Half a unit in the last place and the bound's share: no worse than native arithmetic.
    digits = {"fp32-i8": 24, "fp64-i8": 53, "fp128-i8": 106}[dtype]
    assert outcome.error <= 1.25 * 2.0**-digits


def test_check_product_on_words_of_16_bits_equals_wide_multiplier():
    with GoldenAccelerator(AcceleratorParameters(), memory_bytes=MEMORY_BYTES) as accelerator:
        outcome = check_product("fp32-i8", (6, 40, 5), accelerator)
    assert outcome.comparison.mismatches == {}


def test_check_product_finds_one_wrong_sum():
    with Wrong(P, memory_bytes=MEMORY_BYTES) as accelerator:
        outcome = check_product("fp32-i8", (4, 8, 4), accelerator)
    assert {"product", "sums: s m n/ in 3 digits in memory"} <= set(outcome.comparison.mismatches)
    assert outcome.to_dict()["first_mismatch"]["tensor"]


def test_check_product_without_wide_results_is_refused():
    narrow = AcceleratorParameters(word_width=8)
    with (
        GoldenAccelerator(narrow, memory_bytes=MEMORY_BYTES) as accelerator,
        pytest.raises(CompileError, match="results 8: use an accelerator with wide_tensors=1"),
    ):
        check_product("fp32-i8", (2, 2, 2), accelerator)


@pytest.mark.parametrize("form", TYPES.values(), ids=lambda form: form.name)
@pytest.mark.parametrize("terms", [1, 17, 40, 1000])
def test_passes_of_any_terms_hold_numbers_and_sums(form, terms):
    passes = passes_for(form, terms)
    assert passes.terms * passes.parts >= terms > passes.terms * (passes.parts - 1)
    assert passes.terms * max(m // 2 for m in passes.moduli) ** 2 < 2**15
    assert all(math.gcd(p, q) == 1 for p, q in combinations(passes.moduli, 2))
    assert math.prod(passes.moduli) > 2 * terms << 2 * form.bits


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("sign", [1, -1])
def test_passes_of_the_largest_numbers_fit_and_join(dtype, sign):
    """Every element just below its power of two: integers, and their sums, are the largest."""
    form = TYPES[dtype]
    top = torch.nextafter(torch.tensor(1.0, dtype=form.dtype), torch.tensor(0.0, dtype=form.dtype))
    a = torch.zeros(2, 50, form.components, dtype=form.dtype)
    a[..., 0] = top
    if form.components > 1:
        a[..., 1] = 2.0**-54 - 2.0**-108
    b = sign * a.transpose(0, 1)
    operands = ResidueOperands(form, a, b, exponents(a, b), passes_for(form, 50))
    left, right = operands.stacked()
    sums = left.to(torch.int64) @ right.to(torch.int64)
    assert int(sums.abs().max()) < 2**15
    assert torch.equal(operands.joined(sums), operands.wide())


def test_check_command_of_a_product_prints_figures(capsys):
    line = ["check", "--product", "3x5x2", "--backend", "golden", "--seed", "4", "--json"]
    assert main([*line, "--preset", "ecp5-85f-w8"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["product"] == [3, 5, 2] and figures["dtype"] == "fp32-i8"
    assert (figures["multiplier_bits"], figures["mismatches"]) == (8, 0)
    assert figures["passes"] == len(figures["moduli"]) * math.ceil(5 / figures["terms"])
    assert main(["check", "--product", "20x40x12", "--backend", "golden"]) == 0
    text = capsys.readouterr().out
    assert "on 256 multipliers of 8 bits" in text and "largest error 2.4e-08" in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--product", "3x0x2"], "--product: must be MxKxN"),
        (["--product", "3x4"], "--product: must be MxKxN"),
        (["--product", "3x4x2", "--batch", "8"], "--batch is for a training step"),
        (["--product", "3x4x2", "--rounding-mode", "stochastic"], "--rounding-mode is for"),
        (["--product", "3x4x2", "--formats", "factor=fixed(5)"], "--formats is for"),
        (["--dtype", "fp64-i8"], "--dtype is for a matrix product"),
        (["--product", "3x4x2", "--accelerator", "wide_tensors=0"], "with wide_tensors=1"),
        (["--product", "9000x900x9000"], "external memory"),
    ],
)
def test_check_command_refuses_wrong_options_of_a_product(options, message, capsys):
    with pytest.raises(SystemExit) as end:
        raise SystemExit(main(["check", "--backend", "golden", *options]))
    assert end.value.code == 2 or end.value.code == 1
    assert message in capsys.readouterr().err

"""Accelerator parameters: every bound, and what follows from them."""

from dataclasses import fields, replace
from pathlib import Path

import pytest

from trainwright.formats import Fixed, Posit
from trainwright.parameters import (
    PRESETS,
    AcceleratorParameters,
    parse_overrides,
    preset,
    without_gone,
)

P = AcceleratorParameters()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lanes": 32}, "lanes must be 4, 8 or 16, not 32"),
        ({"lanes": 2}, "lanes must be 4, 8 or 16, not 2"),
        ({"pe1_rows": 3}, "pe1_rows must be a power of two from 2 to 16, not 3"),
        ({"pe1_rows": 1}, "pe1_rows must be .* not 1"),
        ({"pe2_rows": 32}, "pe2_rows must be .* to 16, not 32"),
        ({"lanes": 4}, r"pe1_rows must be .*\(4\), not 8"),
        ({"word_width": 12}, "word_width must be 8 or 16, not 12"),
        (
            {"word_width": 8, "factor_width": 9},
            "factor_width must be at most the 8 bits of a word, not 9; .* word_width=16",
        ),
        (
            {"word_width": 8, "formats": "posit(10,0)"},
            r"words of posit\(10,0\) have 10 bits, this accelerator's 8; choose a narrower format",
        ),
        ({"factor_width": 1}, "factor_width must be from 2 to 16, not 1"),
        ({"factor_width": 17}, "factor_width must be from 2 to 16, not 17"),
        ({"accumulator_width": 23}, "accumulator_width must be from 24 to 48, not 23"),
        ({"accumulator_width": 49}, "accumulator_width must be from 24 to 48, not 49"),
        ({"scratchpad_banks": 3}, "scratchpad_banks must be a power of two from 1 to 8192, not 3"),
        ({"scratchpad_banks": 0}, "scratchpad_banks must be a power of two from 1 to 8192, not 0"),
        (
            {"scratchpad_rows": 100},
            "scratchpad_rows must be a power of two from 16 to 131072, not 100",
        ),
        ({"scratchpad_rows": 32}, "at least 16 rows a bank, not 32 in 4 banks"),
        ({"scratchpad_rows": 1 << 21}, "scratchpad_rows must be .* to 131072, not 2097152"),
        ({"program_depth": 100}, "program_depth must be a power of two from 1 to 4096, not 100"),
        ({"program_depth": 1 << 13}, "program_depth must be .* to 4096, not 8192"),
        (
            {"statistics_depth": 48},
            "statistics_depth must be a power of two from 1 to 1024, not 48",
        ),
        ({"statistics_depth": 2048}, "statistics_depth must be .* to 1024, not 2048"),
        ({"nest_levels": 2}, "nest_levels must be from 3 to 10, not 2"),
        ({"nest_levels": 11}, "nest_levels must be from 3 to 10, not 11"),
        ({"loop_depth": 0}, "loop_depth must be from 1 to 8, not 0"),
        ({"loop_depth": 9}, "loop_depth must be from 1 to 8, not 9"),
        ({"address_width": 64}, "address_width must be 32, not 64"),
        ({"burst_beats": 6}, "burst_beats must be a power of two from 1 to 256, not 6"),
        ({"burst_beats": 512}, "burst_beats must be .* to 256, not 512"),
        (
            {"outstanding_bursts": 7},
            "outstanding_bursts must be a power of two from 1 to 64, not 7",
        ),
        ({"outstanding_bursts": 128}, "outstanding_bursts must be .* to 64, not 128"),
        ({"stochastic_rounding": 2}, "stochastic_rounding must be 0 or 1, not 2"),
        ({"formats": "posit(8,1)"}, r"operands of 26 bits, .* 18; choose posit\(8,1\)c"),
        ({"formats": "posit(16,1)"}, r"posit\(16,1\) needs .* 18; choose es = 0 or less"),
        ({"formats": ("posit(9,1)",)}, r"posit\(9,1\) needs .*; choose posit\(9,1\)c"),
        ({"formats": "posit(8,0),posit( 8,0)"}, r"7 different ones, not posit\(8,0\), posit"),
        ({"formats": [f"posit({n},0)" for n in range(3, 11)]}, "at most 7 different ones"),
        ({"formats": "fixed(8)"}, r"fixed point is always there; leave out fixed\(8\)"),
        ({"formats": "posit8"}, "no number format 'posit8'; there are "),
        (
            {"formats": "posit(8,0)", "stochastic_rounding": 1},
            "stochastic_rounding is for fixed point only",
        ),
        ({"vector_engine": 2}, "vector_engine must be 0 or 1, not 2"),
        ({"exponents": 256.0}, "exponents must be an integer, not 256.0"),
        ({"scratchpad_rows": 16384.0}, "scratchpad_rows must be an integer, not 16384.0"),
        ({"engine_lanes": True, "vector_engine": 1}, "engine_lanes must be an integer, not True"),
    ],
    ids=lambda value: (
        "-".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, dict) else ""
    ),
)
def test_out_of_range(changes, message):
    with pytest.raises(ValueError, match=message):
        AcceleratorParameters(**changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"lanes": 4, "pe1_rows": 4, "pe2_rows": 2},
        {"lanes": 8, "pe1_rows": 8, "pe2_rows": 2},
        {"factor_width": 2, "accumulator_width": 24},
        {"factor_width": 16, "accumulator_width": 48},
        {"scratchpad_rows": 64, "scratchpad_banks": 4},
        {"scratchpad_rows": 1 << 17},
        {"program_depth": 4096, "statistics_depth": 256, "nest_levels": 3, "loop_depth": 8},
        {"burst_beats": 256, "outstanding_bursts": 64},
        {"burst_beats": 1, "outstanding_bursts": 1},
    ],
)
def test_bounds_are_inclusive(changes):
    AcceleratorParameters(**changes)


def test_every_parameter_is_in_the_fingerprint():
    other = {
        "lanes": 8, "pe1_rows": 4, "pe2_rows": 4, "factor_width": 5, "accumulator_width": 33,
        "word_width": 8, "scratchpad_banks": 8, "scratchpad_rows": 32768, "program_depth": 256,
        "statistics_depth": 32, "nest_levels": 9, "loop_depth": 3, "burst_beats": 8,
        "outstanding_bursts": 4, "stochastic_rounding": True, "vector_engine": True,
        "sample_loads": True, "exponents": 64, "formats": "posit(8,0)", "memory_rate": 2,
        "address_checks": True,
    }  # fmt: skip
    fixed, narrow = {"address_width"}, {"wide_tensors", "engine_lanes"}
    assert set(other) | fixed | narrow == {field.name for field in fields(AcceleratorParameters)}
    prints = {replace(P, **{name: value}).fingerprint for name, value in other.items()}
    prints.add(replace(P, word_width=8, wide_tensors=True).fingerprint)
    prints.add(replace(P, vector_engine=True, engine_lanes=2).fingerprint)
    assert len(prints | {P.fingerprint}) == len(other) + 3


@pytest.mark.parametrize("lanes", [3, 8, -1])
def test_lanes_of_the_vector_engine(lanes):
    with pytest.raises(ValueError, match=rf"engine_lanes must be .*8.*, not {lanes}$"):
        replace(P, lanes=8, vector_engine=True, engine_lanes=lanes)
    with pytest.raises(ValueError, match="engine_lanes is for the vector engine: omit it"):
        replace(P, engine_lanes=2)


def test_fingerprint_is_stable():
    """Program files carry it: it may change only with the parameters themselves."""
    assert f"{P.fingerprint:08x}" == "91e78bcd"
    assert AcceleratorParameters().fingerprint == P.fingerprint
    assert AcceleratorParameters(stochastic_rounding=False).fingerprint == P.fingerprint
    assert AcceleratorParameters(vector_engine=0).fingerprint == P.fingerprint


def test_formats_by_number():
    p = AcceleratorParameters(**parse_overrides(["formats=posit(8, 0),posit(8,1)c"]))
    assert p.formats == ("posit(8,0)", "posit(8,1)c")
    assert p == AcceleratorParameters(formats=["posit(8,0)", "posit(8,1)c"])  # type: ignore[arg-type]
    assert p.number_formats == (Fixed(16), Posit(8, 0), Posit(8, 1, clamped=True))
    numbers = [p.format_number(fmt) for fmt in (Fixed(8), *p.number_formats)]
    assert numbers == [0, 0, 1, 2]
    with pytest.raises(ValueError, match=r"no posit\(6,1\).*formats=posit\(8,0\),.*,posit\(6,1\)$"):
        p.format_number(Posit(6, 1))
    assert (p.operand_width, P.operand_width, P.number_formats) == (18, 16, (Fixed(16),))
    other = replace(p, formats=p.formats[::-1])
    assert p.fingerprint != other.fingerprint  # numbers go by the order


def test_parameters_flag_of_a_text_is_the_same_flag():
    given = AcceleratorParameters(**parse_overrides(["stochastic_rounding=1"]))
    assert given.stochastic_rounding is True
    assert given.fingerprint == replace(P, stochastic_rounding=True).fingerprint


def test_parameters_derive_dependent_sizes():
    assert P.multipliers == 256
    assert (P.beat_bytes, P.data_width, P.row_bytes) == (16, 128, 32)
    assert (P.bank_rows, P.scratchpad_bits) == (4096, 16384 * 256)
    assert P.vector_width == 48
    assert replace(P, accumulator_width=24).vector_width == 32
    assert replace(P, accumulator_width=48).vector_width == 48
    assert replace(P, accumulator_width=24, formats="posit(8,0)").vector_width == 36


@pytest.mark.parametrize("name", PRESETS)
def test_presets_fit_their_devices(name):
    p, device = preset(name), PRESETS[name]
    assert p.on_chip_bits <= device.memory_bits
    assert p.device_multipliers <= device.multipliers


def test_parameters_default_is_a_preset():
    assert preset("zu3eg") == AcceleratorParameters()
    assert P.on_chip_bits > P.scratchpad_bits


def test_parameters_preset_is_accepted_among_overrides():
    assert parse_overrides(["pe2_rows=4", "preset=lfe5u-85f", "lanes=4"]) == {
        "lanes": 4, "pe1_rows": 8, "pe2_rows": 4,
    }  # fmt: skip
    assert AcceleratorParameters(**parse_overrides(["preset=zu3eg"])) == P
    for text in ("preset=zx81", "preset="):
        with pytest.raises(ValueError, match=r"no preset '.*'; there are zu3eg, lfe5u-85f"):
            parse_overrides([text])


def test_sizes_of_factor_stores_are_passed_over():
    """Checkpoints, models and reports name them."""
    items = ["pe1_store_depth=4096", "lanes=8", "pe2_store_depth=64"]
    assert parse_overrides(items) == {"lanes": 8}
    assert without_gone({"pe2_store_depth": 64, "lanes": 8}) == {"lanes": 8}
    with pytest.raises(ValueError, match="no parameter 'pe3_store_depth'"):
        parse_overrides(["pe3_store_depth=64"])


def test_keyword_only_and_frozen():
    with pytest.raises(TypeError):
        AcceleratorParameters(16)  # type: ignore[misc]
    with pytest.raises(AttributeError):
        P.lanes = 8  # type: ignore[misc]


def test_parameters_document_has_the_default_accumulator():
    page = Path(__file__).parents[2] / "docs" / "reference" / "formats.md"
    text = " ".join(page.read_text().split())
    width = P.accumulator_width
    assert f"`accumulator_width` is 24 to 48 bits, {width} by default" in text
    samples = ((1 << (width - 1)) - 1) >> (8 + 16 - 2)
    assert f"At {width} bits an outer product of 8-bit" in text
    assert f"gradients takes up to {samples:,} samples" in text

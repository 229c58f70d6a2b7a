"""Automatic scales: ranges, moves by one, jumps, floors."""

import random
from dataclasses import replace
from pathlib import Path

import pytest

from trainwright.fixed.scale import (
    PRESETS,
    UNCOUNTED,
    ScaleRange,
    ScaleRanges,
    Scales,
    TensorClass,
    TensorStatistics,
    ranges_of,
    sum_limits,
)
from trainwright.formats import Fixed, Posit
from trainwright.network import load_network
from trainwright.train.settings import TrainSettings
from trainwright.train.state import initial_state

KINDS = list(TensorClass)


def statistics(
    fraction: float,
    *,
    kind: TensorClass = TensorClass.ACTIVATION,
    width: int = 8,
    exponent: int = -3,
    floor: int = -20,
    count: int = 1000,
    saturations: int = 0,
) -> TensorStatistics:
    """Return statistics of a tensor whose mean magnitude is this fraction of full scale."""
    total = round(fraction * count * 2 ** (width - 1))
    return TensorStatistics(kind, Fixed(width), exponent, floor, count, total, saturations)


def moved(scales: Scales, method: str, s: TensorStatistics) -> tuple[int, int]:
    """Return how many exponents move, and by how much."""
    count = getattr(scales, method)({"t": s})
    return count, scales.exponents["t"] - s.exponent


def test_mean_is_a_fraction_of_full_scale():
    s = TensorStatistics(TensorClass.GRADIENT, Fixed(16), 0, 0, 4, 32768, 0)
    assert s.mean_fraction == 0.25


@pytest.mark.parametrize("preset", ["paper", "default"])
@pytest.mark.parametrize("kind", KINDS)
def test_update_moves_by_one_outside_the_range(preset, kind):
    ranges = PRESETS[preset]
    allowed = ranges.of(kind, Fixed(8))
    for fraction, step in (
        (0.99 * allowed.low, -1),
        (allowed.low / 50, -1),
        (1.01 * allowed.low, 0),
        (0.99 * allowed.high, 0),
        (1.01 * allowed.high, 1),
        (0.95, 1),
    ):
        s = statistics(fraction, kind=kind, width=16)
        assert moved(Scales(ranges), "update", s) == (abs(step), step)


def test_update_stops_at_the_floor():
    s = statistics(0.01, exponent=-20, floor=-20)
    assert moved(Scales(), "update", s) == (0, 0)
    assert moved(Scales(), "update", statistics(0.01, exponent=-19, floor=-20)) == (1, -1)


@pytest.mark.parametrize(("method", "step"), [("update", -1), ("jump", -8)])
def test_scales_of_zeros_move_down_to_the_floor(method, step):
    assert moved(Scales(), method, statistics(0.0)) == (1, step)
    s = statistics(0.0, exponent=-19, floor=-20)
    assert moved(Scales(), method, s) == (1, -1)
    s = statistics(0.0, exponent=-20, floor=-20)
    assert moved(Scales(), method, s) == (0, 0)


def test_exponents_start_from_the_ones_that_were_used():
    """Forget wishes that a floor or an alignment overruled."""
    scales = Scales(PRESETS["paper"], {"t": -50, "other": 7})
    scales.update({"t": statistics(0.2, exponent=-20)})
    assert scales.exponents == {"t": -20, "other": 7}


@pytest.mark.parametrize("preset", ["paper", "default"])
def test_jump_lands_in_the_range(preset):
    ranges = PRESETS[preset]
    rng = random.Random(1)
    for kind in KINDS:
        for _ in range(200):
            fraction = 2.0 ** rng.uniform(-11, -0.01)
            s = statistics(fraction, kind=kind, width=16)
            count, step = moved(Scales(ranges), "jump", s)
            allowed = ranges.of(kind, Fixed(8))
            landed = s.mean_fraction * 2.0**-step
            assert allowed.low <= landed <= allowed.high
            assert count == (step != 0)


def test_jump_stops_at_the_floor():
    assert moved(Scales(), "jump", statistics(0.001, exponent=-19, floor=-20)) == (1, -1)
    assert moved(Scales(), "jump", statistics(0.001, exponent=-20, floor=-20)) == (0, 0)


def test_jump_is_bold_where_much_saturates():
    """The mean of a tensor that saturates is larger than counted."""
    paper = PRESETS["paper"]
    assert moved(Scales(paper), "jump", statistics(0.9, saturations=251)) == (1, 4)
    assert moved(Scales(paper), "jump", statistics(0.9, saturations=250)) == (1, 2)


def test_scale_presets_match_documented_ranges():
    assert set(PRESETS) == {"default", "paper"}
    paper = PRESETS["paper"]
    assert all(paper.of(kind, Fixed(8)) == ScaleRange(0.1, 0.3) for kind in KINDS)
    assert PRESETS["default"] == ScaleRanges()
    assert ScaleRanges().gradient.high < 0.1  # headroom for the heavy tails of gradients


@pytest.mark.parametrize("kind", KINDS)
def test_scale_documented_ranges_are_true(kind):
    ranges = [PRESETS[preset].of(kind, Fixed(8)) for preset in ("default", "paper")]
    cells = " | ".join(f"{allowed.low} to {allowed.high}" for allowed in ranges)
    document = Path(__file__).parents[2] / "docs" / "reference" / "formats.md"
    row = next(v for v in document.read_text().splitlines() if v.startswith(f"| {kind.value} |"))
    assert row.endswith(f"| {cells} |")


@pytest.mark.parametrize(
    ("low", "high", "message"),
    [
        (0.0, 0.3, r"0 < low < high < 1, not \[0.0, 0.3\]"),
        (0.4, 0.3, r"0 < low < high < 1"),
        (0.3, 0.3, r"0 < low < high < 1"),
        (0.4, 1.0, r"0 < low < high < 1"),
        (0.2, 0.3, r"\[0.2, 0.3\] is narrower than a factor of 2"),
    ],
)
def test_ranges_that_are_refused(low, high, message):
    with pytest.raises(ValueError, match=message):
        ScaleRange(low, high)


@pytest.mark.parametrize(("low", "high"), [(0.125, 0.5), (0.02, 0.06)])
def test_both_ends_belong_to_the_range(low, high):
    ranges = ScaleRanges(*[ScaleRange(low, high)] * 3)
    limits = sum_limits(ranges.activation, 1000, 8)
    for total, step in (
        (limits.low - 1, -1),
        (limits.low, 0),
        (limits.high, 0),
        (limits.high + 1, 1),
    ):
        s = TensorStatistics(TensorClass.ACTIVATION, Fixed(8), -3, -20, 1000, total, 0)
        assert moved(Scales(ranges), "update", s)[1] == step


def test_scale_jump_stays_at_upper_end():
    ranges = ScaleRanges(*[ScaleRange(0.125, 0.5)] * 3)
    for total, step in ((64_000, 0), (64_001, 4)):
        s = TensorStatistics(TensorClass.ACTIVATION, Fixed(8), -3, -20, 1000, total, 999)
        assert moved(Scales(ranges), "jump", s)[1] == step


class Eighth(Posit):
    """A posit whose means may be an eighth to a half of full scale."""

    @property
    def mean_range(self):
        return 0.125, 0.5


@pytest.mark.parametrize(
    ("words", "step"),
    [(127, 4), (96, 4), (95, 2), (80, 2), (79, 1), (65, 1)],
)
def test_jump_of_posits_above(words, step):
    """The range is 16 to 64 of 128: beyond it by a quarter and by a half of what is left."""
    s = TensorStatistics(TensorClass.ACTIVATION, Eighth(8, 0), -3, -20, 10, 10 * words, 0)
    assert moved(Scales(), "jump", s) == (int(step != 0), step)


@pytest.mark.parametrize(
    ("words", "step"), [(64, 0), (16, 0), (15, -1), (9, -1), (8, -2), (1, -2), (0, -8)]
)
def test_jump_of_posits_within_and_below(words, step):
    s = TensorStatistics(TensorClass.ACTIVATION, Eighth(8, 0), -3, -20, 10, 10 * words, 0)
    assert moved(Scales(), "jump", s) == (int(step != 0), step)


@pytest.mark.parametrize(
    ("words", "saturations", "step"),
    [
        (32, 15, 0),
        (32, 16, 1),  # more than 1/64 of 1,000
        (0.5, 16, 1),
        (12, 1, -1),
        (12, 2, 0),  # more than an eighth of that
        (70, 0, 1),
    ],
)
def test_posits_that_saturate(words, saturations, step):
    """With posit factors, the mean of 128 may lie from 12.8 to 51.2."""
    s = TensorStatistics(
        TensorClass.GRADIENT, Posit(8, 0), -3, -20, 1000, int(1000 * words), saturations
    )
    ranges = ranges_of("default", coded_factors=True)
    assert moved(Scales(ranges), "update", s)[1] == step
    by_mean = ranges_of("default", coded_factors=False)
    assert by_mean == PRESETS["default"]
    means = 1 if words > 51.2 else -1 if words < 12.8 else 0
    assert moved(Scales(by_mean), "update", s)[1] == means
    fixed = replace(s, format=Fixed(16))
    assert moved(Scales(ranges), "update", fixed) == moved(Scales(by_mean), "update", fixed)


@pytest.mark.parametrize(("saturations", "step"), [(10, 0), (11, 1)])
def test_scale_one_value_in_64_may_saturate(saturations, step):
    s = TensorStatistics(TensorClass.GRADIENT, Posit(8, 0), -3, -20, 640, 640 * 32, saturations)
    ranges = ranges_of("default", coded_factors=True)
    assert moved(Scales(ranges), "update", s)[1] == step


@pytest.mark.parametrize(
    ("formats", "saturated"),
    [
        ("gradient=posit(8,1)c", None),
        ("factor=posit(4,0)", 1 / 64),
        ("l1.G2=posit(4,0)", 1 / 64),
        ("factor=fixed(6)", None),
    ],
)
def test_which_networks_look_at_saturations(formats, saturated):
    network = load_network("digits").with_formats(formats)
    state = initial_state(network, TrainSettings())
    assert state.scales.ranges.coded_saturated == saturated


def test_range_of_wide_uncounted_gradient_alone_has_headroom_for_tails():
    ranges = replace(ScaleRanges(), uncounted=UNCOUNTED)

    def range_of(fmt, *, uncounted=True, ranges=ranges):
        counts = {"exponent": -9, "floor": -20, "count": 64, "total": 640, "saturations": 0}
        return ranges.of_tensor(
            TensorStatistics(TensorClass.GRADIENT, fmt, **counts, uncounted=uncounted)
        )

    assert range_of(Fixed(16)) == range_of(Fixed(15)) == UNCOUNTED
    usual = ranges.gradient
    assert range_of(Fixed(14)) == range_of(Fixed(16), uncounted=False) == usual
    assert range_of(Fixed(16), ranges=ScaleRanges()) == usual
    assert range_of(Posit(16, 1)) == ranges.of(TensorClass.GRADIENT, Posit(16, 1)) != UNCOUNTED


def _gradient(mean, saturations=0, *, uncounted=False):
    """Return counts of 10,000 words whose mean is a part of full scale."""
    total = round(mean * (1 << 15) * 10_000)
    return TensorStatistics(
        TensorClass.GRADIENT, Fixed(16), -9, -20, 10_000, total, saturations, uncounted=uncounted
    )


def test_uncounted_tensor_that_grew_is_astray_by_its_mean_alone():
    usual = ScaleRanges(saturated_energy=0.5)
    scales = Scales(replace(usual, uncounted=UNCOUNTED))
    assert scales.is_astray(_gradient(0.0081, uncounted=True))
    assert not scales.is_astray(_gradient(0.0079, uncounted=True))
    assert not scales.is_astray(_gradient(0.0081))
    assert not Scales(usual).is_astray(_gradient(0.0081, uncounted=True))


def _narrow(mean, saturations):
    """Return counts of 10,000 words of 8 bits whose mean is a part of full scale."""
    total = round(mean * (1 << 7) * 10_000)
    return replace(_gradient(0, saturations), format=Fixed(8), total=total)


def test_tensor_that_grew_is_astray_with_a_40th_of_its_energy_saturated():
    scales = Scales(ScaleRanges(saturated_energy=0.5))
    assert 1 / 64 < _narrow(0.05, 1).saturated_energy < 1 / 38
    assert scales.is_astray(_narrow(0.05, 1)) and not scales.is_astray(_narrow(0.05, 0))
    assert not scales.is_astray(_narrow(0.029, 1)) and not Scales().is_astray(_narrow(0.05, 1))


def test_tensor_of_fine_words_raises_its_exponent_where_any_energy_saturates():
    usual = ScaleRanges(saturated_energy=0.5)

    def moved(s, ranges=usual):
        scales = Scales(ranges)
        scales.update({"y": s})
        return scales.exponents["y"] - s.exponent, scales.is_astray(s)

    # In range; 1 and 10 of 10,000 values have 1 / 13 and 9 / 20 of the squares.
    assert moved(_gradient(0.028)) == (0, False)
    assert moved(_gradient(0.028, 1)) == moved(_gradient(0.028, 10)) == (1, True)
    assert moved(_gradient(0.028, 10), ScaleRanges()) == (0, False)
    # Words of 8 bits have none to spare, and means of up to 64 words of 16 bits neither.
    assert moved(_narrow(0.028, 1)) == (0, False)
    few = replace(_gradient(0.028, 1), count=1 << 20, total=64 << 20, exponent=-20)
    assert 1 / 64 < few.saturated_energy < 0.5 and moved(few) == (0, False)
    assert moved(replace(few, total=few.total + 1)) == (1, True)
    one_in_many = replace(_gradient(0.028, 1), count=1 << 18, total=round(0.028 * 2**33))
    assert 1 / 1024 < one_in_many.saturated_energy < 1 / 64 and moved(one_in_many) == (1, False)

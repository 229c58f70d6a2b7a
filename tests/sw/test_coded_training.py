"""Training on the chip in coded formats: the host by the definitions, records, accuracy."""

import json
import warnings
from dataclasses import replace

import numpy as np
import pytest
from format_kinds import KINDS, SAMPLES
from slowly import mostly_slow
from test_chip_functions import (
    ALONE,
    SETTINGS,
    SLOTS,
    attention,
    convolutions,
    lines_of_text,
    network_with,
)
from test_chip_lanes import THREE
from test_chip_lanes import alone as few_lanes
from test_chip_step import Other, only
from test_onchip_training import same

from trainwright.accelerator.counted import counted
from trainwright.check.training import check_training, random_state, weakened
from trainwright.cli import main
from trainwright.compiler.step.rows import plan_of_loop
from trainwright.data import load_data_set
from trainwright.driver import Driver
from trainwright.fixed.health import LostTensorWarning
from trainwright.fixed.scale import ScaleRanges, Scales, TensorClass, TensorStatistics
from trainwright.formats import parse_format
from trainwright.formats.factors import FactorCode
from trainwright.golden.backend import GoldenAccelerator
from trainwright.network import load_network
from trainwright.onchip.layout import WIDEST
from trainwright.onchip.samples import expanded
from trainwright.train.batches import ImageQuantiser, stored_images
from trainwright.train.connect import held_range
from trainwright.train.host_engine import HostEngine
from trainwright.train.resident import ResidentEngine
from trainwright.train.state import initial_state
from trainwright.train.trainer import Trainer

pytestmark = pytest.mark.usefixtures("first_programs")

POSITS, FLOATS = [kind.training for kind in KINDS.values()][:2]
WIDE = "factor=posit(8,1)c,activation=posit(8,0),intermediate=posit(8,1)c,gradient=float(4,3)"


def trained(network, engine, data, batch):
    """Train one epoch of a few samples and return the trainer."""
    chip = replace(SETTINGS.chip, pixels=8)
    state = initial_state(network, replace(SETTINGS, batch=batch, steps=4, chip=chip))
    whole = data or load_data_set("digits")
    few = replace(whole, train=whole.train.first(4 * batch + 3), test=whole.test.first(20))
    trainer = Trainer(state, few, engine)
    with warnings.catch_warnings(category=LostTensorWarning, action="ignore"):
        trainer.run()
    return trainer


def alone_and_by_host(network, formats, data=None, batch=16, **sizes):
    """Train alone and by the definitions; return both trainers."""
    network = network.with_formats(formats)
    names = tuple(dict.fromkeys(str(fmt) for _, fmt in network.coded_used))
    p = replace(ALONE, formats=names, factor_width=8, **sizes)
    golden = GoldenAccelerator(p, memory_bytes=1 << 21)
    plan = plan_of_loop(network, p)
    host = HostEngine(lambda network: Driver(golden, network, batch, plan=plan))
    expected = trained(network, host, data, batch)
    with counted(GoldenAccelerator(p, memory_bytes=1 << 21)) as accelerator:
        return trained(network, ResidentEngine(accelerator), data, batch), expected


@pytest.mark.parametrize("formats", (POSITS, FLOATS, WIDE, "gradient=float(4,3)"))
def test_training_alone_in_coded_formats_equals_the_host_and_writes_nothing(formats):
    alone, expected = alone_and_by_host(network_with("gelu"), formats)
    assert same(alone.state, expected.state) and alone.host_writes == 0
    assert alone.state.scales.exponents != {}


@pytest.mark.parametrize("network", (convolutions(), load_network("digits")))
def test_training_of_images_alone_in_coded_formats_equals_the_host(network):
    alone, expected = alone_and_by_host(network, FLOATS)
    assert same(alone.state, expected.state) and alone.host_writes == 0


@pytest.mark.slow
def test_training_of_tokens_alone_in_coded_formats_equals_the_host(tmp_path):
    data = lines_of_text(tmp_path)
    alone, expected = alone_and_by_host(attention(), POSITS, data, 4, **SLOTS)
    assert same(alone.state, expected.state) and alone.host_writes == 0


CODES = [FactorCode(fmt, "zero", WIDEST) for fmt in SAMPLES if fmt.fits(18)]


@pytest.mark.parametrize("code", CODES, ids=lambda code: str(code.format))
def test_words_of_factors_are_the_nearest_to_every_factor(code):
    factors = np.arange(-(1 << WIDEST - 1), 1 << WIDEST - 1)
    values = factors * 2.0**code.raised
    wanted = code.format.nearest(values, underflow="zero")
    np.testing.assert_array_equal(code.words(factors), wanted)
    # The range of factors ends at the greatest master weight, or less than twice as far.
    greatest = held_range(0, code.format)[1]
    assert greatest <= -values[0] < 2 * greatest
    assert (code.times == 1) != (code.shift == 0) or code.raised == 0


def test_exponents_on_the_chip_follow_means_and_no_saturated_values():
    fmt = parse_format("float(4,3)")
    kind = TensorClass.GRADIENT
    s = TensorStatistics(kind, fmt, exponent=3, floor=0, count=100, total=3000, saturations=20)
    moved = []
    for ranges in (ScaleRanges(), ScaleRanges(by_means=True)):
        scales = Scales(ranges)
        scales.update({"t": s, "large": replace(s, total=4000), "small": replace(s, total=1000)})
        moved.append([scales.exponents[name] - s.exponent for name in ("t", "large", "small")])
    assert moved == [[1, 1, 1], [0, 1, -1]]
    low, high = ranges.of(kind, fmt).low, ranges.of(kind, fmt).high
    assert (low, high) == (1 / 8, 1 / 4) and ScaleRanges().of(kind, fmt).high > 1 / 4


def test_stored_pixels_expand_to_the_words_that_the_host_writes():
    network = load_network("digits").with_formats(FLOATS)
    images = np.arange(17, dtype=np.uint8).reshape(1, 1, 17)
    fmt = network.format("activation")
    words = ImageQuantiser(network, 16, fmt.input_exponent).table()[images]
    stored = stored_images(network, images, 16, fmt.input_exponent, 8)
    np.testing.assert_array_equal(expanded(stored, 8, fmt.width), words)
    assert len(np.unique(words)) > 8
    with pytest.raises(
        ValueError, match=r"inputs in float\(2,3\) take 5 bits .* have 4: use --pix"
    ):
        stored_images(network, images, 16, fmt.input_exponent, 4)


@pytest.mark.parametrize("formats", (POSITS, FLOATS))
def test_digits_trained_on_the_chip_in_coded_formats_are_recognised(tmp_path, formats):
    arguments = ["--network", "digits", "--update", "chip", "--formats", formats, "--no-prior"]
    with warnings.catch_warnings(category=LostTensorWarning, action="ignore"):
        assert main(["train", *arguments, "--epochs", "3", "--out", str(tmp_path)]) == 0
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["test_accuracy"] > 0.8


@mostly_slow("formats", (FLOATS, WIDE), quick=[WIDE])
def test_command_line_checks_a_step_on_the_chip_with_cuts_in_coded_formats(formats, capsys):
    arguments = ["check", "--network", "digits", "--update", "chip", "--backend", "golden"]
    assert main([*arguments, "--formats", formats, "--steps", "2", "--json"]) == 0
    out = capsys.readouterr().out
    assert '"mismatches": 0' in out and '"columns_cut": 0' not in out


@mostly_slow(
    "formats, lanes",
    [(POSITS, 16), (WIDE, 16), (WIDE.replace("posit(8,1)c", "float(4,3)"), 8)],
    quick=[(WIDE, 16), (WIDE.replace("posit(8,1)c", "float(4,3)"), 8)],
)
def test_columns_left_with_gaps_are_gathered_as_they_are_encoded(formats, lanes):
    """On 8 lanes a line of ten columns goes from two rows to one; 256 times a float is no byte."""
    network = THREE.with_formats(formats)
    names = tuple(dict.fromkeys(str(fmt) for _, fmt in network.coded_used))
    p = replace(few_lanes(lanes, engine_lanes=2), formats=names, factor_width=8)
    state = weakened(random_state(network, 4))
    only(state, ((1, 4), (0, 2, 9), (5,)))
    outcome = check_training(network, 8, Other(p, memory_bytes=1 << 21), state=state, steps=2)
    assert outcome.comparison.values and outcome.comparison.mismatches == {}


def test_job_of_coded_formats_names_them_in_its_command(tmp_path, capsys):
    arguments = ["--no-prior", "--epochs", "1", "--test-samples", "20", "--formats", FLOATS]
    assert main(["export-job", "digits", *arguments, "--out", str(tmp_path)]) == 0
    capsys.readouterr()
    texts = [path.read_text() for path in tmp_path.glob("*.json")]
    assert any("--accelerator formats='float(2,1),float(2,3),float(4,3)'" in t for t in texts)

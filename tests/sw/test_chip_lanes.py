"""Training alone on accelerators of fewer lanes: a row of the state is several rows of theirs."""

import json
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from slowly import mostly_slow
from test_chip_step import Other, only
from test_dropout import tables
from test_many_classes import of_images, of_tokens

from trainwright.check.training import check_training, random_state, weakened
from trainwright.cli import main
from trainwright.network import Layer, load_network, network_from_dict
from trainwright.onchip.layout import make_layout
from trainwright.onchip.samples import sample_bytes, target_beats
from trainwright.onchip.schedule import COLUMNS, RATES, Entry, RateTable, row_of, schedule_words
from trainwright.parameters import AcceleratorParameters

pytestmark = pytest.mark.usefixtures("programs_once", "first_programs")
DIGITS = load_network("digits")
THREE = replace(
    DIGITS,
    layers=(
        Layer((2, 2, 4), (4, 4, 4), (5, 10)),
        Layer((4, 4), (4, 4), (6,), relu=False),
    ),
)
"""Network with a factor between two bonds, whose columns take more than one row of 4 or 8 lanes."""


def alone(lanes, **sizes):
    """Return parameters that train alone with fewer lanes than a row of the state has words."""
    return AcceleratorParameters(
        vector_engine=1, exponents=128, statistics_depth=128, sample_loads=1, lanes=lanes,
        pe1_rows=4, pe2_rows=2, **sizes,
    )  # fmt: skip


CASES = {
    "three factors": (THREE, 5),
    "whole rows of samples": (DIGITS, 16),
    "masks of dropout": (network_from_dict(tables()), 5),
    "sequences of 130 classes": (of_tokens(130, [13, 10], words=False), 3),
    "words of 20 classes": (of_tokens(20, [5, 4], words=True), 2),
    "images of 4 classes": (of_images(4, (2, 2)), 9),
}


@mostly_slow(
    "name, lanes",
    product(CASES, (8, 4)),
    lambda name, lanes: lanes == 4 and name != "whole rows of samples",
)
def test_chip_step_of_few_lanes_has_the_bits_of_the_definitions(name, lanes):
    network, batch = CASES[name]
    other = Other(alone(lanes), memory_bytes=1 << 21)
    outcome = check_training(network, batch, other, seed=2, steps=3)
    assert outcome.comparison.mismatches == {} and outcome.host_writes == 0
    assert outcome.columns_cut > 0


def test_training_by_8_lanes_ends_with_the_bits_of_16_lanes(capsys, tmp_path):
    """The random bits of a weight follow from its place in the state, not from the lanes."""
    train = ["train", "--network", "digits", "--update", "chip", "--batch", "16", "--steps", "4"]
    train += ["--test-samples", "16", "--force", "--json", "--out", str(tmp_path)]
    results = []
    for lanes in (16, 8):
        assert main([*train, "--accelerator", f"lanes={lanes}"]) == 0
        results.append(json.loads(capsys.readouterr().out))
    assert results[0]["digest"] == results[1]["digest"]
    assert {result["update_place"] for result in results} == {"alone"}


@mostly_slow(
    "kept",
    [((1, 4), (0, 2, 9), (5,)), (range(5), (8, 9), range(6))],
    quick=[((1, 4), (0, 2, 9), (5,))],
)
def test_chip_step_of_columns_left_with_gaps_moves_them_over_rows_of_8_lanes(kept):
    state = weakened(random_state(THREE, 4))
    only(state, kept)
    outcome = check_training(THREE, 8, Other(alone(8, engine_lanes=2)), state=state, steps=2)
    assert outcome.comparison.mismatches == {}


@pytest.mark.parametrize("lanes", [8, 4])
def test_layout_split_into_rows_of_fewer_lanes_keeps_the_places_of_all_words(lanes):
    layout = make_layout(THREE, [[0] * 3, [0] * 2], [0, 0])
    split = layout.split(lanes)
    assert split.rows * lanes == layout.rows * 16
    for part, own in zip(layout.parts, split.parts, strict=True):
        assert (own.places == part.places).all() and own.row * lanes == part.row * 16
    assert (split.column_of == layout.column_of).all()


@pytest.mark.parametrize("lanes", [16, 8, 4])
def test_schedule_in_rows_of_any_lanes_has_an_entry_a_word(lanes):
    table = RateTable(tuple(Entry(n % 16, n // 4) for n in range(40)), 3)
    words = schedule_words(table, 7, lanes=lanes)
    assert words.shape == (row_of(COLUMNS, lanes), lanes) and words.size == 3 * lanes + 5 * 64
    rates = words[row_of(RATES, lanes) :].ravel()[:64]
    assert rates.tolist() == [n % 16 for n in range(40)] + [0] * 24


def test_records_of_8_lanes_are_whole_beats_of_8_bytes():
    assert sample_bytes(65, 8, 8) == 80 and sample_bytes(65, 4, 8) == 48
    assert target_beats(np.array([2]), 5, numbered=False, beat=8).view(np.int8).tolist() == [
        [0, 0, 1, 0, 0, -1, -1, -1]
    ]
    assert target_beats(np.array([9]), 10, numbered=True, beat=4).tolist() == [[9] * 4]

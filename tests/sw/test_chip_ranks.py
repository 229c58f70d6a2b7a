"""Loss and update on the chip of networks with ranks over the lanes of a row, and of rank 1."""

from dataclasses import replace

import pytest
from chip_models import RANKED
from test_chip_step import Other, only
from test_onchip_training import SETTINGS, driver, same

from trainwright.accelerator.counted import counted
from trainwright.check.training import check_training, random_state, weakened
from trainwright.data import load_data_set
from trainwright.golden.backend import GoldenAccelerator
from trainwright.parameters import AcceleratorParameters
from trainwright.train.host_engine import HostEngine
from trainwright.train.resident import ResidentEngine
from trainwright.train.settings import ChipSettings, PriorSettings
from trainwright.train.state import initial_state
from trainwright.train.trainer import Trainer

pytestmark = pytest.mark.usefixtures("programs_once", "first_programs")
P = AcceleratorParameters(vector_engine=1, exponents=64, sample_loads=1)
PRIOR = PriorSettings(weight=20.0, warmup=0.0, threshold=0.5, interval=8)


def ranks_after_both_runs(network, settings):
    """Train by the definitions and by one start an epoch, compare both, and return ranks left."""
    data = load_data_set("digits")
    ours, theirs = initial_state(network, settings), initial_state(network, settings)
    Trainer(ours, data, HostEngine(driver)).run()
    accelerator = counted(GoldenAccelerator(P, memory_bytes=1 << 21))
    Trainer(theirs, data, ResidentEngine(accelerator)).run()
    assert same(ours, theirs) and ours.history.evaluations == theirs.history.evaluations
    return [rank for layer in theirs.model.network.ranks for rank in layer]


@pytest.mark.parametrize("cut_programs", ["kept", pytest.param("fitted", marks=pytest.mark.slow)])
def test_resident_run_of_ranks_over_the_lanes_has_the_bits_of_the_definitions(cut_programs):
    """Over the end of an epoch, with looks that cut columns of every bond."""
    chosen = replace(SETTINGS, prior=PRIOR, chip=ChipSettings(cut_programs=cut_programs))
    left = ranks_after_both_runs(RANKED, chosen)
    assert all(now < before for now, before in zip(left, (4, 20, 17), strict=True))


@pytest.mark.parametrize("rank", [7, pytest.param(20, marks=pytest.mark.slow)])
def test_resident_run_of_bonds_of_rank_1_has_the_bits_of_the_definitions(rank):
    """Columns of a bond of one row, or of two, are cut behind a bond of one column."""
    network = RANKED.with_ranks(((1, rank), (1,)))
    first, second, third = ranks_after_both_runs(network, replace(SETTINGS, prior=PRIOR))
    assert first == third == 1 and second < rank


@pytest.mark.parametrize(
    "kept",
    [
        pytest.param((range(4), range(20), range(17)), marks=pytest.mark.slow),
        ((0, 2, 3), (1, *range(3, 19)), range(16)),  # 17 and 16 columns left
        (range(4), (0, 3, 17, 18), (15, 16)),
    ],
)
def test_columns_left_of_ranks_over_the_lanes_move_to_rows_of_programs(kept):
    """Steps by programs of the columns left are those of the definitions."""
    state = weakened(random_state(RANKED, 4))
    only(state, kept)
    outcome = check_training(RANKED, 16, Other(memory_bytes=1 << 21), state=state, steps=2)
    assert outcome.comparison.mismatches == {}

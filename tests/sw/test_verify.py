"""Verification while training finds nothing where there is nothing, and a single wrong bit."""

import numpy as np
import pytest

from trainwright.check.verify import make_verifier
from trainwright.data import load_data_set
from trainwright.driver import Driver
from trainwright.golden.backend import GoldenAccelerator
from trainwright.network import load_network
from trainwright.parameters import AcceleratorParameters
from trainwright.train.host_engine import HostEngine
from trainwright.train.settings import PriorSettings, TrainSettings
from trainwright.train.state import initial_state
from trainwright.train.trainer import Trainer

SETTINGS = TrainSettings(
    batch=8, steps=5, prior=PriorSettings(weight=8.0, warmup=0.0, threshold=0.4, interval=2)
)


class Faulty(GoldenAccelerator):
    """The golden model, with one bit of one value wrong where ``place`` says."""

    place = ""

    def read(self, address, size):
        data = super().read(address, size)
        if self.place == "memory" and size > 64:
            data[33] ^= 1
        return data

    def run(self, program, address, *, trace=False):
        result = super().run(program, address, trace=trace)
        if self.place == "trace" and trace:
            rows = result.traces["pe2"].rows
            rows[len(rows) // 2, 3] ^= 1
        elif self.place == "statistics":
            result.sums[np.flatnonzero(result.sums)[0]] += 1
        return result


def verification(place):
    data = load_data_set("digits")
    with Faulty(AcceleratorParameters(), memory_bytes=1 << 22) as accelerator:
        accelerator.place = place
        state = initial_state(load_network("digits"), SETTINGS)
        trainer = Trainer(
            state,
            data,
            HostEngine(lambda n: Driver(accelerator, n, 8), make_verifier(accelerator, batch=8), 2),
        )
        trainer.run()
        return state


def test_sound_steps_compare_equal_before_and_after_a_cut():
    state = verification("")
    assert state.model.network.ranks != state.network.ranks
    totals = state.verification
    assert totals.steps == 3 and totals.mismatches == 0
    assert totals.tensors > 3 * 50 and totals.values > 3 * 50_000


@pytest.mark.parametrize("place", ["memory", "trace", "statistics"])
def test_verification_of_one_wrong_bit_names_its_first_place(place):
    checked = verification(place).verification
    assert checked.mismatches >= 3
    first = checked.first
    assert first is not None and first["step"] == 1
    if place == "statistics":
        assert first["what"] == "sums" and first["found"] == first["wanted"] + 1
    elif place == "trace":
        assert first["lane"] == 3 and first["found"] ^ first["wanted"] == 1
        assert first["program"] == "forward" and first["descriptor"] > 0
        assert first["operation"] in ("PE3", "BIAS", "MASK")
    else:
        assert first["tensor"].endswith("in memory") and first["lane"] is not None
        assert first["found"] != first["wanted"]


def test_verifying_changes_no_bit():
    data = load_data_set("digits")
    with GoldenAccelerator(AcceleratorParameters(), memory_bytes=1 << 22) as golden:
        state = initial_state(load_network("digits"), SETTINGS)
        Trainer(state, data, HostEngine(lambda n: Driver(golden, n, 8))).run()
    assert state.model.digest() == verification("").model.digest()

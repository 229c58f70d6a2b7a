"""Trainings in every number format end with the same bits on RTL and golden model.

Formats are those of ``trainwright reproduce formats``.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace

import pytest

from trainwright.accelerator import Accelerator
from trainwright.cli.reproduce.formats import FORMATS, NARROW_WORDS, SCALES
from trainwright.data import load_data_set
from trainwright.driver import Driver
from trainwright.golden.backend import GoldenAccelerator
from trainwright.network import load_network
from trainwright.parameters import AcceleratorParameters
from trainwright.train.host_engine import HostEngine
from trainwright.train.settings import TrainSettings
from trainwright.train.state import TrainingState, initial_state
from trainwright.train.trainer import Trainer
from trainwright_sim.backend import RtlAccelerator

STEPS = {"digits": 12, "fashion": 3}
DATA_SETS = {"digits": "digits", "fashion": "fashion-mnist"}
MEMORY_BYTES = 1 << 24
POSITS = AcceleratorParameters(
    formats="posit(8,0),posit(8,1)c,posit(6,1),posit(4,0)", accumulator_width=44
)
NARROW = replace(POSITS, word_width=8)


@pytest.fixture(scope="module")
def simulated() -> Iterator[dict[int, RtlAccelerator]]:
    """Simulate an accelerator for each width of words."""
    with ExitStack() as stack:
        yield {
            p.word_width: stack.enter_context(
                RtlAccelerator(p, memory_bytes=MEMORY_BYTES, trace=False)
            )
            for p in (POSITS, NARROW)
        }


def trained(accelerator: Accelerator, name: str, formats: str, scales: str, data) -> TrainingState:
    """Return the state after a few steps of seed 0."""
    settings = TrainSettings(steps=STEPS[name], scales=scales, prior=None)
    state = initial_state(load_network(name).with_formats(formats), settings)
    trainer = Trainer(
        state, data, HostEngine(lambda network: Driver(accelerator, network, settings.batch))
    )
    while state.step < STEPS[name]:
        trainer.step()
    return state


@pytest.mark.slow
@pytest.mark.parametrize("scales", SCALES)
@pytest.mark.parametrize("row", [*FORMATS, *NARROW_WORDS])
@pytest.mark.parametrize("name", STEPS)
def test_rtl_training_in_format_has_golden_bits(simulated, request, name, row, scales):
    root = request.getfixturevalue("data_root") if name == "fashion" else None
    data = load_data_set(DATA_SETS[name], root)
    formats = (FORMATS | NARROW_WORDS)[row]
    rtl = simulated[8 if row in NARROW_WORDS else 16]
    with GoldenAccelerator(rtl.parameters, memory_bytes=MEMORY_BYTES) as golden:
        ours = trained(golden, name, formats, scales, data)
    theirs = trained(rtl, name, formats, scales, data)
    assert theirs.history.steps[-1].cycles > 0
    assert theirs.model.digest() == ours.model.digest()
    assert theirs.scales.exponents == ours.scales.exponents
    for field in ("loss", "saturations", "underflows"):
        of_steps = [
            [getattr(record, field) for record in state.history.steps] for state in (ours, theirs)
        ]
        assert of_steps[0] == of_steps[1]
    assert any(record.underflows for record in theirs.history.steps) == ("posit" in formats)

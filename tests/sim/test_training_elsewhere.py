"""Run begun on the golden model, continued on simulated hardware, finished on the golden model.

A host that computes everything by the definitions gets the same bits.
"""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from accelerators import ALONE

from trainwright.accelerator.counted import counted
from trainwright.compiler.step.rows import plan_of_loop
from trainwright.data import load_data_set
from trainwright.driver import Driver
from trainwright.golden.backend import GoldenAccelerator
from trainwright.network import load_network
from trainwright.train.checkpoint import load_checkpoint, save_checkpoint
from trainwright.train.host_engine import HostEngine
from trainwright.train.resident import ResidentEngine
from trainwright.train.settings import ChipSettings, PriorSettings, TrainSettings
from trainwright.train.state import initial_state
from trainwright.train.trainer import Trainer
from trainwright_sim.backend import RtlAccelerator

sys.path.append(str(Path(__file__).parents[1] / "sw"))
from test_onchip_training import same

BATCH = 64
EPOCH = 3
CHOSEN = TrainSettings(
    batch=BATCH,
    epochs=3,
    learning_rate=0.45,
    chip=ChipSettings(pixels=4),
    prior=PriorSettings(weight=0.5, warmup=0.0, threshold=0.5, interval=2),
)


def driver(network):
    """Return a driver of equal arrays and plan, which decide how sums are split."""
    p = replace(ALONE, vector_engine=0, exponents=0, sample_loads=0)
    golden = GoldenAccelerator(p, memory_bytes=1 << 19)
    return Driver(golden, network, BATCH, plan=plan_of_loop(network, p))


def run(accelerator, state, data, *, stop):
    """Train until ``stop`` steps and return the trainer."""
    with counted(accelerator) as machine:
        trainer = Trainer(
            state, data, ResidentEngine(machine),
            stop=lambda: state.step >= stop,
        )  # fmt: skip
        trainer.run()
        return trainer


@pytest.mark.slow
def test_training_across_accelerators_has_golden_bits(tmp_path):
    """Start each epoch once, cuts and test set included, from the previous checkpoint."""
    whole = load_data_set("digits")
    data = replace(whole, train=whole.train.first(EPOCH * BATCH + 5), test=whole.test.first(90))
    network = load_network("digits").with_ranks([[6], [5]])
    expected, state = initial_state(network, CHOSEN), initial_state(network, CHOSEN)
    Trainer(expected, data, HostEngine(driver)).run()
    ranks = []
    machines = (GoldenAccelerator, RtlAccelerator, GoldenAccelerator)
    for number, machine in enumerate(machines, 1):
        trainer = run(machine(ALONE, memory_bytes=1 << 19), state, data, stop=number * EPOCH)
        assert state.step == number * EPOCH == state.history.steps[-1].step
        assert trainer.host_writes == 0 and trainer.engine.evaluates
        assert len(state.history.steps) == number
        ranks.append(state.history.steps[-1].ranks)
        save_checkpoint(tmp_path / "c.safetensors", state)
        state = load_checkpoint(tmp_path / "c.safetensors").state
    assert same(expected, state)
    assert state.history.evaluations == expected.history.evaluations
    assert [expected.history.steps[n].ranks for n in (2, 5, 8)] == ranks
    assert len(set(ranks)) > 1

"""Networks with several heads whose loss and update are on the chip."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from test_compile_heads import TABLE
from test_onchip_training import SETTINGS, driver, same

from trainwright.accelerator.counted import counted
from trainwright.check.training import check_training
from trainwright.data import load_data_set
from trainwright.driver import fitting_exponent
from trainwright.golden.backend import GoldenAccelerator
from trainwright.kernels import evaluate, trace
from trainwright.kernels.trace import trace_groups
from trainwright.network import network_from_dict
from trainwright.onchip import loss as kernels
from trainwright.onchip.samples import target_rows
from trainwright.parameters import AcceleratorParameters
from trainwright.train.chip_update import ChipUpdate, chip_model
from trainwright.train.host_engine import HostEngine
from trainwright.train.resident import ResidentEngine
from trainwright.train.settings import ChipSettings, PriorSettings
from trainwright.train.state import initial_state
from trainwright.train.trainer import Trainer

pytestmark = pytest.mark.usefixtures("programs_once", "first_programs")
P = AcceleratorParameters(vector_engine=1, exponents=64, sample_loads=1)
BODY, *_, EARLY = TABLE["layers"]
HEADS = [{**EARLY, "name": "deep"}, EARLY]


def network(*, wide=False):
    """Return a network with two heads of 16 outputs, the second one of 32 if ``wide``."""
    deep, early = HEADS
    early = {**early, "outputs": [2, 16]} if wide else early
    return network_from_dict({**TABLE, "layers": [BODY, deep, early]})


@pytest.mark.parametrize(
    "chosen, wide",
    [
        (replace(SETTINGS, chip=ChipSettings(loss="squared-error", pixels=4)), False),
        (replace(SETTINGS, prior=PriorSettings()), True),
    ],
)
def test_resident_run_with_two_heads_has_the_bits_of_the_definitions(chosen, wide):
    """Train an epoch alone, cuts included: the loss is the sum, samples are those of the first."""
    data, two = load_data_set("digits"), network(wide=wide)
    ours, theirs = initial_state(two, chosen), initial_state(two, chosen)
    by_host = Trainer(ours, data, HostEngine(driver))
    by_host.run()
    accelerator = counted(GoldenAccelerator(P, memory_bytes=1 << 20))
    alone = Trainer(theirs, data, ResidentEngine(accelerator))
    alone.run()
    assert same(ours, theirs) and alone.host_writes == 0
    assert ours.history.evaluations == theirs.history.evaluations
    steps, (epoch, *_) = ours.history.steps[:22], theirs.history.steps
    assert epoch.loss == pytest.approx(np.mean([step.loss for step in steps]), rel=1e-12)
    assert epoch.correct == sum(step.correct for step in steps)


def test_check_of_two_heads_finds_the_bits_of_the_definitions():
    golden = GoldenAccelerator(P, memory_bytes=1 << 20)
    check = check_training(network(), 32, golden, seed=3, steps=2)
    assert not check.comparison.mismatches


@pytest.mark.parametrize("loss", list(kernels.KERNELS))
def test_losses_of_a_head_are_equal_with_classes_along_lanes_and_in_rows(loss):
    """Another head decides which form a small head has, so both must have one result."""
    random = np.random.default_rng(5)
    logits, labels = random.integers(-(1 << 15), 1 << 15, (200, 16)), random.integers(0, 10, 200)
    logits[::3] >>= 8
    logits[::5, 4] = logits[::5, 7]
    options = {"exponent": -9, "counting": False, "main": True}
    along = evaluate(
        trace(kernels.KERNELS[loss], 16, **options),
        {kernels.LOGITS: logits, kernels.TARGETS: target_rows(labels, 10, 16)},
    )
    numbers = np.arange(10) + 0 * labels[:, None]
    rows = {kernels.LOGITS: logits[:, :10], kernels.NUMBERS: numbers}
    rows[kernels.TARGETS] = labels[:, None] + 0 * numbers
    grouped = evaluate(trace_groups(kernels.KERNELS[loss], 10, **options), rows)
    assert (along.total, along.count) == (grouped.total, grouped.count)
    assert (along.rows[kernels.GRADIENT][:, :10] == grouped.rows[kernels.GRADIENT]).all()
    assert not along.rows[kernels.GRADIENT][:, 10:].any()


def test_loss_of_two_heads_is_the_sum_of_their_losses():
    """Each head has an exponent of its own; correct samples are those of the first head."""
    two, data = network(), load_data_set("digits")
    model = chip_model(initial_state(two, replace(SETTINGS, chip=None)).model)
    update = ChipUpdate(model, SETTINGS, total=24, samples=len(data.train))
    random = np.random.default_rng(1)
    heads = [
        torch.from_numpy(random.integers(-(1 << 15), 1 << 15, (64, 16)) * 2.0**e) for e in (-12, -9)
    ]
    labels = heads[0][:, :10].argmax(1)
    result = update.loss(torch.cat(heads, 1), labels)
    losses = [
        kernels.batch_loss(
            "cross-entropy",
            (head * 2.0 ** -(e := fitting_exponent(head, 16))).long().numpy(),
            e,
            labels.numpy(),
            10,
        )
        for head in heads
    ]
    assert result.mean == pytest.approx(sum(loss.mean for loss in losses), rel=1e-12)
    assert result.correct == losses[0].correct == 64 > losses[1].correct
    wanted = np.concatenate([loss.gradient for loss in losses], 1)
    assert (result.gradient.numpy() == wanted * 2.0 ** losses[0].exponent).all()

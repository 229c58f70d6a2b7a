"""Facts that the progress of a training run shows."""

import pytest

from trainwright.cli.train.progress import RECENT, Progress
from trainwright.train.history import StepRecord


def record(step, steps, loss, right):
    return StepRecord(
        step=step, epoch=1, loss=loss, correct=right * steps, samples=64 * steps,
        learning_rate=0.01, prior_weight=0.5, cycles=1000 * step * steps, seconds=0.1, moved=0,
        saturations=0, underflows=0, ranks=(16, 8),
    )  # fmt: skip


def test_progress_of_single_steps_shows_means_of_the_last_twenty():
    progress = Progress()
    for step in range(1, RECENT + 6):
        progress.stepped(record(step, 1, float(step), 32 if step > 5 else 0))
    facts = progress.facts()
    assert facts["loss"] == f"{sum(range(6, RECENT + 6)) / RECENT:.4f}"
    assert facts["accuracy"] == "50.0%" and facts["cycles a step"] == f"{1000 * (RECENT + 5):,}"


@pytest.mark.parametrize(
    ("steps", "loss", "accuracy"), [(22, 0.5, "75.0%"), (8, (2 + 1 + 0.5) / 3, "43.8%")]
)
def test_progress_of_records_with_several_steps_counts_steps(steps, loss, accuracy):
    progress = Progress()
    for number, (each, right) in enumerate([(9.0, 0), (2.0, 16), (1.0, 20), (0.5, 48)], 1):
        progress.stepped(record(number * steps, steps, each, right))
    facts = progress.facts()
    assert facts["loss"] == f"{loss:.4f}" and facts["accuracy"] == accuracy
    assert facts["cycles a step"] == f"{4000 * steps:,}"

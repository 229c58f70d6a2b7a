"""Protocol of an engine that runs training steps: host, vector engine, or the accelerator alone."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import torch

from trainwright.data import DataSet, Split
from trainwright.driver import StepDriver
from trainwright.driver.runner import Occupied
from trainwright.fixed.scale import Scales, TensorStatistics
from trainwright.train.chip_update import operands_of
from trainwright.train.interfaces import Update, Verification
from trainwright.train.state import TrainingState


@dataclass(frozen=True)
class TrainingTask:
    """Training run as an engine sees it."""

    state: TrainingState
    data: DataSet
    test: Split
    total_steps: int
    update: Update
    """Definition of loss, update and cuts; an engine may compute them elsewhere."""
    draw: Callable[[int], tuple[torch.Tensor, torch.Tensor]]
    """Return inputs and labels of a step."""
    begun: Callable[[], None]
    """Called when the data that all steps share is written, before the steps of a start begin."""
    labels: Callable[[int], int]
    """Return how many labels a step's samples have for the main head."""
    occupied: Occupied | None
    """Count of a tensor's values without padding, if one count holds for the whole run."""
    save: Callable[[], None]
    """Save the state from which an interrupted run is resumed."""

    def calibrate(self, driver: StepDriver, scales: Scales) -> None:
        """Choose the exponents by the next batch, unless every tensor of a step has one.

        Exponents are missing in the first step of a run, and when programs get new tensors.
        """
        if scales.exponents.keys() >= driver.tensors:
            return
        inputs, labels = self.draw(self.state.step)
        model = operands_of(self.state.model)
        driver.calibrate(
            inputs, lambda logits: self.update.loss(logits, labels).gradient, model, scales
        )


@dataclass(frozen=True)
class StepResult:
    """Outcome of the steps of a start, wherever loss and update were computed."""

    loss: float
    """Mean over all samples."""
    correct: int
    cycles: int
    seconds: float
    saturations: int
    underflows: int = 0
    moved: int = 0
    """Number of exponents that the accelerator itself has moved. An exponent that moved and moved
    back counts 0: the accelerator reports only the last exponents."""
    statistics: Mapping[str, TensorStatistics] = field(default_factory=dict)
    """Statistics by which the host moves exponents; empty if the accelerator moves them."""
    observed: Mapping[str, TensorStatistics] = field(default_factory=dict)
    """Means over the steps where the accelerator moves exponents, to warn of lost tensors."""
    verification: Verification | None = None
    words: int = 0
    """Words with a label, of which ``correct`` counts some; 0 where samples have labels."""


class StepEngine(Protocol):
    """Engine of a task's steps: call ``open`` once, then ``run`` and ``take`` for each start."""

    unattended: bool
    """Whether steps go on after this process ends, so that every start needs a saved state."""

    @property
    def driver(self) -> StepDriver:
        """Driver that calibrates and classifies, with the ranks of the present programs."""
        ...

    def open(self, task: TrainingTask) -> None:
        """Compile the programs of a task, and write data that stays in the accelerator's memory.

        Raises ``ValueError`` for settings that no program computes, ``AcceleratorError`` if the
        accelerator's memory is too small.
        """
        ...

    def reopen(self) -> None:
        """Compile for the ranks left after a cut; the next start writes the weights again."""
        ...

    def end(self, step: int) -> int:
        """Return the step at which a start from ``step`` ends."""
        ...

    def run(self, count: int, scales: Scales) -> StepResult:
        """Run ``count`` steps from the state's step on, with ``scales``, changed in place.

        An exception leaves the model as it was.
        """
        ...

    def take(self) -> tuple[float, float]:
        """Bring the weights of the last ``run`` into the model; return its last step's rates.

        These are the learning rate and the prior weight.
        """
        ...

    def classify(self, scales: Scales) -> int | None:
        """Return how many test samples the accelerator classifies correctly by itself.

        None if the host has to send the samples.
        """
        ...

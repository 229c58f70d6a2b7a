"""The protocol of whoever runs training steps: host, vector engine, or the accelerator alone."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import torch

from trainwright.data import DataSet, Split
from trainwright.fixed.scale import Scales, TensorStatistics
from trainwright.train.chip_update import operands_of
from trainwright.train.interfaces import StepDriver, Update, Verification
from trainwright.train.state import TrainingState


@dataclass(frozen=True)
class TrainingTask:
    """Training run as an engine sees it."""

    state: TrainingState
    data: DataSet
    test: Split
    total_steps: int
    update: Update
    """Loss, update and cuts by their definitions; an engine may compute them elsewhere."""
    draw: Callable[[int], tuple[torch.Tensor, torch.Tensor]]
    """Return inputs and labels of a step."""
    begun: Callable[[], None]
    """Called when whatever later steps need once is written, and the steps of a start begin."""
    save: Callable[[], None]
    """Write the state to where an interrupted run goes on from."""

    def calibrate(self, driver: StepDriver, scales: Scales) -> None:
        """Choose the exponents by the next batch, unless every tensor of a step has one.

        The first step of a run lacks them, and a step of tensors that the last one did not have.
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
    """Exponents that the accelerator itself has moved. One that moved and moved back counts 0: the
    accelerator reports only where exponents end."""
    statistics: Mapping[str, TensorStatistics] = field(default_factory=dict)
    """Statistics for the host to move exponents by; empty where the accelerator moves them."""
    verification: Verification | None = None


class StepEngine(Protocol):
    """Runs the steps of a task: ``open`` once, then ``run`` and ``take`` for each start."""

    unattended: bool
    """Whether steps go on where this process ends, so that every start needs a saved state."""

    @property
    def driver(self) -> StepDriver:
        """The driver that calibrates and classifies, of the ranks that programs have."""
        ...

    def open(self, task: TrainingTask) -> None:
        """Compile the programs of a task; give it what stays with the accelerator.

        Raises ``ValueError`` for settings that no program computes, ``AcceleratorError`` for what
        the accelerator's memory does not hold.
        """
        ...

    def reopen(self) -> None:
        """Compile for the ranks that are left after a cut; the next start writes the weights."""
        ...

    def end(self, step: int) -> int:
        """Return the step at which a start from ``step`` ends."""
        ...

    def run(self, count: int, scales: Scales) -> StepResult:
        """Run ``count`` steps from the state's on, the exponents of ``scales`` in place.

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

        None where the host has to give it the samples.
        """
        ...

"""Steps whose loss and update are programs of the vector engine: weights stay with the accelerator.

The host sends inputs, labels, programs with their shifts, and the prior's coefficients; it reads
the state back after every step, for the prior, cuts and checkpoints.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from trainwright.compiler.chip.live import Kept
from trainwright.compiler.chip.memory import STATE
from trainwright.driver.chip import ChipDriver
from trainwright.fixed.scale import Scales, TensorStatistics
from trainwright.onchip.layout import WeightLayout
from trainwright.onchip.prior import INTERVAL
from trainwright.onchip.state import UpdateStep
from trainwright.train.chip_update import ChipModel
from trainwright.train.settings import TrainSettings

OpenChip = Callable[[WeightLayout, Kept, str], ChipDriver]
"""Make a driver whose programs have the given columns of a layout, and a loss."""


@dataclass(frozen=True)
class EngineStep:
    """Outcome of a step on the vector engine."""

    loss: float
    """Mean over the batch."""
    correct: int
    statistics: dict[str, TensorStatistics]
    cycles: int
    seconds: float


def require_programs(settings: TrainSettings) -> None:
    """Raise ``ValueError`` for what the vector engine's programs do not compute."""
    if settings.rounding != "nearest":
        raise ValueError(
            "the vector engine's programs have rounding mode nearest alone, not "
            f"{settings.rounding}: train with --accelerator vector_engine=0"
        )


class StepEngine:
    """Runs whole steps of a model; its state is that of the accelerator after each of them."""

    def __init__(self, open_chip: OpenChip, model: ChipModel, settings: TrainSettings) -> None:
        """Open the driver; raise ``ValueError`` for settings that no program computes."""
        require_programs(settings)
        self._open, self._model = open_chip, model
        assert settings.chip is not None
        self._loss = settings.chip.loss
        self._classes = model.network.classes
        self.reopen()

    def reopen(self) -> None:
        """Open a driver for the columns of the model's programs; the next step writes the state."""
        state = self._model.state
        kept = tuple(tuple(columns.tolist()) for columns in state.compiled)
        self.driver = self._open(state.layout, kept, self._loss)
        self._put = False

    def step(
        self, inputs: torch.Tensor, labels: torch.Tensor, scales: Scales, step: UpdateStep
    ) -> EngineStep:
        """Forward, loss, backward, update; the model's state changes at the end."""
        driver, state = self.driver, self._model.state
        # Only a new driver needs the state: every step leaves the accelerator with what
        # `state.take` reads back.
        if not self._put:
            driver.put(state, self._model.operands())
            self._put = True
        driver.executed.clear()
        statistics = dict(driver.run_forward(inputs, scales))
        loss = driver.run_loss(labels.numpy(), self._classes)
        statistics |= driver.run_backward(scales)
        # The look at the columns comes before pulls and update, as in `ChipState.step`: what is cut
        # in this step counts for nothing in its pulls.
        cuts = step.distance is not None and state.look(step.distance)
        if step.number % INTERVAL == 0:
            state.renew_pulls(step)
        # Most steps lie between two renewals of the pulls; without a pull the update program
        # without the prior's part is shorter.
        pulled = bool(state.pulls.coefficients.any())
        if pulled:
            driver.put_columns(state, driver.gradient_exponents)
        driver.run_update(step, pulled=pulled, cuts=cuts)
        words, factors = driver.rows(STATE), driver.factors()
        state.take(words, factors, driver.moment_exponents)
        runs = [execution.run for execution in driver.executed]
        return EngineStep(
            loss=loss.total * driver.loss_unit / len(labels),
            correct=loss.correct,
            statistics=statistics,
            cycles=sum(run.counters.cycles for run in runs),
            seconds=sum(run.seconds for run in runs),
        )

"""Steps whose loss and update the host computes, by floats or by the chip's definitions."""

from trainwright.driver import (
    BackwardOperands,
    BackwardResult,
    ForwardOperands,
    Runner,
    StepDriver,
    StepInputs,
)
from trainwright.driver.dropout import step_mask_seed
from trainwright.fixed.random_bits import step_seeds
from trainwright.fixed.scale import Scales
from trainwright.train.chip_update import operands_of, programs_of
from trainwright.train.engine import StepResult, TrainingTask
from trainwright.train.interfaces import DriverFactory, StepCase, Verification, Verifier


class HostEngine:
    """Implements ``train.engine.StepEngine`` by forward and backward programs of drivers.

    Every ``verify_every`` steps ``verifier`` gets the step to compare with the golden model.
    """

    unattended = False

    def __init__(
        self, open_driver: DriverFactory, verifier: Verifier | None = None, verify_every: int = 1
    ) -> None:
        self._open_driver = open_driver
        self._verifier, self._verify_every = verifier, verify_every
        self._runner: Runner[StepDriver] = Runner()
        self._backward: BackwardResult | None = None

    @property
    def driver(self) -> StepDriver:
        """See ``StepEngine``."""
        return self._runner.driver

    def open(self, task: TrainingTask) -> None:
        """See ``StepEngine``."""
        self._task = task
        self.reopen()

    def reopen(self) -> None:
        """See ``StepEngine``."""
        network = programs_of(self._task.state.model)
        # The runner asks for a new driver only where ranks differ: compiling a step takes seconds.
        self._runner.driver_for(network.ranks, lambda: self._open_driver(network))
        if self._task.occupied:
            self.driver.count_as(self._task.occupied)

    def end(self, step: int) -> int:
        """See ``StepEngine``."""
        return step + 1

    def run(self, count: int, scales: Scales) -> StepResult:
        """Run a step; see ``StepEngine``."""
        task, state = self._task, self._task.state
        task.begun()
        inputs, labels = task.draw(state.step)
        task.calibrate(self.driver, scales)
        model = operands_of(state.model)
        seeds = step_seeds(state.settings.rounding, state.settings.seed, state.step)
        masks = step_mask_seed(state.settings.seed, state.step)
        done = self._runner.forward(ForwardOperands(inputs, model, scales, seeds[0], masks))
        forward = done.result
        loss = task.update.loss(forward.logits, labels)
        given = BackwardOperands(loss.gradient, scales, seeds[1], loss.exponent)
        backward = self._runner.backward(done, given)
        before = done.operands.scales
        operands = StepInputs(model, inputs, loss.gradient, before, seeds, loss.exponent, masks)
        case = StepCase(state.step + 1, operands, forward, backward)
        self._backward = backward
        statistics = {**forward.statistics, **backward.statistics}
        return StepResult(
            loss=loss.mean,
            correct=loss.correct,
            cycles=forward.counters.cycles + backward.counters.cycles,
            seconds=forward.seconds + backward.seconds,
            saturations=sum(s.saturations for s in statistics.values()),
            underflows=sum(s.underflows for s in statistics.values()),
            statistics=statistics,
            verification=self._verify(case),
            words=loss.words,
        )

    def _verify(self, case: StepCase) -> Verification | None:
        if self._verifier is None or (case.number - 1) % self._verify_every:
            return None
        return self._verifier(case)

    def take(self) -> tuple[float, float]:
        """Update the model; see ``StepEngine``."""
        task, backward = self._task, self._backward
        assert backward is not None
        self._backward = None
        return task.update.step(backward, task.state.step, task.total_steps)

    def classify(self, scales: Scales) -> None:
        """Leave the test split to the host; see ``StepEngine``."""

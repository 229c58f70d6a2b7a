"""Steps whose loss and update are programs of the vector engine: weights stay with the accelerator.

The host sends inputs, labels, programs with their shifts, and the prior's coefficients; it reads
the state back after every step, for the prior, cuts and checkpoints.
"""

from trainwright.accelerator import Accelerator
from trainwright.compiler.base.compiled import AUTO
from trainwright.compiler.chip.memory import STATE, Words
from trainwright.driver.chip import ChipDriver
from trainwright.driver.dropout import step_mask_seed
from trainwright.fixed.scale import Scales
from trainwright.onchip.prior import INTERVAL
from trainwright.train.chip_update import ChipModel, ChipUpdate
from trainwright.train.engine import StepResult, TrainingTask
from trainwright.train.settings import TrainSettings


def require_programs(settings: TrainSettings) -> None:
    """Raise ``ValueError`` for what the vector engine's programs do not compute."""
    if settings.rounding != "nearest":
        raise ValueError(
            "the vector engine's programs have rounding mode nearest alone, not "
            f"{settings.rounding}: train with --accelerator vector_engine=0"
        )


class VectorEngine:
    """Implements ``train.engine.StepEngine`` by four programs a step on one accelerator."""

    unattended = False

    def __init__(self, accelerator: Accelerator, *, plan: str = AUTO, trace: bool = False) -> None:
        self._accelerator, self._plan, self._trace = accelerator, plan, trace
        self._written: tuple[Words, Words] | None = None

    @property
    def driver(self) -> ChipDriver:
        """See ``StepEngine``."""
        return self._driver

    def open(self, task: TrainingTask) -> None:
        """See ``StepEngine``."""
        require_programs(task.state.settings)
        model, update = task.state.model, task.update
        assert isinstance(model, ChipModel) and isinstance(update, ChipUpdate)
        self._task, self._model, self._update = task, model, update
        self.reopen()

    def reopen(self) -> None:
        """See ``StepEngine``."""
        state, settings = self._model.state, self._task.state.settings
        assert settings.chip is not None
        kept = tuple(tuple(columns.tolist()) for columns in state.compiled)
        self._driver = ChipDriver(
            self._accelerator, state.layout, settings.micro_batch, kept=kept,
            loss=settings.chip.loss, plan=self._plan, trace=self._trace,
        )  # fmt: skip
        if self._task.occupied:
            self._driver.count_as(self._task.occupied)
        self._put = False

    def end(self, step: int) -> int:
        """See ``StepEngine``."""
        return step + 1

    def run(self, count: int, scales: Scales) -> StepResult:
        """Run forward, loss, backward and update of a step; see ``StepEngine``."""
        task, driver, state = self._task, self.driver, self._model.state
        task.begun()
        inputs, labels = task.draw(task.state.step)
        task.calibrate(driver, scales)
        step = self._update.step_operands(task.state.step)
        # Only a new driver needs the state: every step leaves the accelerator with what
        # `state.take` reads back.
        if not self._put:
            driver.put(state, self._model.operands())
            self._put = True
        driver.executed.clear()
        masks = step_mask_seed(task.state.settings.seed, task.state.step)
        statistics = dict(driver.run_forward(inputs, scales, masks))
        loss = driver.run_loss(labels.numpy())
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
        self._written = driver.rows(STATE), driver.factors()
        runs = [execution.run for execution in driver.executed]
        labelled = int((labels >= 0).sum())
        return StepResult(
            loss=loss.total * driver.loss_unit / max(1, labelled),
            correct=loss.correct,
            cycles=sum(run.counters.cycles for run in runs),
            seconds=sum(run.seconds for run in runs),
            saturations=sum(s.saturations for s in statistics.values()),
            underflows=sum(s.underflows for s in statistics.values()),
            statistics=statistics,
            words=labelled if labels.dim() == 2 else 0,
        )

    def take(self) -> tuple[float, float]:
        """See ``StepEngine``."""
        assert self._written is not None
        words, factors = self._written
        self._written = None
        self._model.state.take(words, factors, self.driver.moment_exponents)
        return self._update.rates_used(self._task.state.step)

    def classify(self, scales: Scales) -> None:
        """Leave the test split to the host; see ``StepEngine``."""

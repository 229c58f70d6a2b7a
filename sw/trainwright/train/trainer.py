"""The training loop: forward, loss, backward, update, scales, ranks."""

import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from trainwright.accelerator import Accelerator
from trainwright.compiler.base.compiled import AUTO
from trainwright.data import DataSet
from trainwright.driver import BackwardResult, ForwardResult, QuantisedModel, Runner, persist
from trainwright.fixed.health import LostTensorWarning, TensorHealth
from trainwright.fixed.random_bits import step_seeds
from trainwright.fixed.scale import Scales, TensorStatistics
from trainwright.network import Network
from trainwright.train.batches import (
    ImageQuantiser,
    batch_indices,
    check_data,
    chip_batch_indices,
    label_tensor,
)
from trainwright.train.chip_update import ChipModel, ChipUpdate, operands_of, ranks_left
from trainwright.train.engine import OpenChip, StepEngine
from trainwright.train.evaluate import Evaluation, evaluate
from trainwright.train.history import SCALE_RECORDS, EvaluationRecord, ScaleRecord, StepRecord
from trainwright.train.host_update import HostUpdate
from trainwright.train.interfaces import (
    DriverFactory,
    Observer,
    StepCase,
    StepDriver,
    Update,
    Verification,
    Verifier,
)
from trainwright.train.resident import ResidentEngine, ResidentSteps
from trainwright.train.state import TrainingState, copy_scales


@dataclass(frozen=True)
class _Result:
    """Outcome of a step, wherever loss and update were computed."""

    loss: float
    correct: int
    samples: int
    rates: tuple[float, float]
    """Learning rate and prior weight."""
    cycles: int
    seconds: float
    statistics: Mapping[str, TensorStatistics]


class Stopped(Exception):
    """An evaluation was abandoned because a stop was asked for; the state is sound."""


class Trainer:
    """Trains a state in place, on the accelerators of its drivers.

    With ``open_chip`` loss and update of a ``ChipModel`` are programs of the vector engine; on a
    ``resident`` accelerator whole epochs are, or the steps between two looks at the ranks where a
    cut is to have programs of its own at once; ``plan`` is that of its steps.
    ``written`` gives the bytes that the host has written so far.
    ``test_samples`` bounds the test split, for accelerators that are slow to simulate. Every
    ``verify_every`` steps ``verifier`` gets the step to compare with the golden model. ``save`` is
    called with the state at most every ``save_seconds``, between steps. ``stop`` is asked between
    steps and between the batches of an evaluation. Raises ``DataError`` where data and network do
    not fit, ``ValueError`` where the chip's tables do not hold the schedule.
    """

    def __init__(
        self,
        state: TrainingState,
        data: DataSet,
        open_driver: DriverFactory,
        *,
        open_chip: OpenChip | None = None,
        resident: Accelerator | None = None,
        plan: str = AUTO,
        written: Callable[[], int] | None = None,
        observer: Observer | None = None,
        verifier: Verifier | None = None,
        verify_every: int = 0,
        test_samples: int | None = None,
        save: Callable[[TrainingState], None] | None = None,
        save_seconds: float = 30.0,
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        check_data(state.network, data, state.settings.batch)
        self.state = state
        self.total_steps = state.settings.total_steps(len(data.train))
        self._data = data
        self._test = data.test if test_samples is None else data.test.first(test_samples)
        self._open_driver = open_driver
        self._update = self._make_update()
        self._engine: StepEngine | None = None
        self.resident: ResidentEngine | None = None
        """Engine of whole runs of steps; None where the accelerator cannot repeat a step alone."""
        if resident is not None:
            self.resident = self._make_resident(resident, plan)
        elif open_chip is not None and isinstance(state.model, ChipModel):
            self._engine = StepEngine(open_chip, state.model, state.settings)
        self._runner: Runner[StepDriver] = Runner()
        self._open()
        self._written = written or (lambda: 0)
        self._epoch_began: tuple[int, int] | None = None
        self.host_writes: int | None = None
        """Bytes that the host gave the accelerator in the last epoch that this trainer saw whole,
        from its first step to its last; None before."""
        self._health = TensorHealth()
        self._quantiser = ImageQuantiser(
            state.network,
            data.full_scale,
            self._runner.driver.input_exponent,
            None if state.settings.chip is None else state.settings.chip.pixels,
        )
        self._observer = observer or Observer()
        self._verifier = verifier if verify_every else None
        self._verify_every = verify_every
        self._save = save
        self._save_seconds = save_seconds
        self._stop = stop
        self.abandonable = False
        """Whether the present call only waits for the accelerator: raising out of it then leaves
        the state as it was after the last complete step."""

    def run(self) -> bool:
        """Train to the end or until ``stop()``; returns whether the end was reached.

        Between two epochs the test split is classified, by a resident accelerator alone; at
        the end, call ``evaluate_test``.
        """
        self._observer.started(self.state.step, self.total_steps, self.state.model.network)
        # Monotonic: the wall clock may be set while a run goes on for days.
        saved = time.monotonic()
        while self.state.step < self.total_steps:
            if self._stop():
                return False
            if self._evaluation_is_due():
                try:
                    self._evaluate()
                except Stopped:
                    return False
            # A step is the unit that cannot be half done: stops, evaluations and saves lie between
            # steps.
            self.step()
            if self._save and time.monotonic() - saved > self._save_seconds:
                self._save(self.state)
                saved = time.monotonic()
        return True

    def step(self) -> StepRecord:
        """Run one training step, or as many as a resident program does alone.

        The state changes only after all results are in.
        """
        if self.resident:
            return self._resident_steps(self.resident)
        self._count_writes()
        inputs, labels = self._batch(self.state.step)
        if self._engine is None:
            record = self._host_step(inputs, labels)
        else:
            record = self._engine_step(self._engine, inputs, labels)
        self._count_writes()
        self._cut()
        return record

    def _count_writes(self) -> None:
        """Note where an epoch begins, and what was written where it ends."""
        step, written = self.state.step, self._written()
        if step % self._steps_an_epoch():
            return
        if self._epoch_began is not None and step == self._epoch_began[0] + self._steps_an_epoch():
            self.host_writes = written - self._epoch_began[1]
        self._epoch_began = step, written

    def _engine_step(
        self, engine: StepEngine, inputs: torch.Tensor, labels: torch.Tensor
    ) -> StepRecord:
        """Run a step whose loss and update are programs of the accelerator's vector engine."""
        state, update = self.state, self._update
        assert isinstance(update, ChipUpdate)
        # Work on a copy: an exception or a signal in the middle leaves the state as it was.
        scales = copy_scales(state.scales)
        with self._waiting():
            if not self._runner.is_calibrated(scales):
                self._calibrate(inputs, labels, operands_of(state.model), scales)
            done = engine.step(inputs, labels, scales, update.step_operands(state.step))
        result = _Result(
            done.loss, done.correct, len(labels), update.rates_used(state.step), done.cycles,
            done.seconds, done.statistics,
        )  # fmt: skip
        return self._record(result, scales)

    def _resident_steps(self, engine: ResidentEngine) -> StepRecord:
        """Run the steps up to the end of the epoch or run, or to the next look at the ranks."""
        state, update = self.state, self._update
        assert isinstance(update, ChipUpdate)
        scales, epoch = copy_scales(state.scales), self._steps_an_epoch()
        with self._waiting():
            count = engine.end(state.step) - state.step
            # A lost board is reset and the steps run again from the saved state, to the same bits.
            done = persist(lambda: self._run_resident(engine, count, scales))
        before, rates = state.scales.exponents, update.rates_used(state.step + count - 1)
        record = StepRecord(
            step=state.step + count,
            epoch=state.step // epoch + 1,
            loss=done.loss,
            correct=done.correct,
            samples=count * state.settings.batch,
            learning_rate=rates[0],
            prior_weight=rates[1],
            cycles=done.cycles,
            seconds=done.seconds,
            # Exponents that moved and moved back count 0: the accelerator reports only where they
            # end.
            moved=sum(scales.exponents[name] != was for name, was in before.items()),
            saturations=done.saturations,
            # The chip has fixed point alone, which counts no underflows.
            underflows=0,
            ranks=ranks_left(state.model),
        )
        state.scales = scales
        self._recorded(record)
        self._count_writes()
        self._cut()
        self._keep(engine)
        return record

    def _run_resident(self, engine: ResidentEngine, count: int, scales: Scales) -> ResidentSteps:
        """Run ``count`` steps, or wait for those that the accelerator is at already.

        Where the accelerator continues without this process, it does so from a state that is saved.
        """
        state = self.state
        attended = self._runner.is_calibrated(scales) and engine.attend(state.step)
        # The accelerator outlives this process here: exponents and state have to be on disk before
        # it starts, or a later process could not tell from where it went on.
        if not attended:
            if not self._runner.is_calibrated(scales):
                self._calibrate(*self._batch(state.step), operands_of(state.model), scales)
            engine.begin(scales, state.step)
        state.scales = copy_scales(scales)
        if not attended:
            self._keep(engine)
        self._count_writes()
        return engine.run(count, scales)

    def _keep(self, engine: ResidentEngine) -> None:
        if engine.unattended and self._save:
            self._save(self.state)

    def _recorded(self, record: StepRecord) -> None:
        self.state.step = record.step
        self.state.history.steps.append(record)
        self._observer.stepped(record)

    def _host_step(self, inputs: torch.Tensor, labels: torch.Tensor) -> StepRecord:
        """Run a step whose loss and update are the host's."""
        state = self.state
        model, scales = operands_of(state.model), copy_scales(state.scales)
        with self._waiting():
            # The first step of a run, or of a network whose tensors changed: some tensor has no
            # exponent.
            if not self._runner.is_calibrated(scales):
                self._calibrate(inputs, labels, model, scales)
            seeds = step_seeds(state.settings.rounding, state.settings.seed, state.step)
            done = self._runner.forward(inputs, model, scales, seed=seeds[0])
            forward = done.result
            loss = self._update.loss(forward.logits, labels)
            backward = self._runner.backward(
                done, loss.gradient, scales, seed=seeds[1], exponent=loss.exponent
            )
            case = StepCase(
                state.step + 1, done.driver, inputs, model, done.scales, loss.gradient, forward,
                backward, seeds, loss.exponent,
            )  # fmt: skip
            verified = self._verify(case)
        if verified:
            state.verification += verified
            self._observer.verified(state.verification)
        statistics = {**forward.statistics, **backward.statistics}
        # The update is the last thing that can fail: after it the state is complete.
        rates = self._update.step(backward, state.step, self.total_steps)
        result = _Result(
            loss.mean, loss.correct, len(labels), rates, _cycles(forward, backward),
            forward.seconds + backward.seconds, statistics,
        )  # fmt: skip
        return self._record(result, scales)

    def _record(self, result: _Result, scales: Scales) -> StepRecord:
        """Complete a step: record it, and continue the state with the exponents ``scales``."""
        state, statistics = self.state, result.statistics
        state.scales = scales
        # Before the scales move, while the statistics still belong to the exponents in use.
        for message in self._health.observe(statistics):
            warnings.warn(message, LostTensorWarning, stacklevel=2)
        record = StepRecord(
            step=state.step + 1,
            epoch=state.step // self._steps_an_epoch() + 1,
            loss=result.loss,
            correct=result.correct,
            samples=result.samples,
            learning_rate=result.rates[0],
            prior_weight=result.rates[1],
            cycles=result.cycles,
            seconds=result.seconds,
            moved=scales.update(statistics) if state.settings.scales == "automatic" else 0,
            saturations=sum(s.saturations for s in statistics.values()),
            underflows=sum(s.underflows for s in statistics.values()),
            ranks=ranks_left(state.model),
        )
        state.step += 1
        state.history.steps.append(record)
        # A long run keeps the scales of about SCALE_RECORDS steps: a record for each tensor and
        # step would outgrow the checkpoint's weights.
        if state.step % max(1, self.total_steps // SCALE_RECORDS) == 0:
            state.history.scales += _scale_records(state.step, statistics)
        self._observer.stepped(record)
        return record

    def calibrate(self) -> None:
        """Choose the exponents by the next batch, as the first step of a run does by itself."""
        inputs, labels = self._batch(self.state.step)
        with self._waiting():
            self._calibrate(inputs, labels, operands_of(self.state.model), self.state.scales)

    def _calibrate(
        self, inputs: torch.Tensor, labels: torch.Tensor, model: QuantisedModel, scales: Scales
    ) -> None:
        self._runner.driver.calibrate(
            inputs, lambda logits: self._update.loss(logits, labels).gradient, model, scales
        )

    def evaluate_test(self) -> Evaluation:
        """Classify the test split and add the accuracy to the history.

        Raises ``Stopped`` when a stop is asked for before it is done.
        """
        with self._waiting():
            result = evaluate(
                self._runner.driver,
                self.state.model,
                self.state.scales,
                self._quantiser,
                self._test,
                self.state.settings.batch,
                scale=self._data.scale,
                progress=self._evaluating,
            )
        self._evaluated(result.accuracy)
        return result

    def _evaluate(self) -> None:
        """Classify the test split between epochs, on the accelerator alone if it can."""
        if not self.resident or not self.resident.evaluates:
            self.evaluate_test()
            return
        with self._waiting():
            engine, state = self.resident, self.state
            _, correct = persist(lambda: engine.evaluate(state.scales, state.step))
        self._evaluated(correct / len(self._test))

    def _evaluated(self, accuracy: float) -> None:
        step = self.state.step
        record = EvaluationRecord(
            step=step,
            # Rounded up: an evaluation at the end of an epoch belongs to the epoch, one in the
            # middle to the epoch under way.
            epoch=-(-step // self._steps_an_epoch()),
            accuracy=accuracy,
            samples=len(self._test),
        )
        evaluations = self.state.history.evaluations
        if evaluations and evaluations[-1].step == step:  # again, after a resumed run
            evaluations.pop()
        evaluations.append(record)
        self._observer.evaluated(record)

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        self.abandonable = True
        try:
            yield
        finally:
            self.abandonable = False

    def _evaluating(self, done: int, samples: int) -> None:
        self._observer.evaluating(done, samples)
        if done < samples and self._stop():
            raise Stopped

    def _verify(self, case: StepCase) -> Verification | None:
        if self._verifier is None or (case.number - 1) % self._verify_every:
            return None
        return self._verifier(case)

    def _steps_an_epoch(self) -> int:
        return len(self._data.train) // self.state.settings.batch

    def _evaluation_is_due(self) -> bool:
        # A resumed run may start at an epoch's end that it has evaluated already.
        step, evaluations = self.state.step, self.state.history.evaluations
        done = bool(evaluations) and evaluations[-1].step == step
        return step > 0 and step % self._steps_an_epoch() == 0 and not done

    def _batch(self, step: int) -> tuple[torch.Tensor, torch.Tensor]:
        train, settings = self._data.train, self.state.settings
        draw = batch_indices if settings.chip is None else chip_batch_indices
        indices = draw(len(train), settings.batch, settings.seed, step)
        return self._quantiser(train.images[indices]), label_tensor(train.labels[indices])

    def _make_update(self) -> Update:
        state, classes = self.state, self.state.network.classes
        samples = len(self._data.train)
        if isinstance(state.model, ChipModel):
            return ChipUpdate(
                state.model,
                state.settings,
                total=self.total_steps,
                samples=samples,
                classes=classes,
            )
        return HostUpdate(state.model, state.settings, samples=samples, classes=classes)

    def _make_resident(self, accelerator: Accelerator, plan: str) -> ResidentEngine | None:
        model, update = self.state.model, self._update
        if not isinstance(model, ChipModel) or not isinstance(update, ChipUpdate):
            return None
        settings = self.state.settings
        return ResidentEngine(
            accelerator, model, settings, update.rates, self._data, test=self._test, plan=plan
        )

    @property
    def _keeps_programs(self) -> bool:
        """Whether a cut is a part of the step, and programs go on after it."""
        chip = self.state.settings.chip
        return chip is not None and chip.cut_programs == "kept"

    def _open(self) -> None:
        """Open a driver for the ranks that programs are compiled for."""
        model = self.state.model
        network = model.compiled if isinstance(model, ChipModel) else model.network
        # The runner asks for a new driver only where ranks differ: compiling a step takes seconds.
        self._runner.at(network.ranks, lambda: self._opened(network))

    def _opened(self, network: Network) -> StepDriver:
        if self.resident:
            return self.resident.driver
        return self._open_driver(network) if self._engine is None else self._engine.driver

    def _cut(self) -> None:
        prior, keeps = self.state.settings.prior, self._keeps_programs
        # Kept programs cut on the accelerator at any step; their ranks are compared after every
        # step.
        if prior is None or (self.state.step % prior.interval and not keeps):
            return
        network = self._update.cut()
        if network is None:
            return
        if not keeps:
            for engine in (self._engine, self.resident):
                if engine:
                    engine.reopen()
            self._open()
        self._observer.cut(self.state.step, network)


def _scale_records(step: int, statistics: Mapping[str, TensorStatistics]) -> list[ScaleRecord]:
    return [
        ScaleRecord(
            step, name, s.exponent, s.mean_fraction, s.saturations / s.count, s.underflows / s.count
        )
        for name, s in statistics.items()
    ]


def _cycles(forward: ForwardResult, backward: BackwardResult) -> int:
    return forward.counters.cycles + backward.counters.cycles

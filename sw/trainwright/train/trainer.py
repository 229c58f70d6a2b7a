"""The training loop: forward, loss, backward, update, scales, ranks."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch

from trainwright.data import DataSet
from trainwright.data.sentences import PADDING
from trainwright.driver.runner import Occupied
from trainwright.driver.tokens import TokenCounts
from trainwright.fixed.health import LostTensorWarning, TensorHealth
from trainwright.onchip.choices import no_label
from trainwright.onchip.samples import label_words
from trainwright.support.caution import warn_user
from trainwright.train.batches import (
    ImageQuantiser,
    batch_indices,
    check_data,
    chip_batch_indices,
    class_names,
    input_quantiser,
    label_tensor,
)
from trainwright.train.chip_update import ChipModel, ChipUpdate, ranks_left
from trainwright.train.engine import StepEngine, StepResult, TrainingTask
from trainwright.train.evaluate import Evaluation, LabelKinds, evaluate, outside_of
from trainwright.train.history import SCALE_RECORDS, EvaluationRecord, ScaleRecord, StepRecord
from trainwright.train.host_update import HostUpdate
from trainwright.train.interfaces import Observer, Update
from trainwright.train.state import TrainingState


class Stopped(Exception):
    """An evaluation was abandoned because a stop was asked for; the state is sound."""


class Trainer:
    """Trains a state in place, by the steps of an engine.

    ``test_samples`` bounds the test split, for accelerators that are slow to simulate. ``save`` is
    called with the state at most every ``save_seconds``, between steps. ``stop`` is asked between
    steps and between the batches of an evaluation. Raises ``DataError`` where data and network do
    not fit, ``ValueError`` where the chip's tables do not hold the schedule, and what
    ``StepEngine.open`` raises.
    """

    def __init__(
        self,
        state: TrainingState,
        data: DataSet,
        engine: StepEngine,
        *,
        observer: Observer | None = None,
        test_samples: int | None = None,
        save: Callable[[TrainingState], None] | None = None,
        save_seconds: float = 30.0,
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        check_data(state.network, data, state.settings.batch)
        self.state, self.engine = state, engine
        self.total_steps = state.settings.total_steps(len(data.train))
        self._data = data
        self._test = data.test if test_samples is None else data.test.first(test_samples)
        self._save = save or (lambda state: None)
        self._save_seconds = save_seconds
        self._task = TrainingTask(
            state, data, self._test, self.total_steps, self._make_update(), self._batch,
            self._count_writes, self._labels, self._occupied(), lambda: self._save(state),
        )  # fmt: skip
        engine.open(self._task)
        self._epoch_began: tuple[int, int] | None = None
        self.host_writes: int | None = None
        """Bytes that the host gave the accelerator in the last epoch that this trainer saw whole,
        from its first step to its last; None before."""
        self._health = TensorHealth()
        self._observer = observer or Observer()
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
            if time.monotonic() - saved > self._save_seconds:
                self._save(self.state)
                saved = time.monotonic()
        return True

    def step(self) -> StepRecord:
        """Run one training step, or as many as a resident program does alone.

        The state changes only after all results are in.
        """
        state, engine = self.state, self.engine
        # Work on a copy: an exception or a signal in the middle leaves the state as it was.
        scales = state.scales.copy()
        count = engine.end(state.step) - state.step
        with self._waiting():
            done = engine.run(count, scales)
        if done.verification:
            state.verification += done.verification
            self._observer.verified(state.verification)
        # The update is the last thing that can fail: after it the state is complete.
        rates = engine.take()
        state.scales = scales
        # Before the scales move, while the statistics still belong to the exponents in use.
        for message in (
            *self._health.observe(done.statistics),
            *self._health.observe(done.observed, steps=count),
        ):
            warn_user(message, LostTensorWarning)
        follows = state.settings.scales == "automatic"
        moved = done.moved + (scales.update(done.statistics) if follows else 0)
        record = self._record(done, count, rates, moved)
        state.step = record.step
        state.history.steps.append(record)
        # A long run keeps the scales of about SCALE_RECORDS steps: a record for each tensor and
        # step would outgrow the checkpoint's weights.
        interval = max(1, self.total_steps // SCALE_RECORDS)
        if state.step // interval > (state.step - count) // interval:
            state.history.scales += _scale_records(state.step, done)
        self._observer.stepped(record)
        self._count_writes()
        self._cut()
        if engine.unattended:
            self._save(state)
        return record

    def _record(
        self, done: StepResult, count: int, rates: tuple[float, float], moved: int
    ) -> StepRecord:
        """Return the record of ``count`` steps, after which ``moved`` exponents moved."""
        state = self.state
        return StepRecord(
            step=state.step + count,
            epoch=state.step // self._steps_an_epoch() + 1,
            loss=done.loss,
            correct=done.correct,
            samples=done.words or count * state.settings.batch,
            learning_rate=rates[0],
            prior_weight=rates[1],
            cycles=done.cycles,
            seconds=done.seconds,
            moved=moved,
            saturations=done.saturations,
            underflows=done.underflows,
            ranks=ranks_left(state.model),
        )

    def _count_writes(self) -> None:
        """Note where an epoch begins, and what was written where it ends."""
        step, written = self.state.step, self.engine.driver.written
        if step % self._steps_an_epoch():
            return
        if self._epoch_began is not None and step == self._epoch_began[0] + self._steps_an_epoch():
            self.host_writes = written - self._epoch_began[1]
        self._epoch_began = step, written

    def calibrate(self) -> None:
        """Choose the exponents by the next batch, as the first step of a run does by itself."""
        with self._waiting():
            self._task.calibrate(self.engine.driver, self.state.scales)

    def evaluate_test(self) -> Evaluation:
        """Classify the test split and add the accuracy to the history.

        Raises ``Stopped`` when a stop is asked for before it is done.
        """
        with self._waiting():
            result = evaluate(
                self.engine.driver,
                self.state.model,
                self.state.scales,
                self._quantiser,
                self._test,
                self.state.settings.batch,
                labels=LabelKinds(
                    class_names(self.state.network, self._data),
                    self._data.line_names,
                    self._data.scale,
                ),
                progress=self._evaluating,
            )
        self._evaluated(result.accuracy)
        return result

    def _evaluate(self) -> None:
        """Classify the test split between epochs, on the accelerator alone if it can."""
        with self._waiting():
            correct = self.engine.classify(self.state.scales)
        if correct is None:
            self.evaluate_test()
        else:
            # The accelerator reads no words behind the network's last token.
            network = self.state.network
            labels = network.labels_of(network.main, self._test.labels)
            cut = labels.reshape(len(labels), -1)[:, network.tokens :]
            correct += int((cut == outside_of(self._data.class_names)).sum())
            self._evaluated(correct / int((labels >= 0).sum()))

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

    def _steps_an_epoch(self) -> int:
        return len(self._data.train) // self.state.settings.batch

    def _evaluation_is_due(self) -> bool:
        # A resumed run may start at an epoch's end that it has evaluated already.
        step, evaluations = self.state.step, self.state.history.evaluations
        done = bool(evaluations) and evaluations[-1].step == step
        return step > 0 and step % self._steps_an_epoch() == 0 and not done

    @property
    def _quantiser(self) -> ImageQuantiser:
        # Other ranks may have a program with another exponent of its inputs.
        chip, exponent = self.state.settings.chip, self.engine.driver.input_exponent
        pixels = None if chip is None else chip.pixels
        return input_quantiser(self.state.network, self._data.full_scale, exponent, pixels)

    def _batch(self, step: int) -> tuple[torch.Tensor, torch.Tensor]:
        indices = self._indices(step)
        return self._quantiser(self._data.train.images[indices]), self._labels_of(indices)

    def _indices(self, step: int) -> np.ndarray:
        settings = self.state.settings
        draw = batch_indices if settings.chip is None else chip_batch_indices
        return draw(len(self._data.train), settings.batch, settings.seed, step)

    def _labels_of(self, indices: np.ndarray) -> torch.Tensor:
        return label_tensor(self._data.train.labels[indices], self.state.network.labels)

    def _labels(self, step: int) -> int:
        network, labels = self.state.network, self._labels_of(self._indices(step))
        labels = label_words(network.labels_of(network.main, labels).numpy())
        return int((labels > no_label(network.classes)).sum())

    def _occupied(self) -> Occupied | None:
        """Return the counts of an average sample: a run on the chip has one count of all steps."""
        network = self.state.network
        if self.state.settings.chip is None or not network.padding:
            return None
        words = self._data.train.images.reshape(len(self._data.train), -1)[:, : network.tokens]
        present = np.zeros((len(words), network.tokens), bool)
        present[:, : words.shape[1]] = words != PADDING
        return TokenCounts(network, torch.from_numpy(present)).of

    def _make_update(self) -> Update:
        state, samples = self.state, len(self._data.train)
        if isinstance(state.model, ChipModel):
            return ChipUpdate(state.model, state.settings, total=self.total_steps, samples=samples)
        return HostUpdate(state.model, state.settings, samples=samples)

    def _cut(self) -> None:
        prior, chip = self.state.settings.prior, self.state.settings.chip
        keeps = chip is not None and chip.cut_programs == "kept"
        # Kept programs cut on the accelerator at any step; their ranks are compared after every
        # step.
        if prior is None or (self.state.step % prior.interval and not keeps):
            return
        network = self._task.update.cut()
        if network is None:
            return
        if not keeps:
            self.engine.reopen()
        self._observer.cut(self.state.step, network)


def _scale_records(step: int, done: StepResult) -> list[ScaleRecord]:
    # The accelerator clears its sums when it moves exponents by them: no mean is left to record.
    return [
        ScaleRecord(
            step,
            name,
            s.exponent,
            s.mean_fraction if name in done.statistics else None,
            s.saturations / s.count,
            s.underflows / s.count,
        )
        for name, s in (done.statistics or done.observed).items()
    ]

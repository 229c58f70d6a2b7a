"""What is written while a run goes on: history.jsonl, and event files for TensorBoard.

Both are functions of the history. A resumed run writes them again from the history in its
checkpoint, so that repeated steps are in them once.
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

from trainwright.cli.errors import OptionError
from trainwright.network import Network
from trainwright.support.files import write_whole
from trainwright.train.history import (
    EvaluationRecord,
    History,
    Record,
    ScaleRecord,
    StepRecord,
    to_line,
    with_flat_ranks,
)
from trainwright.train.interfaces import Observer

EVENTS = "tensorboard"
"""Folder of the event files in that of the run."""
EVERY = 10
"""Steps whose means are one point of TensorBoard's curves."""


def check_tensorboard(wanted: bool) -> None:
    """Raise ``OptionError`` where event files are wanted and the package is not there."""
    if wanted and find_spec("tensorboard") is None:
        raise OptionError("--tensorboard needs tensorboard: pip install 'trainwright[train]'")


class Log(Observer):
    """Written to from the start of a run to ``close``."""

    def close(self) -> None:
        """Write out what is left."""


class JsonLines(Log):
    """``history.jsonl``: every record when it happens; see ``History.to_lines``."""

    def __init__(self, path: Path, history: History) -> None:
        self._path, self._history = path, history
        self._file: IO[str] | None = None
        self._flushed = 0.0

    def started(self, step: int, total: int, network: Network) -> None:
        """See ``Observer``."""
        self.close()
        try:
            write_whole(self._path, self._history.to_lines())
            self._file = self._path.open("a", encoding="utf-8")
        except OSError as error:
            raise self._complaint(error) from None

    def stepped(self, record: StepRecord) -> None:
        """See ``Observer``."""
        self._add(record, *self._history.scales_of(record.step))

    def evaluated(self, record: EvaluationRecord) -> None:
        """See ``Observer``."""
        self._add(record)

    def _add(self, *records: Record) -> None:
        if self._file is None:
            return
        try:
            self._file.write("".join(map(to_line, records)))
            if time.monotonic() - self._flushed > 1:
                self._file.flush()
                self._flushed = time.monotonic()
        except OSError as error:
            raise self._complaint(error) from None

    def close(self) -> None:
        """See ``Log``."""
        file, self._file = self._file, None
        if file is not None:
            try:
                file.close()
            except OSError as error:
                raise self._complaint(error) from None

    def _complaint(self, error: OSError) -> OptionError:
        return OptionError(f"cannot write {self._path}: {error.strerror}")


class TensorBoard(Log):
    """One event file: means over ``EVERY`` steps, ranks and size when they change, test accuracy,
    and exponents and saturation of all tensors in the steps whose scales are kept.

    Needs the package ``tensorboard``. ``network`` is that of the start of the run.
    """

    def __init__(self, folder: Path, history: History, network: Network) -> None:
        self._folder, self._history, self._network = folder, history, network
        self._writer: Any = None
        self._recent: list[StepRecord] = []
        self._ranks: tuple[int, ...] = ()
        self._evaluated = 0

    def started(self, step: int, total: int, network: Network) -> None:
        """See ``Observer``."""
        from torch.utils.tensorboard import SummaryWriter

        self.close()
        self._recent, self._ranks, self._evaluated = [], (), 0
        try:
            self._folder.mkdir(exist_ok=True)
            for path in self._folder.glob("events.out.tfevents.*"):
                path.unlink()
            self._writer = SummaryWriter(str(self._folder), flush_secs=10)
        except OSError as error:
            raise OptionError(f"cannot write to {self._folder}: {error.strerror}") from None
        for record in self._history.in_order():
            if isinstance(record, StepRecord):
                self._step(record)
            elif isinstance(record, ScaleRecord):
                self._scale(record)
            else:
                self.evaluated(record)

    def stepped(self, record: StepRecord) -> None:
        """See ``Observer``."""
        if self._writer is not None:
            self._step(record)
            for scale in self._history.scales_of(record.step):
                self._scale(scale)

    def _step(self, record: StepRecord) -> None:
        if record.ranks != self._ranks:
            self._ranks = record.ranks
            self._add_ranks(record.step, with_flat_ranks(self._network, record.ranks))
        self._recent.append(record)
        if record.step % EVERY == 0:
            self._add_means()

    def evaluated(self, record: EvaluationRecord) -> None:
        """See ``Observer``."""
        if self._writer is not None and record.step > self._evaluated:
            self._evaluated = record.step
            self._writer.add_scalar("test/accuracy", record.accuracy, record.step)

    def _add_means(self) -> None:
        recent, self._recent = self._recent, []
        last, steps = recent[-1], len(recent)
        values = {
            "train/loss": sum(r.loss for r in recent) / steps,
            "train/accuracy": sum(r.correct for r in recent) / sum(r.samples for r in recent),
            "train/learning rate": last.learning_rate,
            "train/prior weight": last.prior_weight,
            "scales/exponents moved": sum(r.moved for r in recent) / steps,
            "scales/values saturated": sum(r.saturations for r in recent) / steps,
            "scales/values underflowed": sum(r.underflows for r in recent) / steps,
        }
        if last.cycles:
            values["accelerator/cycles a step"] = sum(r.cycles for r in recent) / steps
        for name, value in values.items():
            self._writer.add_scalar(name, value, last.step)

    def _scale(self, r: ScaleRecord) -> None:
        self._writer.add_scalar(f"exponent/{r.tensor}", r.exponent, r.step)
        self._writer.add_scalar(f"saturated/{r.tensor}", r.saturated, r.step)

    def _add_ranks(self, step: int, network: Network) -> None:
        self._writer.add_scalar("model/bits", network.model_bits, step)
        self._writer.add_scalar("model/reduction", network.reduction, step)
        for number, ranks in enumerate(network.ranks, 1):
            for bond, rank in enumerate(ranks, 1):
                self._writer.add_scalar(f"ranks/layer {number}, bond {bond}", rank, step)

    def close(self) -> None:
        """See ``Log``."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()


@contextmanager
def logging(
    folder: Path, history: History, network: Network, *, tensorboard: bool
) -> Iterator[list[Log]]:
    """The logs of a run, closed at the end."""
    logs: list[Log] = [JsonLines(folder / "history.jsonl", history)]
    if tensorboard:
        logs.append(TensorBoard(folder / EVENTS, history, network))
    with ExitStack() as stack:
        for log in logs:
            stack.callback(log.close)
        yield logs

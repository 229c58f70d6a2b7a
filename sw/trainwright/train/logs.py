"""Files written during a run: history.jsonl, and curves that other programs draw.

Both follow from the history. A resumed run writes both again from the history in its checkpoint,
so that repeated steps appear once.
"""

import csv
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any, Protocol

from trainwright.network import Network
from trainwright.support.errors import UserError, file_errors, one_line
from trainwright.support.files import write_whole
from trainwright.support.text import suggestion
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


class LogError(UserError, ValueError):
    """Error: an unknown log, or a log that fails."""


# -- sinks of curves -------------------------------------------------------------------------------
EVENTS = "tensorboard"
"""Folder of the event files, in the run's folder."""
CURVES = "curves.csv"


class Sink(Protocol):
    """Receiver of points of curves, made with the folder and the settings (plain data) of a run.

    A resumed run makes a new sink, and adds all points from the first step on.
    """

    def add(self, step: int, values: Mapping[str, float], /) -> None:
        """Add values by the name of their curve, after ``step`` steps; steps never fall."""
        ...

    def close(self) -> None:
        """Close the log; a resumed run makes another one."""
        ...


OpenSink = Callable[[Path, Mapping[str, Any]], Sink]


class TensorBoard:
    """Event file in ``tensorboard/``. Needs the package ``tensorboard``."""

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        from torch.utils.tensorboard import SummaryWriter

        place = folder / EVENTS
        place.mkdir(exist_ok=True)
        for path in place.glob("events.out.tfevents.*"):
            path.unlink()
        self._writer = SummaryWriter(str(place), flush_secs=10)

    def add(self, step: int, values: Mapping[str, float]) -> None:
        """See ``Sink``."""
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        """See ``Sink``."""
        self._writer.close()


class Csv:
    """``curves.csv``: a line for each point, with step, name of the curve and value."""

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        self._file = (folder / CURVES).open("w", encoding="utf-8", newline="", buffering=1)
        self._lines = csv.writer(self._file, lineterminator="\n")
        self._lines.writerow(("step", "name", "value"))

    def add(self, step: int, values: Mapping[str, float]) -> None:
        """See ``Sink``."""
        self._lines.writerows((step, name, value) for name, value in values.items())

    def close(self) -> None:
        """See ``Sink``."""
        self._file.close()


OWN: dict[str, OpenSink] = {"tensorboard": TensorBoard, "csv": Csv}


def own(names: Iterable[str] | None) -> list[str]:
    """Select the names that a checkpoint may hold: no file chooses code that is loaded."""
    return [name for name in names or () if name in OWN]


def check_curves(names: Iterable[str] | None) -> None:
    """Raise ``LogError`` for a sink that is unknown or not installed."""
    for name in names or ():
        find_sink(name)
        if name == "tensorboard" and find_spec("tensorboard") is None:
            raise LogError("--tensorboard needs tensorboard: pip install 'trainwright[train]'")


def find_sink(name: str) -> OpenSink:
    """Find a sink by name or, in the current folder too, MODULE:CLASS. Raises ``LogError``."""
    if name in OWN:
        return OWN[name]
    module, colon, attribute = name.partition(":")
    if not colon:
        raise LogError(
            f"--log: no {name!r}; there are {', '.join(OWN)}, and MODULE:CLASS"
            f"{suggestion(name, OWN)}"
        )
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        return getattr(import_module(module), attribute)
    except Exception as error:  # whatever its module does
        raise LogError(f"--log {name}: {one_line(error)}") from error


# -- logs ------------------------------------------------------------------------------------------
EVERY = 10
"""Steps whose means are one point of a curve."""


class JsonLines(Observer):
    """``history.jsonl``: every record when it happens; see ``History.to_lines``."""

    def __init__(self, path: Path, history: History) -> None:
        self._path, self._history = path, history
        self._file: IO[str] | None = None

    def started(self, step: int, total: int, network: Network) -> None:
        """See ``Observer``."""
        self.close()
        with file_errors(f"cannot write {self._path}"):
            write_whole(self._path, self._history.to_lines())
            self._file = self._path.open("a", encoding="utf-8", buffering=1)

    def stepped(self, record: StepRecord) -> None:
        """See ``Observer``."""
        self._add(record, *self._history.scales_of(record.step))

    def evaluated(self, record: EvaluationRecord) -> None:
        """See ``Observer``."""
        self._add(record)

    def _add(self, *records: Record) -> None:
        if self._file is not None:
            with file_errors(f"cannot write {self._path}"):
                self._file.write("".join(map(to_line, records)))

    def close(self) -> None:
        """Write out what is left."""
        file, self._file = self._file, None
        if file is not None:
            with file_errors(f"cannot write {self._path}"):
                file.close()


class Curves(Observer):
    """Points for a sink.

    Means over ``EVERY`` steps or over those of one record, if it has more; ranks and size when they
    change; test accuracy; exponents and saturation of all tensors in the steps whose scales are
    kept. ``network`` is that of the start of the run. Errors of the sink become ``LogError``.
    """

    def __init__(
        self, name: str, folder: Path, settings: dict[str, Any], history: History, network: Network
    ) -> None:
        self._name, self._folder, self._settings = name, folder, settings
        self._history, self._network = history, network
        self._sink: Sink | None = None
        self._recent: list[StepRecord] = []
        self._ranks: tuple[int, ...] = ()
        self._evaluated = self._shown = self._total = 0

    def started(self, step: int, total: int, network: Network) -> None:
        """See ``Observer``."""
        self.close()
        self._recent, self._ranks, self._evaluated = [], (), 0
        self._shown, self._total = 0, total
        with self._complaints():
            self._sink = find_sink(self._name)(self._folder, self._settings)
        takers = {
            StepRecord: self._step,
            ScaleRecord: self._scale,
            EvaluationRecord: self.evaluated,
        }
        for record in self._history.in_order():
            takers[type(record)](record)

    def stepped(self, record: StepRecord) -> None:
        """See ``Observer``."""
        self._step(record)
        for scale in self._history.scales_of(record.step):
            self._scale(scale)

    def _step(self, record: StepRecord) -> None:
        if record.ranks != self._ranks:
            self._ranks = record.ranks
            self._add_ranks(record.step, with_flat_ranks(self._network, record.ranks))
        self._recent.append(record)
        if record.step // EVERY > self._shown // EVERY or record.step == self._total:
            self._add_means()

    def evaluated(self, record: EvaluationRecord) -> None:
        """See ``Observer``."""
        if record.step > self._evaluated:
            self._evaluated = record.step
            name = "test/r2" if self._network.is_regression else "test/accuracy"
            self._add(record.step, {name: record.accuracy})

    def _add_means(self) -> None:
        recent, self._recent = self._recent, []
        last, samples = recent[-1], max(1, sum(r.samples for r in recent))
        steps, self._shown = last.step - self._shown, last.step

        def total(name: str) -> float:
            return sum(getattr(r, name) for r in recent)

        values = {
            "train/loss": sum(r.loss * r.samples for r in recent) / samples,
            "train/accuracy": total("correct") / samples,
            "train/learning rate": last.learning_rate,
            "train/prior weight": last.prior_weight,
            "scales/exponents moved": total("moved") / steps,
            "scales/values saturated": total("saturations") / steps,
            "scales/values underflowed": total("underflows") / steps,
            "accelerator/cycles a step": total("cycles") / steps,
        }
        if self._network.is_regression:
            del values["train/accuracy"]
        if not last.cycles:
            del values["accelerator/cycles a step"]
        self._add(last.step, values)

    def _scale(self, r: ScaleRecord) -> None:
        self._add(
            r.step, {f"exponent/{r.tensor}": r.exponent, f"saturated/{r.tensor}": r.saturated}
        )

    def _add_ranks(self, step: int, network: Network) -> None:
        values = {"model/bits": float(network.model_bits), "model/reduction": network.reduction}
        for number, ranks in enumerate(network.ranks, 1):
            for bond, rank in enumerate(ranks, 1):
                values[f"ranks/layer {number}, bond {bond}"] = rank
        self._add(step, values)

    def _add(self, step: int, values: Mapping[str, float]) -> None:
        if self._sink is not None:
            with self._complaints():
                self._sink.add(step, values)

    def close(self) -> None:
        """Close the log; a resumed run makes another one."""
        sink, self._sink = self._sink, None
        if sink is not None:
            with self._complaints():
                sink.close()

    @contextmanager
    def _complaints(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # a sink may be anyone's
            raise LogError(f"--log {self._name}: {one_line(error)}") from error


@contextmanager
def logging(
    folder: Path, history: History, network: Network, names: Iterable[str], settings: dict[str, Any]
) -> Iterator[Sequence[Observer]]:
    """Open the logs of a run and close them at the end; ``names`` are sinks of ``curves``.

    ``network`` is that of the start of the run.
    """
    logs = [
        JsonLines(folder / "history.jsonl", history),
        *(Curves(name, folder, settings, history, network) for name in names),
    ]
    with ExitStack() as stack:
        for log in logs:
            stack.callback(log.close)
        yield logs

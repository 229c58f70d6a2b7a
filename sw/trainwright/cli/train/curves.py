"""Sinks of a run's curves: TensorBoard, CSV, and classes of a user's own."""

import csv
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from trainwright.cli.errors import OptionError, one_line
from trainwright.support.text import suggestion

EVENTS = "tensorboard"
"""Folder of the event files in that of the run."""
CURVES = "curves.csv"


class Sink(Protocol):
    """Takes points of curves. Made with the folder of the run and its settings, as plain data.

    A run that goes on makes another one and gives it all points from the first step on.
    """

    def add(self, step: int, values: Mapping[str, float], /) -> None:
        """Add values by the name of their curve, after ``step`` steps; steps never fall."""
        ...

    def close(self) -> None:
        """End, at least for now."""
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
    """Select the names that checkpoints hold: no code is loaded because a file names it."""
    return [name for name in names or () if name in OWN]


def check_curves(names: Iterable[str] | None) -> None:
    """Raise ``OptionError`` where a sink is not there."""
    for name in names or ():
        find_sink(name)
        if name == "tensorboard" and find_spec("tensorboard") is None:
            raise OptionError("--tensorboard needs tensorboard: pip install 'trainwright[train]'")


def find_sink(name: str) -> OpenSink:
    """Find a sink by name or, in the current folder too, MODULE:CLASS. Raises ``OptionError``."""
    if name in OWN:
        return OWN[name]
    module, colon, attribute = name.partition(":")
    if not colon:
        raise OptionError(
            f"--log: no {name!r}; there are {', '.join(OWN)}, and MODULE:CLASS"
            f"{suggestion(name, OWN)}"
        )
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        return getattr(import_module(module), attribute)
    except Exception as error:  # whatever its module does
        raise OptionError(f"--log {name}: {one_line(error)}") from error

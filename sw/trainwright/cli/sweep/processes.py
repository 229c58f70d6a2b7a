"""Trials of a sweep: runs of ``trainwright train``, each in a folder of its own.

A trial is kept when it is done, else resumed. Trials are processes of this machine, each trained
to its end however often it is killed.
"""

import json
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from re import search
from threading import Event
from typing import Any

from trainwright.cli.errors import OptionError
from trainwright.cli.output import stop_bars, tell, teller
from trainwright.cli.train.folder import CHECKPOINT, RESULT
from trainwright.support.children import Children, result_of
from trainwright.support.errors import file_errors
from trainwright.support.files import write_whole
from trainwright.support.locks import LOCK, Locked, locked
from trainwright.support.text import amount
from trainwright.support.waiting import SO_FAR

# -- a trial ---------------------------------------------------------------------------------------
ORIGIN = "command.txt"
"""File with the command line of a trial, next to its results."""


@dataclass(frozen=True)
class Trial:
    """``options`` are of ``trainwright train`` and decide the bits; ``name`` is shown."""

    name: str
    options: tuple[str, ...]
    folder: Path
    prepared: Path | None = field(default=None, compare=False, kw_only=True)
    """File with own data as the sweep read it."""

    @property
    def command(self) -> str:
        """The command line that makes it."""
        return "trainwright train " + shlex.join(self.options)

    @property
    def finished(self) -> bool:
        """Whether its result lies in the folder."""
        return (self.folder / RESULT).is_file()

    def check(self) -> None:
        """Raise ``OptionError`` where the folder has a run of other options."""
        try:
            stored = (self.folder / ORIGIN).read_text().strip()
        except FileNotFoundError:
            return
        if stored != self.command:
            raise OptionError(
                f"{self.folder} holds `{stored}` and not `{self.command}`: name another --out"
            )

    def result(self) -> dict[str, Any]:
        """Read the result of ``trainwright train``. Raises ``OptionError``."""
        with self._reading(RESULT) as text:
            return json.loads(text)

    def history(self, kind: str) -> Iterator[dict[str, Any]]:
        """Yield the records of one kind in ``history.jsonl``. Raises ``OptionError``."""
        with self._reading("history.jsonl") as text:
            lines = (line for line in text.splitlines() if f'"kind": "{kind}"' in line)
            yield from map(json.loads, lines)

    @contextmanager
    def _reading(self, name: str) -> Iterator[str]:
        try:
            yield (self.folder / name).read_text()
        except (OSError, ValueError) as error:
            damage = f"{self.folder / name} is damaged: {error}; remove its folder"
            raise OptionError(damage) from None


Progress = Callable[[Trial, int, int], None]
"""Told a trial, its steps done and all its steps."""


# -- processes -------------------------------------------------------------------------------------
MOST_KILLS = 3
"""Times that a trial goes on after its process was killed; more kills have a lasting cause."""
INTERRUPTED = 130
_KILLED = (128 + signal.SIGKILL, 128 + signal.SIGTERM)
"""Exit statuses of a process whose shell or handler reports a signal."""


def train(
    trial: Trial,
    data: str | None,
    progress: Progress,
    *,
    stopped: Callable[[], bool] = lambda: False,
    where: Path | None = None,
) -> int:
    """Train to the end, from a checkpoint where there is one; return 0, or 130 if interrupted.

    A process that is killed is followed by another, from the last checkpoint. ``where``: folder
    that paths are relative to, by default the current one. Raises ``OptionError`` with what a
    failed training says.
    """
    status = 0
    for _ in range(1 + MOST_KILLS):
        while not trial.finished and _is_busy(trial) and not stopped():
            time.sleep(0.2)  # an earlier sweep was killed: its training ends, or is about to
        if trial.finished:
            return 0
        if stopped():
            return INTERRUPTED
        status, last = _session(trial, data, progress, where)
        if status == 0:
            return 0
        if status in (INTERRUPTED, -signal.SIGINT):
            return INTERRUPTED
        if status > 0 and status not in _KILLED:
            message = last.removeprefix("trainwright: error: ")
            raise OptionError(f"`{trial.command}` failed: {message}")
    raise OptionError(
        f"`{trial.command}` was killed {1 + MOST_KILLS} times (status {status}): give it more "
        "memory or fewer --jobs; the same command goes on"
    )


def _is_busy(trial: Trial) -> bool:
    """Return whether a process is at work in the folder."""
    try:
        with locked(trial.folder / LOCK, wait=False):
            return False
    except Locked:
        return True
    except (FileNotFoundError, NotADirectoryError):  # no folder yet
        return False


def _session(
    trial: Trial, data: str | None, progress: Progress, where: Path | None
) -> tuple[int, str]:
    """Run one process; return its exit status and the last line that it wrote."""
    command = [sys.executable, "-m", "trainwright.cli", "train", "--json"]
    command += ["--out", str(trial.folder)]
    if (trial.folder / CHECKPOINT).is_file():
        command += ["--resume"]
    else:
        with file_errors(f"cannot write to {trial.folder}", OptionError):
            trial.folder.mkdir(parents=True, exist_ok=True)
            write_whole(trial.folder / ORIGIN, trial.command + "\n")
        command += ["--force", *trial.options]
    if data is not None:
        command += ["--data", data]
    if trial.prepared is not None:
        command += ["--prepared", str(trial.prepared)]
    last = ""
    with (
        subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd=where
        ) as process,
        _TRAININGS.including(process),
    ):
        assert process.stderr is not None
        for line in process.stderr:
            last = line.strip() or last
            if step := search(r"step (\d+)/(\d+)", line):
                progress(trial, int(step[1]), int(step[2]))
            elif SO_FAR in line:  # compiling, or building a simulator
                tell([f"trainwright: {trial.name}: {last.removeprefix('trainwright: ')}"])
        return process.wait(), last


_TRAININGS = Children()
"""Trainings that run."""


Failures = dict[Trial, str]
"""Messages of the trials that failed."""


def train_all(
    trials: Sequence[Trial], jobs: int | None, data: str | None, progress: Progress
) -> Failures | None:
    """Train all, ``jobs`` (1) at a time; None where interrupted. A failure stops no other trial.

    An interrupt ends the trainings too: they leave their checkpoints, and no other begins.
    """
    stop = Event()

    def one(trial: Trial) -> int:
        return INTERRUPTED if stop.is_set() else train(trial, data, progress, stopped=stop.is_set)

    with ThreadPoolExecutor(jobs or 1) as pool:
        futures = {trial: pool.submit(one, trial) for trial in trials}
        try:
            return _endings(futures)
        except BaseException as error:
            stop.set()
            _TRAININGS.end()  # `kill` reaches this process alone
            if not isinstance(error, KeyboardInterrupt):
                raise
            return _endings(futures)


def _endings(futures: dict[Trial, Future[int]]) -> Failures | None:
    failures: Failures = {}
    whole = True
    for trial, future in futures.items():
        try:
            whole = result_of(future) == 0 and whole
        except OptionError as error:
            failures[trial] = str(error)
    return failures if whole else None


# -- progress --------------------------------------------------------------------------------------
Engine = Callable[[Sequence[Trial], int | None, str | None, Progress], Failures | None]
"""Trains trials: ``trainwright.cli.sweep.processes.train_all``, or that of ``ray_tune``."""


def complete(
    trials: Sequence[Trial], *, jobs: int | None, data: str | None, engine: Engine = train_all
) -> Failures | None:
    """Train trials that are not finished and show how far; report an interrupt and return None."""
    for trial in trials:
        trial.check()
    tells = {trial: teller(trial.name, 30) for trial in trials if not trial.finished}
    if finished := len(trials) - len(tells):
        print(f"finished: {finished:,} of {amount(len(trials), 'run')}", file=sys.stderr)
    failures = engine(trials, jobs, data, lambda trial, *steps: tells[trial](*steps))
    stop_bars()
    if failures is None:
        print("trainwright: interrupted; the same command goes on", file=sys.stderr)
    return failures

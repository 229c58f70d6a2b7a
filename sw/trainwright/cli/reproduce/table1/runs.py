"""The runs behind the table: processes of ``trainwright train``, kept when done, else resumed."""

import json
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from re import search
from typing import Any

from trainwright.cli.errors import OptionError
from trainwright.cli.reproduce.table1.rows import Row
from trainwright.cli.train.folder import CHECKPOINT, RESULT
from trainwright.support.files import write_whole

ORIGIN = "command.txt"
"""The command line of a run, beside its results."""


@dataclass(frozen=True)
class Run:
    """One row with one seed, in a folder of its own."""

    row: Row
    seed: int
    folder: Path
    epochs: int

    @property
    def options(self) -> tuple[str, ...]:
        """Options of ``trainwright train`` that decide the bits."""
        epochs = min(self.row.epochs or self.epochs, self.epochs)
        return (
            "--network", "fashion", "--epochs", str(epochs), "--seed", str(self.seed),
            *self.row.options,
        )  # fmt: skip

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
        """What ``trainwright train`` wrote. Raises ``OptionError``."""
        path = self.folder / RESULT
        try:
            return json.loads(path.read_text())
        except (OSError, ValueError) as error:
            raise OptionError(f"{path} is damaged: {error}; remove its folder") from None

    def history(self, kind: str) -> Iterator[dict[str, Any]]:
        """Records of ``history.jsonl`` of one kind. Raises ``OptionError``."""
        path = self.folder / "history.jsonl"
        try:
            for line in path.read_text().splitlines():
                if f'"kind": "{kind}"' in line:
                    yield json.loads(line)
        except (OSError, ValueError) as error:
            raise OptionError(f"{path} is damaged: {error}; remove its folder") from None


Progress = Callable[[Run, int, int], None]
"""Told a run, its steps done and all its steps."""


def train(run: Run, data: str | None, progress: Progress) -> int:
    """Train to the end, from a checkpoint where there is one; the exit status."""
    if run.finished:
        return 0
    command = [sys.executable, "-m", "trainwright.cli", "train", "--out", str(run.folder), "--json"]
    if (run.folder / CHECKPOINT).is_file():
        command += ["--resume"]
    else:
        run.folder.mkdir(parents=True, exist_ok=True)
        write_whole(run.folder / ORIGIN, run.command + "\n")
        command += ["--force", *run.options]
    if data is not None:
        command += ["--data", data]
    last = ""
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            last = line.strip()
            if found := search(r"step (\d+)/(\d+)", line):
                progress(run, int(found[1]), int(found[2]))
        status = process.wait()
    if status not in (0, 130, -signal.SIGINT):
        raise OptionError(f"`{run.command}` failed: {last.removeprefix('trainwright: error: ')}")
    return status


def train_all(runs: Sequence[Run], jobs: int, data: str | None, progress: Progress) -> bool:
    """Train all runs, ``jobs`` at a time; whether all were finished.

    An interrupt reaches the trainings too: they leave their checkpoints, and no other begins.
    """
    stopped = False

    def one(run: Run) -> int:
        return 130 if stopped else train(run, data, progress)

    with ThreadPoolExecutor(jobs) as pool:
        futures = [pool.submit(one, run) for run in runs]
        try:
            statuses = [future.result() for future in futures]
        except BaseException as error:
            stopped = True
            if not isinstance(error, KeyboardInterrupt):
                raise
            statuses = [future.result() for future in futures]
    return all(status == 0 for status in statuses)

"""A trial: a run of ``trainwright train`` in a folder of its own, kept when done, else resumed."""

import json
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainwright.cli.errors import OptionError
from trainwright.cli.train.folder import RESULT

ORIGIN = "command.txt"
"""The command line of a trial, beside its results."""


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
        path = self.folder / RESULT
        try:
            return json.loads(path.read_text())
        except (OSError, ValueError) as error:
            raise OptionError(f"{path} is damaged: {error}; remove its folder") from None

    def history(self, kind: str) -> Iterator[dict[str, Any]]:
        """Yield the records of one kind in ``history.jsonl``. Raises ``OptionError``."""
        path = self.folder / "history.jsonl"
        try:
            for line in path.read_text().splitlines():
                if f'"kind": "{kind}"' in line:
                    yield json.loads(line)
        except (OSError, ValueError) as error:
            raise OptionError(f"{path} is damaged: {error}; remove its folder") from None


Progress = Callable[[Trial, int, int], None]
"""Told a trial, its steps done and all its steps."""

"""The runs behind the table: a row with a seed is a trial of a sweep."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trainwright.cli.errors import OptionError
from trainwright.cli.reproduce.table1.rows import Row
from trainwright.cli.sweep.progress import complete
from trainwright.cli.sweep.trials import Trial


@dataclass(frozen=True)
class Run(Trial):
    """One row with one seed."""

    row: Row
    seed: int


def seeded(row: Row, seed: int, folder: Path, epochs: int) -> Run:
    """The run of a row, of ``epochs`` epochs where the row has no fewer of its own."""
    epochs = min(row.epochs or epochs, epochs)
    options = ("--network", "fashion", "--epochs", str(epochs), "--seed", str(seed), *row.options)
    return Run(f"{row.name}, seed {seed}", options, folder, row, seed)


def all_runs(rows: Sequence[Row], seeds: int, out: Path, epochs: int) -> list[list[Run]]:
    """The runs of each row, each in ``out``/ROW/seed-N."""
    return [
        [seeded(row, seed, out / row.name / f"seed-{seed}", epochs) for seed in range(seeds)]
        for row in rows
    ]


def train_runs(groups: Sequence[Sequence[Run]], jobs: int, data: str | None) -> bool:
    """Train what is not finished; False where interrupted. Raises the ``OptionError`` of a run."""
    failures = complete([run for group in groups for run in group], jobs=jobs, data=data)
    for message in (failures or {}).values():
        raise OptionError(message)
    return failures is not None

"""Recipes of trainings on Fashion-MNIST that tables compare, and means over their finished runs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any, Protocol


@dataclass(frozen=True)
class PrintedResult:
    """Row of the paper's Table 1: accuracies in percent, memory reduction."""

    train: float
    test: float
    reduction: float


@dataclass(frozen=True)
class Recipe:
    """Choice of ``options`` of ``trainwright train --network fashion``."""

    name: str
    title: str
    options: tuple[str, ...] = ()
    printed: PrintedResult | None = None
    epochs: int | None = None
    """Epochs where fewer are better than those asked for: training without prior overfits."""

    @property
    def scales_picture(self) -> str:
        """Name of the picture of a run's exponents."""
        return f"scales-{self.name}.png"


def read(row: Mapping[str, Any]) -> Recipe:
    """Return the recipe of a table of a TOML file, whose options are one text."""
    printed = PrintedResult(**row["printed"]) if "printed" in row else None
    return Recipe(**{**row, "options": tuple(row["options"].split()), "printed": printed})


class FinishedRun(Protocol):
    """Training of a recipe with one seed, read from its folder."""

    @property
    def row(self) -> Recipe: ...

    @property
    def seed(self) -> int: ...

    @property
    def command(self) -> str:
        """The command line that makes it."""
        ...

    def result(self) -> dict[str, Any]:
        """Read the result of ``trainwright train``."""
        ...

    def history(self, kind: str) -> Iterator[dict[str, Any]]:
        """Yield the records of one kind."""
        ...


Runs = Mapping[Recipe, Sequence[FinishedRun]]
Means = dict[str, Any]
"""Means over the seeds of a recipe, by the names that JSON has; accuracies in percent."""
Combined = tuple[Any, str, Mapping[str, bytes]]
"""Results, tables and pictures of recipes whose runs are finished."""


def common_means(runs: Sequence[FinishedRun]) -> Means:
    """Return the means that every experiment has of the finished runs of one recipe.

    ``test`` is the accuracy of the last epoch's model, ``spread`` the greatest less the least.
    """
    results = [run.result() for run in runs]
    tests = [100 * result["test_accuracy"] for result in results]
    return {
        "seeds": [run.seed for run in runs],
        "test": mean(tests),
        "spread": max(tests) - min(tests),
        "digests": [result["digest"] for result in results],
        "command": runs[0].command,
    }

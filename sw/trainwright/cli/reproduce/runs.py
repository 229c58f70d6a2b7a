"""Experiments on Fashion-MNIST that are trainings: recipes, each with several seeds.

A recipe with a seed is a trial of a sweep: it is kept once finished, and continued if interrupted.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from trainwright.cli.command import CommandBody
from trainwright.cli.declare import command
from trainwright.cli.errors import OptionError, require_packages
from trainwright.cli.options import JsonOptions
from trainwright.cli.output import check_results, show, to_json, write_results
from trainwright.cli.sweep.processes import Trial, complete
from trainwright.report.recipes import Combined, Recipe
from trainwright.support.settings import Option, Positive
from trainwright.support.text import suggestion


@dataclass(frozen=True)
class RecipeRun(Trial):
    """Training of a recipe with one seed."""

    row: Recipe
    seed: int


Runs = Mapping[Recipe, Sequence[RecipeRun]]


def seeded(row: Recipe, seed: int, folder: Path, epochs: int) -> RecipeRun:
    """Return the run of a recipe, of ``epochs`` epochs where the recipe has no fewer of its own."""
    epochs = min(row.epochs or epochs, epochs)
    options = ("--network", "fashion", "--epochs", str(epochs), "--seed", str(seed), *row.options)
    return RecipeRun(f"{row.name}, seed {seed}", options, folder, row, seed)


def all_runs(rows: Sequence[Recipe], seeds: int, out: Path, epochs: int) -> Runs:
    """Return the runs of each recipe, each in ``out``/RECIPE/seed-N."""
    return {
        row: [seeded(row, seed, out / row.name / f"seed-{seed}", epochs) for seed in range(seeds)]
        for row in rows
    }


def rows_named(
    groups: Mapping[str, Sequence[Recipe]], names: Sequence[str] = ()
) -> tuple[Recipe, ...]:
    """Return recipes by name or by group, in the order of the table. Raises ``OptionError``."""
    known = {row.name: row for group in groups.values() for row in group}
    chosen = {row.name for name in names for row in groups.get(name, ())} | set(names)
    for name in names:
        if name not in known and name not in groups:
            words = (*(groups if len(groups) > 1 else ()), *known)
            raise OptionError(
                f"--rows: no row {name!r}; there are {', '.join(words)}{suggestion(name, words)}"
            )
    return tuple(row for row in known.values() if not names or row.name in chosen)


class RecipeOptions(JsonOptions):
    """Options of an experiment that trains recipes; a subclass adds ``rows`` and ``out``."""

    rows: tuple[str, ...]
    out: Annotated[str, Option(metavar="DIR")]
    """folder of the runs and of their tables and pictures"""
    seeds: Positive = 3
    """seeds of each row"""
    epochs: Positive = 30
    """epochs of a run"""
    data: Annotated[str | None, Option(metavar="DIR")] = None
    """folder of the data set's files (default: TRAINWRIGHT_DATA)"""
    jobs: Positive = 1
    """runs at a time"""


def recipe_command(
    kind: type[RecipeOptions], groups: Mapping[str, Sequence[Recipe]],
    combine: Callable[[Runs], Combined], name: str, help: str, epilog: str,
) -> CommandBody:  # fmt: skip
    """Make the command that trains recipes and combines the runs that are finished."""

    def run(options: Any) -> int:
        from trainwright.data import load_data_set

        require_packages("safetensors", "matplotlib")
        out = Path(options.out)
        check_results(out)
        runs = all_runs(rows_named(groups, options.rows), options.seeds, out, options.epochs)
        failures: dict[Trial, str] | None = {}
        if not getattr(options, "finished", False):
            load_data_set("fashion-mnist", options.data)  # fails now and not in a process
            trials = [trial for group in runs.values() for trial in group]
            failures = complete(trials, jobs=options.jobs, data=options.data)
        for message in (failures or {}).values():
            raise OptionError(message)
        done = {row: finished for row, group in runs.items()
                if (finished := [run for run in group if run.finished])}  # fmt: skip
        if failures is None and not done:
            return 130
        results, text, pictures = combine(done)
        files = {**pictures, "table.md": text, "results.json": to_json(results) + "\n"}
        every = [row.scales_picture for group in groups.values() for row in group]
        write_results(out, files, every)
        show(options.json, results, f"{text}\npictures and tables: {out}")
        return 130 if failures is None else 0

    return command(kind, run, name, help, epilog=epilog)

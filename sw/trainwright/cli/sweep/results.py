"""Results of the trials: a row each, their files, and the settings that they are trials of."""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from statistics import mean
from typing import Any

from trainwright.cli.errors import OptionError
from trainwright.cli.sweep.spec import SEED, Point
from trainwright.report.front import Setting, with_front
from trainwright.support.errors import errors_as, file_errors
from trainwright.support.plain import NONSENSE

Row = dict[str, Any]
FINISHED, FAILED, UNFINISHED = "finished", "failed", "unfinished"
_TAKEN = (
    "test_accuracy", "best_test_accuracy", "train_accuracy", "final_loss", "model_bits",
    "reduction", "training_state_bits", "seconds", "mismatches", "digest",
)  # fmt: skip
"""Columns as ``result.json`` has them."""


def read_luts(path: str | None) -> dict[int, int]:
    """Read LUTs by fingerprint of the accelerator, as ``trainwright build --append`` measured them.

    The last line of several counts. Raises ``OptionError``.
    """
    if path is None:
        return {}
    foreign = f"--resources: {path} is not what `trainwright build --append` writes"
    with (
        file_errors(f"--resources: cannot read {path}", OptionError),
        errors_as(foreign, OptionError, NONSENSE),
    ):
        lines = map(json.loads, Path(path).read_text().splitlines())
        return {int(line["fingerprint"]): int(line["luts"]) for line in lines}


def trial_row(point: Point, failure: str | None, luts: Mapping[int, int]) -> Row:
    """Return the row of a trial; accuracies are fractions, ``None`` stands for unknown values.

    ``cycles`` are of a step of the trained network, counted by the simulated hardware or, on a back
    end that counts none, predicted. Raises ``OptionError`` for a damaged result.
    """
    result = point.result() if point.finished else {}
    known: Row = dict.fromkeys((*_TAKEN, "test_r2", "ranks_left", "cycles", "cycles_are"))
    if result:
        with errors_as(f"{point.folder}: remove it, as result.json lacks", OptionError, KeyError):
            known |= {name: result[name] for name in _TAKEN} | {"test_r2": result.get("test_r2")}
            known["ranks_left"] = "|".join(",".join(map(str, ranks)) for ranks in result["ranks"])
            if cost := result["step_cost"]:
                known |= {"cycles": cost["cycles"], "cycles_are": cost["source"]}
    accelerator = point.asked.accelerator
    return {
        **dict(point.values),
        "status": FINISHED if result else FAILED if failure else UNFINISHED,
        **known,
        "luts": None if accelerator is None else luts.get(accelerator.fingerprint),
        "folder": str(point.folder),
        "command": point.command,
        "message": failure,
    }


def settings(points: Sequence[Point], rows: Sequence[Row]) -> list[Setting]:
    """Combine the seeds of finished trials, in their order, and mark the Pareto front."""
    groups: dict[tuple[tuple[str, Any], ...], list[Row]] = {}
    for point, row in zip(points, rows, strict=True):
        if row["status"] == FINISHED:
            key = tuple(item for item in point.values if item[0] != SEED)
            groups.setdefault(key, []).append(row)
    return with_front([_setting(dict(values), group) for values, group in groups.items()])


def _setting(values: Mapping[str, Any], rows: Sequence[Row]) -> Setting:
    tests = [row["test_accuracy"] for row in rows]
    known: dict[str, Any] = {
        name: None if None in (numbers := [row[name] for row in rows]) else mean(numbers)
        for name in ("model_bits", "cycles", "luts")
    }
    reduction = mean(row["reduction"] * row["model_bits"] for row in rows) / known["model_bits"]
    return Setting(
        values, len(rows), mean(tests), min(tests), max(tests), reduction=reduction,
        is_regression=rows[0]["test_r2"] is not None, **known,
    )  # fmt: skip


def to_csv(rows: Sequence[Row]) -> str:
    """Return a line for each trial, after a line with the names of the columns."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def to_parquet(rows: Sequence[Row]) -> bytes:
    """Return the table as Parquet; an axis of several types is text. Needs ``pyarrow``."""
    pyarrow: Any = import_module("pyarrow")
    parquet: Any = import_module("pyarrow.parquet")
    columns = {name: _column([row[name] for row in rows]) for name in rows[0]}
    buffer = io.BytesIO()
    parquet.write_table(pyarrow.table(columns), buffer)
    return buffer.getvalue()


def _column(values: list[Any]) -> list[Any]:
    kinds = {type(value) for value in values} - {type(None)}
    if len(kinds) <= 1 or kinds == {int, float}:
        return [float(v) if kinds == {int, float} and v is not None else v for v in values]
    return [None if value is None else str(value) for value in values]

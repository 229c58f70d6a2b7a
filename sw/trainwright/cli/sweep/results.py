"""What came out of the trials: a row each, means over the seeds, and the Pareto front."""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from statistics import mean
from typing import Any

from trainwright.cli.errors import OptionError
from trainwright.cli.sweep.axes import SEED
from trainwright.cli.sweep.spec import Point
from trainwright.report.tables import markdown

Row = dict[str, Any]
FINISHED, FAILED, UNFINISHED = "finished", "failed", "unfinished"
_TAKEN = (
    "test_accuracy", "best_test_accuracy", "train_accuracy", "final_loss", "model_bits",
    "reduction", "training_state_bits", "seconds", "mismatches", "digest",
)  # fmt: skip
"""Columns as ``result.json`` has them."""
OBJECTIVES = {"test_accuracy": -1, "model_bits": 1, "cycles": 1, "luts": 1}
"""What the front is of: 1 for what is to be small, -1 for what is to be large."""


def read_luts(path: str | None) -> dict[int, int]:
    """LUTs by fingerprint of the accelerator, as ``trainwright build --append`` measured them.

    The last line of several counts. Raises ``OptionError``.
    """
    if path is None:
        return {}
    try:
        lines = map(json.loads, Path(path).read_text().splitlines())
        return {int(line["fingerprint"]): int(line["luts"]) for line in lines}
    except OSError as error:
        raise OptionError(f"--resources: cannot read {path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise OptionError(
            f"--resources: {path} is not what `trainwright build --append` writes: {error!r}"
        ) from None


def trial_row(point: Point, failure: str | None, luts: Mapping[int, int]) -> Row:
    """The row of a trial; accuracies are fractions, ``None`` stands for what is not known.

    ``cycles`` are of a step of the trained network, counted by the simulated hardware or, on a back
    end that counts none, predicted. Raises ``OptionError`` for a damaged result.
    """
    result = point.result() if point.finished else {}
    status = FINISHED if result else FAILED if failure else UNFINISHED
    accelerator = point.checked.accelerator
    try:
        cost = (result["step_cost"] if result else None) or {"cycles": None, "source": None}
        ranks = "|".join(",".join(map(str, layer)) for layer in result["ranks"]) if result else None
        taken = {name: result[name] if result else None for name in _TAKEN}
    except KeyError as error:
        raise OptionError(
            f"{point.folder}: result.json has no {error}; remove its folder"
        ) from None
    return {
        **dict(point.values),
        "status": status,
        **taken,
        "ranks_left": ranks,
        "cycles": cost["cycles"],
        "cycles_are": cost["source"],
        "luts": None if accelerator is None else luts.get(accelerator.fingerprint),
        "folder": str(point.folder),
        "command": point.command,
        "message": failure,
    }


@dataclass(frozen=True)
class Setting:
    """Finished trials that differ in their seed alone: means, and the least and the greatest."""

    values: tuple[tuple[str, Any], ...]
    trials: int
    test_accuracy: float
    """Fraction of the test samples, of the last epoch's model."""
    least: float
    greatest: float
    """Test accuracy of the worst and the best seed."""
    model_bits: float
    reduction: float
    cycles: float | None
    luts: float | None
    front: bool = False

    @property
    def name(self) -> str:
        """Its values."""
        return ", ".join(f"{axis} {value}" for axis, value in self.values) or "all seeds"

    def to_dict(self) -> Row:
        """Plain data for JSON."""
        return {**vars(self), "values": dict(self.values)}


def settings(points: Sequence[Point], rows: Sequence[Row]) -> list[Setting]:
    """What is finished, seeds put together, the Pareto front marked; in the order of the trials."""
    groups: dict[tuple[tuple[str, Any], ...], list[Row]] = {}
    for point, row in zip(points, rows, strict=True):
        if row["status"] == FINISHED:
            key = tuple(item for item in point.values if item[0] != SEED)
            groups.setdefault(key, []).append(row)
    found = [_setting(values, group) for values, group in groups.items()]
    names = objectives(found)
    front = pareto([[OBJECTIVES[name] * getattr(s, name) for name in names] for s in found])
    return [replace(s, front=on) for s, on in zip(found, front, strict=True)]


def _setting(values: tuple[tuple[str, Any], ...], rows: Sequence[Row]) -> Setting:
    tests = [row["test_accuracy"] for row in rows]

    def middle(name: str) -> float | None:
        found = [row[name] for row in rows]
        return None if None in found else mean(found)

    bits = mean(row["model_bits"] for row in rows)
    reduction = mean(row["reduction"] * row["model_bits"] for row in rows) / bits
    return Setting(
        values, len(rows), mean(tests), min(tests), max(tests), bits, reduction,
        middle("cycles"), middle("luts"),
    )  # fmt: skip


def objectives(found: Sequence[Setting]) -> list[str]:
    """Names of what the front is of: what is known of all."""
    return [name for name in OBJECTIVES if all(getattr(s, name) is not None for s in found)]


def pareto(costs: Sequence[Sequence[float]]) -> list[bool]:
    """Of each row of costs whether no other is at most it everywhere and less somewhere."""
    return [
        not any(
            all(a <= b for a, b in zip(other, own, strict=True)) and tuple(other) != tuple(own)
            for other in costs
        )
        for own in costs
    ]


def table(found: Sequence[Setting]) -> str:
    """A line for each setting, the front first, by falling accuracy."""
    ordered = sorted(found, key=lambda s: (not s.front, -s.test_accuracy))
    shown = [name for name in ("cycles", "luts") if any(getattr(s, name) for s in found)]
    head = (
        "front", *(axis for axis, _ in found[0].values), "trials", "test, %", "spread", "bits",
        "reduction", *({"cycles": "cycles a step", "luts": "LUTs"}[name] for name in shown),
    )  # fmt: skip
    rows = [
        (
            "*" if s.front else "", *(str(value) for _, value in s.values), s.trials,
            round(100 * s.test_accuracy, 2),
            None if s.trials == 1 else round(100 * (s.greatest - s.least), 2),
            round(s.model_bits), round(s.reduction, 1),
            *(None if (v := getattr(s, name)) is None else round(v) for name in shown),
        )
        for s in ordered
    ]  # fmt: skip
    return markdown(head, rows)


def to_csv(rows: Sequence[Row]) -> str:
    """A line for each trial, after one with the names of the columns."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def to_parquet(rows: Sequence[Row]) -> bytes:
    """The same table; an axis with values of several types is text. Needs ``pyarrow``."""
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

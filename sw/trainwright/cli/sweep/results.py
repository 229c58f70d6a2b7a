"""Results of the trials: a row each, means over the seeds, and the Pareto front as a picture."""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from statistics import mean
from typing import Any

from matplotlib.ticker import StrMethodFormatter

from trainwright.cli.errors import OptionError
from trainwright.cli.sweep.spec import SEED, Point
from trainwright.support.figure import COLOURS, dress, new_figure, to_png
from trainwright.support.tables import markdown

Row = dict[str, Any]
FINISHED, FAILED, UNFINISHED = "finished", "failed", "unfinished"
_TAKEN = (
    "test_accuracy", "best_test_accuracy", "train_accuracy", "final_loss", "model_bits",
    "reduction", "training_state_bits", "seconds", "mismatches", "digest",
)  # fmt: skip
"""Columns as ``result.json`` has them."""
OBJECTIVES = {"test_accuracy": -1, "model_bits": 1, "cycles": 1, "luts": 1}
"""Objectives of the front: 1 for the smaller the better, -1 for the larger the better."""


def read_luts(path: str | None) -> dict[int, int]:
    """Read LUTs by fingerprint of the accelerator, as ``trainwright build --append`` measured them.

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
    """Return the row of a trial; accuracies are fractions, ``None`` stands for unknown values.

    ``cycles`` are of a step of the trained network, counted by the simulated hardware or, on a back
    end that counts none, predicted. Raises ``OptionError`` for a damaged result.
    """
    result = point.result() if point.finished else {}
    known: Row = dict.fromkeys((*_TAKEN, "ranks_left", "cycles", "cycles_are"))
    try:
        if result:
            known |= {name: result[name] for name in _TAKEN}
            known["ranks_left"] = "|".join(",".join(map(str, ranks)) for ranks in result["ranks"])
            if cost := result["step_cost"]:
                known |= {"cycles": cost["cycles"], "cycles_are": cost["source"]}
    except KeyError as error:
        raise OptionError(
            f"{point.folder}: result.json has no {error}; remove its folder"
        ) from None
    accelerator = point.checked.accelerator
    return {
        **dict(point.values),
        "status": FINISHED if result else FAILED if failure else UNFINISHED,
        **known,
        "luts": None if accelerator is None else luts.get(accelerator.fingerprint),
        "folder": str(point.folder),
        "command": point.command,
        "message": failure,
    }


@dataclass(frozen=True)
class Setting:
    """Finished trials that differ in their seed alone: means, and the least and the greatest."""

    values: Mapping[str, Any]
    """Value of each axis but that of the seeds."""
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
        """Values by axis, as text."""
        return ", ".join(f"{axis} {value}" for axis, value in self.values.items()) or "all seeds"


def settings(points: Sequence[Point], rows: Sequence[Row]) -> list[Setting]:
    """Combine the seeds of finished trials, in their order, and mark the Pareto front."""
    groups: dict[tuple[tuple[str, Any], ...], list[Row]] = {}
    for point, row in zip(points, rows, strict=True):
        if row["status"] == FINISHED:
            key = tuple(item for item in point.values if item[0] != SEED)
            groups.setdefault(key, []).append(row)
    combined = [_setting(dict(values), group) for values, group in groups.items()]
    names = objectives(combined)
    front = pareto([[OBJECTIVES[name] * getattr(s, name) for name in names] for s in combined])
    return [replace(s, front=on) for s, on in zip(combined, front, strict=True)]


def _setting(values: Mapping[str, Any], rows: Sequence[Row]) -> Setting:
    tests = [row["test_accuracy"] for row in rows]
    known: dict[str, Any] = {
        name: None if None in (numbers := [row[name] for row in rows]) else mean(numbers)
        for name in ("model_bits", "cycles", "luts")
    }
    reduction = mean(row["reduction"] * row["model_bits"] for row in rows) / known["model_bits"]
    return Setting(
        values, len(rows), mean(tests), min(tests), max(tests), reduction=reduction, **known
    )


def objectives(settings: Sequence[Setting]) -> list[str]:
    """Return the names of the objectives that are known of all settings."""
    return [name for name in OBJECTIVES if all(getattr(s, name) is not None for s in settings)]


def pareto(costs: Sequence[Sequence[float]]) -> list[bool]:
    """Return for each row of costs whether no other row is as low everywhere and lower once."""
    return [
        not any(
            all(a <= b for a, b in zip(other, own, strict=True)) and tuple(other) != tuple(own)
            for other in costs
        )
        for own in costs
    ]


def table(settings: Sequence[Setting]) -> str:
    """Return a table of the settings, the front first, by falling accuracy."""
    spelt = {"cycles": "cycles a step", "luts": "LUTs"}
    shown = [name for name in spelt if any(getattr(s, name) for s in settings)]
    head = (
        "front", *settings[0].values, "trials", "test, %", "spread", "bits",
        "reduction", *(spelt[name] for name in shown),
    )  # fmt: skip
    rows = [
        (
            "*" if s.front else "", *map(str, s.values.values()), s.trials,
            round(100 * s.test_accuracy, 2),
            None if s.trials == 1 else round(100 * (s.greatest - s.least), 2),
            round(s.model_bits), round(s.reduction, 1),
            *(None if (v := getattr(s, name)) is None else round(v) for name in shown),
        )
        for s in sorted(settings, key=lambda s: (not s.front, -s.test_accuracy))
    ]  # fmt: skip
    return markdown(head, rows)


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


# -- the picture -----------------------------------------------------------------------------------
_NAMES = {"model_bits": "bits of the model", "cycles": "cycles a step", "luts": "LUTs, measured"}
_GREY = "#bbbbbb"
_MARKS = "osD^v"
_FRONT = tuple(colour for colour in COLOURS if colour != _GREY)
_MOST_NAMED = 12
"""Most settings of the front that have a line in the legend."""


def draw_front(settings: Sequence[Setting]) -> bytes:
    """Draw a point for each setting, with a bar from worst to best seed; name the front."""
    sides = [name for name in objectives(settings) if name in _NAMES]
    front = sorted((s for s in settings if s.front), key=lambda s: -s.test_accuracy)
    figure = new_figure(3.6 * max(2, len(sides)), 4.0 + 0.18 * min(len(front), _MOST_NAMED))
    panels = figure.subplots(1, len(sides), sharey=True, squeeze=False)[0]
    for n, (axes, side) in enumerate(zip(panels, sides, strict=True)):
        dress(axes, "", _NAMES[side], "" if n else "% of the test images right")
        dominated = [s for s in settings if not s.front]
        shown = [(dominated, "o", _GREY, "dominated")] if dominated else []
        for k, s in enumerate(front):
            mark, colour = _MARKS[k // len(_FRONT) % len(_MARKS)], _FRONT[k % len(_FRONT)]
            shown.append(([s], mark, colour, s.name if k < _MOST_NAMED else ""))
        for group, mark, colour, label in shown:
            axes.errorbar(
                [getattr(s, side) for s in group], [100 * s.test_accuracy for s in group],
                yerr=[[100 * (s.test_accuracy - s.least) for s in group],
                      [100 * (s.greatest - s.test_accuracy) for s in group]],
                fmt=mark, color=colour, elinewidth=0.8, markersize=5, label=label or None,
            )  # fmt: skip
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        axes.tick_params(axis="x", rotation=20)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.suptitle("Pareto front")
    figure.legend(handles, labels, frameon=False, fontsize=8, loc="outside lower center", ncols=2)
    return to_png(figure)

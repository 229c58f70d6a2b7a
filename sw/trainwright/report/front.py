"""Pareto front of settings that differ in accuracy, size and cost, as a table and a picture."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from matplotlib.ticker import StrMethodFormatter

from trainwright.support.figure import COLOURS, dress, legend_below, literal, new_figure, to_png
from trainwright.support.tables import markdown

OBJECTIVES = {"test_accuracy": -1, "model_bits": 1, "cycles": 1, "luts": 1}
"""Objectives of the front: 1 where smaller is better, -1 where larger is better."""


@dataclass(frozen=True)
class Setting:
    """Finished trials that differ only in their seed: means, and the worst and best accuracy."""

    values: Mapping[str, Any]
    """Value of each axis except the seed's."""
    trials: int
    test_accuracy: float
    """Fraction of the test samples that the last epoch's model gets right, or R2 of regressions."""
    least: float
    greatest: float
    """Test accuracy of the worst and the best seed."""
    model_bits: float
    reduction: float
    cycles: float | None
    luts: float | None
    is_regression: bool = False
    front: bool = False

    @property
    def name(self) -> str:
        """Values by axis, as text."""
        return ", ".join(f"{axis} {value}" for axis, value in self.values.items()) or "all seeds"


def with_front(settings: Sequence[Setting]) -> list[Setting]:
    """Mark the settings of the Pareto front."""
    names = objectives(settings)
    front = pareto([[OBJECTIVES[name] * getattr(s, name) for name in names] for s in settings])
    return [replace(s, front=on) for s, on in zip(settings, front, strict=True)]


def objectives(settings: Sequence[Setting]) -> list[str]:
    """Return the names of the objectives that all settings have."""
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


def table(settings: Sequence[Setting], *, bar: str = "|") -> str:
    """Return a table of the settings, the front first, by falling accuracy.

    ``bar`` replaces a bar in a value such as ranks of ``16|8``; in Markdown it has to be escaped.
    """
    spelt = {"cycles": "cycles a step", "luts": "LUTs"}
    shown = [name for name in spelt if any(getattr(s, name) for s in settings)]
    regression = settings[0].is_regression
    unit, digits = (1, 4) if regression else (100, 2)
    head = (
        "front", *settings[0].values, "trials", "test R2" if regression else "test, %", "spread",
        "bits", "reduction", *(spelt[name] for name in shown),
    )  # fmt: skip
    rows = [
        (
            "*" if s.front else "",
            *(str(v).replace("|", bar) for v in s.values.values()),
            s.trials,
            round(unit * s.test_accuracy, digits),
            None if s.trials == 1 else round(unit * (s.greatest - s.least), digits),
            round(s.model_bits), round(s.reduction, 1),
            *(None if (v := getattr(s, name)) is None else round(v) for name in shown),
        )
        for s in sorted(settings, key=lambda s: (not s.front, -s.test_accuracy))
    ]  # fmt: skip
    return markdown(head, rows)


# -- the picture -----------------------------------------------------------------------------------
_NAMES = {"model_bits": "bits of the model", "cycles": "cycles a step", "luts": "LUTs, measured"}
_GREY = "#bbbbbb"
_MARKS = "osD^v"
_FRONT = tuple(colour for colour in COLOURS if colour != _GREY)
_MOST_NAMED = 12
"""Number of settings of the front above which the rest have no line in the legend."""


def draw_front(settings: Sequence[Setting]) -> bytes:
    """Draw a point for each setting, with a bar from worst to best seed; name the front."""
    sides = [name for name in objectives(settings) if name in _NAMES]
    front = sorted((s for s in settings if s.front), key=lambda s: -s.test_accuracy)
    unit, what = 100, "% of the test samples right"
    if settings[0].is_regression:
        unit, what = 1, "R2 of the test samples"
    figure = new_figure(3.6 * max(2, len(sides)), 4.0 + 0.18 * min(len(front), _MOST_NAMED))
    panels = figure.subplots(1, len(sides), sharey=True, squeeze=False)[0]
    for n, (axes, side) in enumerate(zip(panels, sides, strict=True)):
        dress(axes, "", _NAMES[side], "" if n else what)
        dominated = [s for s in settings if not s.front]
        shown = [(dominated, "o", _GREY, "dominated")] if dominated else []
        for k, s in enumerate(front):
            mark, colour = _MARKS[k // len(_FRONT) % len(_MARKS)], _FRONT[k % len(_FRONT)]
            shown.append(([s], mark, colour, literal(s.name) if k < _MOST_NAMED else ""))
        for group, mark, colour, label in shown:
            axes.errorbar(
                [getattr(s, side) for s in group], [unit * s.test_accuracy for s in group],
                yerr=[[unit * (s.test_accuracy - s.least) for s in group],
                      [unit * (s.greatest - s.test_accuracy) for s in group]],
                fmt=mark, color=colour, elinewidth=0.8, markersize=5, label=label or None,
            )  # fmt: skip
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        axes.tick_params(axis="x", rotation=20)
    figure.suptitle("Pareto front")
    legend_below(figure, panels[0], 2)
    return to_png(figure)

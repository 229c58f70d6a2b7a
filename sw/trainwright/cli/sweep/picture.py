"""The Pareto front as a picture: accuracy against bits, and against cycles where they are known."""

from collections.abc import Sequence

from matplotlib.ticker import StrMethodFormatter

from trainwright.cli.sweep.results import Setting, objectives
from trainwright.support.figure import COLOURS, dress, new_figure, to_png

_NAMES = {
    "model_bits": "bits of the model",
    "cycles": "cycles a step",
    "luts": "LUTs, measured",
}
_GREY = "#bbbbbb"
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
        _points(axes, [s for s in settings if not s.front], side, _GREY, "dominated")
        for k, s in enumerate(front):
            named = k < _MOST_NAMED
            _points(axes, [s], side, _FRONT[k % len(_FRONT)], s.name if named else None, k)
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        axes.tick_params(axis="x", rotation=20)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.suptitle("Pareto front")
    figure.legend(handles, labels, frameon=False, fontsize=8, loc="outside lower center", ncols=2)
    return to_png(figure)


_MARKS = "osD^v"


def _points(
    axes, settings: Sequence[Setting], side: str, colour: str, label: str | None, number: int = 0
) -> None:
    if not settings:
        return
    x = [getattr(s, side) for s in settings]
    below = [100 * (s.test_accuracy - s.least) for s in settings]
    above = [100 * (s.greatest - s.test_accuracy) for s in settings]
    axes.errorbar(
        x, [100 * s.test_accuracy for s in settings], yerr=[below, above],
        fmt=_MARKS[number // len(_FRONT) % len(_MARKS)], color=colour, elinewidth=0.8,
        markersize=5, label=label,
    )  # fmt: skip

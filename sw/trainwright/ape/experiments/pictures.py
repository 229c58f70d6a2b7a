"""Pictures of the APE experiments, as PNG bytes."""

from collections.abc import Sequence
from typing import Any

from trainwright.ape.experiments import crossover, magnitude, sizes
from trainwright.support.figure import COLOURS, dress, legend_below, new_figure, to_png


def draw_magnitude(rows: Sequence[magnitude.BinadeErrors]) -> bytes:
    """Draw figure 14: error of a value, and of a product, by binade."""
    figure = new_figure(10.5, 4.6)
    axes: Any = None
    sides = (("value", "Error of split and join"), ("product", "Error of one product by (1, 2)"))
    for place, (side, title) in zip(figure.subplots(1, 2, sharey=True), sides, strict=True):
        axes = dress(place, title, "magnitude of x, binade 2^e", "largest relative error")
        for colour, name in zip(COLOURS, magnitude.TYPES, strict=False):
            points = [row for row in rows if row.dtype == name]
            y = [max(getattr(row, side), 2.0**-27) for row in points]
            y = [value if value < 2.0 else float("nan") for value in y]
            axes.plot([row.exponent for row in points], y, color=colour, label=name)
        for exponent in (-21, -22, -23):
            axes.axhline(2.0**exponent, color="#888888", linewidth=0.7, linestyle=":")
        axes.set_yscale("log", base=2)
        axes.set_ylim(2.0**-27.5, 4)
    title = "dotted: 2^-21, 2^-22, 2^-23; no error is drawn at 2^-27; a line ends where parts "
    legend_below(figure, axes, 4, title + "overflow")
    return to_png(figure)


def draw_sizes(rows: Sequence[sizes.LengthErrors]) -> bytes:
    """Draw figure 15: largest error of an element by the length of its sum."""
    figure = new_figure(8.0, 4.8)
    axes = dress(
        figure.subplots(), "Products of uniform (0, 1) matrices", "K", "largest relative error"
    )
    styles = {"zero": "o-", "nearest": "s--"}
    for colour, name in zip(COLOURS, sizes.TYPES, strict=False):
        for rounding, style in styles.items():
            points = [row for row in rows if (row.dtype, row.rounding) == (name, rounding)]
            axes.plot(
                [row.size for row in points], [row.largest for row in points], style,
                color=colour, markersize=4, linewidth=1.2, label=f"{name}, {rounding}",
            )  # fmt: skip
    points = [row for row in rows if row.rounding == "library"]
    axes.plot(
        [row.size for row in points], [row.largest for row in points], "k:", label="native fp32"
    )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    legend_below(figure, axes, 3, "rounding of the accumulator after 8 products")
    return to_png(figure)


def draw_crossover(rows: Sequence[crossover.CrossoverPoint], f_seconds: float) -> bytes:
    """Draw figure 8: measured and predicted time, and the decider's choice, by share."""
    figure = new_figure(8.0, 4.6)
    axes = dress(
        figure.subplots(), "Which way is fastest", "% of A's blocks that need fp32-b", "ms"
    )
    x = [100 * row.share for row in rows]
    for colour, name, side in ((COLOURS[0], "fp32-b", "b"), (COLOURS[1], "hybrid", "hybrid")):
        for style, kind in (("o-", "measured"), ("--", "predicted")):
            y = [1e3 * getattr(row, f"{side}_{kind}") for row in rows]
            axes.plot(x, y, style, color=colour, markersize=4, label=f"{name}, {kind}")
    axes.axhline(1e3 * f_seconds, color=COLOURS[2], linewidth=1, linestyle=":",
                 label="fp32-f, measured (in range at 0 %)")  # fmt: skip
    axes.set_ylim(bottom=0)
    for place, row in zip(x, rows, strict=True):
        axes.annotate(row.choice.removeprefix("fp32-"), (place, 0), xytext=(0, 3),
                      textcoords="offset points", ha="center", fontsize=7)  # fmt: skip
    axes.legend(frameon=False, fontsize=8, loc="lower right", bbox_to_anchor=(1, 0.08),
                title="on the axis: what the decider takes", title_fontsize=8)  # fmt: skip
    return to_png(figure)

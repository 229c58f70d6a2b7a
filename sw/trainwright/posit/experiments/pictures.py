"""Pictures of the posit experiments, as PNG bytes."""

from collections.abc import Mapping, Sequence

from trainwright.posit.experiments.accuracy import Curve
from trainwright.support.figure import COLOURS, dress, legend_below, new_figure, to_png

PAPER = {
    "mnist": ("8", {"float32": 97.0, "posit(16,2)": 96.0}),
    "fashion-mnist": ("9", {"float32": 76.0, "posit(16,2)": 72.0}),
}
"""Paper's figure number and stated accuracies after 7 epochs, in percent, by data set."""
_PAPERS_EPOCH = 7


def draw_decimals(curves: Sequence[Curve]) -> bytes:
    """Draw figure 2: decimal accuracy against the magnitude."""
    figure = new_figure(8.0, 4.4)
    axes = dress(figure.subplots(), "Decimal accuracy of 8 bits", "x", "decimals, at worst near x")
    for colour, line in zip(COLOURS, curves, strict=False):
        axes.plot(line.x, line.decimals, ".-", color=colour, markersize=2, linewidth=0.9,
                  label=line.name)  # fmt: skip
    axes.set_xscale("log", base=10)
    axes.legend(frameon=False, fontsize=8)
    return to_png(figure)


def draw_training(data: str, epochs: Mapping[str, Sequence[float]]) -> bytes:
    """Draw figure 8 or 9: test accuracy by epoch and arithmetic; the paper's values as crosses."""
    number, stated = PAPER[data]
    figure = new_figure(10.5, 4.6)
    whole, near = figure.subplots(1, 2)
    titles = (f"LeNet-5 on {data}, beside figure {number}", "The same, near float32")
    for axes, title in zip((whole, near), titles, strict=True):
        dress(axes, title, "epoch", "% of 10,000 test images right")
        for colour, (name, values) in zip(COLOURS, epochs.items(), strict=False):
            axes.plot(range(1, len(values) + 1), values, "o-", color=colour, markersize=4,
                      linewidth=1.2, label=name)  # fmt: skip
    for style, (name, value) in zip(("x", "+"), stated.items(), strict=True):
        whole.plot([_PAPERS_EPOCH], [value], style, color="#222222", markersize=8,
                   label=f"the paper's {name}, part of the data")  # fmt: skip
    shown = epochs.get("float32") or [value for values in epochs.values() for value in values]
    highest = max(value for values in epochs.values() for value in values)
    near.set_ylim(min(shown) - 0.5, highest + 0.2)
    legend_below(figure, whole, 3)
    return to_png(figure)

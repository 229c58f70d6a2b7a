"""Pictures of the experiments with multi-component floats, as PNG bytes."""

from collections.abc import Sequence

from trainwright.mcf.experiments import embedding, errors, learning
from trainwright.support.figure import COLOURS, dress, legend_below, new_figure, to_png

_STYLES = {"float16": ":", "float32": "-", "float64": "--", "mcf": "-"}


def draw_errors(points: Sequence[errors.ErrorPoint], figure_number: int) -> bytes:
    """Draw figure 8 or 9: relative errors by magnitude; points: mean, lines: largest."""
    figure = new_figure(10.5, 4.0)
    shown = [point for point in points if point.figure == figure_number]
    for place, operation in zip(figure.subplots(1, 3), errors.OPERATIONS, strict=True):
        axes = dress(place, operation, "magnitude of x, 10^m", "relative error")
        for colour, way in zip(COLOURS, dict.fromkeys(p.way for p in shown), strict=False):
            line = [p for p in shown if (p.operation, p.way) == (operation, way)]
            at = [p.magnitude for p in line]
            axes.plot(at, [p.largest for p in line], color=colour, linewidth=1, label=way)
            axes.plot(at, [p.mean for p in line], ".", color=colour, markersize=4)
        axes.set_yscale("log")
    second = "of the same magnitude" if figure_number == 8 else f"of magnitude 10^{errors.HELD}"
    figure.legend(
        *figure.axes[0].get_legend_handles_labels(), frameon=False, fontsize=8, ncols=3,
        loc="outside lower center", title=f"y {second}; lines: largest, points: mean",
    )  # fmt: skip
    return to_png(figure)


def draw_learning(title: str, outcomes: Sequence[learning.LearningResult]) -> bytes:
    """Draw the training loss by epoch for every type, with the accuracy if there is a test set."""
    tested = outcomes[0].accuracy is not None
    figure = new_figure(10.5 if tested else 6.5, 4.2)
    places = figure.subplots(1, 2 if tested else 1, squeeze=False)[0]
    dress(places[0], title, "epoch", "training loss")
    places[0].set_yscale("log")
    if tested:
        dress(places[1], "Test set", "epoch", "% right")
    for colour, result in zip(COLOURS, outcomes, strict=False):
        style = _STYLES[result.way.split()[0]]
        for axes, values in zip(places, (result.losses, result.accuracies), strict=False):
            axes.plot(range(1, len(values) + 1), values, style, color=colour, linewidth=1.2,
                      label=result.way)  # fmt: skip
    legend_below(figure, places[0], 3)
    return to_png(figure)


def draw_embedding(outcomes: Sequence[embedding.EmbeddingResult]) -> bytes:
    """Draw the loss of the half-space embedding by epoch."""
    figure = new_figure(6.5, 4.2)
    axes = dress(figure.subplots(), "WordNet mammals in the half-space", "epoch", "loss of a pair")
    colours: dict[str, str] = dict(zip(embedding.WAYS, COLOURS, strict=False))
    named: set[str] = set()
    for result in outcomes:
        label = None if result.way in named else result.way
        named.add(result.way)
        axes.plot(range(1, len(result.losses) + 1), result.losses, color=colours[result.way],
                  linewidth=1, label=label)  # fmt: skip
    axes.legend(frameon=False, fontsize=8)
    return to_png(figure)

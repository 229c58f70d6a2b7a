"""Pictures of Table 1: accuracy, ranks, the frontier of accuracy and memory, scales."""

from collections.abc import Mapping, Sequence
from statistics import mean

from trainwright.report.pictures import draw_scales
from trainwright.report.recipes import Means, Recipe, Runs
from trainwright.report.table1 import FRONTIER, TABLE
from trainwright.support.figure import COLOURS, dress, new_figure, to_png
from trainwright.train.history import ScaleRecord

Curve = tuple[Sequence[float], Sequence[float]]


def draw_all(runs: Runs, outcomes: Mapping[Recipe, Means]) -> dict[str, bytes]:
    """Draw all pictures; return PNG bytes by file name."""
    pictures = {
        "accuracy.png": _accuracy(runs),
        "ranks.png": _ranks(runs),
        "frontier.png": _frontier(runs, outcomes),
    }
    for row, group in runs.items():
        records = [dict(record) for record in group[0].history("scale")]
        scales = [ScaleRecord(**record) for record in records if record.pop("kind")]
        if scales:
            pictures[row.scales_picture] = draw_scales(scales, row.title)
    return pictures


def _curves(
    title: str, x: str, y: str, curves: Mapping[str, Curve], least: float, **style: str
) -> bytes:
    """Draw a line for each row."""
    figure = new_figure()
    axes = dress(figure.subplots(), title, x, y)
    for n, (name, curve) in enumerate(curves.items()):
        axes.plot(*curve, color=COLOURS[n % len(COLOURS)], label=name, **style)
    axes.set_ylim(bottom=least)
    axes.legend(frameon=False, fontsize=8)
    return to_png(figure)


def _accuracy(runs: Runs) -> bytes:
    """Draw the mean test accuracy of the seeds after every epoch."""
    curves = {}
    for row, group in runs.items():
        accuracies: dict[int, list[float]] = {}
        for record in (record for run in group for record in run.history("evaluation")):
            accuracies.setdefault(record["epoch"], []).append(100 * record["accuracy"])
        curves[row.title] = list(accuracies), [mean(values) for values in accuracies.values()]
    # The first quarter of a training is left out, which would squeeze the rest.
    least = min(100.0, *(y for _, means in curves.values() for y in means[len(means) // 4 :])) - 0.5
    return _curves("Test accuracy", "epoch", "% classified right", curves, least)


def _ranks(runs: Runs) -> bytes:
    """Draw the sum of all ranks of every row's first run against the step."""
    curves = {}
    for row, group in runs.items():
        records = list(group[0].history("step"))[::20]
        curves[row.title] = [r["step"] for r in records], [sum(r["ranks"]) for r in records]
    title = "Sum of the tensor-train ranks"
    return _curves(title, "step", "sum of ranks", curves, 0, drawstyle="steps-post")


def _frontier(runs: Runs, outcomes: Mapping[Recipe, Means]) -> bytes:
    """Draw runs, means of the rows and the paper's rows; further prior weights along a line."""
    figure = new_figure()
    axes = dress(
        figure.subplots(), "Accuracy against memory", "times smaller than dense float32",
        "% of the test images right",
    )  # fmt: skip
    named = {row: o for row, o in outcomes.items() if row not in FRONTIER}
    for n, (row, o) in enumerate(named.items()):
        colour = COLOURS[n % len(COLOURS)]
        results = [run.result() for run in runs[row]]
        axes.plot(
            [r["reduction"] for r in results],
            [100 * r["test_accuracy"] for r in results],
            ".", color=colour, alpha=0.5,
        )  # fmt: skip
        axes.plot(o["reduction"], o["test"], "o", color=colour, label=row.title)
    further = sorted((o["reduction"], o["test"], row.options[-1]) for row, o in outcomes.items()
                     if row in FRONTIER)  # fmt: skip
    if further:
        x, y, weights = zip(*further, strict=True)
        axes.plot(x, y, ".-", color="#888888", linewidth=0.8, label="TT fixed, by prior weight")
        for point in zip(weights, zip(x, y, strict=True), strict=True):
            axes.annotate(*point, xytext=(3, 4), textcoords="offset points", fontsize=7)
    printed = [row.printed for row in TABLE if row.printed]
    axes.plot(
        [p.reduction for p in printed], [p.test for p in printed], "x", color="#222222",
        label="printed in the paper",
    )  # fmt: skip
    axes.set_xscale("log")
    axes.set_xticks(ticks := [30, 50, 100, 200, 300, 500, 1000], [f"{t}" for t in ticks])
    axes.minorticks_off()
    axes.legend(frameon=False, fontsize=8, loc="lower left")
    return to_png(figure)

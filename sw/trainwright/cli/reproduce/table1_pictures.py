"""Pictures of Table 1: accuracy, ranks, the frontier of accuracy and memory, scales."""

from collections.abc import Mapping, Sequence
from statistics import mean

from trainwright.cli.reproduce.runs import Recipe, RecipeRun
from trainwright.cli.reproduce.table1 import FRONTIER, TABLE, RecipeMeans
from trainwright.report.pictures import draw_scales
from trainwright.support.figure import COLOURS, dress, new_figure, to_png
from trainwright.train.history import ScaleRecord

_Runs = Mapping[Recipe, Sequence[RecipeRun]]


def draw_all(runs: _Runs, outcomes: Mapping[Recipe, RecipeMeans]) -> dict[str, bytes]:
    """Draw all pictures; return PNG bytes by file name."""
    pictures = {
        "accuracy.png": _accuracy(runs),
        "ranks.png": _ranks(runs),
        "frontier.png": _frontier(runs, outcomes),
    }
    for row, group in runs.items():
        if scales := [_scale(record) for record in group[0].history("scale")]:
            pictures[f"scales-{row.name}.png"] = draw_scales(scales, row.title)
    return pictures


def _scale(record: dict) -> ScaleRecord:
    return ScaleRecord(**{name: value for name, value in record.items() if name != "kind"})


def _accuracy(runs: _Runs) -> bytes:
    """Draw the mean test accuracy of the seeds after every epoch."""
    figure = new_figure()
    axes = dress(figure.subplots(), "Test accuracy", "epoch", "% classified right")
    least = 100.0
    for n, (row, group) in enumerate(runs.items()):
        accuracies: dict[int, list[float]] = {}
        for run in group:
            for record in run.history("evaluation"):
                accuracies.setdefault(record["epoch"], []).append(100 * record["accuracy"])
        means = [mean(values) for values in accuracies.values()]
        least = min(least, *means[len(means) // 4 :])
        axes.plot(list(accuracies), means, color=COLOURS[n % len(COLOURS)], label=row.title)
    axes.set_ylim(bottom=least - 0.5)
    axes.legend(frameon=False, fontsize=8)
    return to_png(figure)


def _ranks(runs: _Runs) -> bytes:
    """Draw the sum of all ranks of every row's first run against the step."""
    figure = new_figure()
    axes = dress(figure.subplots(), "Sum of the tensor-train ranks", "step", "sum of ranks")
    for n, (row, group) in enumerate(runs.items()):
        records = list(group[0].history("step"))[::20]
        axes.step(
            [r["step"] for r in records],
            [sum(r["ranks"]) for r in records],
            where="post",
            color=COLOURS[n % len(COLOURS)],
            label=row.title,
        )
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, fontsize=8)
    return to_png(figure)


def _frontier(runs: _Runs, outcomes: Mapping[Recipe, RecipeMeans]) -> bytes:
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
        axes.plot(o.reduction, o.test, "o", color=colour, label=row.title)
    further = sorted((o.reduction, o.test, row.options[-1]) for row, o in outcomes.items()
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

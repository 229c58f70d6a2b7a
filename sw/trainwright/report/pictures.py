"""Pictures of a run, as PNG bytes. Drawn without a display and without global state."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, StrMethodFormatter

from trainwright.data import DataSet
from trainwright.network import Network, UserNames
from trainwright.support.figure import COLOURS, dress, label, new_figure, to_png
from trainwright.support.text import amount
from trainwright.train.batches import class_names
from trainwright.train.evaluate import Evaluation, Regression
from trainwright.train.history import History, ScaleRecord

_TRAIN, _TEST = COLOURS[:2]
SMOOTHED = 20
"""Steps of the running mean: fewer steps follow the noise, more steps hide the first ones."""
_SIZE = 5.2, 3.2
"""Inches: 570 points wide, so that text of 10 points is read in a column of 400 points too."""


MOST_DRAWN = 32
"""Classes of a confusion matrix whose names can be read in the picture."""


def _axes(title: str, x: str, y: str, height: float = _SIZE[1]) -> Any:
    return dress(new_figure(_SIZE[0], height).subplots(), title, x, y)


def _marker(points: Sequence[object]) -> str:
    """Return the marker of a curve: a point alone has no line to show it."""
    return "." if len(points) == 1 else ""


def smooth(
    values: npt.NDArray[np.float64], counts: npt.NDArray[np.int64], window: int
) -> npt.NDArray[np.float64]:
    """Return for each value the mean over the last ``window`` steps.

    ``counts`` has the steps that each value is a mean of, at most ``window``. A value that begins
    before the last ``window`` steps is left out.
    """
    sums = np.cumsum(np.concatenate([[0.0], values * counts]))
    steps = np.concatenate([[0], np.cumsum(counts)])
    end = np.arange(1, len(values) + 1)
    begin = np.searchsorted(steps, steps[end] - window)
    return (sums[end] - sums[begin]) / (steps[end] - steps[begin])


def draw_loss(history: History, what: str = "cross-entropy") -> bytes:
    """Draw the loss of every record, and its running mean if records have fewer steps than that."""
    axes = _axes("Loss", "step", what)
    steps = [r.step for r in history.steps]
    loss, counts = np.array([r.loss for r in history.steps]), np.array(history.counts)
    most = int(counts.max())
    name = "batch" if most == 1 else f"mean of {amount(most, 'batch')}"
    if most < SMOOTHED:
        axes.plot(steps, loss, color=_TRAIN, alpha=0.55, linewidth=0.8, label=name)
        name = f"mean of {amount(min(SMOOTHED, steps[-1]), 'batch')}"
        loss = smooth(loss, counts, SMOOTHED)
    axes.plot(steps, loss, ".-" if most >= SMOOTHED else "-", color=_TRAIN, label=name)
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.legend(frameon=False)
    return to_png(axes.figure)


def draw_accuracy(history: History) -> bytes:
    """Draw accuracy on the training batches of each epoch and on the test samples after it."""
    axes = _axes("Accuracy", "step", "% classified right")
    epochs = list(history.epochs())
    axes.plot(
        [step for step, _, _ in epochs],
        [100 * accuracy for _, _, accuracy in epochs],
        "o-",
        color=_TRAIN,
        markersize=4,
        label="training batches of the epoch",
    )
    axes.plot(
        [r.step for r in history.evaluations],
        [100 * r.accuracy for r in history.evaluations],
        "s-",
        color=_TEST,
        markersize=4,
        label="test samples",
    )
    axes.set_xlim(left=0)
    axes.set_ylim(top=101)
    axes.legend(frameon=False)
    return to_png(axes.figure)


def draw_r2(history: History) -> bytes:
    """Draw R2 of the test samples after each epoch; worse than -1 is off the picture."""
    axes = _axes("R2 of the test samples", "step", "R2")
    steps = [r.step for r in history.evaluations]
    axes.plot(steps, [r.accuracy for r in history.evaluations], "s-", color=_TEST, markersize=4)
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=max(-1.0, axes.get_ylim()[0]), top=1.02)
    return to_png(axes.figure)


def draw_predictions(regression: Regression, target: str) -> bytes:
    """Draw numbers predicted for test samples over their targets, and the line of exact ones."""
    name = label(target)
    axes = _axes("Test samples", f"{name} in the data", f"{name} predicted", height=4.7)
    both = np.concatenate([regression.targets, regression.predictions])
    ends = [both.min(), both.max()]
    axes.plot(ends, ends, color="#999999", linewidth=1, label="exact")
    axes.plot(regression.targets, regression.predictions, "o", color=_TEST, markersize=4,
              alpha=0.6, label="samples")  # fmt: skip
    axes.legend(frameon=False)
    return to_png(axes.figure)


def draw_ranks(history: History, network: Network) -> bytes:
    """Draw every rank against the step; ``network`` gives the bonds their names."""
    axes = _axes("Tensor-train ranks", "step", "rank")
    steps = [r.step for r in history.steps]
    user = UserNames.of_network(network)
    names = [
        f"{user.layers[f'l{number}']}, bond {n}"
        for number, layer in enumerate(network.layers, 1)
        for n in range(1, layer.order)
    ]
    ranks = np.array([r.ranks for r in history.steps])
    for n, name in enumerate(names):
        axes.step(
            steps,
            ranks[:, n],
            where="post",
            color=COLOURS[n % len(COLOURS)],
            linewidth=1.5 + 1.5 * (len(names) - 1 - n),  # equal ranks show beneath each other
            marker=_marker(steps),
            label=label(name),
        )
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    if names:  # matplotlib warns of an empty legend
        axes.legend(frameon=False)
    return to_png(axes.figure)


def draw_cycles(history: History) -> bytes:
    """Draw the cycles of every step; a record of several steps has their mean."""
    axes = _axes("Accelerator cycles a step", "step", "cycles")
    axes.step(
        [r.step for r in history.steps],
        history.cycles_a_step,
        where="post",
        marker=_marker(history.steps),
        color=_TRAIN,
    )
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    return to_png(axes.figure)


def draw_scales(
    scales: Sequence[ScaleRecord], title: str = "Scales", names: UserNames | None = None
) -> bytes:
    """Draw exponents of all tensors, and their saturating parts, against the step.

    ``names`` are those of the layers, if the programs' own do not serve.
    """
    figure = new_figure(_SIZE[0], 5.0)
    above, below = figure.subplots(2, 1, sharex=True)
    dress(above, title, "", "exponent of 2")
    above.yaxis.set_major_locator(MaxNLocator(integer=True))
    dress(below, "", "step", "% of the values saturated")
    lines: dict[str, list[ScaleRecord]] = {}
    for record in scales:
        lines.setdefault(record.tensor, []).append(record)
    worst = sorted(lines, key=lambda name: -sum(r.saturated for r in lines[name]))
    for n, name in enumerate(worst):
        records = lines[name]
        steps = [r.step for r in records]
        named = n < 6
        style = {
            "color": COLOURS[n] if named else "#999999",
            "linewidth": 1.4 if named else 0.6,
            "zorder": 3 if named else 2,
            "marker": _marker(steps),
        }
        above.step(steps, [r.exponent for r in records], where="post", **style)
        below.plot(
            steps,
            [100 * r.saturated for r in records],
            label=label(names.short(name) if names else name) if named else None,
            **style,
        )
    below.set_ylim(bottom=0)  # also where nothing saturates: a share is never below 0
    # Curves may peak anywhere in the panel: below it the legend covers none.
    figure.legend(
        *below.get_legend_handles_labels(), frameon=False, fontsize=8, ncols=3,
        title="those that saturate most", loc="outside lower center",
    )  # fmt: skip
    return to_png(figure)


def draw_confusion(evaluation: Evaluation, names: Sequence[str]) -> bytes:
    """Draw the confusion matrix of the test samples, each row in percent of its class.

    Of more than `MOST_DRAWN` classes those with the most mistakes are drawn.
    """
    labels, guesses = evaluation.labels, evaluation.predictions
    shown, title = np.arange(len(names)), "Test samples (numbers are samples)"
    if len(names) > MOST_DRAWN:
        wrong = labels != guesses
        mistakes = np.bincount(labels[wrong], minlength=len(names))
        mistakes += np.bincount(guesses[wrong], minlength=len(names))
        shown = np.sort(np.argsort(-mistakes, kind="stable")[:MOST_DRAWN])
        title = f"{MOST_DRAWN} of {len(names):,} classes, with the most mistakes"
    both = np.isin(labels, shown) & np.isin(guesses, shown)
    places = [np.searchsorted(shown, part[both]) for part in (labels, guesses)]
    matrix = np.zeros((len(shown), len(shown)), np.int64)
    np.add.at(matrix, (places[0], places[1]), 1)
    samples = np.bincount(labels, minlength=len(names))[shown]
    share = 100 * matrix / np.maximum(1, samples[:, None])
    names = tuple(label(names[int(n)]) for n in shown)
    # From 13 classes on the picture grows, so that names and numbers do not overlap.
    many = len(names) > 12
    side = max(_SIZE[0], 1.8 + len(names) / 5)
    figure = new_figure(side, side - 0.5)
    axes = figure.subplots()
    axes.imshow(share, cmap="Blues", vmin=0, vmax=100)
    long = max(map(len, names)) > 2
    slanted = long and not many
    axes.set_xticks(
        range(len(names)), names, rotation=90 if many else 45 if slanted else 0,
        ha="right" if slanted else "center",
    )  # fmt: skip
    axes.set_yticks(range(len(names)), names)
    axes.tick_params(labelsize=8 if many else None)
    axes.set(title=title, xlabel="taken for", ylabel="is")
    for (row, column), count in np.ndenumerate(matrix):
        if count:
            color = "white" if share[row, column] > 55 else "black"
            axes.text(
                column,
                row,
                str(count),
                ha="center",
                va="center",
                color=color,
                fontsize=7 if many else 8,
            )
    axes.spines[:].set_visible(False)
    return to_png(figure)


STROKES = "digits", "mnist", "fashion-mnist"
"""Data sets of images whose zeros are paper: drawn dark on white."""


def has_photos(data: DataSet) -> bool:
    """Return whether images are drawn, and stay on a dark page, as bright as they are stored."""
    return data.name not in STROKES


def draw_samples(evaluation: Evaluation, data: DataSet, names: Sequence[str]) -> bytes:
    """Draw test images with their predicted classes, the first mistakes before right answers."""
    columns = 6
    wrong = np.flatnonzero(evaluation.predictions != evaluation.labels)[:columns]
    right = np.flatnonzero(evaluation.predictions == evaluation.labels)
    shown = np.concatenate([wrong, right[: 3 * columns - len(wrong)]])
    rows = -(-len(shown) // columns)
    figure = new_figure(_SIZE[0], rows * 1.35)
    places = np.atleast_1d(figure.subplots(rows, columns)).ravel()
    for axes in places:
        axes.set_axis_off()
    for axes, index in zip(places, shown, strict=False):
        image = data.test.images[index]
        if data.channels == 1:
            cmap = "gray" if has_photos(data) else "gray_r"
            axes.imshow(image, cmap=cmap, vmin=0, vmax=data.full_scale)
        else:  # a pixel's values are adjacent in its row
            pixels = image.reshape(len(image), -1, data.channels)
            axes.imshow(pixels / data.full_scale, vmin=0, vmax=1)
        known, guess = (int(part[index]) for part in (evaluation.labels, evaluation.predictions))
        if known == guess:
            axes.set_title(label(names[known]), fontsize=9, color="#228833")
        else:
            title = f"{label(names[guess])}\nis {label(names[known])}"
            axes.set_title(title, fontsize=8, color="#bb2233")
    return to_png(figure)


def draw_all(
    history: History, evaluation: Evaluation, network: Network, data: DataSet
) -> dict[str, bytes]:
    """Return PNG bytes by file name, in the order of the report."""
    if evaluation.regression is None:
        pictures = {"accuracy.png": draw_accuracy(history), "loss.png": draw_loss(history)}
    else:
        loss = draw_loss(history, "half the squared error, standardised")
        pictures = {"r2.png": draw_r2(history), "loss.png": loss}
    pictures["ranks.png"] = draw_ranks(history, network)
    if history.scales:
        pictures["scales.png"] = draw_scales(history.scales, names=UserNames.of_network(network))
    if history.cycles:
        pictures["cycles.png"] = draw_cycles(history)
    return pictures | draw_evaluation(evaluation, data, class_names(network, data))


EVALUATION_PICTURES = "confusion.png", "predictions.png", "samples.png"
"""Files that an evaluation may write. Files of an earlier evaluation are removed before."""


def draw_evaluation(
    evaluation: Evaluation, data: DataSet, names: Sequence[str]
) -> dict[str, bytes]:
    """Return PNG bytes by file name of an evaluation; ``names`` are of the classes."""
    if evaluation.regression is not None:
        return {"predictions.png": draw_predictions(evaluation.regression, names[0])}
    pictures = {"confusion.png": draw_confusion(evaluation, names)}
    if data.samples_are == "images":  # bytes of a table's row are no picture
        pictures["samples.png"] = draw_samples(evaluation, data, names)
    return pictures

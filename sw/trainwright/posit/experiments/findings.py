"""Findings of the experiments, by the options of ``trainwright reproduce posit``."""

from functools import partial
from math import log10
from pathlib import Path
from typing import Any

from trainwright.data import load_data_set
from trainwright.posit.experiments import accuracy
from trainwright.posit.experiments.lenet import RUNS, arithmetic
from trainwright.posit.experiments.pictures import draw_decimals, draw_training
from trainwright.posit.experiments.training import Epoch, RunSettings, TrainingRun, train
from trainwright.support.finding import Experiment, Finding, Tell, finding


def _decimals(options: Any, tell: Tell) -> Finding:
    curves = accuracy.run()
    head = ("numbers", "least", "largest", "most decimals", "decades with 1 or more")
    rows = []
    for line in curves:
        good = [x for x, d in zip(line.x, line.decimals, strict=True) if d >= 1] or [1.0]
        decades = log10(max(good) / min(good))
        rows.append((line.name, line.x[0], line.x[-1], max(line.decimals), decades))
    picture = {"figure-2.png": draw_decimals(curves)}
    return finding("Figure 2: decimal accuracy of 8 bits", head, rows, curves, picture)


def _training(name: str, data_set: str, options: Any, tell: Tell) -> Finding:
    data = load_data_set(data_set, options.data)
    images = min(options.images, len(data.train))
    runs: dict[str, list[Epoch]] = {}
    folder = Path(options.out)
    folder.mkdir(parents=True, exist_ok=True)
    for kind in map(arithmetic, options.arithmetic or RUNS):
        settings = RunSettings(data.name, kind.name, images, seed=options.seed)
        checkpoint = folder / f"{data.name}-{kind.name}-{images}-{options.seed}.safetensors"
        show = tell(f"{data.name}, {kind.name}", 30)
        runs[kind.name] = train(
            data, settings, kind, options.epochs, checkpoint,
            progress=lambda done, total, run, show=show: show(done, total, _note(run)),
        )  # fmt: skip
    percent = {kind: [100 * epoch.accuracy for epoch in run] for kind, run in runs.items()}
    results = {"data": data.name, "images": images, "runs": runs}
    head = ("arithmetic", *(f"epoch {n + 1}" for n in range(options.epochs)), "less than float32",
            "best", "loss", "ms an image", "digest")  # fmt: skip
    rows = []
    for kind, run in runs.items():
        behind = round(percent["float32"][-1] - percent[kind][-1], 2) if "float32" in runs else None
        pace = 1e3 * sum(epoch.seconds for epoch in run) / (len(run) * images)
        best, last = max(percent[kind]), run[-1]
        rows.append((kind, *percent[kind], behind, best, last.loss, pace, last.digest))
    figure = name.capitalize().replace("-", " ")
    title = f"{figure}: LeNet-5 on {data.name}, {images:,} images an epoch, %"
    picture = {f"{name}.png": draw_training(data.name, percent)}
    return finding(title, head, rows, results, picture)


def _note(run: TrainingRun) -> str:
    """Return loss and accuracy of a training, to show next to the images it has seen."""
    loss = f"loss {run.loss / run.done:.4f}" if run.done else ""
    test = f"test {run.epochs[-1].accuracy:.2%}" if run.epochs else ""
    return ", ".join(filter(None, (f"epoch {len(run.epochs) + bool(run.done)}", loss, test)))


EXPERIMENTS: dict[str, Experiment] = {
    "figure-2": _decimals,
    "figure-8": partial(_training, "figure-8", "mnist"),
    "figure-9": partial(_training, "figure-9", "fashion-mnist"),
}
PICTURES = ("figure-2.png", "figure-8.png", "figure-9.png")
"""Files that findings can have: those of experiments that do not run again are removed."""

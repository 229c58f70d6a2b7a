"""``trainwright reproduce posit``: figures 2, 8 and 9 of *Posits in PyTorch*."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from trainwright.cli.reproduce.experiment import (
    Experiment,
    ExperimentOptions,
    Finding,
    command_of,
    finding,
)
from trainwright.support.settings import Option, Positive

if TYPE_CHECKING:
    from trainwright.posit.experiments.training import Epoch, TrainingRun


@dataclass(frozen=True, kw_only=True)
class PositExperimentOptions(ExperimentOptions):
    """Repeat the experiments of *Posits in PyTorch*.

    experiments:
      figure-2  decimal accuracy of 8-bit fixed point, floats and posits
      figure-8  LeNet-5 on MNIST in float32 and posits: accuracy after each epoch
      figure-9  the same on Fashion-MNIST

    The folder gets tables.md, results.json, a picture of each figure, and a checkpoint of each run,
    from which a command that was interrupted, or is asked for more epochs, goes on.
    """

    quick: bool = False
    """1 epoch of 640 images; for a look"""
    arithmetic: Annotated[tuple[str, ...], Option(metavar="NAME")] = ()
    """repeatable: float32, posit(N,ES)-MODE or mixed-MODE, MODE sequential or quire; mixed is
    posit(8,2) with weights in posit(16,2) for convolutions, posit(16,2) for the rest (default:
    float32, posit(16,2) in both modes, posit(8,2)-quire, mixed-quire)"""
    epochs: Positive = 7
    """epochs of a run"""
    images: Positive = 60_000
    """images of the training set"""
    data: Annotated[str | None, Option(metavar="DIR")] = None
    """folder of the data sets' files (default: the variable TRAINWRIGHT_DATA)"""


def _prepare(options: PositExperimentOptions) -> PositExperimentOptions:
    from trainwright.posit.experiments.lenet import arithmetic

    for name in options.arithmetic:
        arithmetic(name)  # rejects a name before anything runs
    return replace(options, epochs=1, images=640) if options.quick else options


def _decimals(options: PositExperimentOptions) -> Finding:
    from trainwright.posit.experiments import accuracy
    from trainwright.posit.experiments.pictures import draw_decimals

    curves = accuracy.run()
    head = ("numbers", "least", "largest", "most decimals", "decades with 1 or more")
    rows = []
    for line in curves:
        good = [x for x, d in zip(line.x, line.decimals, strict=True) if d >= 1]
        rows.append((line.name, line.x[0], line.x[-1], max(line.decimals), _decades(good)))
    picture = {"figure-2.png": draw_decimals(curves)}
    return finding("Figure 2: decimal accuracy of 8 bits", head, rows, curves, picture)


def _decades(x: list[float]) -> float:
    from math import log10

    return log10(max(x) / min(x)) if x else 0.0


def _training(name: str, data_set: str, options: PositExperimentOptions) -> Finding:
    from trainwright.cli.output import plain, progress_bar
    from trainwright.data import load_data_set
    from trainwright.posit.experiments.lenet import RUNS, arithmetic
    from trainwright.posit.experiments.pictures import draw_training
    from trainwright.posit.experiments.training import RunSettings, train

    data = load_data_set(data_set, options.data)
    images = min(options.images, len(data.train))
    runs: dict[str, list[Epoch]] = {}
    folder = Path(options.out)
    folder.mkdir(parents=True, exist_ok=True)
    for kind in map(arithmetic, options.arithmetic or RUNS):
        settings = RunSettings(data.name, kind.name, images, seed=options.seed)
        checkpoint = folder / f"{data.name}-{kind.name}-{images}-{options.seed}.safetensors"
        with progress_bar(f"{data.name}, {kind.name}") as tell:
            runs[kind.name] = train(
                data, settings, kind, options.epochs, checkpoint,
                progress=lambda done, total, run, tell=tell: tell(done, total, _note(run)),
            )  # fmt: skip
    percent = {kind: [100 * epoch.accuracy for epoch in run] for kind, run in runs.items()}
    results = {"data": data.name, "images": images}
    results |= {"runs": {kind: plain(run) for kind, run in runs.items()}}
    text = _table(name, data.name, images, options.epochs, runs)
    return Finding(results, text, {f"{name}.png": draw_training(data.name, percent)})


def _note(run: "TrainingRun") -> str:
    """Return loss and accuracy of a training, to show next to the images it has seen."""
    loss = f"loss {run.loss / run.done:.4f}" if run.done else ""
    test = f"test {run.epochs[-1].accuracy:.2%}" if run.epochs else ""
    return ", ".join(filter(None, (f"epoch {len(run.epochs) + bool(run.done)}", loss, test)))


def _table(
    name: str, data: str, images: int, epochs: int, runs: "Mapping[str, list[Epoch]]"
) -> str:
    from trainwright.report.tables import markdown

    head = ("arithmetic", *(f"epoch {n + 1}" for n in range(epochs)), "less than float32", "best",
            "loss", "ms an image", "digest")  # fmt: skip
    reference = runs["float32"][-1].accuracy if "float32" in runs else None
    rows = []
    for kind, run in runs.items():
        percent = [100 * epoch.accuracy for epoch in run]
        behind = None if reference is None else round(100 * reference - percent[-1], 2)
        pace = 1e3 * sum(epoch.seconds for epoch in run) / (len(run) * images)
        rows.append((kind, *percent, behind, max(percent), run[-1].loss, pace, run[-1].digest))
    figure = name.capitalize().replace("-", " ")
    return f"## {figure}: LeNet-5 on {data}, {images:,} images an epoch, %\n\n" + markdown(
        head, rows
    )


EXPERIMENTS = {
    "figure-2": Experiment(_decimals),
    "figure-8": Experiment(lambda options: _training("figure-8", "mnist", options)),
    "figure-9": Experiment(lambda options: _training("figure-9", "fashion-mnist", options)),
}
command = command_of(
    EXPERIMENTS, PositExperimentOptions, "posit",
    "LeNet-5 trained in posits; decimal accuracy of 8 bits", _prepare,
)  # fmt: skip

"""``trainwright reproduce posit``: figures 2, 8 and 9 of *Posits in PyTorch*."""

from dataclasses import replace
from functools import partial
from math import log10
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from trainwright.cli.output import teller
from trainwright.cli.reproduce.experiment import ExperimentOptions, Finding, command_of, finding
from trainwright.support.settings import Option, Positive

if TYPE_CHECKING:
    from trainwright.posit.experiments.training import Epoch, TrainingRun


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

    def prepared(self) -> "PositExperimentOptions":
        """See ``ExperimentOptions``."""
        from trainwright.posit.experiments.lenet import arithmetic

        for name in self.arithmetic:
            arithmetic(name)  # rejects a name before anything runs
        return replace(self, epochs=1, images=640) if self.quick else self


def _decimals(options: PositExperimentOptions) -> Finding:
    from trainwright.posit.experiments import accuracy
    from trainwright.posit.experiments.pictures import draw_decimals

    curves = accuracy.run()
    head = ("numbers", "least", "largest", "most decimals", "decades with 1 or more")
    rows = []
    for line in curves:
        good = [x for x, d in zip(line.x, line.decimals, strict=True) if d >= 1] or [1.0]
        decades = log10(max(good) / min(good))
        rows.append((line.name, line.x[0], line.x[-1], max(line.decimals), decades))
    picture = {"figure-2.png": draw_decimals(curves)}
    return finding("Figure 2: decimal accuracy of 8 bits", head, rows, curves, picture)


def _training(name: str, data_set: str, options: PositExperimentOptions) -> Finding:
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
        tell = teller(f"{data.name}, {kind.name}", 30)
        runs[kind.name] = train(
            data, settings, kind, options.epochs, checkpoint,
            progress=lambda done, total, run, tell=tell: tell(done, total, _note(run)),
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


def _note(run: "TrainingRun") -> str:
    """Return loss and accuracy of a training, to show next to the images it has seen."""
    loss = f"loss {run.loss / run.done:.4f}" if run.done else ""
    test = f"test {run.epochs[-1].accuracy:.2%}" if run.epochs else ""
    return ", ".join(filter(None, (f"epoch {len(run.epochs) + bool(run.done)}", loss, test)))


EXPERIMENTS = {
    "figure-2": _decimals,
    "figure-8": partial(_training, "figure-8", "mnist"),
    "figure-9": partial(_training, "figure-9", "fashion-mnist"),
}
command = command_of(
    EXPERIMENTS, PositExperimentOptions, "posit",
    "LeNet-5 trained in posits; decimal accuracy of 8 bits",
)  # fmt: skip

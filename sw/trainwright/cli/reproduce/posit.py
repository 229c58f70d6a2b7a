"""``trainwright reproduce posit``: figures 2, 8 and 9 of *Posits in PyTorch*."""

import argparse
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainwright.cli.command import SimpleCommand
from trainwright.cli.options import positive
from trainwright.cli.reproduce.options import add_experiment_option, add_run_options

if TYPE_CHECKING:
    from trainwright.posit.experiments.lenet import TrainingArithmetic
    from trainwright.posit.experiments.training import Epoch, TrainingRun

EXPERIMENTS = ("figure-2", "figure-8", "figure-9")
_DATA = {"figure-8": "mnist", "figure-9": "fashion-mnist"}

EPILOG = """\
experiments:
  figure-2  decimal accuracy of 8-bit fixed point, floats and posits
  figure-8  LeNet-5 on MNIST in float32 and posits: accuracy after each epoch
  figure-9  the same on Fashion-MNIST

The folder gets tables.md, results.json, a picture of each figure, and a checkpoint of each run,
from which a command that was interrupted, or is asked for more epochs, goes on.
"""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    add_experiment_option(parser, EXPERIMENTS)
    parser.add_argument(
        "--arithmetic", action="append", metavar="NAME",
        help="repeatable: float32, posit(N,ES)-MODE or mixed-MODE, MODE sequential or quire; mixed "
        "is posit(8,2) with weights in posit(16,2) for convolutions, posit(16,2) for the rest "
        "(default: float32, posit(16,2) in both modes, posit(8,2)-quire, mixed-quire)",
    )  # fmt: skip
    parser.add_argument("--epochs", type=positive, default=7, metavar="N", help="default: 7")
    parser.add_argument("--images", type=positive, default=60_000, metavar="N",
                        help="of the training set; default: 60000, all")  # fmt: skip
    parser.add_argument("--data", metavar="DIR", help="default: the variable TRAINWRIGHT_DATA")
    add_run_options(parser, "posit", quick="1 epoch of 640 images; for a look")


def _run(args: argparse.Namespace) -> int:
    import torch

    from trainwright.cli.output import to_json, write_results
    from trainwright.posit.experiments.lenet import RUNS, arithmetic

    if args.quick:
        args.epochs, args.images = 1, 640
    torch.set_num_threads(args.threads)
    kinds = [arithmetic(name) for name in args.arithmetic or RUNS]
    results: dict[str, Any] = {}
    pictures: dict[str, bytes] = {}
    tables: list[str] = []
    for name in args.experiment or EXPERIMENTS:
        part = _decimals() if name == "figure-2" else _training(name, kinds, args)
        results[name], text, drawn = part
        tables.append(text)
        pictures |= drawn
        content = {"tables.md": "\n".join(tables), "results.json": to_json(results) + "\n"}
        write_results(Path(args.out), {**pictures, **content})
    text = "\n".join(tables)
    print(to_json(results) if args.json else text + f"\npictures and tables: {args.out}")
    return 0


_Outcome = tuple[Any, str, Mapping[str, bytes]]


def _decimals() -> _Outcome:
    from trainwright.posit.experiments import accuracy
    from trainwright.posit.experiments.pictures import draw_decimals
    from trainwright.report.tables import markdown

    curves = accuracy.run()
    head = ("numbers", "least", "largest", "most decimals", "decades with 1 or more")
    rows = []
    for line in curves:
        good = [x for x, d in zip(line.x, line.decimals, strict=True) if d >= 1]
        rows.append((line.name, line.x[0], line.x[-1], max(line.decimals), _decades(good)))
    table = "## Figure 2: decimal accuracy of 8 bits\n\n" + markdown(head, rows)
    return list(map(asdict, curves)), table, {"figure-2.png": draw_decimals(curves)}


def _decades(x: list[float]) -> float:
    from math import log10

    return log10(max(x) / min(x)) if x else 0.0


def _training(name: str, kinds: "list[TrainingArithmetic]", args: argparse.Namespace) -> _Outcome:
    from trainwright.cli.bars import progress_bar
    from trainwright.data import load_data_set
    from trainwright.posit.experiments.pictures import draw_training
    from trainwright.posit.experiments.training import RunSettings, train

    data = load_data_set(_DATA[name], args.data)
    images = min(args.images, len(data.train))
    found: dict[str, list[Epoch]] = {}
    folder = Path(args.out)
    folder.mkdir(parents=True, exist_ok=True)
    for kind in kinds:
        settings = RunSettings(data.name, kind.name, images, seed=args.seed)
        checkpoint = folder / f"{data.name}-{kind.name}-{images}-{args.seed}.safetensors"
        with progress_bar(f"{data.name}, {kind.name}") as tell:
            found[kind.name] = train(
                data, settings, kind, args.epochs, checkpoint,
                progress=lambda done, total, run, tell=tell: tell(done, total, _note(run)),
            )  # fmt: skip
    percent = {kind: [100 * epoch.accuracy for epoch in run] for kind, run in found.items()}
    picture = {f"{name}.png": draw_training(data.name, percent)}
    results = {kind: list(map(asdict, run)) for kind, run in found.items()}
    table = _table(name, data.name, images, args.epochs, found)
    return {"data": data.name, "images": images, "runs": results}, table, picture


def _note(run: "TrainingRun") -> str:
    """Where a training is, beside how many images it has seen."""
    loss = f"loss {run.loss / run.done:.4f}" if run.done else ""
    test = f"test {run.epochs[-1].accuracy:.2%}" if run.epochs else ""
    return ", ".join(filter(None, (f"epoch {len(run.epochs) + bool(run.done)}", loss, test)))


def _table(
    name: str, data: str, images: int, epochs: int, found: "Mapping[str, list[Epoch]]"
) -> str:
    from trainwright.report.tables import markdown

    head = ("arithmetic", *(f"epoch {n + 1}" for n in range(epochs)), "less than float32", "best",
            "loss", "ms an image", "digest")  # fmt: skip
    reference = found["float32"][-1].accuracy if "float32" in found else None
    rows = []
    for kind, run in found.items():
        percent = [100 * epoch.accuracy for epoch in run]
        behind = None if reference is None else round(100 * reference - percent[-1], 2)
        pace = 1e3 * sum(epoch.seconds for epoch in run) / (len(run) * images)
        rows.append((kind, *percent, behind, max(percent), run[-1].loss, pace, run[-1].digest))
    title = (
        f"## F{name[1:].replace('-', ' ')}: LeNet-5 on {data}, {images:,} images an epoch, %\n\n"
    )
    return title + markdown(head, rows)


command = SimpleCommand(
    "posit", "LeNet-5 trained in posits; decimal accuracy of 8 bits", _add_arguments, _run
)

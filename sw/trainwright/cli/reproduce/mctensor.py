"""``trainwright reproduce mctensor``: tables 2, 3, 6 to 8, 11, figures 1, 8, 9 of the paper."""

import argparse
from collections.abc import Mapping
from dataclasses import asdict, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainwright.cli.command import SimpleCommand
from trainwright.cli.errors import OptionError
from trainwright.cli.options import positive
from trainwright.cli.reproduce.options import add_experiment_option, add_run_options
from trainwright.support.text import suggestion

if TYPE_CHECKING:
    from trainwright.mcf.experiments.embedding import EmbeddingResult
    from trainwright.mcf.experiments.learning import LearningResult
    from trainwright.mcf.experiments.tables import PaperTable

_LEARNING = ("table-6", "table-7", "table-8", "table-2", "table-11")
EXPERIMENTS = ("figures", *_LEARNING, "table-3")

EPILOG = """\
experiments, with about the time that one core takes:
  figures   figures 1, 8 and 9: relative error of add, scaling and multiply against the magnitude of
            the operands, 1 to 3 components of float32, against 3,000 bits (seconds)
  table-6   linear regression (half a minute)
  table-7   logistic regression on points in the plane (a minute)
  table-8   logistic regression on breast cancer (a minute)
  table-2   network with two hidden layers on breast cancer (four minutes)
  table-11  the same on 10,000 images of MNIST, from --data (six minutes)
  table-3   hyperbolic embedding of WordNet's mammals, from --data: mean average precision and mean
            rank (an hour; ctrl-c and the same command go on from the checkpoints in --out)

All types begin with the same weights, see the same data and take the same steps. Gradients of
float16 components are one float16, as in the paper, or ("float32 gradients") of float32. A table
says whether float16 with components has the loss of float32 to the digits that the paper prints;
table-6 compares after 300 of 2,000 epochs, while float32 still has the digits of float64.
The folder gets tables.md, results.json and pictures. docs/reference/mcf.md has the settings.

examples:
  trainwright reproduce mctensor --experiment table-8
  trainwright reproduce mctensor --experiment table-3 --seeds 5 \\
      --way float64 --way "mcf float64 nc=2"
"""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    add_experiment_option(parser, EXPERIMENTS)
    parser.add_argument(
        "--way", action="append", metavar="TYPE",
        help='only this type (repeatable), such as float32 or "mcf float16 nc=2"; table-3 has '
        "float64 components, the other tables float16",
    )  # fmt: skip
    parser.add_argument("--epochs", type=positive, metavar="N",
                        help="default: the paper's; 1000 for table-3")  # fmt: skip
    parser.add_argument("--seeds", type=positive, default=1, metavar="N",
                        help="of table-3, from --seed on (default: 1; the paper: 5)")  # fmt: skip
    parser.add_argument("--data", metavar="DIR", help="default: the variable TRAINWRIGHT_DATA")
    add_run_options(
        parser, "mctensor", seed=1234, quick="few epochs and points, in half a minute; for a look"
    )


def _run(args: argparse.Namespace) -> int:
    import torch

    from trainwright.cli.output import to_json, write_results

    _check(args)
    torch.set_num_threads(args.threads)
    results: dict[str, Any] = {}
    pictures: dict[str, bytes] = {}
    tables: list[str] = []
    for name in args.experiment or EXPERIMENTS:
        part = {"figures": _figures, "table-3": _embedding}.get(name)
        results[name], text, drawn = part(args) if part else _learning(name, args)
        tables.append(text)
        pictures |= drawn
        content = {"tables.md": "\n".join(tables), "results.json": to_json(results) + "\n"}
        write_results(Path(args.out), {**pictures, **content})
    text = "\n".join(tables)
    print(to_json(results) if args.json else text + f"\npictures and tables: {args.out}")
    return 0


def _check(args: argparse.Namespace) -> None:
    from trainwright.mcf.experiments import embedding, learning

    if missing := [name for name in ("matplotlib", "sklearn") if find_spec(name) is None]:
        raise OptionError(f"this needs {missing[0]}: pip install 'trainwright[train]'")
    known = dict.fromkeys(learning.WAYS + embedding.WAYS)
    for way in args.way or ():
        if way not in known:
            raise OptionError(
                f"--way {way!r}: there are {', '.join(known)}{suggestion(way, known)}"
            )


_Outcome = tuple[Any, str, Mapping[str, bytes]]


def _figures(args: argparse.Namespace) -> _Outcome:
    from trainwright.cli.bars import progress_bar
    from trainwright.mcf.experiments import errors
    from trainwright.mcf.experiments.pictures import draw_errors
    from trainwright.report.tables import markdown

    count, magnitudes = (10, (-12, -2, 2, 12)) if args.quick else (100, errors.MAGNITUDES)
    with progress_bar("figures 8 and 9") as progress:
        points = errors.run(count, magnitudes, args.seed, progress=progress)
    ways = dict.fromkeys(point.way for point in points)
    lines = []
    for figure in (8, 9):
        for operation in errors.OPERATIONS:
            chosen = [p for p in points if (p.figure, p.operation) == (figure, operation)]
            worst = (max(p.largest for p in chosen if p.way == way) for way in ways)
            lines.append((str(figure), operation, *worst))
    title = "## Figures 1, 8 and 9: largest relative error over all magnitudes\n\n"
    pictures = {f"figure-{n}.png": draw_errors(points, n) for n in (8, 9)}
    text = title + markdown(("figure", "operation", *ways), lines)
    return list(map(asdict, points)), text, pictures


def _learning(name: str, args: argparse.Namespace) -> _Outcome:
    from trainwright.cli.bars import progress_bar
    from trainwright.mcf.experiments.learning import WAYS, train
    from trainwright.mcf.experiments.pictures import draw_learning
    from trainwright.mcf.experiments.tables import TABLES

    table = TABLES[name]
    epochs = args.epochs or (min(table.task.epochs, 20) if args.quick else table.task.epochs)
    task = replace(table.task, epochs=epochs, seed=args.seed)
    data = table.load(args.data, args.seed)
    found = []
    for way in (way for way in WAYS if not args.way or way in args.way):
        with progress_bar(f"{name}, {way}") as progress:
            found.append(train(task, data, way, progress))
    if not found:
        raise OptionError(f"--way: {name} has {', '.join(WAYS)}")
    results = {"task": asdict(task), "outcomes": list(map(asdict, found))}
    picture = {f"{name}.png": draw_learning(table.title, found)}
    return results, _learning_table(table, epochs, found), picture


def _learning_table(table: "PaperTable", epochs: int, found: "list[LearningResult]") -> str:
    from trainwright.report.tables import markdown

    at = min(table.compared or epochs, epochs)
    losses = {each.way: table.spelt(each.losses[at - 1]) for each in found}
    wanted = losses.get("float32")
    head = ["type", "loss" if at == epochs else f"loss after {at:,}", "as float32"]
    head += [] if at == epochs else [f"after {epochs:,}"]
    rows = []
    for each in found:
        loss, accuracy = table.printed.get(each.way, (None, None))
        own = losses[each.way]
        last = [] if at == epochs else [table.spelt(each.loss)]
        same = None if wanted is None else "yes" if own == wanted else "no"
        percents = (None if p is None else f"{p:.2f}" for p in (each.accuracy, accuracy))
        rows.append((each.way, own, same, *last, loss and table.spelt(loss), *percents))
    head += ["paper's loss", "% right", "paper's %"]
    return f"## {table.title}, {epochs:,} epochs\n\n" + markdown(head, rows)


def _embedding(args: argparse.Namespace) -> _Outcome:
    from trainwright.cli.bars import progress_bar
    from trainwright.mcf.experiments import embedding, hierarchy
    from trainwright.mcf.experiments.pictures import draw_embedding

    mammals = hierarchy.read(args.data)
    epochs = args.epochs or (2 if args.quick else 1000)
    folder = Path(args.out)
    folder.mkdir(parents=True, exist_ok=True)
    found = []
    for seed in range(args.seed, args.seed + args.seeds):
        for way in (way for way in embedding.WAYS if not args.way or way in args.way):
            settings = embedding.EmbeddingSettings(way, seed)
            name = f"halfspace-{way.replace(' ', '-').replace('=', '')}-{seed}-{epochs}.safetensors"
            with progress_bar(f"table-3, {way}, seed {seed}") as progress:
                found.append(
                    embedding.train(mammals, settings, epochs, folder / name, progress=progress)
                )
    if not found:
        raise OptionError(f"--way: table-3 has {', '.join(embedding.WAYS)}")
    picture = {"table-3.png": draw_embedding(found)}
    return list(map(asdict, found)), _embedding_table(epochs, args.seeds, found), picture


def _embedding_table(epochs: int, seeds: int, found: "list[EmbeddingResult]") -> str:
    from trainwright.mcf.experiments.embedding import PRINTED
    from trainwright.report.tables import markdown

    rows = []
    for way in dict.fromkeys(each.way for each in found):
        runs = [each for each in found if each.way == way]
        paper = PRINTED[way]
        precision = _spread([each.found.map for each in runs], 2)
        rank = _spread([each.found.mean_rank for each in runs], 3)
        lowest = min(each.lowest for each in runs)
        rows.append((way, precision, f"{paper[0]:.2f}", rank, f"{paper[1]:.3f}", lowest))
    head = ("type", "MAP, %", "paper's", "mean rank", "paper's", "least height")
    title = f"## Table 3: WordNet mammals in the half-space, {epochs:,} epochs, {seeds} seeds\n\n"
    return title + markdown(head, rows)


def _spread(values: list[float], places: int) -> str:
    """Mean, and the standard deviation where there are several."""
    import statistics

    mean = f"{statistics.mean(values):.{places}f}"
    if len(values) == 1:
        return mean
    return f"{mean} ± {statistics.stdev(values):.{places}f}"


command = SimpleCommand(
    "mctensor", "multi-component floats: regression, networks, hyperbolic embedding, errors",
    _add_arguments, _run,
)  # fmt: skip

"""Findings of the experiments, by the options of ``trainwright reproduce mctensor``."""

from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from trainwright.mcf.experiments import embedding, errors, hierarchy
from trainwright.mcf.experiments.learning import WAYS, LearningResult, train
from trainwright.mcf.experiments.pictures import draw_embedding, draw_errors, draw_learning
from trainwright.mcf.experiments.tables import TABLES, PaperTable
from trainwright.support.finding import Experiment, Finding, Tell, finding
from trainwright.support.text import amount


def _figures(options: Any, tell: Tell) -> Finding:
    count, magnitudes = (10, (-12, -2, 2, 12)) if options.quick else (100, errors.MAGNITUDES)
    points = errors.run(count, magnitudes, options.seed, progress=tell("figures 8 and 9"))
    ways = dict.fromkeys(point.way for point in points)
    lines = []
    for figure in (8, 9):
        for operation in errors.OPERATIONS:
            chosen = [p for p in points if (p.figure, p.operation) == (figure, operation)]
            worst = (max(p.largest for p in chosen if p.way == way) for way in ways)
            lines.append((str(figure), operation, *worst))
    title = "Figures 1, 8 and 9: largest relative error over all magnitudes"
    pictures = {f"figure-{n}.png": draw_errors(points, n) for n in (8, 9)}
    return finding(title, ("figure", "operation", *ways), lines, points, pictures)


def _learning(name: str, options: Any, tell: Tell) -> Finding:
    table = TABLES[name]
    epochs = options.epochs or min(table.task.epochs, 20 if options.quick else table.task.epochs)
    task = replace(table.task, epochs=epochs, seed=options.seed)
    ways = options.ways(WAYS, name)
    data = table.load(options.data, options.seed)
    runs = [train(task, data, way, tell(f"{name}, {way}")) for way in ways]
    learnt = _learning_table(table, epochs, runs, {f"{name}.png": draw_learning(table.title, runs)})
    return replace(learnt, results={"task": asdict(task), "outcomes": learnt.results})


def _learning_table(
    table: PaperTable, epochs: int, runs: list[LearningResult], picture: dict[str, bytes]
) -> Finding:
    at = min(table.compared or epochs, epochs)
    losses = {run.way: table.spelt(run.losses[at - 1]) for run in runs}
    wanted = losses.get("float32")
    head = ["type", "loss" if at == epochs else f"loss after {at:,}", "as float32"]
    head += [] if at == epochs else [f"after {epochs:,}"]
    rows = []
    for run in runs:
        loss, accuracy = table.printed.get(run.way, (None, None))
        last = [] if at == epochs else [table.spelt(run.loss)]
        same = None if wanted is None else "yes" if losses[run.way] == wanted else "no"
        percents = (None if p is None else f"{p:.2f}" for p in (run.accuracy, accuracy))
        printed = loss and table.spelt(loss)
        rows.append((run.way, losses[run.way], same, *last, printed, *percents))
    head += ["paper's loss", "% right", "paper's %"]
    return finding(f"{table.title}, {amount(epochs, 'epoch')}", head, rows, runs, picture)


def _embedding(options: Any, tell: Tell) -> Finding:
    mammals = hierarchy.read(options.data)
    ways = options.ways(embedding.WAYS, "table-3")
    epochs = options.epochs or (2 if options.quick else 1000)
    folder = Path(options.out)
    folder.mkdir(parents=True, exist_ok=True)
    runs: list[embedding.EmbeddingResult] = []
    for seed in range(options.seed, options.seed + options.seeds):
        for way in ways:
            settings = embedding.EmbeddingSettings(way, seed)
            name = f"halfspace-{way.replace(' ', '-').replace('=', '')}-{seed}-{epochs}.safetensors"
            show = tell(f"table-3, {way}, seed {seed}", 30)
            runs.append(embedding.train(mammals, settings, epochs, folder / name, progress=show))
    rows = []
    for way in ways:
        group = [run for run in runs if run.way == way]
        paper = embedding.PRINTED[way]
        precision = _spread([run.reconstruction.map for run in group], 2)
        rank = _spread([run.reconstruction.mean_rank for run in group], 3)
        lowest = min(run.lowest for run in group)
        rows.append((way, precision, f"{paper[0]:.2f}", rank, f"{paper[1]:.3f}", lowest))
    head = ("type", "MAP, %", "paper's", "mean rank", "paper's", "least height")
    length = f"{amount(epochs, 'epoch')}, {amount(options.seeds, 'seed')}"
    title = f"Table 3: WordNet mammals in the half-space, {length}"
    return finding(title, head, rows, runs, {"table-3.png": draw_embedding(runs)})


def _spread(values: list[float], places: int) -> str:
    """Return the mean, and the standard deviation where there are several values."""
    deviation = f" ± {stdev(values):.{places}f}" if len(values) > 1 else ""
    return f"{mean(values):.{places}f}{deviation}"


EXPERIMENTS: dict[str, Experiment] = {
    "figures": _figures,
    **{name: partial(_learning, name) for name in TABLES},
    "table-3": _embedding,
}
PICTURES = ("figure-8.png", "figure-9.png", "table-3.png", *(f"{name}.png" for name in TABLES))
"""Files that findings can have: those of experiments that do not run again are removed."""

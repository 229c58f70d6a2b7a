"""``trainwright reproduce mctensor``: tables 2, 3, 6 to 8, 11, figures 1, 8, 9 of the paper."""

from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from statistics import mean, stdev
from typing import TYPE_CHECKING, Annotated

from trainwright.cli.errors import OptionError
from trainwright.cli.output import teller
from trainwright.cli.reproduce.experiment import ExperimentOptions, Finding, command_of, finding
from trainwright.support.settings import Natural, Option, Positive
from trainwright.support.text import suggestion

if TYPE_CHECKING:
    from trainwright.mcf.experiments.embedding import EmbeddingResult
    from trainwright.mcf.experiments.learning import LearningResult
    from trainwright.mcf.experiments.tables import PaperTable

_LEARNING = ("table-6", "table-7", "table-8", "table-2", "table-11")


class McTensorOptions(ExperimentOptions):
    r"""Repeat the experiments on multi-component floats.

    experiments, with about the time that one core takes:
      figures   figures 1, 8 and 9: relative error of add, scaling and multiply against the
                magnitude of the operands, 1 to 3 components of float32 (seconds)
      table-6   linear regression (half a minute)
      table-7   logistic regression on points in the plane (a minute)
      table-8   logistic regression on breast cancer (a minute)
      table-2   network with two hidden layers on breast cancer (four minutes)
      table-11  the same on 10,000 images of MNIST, from --data (six minutes)
      table-3   hyperbolic embedding of WordNet's mammals, from --data: mean average precision and
                mean rank (an hour; ctrl-c and the same command go on from the checkpoints in --out)

    All types begin with the same weights, see the same data and take the same steps. Gradients of
    float16 components are one float16, as in the paper, or ("float32 gradients") of float32. A
    table says whether float16 with components has the loss of float32 to the digits that the paper
    prints; table-6 compares after 300 of 2,000 epochs, while float32 still has the digits of
    float64. The folder gets tables.md, results.json and pictures. docs/results/mcf.md has the
    settings.

    Examples
    --------
      trainwright reproduce mctensor --experiment table-8
      trainwright reproduce mctensor --experiment table-3 --seeds 5 \
          --way float64 --way "mcf float64 nc=2"
    """

    seed: Natural = 1234
    """seed of everything random"""
    quick: bool = False
    """few epochs and points, in half a minute; for a look"""
    way: Annotated[tuple[str, ...], Option(metavar="TYPE")] = ()
    """only this type (repeatable), such as float32 or "mcf float16 nc=2"; table-3 has float64
    components, all other tables float16"""
    epochs: Positive | None = None
    """epochs of a run (default: the paper's; 1000 for table-3)"""
    seeds: Positive = 1
    """seeds of table-3, from --seed on (the paper: 5)"""
    data: Annotated[str | None, Option(metavar="DIR")] = None
    """folder of the data sets' files (default: the variable TRAINWRIGHT_DATA)"""

    def ways(self, known: tuple[str, ...], name: str) -> list[str]:
        """Return those of the known ways that were asked for. Raises ``OptionError`` if none."""
        chosen = [way for way in known if not self.way or way in self.way]
        if not chosen:
            raise OptionError(f"--way: {name} has {', '.join(known)}")
        return chosen

    def prepared(self) -> "McTensorOptions":
        """See ``ExperimentOptions``."""
        from trainwright.mcf.experiments import embedding, learning

        known = dict.fromkeys(learning.WAYS + embedding.WAYS)
        for way in self.way:
            if way not in known:
                close = suggestion(way, known)
                raise OptionError(f"--way {way!r}: there are {', '.join(known)}{close}")
        return self


def _figures(options: McTensorOptions) -> Finding:
    from trainwright.mcf.experiments import errors
    from trainwright.mcf.experiments.pictures import draw_errors

    count, magnitudes = (10, (-12, -2, 2, 12)) if options.quick else (100, errors.MAGNITUDES)
    points = errors.run(count, magnitudes, options.seed, progress=teller("figures 8 and 9"))
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


def _learning(name: str, options: McTensorOptions) -> Finding:
    from trainwright.mcf.experiments.learning import WAYS, train
    from trainwright.mcf.experiments.pictures import draw_learning
    from trainwright.mcf.experiments.tables import TABLES

    table = TABLES[name]
    epochs = options.epochs or min(table.task.epochs, 20 if options.quick else table.task.epochs)
    task = replace(table.task, epochs=epochs, seed=options.seed)
    ways = options.ways(WAYS, name)
    data = table.load(options.data, options.seed)
    runs = [train(task, data, way, teller(f"{name}, {way}")) for way in ways]
    learnt = _learning_table(table, epochs, runs, {f"{name}.png": draw_learning(table.title, runs)})
    return replace(learnt, results={"task": asdict(task), "outcomes": learnt.results})


def _learning_table(
    table: "PaperTable", epochs: int, runs: "list[LearningResult]", picture: dict[str, bytes]
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
    return finding(f"{table.title}, {epochs:,} epochs", head, rows, runs, picture)


def _embedding(options: McTensorOptions) -> Finding:
    from trainwright.mcf.experiments import embedding, hierarchy
    from trainwright.mcf.experiments.pictures import draw_embedding

    mammals = hierarchy.read(options.data)
    ways = options.ways(embedding.WAYS, "table-3")
    epochs = options.epochs or (2 if options.quick else 1000)
    folder = Path(options.out)
    folder.mkdir(parents=True, exist_ok=True)
    runs: list[EmbeddingResult] = []
    for seed in range(options.seed, options.seed + options.seeds):
        for way in ways:
            settings = embedding.EmbeddingSettings(way, seed)
            name = f"halfspace-{way.replace(' ', '-').replace('=', '')}-{seed}-{epochs}.safetensors"
            tell = teller(f"table-3, {way}, seed {seed}", 30)
            runs.append(embedding.train(mammals, settings, epochs, folder / name, progress=tell))
    rows = []
    for way in ways:
        group = [run for run in runs if run.way == way]
        paper = embedding.PRINTED[way]
        precision = _spread([run.reconstruction.map for run in group], 2)
        rank = _spread([run.reconstruction.mean_rank for run in group], 3)
        lowest = min(run.lowest for run in group)
        rows.append((way, precision, f"{paper[0]:.2f}", rank, f"{paper[1]:.3f}", lowest))
    head = ("type", "MAP, %", "paper's", "mean rank", "paper's", "least height")
    length = f"{epochs:,} epochs, {options.seeds} seeds"
    title = f"Table 3: WordNet mammals in the half-space, {length}"
    return finding(title, head, rows, runs, {"table-3.png": draw_embedding(runs)})


def _spread(values: list[float], places: int) -> str:
    """Return the mean, and the standard deviation where there are several values."""
    deviation = f" ± {stdev(values):.{places}f}" if len(values) > 1 else ""
    return f"{mean(values):.{places}f}{deviation}"


EXPERIMENTS = {
    "figures": _figures,
    **{name: partial(_learning, name) for name in _LEARNING},
    "table-3": _embedding,
}
command = command_of(
    EXPERIMENTS, McTensorOptions, "mctensor",
    "multi-component floats: regression, networks, hyperbolic embedding, errors",
    needs={"sklearn": _LEARNING},
)  # fmt: skip

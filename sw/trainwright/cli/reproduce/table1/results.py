"""The runs of a row put together, and the tables made of them."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import mean
from typing import Any

from trainwright.cli.reproduce.table1.rows import DENSE, Row
from trainwright.cli.reproduce.table1.runs import Run
from trainwright.compiler import compile_step
from trainwright.network import load_network
from trainwright.parameters import AcceleratorParameters
from trainwright.report.memory import (
    CHIP,
    PLACES,
    MemoryItem,
    accelerator_memory,
    dense_parameters,
    float_memory,
    host_memory,
)
from trainwright.report.tables import markdown
from trainwright.train.settings import TrainSettings


@dataclass(frozen=True)
class Outcome:
    """Means over the seeds of a row; accuracies in percent."""

    row: Row
    seeds: tuple[int, ...]
    train: float
    test: float
    """Of the last epoch's model."""
    spread: float
    """Greatest less least of the seeds' test accuracies."""
    best: float
    """Mean of each seed's best epoch on the test images."""
    bits: float
    reduction: float
    """Dense bits over the mean of the bits."""
    least_reduction: float
    seconds: float
    command: str
    digests: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)


def outcome(runs: Sequence[Run]) -> Outcome:
    """The outcome of the finished runs of one row."""
    results = [run.result() for run in runs]
    tests = [100 * r["test_accuracy"] for r in results]
    bests = [100 * max(e["accuracy"] for e in run.history("evaluation")) for run in runs]
    bits = mean(r["model_bits"] for r in results)
    return Outcome(
        row=runs[0].row,
        seeds=tuple(run.seed for run in runs),
        train=mean(100 * r["train_accuracy"] for r in results),
        test=mean(tests),
        spread=max(tests) - min(tests),
        best=mean(bests),
        bits=bits,
        reduction=results[0]["dense_bits"] / bits,
        least_reduction=min(r["reduction"] for r in results),
        seconds=mean(r["seconds"] for r in results),
        command=runs[0].command,
        digests=tuple(r["digest"] for r in results),
    )


def table(outcomes: Sequence[Outcome]) -> str:
    """Rows beside the paper's."""
    dense = ("dense float, printed", None, None, None, None, None, DENSE.test, DENSE.reduction)
    rows = [
        (
            o.row.title,
            round(o.test, 2),
            round(o.best, 2),
            round(o.spread, 2),
            round(o.train, 2),
            round(o.reduction, 1),
            o.row.printed and o.row.printed.test,
            o.row.printed and o.row.printed.reduction,
        )
        for o in outcomes
    ]
    head = ("row", "test, %", "best epoch", "spread", "training", "reduction", "paper's test",
            "paper's reduction")  # fmt: skip
    return markdown(head, [dense, *rows])


def ablation_table(outcomes: Sequence[Outcome]) -> str:
    """What one changed choice does to accuracy and size; the first row is the recipe."""
    base = outcomes[0]
    rows = [
        (o.row.title, round(o.test, 2), round(o.test - base.test, 2), round(o.reduction, 1))
        for o in outcomes
    ]
    head = ("recipe with", "test, %", f"against {base.row.title}", "reduction")
    return markdown(head, rows)


def memory_table(runs: Mapping[Row, Sequence[Run]]) -> str:
    """The full training state of the first run of every row, beside training dense in float32."""
    network = load_network("fashion")
    batch = next(iter(runs.values()))[0].result()["settings"]["batch"]
    schemes = {"dense float32": float_memory(network, batch, dense_parameters(network))}
    parameters = AcceleratorParameters()
    paper = compile_step(network, batch, parameters, plan="paper")
    schemes["the paper's contraction order"] = [
        *accelerator_memory(paper),
        *host_memory(network, TrainSettings()),
    ]
    for row, group in runs.items():
        items = group[0].result()["memory"]
        schemes[row.title] = [MemoryItem(**item) for item in items]
    rows = []
    for name, items in schemes.items():
        places = [sum(i.bits for i in items if i.place == place) for place in PLACES]
        largest = max((i for i in items if i.place != CHIP), key=lambda i: i.bits)
        rows.append((name, *places, f"{largest.name}, {largest.bits:,}"))
    return markdown(("training", *PLACES, "largest part off the chip"), rows)


def commands(outcomes: Sequence[Outcome]) -> str:
    """The command line of every row, and the digests of its models."""
    lines = [
        f"- {o.row.title}: `{o.command}`, seeds {', '.join(map(str, o.seeds))}: "
        + ", ".join(f"{digest[:16]}" for digest in o.digests)
        for o in outcomes
    ]
    return "\n".join(lines) + "\n"

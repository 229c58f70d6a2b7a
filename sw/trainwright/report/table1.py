"""Table 1 of the paper on Fashion-MNIST, next to runs of its recipes, and effects of choices."""

from collections.abc import Iterable, Sequence
from statistics import mean
from typing import Any

from trainwright.network import load_network
from trainwright.parameters import AcceleratorParameters
from trainwright.report import recipes
from trainwright.support.files import packaged
from trainwright.support.tables import markdown

_TABLES = packaged(__file__, "table1.toml")
DENSE = recipes.PrintedResult(**_TABLES.pop("dense"))
"""Result of the paper's dense float network, which is not trained here."""
GROUPS = {name: tuple(map(recipes.read, rows)) for name, rows in _TABLES.items()}
TABLE, FRONTIER, ABLATIONS = GROUPS.values()


def outcome(runs: Sequence[recipes.FinishedRun]) -> recipes.Means:
    """Return the means over the finished runs of one row; ``best`` is of each seed's best epoch.

    ``reduction`` is the dense bits over the mean of the bits.
    """
    results = [run.result() for run in runs]
    bests = [100 * max(e["accuracy"] for e in run.history("evaluation")) for run in runs]
    bits = mean(r["model_bits"] for r in results)
    return {
        **recipes.common_means(runs),
        "row": runs[0].row,
        "train": mean(100 * r["train_accuracy"] for r in results),
        "best": mean(bests),
        "bits": bits,
        "reduction": results[0]["dense_bits"] / bits,
        "least_reduction": min(r["reduction"] for r in results),
        "seconds": mean(r["seconds"] for r in results),
    }


def table(outcomes: Sequence[recipes.Means]) -> str:
    """Return a table of the rows next to the paper's."""
    head = ("row", "test, %", "best epoch", "spread", "training", "reduction", "paper's test",
            "paper's reduction")  # fmt: skip
    dense = ("dense float, printed", *[None] * 5, DENSE.test, DENSE.reduction)
    rows: list[tuple[Any, ...]] = [dense]
    for o in outcomes:
        percents = (round(o[name], 2) for name in ("test", "best", "spread", "train"))
        paper = (p.test, p.reduction) if (p := o["row"].printed) else (None, None)
        rows.append((o["row"].title, *percents, round(o["reduction"], 1), *paper))
    return markdown(head, rows)


def ablation_table(outcomes: Sequence[recipes.Means]) -> str:
    """Return a table of the effects of one changed choice; the first row is the recipe."""
    base = outcomes[0]
    rows = [
        (o["row"].title, round(o["test"], 2), round(o["test"] - base["test"], 2),
         round(o["reduction"], 1))
        for o in outcomes
    ]  # fmt: skip
    head = ("recipe with", "test, %", f"against {base['row'].title}", "reduction")
    return markdown(head, rows)


def memory_table(runs: recipes.Runs) -> str:
    """Return a table of the full training state of every row's first run, and of dense float32."""
    from trainwright.compiler import compile_step
    from trainwright.report import memory
    from trainwright.train.settings import TrainSettings

    network = load_network("fashion")
    batch = next(iter(runs.values()))[0].result()["settings"]["batch"]
    dense = memory.float_memory(network, batch, network.dense_bits // 32)
    paper = compile_step(network, batch, AcceleratorParameters(), plan="paper")
    state = [*memory.accelerator_memory(paper), *memory.host_memory(network, TrainSettings())]
    schemes = {"dense float32": dense, "the paper's contraction order": state}
    for row, group in runs.items():
        schemes[row.title] = [memory.MemoryItem(**item) for item in group[0].result()["memory"]]
    rows = []
    for name, items in schemes.items():
        places = [sum(i.bits for i in items if i.place == place) for place in memory.PLACES]
        largest = max((i for i in items if i.place != memory.CHIP), key=lambda i: i.bits)
        rows.append((name, *places, f"{largest.name}, {largest.bits:,}"))
    return markdown(("training", *memory.PLACES, "largest part off the chip"), rows)


def commands(outcomes: Iterable[recipes.Means]) -> str:
    """Return a list of every row's command line and the digests of its models."""
    return "".join(
        f"- {o['row'].title}: `{o['command']}`, seeds {', '.join(map(str, o['seeds']))}: "
        f"{', '.join(digest[:16] for digest in o['digests'])}\n"
        for o in outcomes
    )


def combined(runs: recipes.Runs) -> recipes.Combined:
    """Combine finished runs to the tables, and to pictures."""
    from trainwright.report.table1_pictures import draw_all

    outcomes = {row: outcome(group) for row, group in runs.items()}
    plain = [o for row, o in outcomes.items() if row not in ABLATIONS]
    changed = [o for row, o in outcomes.items() if row in ABLATIONS]
    text = f"## Table 1\n\n{table(plain)}\n" if plain else ""
    text += f"## One choice changed\n\n{ablation_table(changed)}\n" if changed else ""
    text += f"## Full training state, bits\n\n{memory_table(runs)}\n"
    text += f"## Command lines, and SHA-256 of the factors\n\n{commands(outcomes.values())}"
    return {row.name: o for row, o in outcomes.items()}, text, draw_all(runs, outcomes)

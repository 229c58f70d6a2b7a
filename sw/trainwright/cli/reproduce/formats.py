"""``trainwright reproduce formats``: Fashion-MNIST at number formats, automatic and frozen."""

from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Annotated, Any

from trainwright.cli.options import accelerator_parameters
from trainwright.cli.reproduce import runs as recipes
from trainwright.network import Network, load_network
from trainwright.parameters import AcceleratorParameters
from trainwright.support.files import packaged
from trainwright.support.settings import Option
from trainwright.support.tables import markdown

FORMATS = packaged(__file__, "formats.toml")
"""Formats by name: factors have 4 bits and activations 8 where a format says nothing else."""
NARROW_WORDS = {f"{name}-words-8": FORMATS[name] for name in ("fixed-8", "posit-8")}
"""Formats on an accelerator whose words, merged and summed tensors among them, have 8 bits."""
SCALES = ("automatic", "frozen")
LEAST_ERROR = 0.1
"""Least error of the picture's logarithmic scale, in percent."""


def _row(name: str, formats: str, scales: str, *more: str) -> recipes.Recipe:
    title = f"{formats}, {scales}"
    options = ("--formats", formats, "--scales", scales, "--no-prior", *more)
    return recipes.Recipe(f"{name}-{scales}", title, options)


ROWS = tuple(
    _row(name, formats, scales, *more)
    for all_formats, more in ((FORMATS, ()), (NARROW_WORDS, ("--accelerator", "word_width=8")))
    for name, formats in all_formats.items()
    for scales in SCALES
)


class FormatRunOptions(recipes.RecipeOptions):
    """Train Fashion-MNIST at number formats, with automatic and frozen scales.

    Examples
    --------
      trainwright reproduce formats --data DIR --seeds 3 --jobs 2
      trainwright reproduce formats --data DIR --epochs 4 --seeds 1 \
          --rows fixed-8-frozen posit-8-frozen

    A row is one choice of options of `trainwright train --network fashion`. Every run has a folder
    of its own, OUT/ROW/seed-N, with its report. The same command again keeps runs that are finished
    and continues interrupted ones. Finished runs, also of an interrupted command or while another
    process trains (--finished), are combined in OUT: table.md, results.json and accuracy.png,
    accuracy against the bits that a step moves and those that it keeps in external memory.
    """

    rows: Annotated[tuple[str, ...], Option(metavar="ROW", arguments={"nargs": "+"})] = ()
    """names of rows (default: all)"""
    out: Annotated[str, Option(metavar="DIR")] = "runs/reproduce-formats"
    """folder of the runs and of their tables and pictures"""
    finished: bool = False
    """train nothing: the table of the runs that are finished"""


def _accelerator(row: recipes.Recipe, network: Network) -> AcceleratorParameters:

    sizes = [row.options[i + 1] for i, o in enumerate(row.options) if o == "--accelerator"]
    return accelerator_parameters(sizes, network)


def _network(row: recipes.Recipe) -> Network:

    return load_network("fashion").with_formats(row.options[1])


def _moved(row: recipes.Recipe, result: Mapping[str, Any]) -> int:
    """Return the bits that a step of a finished run moves."""
    from trainwright.compiler import compile_step

    network = _network(row).with_ranks(result["ranks"])
    p = _accelerator(row, network)
    return 8 * compile_step(network, result["settings"]["batch"], p).bytes_moved


def _stored(result: Mapping[str, Any]) -> int:
    from trainwright.report.memory import ACCELERATOR

    items = [item for item in result["memory"] if item["place"] == ACCELERATOR]
    return sum(item["bits"] for item in items if item["name"] != "programs")


def outcome(runs: Sequence[recipes.RecipeRun]) -> recipes.Means:
    """Return the means over the finished runs of one row.

    ``moved`` and ``stored`` are bits of external memory that a step reads and writes, its programs
    among them, and that it keeps, without programs; ``exponents_moved`` is of a run, ``saturated``
    and ``underflowed`` are values a step.
    """
    row, results = runs[0].row, [run.result() for run in runs]
    steps = [list(run.history("step")) for run in runs]
    records = [record for own in steps for record in own]
    return {
        **recipes.common_means(runs),
        "formats": row.options[1],
        "scales": row.options[3],
        "word_width": _accelerator(row, _network(row)).word_width,
        "moved": mean(_moved(row, result) for result in results),
        "stored": mean(map(_stored, results)),
        "exponents_moved": mean(sum(r["moved"] for r in own) for own in steps),
        "saturated": mean(r["saturations"] for r in records),
        "underflowed": mean(r["underflows"] for r in records),
    }


def table(outcomes: Sequence[recipes.Means]) -> str:
    """Return a table with a line for each row."""
    whole = {
        "moved": "bits moved a step", "stored": "bits stored", "exponents_moved": "exponents moved",
        "saturated": "saturated a step", "underflowed": "underflowed a step",
    }  # fmt: skip
    head = ("formats", "scales", "words", "seeds", "test, %", "spread", *whole.values())
    rows = [
        (
            o["formats"], o["scales"], o["word_width"], len(o["seeds"]), round(o["test"], 2),
            round(o["spread"], 2), *(round(o[name]) for name in whole),
        )
        for o in outcomes
    ]  # fmt: skip
    return markdown(head, rows)


def _label(o: recipes.Means) -> str:
    words = f", words of {o['word_width']} bits" if o["word_width"] < 16 else ""
    return o["formats"] + words


def picture(outcomes: Sequence[recipes.Means]) -> bytes:
    """Draw errors against bits moved and against bits stored; frozen scales hollow.

    Formats of equal bits stand next to each other, and errors are on a logarithmic scale: most
    formats have 11 to 15 %, and those that fail 50 and more.
    """
    from trainwright.support.figure import COLOURS, dress, new_figure, to_png

    figure = new_figure(height=5.5)
    labels = list(dict.fromkeys(map(_label, outcomes)))
    sides = figure.subplots(1, 2, sharey=True)
    what = {"moved": "bits moved a step", "stored": "bits stored"}
    for axes, name in zip(sides, what, strict=True):
        first = name == "moved"
        dress(axes, "", what[name], "% of the test images wrong" if first else "")
        groups = sorted({o[name] for o in outcomes})
        for o in outcomes:
            bits, number, frozen = o[name], labels.index(_label(o)), o["scales"] != SCALES[0]
            beside = list(dict.fromkeys(_label(p) for p in outcomes if p[name] == bits))
            among = 0.8 * ((beside.index(_label(o)) + 0.5) / len(beside) - 0.5)
            colour = COLOURS[number % len(COLOURS)]
            axes.plot(
                groups.index(bits) + among, max(100 - o["test"], LEAST_ERROR),
                "os^D"[number // len(COLOURS)], color=colour,
                markerfacecolor="none" if frozen else colour,
                label=_label(o) if first and not frozen else None,
            )  # fmt: skip
        if not outcomes:
            continue
        axes.set_xticks(range(len(groups)), [f"{bits:,.0f}" for bits in groups])
        axes.set_xlim(-0.6, len(groups) - 0.4)
        axes.set_yscale("log")
        worst = max(20.0, *(110 - 1.1 * o["test"] for o in outcomes))  # 10 % above the worst
        ticks = [tick for tick in (10, 11, 12, 13, 15, 20, 30, 50, 80) if tick <= worst]
        axes.set_yticks(ticks, [str(tick) for tick in ticks], minor=False)
        axes.set_yticks([], minor=True)
    if sides[0].get_legend_handles_labels()[1]:
        figure.legend(frameon=False, fontsize=6, loc="outside lower center")
    return to_png(figure)


def _combine(runs: recipes.Runs) -> tuple[Any, str, Mapping[str, bytes]]:
    outcomes = [outcome(group) for group in runs.values()]
    return outcomes, table(outcomes), {"accuracy.png": picture(outcomes)}


EPILOG = "\n".join(
    (
        "formats, each with automatic and frozen scales (rows NAME-automatic and NAME-frozen):",
        *(f"  {name:16} {formats}" for name, formats in FORMATS.items()),
        f"and, on an accelerator with words of 8 bits, {', '.join(NARROW_WORDS)}",
    )
)
command = recipes.recipe_command(
    FormatRunOptions, {"all": ROWS}, _combine, "formats",
    "Fashion-MNIST at number formats, scales automatic and frozen", EPILOG,
)  # fmt: skip

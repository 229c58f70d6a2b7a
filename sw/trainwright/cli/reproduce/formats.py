"""``trainwright reproduce formats``: Fashion-MNIST at number formats, automatic and frozen."""

from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Annotated, Any

from trainwright.cli.options import accelerator_parameters
from trainwright.cli.reproduce import runs as recipes
from trainwright.network import Network, load_network
from trainwright.parameters import AcceleratorParameters
from trainwright.report.recipes import Combined, Means, Recipe, common_means
from trainwright.support.files import packaged
from trainwright.support.settings import Option

FORMATS = packaged(__file__, "formats.toml")
"""Formats by name: factors have 4 bits and activations 8 where a format says nothing else."""
NARROW_WORDS = {f"{name}-words-8": FORMATS[name] for name in ("fixed-8", "posit-8")}
"""Formats on an accelerator whose words, merged and summed tensors among them, have 8 bits."""


def _row(name: str, formats: str, scales: str, *more: str) -> Recipe:
    title = f"{formats}, {scales}"
    options = ("--formats", formats, "--scales", scales, "--no-prior", *more)
    return Recipe(f"{name}-{scales}", title, options)


SCALES = ("automatic", "frozen")
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


def _accelerator(row: Recipe, network: Network) -> AcceleratorParameters:

    sizes = [row.options[i + 1] for i, o in enumerate(row.options) if o == "--accelerator"]
    return accelerator_parameters(sizes, network)


def _network(row: recipes.Recipe) -> Network:

    return load_network("fashion").with_formats(row.options[1])


def _moved(row: Recipe, result: Mapping[str, Any]) -> int:
    """Return the bits that a step of a finished run moves."""
    from trainwright.compiler import compile_step

    network = _network(row).with_ranks(result["ranks"])
    p = _accelerator(row, network)
    return 8 * compile_step(network, result["settings"]["batch"], p).bytes_moved


def _stored(result: Mapping[str, Any]) -> int:
    from trainwright.report.memory import ACCELERATOR

    items = [item for item in result["memory"] if item["place"] == ACCELERATOR]
    return sum(item["bits"] for item in items if item["name"] != "programs")


def outcome(runs: Sequence[recipes.RecipeRun]) -> Means:
    """Return the means over the finished runs of one row.

    ``moved`` and ``stored`` are bits of external memory that a step reads and writes, its programs
    among them, and that it keeps, without programs; ``exponents_moved`` is of a run, ``saturated``
    and ``underflowed`` are values a step.
    """
    row, results = runs[0].row, [run.result() for run in runs]
    steps = [list(run.history("step")) for run in runs]
    records = [record for own in steps for record in own]
    return {
        **common_means(runs),
        "formats": row.options[1],
        "scales": row.options[3],
        "word_width": _accelerator(row, _network(row)).word_width,
        "moved": mean(_moved(row, result) for result in results),
        "stored": mean(map(_stored, results)),
        "exponents_moved": mean(sum(r["moved"] for r in own) for own in steps),
        "saturated": mean(r["saturations"] for r in records),
        "underflowed": mean(r["underflows"] for r in records),
    }


def _combine(runs: recipes.Runs) -> Combined:
    from trainwright.report.formats import picture, table

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

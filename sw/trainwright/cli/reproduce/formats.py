"""``trainwright reproduce formats``: Fashion-MNIST at number formats, automatic and frozen."""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any

from trainwright.cli.command import SimpleCommand
from trainwright.cli.errors import OptionError
from trainwright.cli.options import positive
from trainwright.cli.reproduce.table1.rows import Row
from trainwright.support.text import suggestion

if TYPE_CHECKING:
    from trainwright.cli.reproduce.table1.runs import Run
    from trainwright.network import Network
    from trainwright.parameters import AcceleratorParameters

_NARROW = "activation=posit(8,0),intermediate=posit(8,1)c,gradient="
_ALL = "activation={0},intermediate={0},gradient={0}"
FORMATS = {
    "fixed-16": "intermediate=fixed(16),gradient=fixed(16)",
    "fixed-8": "intermediate=fixed(8),gradient=fixed(8)",
    "fixed-6": "intermediate=fixed(8),gradient=fixed(6)",
    "posit-8": f"{_NARROW}posit(8,1)c",
    "posit-4": f"factor=posit(4,0),{_NARROW}posit(8,1)c",
    "posit-8-1": _ALL.format("posit(8,1)c"),
    "posit-8-0": _ALL.format("posit(8,0)"),
    "posit-8-0-never": _ALL.format("posit(8,0)") + ",underflow=never",
    "posit-6-1": _ALL.format("posit(6,1)"),
    "gradient-6-1": f"{_NARROW}posit(6,1)",
}
"""Factors have 4 bits and activations 8 where nothing else is said."""
NARROW_WORDS = {f"{name}-words-8": FORMATS[name] for name in ("fixed-8", "posit-8")}
"""On an accelerator whose words have 8 bits: what is merged and summed on chip has them too."""
SCALES = ("automatic", "frozen")
LEAST_ERROR = 0.1
"""Percent, where the picture's logarithmic scale ends."""


def _row(name: str, formats: str, scales: str, *more: str) -> Row:
    title = f"{formats}, {scales}"
    options = ("--formats", formats, "--scales", scales, "--no-prior", *more)
    return Row(f"{name}-{scales}", title, options)


ROWS = (
    *(_row(name, formats, scales) for name, formats in FORMATS.items() for scales in SCALES),
    *(
        _row(name, formats, scales, "--accelerator", "word_width=8")
        for name, formats in NARROW_WORDS.items()
        for scales in SCALES
    ),
)

EPILOG = f"""\
formats, each with automatic and with frozen scales (rows NAME-automatic and NAME-frozen):
{chr(10).join(f"  {name:16} {formats}" for name, formats in FORMATS.items())}
and, on an accelerator with words of 8 bits, {", ".join(NARROW_WORDS)}

A row is one choice of options of `trainwright train --network fashion`. Every run has a folder of
its own, OUT/ROW/seed-N, with its report; runs that are finished are kept, interrupted ones go on:
give the same command again. What is finished, also of an interrupted one or while another
process trains (--finished), is put together in OUT: table.md, results.json and
accuracy.png, accuracy against the bits that a step moves and those that it keeps in external
memory.

examples:
  trainwright reproduce formats --data DIR --seeds 3 --jobs 2
  trainwright reproduce formats --data DIR --epochs 4 --seeds 1 --rows fixed-8-frozen posit-8-frozen
"""


@dataclass(frozen=True)
class Outcome:
    """Means over the seeds of a row; accuracies in percent."""

    formats: str
    scales: str
    word_width: int
    seeds: tuple[int, ...]
    test: float
    """Of the last epoch's model."""
    spread: float
    """Greatest less least of the seeds' test accuracies."""
    moved: float
    """Bits of external memory that a step reads and writes, its programs among them."""
    stored: float
    """Bits that a step keeps in external memory, without its programs."""
    exponents_moved: float
    """In a run."""
    saturated: float
    """Values a step."""
    underflowed: float
    digests: tuple[str, ...]
    command: str

    @property
    def label(self) -> str:
        """What tells it from others in the picture."""
        return self.formats + (f", words of {self.word_width} bits" if self.word_width < 16 else "")

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)


def _accelerator(row: Row, network: "Network") -> "AcceleratorParameters":
    from trainwright.cli.options import accelerator_parameters

    sizes = [row.options[i + 1] for i, o in enumerate(row.options) if o == "--accelerator"]
    return accelerator_parameters(sizes, network)


def _network(row: Row) -> "Network":
    from trainwright.network import load_network

    return load_network("fashion").with_formats(row.options[1])


def _moved(row: Row, result: Mapping[str, Any]) -> int:
    """Bits that a step of a finished run moves."""
    from trainwright.compiler import compile_step

    network = _network(row).with_ranks(result["ranks"])
    p = _accelerator(row, network)
    return 8 * compile_step(network, result["settings"]["batch"], p).bytes_moved


def _stored(result: Mapping[str, Any]) -> int:
    from trainwright.report.memory import ACCELERATOR

    items = [item for item in result["memory"] if item["place"] == ACCELERATOR]
    return sum(item["bits"] for item in items if item["name"] != "programs")


def outcome(runs: "Sequence[Run]") -> Outcome:
    """The outcome of the finished runs of one row."""
    row, results = runs[0].row, [run.result() for run in runs]
    tests = [100 * r["test_accuracy"] for r in results]
    steps = [list(run.history("step")) for run in runs]
    every = [record for own in steps for record in own]
    return Outcome(
        formats=row.options[1],
        scales=row.options[3],
        word_width=_accelerator(row, _network(row)).word_width,
        seeds=tuple(run.seed for run in runs),
        test=mean(tests),
        spread=max(tests) - min(tests),
        moved=mean(_moved(row, result) for result in results),
        stored=mean(map(_stored, results)),
        exponents_moved=mean(sum(r["moved"] for r in own) for own in steps),
        saturated=mean(r["saturations"] for r in every),
        underflowed=mean(r["underflows"] for r in every),
        digests=tuple(r["digest"] for r in results),
        command=runs[0].command,
    )


def table(outcomes: Sequence[Outcome]) -> str:
    """A line for each row."""
    from trainwright.report.tables import markdown

    head = ("formats", "scales", "words", "seeds", "test, %", "spread",
            "bits moved a step", "bits stored", "exponents moved", "saturated a step",
            "underflowed a step")  # fmt: skip
    rows = [
        (
            o.formats, o.scales, o.word_width, len(o.seeds), round(o.test, 2),
            round(o.spread, 2), round(o.moved), round(o.stored), round(o.exponents_moved),
            round(o.saturated), round(o.underflowed),
        )
        for o in outcomes
    ]  # fmt: skip
    return markdown(head, rows)


def picture(outcomes: Sequence[Outcome]) -> bytes:
    """Errors against bits moved and against bits stored; frozen scales hollow.

    Formats of as many bits stand beside each other, and errors are on a logarithmic scale: most
    formats have 11 to 15 %, and what fails has 50 and more.
    """
    from trainwright.support.figure import COLOURS, dress, new_figure, to_png

    figure = new_figure(height=5.5)
    labels = list(dict.fromkeys(o.label for o in outcomes))
    sides = figure.subplots(1, 2, sharey=True)
    for axes, name, what in zip(
        sides, ("moved", "stored"), ("bits moved a step", "bits stored"), strict=True
    ):
        dress(axes, "", what, "% of the test images wrong" if name == "moved" else "")
        groups = sorted({getattr(o, name) for o in outcomes})
        for o in outcomes:
            bits, number, frozen = getattr(o, name), labels.index(o.label), o.scales != SCALES[0]
            beside = list(dict.fromkeys(p.label for p in outcomes if getattr(p, name) == bits))
            among = 0.8 * ((beside.index(o.label) + 0.5) / len(beside) - 0.5)
            colour = COLOURS[number % len(COLOURS)]
            axes.plot(
                groups.index(bits) + among,
                max(100 - o.test, LEAST_ERROR),
                "os^D"[number // len(COLOURS)],
                color=colour,
                markerfacecolor="none" if frozen else colour,
                label=o.label if name == "moved" and not frozen else None,
            )
        if not outcomes:
            continue
        axes.set_xticks(range(len(groups)), [f"{bits:,.0f}" for bits in groups])
        axes.set_xlim(-0.6, len(groups) - 0.4)
        axes.set_yscale("log")
        ticks = [tick for tick in (10, 11, 12, 13, 15, 20, 30, 50, 80) if tick <= _worst(outcomes)]
        axes.set_yticks(ticks, [str(tick) for tick in ticks], minor=False)
        axes.set_yticks([], minor=True)
    if sides[0].get_legend_handles_labels()[1]:
        figure.legend(frameon=False, fontsize=6, loc="outside lower center")
    return to_png(figure)


def _worst(outcomes: Sequence[Outcome]) -> float:
    """The greatest error, or a little more; at least 20 %."""
    return max([20.0, *(110 - 1.1 * o.test for o in outcomes)])


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    parser.add_argument("--rows", nargs="+", metavar="ROW", help="which (default: all)")
    parser.add_argument("--seeds", type=positive, default=3, metavar="N", help="default: 3")
    parser.add_argument("--epochs", type=positive, default=30, metavar="N", help="default: 30")
    parser.add_argument(
        "--data", metavar="DIR", help="folder of the data set's files (default: TRAINWRIGHT_DATA)"
    )
    parser.add_argument(
        "--jobs", type=positive, default=1, metavar="N", help="runs at a time (default: 1)"
    )
    parser.add_argument(
        "--finished", action="store_true", help="train nothing: the table of what is finished"
    )
    parser.add_argument("--out", default="runs/reproduce-formats", metavar="DIR")
    parser.add_argument("--json", action="store_true", help="print JSON and no tables")


def rows_named(names: Sequence[str] | None) -> tuple[Row, ...]:
    """Rows by name, in the order of the table. Raises ``OptionError``."""
    known = {row.name: row for row in ROWS}
    for name in names or ():
        if name not in known:
            raise OptionError(
                f"--rows: no row {name!r}; there are {', '.join(known)}{suggestion(name, known)}"
            )
    return tuple(row for row in ROWS if names is None or row.name in names)


def _run(args: argparse.Namespace) -> int:
    from trainwright.cli.output import to_json, write_results
    from trainwright.cli.reproduce.table1.runs import all_runs, train_runs
    from trainwright.data import load_data_set

    rows = rows_named(args.rows)
    if not args.finished:
        load_data_set("fashion-mnist", args.data)  # complains now and not in a process
    out = Path(args.out)
    groups = all_runs(rows, args.seeds, out, args.epochs)
    whole = args.finished or train_runs(groups, args.jobs, args.data)
    done = [[run for run in group if run.finished] for group in groups]
    outcomes = [outcome(group) for group in done if group]
    results = to_json([o.to_dict() for o in outcomes])
    text = table(outcomes)
    files = {"table.md": text, "results.json": results + "\n", "accuracy.png": picture(outcomes)}
    write_results(out, files)
    print(results if args.json else text + f"\npicture and table: {out}")
    return 0 if whole else 130


command = SimpleCommand(
    "formats", "Fashion-MNIST at number formats, scales automatic and frozen", _add_arguments, _run
)

"""``trainwright reproduce ape``: figures 8, 14 and 15, and the applications' accuracy."""

import argparse
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from trainwright.cli.command import SimpleCommand
from trainwright.cli.options import positive
from trainwright.cli.reproduce.options import add_experiment_option, add_run_options

EXPERIMENTS = ("figure-14", "figure-15", "figure-8", "applications")

EPILOG = """\
experiments:
  figure-14     errors of the types against the magnitude of the numbers
  figure-15     errors of matrix products against their size, by the accumulator's rounding
  figure-8      time against the share of fp32-b blocks, predicted and measured on this machine
  applications  accuracy of PCA, kNN, k-means, quantum circuits and a transformer block

The folder gets tables.md, results.json and a picture of each figure.
"""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    add_experiment_option(parser, EXPERIMENTS)
    parser.add_argument("--size", type=positive, default=512, metavar="N",
                        help="of figure 8's matrices (default: 512)")  # fmt: skip
    parser.add_argument("--largest", type=positive, default=8192, metavar="K",
                        help="longest sum of figure 15 (default: 8192)")  # fmt: skip
    add_run_options(parser, "ape")


def _run(args: argparse.Namespace) -> int:
    import torch

    from trainwright.cli.output import to_json, write_results

    if args.quick:
        args.size, args.largest = min(args.size, 128), min(args.largest, 1024)
    torch.set_num_threads(args.threads)
    results: dict[str, Any] = {}
    pictures: dict[str, bytes] = {}
    tables: list[str] = []
    for name in args.experiment or EXPERIMENTS:
        results[name], texts, drawn = _PARTS[name](args)
        tables += texts
        pictures |= drawn
    text = "\n".join(tables)
    write_results(
        Path(args.out), {**pictures, "tables.md": text, "results.json": to_json(results) + "\n"}
    )
    print(to_json(results) if args.json else text + f"\npictures and tables: {args.out}")
    return 0


_Outcome = tuple[Any, list[str], Mapping[str, bytes]]


def _magnitude(args: argparse.Namespace) -> _Outcome:
    from trainwright.ape.experiments import magnitude
    from trainwright.ape.experiments.pictures import draw_magnitude
    from trainwright.report.tables import markdown

    rows = magnitude.run(1024 if args.quick else 16384, args.seed)
    head = ("type", "least |x|", "largest |x|", "error of a value", "stated", "error of a product",
            "bound")  # fmt: skip
    table = markdown(head, [tuple(vars(row).values()) for row in magnitude.summary(rows)])
    return (
        list(map(asdict, rows)),
        ["## Figure 14: largest relative errors in range\n", table],
        {"figure-14.png": draw_magnitude(rows)},
    )


def _sizes(args: argparse.Namespace) -> _Outcome:
    from trainwright.ape.experiments import sizes
    from trainwright.ape.experiments.pictures import draw_sizes
    from trainwright.cli.output import teller
    from trainwright.report.tables import markdown

    chosen = tuple(size for size in sizes.SIZES if size <= args.largest) or (args.largest,)
    rows = sizes.run(chosen, seed=args.seed, progress=teller("figure 15"))
    ways = dict.fromkeys((row.dtype, row.rounding) for row in rows)
    found = {(row.dtype, row.rounding, row.size): row.largest for row in rows}
    table = markdown(
        ("type", "rounding", *map(str, chosen)),
        [(*way, *(found[*way, size] for size in chosen)) for way in ways],
    )
    return (
        list(map(asdict, rows)),
        ["## Figure 15: largest relative error of an element, by K\n", table],
        {"figure-15.png": draw_sizes(rows)},
    )


def _crossover(args: argparse.Namespace) -> _Outcome:
    from trainwright.ape.experiments import crossover
    from trainwright.ape.experiments.pictures import draw_crossover
    from trainwright.cli.output import teller
    from trainwright.report.tables import markdown

    rows, model, f_seconds = crossover.run(
        args.size, max(1, args.size // 8), 2 if args.quick else 5, args.seed,
        progress=teller("figure 8"),
    )  # fmt: skip
    head = ("share", "fp32-f products", "fp32-b products", "fp32-b predicted", "measured",
            "hybrid predicted", "measured", "decider", "fastest")  # fmt: skip
    table = markdown(head, [tuple(vars(row).values()) for row in rows])
    results = {"rows": list(map(asdict, rows)), "model": asdict(model), "fp32-f": f_seconds}
    title = f"## Figure 8: seconds of a {args.size} x {args.size} product on {model.device}\n"
    return results, [title, table], {"figure-8.png": draw_crossover(rows, f_seconds)}


def _applications(args: argparse.Namespace) -> _Outcome:
    from trainwright.ape.experiments import applications
    from trainwright.cli.output import teller
    from trainwright.report.tables import markdown

    ways = ("fp32", "fp32-f", "fp16") if args.quick else applications.WAYS
    rows = applications.run(ways, progress=teller("applications"))
    found = {(row.application, row.figure, row.dtype): row.value for row in rows}
    lines = dict.fromkeys((row.application, row.figure) for row in rows)
    table = markdown(
        ("application", "figure", *ways),
        [(*line, *(found.get((*line, way)) for way in ways)) for line in lines],
    )
    return list(map(asdict, rows)), ["## Applications, against float64\n", table], {}


_PARTS = {
    "figure-14": _magnitude,
    "figure-15": _sizes,
    "figure-8": _crossover,
    "applications": _applications,
}

command = SimpleCommand(
    "ape", "wide numbers on narrow multipliers: errors, crossover, applications",
    _add_arguments, _run,
)  # fmt: skip

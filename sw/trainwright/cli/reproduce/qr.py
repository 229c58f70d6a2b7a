"""``trainwright reproduce qr``: tables 2 and 3 of the draft, and the experiments it announces."""

import argparse
from collections.abc import Mapping
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from trainwright.cli.command import SimpleCommand
from trainwright.cli.errors import OptionError
from trainwright.cli.options import positive
from trainwright.cli.reproduce.options import add_experiment_option, add_run_options

EXPERIMENTS = ("dots", "conditions", "clustering")

EPILOG = """\
experiments:
  dots        tables 2 and 3: reach of the error bound, dot products in half precision
  conditions  every QR variant over condition numbers, block widths and TSQR levels
  clustering  spectral clustering of random graphs with every variant

The folder gets tables.md, results.json and a picture of each experiment.
"""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    add_experiment_option(parser, EXPERIMENTS)
    parser.add_argument(
        "--vectors", type=positive, default=2_000_000, metavar="N", help="default: 2000000"
    )
    parser.add_argument("--rows", type=positive, default=4000, metavar="M", help="default: 4000")
    parser.add_argument("--columns", type=positive, default=100, metavar="N", help="default: 100")
    add_run_options(parser, "qr")


def _run(args: argparse.Namespace) -> int:
    import torch

    from trainwright.cli.output import to_json, write_results

    chosen = args.experiment or EXPERIMENTS
    needed = {"matplotlib"} | ({"sklearn"} if "clustering" in chosen else set())
    if missing := sorted(name for name in needed if find_spec(name) is None):
        raise OptionError(f"this needs {missing[0]}: pip install 'trainwright[train]'")
    if args.columns > args.rows:
        raise OptionError(f"--columns must be at most --rows, {args.rows}, not {args.columns}")
    if args.quick:
        args.vectors, args.rows, args.columns = min(args.vectors, 20_000), 400, 24
    torch.set_num_threads(args.threads)
    results: dict[str, Any] = {}
    pictures: dict[str, bytes] = {}
    tables: list[str] = []
    for name in chosen:
        rows, texts, drawn = {"dots": _dots, "conditions": _conditions, "clustering": _clustering}[
            name
        ](args)
        results[name] = rows
        tables += texts
        pictures |= drawn
    text = "\n".join(tables)
    write_results(
        Path(args.out), {**pictures, "tables.md": text, "results.json": to_json(results) + "\n"}
    )
    print(to_json(results) if args.json else text + f"\npictures and tables: {args.out}")
    return 0


_Outcome = tuple[Any, list[str], Mapping[str, bytes]]


def _dots(args: argparse.Namespace) -> _Outcome:
    from trainwright.cli.output import teller
    from trainwright.qr.experiments import dots
    from trainwright.qr.experiments.pictures import draw_dots
    from trainwright.report.tables import markdown

    second = dots.table_2()
    errors = [
        dots.dot_errors(name, args.vectors, seed=args.seed, progress=teller(f"dots, {name}"))
        for name in dots.PRINTED
    ]
    third = [row for result in errors for row in dots.table_3(result)]
    nothing = (None, None, None)
    tables = [
        "## Table 2: largest k with gamma_k <= 1\n",
        markdown(
            ("format", "u", "k", "k with 2u, as printed"),
            [tuple(vars(row).values()) for row in second],
        ),
        f"\n## Table 3: errors of {args.vectors:,} dot products of length 512\n",
        markdown(
            ("vectors", "arithmetic", "mean", "deviation", "maximum", "printed mean",
             "printed deviation", "printed maximum", "bound", "with probability 0.99"),
            [(r.distribution, r.arithmetic, r.mean, r.deviation, r.maximum,
              *(r.printed or nothing), r.bound, r.probable) for r in third],
        ),
    ]  # fmt: skip
    rows = {"table_2": list(map(asdict, second)), "table_3": list(map(asdict, third))}
    return rows, tables, {"dots.png": draw_dots(errors)}


def _conditions(args: argparse.Namespace) -> _Outcome:
    from trainwright.cli.output import teller
    from trainwright.qr.experiments import conditions
    from trainwright.qr.experiments.pictures import draw_conditions, draw_sizes
    from trainwright.report.tables import markdown

    rows = conditions.run(args.rows, args.columns, progress=teller("conditions"))
    found: dict[str, list[conditions.ConditionErrors]] = {}
    for row in rows:
        found.setdefault(row.variant, []).append(row)

    def span(values: list[float]) -> str:
        return f"{min(values):.2e} .. {max(values):.2e}"

    table = [
        (
            name,
            span([r.residual for r in group]),
            group[0].residual_bound,
            group[0].residual_probable,
            span([r.orthogonality for r in group]),
            group[0].orthogonality_bound,
            group[0].orthogonality_probable,
            group[0].leading,
            min(r.seconds for r in group),
        )
        for name, group in found.items()
    ]
    head = ("variant", "residual", "bound", "square-root bound", "orthogonality", "bound",
            "square-root bound", "leading term", "seconds")  # fmt: skip
    title = f"## QR of {args.rows:,} x {args.columns}, {len(conditions.ALPHAS)} condition numbers\n"
    pictures = {"conditions.png": draw_conditions(rows), "sizes.png": draw_sizes(rows)}
    return list(map(asdict, rows)), [title, markdown(head, table)], pictures


def _clustering(args: argparse.Namespace) -> _Outcome:
    from trainwright.cli.output import teller
    from trainwright.qr.experiments import clustering
    from trainwright.qr.experiments.pictures import draw_clustering
    from trainwright.report.tables import markdown

    models = clustering.MODELS[:2] if args.quick else clustering.MODELS
    rows = clustering.run(models, seed=args.seed, progress=teller("clustering"))
    table = [
        (r.nodes, f"{r.inside:g} / {r.across:g}", r.difficulty, r.variant, r.agreement, r.planted,
         r.orthogonality) for r in rows
    ]  # fmt: skip
    head = ("nodes", "inside / across", "signal to noise", "variant", "as fp64", "as planted",
            "orthogonality")  # fmt: skip
    title = "## Spectral clustering of stochastic block models\n"
    picture = {"clustering.png": draw_clustering(rows)}
    return list(map(asdict, rows)), [title, markdown(head, table)], picture


command = SimpleCommand(
    "qr", "mixed-precision Householder QR: dot products, factorisations, clustering",
    _add_arguments, _run,
)  # fmt: skip

"""``trainwright reproduce table1``: Table 1 of the paper on Fashion-MNIST, and more."""

import argparse
from importlib.util import find_spec
from pathlib import Path

from trainwright.cli.command import SimpleCommand
from trainwright.cli.errors import OptionError
from trainwright.cli.options import positive
from trainwright.cli.reproduce.table1.rows import ABLATIONS, FRONTIER, GROUPS, TABLE

EPILOG = f"""\
rows (a name, or a group):
  table      {", ".join(row.name for row in TABLE)}
  frontier   {", ".join(row.name for row in FRONTIER)}
  ablations  {", ".join(row.name for row in ABLATIONS)}

A row is one choice of options of `trainwright train --network fashion`. Every run has a folder of
its own, OUT/ROW/seed-N, with its report; runs that are finished are kept, interrupted ones go on:
give the same command again. What is finished is put together in OUT: table.md, results.json,
pictures. Thirty epochs on the golden model take two to three minutes a run on one core.

examples:
  trainwright reproduce table1 --data DIR --seeds 3 --jobs 2
  trainwright reproduce table1 --data DIR --rows fixed-prior --epochs 10
  trainwright reproduce table1 --data DIR --rows ablations --seeds 1 --out runs/ablations
"""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    parser.add_argument(
        "--rows", nargs="+", default=["table"], metavar="ROW", help="which (default: table)"
    )
    parser.add_argument("--seeds", type=positive, default=3, metavar="N", help="default: 3")
    parser.add_argument("--epochs", type=positive, default=30, metavar="N", help="default: 30")
    parser.add_argument(
        "--data", metavar="DIR", help="folder of the data set's files (default: TRAINWRIGHT_DATA)"
    )
    parser.add_argument(
        "--jobs", type=positive, default=1, metavar="N", help="runs at a time (default: 1)"
    )
    parser.add_argument("--out", default="runs/reproduce-table1", metavar="DIR")
    parser.add_argument("--json", action="store_true", help="print JSON and no tables")


def _run(args: argparse.Namespace) -> int:
    from trainwright.cli.reproduce.table1.rows import rows_named
    from trainwright.cli.reproduce.table1.runs import all_runs, train_runs
    from trainwright.data import load_data_set

    for package in ("safetensors", "matplotlib"):
        if find_spec(package) is None:
            raise OptionError(f"this needs {package}: pip install 'trainwright[train]'")
    try:
        rows = rows_named(args.rows)
    except KeyError as error:
        groups = ", ".join(GROUPS)
        raise OptionError(f"--rows: no row {error}; there are {groups}, and see --help") from None
    load_data_set("fashion-mnist", args.data)  # complains now and not in a process
    out = Path(args.out)
    groups = all_runs(rows, args.seeds, out, args.epochs)
    if not train_runs(groups, args.jobs, args.data):
        return 130
    _write(groups, out, as_json=args.json)
    return 0


def _write(groups: list, out: Path, *, as_json: bool) -> None:
    from trainwright.cli.output import to_json, write_results
    from trainwright.cli.reproduce.table1.pictures import draw_all
    from trainwright.cli.reproduce.table1.results import (
        ablation_table,
        commands,
        memory_table,
        outcome,
        table,
    )

    by_row = {group[0].row: group for group in groups}
    outcomes = {row: outcome(group) for row, group in by_row.items()}
    plain = [o for row, o in outcomes.items() if row not in ABLATIONS]
    changed = [o for row, o in outcomes.items() if row in ABLATIONS]
    text = ""
    if plain:
        text += f"## Table 1\n\n{table(plain)}\n"
    if changed:
        text += f"## One choice changed\n\n{ablation_table(changed)}\n"
    text += f"## Full training state, bits\n\n{memory_table(by_row)}\n"
    text += f"## Command lines, and SHA-256 of the factors\n\n{commands(list(outcomes.values()))}"
    results = {row.name: o.to_dict() for row, o in outcomes.items()}
    pictures = draw_all(by_row, outcomes)
    write_results(out, {**pictures, "table.md": text, "results.json": to_json(results) + "\n"})
    print(to_json(results) if as_json else text + f"\npictures and tables: {out}")


command = SimpleCommand(
    "table1", "the paper's Table 1 on Fashion-MNIST: accuracy against memory", _add_arguments, _run
)

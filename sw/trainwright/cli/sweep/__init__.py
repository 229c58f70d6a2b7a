"""``trainwright sweep``: trials of all combinations of a few options, and their Pareto front."""

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from trainwright.cli.command import CommandBody
from trainwright.cli.errors import OptionError
from trainwright.cli.options import positive

if TYPE_CHECKING:
    from trainwright.cli.sweep.progress import Engine
    from trainwright.cli.sweep.spec import Point

ENGINES = ("auto", "processes", "ray")
"""`auto` is `ray` beside --address only: Ray takes 40 s to start, processes none."""
DESCRIPTION = """\
Train every combination of a few options, and show which are best in accuracy, bits and cycles.

SPEC.toml has what all trials have in common, and the axes along which they differ:

  [train]                                  # options of `trainwright train`
  network = "digits"
  epochs = 5

  [axes]                                   # lists of values: 2 x 2 x 2 x 3 = 24 trials
  ranks = [4, "16|8"]                      # an option of `trainwright train`
  prior-weight = [0, 0.25]                 # 0: no prior
  gradient = [8, "posit(8,1)c"]            # the format of a class of tensors; 8: fixed(8)
  seed = [0, 1, 2]

An axis is an option of `trainwright train` without its dashes (ranks, prior-weight, seed, epochs,
lr, network, preset, formats, numbers, ...), a class of tensors (factor, activation, intermediate,
gradient: bits or a format), a size of the accelerator (lanes, pe1-rows, scratchpad-rows, ...; see
`trainwright check --help`), or `board`: a name of `trainwright boards`, for its own preset.
`[axes]` with a name that there is not lists them all.
"""
EPILOG = """\
Every trial is a run of `trainwright train` in a folder of its own, OUT/trials/..., with its report
and checkpoint. Give the same command again after Ctrl-C, a crash or a killed process: finished
trials are kept, others go on from their checkpoints and end with the same bits. Values may be added
to an axis and options changed: only what is new is trained.

OUT gets table.md (means over the seeds; * is the Pareto front), front.png, results.json, and
trials.csv with a line for each trial, trials.parquet too where pyarrow is installed. Cycles are
those of a step of the trained network: counted with backend = "rtl", else predicted.
LUTs are shown where --resources has measured ones of the same accelerator.

Trials are processes of this machine. With --engine ray (pip install 'trainwright[sweep]') Ray Tune
places them; --address takes a cluster, whose nodes must share the current folder and OUT.

examples:
  trainwright sweep ranks.toml --dry-run           the trials, without training
  trainwright sweep ranks.toml --jobs 2
  trainwright sweep ranks.toml --out runs/ranks --address auto
  trainwright sweep ranks.toml --resources docs/resources.jsonl --json
"""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    parser.add_argument("spec", metavar="SPEC.toml", help="what to vary")
    parser.add_argument("--out", metavar="DIR", help="default: runs/sweep-SPEC")
    parser.add_argument(
        "--data", metavar="DIR", help="folder of the data set's files (default: TRAINWRIGHT_DATA), "
        "or data of your own, as `trainwright train --data` takes",
    )  # fmt: skip
    parser.add_argument(
        "--jobs", type=positive, metavar="N", help="trials at a time (default: 1; with --address "
        "as many as the cluster has processors)",
    )  # fmt: skip
    parser.add_argument(
        "--engine", choices=ENGINES, default="auto",
        help="what runs the trials (default: auto, processes of this machine, ray with --address)",
    )  # fmt: skip
    parser.add_argument("--address", metavar="A", help="of a Ray cluster: auto, or HOST:PORT")
    parser.add_argument(
        "--resources", metavar="FILE", help="LUTs that `trainwright build --append` measured"
    )
    parser.add_argument("--dry-run", action="store_true", help="list the trials and train none")
    parser.add_argument("--json", action="store_true", help="print JSON and no table")


def _run(args: argparse.Namespace) -> int:
    from dataclasses import replace

    from trainwright.cli.sweep.progress import complete
    from trainwright.cli.sweep.results import read_luts
    from trainwright.cli.sweep.spec import points, read_spec
    from trainwright.cli.train.prepared import DataShelf
    from trainwright.data import own_data

    for package in ("safetensors", "matplotlib"):
        if find_spec(package) is None:
            raise OptionError(f"this needs {package}: pip install 'trainwright[train]'")
    spec = read_spec(Path(args.spec))
    if own_data(args.data):  # its content is no other's: the trials are of this file
        spec = replace(spec, train={**spec.train, "data": str(Path(args.data).absolute())})
        args.data = None
    out = Path(args.out or Path("runs") / f"sweep-{Path(args.spec).stem}")
    shelf = DataShelf(out)
    trials = points(spec, out, shelf.load)
    if args.dry_run:
        print("\n".join(trial.command for trial in trials))
        return 0
    luts = read_luts(args.resources)
    engine = _engine(args, out)
    for trial in trials:  # fails before any trial begins
        options = trial.checked.asked.options
        shelf.load(replace(options, data=options.data or args.data))
    trials = [
        trial
        if trial.finished
        else replace(trial, prepared=shelf.file(trial.checked.asked.options))
        for trial in trials
    ]
    failures = complete(trials, jobs=args.jobs, data=args.data, engine=engine)
    _write(trials, failures or {}, luts, out, as_json=args.json)
    for trial, message in (failures or {}).items():
        raise OptionError(
            f"{len(failures or {})} of {len(trials)} trials failed; {trial.name}: {message}"
        )
    return 130 if failures is None else 0


def _engine(args: argparse.Namespace, out: Path) -> "Engine":
    """What runs the trials. Raises ``OptionError`` where it is not there."""
    from trainwright.cli.sweep.processes import train_all

    there = find_spec("ray") is not None
    wanted = args.engine == "ray" or args.address is not None
    if wanted and not there:
        option = "--address" if args.address is not None else "--engine ray"
        raise OptionError(f"{option} needs Ray: pip install 'trainwright[sweep]'")
    if args.engine == "processes" and args.address is not None:
        raise OptionError("--address is of a Ray cluster: leave --engine processes away")
    if not wanted:
        return train_all
    from trainwright.cli.sweep import ray_tune

    return partial(ray_tune.train_all, out=out, address=args.address)


def _write(
    trials: Sequence["Point"], failures: dict, luts: dict[int, int], out: Path, *, as_json: bool
) -> None:
    from trainwright.cli.output import to_json, write_results
    from trainwright.cli.sweep.picture import draw_front
    from trainwright.cli.sweep.results import (
        objectives,
        settings,
        table,
        to_csv,
        to_parquet,
        trial_row,
    )

    rows = [trial_row(trial, failures.get(trial), luts) for trial in trials]
    files: dict[str, bytes | str] = {"trials.csv": to_csv(rows)}
    if find_spec("pyarrow") is not None:
        files["trials.parquet"] = to_parquet(rows)
    found = settings(trials, rows)
    names = objectives(found)
    results = to_json(
        {"objectives": names, "settings": [s.to_dict() for s in found], "trials": rows}
    )
    text = ""
    if found:
        text = f"{table(found)}\nfront: best in {', '.join(names)} together\n"
        files |= {"table.md": text, "front.png": draw_front(found)}
    write_results(out, files | {"results.json": results + "\n"})
    print(results if as_json else f"{text}table, picture and trials: {out}")
    if missing := [trial.name for trial, row in zip(trials, rows, strict=True)
                   if row["status"] == "unfinished"]:  # fmt: skip
        print(f"{len(missing)} of {len(trials)} trials are not finished", file=sys.stderr)


command = CommandBody(_add_arguments, _run)

"""``trainwright sweep``: trials of all combinations of a few options, and their Pareto front."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from trainwright.cli.declare import command as make_command
from trainwright.cli.errors import OptionError, require_packages
from trainwright.cli.options import JsonOptions
from trainwright.cli.output import check_results, show, tell, to_json, write_results
from trainwright.support.settings import OneOf, Option, Positive
from trainwright.support.text import amount

if TYPE_CHECKING:
    from trainwright.cli.sweep.processes import Engine
    from trainwright.cli.sweep.spec import Point

ENGINES = ("auto", "processes", "ray")
"""`auto` is `ray` with --address only: Ray takes 40 s to start, processes none."""


class SweepOptions(JsonOptions):
    """Train every combination of a few options, and show the best in accuracy, bits and cycles.

    SPEC.toml has the options that all trials have in common, and the axes along which they differ:

      [train]                                  # options of `trainwright train`
      network = "digits"
      epochs = 5

      [axes]                                   # lists of values: 2 x 2 x 2 x 3 = 24 trials
      ranks = [4, "16|8"]                      # an option of `trainwright train`
      prior-weight = [0, 0.25]                 # 0: no prior
      gradient = [8, "posit(8,1)c"]            # the format of a class of tensors; 8: fixed(8)
      seed = [0, 1, 2]

    An axis is an option of `trainwright train` without its dashes (ranks, prior-weight, seed,
    epochs, lr, network, preset, formats, numbers, ...), a class of tensors (factor, activation,
    intermediate, gradient: bits or a format), a size of the accelerator (lanes, pe1-rows,
    scratchpad-rows, ...; see `trainwright check --help`), or `board`: a name of `trainwright
    boards`, for its own preset. An unknown name in `[axes]` is answered with a list of them all.

    Examples
    --------
      trainwright sweep ranks.toml --dry-run           the trials, without training
      trainwright sweep ranks.toml --jobs 2
      trainwright sweep ranks.toml --out runs/ranks --address auto
      trainwright sweep ranks.toml --resources docs/resources.jsonl --json

    Every trial is a run of `trainwright train` in a folder of its own, OUT/trials/..., with its
    report and checkpoint. Give the same command again after Ctrl-C, a crash or a killed process:
    finished trials are kept, interrupted ones go on from their checkpoints and end with the same
    bits. Values may be added to an axis and options changed: only new trials are trained.

    OUT gets table.md (means over the seeds; * is the Pareto front), front.png, results.json, and
    trials.csv with a line for each trial, trials.parquet too where pyarrow is installed. Cycles are
    those of a step of the trained network: counted with backend = "rtl", else predicted. LUTs are
    shown where --resources has measured ones of the same accelerator.

    Trials are processes of this machine. With --engine ray (pip install 'trainwright[sweep]') Ray
    Tune places them; --address takes a cluster, whose nodes must share the current folder and OUT.
    """

    spec: Annotated[str, Option(metavar="SPEC.toml", positional=True)]
    """trials to train"""
    out: Annotated[str | None, Option(metavar="DIR")] = None
    """folder of trials and results (default: runs/sweep-SPEC)"""
    data: Annotated[str | None, Option(metavar="DIR")] = None
    """folder of the data set's files (default: TRAINWRIGHT_DATA), or data of your own, as
    `trainwright train --data` takes"""
    jobs: Positive | None = None
    """trials at a time (default: 1; with --address as many as the cluster has processors)"""
    engine: Annotated[str, OneOf(ENGINES)] = "auto"
    """runner of the trials (default: auto, processes of this machine, ray with --address)"""
    address: Annotated[str | None, Option(metavar="A")] = None
    """address of a Ray cluster: auto, or HOST:PORT"""
    resources: Annotated[str | None, Option(metavar="FILE")] = None
    """LUTs that `trainwright build --append` measured"""
    dry_run: bool = False
    """list the trials and train none"""


def _run(options: SweepOptions) -> int:
    from trainwright.cli.sweep.processes import complete
    from trainwright.cli.sweep.results import read_luts
    from trainwright.cli.sweep.shelf import DataShelf
    from trainwright.cli.sweep.spec import points, read_spec
    from trainwright.data import own_data
    from trainwright.train.batches import data_notes

    require_packages("safetensors", "matplotlib")
    spec, data = read_spec(Path(options.spec)), options.data
    if own_data(data):  # its content is no other's: the trials are of this file
        spec = replace(spec, train={**spec.train, "data": str(Path(data or "").absolute())})
        data = None
    out = Path(options.out or Path("runs") / f"sweep-{Path(options.spec).stem}")
    shelf = DataShelf(out)
    trials = points(spec, out, shelf.load)
    luts = read_luts(options.resources)
    if options.dry_run:
        commands = [trial.command for trial in trials]
        return show(options.json, {"trials": commands}, "\n".join(commands))
    engine = _engine(options, out)
    check_results(out)
    asked = [trial.asked.options for trial in trials]
    notes: dict[str, None] = {}
    for trial, run in zip(trials, asked, strict=True):  # fails before any trial begins
        read = shelf.load(replace(run, data=run.data or data))
        notes |= dict.fromkeys(data_notes(trial.asked.network, read))
    tell(notes)
    trials = [shelf.placed(trial, run) for trial, run in zip(trials, asked, strict=True)]
    ended = complete(trials, jobs=options.jobs, data=data, engine=engine)
    failures = ended or {}
    _write(trials, failures, luts, out, as_json=options.json)
    for trial, message in failures.items():
        raise OptionError(
            f"{len(failures):,} of {amount(len(trials), 'trial')} failed; {trial.name}: {message}"
        )
    return 130 if ended is None else 0


def _engine(options: SweepOptions, out: Path) -> "Engine":
    """Return the function that runs the trials. Raises ``OptionError`` where it is missing."""
    from trainwright.cli.sweep.processes import train_all

    wanted = options.engine == "ray" or options.address is not None
    if wanted and find_spec("ray") is None:
        option = "--address" if options.address is not None else "--engine ray"
        raise OptionError(f"{option} needs Ray: pip install 'trainwright[sweep]'")
    if options.engine == "processes" and options.address is not None:
        raise OptionError("--address is for a Ray cluster: omit --engine processes")
    if not wanted:
        return train_all
    from trainwright.cli.sweep import ray_tune

    return partial(ray_tune.train_all, out=out, address=options.address)


def _write(
    trials: Sequence["Point"], failures: dict, luts: dict[int, int], out: Path, *, as_json: bool
) -> None:
    from trainwright.cli.sweep import results
    from trainwright.report import front

    rows = [results.trial_row(trial, failures.get(trial), luts) for trial in trials]
    files: dict[str, bytes | str] = {"trials.csv": results.to_csv(rows)}
    if find_spec("pyarrow") is not None:
        files["trials.parquet"] = results.to_parquet(rows)
    combined = results.settings(trials, rows)
    names, text = front.objectives(combined), ""
    content = {"objectives": names, "settings": combined, "trials": rows}
    if combined:
        best = f"\nfront: best in {', '.join(names)} together\n"
        text = front.table(combined) + best
        escaped = front.table(combined, bar="\\|") + best
        files |= {"table.md": escaped, "front.png": front.draw_front(combined)}
    files["results.json"] = to_json(content) + "\n"
    write_results(out, files, ["table.md", "front.png", "trials.parquet"])
    show(as_json, content, f"{text}table, picture and trials: {out}")
    if left := sum(row["status"] == results.UNFINISHED for row in rows):
        print(f"not finished: {left:,} of {amount(len(trials), 'trial')}", file=sys.stderr)


command = make_command(SweepOptions, _run)

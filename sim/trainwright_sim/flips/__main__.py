"""``scripts/soft-errors``: bits flipped in the accelerator's memories, and what comes of it."""

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from trainwright.cli.errors import OptionError
from trainwright.cli.options import accelerator_parameters, with_formats
from trainwright.data import load_data_set
from trainwright.network import load_network
from trainwright.train.settings import TrainSettings
from trainwright_sim.flips.accelerator import MEMORIES
from trainwright_sim.flips.effects import RunEffects, StepEffects, Task, run_effects, step_effects
from trainwright_sim.page import put

COMMAND = "scripts/soft-errors"
DESCRIPTION = "Flip bits of the accelerator's memories while it trains, and see what comes of it."
WARM = 20
"""Steps trained before the one that is hit."""


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command's options."""
    options = argparse.ArgumentParser("soft-errors", description=DESCRIPTION, allow_abbrev=False)
    options.add_argument("--network", default="digits", help="name or TOML file (default: digits)")
    options.add_argument("--data", metavar="FOLDER", help="of the data set's files")
    options.add_argument("--formats", metavar="F", help="as of trainwright train")
    options.add_argument("--memory", action="append", choices=MEMORIES, help="default: each")
    options.add_argument(
        "--flips", type=int, default=1000, metavar="N",
        help="steps with one flip each, of each memory (default: %(default)s)",
    )  # fmt: skip
    options.add_argument(
        "--rate", type=float, action="append", metavar="R", dest="rates",
        help="flips a step on average, in whole trainings; may be repeated (default: none)",
    )  # fmt: skip
    options.add_argument("--runs", type=int, default=3, metavar="N", help="trainings of each rate")
    options.add_argument("--epochs", type=int, default=5, metavar="N", help="of a training")
    options.add_argument("--seed", type=int, default=1, metavar="S", help="of the single flips")
    options.add_argument("--json", action="store_true", help="print one JSON object")
    options.add_argument(
        "--write",
        type=Path,
        metavar="PAGE",
        help="put the tables into docs/results/verification.md",
    )
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit status is 0, or 2 for bad usage or missing data."""
    args = parser().parse_args(arguments)
    for name in ("flips", "runs", "epochs"):
        if (value := getattr(args, name)) < 1:
            print(f"soft-errors: --{name} must be at least 1, not {value}", file=sys.stderr)
            return 2
    if wrong := [rate for rate in args.rates or () if not 0 <= rate <= MOST_RATE]:
        print(f"soft-errors: --rate is from 0 to {MOST_RATE}, not {wrong[0]:g}", file=sys.stderr)
        return 2
    try:
        steps, runs = _measure(args)
        if args.write:
            put(args.write, f"{COMMAND} {args.network}", markdown(steps, runs))
    except (OptionError, OSError, ValueError) as error:
        print(f"soft-errors: {error}", file=sys.stderr)
        return 2
    if args.json:
        rows = {"steps": [s.row() for s in steps], "runs": [r.row() for r in runs]}
        print(json.dumps({"network": args.network, **rows}))
    else:
        print(markdown(steps, runs))
    return 0


MOST_RATE = 16
"""Flips a step: far more, and a program had more than there is room for."""


def _measure(args: argparse.Namespace) -> tuple[list[StepEffects], list[RunEffects]]:
    network = with_formats(load_network(args.network), args.formats)
    if network.dataset is None:
        raise ValueError(f"network {network.name!r} names no data set")
    data = load_data_set(network.dataset, args.data)
    task = Task(network, data, accelerator_parameters((), network))
    memories, settings = args.memory or MEMORIES, TrainSettings(epochs=args.epochs)
    steps = [step_effects(task, m, args.flips, warm=WARM, seed=args.seed) for m in memories]
    runs = []
    for rate in args.rates or ():
        for memory in memories if rate else memories[:1]:
            effects = run_effects(task, memory, rate, runs=args.runs, settings=settings)
            runs.append(effects if rate else replace(effects, memory="none"))
    return steps, runs


def markdown(steps: Iterable[StepEffects], runs: Sequence[RunEffects]) -> str:
    """Return the two tables, of single steps and of whole training runs."""
    lines = [
        "| memory | steps, a flip each | same bits | an error | gradients off, median | most |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for s in steps:
        off = (f"{100 * v:.2f} %" if s.flips > s.harmless + s.noticed else "-" for v in
               (s.half, s.worst))  # fmt: skip
        cells = (s.memory, s.flips, s.harmless, s.noticed, *off)
        lines.append(f"| {' | '.join(map(str, cells))} |")
    if runs:
        lines += ["", "| flips a step | in | trainings | flips | ended with an error | accuracy, "
                  "mean | least |", "|---:|---|---:|---:|---:|---:|---:|"]  # fmt: skip
    for r in runs:
        accuracies = (f"{100 * v:.2f} %" for v in (r.accuracy, r.least))
        cells = (f"{r.rate:g}", r.memory, r.runs, r.flips, r.noticed, *accuracies)
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())

"""Options that the experiments of a paper have in common."""

import argparse
from collections.abc import Sequence

from trainwright.cli.options import natural, positive


def add_experiment_option(parser: argparse.ArgumentParser, experiments: Sequence[str]) -> None:
    """``--experiment``: which of them."""
    parser.add_argument(
        "--experiment", choices=experiments, action="append", help="only this one (repeatable)"
    )


def add_run_options(
    parser: argparse.ArgumentParser,
    name: str,
    *,
    seed: int = 0,
    quick: str = "everything small, in half a minute",
) -> None:
    """How they run and where results go; ``name`` is the subcommand, ``seed`` the default."""
    parser.add_argument("--seed", type=natural, default=seed, metavar="N", help=f"default: {seed}")
    parser.add_argument("--quick", action="store_true", help=quick)
    parser.add_argument("--out", default=f"runs/reproduce-{name}", metavar="DIR")
    parser.add_argument("--json", action="store_true", help="print JSON and no tables")
    parser.add_argument("--threads", type=positive, default=1, metavar="N", help="default: 1")

"""``trainwright train``: options, output folder, progress, and the run itself."""

import argparse

from trainwright.cli.command import CommandBody
from trainwright.cli.train.options import add_arguments


def _run(args: argparse.Namespace) -> int:
    from trainwright.cli.train.session import run_training  # imports torch

    return run_training(args)


command = CommandBody(add_arguments, _run)

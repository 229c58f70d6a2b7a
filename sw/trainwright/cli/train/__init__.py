"""``trainwright train``: options, output folder, progress, and the run itself."""

import argparse

from trainwright.cli.command import SimpleCommand
from trainwright.cli.train.options import add_arguments


def _run(args: argparse.Namespace) -> int:
    from trainwright.cli.train.session import run_training  # imports torch

    return run_training(args)


command = SimpleCommand(
    "train", "train a network on the accelerator and report what came out", add_arguments, _run
)

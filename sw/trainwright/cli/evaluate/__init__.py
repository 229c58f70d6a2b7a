"""``trainwright eval``: a stored model classifies a test split, on any back end."""

import argparse

from trainwright.cli.backend import add_simulation_options
from trainwright.cli.command import CommandBody
from trainwright.cli.options import add_data_options, positive

EPILOG = """\
examples:
  trainwright eval runs/digits/model.safetensors
  trainwright eval runs/fashion/model.safetensors --data ~/data --out runs/fashion/test
  trainwright eval runs/fashion/checkpoint.safetensors --backend rtl --test-samples 640
  trainwright eval model.safetensors --data mine.npz --json
  trainwright eval model.safetensors --data new.csv        rows without targets: prints classes
  trainwright eval model.safetensors --data picture.png

MODEL is the model.safetensors of a finished run or the checkpoint.safetensors of an open one. It
says how its programs were compiled, so that every image gets the very bits it got in training.
"""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    parser.add_argument("model", metavar="MODEL", help="file that trainwright train wrote")
    parser.add_argument(
        "--dataset", metavar="NAME", help="data set (default: the one it was trained on)"
    )
    add_data_options(parser)
    parser.add_argument("--backend", default="golden", metavar="NAME", help="golden or rtl")
    parser.add_argument(
        "--test-samples", type=positive, metavar="N", help="only the first N test images"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--out",
        metavar="DIR",
        help="write eval.json, confusion.png and, of images, samples.png (mistakes first) there",
    )
    add_simulation_options(parser)


def _run(args: argparse.Namespace) -> int:
    from trainwright.cli.evaluate.session import run_evaluation  # imports torch

    return run_evaluation(args)


command = CommandBody(_add_arguments, _run)

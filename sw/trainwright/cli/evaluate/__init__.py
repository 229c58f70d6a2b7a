"""``trainwright eval``: a stored model classifies a test split, on any back end."""

from typing import Annotated

from trainwright.cli.backend import SimulationOptions
from trainwright.cli.declare import command as make_command
from trainwright.cli.options import DataOptions, JsonOptions
from trainwright.support.settings import Option, Positive


class EvaluationOptions(DataOptions, JsonOptions, SimulationOptions):
    """Classify test samples with a stored model, class by class.

    Examples
    --------
      trainwright eval runs/digits/model.safetensors
      trainwright eval runs/fashion/model.safetensors --data ~/data --out runs/fashion/test
      trainwright eval runs/fashion/checkpoint.safetensors --backend rtl --test-samples 640
      trainwright eval model.safetensors --data mine.npz --json
      trainwright eval model.safetensors --data new.csv        rows without targets: prints classes
      trainwright eval model.safetensors --data picture.png

    MODEL is the model.safetensors of a finished run or the checkpoint.safetensors of an open one.
    It says how its programs were compiled, so that every image gets the very bits it got in
    training.
    """

    model: Annotated[str, Option(metavar="MODEL", positional=True)]
    """file that trainwright train wrote"""
    dataset: Annotated[str | None, Option(metavar="NAME")] = None
    """data set (default: the one it was trained on)"""
    backend: Annotated[str, Option(metavar="NAME")] = "golden"
    """golden or rtl"""
    test_samples: Positive | None = None
    """classify only the first N test images"""
    out: Annotated[str | None, Option(metavar="DIR")] = None
    """write eval.json, confusion.png and, for images, samples.png (mistakes first) there"""


def _run(options: EvaluationOptions) -> int:
    from trainwright.cli.evaluate.session import run_evaluation  # imports torch

    return run_evaluation(options)


command = make_command(EvaluationOptions, _run)

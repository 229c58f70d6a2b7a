"""``trainwright reproduce posit``: figures 2, 8 and 9 of *Posits in PyTorch*."""

from dataclasses import replace
from typing import Annotated

from trainwright.cli.reproduce.experiment import ExperimentOptions, command_of
from trainwright.support.settings import Option, Positive

_TRAINED = ("figure-8", "figure-9")


class PositExperimentOptions(ExperimentOptions):
    """Repeat the experiments of *Posits in PyTorch*.

    experiments:
      figure-2  decimal accuracy of 8-bit fixed point, floats and posits
      figure-8  LeNet-5 on MNIST in float32 and posits: accuracy after each epoch
      figure-9  the same on Fashion-MNIST

    The folder gets tables.md, results.json, a picture of each figure, and a checkpoint of each run,
    from which a command that was interrupted, or is asked for more epochs, goes on.
    """

    quick: bool = False
    """1 epoch of 640 images; for a look"""
    arithmetic: Annotated[tuple[str, ...], Option(metavar="NAME", only=_TRAINED)] = ()
    """repeatable: float32, posit(N,ES)-MODE or mixed-MODE, MODE sequential or quire; mixed is
    posit(8,2) with weights in posit(16,2) for convolutions, posit(16,2) for the rest (default:
    float32, posit(16,2) in both modes, posit(8,2)-quire, mixed-quire)"""
    epochs: Annotated[Positive, Option(only=_TRAINED)] = 7
    """epochs of a run"""
    images: Annotated[Positive, Option(only=_TRAINED)] = 60_000
    """images of the training set"""
    data: Annotated[str | None, Option(metavar="DIR", only=_TRAINED)] = None
    """folder of the data sets' files (default: the variable TRAINWRIGHT_DATA)"""

    def prepared(self) -> "PositExperimentOptions":
        """See ``ExperimentOptions``."""
        from trainwright.posit.experiments.lenet import arithmetic

        for name in self.arithmetic:
            arithmetic(name)  # rejects a name before anything runs
        return replace(self, epochs=1, images=640) if self.quick else self


command = command_of(
    "posit", ("figure-2", *_TRAINED), PositExperimentOptions, "posit",
    "LeNet-5 trained in posits; decimal accuracy of 8 bits",
)  # fmt: skip

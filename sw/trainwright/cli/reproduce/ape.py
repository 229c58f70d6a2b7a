"""``trainwright reproduce ape``: figures 8, 14 and 15, and the applications' accuracy."""

from dataclasses import replace
from typing import Annotated

from trainwright.cli.reproduce.experiment import ExperimentOptions, command_of
from trainwright.support.settings import Option, Positive


class ApeExperimentOptions(ExperimentOptions):
    """Repeat the experiments on wide numbers with narrow multipliers.

    experiments:
      figure-14     errors of the types against the magnitude of the numbers
      figure-15     errors of matrix products against their size, by the accumulator's rounding
      figure-8      time against the share of fp32-b blocks, predicted and measured on this machine
      applications  accuracy of PCA, kNN, k-means, quantum circuits and a transformer block

    The folder gets tables.md, results.json and a picture of each figure.
    """

    size: Annotated[Positive, Option(only=("figure-8",))] = 512
    """rows of figure 8's matrices"""
    largest: Annotated[Positive, Option(metavar="K", only=("figure-15",))] = 8192
    """longest sum of figure 15"""

    def prepared(self) -> "ApeExperimentOptions":
        """See ``ExperimentOptions``."""
        small = {"size": min(self.size, 128), "largest": min(self.largest, 1024)}
        return replace(self, **(small if self.quick else {}))


command = command_of(
    "ape", ("figure-14", "figure-15", "figure-8", "applications"), ApeExperimentOptions, "ape",
    "wide numbers on narrow multipliers: errors, crossover, applications",
)  # fmt: skip

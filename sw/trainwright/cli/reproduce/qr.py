"""``trainwright reproduce qr``: tables 2 and 3 of the draft, and the experiments it announces."""

from dataclasses import replace
from typing import Annotated

from trainwright.cli.errors import OptionError
from trainwright.cli.reproduce.experiment import ExperimentOptions, command_of
from trainwright.support.settings import Option, Positive


class QRExperimentOptions(ExperimentOptions):
    """Repeat the experiments in mixed-precision Householder QR.

    experiments:
      dots        tables 2 and 3: reach of the error bound, dot products in half precision
      conditions  every QR variant over condition numbers, block widths and TSQR levels
      clustering  spectral clustering of random graphs with every variant

    The folder gets tables.md, results.json and a picture of each experiment.
    """

    vectors: Annotated[Positive, Option(only=("dots",))] = 2_000_000
    """pairs of vectors of table 3"""
    rows: Annotated[Positive, Option(metavar="M", only=("conditions",))] = 4000
    """rows of the matrices"""
    columns: Annotated[Positive, Option(only=("conditions",))] = 100
    """columns of the matrices"""

    def prepared(self) -> "QRExperimentOptions":
        """See ``ExperimentOptions``."""
        if self.columns > self.rows:
            raise OptionError(f"--columns must be at most --rows, {self.rows}, not {self.columns}")
        small = {"vectors": min(self.vectors, 20_000), "rows": 400, "columns": 24}
        return replace(self, **(small if self.quick else {}))


command = command_of(
    "qr", ("dots", "conditions", "clustering"), QRExperimentOptions, "qr",
    "mixed-precision Householder QR: dot products, factorisations, clustering",
    needs={"sklearn": {"clustering"}},
)  # fmt: skip

"""``trainwright reproduce ape``: figures 8, 14 and 15, and the applications' accuracy."""

from dataclasses import asdict, replace
from typing import Annotated

from trainwright.cli.output import teller
from trainwright.cli.reproduce.experiment import ExperimentOptions, Finding, command_of, finding
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

    size: Positive = 512
    """rows of figure 8's matrices"""
    largest: Annotated[Positive, Option(metavar="K")] = 8192
    """longest sum of figure 15"""

    def prepared(self) -> "ApeExperimentOptions":
        """See ``ExperimentOptions``."""
        if not self.quick:
            return self
        return replace(self, size=min(self.size, 128), largest=min(self.largest, 1024))


def _magnitude(options: ApeExperimentOptions) -> Finding:
    from trainwright.ape.experiments import magnitude
    from trainwright.ape.experiments.pictures import draw_magnitude

    rows = magnitude.run(1024 if options.quick else 16384, options.seed)
    head = ("type", "least |x|", "largest |x|", "error of a value", "stated", "error of a product",
            "bound")  # fmt: skip
    return finding(
        "Figure 14: largest relative errors in range", head, magnitude.summary(rows), rows,
        {"figure-14.png": draw_magnitude(rows)},
    )  # fmt: skip


def _sizes(options: ApeExperimentOptions) -> Finding:
    from trainwright.ape.experiments import sizes
    from trainwright.ape.experiments.pictures import draw_sizes

    chosen = tuple(size for size in sizes.SIZES if size <= options.largest) or (options.largest,)
    rows = sizes.run(chosen, seed=options.seed, progress=teller("figure 15"))
    ways = dict.fromkeys((row.dtype, row.rounding) for row in rows)
    largest = {(row.dtype, row.rounding, row.size): row.largest for row in rows}
    return finding(
        "Figure 15: largest relative error of an element, by K",
        ("type", "rounding", *map(str, chosen)),
        [(*way, *(largest[*way, size] for size in chosen)) for way in ways],
        rows,
        {"figure-15.png": draw_sizes(rows)},
    )


def _crossover(options: ApeExperimentOptions) -> Finding:
    from trainwright.ape.experiments import crossover
    from trainwright.ape.experiments.pictures import draw_crossover

    rows, model, f_seconds = crossover.run(
        options.size, max(1, options.size // 8), 2 if options.quick else 5, options.seed,
        progress=teller("figure 8"),
    )  # fmt: skip
    head = ("share", "fp32-f products", "fp32-b products", "fp32-b predicted", "measured",
            "hybrid predicted", "measured", "decider", "fastest")  # fmt: skip
    title = f"Figure 8: seconds of a {options.size} x {options.size} product on {model.device}"
    picture = {"figure-8.png": draw_crossover(rows, f_seconds)}
    measured = finding(title, head, rows, rows, picture)
    results = {"rows": measured.results, "model": asdict(model), "fp32-f": f_seconds}
    return replace(measured, results=results)


def _applications(options: ApeExperimentOptions) -> Finding:
    from trainwright.ape.experiments import applications

    ways = ("fp32", "fp32-f", "fp16") if options.quick else applications.WAYS
    rows = applications.run(ways, progress=teller("applications"))
    values = {(row.application, row.figure, row.dtype): row.value for row in rows}
    lines = dict.fromkeys((row.application, row.figure) for row in rows)
    cells = [(*line, *(values.get((*line, way)) for way in ways)) for line in lines]
    head = ("application", "figure", *ways)
    return finding("Applications, against float64", head, cells, rows)


EXPERIMENTS = {
    "figure-14": _magnitude,
    "figure-15": _sizes,
    "figure-8": _crossover,
    "applications": _applications,
}
command = command_of(
    EXPERIMENTS, ApeExperimentOptions, "ape",
    "wide numbers on narrow multipliers: errors, crossover, applications",
)  # fmt: skip

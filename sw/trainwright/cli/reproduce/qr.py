"""``trainwright reproduce qr``: tables 2 and 3 of the draft, and the experiments it announces."""

from dataclasses import replace
from typing import Annotated

from trainwright.cli.errors import OptionError
from trainwright.cli.output import teller
from trainwright.cli.reproduce.experiment import ExperimentOptions, Finding, command_of, finding
from trainwright.support.settings import Option, Positive


class QRExperimentOptions(ExperimentOptions):
    """Repeat the experiments in mixed-precision Householder QR.

    experiments:
      dots        tables 2 and 3: reach of the error bound, dot products in half precision
      conditions  every QR variant over condition numbers, block widths and TSQR levels
      clustering  spectral clustering of random graphs with every variant

    The folder gets tables.md, results.json and a picture of each experiment.
    """

    vectors: Positive = 2_000_000
    """pairs of vectors of table 3"""
    rows: Annotated[Positive, Option(metavar="M")] = 4000
    """rows of the matrices"""
    columns: Positive = 100
    """columns of the matrices"""

    def prepared(self) -> "QRExperimentOptions":
        """See ``ExperimentOptions``."""
        if self.columns > self.rows:
            raise OptionError(f"--columns must be at most --rows, {self.rows}, not {self.columns}")
        if not self.quick:
            return self
        return replace(self, vectors=min(self.vectors, 20_000), rows=400, columns=24)


def _dots(options: QRExperimentOptions) -> Finding:
    from trainwright.qr.experiments import dots
    from trainwright.qr.experiments.pictures import draw_dots

    second = dots.table_2()
    errors = [
        dots.dot_errors(name, options.vectors, seed=options.seed, progress=teller(f"dots, {name}"))
        for name in dots.PRINTED
    ]
    third = [row for result in errors for row in dots.table_3(result)]
    head = ("format", "u", "k", "k with 2u, as printed")
    reach = finding("Table 2: largest k with gamma_k <= 1", head, second, second)
    head = ("vectors", "arithmetic", "mean", "deviation", "maximum", "printed mean",
            "printed deviation", "printed maximum", "bound", "with probability 0.99")  # fmt: skip
    cells = [
        (r.distribution, r.arithmetic, r.mean, r.deviation, r.maximum,
         *(r.printed or (None,) * 3), r.bound, r.probable) for r in third
    ]  # fmt: skip
    title = f"Table 3: errors of {options.vectors:,} dot products of length 512"
    products = finding(title, head, cells, third)
    return Finding(
        {"table_2": reach.results, "table_3": products.results},
        f"{reach.text}\n{products.text}",
        {"dots.png": draw_dots(errors)},
    )


def _conditions(options: QRExperimentOptions) -> Finding:
    from trainwright.qr.experiments import conditions
    from trainwright.qr.experiments.pictures import draw_conditions, draw_sizes

    rows = conditions.run(options.rows, options.columns, progress=teller("conditions"))
    groups: dict[str, list[conditions.ConditionErrors]] = {}
    for row in rows:
        groups.setdefault(row.variant, []).append(row)

    def span(values: list[float]) -> str:
        return f"{min(values):.2e} .. {max(values):.2e}"

    cells = [
        (
            name, span([r.residual for r in group]), group[0].residual_bound,
            group[0].residual_probable, span([r.orthogonality for r in group]),
            group[0].orthogonality_bound, group[0].orthogonality_probable, group[0].leading,
            min(r.seconds for r in group),
        )
        for name, group in groups.items()
    ]  # fmt: skip
    head = ("variant", "residual", "bound", "square-root bound", "orthogonality", "bound",
            "square-root bound", "leading term", "seconds")  # fmt: skip
    numbers = f"{len(conditions.ALPHAS)} condition numbers"
    pictures = {"conditions.png": draw_conditions(rows), "sizes.png": draw_sizes(rows)}
    title = f"QR of {options.rows:,} x {options.columns}, {numbers}"
    return finding(title, head, cells, rows, pictures)


def _clustering(options: QRExperimentOptions) -> Finding:
    from trainwright.qr.experiments import clustering
    from trainwright.qr.experiments.pictures import draw_clustering

    models = clustering.MODELS[:2] if options.quick else clustering.MODELS
    rows = clustering.run(models, seed=options.seed, progress=teller("clustering"))
    cells = [
        (r.nodes, f"{r.inside:g} / {r.across:g}", r.difficulty, r.variant, r.agreement, r.planted,
         r.orthogonality) for r in rows
    ]  # fmt: skip
    head = ("nodes", "inside / across", "signal to noise", "variant", "as fp64", "as planted",
            "orthogonality")  # fmt: skip
    title = "Spectral clustering of stochastic block models"
    return finding(title, head, cells, rows, {"clustering.png": draw_clustering(rows)})


EXPERIMENTS = {"dots": _dots, "conditions": _conditions, "clustering": _clustering}
command = command_of(
    EXPERIMENTS, QRExperimentOptions, "qr",
    "mixed-precision Householder QR: dot products, factorisations, clustering",
    needs={"sklearn": {"clustering"}},
)  # fmt: skip

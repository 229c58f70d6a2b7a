"""Findings of the experiments, by the options of ``trainwright reproduce qr``."""

from typing import Any

from trainwright.qr.experiments import clustering, conditions, dots
from trainwright.qr.experiments.pictures import (
    draw_clustering,
    draw_conditions,
    draw_dots,
    draw_sizes,
)  # fmt: skip
from trainwright.support.finding import Experiment, Finding, Tell, finding


def _dots(options: Any, tell: Tell) -> Finding:
    second = dots.table_2()
    errors = [
        dots.dot_errors(name, options.vectors, seed=options.seed, progress=tell(f"dots, {name}"))
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


def _conditions(options: Any, tell: Tell) -> Finding:
    rows = conditions.run(options.rows, options.columns, progress=tell("conditions"))
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


def _clustering(options: Any, tell: Tell) -> Finding:
    models = clustering.MODELS[:2] if options.quick else clustering.MODELS
    rows = clustering.run(models, seed=options.seed, progress=tell("clustering"))
    cells = [
        (r.nodes, f"{r.inside:g} / {r.across:g}", r.difficulty, r.variant, r.agreement, r.planted,
         r.orthogonality) for r in rows
    ]  # fmt: skip
    head = ("nodes", "inside / across", "signal to noise", "variant", "as fp64", "as planted",
            "orthogonality")  # fmt: skip
    title = "Spectral clustering of stochastic block models"
    return finding(title, head, cells, rows, {"clustering.png": draw_clustering(rows)})


EXPERIMENTS: dict[str, Experiment] = {
    "dots": _dots,
    "conditions": _conditions,
    "clustering": _clustering,
}
PICTURES = ("dots.png", "conditions.png", "sizes.png", "clustering.png")
"""Files that findings can have: those of experiments that do not run again are removed."""

"""Findings of the experiments, by the options of ``trainwright reproduce ape``."""

from dataclasses import asdict
from typing import Any

from trainwright.ape.experiments import applications, crossover, magnitude, sizes
from trainwright.ape.experiments.pictures import draw_crossover, draw_magnitude, draw_sizes
from trainwright.support.finding import Experiment, Finding, Tell, finding


def _magnitude(options: Any, tell: Tell) -> Finding:
    rows = magnitude.run(1024 if options.quick else 16384, options.seed)
    head = ("type", "least |x|", "largest |x|", "error of a value", "stated", "error of a product",
            "bound")  # fmt: skip
    return finding(
        "Figure 14: largest relative errors in range", head, magnitude.summary(rows), rows,
        {"figure-14.png": draw_magnitude(rows)},
    )  # fmt: skip


def _sizes(options: Any, tell: Tell) -> Finding:
    chosen = tuple(size for size in sizes.SIZES if size <= options.largest) or (options.largest,)
    rows = sizes.run(chosen, seed=options.seed, progress=tell("figure 15"))
    ways = dict.fromkeys((row.dtype, row.rounding) for row in rows)
    largest = {(row.dtype, row.rounding, row.size): row.largest for row in rows}
    return finding(
        "Figure 15: largest relative error of an element, by K",
        ("type", "rounding", *map(str, chosen)),
        [(*way, *(largest[*way, size] for size in chosen)) for way in ways],
        rows,
        {"figure-15.png": draw_sizes(rows)},
    )


def _crossover(options: Any, tell: Tell) -> Finding:
    rows, model, f_seconds = crossover.run(
        options.size, max(1, options.size // 8), 2 if options.quick else 5, options.seed,
        progress=tell("figure 8"),
    )  # fmt: skip
    head = ("share", "fp32-f products", "fp32-b products", "fp32-b predicted", "measured",
            "hybrid predicted", "measured", "decider", "fastest")  # fmt: skip
    title = f"Figure 8: seconds of a {options.size} x {options.size} product on {model.device}"
    picture = {"figure-8.png": draw_crossover(rows, f_seconds)}
    results = {"rows": rows, "model": asdict(model), "fp32-f": f_seconds}
    return finding(title, head, rows, results, picture)


def _applications(options: Any, tell: Tell) -> Finding:
    ways = ("fp32", "fp32-f", "fp16") if options.quick else applications.WAYS
    rows = applications.run(ways, progress=tell("applications"))
    values = {(row.application, row.figure, row.dtype): row.value for row in rows}
    lines = dict.fromkeys((row.application, row.figure) for row in rows)
    cells = [(*line, *(values.get((*line, way)) for way in ways)) for line in lines]
    head = ("application", "figure", *ways)
    return finding("Applications, against float64", head, cells, rows)


EXPERIMENTS: dict[str, Experiment] = {
    "figure-14": _magnitude,
    "figure-15": _sizes,
    "figure-8": _crossover,
    "applications": _applications,
}
PICTURES = ("figure-14.png", "figure-15.png", "figure-8.png")
"""Files that findings can have: those of experiments that do not run again are removed."""

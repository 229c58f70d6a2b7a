"""What Table 1 is made of: rows, each a choice of options of ``trainwright train``."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Printed:
    """A row of the paper's Table 1: accuracies in percent, memory reduction."""

    train: float
    test: float
    reduction: float


@dataclass(frozen=True)
class Row:
    """``options`` are of ``trainwright train --network fashion``."""

    name: str
    title: str
    options: tuple[str, ...] = ()
    printed: Printed | None = None
    epochs: int | None = None
    """Where it takes other than what is asked for: training without prior overfits."""


DENSE = Printed(95.75, 89.27, 1.0)
"""The paper's dense float network, which is not trained here."""

TABLE = (
    Row(
        "float",
        "TT float, no prior",
        ("--numbers", "float32", "--no-prior"),
        Printed(92.54, 88.03, 31.4),
        epochs=15,
    ),
    Row("fixed", "TT fixed, no prior", ("--no-prior",), Printed(88.31, 86.67, 243), epochs=15),
    Row(
        "float-prior",
        "TT float, prior",
        ("--numbers", "float32", "--prior-weight", "0.7"),
        Printed(90.17, 87.88, 43.1),
    ),
    Row(
        "fixed-prior",
        "TT fixed, prior",
        ("--prior-weight", "0.5"),
        Printed(85.45, 84.86, 292),
    ),
    Row("fixed-strong", "TT fixed, prior, strong", ("--prior-weight", "4")),
)

FRONTIER = tuple(
    Row(f"weight-{weight}", f"prior weight {weight}", ("--prior-weight", weight))
    for weight in ("0.25", "1", "1.5", "2.5", "3.3", "5")
)
"""Further prior weights, for the picture of accuracy against memory reduction."""

_RECIPE = ("--prior-weight", "0.5")
_CHANGES = (
    ("windows", "the paper's scale ranges", "--scale-range paper"),
    ("warmup-none", "no warm-up of the prior", "--prior-warmup 0"),
    ("warmup-half", "prior warming up over half the run", "--prior-warmup 0.5"),
    ("threshold-low", "columns cut at 0.005 of the strongest", "--rank-threshold 0.005"),
    ("threshold-high", "columns cut at 0.08 of the strongest", "--rank-threshold 0.08"),
    ("constant", "constant learning rate", "--schedule constant"),
    ("rate-half", "half the learning rate", "--lr 2e-3"),
    ("rate-double", "twice the learning rate", "--lr 8e-3"),
    ("spread-half", "initial factors half as many steps wide", "--spread 1.25"),
    ("spread-double", "initial factors twice as many steps wide", "--spread 5"),
    ("factor-scales", "factor exponents that follow", "--factor-scales automatic"),
    ("factor-blocks", "block scales along the bonds", "--factor-scales blocks"),
    ("stochastic", "stochastic rounding of gradients", "--rounding-mode stochastic-gradients"),
    ("moments-8bit", "Adam moments of 8 bits", "--moments 8bit"),
    ("moments-factored", "factored second moments", "--moments factored"),
    ("masters-float16x2", "master weights of two float16", "--master-weights float16x2"),
    ("masters-float16", "master weights of one float16", "--master-weights float16"),
    ("least", "both of the smallest", "--master-weights float16 --moments factored"),
)
ABLATIONS = (
    Row("as-is", "the recipe", _RECIPE),
    Row("form", "the paper's prior", ("--prior-form", "paper", "--prior-weight", "1.2")),
    *(Row(name, title, (*_RECIPE, *change.split())) for name, title, change in _CHANGES),
)
"""One choice changed each."""

GROUPS = {"table": TABLE, "frontier": FRONTIER, "ablations": ABLATIONS}


def rows_named(names: list[str]) -> tuple[Row, ...]:
    """Rows by name or by group, in the order of the table. Raises ``KeyError`` with the name."""
    known = {row.name: row for group in GROUPS.values() for row in group}
    chosen: dict[str, Row] = {}
    for name in names:
        rows = GROUPS[name] if name in GROUPS else (known[name],)
        chosen |= {row.name: row for row in rows}
    return tuple(row for name, row in known.items() if name in chosen)

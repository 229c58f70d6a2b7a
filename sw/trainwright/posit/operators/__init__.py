"""Operators of posit tensors, each a rule over values on the grid (``registry``)."""

from trainwright.posit.operators import (
    arithmetic,
    comparison,
    creation,
    functions,
    layers,
    losses,
    structure,
    sums,
)
from trainwright.posit.operators.registry import IN_PLACE, OUT, RULES, UncoveredError

__all__ = [
    "IN_PLACE",
    "OUT",
    "RULES",
    "UncoveredError",
    "arithmetic",
    "comparison",
    "creation",
    "functions",
    "layers",
    "losses",
    "structure",
    "sums",
]

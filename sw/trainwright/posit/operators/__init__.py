"""Operators of posit tensors, each a rule over values on the grid (``registry``)."""

from trainwright.posit.operators import (
    activations,
    arithmetic,
    comparison,
    convolutions,
    creation,
    functions,
    indexed,
    losses,
    norms,
    pooling,
    structure,
    sums,
)
from trainwright.posit.operators.registry import IN_PLACE, OUT, RULES, UncoveredError

__all__ = [
    "IN_PLACE",
    "OUT",
    "RULES",
    "UncoveredError",
    "activations",
    "arithmetic",
    "comparison",
    "convolutions",
    "creation",
    "functions",
    "indexed",
    "losses",
    "norms",
    "pooling",
    "structure",
    "sums",
]

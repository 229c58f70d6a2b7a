"""Layers, activations and optimisers of multi-component floats: torch's arguments, and nc."""

from trainwright.mcf.nn.layers import (
    MCGELU,
    MCEmbedding,
    MCLinear,
    MCModule,
    MCReLU,
    MCSequential,
    MCSoftmax,
)
from trainwright.mcf.nn.optim import MCSGD, MCAdam

__all__ = [
    "MCGELU",
    "MCSGD",
    "MCAdam",
    "MCEmbedding",
    "MCLinear",
    "MCModule",
    "MCReLU",
    "MCSequential",
    "MCSoftmax",
]

"""Layers, activations and optimisers for multi-component floats, with torch's arguments and nc."""

from ttforge.mcf.nn.layers import (
    MCGELU,
    MCEmbedding,
    MCLinear,
    MCModule,
    MCReLU,
    MCSequential,
    MCSoftmax,
)
from ttforge.mcf.nn.optim import MCSGD, MCAdam

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

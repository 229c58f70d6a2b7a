"""Networks as data: TTM layers from a TOML file, and those that are built in."""

from trainwright.network.description import (
    BUILT_IN,
    Layer,
    Network,
    load_network,
    network_from_dict,
    rank_bounds,
)
from trainwright.network.numbers import FLOAT32, NetworkError, NumberFormats, Widths

__all__ = [
    "BUILT_IN",
    "FLOAT32",
    "Layer",
    "Network",
    "NetworkError",
    "NumberFormats",
    "Widths",
    "load_network",
    "network_from_dict",
    "rank_bounds",
]

"""Networks as data: TTM layers from a TOML file, and those that are built in."""

from trainwright.network.description import (
    BUILT_IN,
    FLOAT32,
    Layer,
    Network,
    NetworkError,
    Widths,
    load_network,
    network_from_dict,
    rank_bounds,
)

__all__ = [
    "BUILT_IN",
    "FLOAT32",
    "Layer",
    "Network",
    "NetworkError",
    "Widths",
    "load_network",
    "network_from_dict",
    "rank_bounds",
]

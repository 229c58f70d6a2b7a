"""Networks as data: layers of tensor trains, the graph they are applied in, the built-in ones."""

from trainwright.network.description import BUILT_IN, load_network, network_from_dict
from trainwright.network.errors import NetworkError
from trainwright.network.layer import Layer, rank_bounds
from trainwright.network.network import Network
from trainwright.network.nodes import (
    Apply,
    Attention,
    Dropout,
    Input,
    Map,
    Node,
    Norm,
    Pool,
    Positions,
    Sum,
    TokenPool,
)
from trainwright.network.numbers import FLOAT32, NumberFormats, Widths
from trainwright.network.user_names import UserNames
from trainwright.network.window import Window

__all__ = [
    "BUILT_IN",
    "FLOAT32",
    "Apply",
    "Attention",
    "Dropout",
    "Input",
    "Layer",
    "Map",
    "Network",
    "NetworkError",
    "Node",
    "Norm",
    "NumberFormats",
    "Pool",
    "Positions",
    "Sum",
    "TokenPool",
    "UserNames",
    "Widths",
    "Window",
    "load_network",
    "network_from_dict",
    "rank_bounds",
]

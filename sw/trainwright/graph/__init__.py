"""Networks as graphs of tensors with named axes: built, differentiated, ordered, evaluated."""

from trainwright.graph.differentiate import differentiate
from trainwright.graph.ir import Einsum, Graph, Kernel, Op, Tensor, Unfold, View
from trainwright.graph.network import network_graph
from trainwright.graph.order import Order, ordered

__all__ = [
    "Einsum",
    "Graph",
    "Kernel",
    "Op",
    "Order",
    "Tensor",
    "Unfold",
    "View",
    "differentiate",
    "network_graph",
    "ordered",
]

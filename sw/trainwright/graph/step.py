"""A training step as one graph: the forward pass, the host's gradient, the gradients."""

from collections.abc import Sequence
from dataclasses import dataclass

from trainwright.fixed.scale import TensorClass
from trainwright.graph.differentiate import differentiate
from trainwright.graph.ir import Einsum, Graph, needed
from trainwright.graph.network import class_tensor, network_graph
from trainwright.graph.order import Order, replaced
from trainwright.network import Network


@dataclass(frozen=True)
class StepGraph:
    """``forward`` makes ``results`` of it; ``backward`` reads them and what the host gives it."""

    whole: Graph
    forward: Graph
    backward: Graph

    @property
    def sites(self) -> dict[str, tuple[Einsum, ...]]:
        """The contractions of each layer, forward and backward."""
        found: dict[str, tuple[Einsum, ...]] = {}
        for op in self.whole.ops:
            if isinstance(op, Einsum) and op.site:
                found[op.site] = (*found.get(op.site, ()), op)
        return found

    def ordered(self, orders: Sequence[Order]) -> "StepGraph":
        """The same step by products of two."""
        return split(replaced(self.whole, orders), self.forward.results, self.backward.results)


def split(whole: Graph, forward: tuple[str, ...], backward: tuple[str, ...]) -> StepGraph:
    """A step of the results of both passes."""
    ahead = needed(whole, forward)
    there = {op.out for op in ahead}
    behind = tuple(op for op in needed(whole, backward) if op.out not in there)
    made = {op.out for op in behind}
    read = dict.fromkeys(n for op in behind for n in op.operands if n not in made)
    given = tuple(name for name in whole.given if any(name in op.operands for op in ahead))
    return StepGraph(
        whole,
        whole.part(ahead, given, forward),
        whole.part(behind, read, backward),
    )


def step_graph(network: Network, batch: int) -> StepGraph:
    """The step of a network: gradients to every factor and bias.

    ``lN.dy`` of the last layer is given by the host; results are ``ln.dGk`` and ``ln.db``.
    """
    forward = network_graph(network, batch)
    wanted = [name for name in forward.given if name != "x"]
    no_bias = {f"l{n}.b" for n, layer in enumerate(network.layers, 1) if not layer.bias}
    wanted = [name for name in wanted if name not in no_bias]
    (last,) = forward.results
    upper = f"l{len(network.layers)}.dy"
    like = class_tensor(network, upper, (), TensorClass.GRADIENT)
    backward = differentiate(forward, {last: upper}, wanted, like)
    whole = Graph(
        forward.sizes,
        backward.tensors,
        (*forward.ops, *backward.ops),
        (*forward.given, upper),
        (*forward.results, *backward.results),
    )
    return split(whole, forward.results, backward.results)

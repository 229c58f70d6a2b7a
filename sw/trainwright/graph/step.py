"""Training step as one graph: forward pass, gradients to the outputs, and backward pass."""

from collections.abc import Sequence
from dataclasses import dataclass

from trainwright.fixed.scale import TensorClass
from trainwright.graph.casts import in_words, with_casts
from trainwright.graph.differentiate import differentiate
from trainwright.graph.ir import Einsum, Graph, needed
from trainwright.graph.network import class_tensor, host_operands, network_graph, upper_names
from trainwright.graph.order import Order, replaced
from trainwright.network import Input, Network


@dataclass(frozen=True)
class StepGraph:
    """Training step; ``backward`` reads results of ``forward`` and the gradients to the outputs."""

    whole: Graph
    forward: Graph
    backward: Graph

    @property
    def sites(self) -> dict[str, tuple[Einsum, ...]]:
        """Contractions of each layer, forward and backward."""
        by_site: dict[str, tuple[Einsum, ...]] = {}
        for op in self.whole.ops:
            if isinstance(op, Einsum) and op.site:
                by_site[op.site] = (*by_site.get(op.site, ()), op)
        return by_site

    def ordered(self, orders: Sequence[Order]) -> "StepGraph":
        """Return the step with contractions replaced by the products of ``orders``."""
        return split(replaced(self.whole, orders), self.forward.results, self.backward.results)


def split(whole: Graph, forward: tuple[str, ...], backward: tuple[str, ...]) -> StepGraph:
    """Split a whole step into its passes, by the results of each."""
    ahead = needed(whole, forward)
    # Unfoldings cost nothing and are not stored: the backward pass repeats them.
    forward_results = {op.out for op in ahead if not op.is_window}
    behind = tuple(op for op in needed(whole, backward) if op.out not in forward_results)
    backward_results = {op.out for op in behind}
    # The backward pass reads all other operands from external memory.
    read = dict.fromkeys(n for op in behind for n in op.operands if n not in backward_results)
    given = tuple(name for name in whole.given if any(name in op.operands for op in ahead))
    return StepGraph(
        whole,
        whole.part(ahead, given, forward),
        whole.part(behind, read, backward),
    )


def step_graph(
    network: Network, batch: int, *, inputs: bool = False, passes: bool = False
) -> StepGraph:
    """Build the step of a network, with gradients to every factor and bias.

    With ``inputs`` the step also computes gradients to the inputs. The gradient to the output of
    each head is given, ``NAME.dy`` (``NAME.da`` of an attention). Results of the backward pass are
    ``ln.dGk``, ``ln.db`` and ``dx``. With ``passes`` the vector engine makes the gradients of the
    logits, and reads the logits and all other gradients (``casts``).
    """
    forward = network_graph(network, batch)
    passed = {node.name for node in network.nodes if isinstance(node, Input) and not inputs}
    # A layer without a bias has a bias of zeros, which the host writes and which is not trained, so
    # that all layers have the same operations.
    passed |= {f"l{n}.b" for n, layer in enumerate(network.layers, 1) if not layer.bias}
    passed |= {name for name in forward.given if forward.tensors[name].constant}
    passed |= host_operands(network).keys()
    wanted = [name for name in forward.given if name not in passed]
    uppers = upper_names(network)
    like = class_tensor(network, uppers[0], (), TensorClass.GRADIENT)
    by_result = dict(zip(forward.results, uppers, strict=True))
    backward = differentiate(forward, by_result, wanted, like)
    whole = Graph(
        forward.sizes,
        backward.tensors,
        (*forward.ops, *backward.ops),
        (*forward.given, *uppers),
        (*forward.results, *backward.results),
    )
    fixed = (*forward.results, *uppers, *backward.results) if passes else ()
    return split(with_casts(in_words(whole, fixed), fixed), forward.results, backward.results)

"""The backward program: gradients of activations, weights, factors and biases (11 to 19)."""

from trainwright.compiler.builder import Builder
from trainwright.compiler.factor_gradient import emit_bias_gradient, emit_left_chains
from trainwright.compiler.input_gradient import emit_input_gradients
from trainwright.compiler.memory import MemoryMap
from trainwright.compiler.spans import whole_layer
from trainwright.compiler.weight_gradient import emit_right_chain, emit_weight_gradient
from trainwright.network import Network


def emit_backward(b: Builder, network: Network, batch: int, memory: MemoryMap) -> None:
    """Emit the backward program."""
    if len(network.layers) > 1:
        emit_input_gradients(b, network, batch, memory)
    for number, layer in enumerate(network.layers):
        _restart(b)
        emit_weight_gradient(b, network, number, batch, memory)
        span = whole_layer(network, number)
        emit_right_chain(b, network, span, memory, done=layer.order > 2)
        emit_left_chains(b, network, span, memory)
        if layer.bias:
            emit_bias_gradient(b, network, number, batch, memory)
    b.halt("the backward program")


def _restart(b: Builder) -> None:
    """Forget what lies in the local memories; waits still guard what is in flight."""
    b.pad.clear()
    for store in b.stores.values():
        store.clear()

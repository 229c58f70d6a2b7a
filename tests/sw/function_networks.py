"""Networks with element-wise functions between their values."""

import random
from dataclasses import replace

from trainwright.functions import function_names, function_of
from trainwright.network import Apply, Map, Network, Node, network_from_dict

_GIVEN = ("tanh", "leaky_relu(0.1)", "leaky_relu(0.25)", "gelu", "silu")
TEXTS = _GIVEN + tuple(
    name
    for name in function_names()
    if name not in {text.split("(")[0] for text in _GIVEN} and not function_of(name).over
)
"""Every element-wise function of the registry; a new one comes last: drawn networks stay."""


def with_functions(network: Network, seed: int) -> Network:
    """Put functions behind most values that are neither inputs nor logits."""
    draw = random.Random(f"functions {seed}")
    nodes: list[Node] = []
    renamed: dict[str, str] = {}
    layers = list(network.layers)
    for node in network.nodes:
        if node.sources:
            node = replace(node, sources=tuple(renamed.get(name, name) for name in node.sources))
        nodes.append(node)
        if not node.sources or node.name in network.heads or draw.random() < 0.2:
            continue
        nodes.append(Map(f"f{len(nodes)}", (node.name,), function_of(draw.choice(TEXTS))))
        renamed[node.name] = nodes[-1].name
        if isinstance(node, Apply) and draw.random() < 0.8:
            layers[node.layer] = replace(layers[node.layer], relu=False)
    return replace(network, layers=tuple(layers), wiring=tuple(nodes), results=network.heads)


def two_layers(function: str, **keys: object) -> Network:
    """Describe two layers for 8 x 8 images with a function between them."""
    layers = [
        {"outputs": [4, 8], "inputs": [8, 8], "ranks": [4]},
        {"function": function},
        {"outputs": [2, 8], "inputs": [4, 8], "ranks": [4]},
    ]
    return network_from_dict({"classes": 10, "image": [8, 8], "layers": layers, **keys})

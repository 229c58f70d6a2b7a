"""Networks with element-wise functions between their values."""

import random
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from trainwright.functions import Function, function_names, function_of, kernel
from trainwright.functions.registry import _DEFINITIONS, _FILES
from trainwright.kernels import Body, Rounding, Value, where
from trainwright.network import Apply, Map, Network, Node, load_network, network_from_dict

GUIDE = Path(__file__).parents[2] / "docs/guide/your-own-kernel.md"
TOML, MODEL, KERNELS, USED, IN_TORCH = re.findall(
    r"```(?:python|toml)\n(.*?)```", GUIDE.read_text(), re.DOTALL
)

_GIVEN = ("tanh", "leaky_relu(0.1)", "leaky_relu(0.25)", "gelu", "silu")
TEXTS = _GIVEN + tuple(
    name
    for name in function_names()
    if name not in {text.split("(")[0] for text in _GIVEN} and not function_of(name).over
)
"""Every element-wise function of the registry. A new one changes what networks are drawn."""


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


@contextmanager
def kernels_dropped() -> Iterator[None]:
    """Drop the kernels that are registered inside."""
    before = dict(_DEFINITIONS)
    yield
    for name in set(_DEFINITIONS) - set(before):
        del _DEFINITIONS[name]
    function_of.cache_clear()
    _FILES.clear()


def guide_network(folder: Path) -> Network:
    """Write the guide's two files to a folder and load the network."""
    (folder / "my_kernels.py").write_text(KERNELS)
    (folder / "mine.toml").write_text(USED)
    return load_network(str(folder / "mine.toml"))


def two_layers(function: str, **keys: object) -> Network:
    """Describe two layers for 8 x 8 images with a function between them."""
    layers = [
        {"outputs": [4, 8], "inputs": [8, 8], "ranks": [4]},
        {"function": function},
        {"outputs": [2, 8], "inputs": [4, 8], "ranks": [4]},
    ]
    return network_from_dict({"classes": 10, "image": [8, 8], "layers": layers, **keys})


def random_kernel(seed: int, over: str = "") -> Function:
    """Register a kernel drawn at random, with a gradient drawn at random, under one name.

    Every step keeps 0, as element-wise kernels must.
    """
    draw = random.Random(f"kernel {seed} {over}")
    texts = [[draw.random() for _ in range(200)] for _ in range(2)]
    length = draw.choice((3, 8, 20))

    def text(k: Body, given: tuple[Value, ...], numbers: list[float]) -> Value:
        drawn = random.Random(str(numbers))
        values = list(given)
        for _ in range(length):
            a, b = drawn.choice(values).clip(16), drawn.choice(values[-3:]).clip(16)
            n = drawn.randrange(1, 6)
            values.append(
                drawn.choice(
                    (
                        lambda a=a, b=b: a + b,
                        lambda a=a, b=b: a - b,
                        lambda a=a, b=b, n=n: (a * b).rounded(n + 6, Rounding.EVEN),
                        lambda a=a, n=n: (a * (2 * n + 1)) >> n,
                        lambda a=a, n=n: a & (2**n * 37),
                        lambda a=a, b=b: where(a.negative, b, a),
                        lambda a=a, b=b: where(b.positive, 0 - a, b),
                        lambda a=a, b=b: a.at_least(b).at_most(0),
                        lambda a=a: k.sum(a.clip(12)) >> 4 if over else a,
                        lambda a=a: k.greatest(a) if over else a,
                    )
                )()
            )
        return values[-1] + given[0]

    def random_gradient(k: Body, upper: Value, x: Value) -> Value:
        return text(k, (upper, x), texts[1])

    def random_forward(k: Body, x: Value) -> Value:
        return text(k, (x,), texts[0])

    random_forward.__name__ = f"random_{seed}_{over}"
    return kernel(gradient=random_gradient, over=over or ())(random_forward).make()


def image_network(table: dict[str, object], size: list[int]) -> Network:
    """Describe a convolution to 8 channels, ``table`` behind it and a layer of ``size`` inputs."""
    layers = [
        {"outputs": [2, 4], "inputs": [9, 1], "ranks": [2], "kernel": [3, 3], "padding": [1, 1]},
        table,
        {"outputs": [1, 16], "inputs": size, "ranks": [min(4, size[0])]},
    ]
    return network_from_dict({"classes": 4, "image": [8, 8], "layers": layers})


def between_layers(function: Function, channels: bool) -> Network:
    """Describe a network that applies a function between two layers, or to a convolution."""
    layers: list[dict[str, object]] = [{"outputs": [4, 8], "inputs": [8, 8], "ranks": [4]}]
    if channels:
        layers = [{"outputs": [2, 3], "inputs": [9, 1], "ranks": [2], "kernel": [3, 3]}]
    size = [9, 24] if channels else [4, 8]
    layers += [
        {"function": function.text},
        {"outputs": [2, 8], "inputs": size, "ranks": [4]},
    ]
    return network_from_dict({"classes": 10, "image": [8, 8], "layers": layers})

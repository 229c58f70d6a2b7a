"""From a network of TTM layers and a batch to the graph of its forward pass."""

from trainwright.fixed.scale import TensorClass
from trainwright.formats import Fixed, Format, Posit
from trainwright.graph.ir import Add, Einsum, Graph, Op, Tensor, View
from trainwright.network import Layer, Network

SAMPLES = "s"
"""The axis of the samples."""


def class_tensor(network: Network, name: str, axes: tuple[str, ...], kind: TensorClass) -> Tensor:
    """A tensor in its class's format, with the network's rule for what underflows in it."""
    fmt = network.format(kind.value)
    zero = isinstance(fmt, Posit) and network.underflow_zero(kind.value)
    return Tensor(name, axes, kind, fmt, zero)


class _Build:
    def __init__(self, network: Network, batch: int):
        self.network = network
        self.sizes = {SAMPLES: batch}
        self.tensors: dict[str, Tensor] = {}
        self.ops: list[Op] = []
        self.given: list[str] = []

    def tensor(self, name: str, axes: tuple[str, ...], kind: TensorClass) -> str:
        self.tensors[name] = class_tensor(self.network, name, axes, kind)
        return name

    def give(self, name: str, axes: tuple[str, ...], kind: TensorClass, fmt: Format) -> str:
        self.tensors[name] = Tensor(name, axes, kind, fmt)
        self.given.append(name)
        return name

    def axes(self, layer: str, letter: str, sizes: tuple[int, ...]) -> tuple[str, ...]:
        names = tuple(f"{layer}.{letter}{n}" for n in range(1, len(sizes) + 1))
        self.sizes.update(zip(names, sizes, strict=True))
        return names

    def layer(self, number: int, layer: Layer, below: str) -> str:
        """Append layer ``number`` (from 1); ``below`` is the tensor under it, (features.., s)."""
        name, network = f"l{number}", self.network
        last = number == len(network.layers)
        inputs = self.axes(name, "i", layer.inputs)
        outputs = self.axes(name, "j", layer.outputs)
        ranks = self.axes(name, "r", layer.ranks)
        x = self.tensor(f"{name}.x", (*inputs, SAMPLES), TensorClass.ACTIVATION)
        self.ops.append(View(x, below))
        factors = [
            self.give(
                f"{name}.G{n + 1}",
                (*ranks[n - 1 : n][: n > 0], outputs[n], inputs[n], *ranks[n : n + 1]),
                TensorClass.INTERMEDIATE,
                network.format("factor"),
            )
            for n in range(layer.order)
        ]
        y_axes, kind = (*outputs, SAMPLES), TensorClass.INTERMEDIATE
        y = self.tensor(f"{name}.y", y_axes, kind)
        self.ops.append(Einsum(y, (*factors, x), name))
        b = self.give(f"{name}.b", outputs, kind, Fixed(network.widths.bias))
        a = self.tensor(f"{name}.a", y_axes, kind if last else TensorClass.ACTIVATION)
        self.ops.append(Add(a, y, b, relu=layer.relu))
        return a


def network_graph(network: Network, batch: int) -> Graph:
    """The forward pass of ``batch`` samples: result ``lN.a`` of the last layer, from ``x``.

    Tensors of layer n: ``ln.x`` (i.., s), factors ``ln.Gk`` (r, j, i, r), sums ``ln.y`` (j.., s),
    bias ``ln.b`` (j..), activations ``ln.a`` (j.., s).
    """
    build = _Build(network, batch)
    build.sizes["pixel"] = network.layers[0].input_size
    axes = ("pixel", SAMPLES)
    below = build.give("x", axes, TensorClass.ACTIVATION, network.format("activation"))
    for number, layer in enumerate(network.layers, 1):
        below = build.layer(number, layer, below)
    return Graph(build.sizes, build.tensors, tuple(build.ops), tuple(build.given), (below,))

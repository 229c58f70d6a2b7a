"""From a network and a batch to the graph of its forward pass."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from trainwright.fixed.scale import TensorClass
from trainwright.formats import Fixed, Format
from trainwright.functions import Function, definition_of
from trainwright.graph import ir
from trainwright.graph.ir import Einsum, Graph, Kernel, Op, Slide, Tensor, View
from trainwright.network import (
    Apply,
    Attention,
    Dropout,
    Input,
    Layer,
    Map,
    Network,
    Node,
    Norm,
    Pool,
    Positions,
    Sum,
    TokenPool,
    Window,
)
from trainwright.program.elementwise import RELU_SUM, SUM

SAMPLES = "s"
"""The axis of the samples, or of the tokens of a sequence."""
SEQUENCES = "b"
"""The axis of the sequences of a batch, where there are several."""
CONSTANT_WIDTH = 16
"""Bits of the weight of an average over windows whose size is no power of two."""
SHARE_EXPONENT = 2 - CONSTANT_WIDTH
"""Exponent of the tokens' weights in a mean over them: 1 is the largest power of two of a word."""
MASK_WIDTH = 2
"""Bits of a mask, whose words are 1, 0 and -1."""


def class_tensor(network: Network, name: str, axes: tuple[str, ...], kind: TensorClass) -> Tensor:
    """Make a tensor in its own or its class's format, with the network's rule for underflow."""
    fmt = network.tensor_format(name, kind.value)
    zero = fmt.coded and network.underflow_zero(kind.value)
    return Tensor(name, axes, kind, fmt, zero)


def result_names(network: Network) -> tuple[str, ...]:
    """Return the tensor of each head."""
    return tuple(f"{network.prefixes[name]}.a" for name in network.heads)


def upper_names(network: Network) -> tuple[str, ...]:
    """Return the gradient to each head, which the host writes."""
    # The sums ``y`` of an attention are its scores: they have the gradient ``dy``.
    attends = {node.name for node in network.nodes if isinstance(node, Attention)}
    letters = {name: "a" if name in attends else "y" for name in network.heads}
    return tuple(f"{network.prefixes[name]}.d{letters[name]}" for name in network.heads)


_WRITTEN = {Attention: "mask", Dropout: "keep", Pool: "select", TokenPool: "share"}


def host_name(network: Network, node: Attention | Dropout | Pool | TokenPool) -> str:
    """Return the tensor that the host writes for a node.

    An attention reads a mask of its keys (heads, sequences, keys, queries), a dropout a mask with
    the axes of its value, a pool of windows the identity over places in a window, and a pool of
    tokens the weights of tokens (sequences, tokens).
    """
    return f"{network.prefixes[node.name]}.{_WRITTEN[type(node)]}"


def host_operands(network: Network) -> dict[str, int]:
    """Return the exponents of tensors that say which tokens and values count, by name."""
    names = {}
    for node in network.nodes:
        if isinstance(node, TokenPool):
            names[host_name(network, node)] = SHARE_EXPONENT
        elif isinstance(node, Positions):
            names[node.name] = position_exponent(network, node)
        elif (
            isinstance(node, Dropout)
            or (isinstance(node, Attention) and is_masked(network, node))
            or (isinstance(node, Pool) and network.writes_out(node))
        ):
            names[host_name(network, node)] = 0
    return names


def is_masked(network: Network, node: Attention) -> bool:
    """Return whether an attention omits keys: of padding, of later tokens, or by a mask."""
    return network.padding or node.causal or node.masked


def digit_layers(network: Network, *, coded: bool = False) -> set[int]:
    """Return the numbers of the layers that read products of digits of tokens.

    If tokens are in coded formats, the set is empty unless ``coded``.
    """
    if network.tokens == 1 or (network.format("activation").coded and not coded):
        return set()
    inputs = {node.name for node in network.nodes if isinstance(node, Input)}
    applied = (node for node in network.nodes if isinstance(node, Apply))
    return {node.layer for node in applied if len(inputs.intersection(node.sources)) > 1}


def input_exponent(network: Network) -> int:
    """Return the exponent of inputs: 0 for wide digits of tokens, whose words are 0 or 1."""
    fmt = network.format("activation")
    # As for one-hot positions. A product of two words of 8 bits fits a partial result of 16.
    return 0 if fmt.width > 8 and digit_layers(network) else fmt.input_exponent


def position_exponent(network: Network, node: Positions) -> int:
    """Return the exponent of positions, at which a value of 1 is exact."""
    fmt = network.format("activation")
    # Words of one-hot values are 1: exponents follow means, and larger words of an outer product of
    # one-hot values saturate before the mean of many zeros shows it.
    return 0 if node.kind == "one-hot" or fmt.coded else fmt.input_exponent + 1


def average(size: int) -> tuple[int, int]:
    """Return word and exponent of 1 / ``size``: exact for a power of two, else of 15 bits."""
    exponent = -(size - 1).bit_length()
    # The exponent that makes 1 / size use all the bits that a positive constant of 16 has.
    if size & (size - 1):
        exponent -= CONSTANT_WIDTH - 2
    return round(2.0**-exponent / size), exponent


@dataclass(frozen=True)
class _Value:
    """A value: its tensor, and the sizes of its axes without those of samples."""

    tensor: str
    shape: tuple[int, ...]


class _Build:
    def __init__(self, network: Network, batch: int):
        self.network = network
        # Tokens lie along the lanes, as samples of other networks do: layers compute each alone.
        # A pool over tokens removes their axis: even a single sequence then needs an axis.
        sequences = network.tokens > 1 and (batch > 1 or bool(network.of_sequences))
        self.samples: tuple[str, ...] = (SEQUENCES, SAMPLES) if sequences else (SAMPLES,)
        self.sizes = dict[str, int](zip(self.samples, (batch, network.tokens), strict=False))
        if network.tokens > 1:
            self.sizes[SAMPLES] = network.tokens
        self.tensors: dict[str, Tensor] = {}
        self.ops: list[Op] = []
        self.given: list[str] = []
        self.values: dict[str, _Value] = {}
        self.prefixes = network.prefixes

    def tensor(self, name: str, axes: tuple[str, ...], kind: TensorClass) -> str:
        self.tensors[name] = class_tensor(self.network, name, axes, kind)
        return name

    def give(self, name: str, axes: tuple[str, ...], kind: TensorClass, fmt: Format) -> str:
        # Two nodes may apply one layer: its factors are given once.
        if name not in self.tensors:
            self.tensors[name] = Tensor(name, axes, kind, fmt)
            self.given.append(name)
        return name

    def axes(self, owner: str, letters: Sequence[str], sizes: Sequence[int]) -> tuple[str, ...]:
        names = tuple(f"{owner}.{letter}" for letter in letters)
        self.sizes.update(zip(names, sizes, strict=True))
        return names

    def numbered(self, owner: str, letter: str, sizes: Sequence[int]) -> tuple[str, ...]:
        return self.axes(owner, [f"{letter}{n}" for n in range(1, len(sizes) + 1)], sizes)

    def view(self, name: str, source: str, axes: tuple[str, ...]) -> str:
        """Add a view of a value by other axes; return its name."""
        # A view keeps words and exponent: it may only rename axes, so it takes the format of its
        # source.
        self.ops.append(View(self.copy(name, source, axes), source))
        return name

    def copy(self, name: str, source: str, axes: tuple[str, ...]) -> str:
        """Add a tensor with the values and the format of another; return its name."""
        self.tensors[name] = replace(self.tensors[source], name=name, axes=axes)
        return name

    def kind(self, name: str) -> TensorClass:
        """Return the class of a value: logits are not rounded to activations."""
        heads = self.network.heads
        # Logits go to the host as intermediates do, with the bits that a loss needs.
        return TensorClass.INTERMEDIATE if name in heads else TensorClass.ACTIVATION

    def node(self, node: Node) -> None:
        """Append the operations that compute a value."""
        prefix = self.prefixes[node.name]
        match node:
            case Input() | Positions():
                # The name of the main input's axis is part of the layout of memory that the driver
                # fills.
                axes = ("pixel",) if node.name == "x" else (f"{node.name}.pixel",)
                shape = self.network.shapes[node.name]
                self.sizes[axes[0]] = prod(shape)
                fmt = self.network.format("activation")
                tensor = self.give(node.name, (*axes, *self.samples), TensorClass.ACTIVATION, fmt)
            case Apply():
                tensor = self.layer(node, prefix)
            case Sum():
                tensor = self.sum(node, prefix)
            case Pool():
                tensor = self.pool(node, prefix)
            case Attention():
                tensor = self.attention(node, prefix)
            case TokenPool():
                tensor = self.token_pool(node, prefix)
            case Map() | Norm() | Dropout():
                tensor = self.map(node, prefix)
        self.values[node.name] = _Value(tensor, self.network.shapes[node.name])

    def layer(self, node: Apply, prefix: str) -> str:
        """Apply a layer to a value: input ``x``, sums ``y``, bias, result ``a``."""
        layer, below = self.network.layers[node.layer], self.values[node.sources[0]]
        owner, of_sequences = f"l{node.layer + 1}", node.name in self.network.of_sequences
        samples = self.samples[:-1] if of_sequences else self.samples
        outputs = self.numbered(owner, "j", layer.outputs)
        if layer.window is None:
            # A scale has one axis: each value is multiplied by a number of its own.
            flat = outputs if layer.diagonal else self.numbered(owner, "i", layer.inputs)
            inputs = [() if layer.diagonal else (axis,) for axis in flat]
            # The value below has its channels last, a leading layer reads them first: a view, no
            # copy.
            flat = flat[layer.leading :] + flat[: layer.leading]  # as the values lie
            if len(node.sources) > 1:
                read = [
                    self.view(f"{prefix}.x{n}", self.values[name].tensor, (axis, *samples))
                    for n, (name, axis) in enumerate(zip(node.sources, flat, strict=True), 1)
                ]
            else:
                read = [self.view(f"{prefix}.x", below.tensor, (*flat, *samples))]
            positions: tuple[str, ...] = ()
        else:
            kernel = self.axes(owner, ("kh", "kw"), layer.window.kernel)
            every = self.numbered(owner, "i", layer.inputs)
            # Both kernel axes belong to the first input mode of the train; channels to the
            # remaining ones.
            inputs = [kernel, *((axis,) for axis in every[1:])]
            x, positions = self.windows(prefix, below, layer.window, kernel, every[1:])
            read = [x]
        factors = self.factors(owner, layer, outputs, inputs)
        kind = TensorClass.INTERMEDIATE
        axes = (*positions, *outputs, *samples)
        y = self.tensor(f"{prefix}.y", axes, kind)
        self.ops.append(Einsum(y, (*factors, *read), "" if layer.diagonal else prefix))
        b = self.give(f"{owner}.b", outputs, kind, Fixed(self.network.widths.bias))
        return self.add(node, prefix, y, b, relu=layer.relu)

    def add(self, node: Node, prefix: str, x: str, y: str, *, relu: bool) -> str:
        """Add ``y`` to ``x``, which may have more axes."""
        a = self.tensor(f"{prefix}.a", self.tensors[x].axes, self.kind(node.name))
        self.ops.append(Kernel(a, (x, y), RELU_SUM if relu else SUM))
        return a

    def attention(self, node: Attention, prefix: str) -> str:
        """Compute scores of the tokens of a sequence, their softmax, and sums of values."""
        size = self.network.shapes[node.name][0]
        heads, features, keys = self.axes(
            prefix, ("n", "e", "t"), (node.heads, size // node.heads, self.network.tokens)
        )
        queries, sequences = self.samples[-1], self.samples[:-1]
        q, k, v = (
            self.view(f"{prefix}.{letter}", self.values[name].tensor,
                      (heads, features, *sequences, token))
            for letter, name, token in zip("qkv", node.sources, (queries, keys, keys), strict=True)
        )  # fmt: skip
        axes = (heads, *sequences, keys, queries)
        scores = self.tensor(f"{prefix}.y", axes, TensorClass.INTERMEDIATE)
        self.ops.append(Einsum(scores, (q, k)))
        p = self.tensor(f"{prefix}.p", axes, TensorClass.ACTIVATION)
        operands = [scores]
        if is_masked(self.network, node):
            fmt = Fixed(MASK_WIDTH)
            name = host_name(self.network, node)
            operands.append(self.give(name, axes, TensorClass.ACTIVATION, fmt))
        self.group(p, operands, self.network.function_at(node), (keys,))
        axes = (heads, features, *self.samples)
        a = self.tensor(f"{prefix}.a", axes, self.kind(node.name))
        self.ops.append(Einsum(a, (p, v)))
        return a

    def group(self, out: str, operands: Sequence[str], f: Function, over: tuple[str, ...]) -> None:
        """Apply a function to groups over some axes of a value."""
        self.ops.append(Kernel(out, tuple(operands), f.forward, f, over=over))

    def token_pool(self, node: TokenPool, prefix: str) -> str:
        """Add the tokens of every sequence, each with the weight that the host gives it."""
        x = self.values[node.sources[0]].tensor
        fmt = Fixed(CONSTANT_WIDTH)
        name = host_name(self.network, node)
        share = self.give(name, self.samples, TensorClass.INTERMEDIATE, fmt)
        axes = tuple(axis for axis in self.tensors[x].axes if axis != self.samples[-1])
        a = self.tensor(f"{prefix}.a", axes, self.kind(node.name))
        self.ops.append(Einsum(a, (share, x)))
        return a

    def factors(
        self,
        owner: str,
        layer: Layer,
        outputs: tuple[str, ...],
        inputs: Sequence[tuple[str, ...]],
    ) -> list[str]:
        ranks = self.numbered(owner, "r", layer.ranks)
        return [
            self.give(
                f"{owner}.G{n + 1}",
                # Boundary factors have one rank: the slice is empty before the first factor, after
                # the last.
                (*ranks[n - 1 : n][: n > 0], outputs[n], *inputs[n], *ranks[n : n + 1]),
                TensorClass.INTERMEDIATE,
                self.network.tensor_format(f"{owner}.G{n + 1}", "factor"),
            )
            for n in range(layer.order)
        ]

    def windows(
        self,
        prefix: str,
        below: _Value,
        window: Window,
        kernel: tuple[str, ...],
        channels: tuple[str, ...],
    ) -> tuple[str, tuple[str, ...]]:
        """Add the windows of a value, axes (h, kh, w, kw, channels.., s), and their positions."""
        image = self.axes(prefix, ("h", "w"), below.shape[:2])
        x = self.view(f"{prefix}.x", below.tensor, (*image, *channels, *self.samples))
        positions = self.axes(prefix, ("oh", "ow"), window.over(*below.shape[:2]))
        slides = tuple(
            Slide(axis, position, offset, stride, 1, -padding)
            for axis, position, offset, stride, padding in zip(
                # Position p and offset k read row p * stride + k - padding; rows outside are zeros.
                image,
                positions,
                kernel,
                window.stride,
                window.padding,
                strict=True,
            )
        )
        axes = (positions[0], kernel[0], positions[1], kernel[1], *channels, *self.samples)
        name = self.copy(f"{prefix}.xw", x, axes)
        self.ops.append(ir.Unfold(name, x, slides))
        return name, positions

    def sum(self, node: Sum, prefix: str) -> str:
        """Add two values, the second by the axes of the first."""
        first, second = (self.values[name].tensor for name in node.sources)
        axes = self.tensors[first].axes
        if self.tensors[second].axes != axes:
            second = self.view(f"{prefix}.x", second, axes)
        return self.add(node, prefix, first, second, relu=node.relu)

    def map(self, node: Map | Norm | Dropout, prefix: str) -> str:
        """Apply a function to every value, or to groups over some axes.

        Words of a norm are intermediate, as a scale follows; a dropout reads a mask.
        """
        below, f = self.values[node.sources[0]], self.network.function_at(node)
        x, over = self.along(f"{prefix}.x", below, f.over) if f.over else (below.tensor, ())
        gone = over if f.reduces else ()
        axes = tuple(axis for axis in self.tensors[x].axes if axis not in gone)
        operands = [x]
        if isinstance(node, Dropout):
            name = host_name(self.network, node)
            operands.append(self.give(name, axes, TensorClass.ACTIVATION, Fixed(MASK_WIDTH)))
        normal = isinstance(node, Norm)
        kind = TensorClass.INTERMEDIATE if normal else self.kind(node.name)
        a = self.tensor(f"{prefix}.a", axes, kind)
        self.group(a, operands, f, over)
        return a

    def along(self, name: str, value: _Value, over: Sequence[str]) -> tuple[str, tuple[str, ...]]:
        """Return a value whose axes tell apart what a function is ``over``, and the axes over."""
        x = value.tensor
        axes = tuple(axis for axis in self.tensors[x].axes if axis not in self.samples)
        known = {"features": axes, "tokens": self.samples[-1:]}
        if {"rows", "columns", "channels"} & set(over):
            if tuple(self.sizes[axis] for axis in axes[:2]) != value.shape[:2] or len(axes) < 3:
                axes = self.axes(name, ("h", "w", "i1"), value.shape)
                x = self.view(name, x, (*axes, *self.samples))
            known |= {"rows": axes[:1], "columns": axes[1:2], "channels": axes[2:]}
        chosen = {axis for part in over for axis in known[part]}
        return x, tuple(axis for axis in self.tensors[x].axes if axis in chosen)

    def pooled(self, node: Pool, prefix: str, below: _Value, kernel: tuple[str, ...]) -> str:
        """Apply a function to every window: windows next to each other are a view of the image."""
        if self.network.writes_out(node):
            return self.overlapped(node, prefix, below, kernel)
        positions = self.axes(prefix, ("oh", "ow"), self.network.shapes[node.name][:2])
        channels = self.axes(prefix, ("i1",), below.shape[2:])
        across = (positions[0], kernel[0], positions[1], kernel[1], *channels, *self.samples)
        x = self.view(f"{prefix}.x", below.tensor, across)
        a = self.tensor(f"{prefix}.a", (*positions, *channels, *self.samples), self.kind(node.name))
        self.group(a, [x], self.network.function_at(node), kernel)
        return a

    def overlapped(self, node: Pool, prefix: str, below: _Value, kernel: tuple[str, ...]) -> str:
        """Apply a function to windows that overlap, or that reach beyond the image.

        A product with an identity over the places of a window writes the windows out, exactly:
        passes of the vector engine read rows, and the product's gradient adds overlapping windows.
        In a pool of the greatest value zeros of padding must be the least: values are raised
        before the pool, and lowered after it.
        """
        f, function = self.network.function_at(node), self.copy_function
        greatest = f.definition.name == "max_pool" and node.window.padding != (0, 0)
        old = self.tensors[below.tensor].format
        if greatest:
            # Coded values are in fixed point here, of one bit less than words have (``casts``).
            wide = Fixed((15 if old.coded else old.width) + 1)
            raised = definition_of("_raised").make()
            below = _Value(function(f"{prefix}.raised", below.tensor, raised, wide), below.shape)
        channels = self.axes(prefix, ("i1",), below.shape[2:])
        windows, positions = self.windows(prefix, below, node.window, kernel, channels)
        name, places = f"{prefix}.windows", self.axes(prefix, ("ph", "pw"), node.window.kernel)
        select, fmt = host_name(self.network, node), Fixed(MASK_WIDTH)
        self.give(select, (*places, *kernel), TensorClass.INTERMEDIATE, fmt)
        axes = (positions[0], places[0], positions[1], places[1], *channels, *self.samples)
        self.tensors[name] = replace(self.tensors[windows], name=name, axes=axes, exact=True)
        self.ops.append(Einsum(name, (select, windows)))
        axes = (*positions, *channels, *self.samples)
        a = f"{prefix}.greatest" if greatest else f"{prefix}.a"
        if greatest:
            self.tensors[a] = replace(self.tensors[windows], name=a, axes=axes)
        else:
            self.tensor(a, axes, self.kind(node.name))
        self.group(a, [name], f, places)
        lowered = definition_of("_lowered").make()
        return function(f"{prefix}.a", a, lowered, old) if greatest else a

    def copy_function(self, name: str, x: str, f: Function, fmt: Format) -> str:
        """Apply an element-wise function whose result has a format of its own."""
        self.tensors[name] = replace(self.tensors[x], name=name, format=fmt)
        self.group(name, [x], f, ())
        return name

    def pool(self, node: Pool, prefix: str) -> str:
        """Average every window: the sum of its values times a constant."""
        below = self.values[node.sources[0]]
        kernel = self.axes(prefix, ("kh", "kw"), node.window.kernel)
        if node.function:
            return self.pooled(node, prefix, below, kernel)
        channels = self.axes(prefix, ("i1",), below.shape[2:])
        windows, positions = self.windows(prefix, below, node.window, kernel, channels)
        word, exponent = average(node.window.size)
        name = f"{prefix}.share"
        # A power of two needs no rounding: word 1 at a negative exponent, 2 bits instead of 16.
        fmt = Fixed(2 if word == 1 else CONSTANT_WIDTH)
        self.tensors[name] = Tensor(
            name, kernel, TensorClass.INTERMEDIATE, fmt, constant=(word, exponent)
        )
        self.given.append(name)
        a = self.tensor(f"{prefix}.a", (*positions, *channels, *self.samples), self.kind(node.name))
        self.ops.append(Einsum(a, (name, windows)))
        return a


def network_graph(network: Network, batch: int) -> Graph:
    """Build the forward pass of ``batch`` samples: results ``NAME.a`` of the heads.

    Given are the inputs (pixel, s), factors ``ln.Gk`` (r, j, i, r) and biases ``ln.b`` (j..) of
    layer n, and constants. Tensors of a value NAME (``ln`` where layer n is first applied):
    ``NAME.x`` (i.., s) or (h, w, i.., s), its windows ``NAME.xw``, sums ``NAME.y`` (j.., s) or
    (oh, ow, j.., s), ``NAME.a`` like them.
    """
    build = _Build(network, batch)
    for node in network.nodes:
        build.node(node)
    return Graph(
        build.sizes, build.tensors, tuple(build.ops), tuple(build.given), result_names(network)
    )

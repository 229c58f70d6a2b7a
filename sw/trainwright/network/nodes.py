"""The graph of a network: values, and how each is computed from other values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

from trainwright.functions import Function
from trainwright.network.errors import NetworkError, require, row
from trainwright.network.layer import Layer
from trainwright.network.window import Window
from trainwright.support.text import amount

IMAGE = "x"
"""The name of the input where it is the whole padded image."""

Shape = tuple[int, ...]
"""Sizes of a value for one sample: (rows, columns, channels) of an image, or (values,)."""


@dataclass(frozen=True)
class _Given:
    """A value that is computed from no other value."""

    name: str
    sources: ClassVar[tuple[str, ...]] = ()


@dataclass(frozen=True)
class _Computed:
    """A value that is computed from the values ``sources``."""

    name: str
    sources: tuple[str, ...]


@dataclass(frozen=True)
class Input(_Given):
    """A part of the padded image: ranges of rows and columns, the end of each exclusive.

    The ``channels`` of a pixel lie next to each other in a row, each in a column of its own.
    """

    rows: tuple[int, int]
    columns: tuple[int, int]
    channels: int = 1


@dataclass(frozen=True)
class Positions(_Given):
    """Constant values of each token's place in its sequence, the same for every sequence.

    ``"one-hot"``: value ``place // every % size`` is 1, the rest 0, so that a layer that reads the
    values is a table of learned positions. ``"sinusoidal"``: sines and cosines of the place, with
    frequencies 10000^(-2n / size), in turn.
    """

    kind: str
    size: int
    every: int = 1

    CHOICES = ("one-hot", "sinusoidal")


@dataclass(frozen=True)
class Apply(_Computed):
    """The layer of number ``layer`` (from 0), applied to a value.

    A layer that is applied to several values reads their outer product: each value is an input.
    """

    layer: int


@dataclass(frozen=True)
class Sum(_Computed):
    """act(a + b) of two values of one size, act being max(0, .) with ``relu``."""

    relu: bool


@dataclass(frozen=True)
class Pool(_Computed):
    """A function of every window of an image, channel by channel; by default the average."""

    window: Window
    function: Function | None = None


@dataclass(frozen=True)
class Map(_Computed):
    """A function of a value, element by element or over some of its axes."""

    function: Function


@dataclass(frozen=True)
class Norm(_Computed):
    """LayerNorm of all values of a token. Scale and bias follow in a layer of their own."""


@dataclass(frozen=True)
class Attention(Norm):
    """Attention of queries, keys and values: softmax(q k / sqrt(size of a head)) v over tokens."""

    heads: int
    causal: bool = False
    """Whether a token attends only to itself and to the tokens before it."""
    masked: bool = False
    """Whether the host gives each batch a mask of the keys that each query attends to."""


@dataclass(frozen=True)
class TokenPool(_Computed):
    """Pool of the tokens of a sequence to a single value: their mean, or the first token."""

    over: str

    CHOICES = ("mean", "first")


@dataclass(frozen=True)
class Dropout(_Computed):
    """Dropout: training drops each value with a probability; an evaluation keeps all values."""

    probability: float


Node = Input | Positions | Apply | Sum | Pool | Map | Norm | Attention | TokenPool | Dropout


def layer_name(number: int) -> str:
    """Return the name of the value of layer ``number`` (from 0) where it is applied first."""
    return f"l{number + 1}"


def straight_line(layers: Sequence[Layer], padded: tuple[int, int]) -> tuple[Node, ...]:
    """Apply each layer to the result of the layer before, the first layer to the image."""
    names = (IMAGE, *(layer_name(n) for n in range(len(layers))))
    image = Input(IMAGE, (0, padded[0]), (0, padded[1]))
    return (image, *(Apply(names[n + 1], names[n : n + 1], n) for n in range(len(layers))))


def arranged(nodes: Sequence[Node], heads: Sequence[str]) -> tuple[Node, ...]:
    """Order the nodes so that each can be computed from the nodes before.

    Raises ``NetworkError`` for a name that two values have or none has, for a cycle, and for a
    value that no head needs.
    """
    by_name: dict[str, Node] = {}
    for node in nodes:
        require(node.name not in by_name, f"two values have the name {node.name!r}: rename one")
        by_name[node.name] = node
    for reader, names in (*((f"{n.name}: ", n.sources) for n in nodes), ("heads: ", heads)):
        for name in names:
            require(
                name in by_name,
                f"{reader}there is no value {name!r}; there are {', '.join(by_name)}",
            )
    done: dict[str, Node] = {}
    while len(done) < len(nodes):
        ready = [n for n in nodes if n.name not in done and all(name in done for name in n.sources)]
        if not ready:
            raise NetworkError(_cycle([n for n in nodes if n.name not in done]))
        done |= {ready[0].name: ready[0]}
    needed = set(heads)
    for node in reversed(done.values()):
        if node.name in needed:
            needed.update(node.sources)
    unused = [name for name in by_name if name not in needed]
    require(
        not unused,
        f"no head needs the value {', '.join(map(repr, unused))}: name it in `from`, `add` or "
        "`heads`, or omit it",
    )
    return tuple(done.values())


def _cycle(nodes: Sequence[Node]) -> str:
    """Describe a cycle of values that are computed from each other."""
    by_name = {node.name: node for node in nodes}
    seen = [nodes[0].name]
    while True:
        following = next(name for name in by_name[seen[-1]].sources if name in by_name)
        if following in seen:
            cycle = [*seen[seen.index(following) :], following]
            return f"a cycle: {' from '.join(cycle)}; read an earlier value in one of them"
        seen.append(following)


def shapes(nodes: Sequence[Node], layers: Sequence[Layer]) -> dict[str, Shape]:
    """Find the shape of every value. Raises ``NetworkError`` where sizes do not fit."""
    result: dict[str, Shape] = {}
    makers = {node.name: node for node in nodes}
    for node in nodes:
        match node:
            case Input():
                sizes = [hi - lo for lo, hi in (node.rows, node.columns)]
                result[node.name] = (sizes[0], sizes[1] // node.channels, node.channels)
            case Positions():
                result[node.name] = (node.size,)
            case Apply():
                layer = layers[node.layer]
                first, *more = node.sources
                if more:
                    result[node.name] = _multiplied(node, layer, result)
                    continue
                result[node.name] = _applied(node, layer, makers[first], result, makers)
            case Sum():
                result[node.name] = _added(node, result)
            case Pool():
                result[node.name] = _windows(node.name, node.sources[0], node.window, result)
            case Map(function=Function(reduces=True)):
                result[node.name] = _reduced(node.function.over, result[node.sources[0]])
            case Attention():
                result[node.name] = _attended(node, result)
            case TokenPool():
                result[node.name] = (prod(result[node.sources[0]]),)
            case Map() | Norm() | Dropout():
                result[node.name] = result[node.sources[0]]
    return result


def of_sequences(nodes: Sequence[Node]) -> frozenset[str]:
    """Find the values that a whole sequence has, and not each token: of a pool, and behind it.

    Raises ``NetworkError`` where a value is made of both kinds, or needs tokens and has none.
    """
    whole: set[str] = set()
    for node in nodes:
        kinds = {name in whole for name in node.sources}
        require(
            len(kinds) < 2,
            f"{node.name}: {' and '.join(node.sources)} do not go together: some are of tokens, "
            "some of whole sequences; pool all of them, or none",
        )
        if True in kinds:
            require(
                not isinstance(node, Attention | TokenPool),
                f"{node.name} reads tokens, {node.sources[0]!r} is one value of a sequence",
            )
            whole.add(node.name)
        elif isinstance(node, TokenPool):
            whole.add(node.name)
    return frozenset(whole)


def _multiplied(node: Apply, layer: Layer, sizes_of: Mapping[str, Shape]) -> Shape:
    """Check a layer that reads an outer product of values; return the shape of its result."""
    sizes = tuple(prod(sizes_of[name]) for name in node.sources)
    require(
        layer.window is None and not layer.leading and sizes == layer.inputs,
        f"{node.name}: the values of product have {row(sizes)} values, the layer has "
        "inputs "
        f"{row(layer.inputs)}: give both the same sizes",
    )
    return (layer.output_size,)


def _attended(node: Attention, sizes_of: Mapping[str, Shape]) -> Shape:
    """Check an attention; return the shape of its result."""
    require(
        len(node.sources) == 3,
        f"{node.name}: attention reads queries, keys and values, not {len(node.sources)} of them",
    )
    sizes = [prod(sizes_of[name]) for name in node.sources]
    require(
        len(set(sizes)) == 1,
        f"{node.name}: queries, keys and values have {row(sizes)} values: give them one size",
    )
    require(
        1 <= node.heads <= sizes[0] and sizes[0] % node.heads == 0,
        f"{node.name}: {node.heads} heads do not divide {amount(sizes[0], 'value')}",
    )
    return (sizes[0],)


def _applied(
    node: Apply, layer: Layer, given: Node, known: Mapping[str, Shape], makers: Mapping[str, Node]
) -> Shape:
    name = node.name if node.name != layer_name(node.layer) else f"layer {node.layer + 1}"
    shape = known[given.name]
    if layer.window is not None:
        windows = _windows(name, given.name, layer.window, known)
        require(
            windows[2] == layer.channels,
            f"{name}: inputs {row(layer.inputs[1:])} behind the kernel's multiply to "
            f"{layer.channels}, {given.name!r} has {amount(windows[2], 'channel')}",
        )
        return (*windows[:2], layer.output_size)
    require(
        prod(shape) == layer.input_size,
        f"{name}: inputs {row(layer.inputs)} multiply to {layer.input_size}, "
        f"{_described(given, shape)}",
    )
    if layer.leading:
        channels = prod(layer.inputs[: layer.leading])
        require(
            len(shape) == 3 and shape[2] == channels,
            f"{name}: the leading {layer.leading} of inputs {row(layer.inputs)} multiply to "
            f"{channels}: they are the channels of an image, {given.name!r} is {row(shape)}",
        )
    return (layer.output_size,)


def _described(node: Node, shape: Shape) -> str:
    if node.name == IMAGE:
        return f"the padded image {row(shape[:2])} has {amount(prod(shape), 'pixel')}"
    if isinstance(node, Apply) and len(shape) == 1 and node.name == layer_name(node.layer):
        return f"layer {node.layer + 1} has {amount(prod(shape), 'output')}"
    return f"{node.name!r} has {amount(prod(shape), 'value')} {row(shape)}"


def _added(node: Sum, known: Mapping[str, Shape]) -> Shape:
    require(len(node.sources) == 2, f"{node.name}: two values are added, not {len(node.sources)}")
    first, second = (known[name] for name in node.sources)
    require(
        prod(first) == prod(second),
        f"{node.name}: {node.sources[0]!r} has {amount(prod(first), 'value')} {row(first)}, "
        f"{node.sources[1]!r} {prod(second)} {row(second)}: only values of one size add; put a "
        "layer between",
    )
    return max(first, second, key=len)


def _reduced(over: Sequence[str], shape: Shape) -> Shape:
    """Return the shape of one value for each group over some axes."""
    if "features" in over or len(shape) < 3:
        return (1,)
    names = ("rows", "columns", "channels")
    sizes = zip(names, shape, strict=True)
    return tuple(1 if name in over else size for name, size in sizes)


def _windows(name: str, given: str, window: Window, known: Mapping[str, Shape]) -> Shape:
    shape = known[given]
    require(
        len(shape) == 3,
        f"{name}: a window is of an image, {given!r} is {amount(prod(shape), 'output')} of a layer "
        "without one; read an input, a convolution or a pooling",
    )
    rows, columns = window.over(shape[0], shape[1])
    require(
        rows > 0 and columns > 0,
        f"{name}: a window of {row(window.kernel)} is larger than {given!r} of {row(shape[:2])}, "
        "padding included",
    )
    return rows, columns, shape[2]

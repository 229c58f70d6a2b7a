"""Choice of the nodes of a torch.fx graph that become one program, as many as possible."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import cast

import torch
from torch import fx

from trainwright.network import Attention, Dropout, Map, Pool, Sum, Window
from trainwright.network.network import holds_padding
from trainwright.network.nodes import IMAGE, layer_name
from trainwright.nn import TTConv2d, TTLayerNorm, TTLinear
from trainwright.offload.stretch import (
    ProgramLayer,
    Stretch,
    StretchEnd,
    Use,
    Value,
    applied,
    window_of,
)
from trainwright.offload.trace import (
    attention_of,
    dropout_of,
    function_at,
    is_flattening,
    is_relu,
    is_sum,
    layer_of,
    mask_of,
    operands_of,
    operation_at,
    pool_of,
    sole_user,
)


@dataclass(frozen=True)
class Found:
    """Stretch with its nodes in the order of the graph; ``ends`` are the nodes of its outputs."""

    stretch: Stretch
    source: fx.Node
    nodes: tuple[fx.Node, ...]
    ends: tuple[fx.Node, ...]


@dataclass(frozen=True)
class _Kind:
    """Shape of a value as far as a trace knows it; values of equal kinds can be added."""

    channels: int = 0
    """Channels of an image (n, C, H, W); 0 for rows of features."""
    windows: tuple[tuple[int, int], ...] = ()
    """Windows that shrank the image: (kernel - 2 padding, stride) of each axis."""
    flat: bool = False
    """Whether the image is flattened."""
    size: int = 0
    """Number of features."""
    whole: int = 0
    """Number of features with padding."""

    def has(self, over: tuple[str, ...]) -> bool:
        """Return whether the value has the axes ``over`` of a function, without padding in them."""
        axes = {"rows", "columns", "channels"} if self.channels and not self.flat else set[str]()
        return not over or (self.size == self.whole and set(over) <= {"features", *axes})

    def behind(self, window: Window, channels: int) -> "_Kind":
        """Return the kind of the image that a convolution or pool makes of this image."""
        sides = zip(window.kernel, window.padding, window.stride, strict=True)
        steps = tuple((kernel - 2 * padding, stride) for kernel, padding, stride in sides)
        own = () if steps == ((1, 1), (1, 1)) else steps
        return _Kind(channels, (*self.windows, *own))


def regions(
    graph: fx.Graph, module: torch.nn.Module, *, functions: bool = False
) -> Iterator[Found]:
    """Yield the longest stretches of a graph, which together have every layer.

    ``functions``: whether the accelerator has a vector engine, which computes functions.
    """
    taken: set[fx.Node] = set()
    for node in graph.nodes:
        if node in taken or layer_of(node, module) is None:
            continue
        region = _Region(graph, node, module, taken, functions=functions).found()
        taken |= set(region.nodes)
        yield region


class _Region:
    """Nodes that fit a program that begins with the layer at ``start``, and their kinds."""

    def __init__(
        self,
        graph: fx.Graph,
        start: fx.Node,
        module: torch.nn.Module,
        taken: set[fx.Node],
        *,
        functions: bool,
    ) -> None:
        first = layer_of(start, module)
        assert first is not None
        self._module, self._numbers, self._functions = module, first.numbers, functions
        self._training = first.training
        self._source = cast(fx.Node, start.args[0])
        if isinstance(first, TTConv2d):
            read = _Kind(first.in_channels)
        else:
            read = _Kind(size=first.columns, whole=first.layer.input_size)
        self._kinds = {self._source: read}
        self._made = set[fx.Node]()
        """Nodes that depend on a layer of the region."""
        for node in graph.nodes:
            if node is self._source or node in taken or not set(operands_of(node)) & set(
                self._kinds
            ):  # fmt: skip
                continue
            kind = self._kind(node)
            if kind is not None:
                self._kinds[node] = kind
                if layer_of(node, module) is not None or self._made & set(operands_of(node)):
                    self._made.add(node)

    def _kind(self, node: fx.Node) -> _Kind | None:
        """Return the kind of a node's value; None if the program cannot compute the node."""
        below = [self._kinds.get(source) for source in operands_of(node)]
        if None in below:
            return None
        kinds = cast(list[_Kind], below)
        layer = layer_of(node, self._module)
        if layer is not None:
            return self._applied(layer, node, kinds[0])
        if is_relu(node, self._module):
            given = node.all_input_nodes[0]
            allowed = layer_of(given, self._module) is not None or is_sum(given, self._module)
            inside = given is not self._source and sole_user(given) is node
            return kinds[0] if allowed and inside else None
        if function := function_at(node, self._module):
            inside = self._functions and node.all_input_nodes[0] is not self._source
            # torch's functions work over the last axis: in an image the columns, not the channels.
            image = kinds[0].channels and not kinds[0].flat and bool(function.over)
            of_torch = "torch" in (operation_at(node, self._module) or ())
            fits = kinds[0].has(function.over) and not function.reduces and not (image and of_torch)
            return kinds[0] if inside and fits else None
        if dropout := dropout_of(node, self._module):
            # In a program either all dropouts are active (training mode) or none.
            inside = node.all_input_nodes[0] is not self._source
            fits = self._functions and dropout[1] == self._training
            return kinds[0] if inside and (fits or not dropout[0]) else None
        if attention_of(node, self._module):
            padded = any(kind.size != kind.whole or kind.channels for kind in kinds)
            alike = len(set(kinds)) == 1 and self._source not in node.all_input_nodes
            # The program begins once the masks are known: no mask may need a value of the program.
            given = self._kinds.keys().isdisjoint(_ancestors(mask_of(node)) - {self._source})
            fits = alike and given and not padded
            return kinds[0] if self._functions and fits else None
        if is_sum(node, self._module):
            padded = any(kind.size != kind.whole or kind.flat for kind in kinds)
            return None if padded or kinds[0] != kinds[1] else kinds[0]
        if not kinds[0].channels or kinds[0].flat:
            return None
        if is_flattening(node, self._module):
            return _Kind(kinds[0].channels, kinds[0].windows, flat=True)
        pool = pool_of(node, self._module)
        if pool is None:
            return None
        window, function = pool
        padded = holds_padding(self._numbers.widths, window)
        fits = not function or (self._functions and padded)
        return kinds[0].behind(window, kinds[0].channels) if fits else None

    def _applied(self, layer: ProgramLayer, node: fx.Node, given: _Kind) -> _Kind | None:
        if layer.numbers != self._numbers:
            return None
        if isinstance(layer, TTLayerNorm) and given.flat:
            return None  # torch has channels first, the accelerator last
        if isinstance(layer, TTConv2d):
            fits = given.channels == layer.in_channels and not given.flat
            return given.behind(window_of(layer), layer.out_channels) if fits else None
        size, whole = layer.columns, layer.layer.input_size
        if given.flat:
            fits = size == whole and _leading(layer, given.channels) is not None
        else:  # the padding of a layer's outputs does not hold zeros
            inner = given.size == given.whole or node.args[0] is self._source
            fits = not given.channels and (given.size, given.whole) == (size, whole) and inner
        return _Kind(size=layer.rows, whole=layer.layer.output_size) if fits else None

    def found(self) -> Found:
        """Return the largest part in which no node reads a value that leaves the part."""
        inside = set(self._kinds) - {self._source}
        while beyond := self._beyond(inside):
            inside -= beyond
        nodes = tuple(node for node in self._kinds if node in inside)
        ends = tuple(node for node in nodes if not inside & set(node.users))
        return Found(self._stretch(nodes, ends), self._source, nodes, ends)

    def _beyond(self, inside: set[fx.Node]) -> set[fx.Node]:
        """Return nodes to omit, with all nodes that depend on them; empty if there are none.

        A value that is read outside must be an output of the program: made by a layer, no ReLU or
        dropout, not flattened (torch has channels first), and read by no node inside.
        """
        for node in self._kinds:
            if node not in inside or (node.users and inside.issuperset(node.users)):
                continue
            inner_only = is_relu, dropout_of
            can_end = node in self._made and not self._kinds[node].flat
            can_end = can_end and not any(test(node, self._module) for test in inner_only)
            if out := _following(list(node.users) if can_end else [node], inside):
                return out
        # torch needs an output at once, and the program cannot begin before all masks are known.
        ended = False
        for node in filter(inside.__contains__, self._kinds):
            if ended and mask_of(node) is not None:
                return _following([node], inside)
            ended = ended or inside.isdisjoint(node.users)
        return set()

    def _stretch(self, nodes: tuple[fx.Node, ...], ends: tuple[fx.Node, ...]) -> Stretch:
        names: dict[fx.Node, str] = {self._source: IMAGE}
        uses: dict[tuple[int, Use], int] = {}
        wiring: list[Value] = []
        owners: dict[int, str] = {}
        for node in nodes:
            sources = tuple(names[source] for source in operands_of(node))
            after = sole_user(node)
            relu = node not in ends and after is not None and is_relu(after, self._module)
            layer, pool = layer_of(node, self._module), pool_of(node, self._module)
            name = f"n{len(wiring) + 1}"
            if layer is not None:
                given = self._kinds[node.all_input_nodes[0]]
                flat = given.flat and isinstance(layer, TTLinear)
                leading = (_leading(layer, given.channels) or 0) if flat else 0
                owner = owners.setdefault(id(layer), str(node.target))
                key = id(layer), Use(owner, relu, leading)
                if key not in uses:
                    name = layer_name(len(uses))
                wiring += applied(name, sources, layer, uses.setdefault(key, len(uses)))
            elif function := function_at(node, self._module):
                wiring.append(Map(name, sources, function))
            elif attention := attention_of(node, self._module):
                wiring.append(Attention(name, sources, *attention))
            elif is_sum(node, self._module):
                wiring.append(Sum(name, sources, relu))
            elif pool is not None:
                wiring.append(Pool(name, sources, *pool))
            elif (dropout := dropout_of(node, self._module)) and dropout[0]:
                wiring.append(Dropout(name, sources, dropout[0]))
            else:  # a ReLU, a flattening or a dropout of nothing has the name of its source
                name = sources[0]
            names[node] = name
        kinds = ((names[end], self._kinds[end]) for end in ends)
        return Stretch(
            tuple(use for _, use in uses), tuple(wiring), self._kinds[self._source].channels,
            tuple(StretchEnd(name, kind.channels, kind.size) for name, kind in kinds),
        )  # fmt: skip


def _following(left: list[fx.Node], inside: set[fx.Node]) -> set[fx.Node]:
    """Return the nodes of ``left`` that are ``inside``, and all nodes inside that need them."""
    reached: set[fx.Node] = set()
    while left:
        node = left.pop()
        if node in inside and node not in reached:
            reached.add(node)
            left += node.users
    return reached


def _ancestors(node: fx.Node | None) -> set[fx.Node]:
    """Return a node and all nodes that it is made of."""
    reached: set[fx.Node] = set()
    left = [] if node is None else [node]
    while left:
        reached.add(node := left.pop())
        left += set(node.all_input_nodes) - reached
    return reached


def _leading(layer: ProgramLayer, channels: int) -> int | None:
    """Return how many first input sizes of a layer multiply to the channels; None if none do."""
    if channels == 1:
        return 0
    counts = range(1, len(layer.inputs))
    return next((n for n in counts if prod(layer.inputs[:n]) == channels), None)

"""Stretches: layers of a module, and what is between them, that one program computes."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any

from trainwright.network import (
    Apply,
    Attention,
    Dropout,
    Input,
    Layer,
    Map,
    Network,
    NetworkError,
    Norm,
    Pool,
    Sum,
    UserNames,
    Window,
)
from trainwright.network.nodes import IMAGE, layer_name, shapes
from trainwright.nn import TTConv2d, TTLayerNorm, TTLinear

Value = Apply | Sum | Pool | Map | Norm | Dropout
ProgramLayer = TTLinear | TTConv2d | TTLayerNorm
"""Layer of a module that a program can apply."""

CLASSES = 2
"""Classes of every network of a program; PyTorch has the loss, so that nothing reads them."""
MOST_NAME = 40
"""Characters above which the name of a result omits the name of an operand that is no layer."""


@dataclass(frozen=True)
class Use:
    """A layer, with what is computed in its place."""

    name: str
    """Name of the layer in the module."""
    relu: bool = False
    leading: int = 0
    """Number of first inputs that are the channels of an image, as in a network's layer."""


@dataclass(frozen=True)
class StretchEnd:
    """A value that leaves a program, and that nothing in it reads."""

    value: str
    channels: int
    """0 where it is no image."""
    features: int
    """Features of the value without padding; 0 for an image."""


@dataclass(frozen=True)
class Stretch:
    """Values made of each other, from one input to one or several outputs, as of a network.

    ``channels`` are those of the input; 0 where it is no image.
    """

    uses: tuple[Use, ...]
    wiring: tuple[Value, ...]
    channels: int
    ends: tuple[StretchEnd, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The layers, by their names."""
        return tuple(use.name for use in self.uses)

    @property
    def first(self) -> int:
        """The layer that reads the input, by its place."""
        given = {IMAGE}
        given |= {
            node.name for node in self.wiring if isinstance(node, Norm) and node.sources == (IMAGE,)
        }
        return next(
            node.layer
            for node in self.wiring
            if isinstance(node, Apply) and given.issuperset(node.sources)
        )

    @cached_property
    def parts(self) -> dict[str, str]:
        """Layers and operations of the module, by the names that their values have in a program."""
        layers = {layer_name(n): name for n, name in enumerate(self.names)} | {IMAGE: "the input"}
        parts = dict(layers)

        def short(source: str) -> str:
            # Names of names of names fill a line: the nearest layers suffice to find the place.
            name = parts.get(source, "")
            is_short = source in layers or len(name) <= MOST_NAME
            return name if name and is_short else "another value"

        for node in self.wiring:
            operands = ", ".join(map(short, node.sources))
            if isinstance(node, Apply):
                parts.setdefault(node.name, f"{self.names[node.layer]} applied to {operands}")
            else:
                parts.setdefault(node.name, f"{_operation(node)} of {operands}")
        return parts

    @property
    def user_names(self) -> UserNames:
        """Names in the module of all tensors of a program."""
        return UserNames(self.parts | {IMAGE: "input"})

    @property
    def masked(self) -> list[Attention]:
        """Attentions that each call gives a mask, in order."""
        return [node for node in self.wiring if isinstance(node, Attention) and node.masked]

    @property
    def attends(self) -> bool:
        """Whether values depend on all tokens of a sequence."""
        return any(isinstance(node, Attention) for node in self.wiring)

    def reaching(self, ends: Iterable[int]) -> frozenset[int]:
        """Return the places of the layers that lead to some of the ``ends``."""
        needed = {self.ends[n].value for n in ends}
        layers: set[int] = set()
        for node in reversed(self.wiring):
            if node.name in needed:
                needed.update(node.sources)
                layers |= {node.layer} if isinstance(node, Apply) else set()
        return frozenset(layers)

    @property
    def _is_straight(self) -> bool:
        line = (IMAGE, *(node.name for node in self.wiring))
        single = len(self.wiring) == len(self.uses) and len(self.ends) == 1
        return single and all(
            isinstance(node, Apply) and (node.layer, node.sources) == (n, (line[n],))
            for n, node in enumerate(self.wiring)
        )

    def network(
        self,
        layers: Sequence[ProgramLayer],
        image: tuple[int, int] | None,
        tokens: int = 1,
    ) -> Network:
        """Return the network of ``layers`` at their present ranks.

        ``image`` are rows and columns of an input image, ``tokens`` those of a sequence. Raises
        ``NetworkError`` for an impossible one.
        """
        network_layers = tuple(map(network_layer, layers, self.uses))
        numbers, reading = layers[0].numbers, network_layers[self.first]
        padded = (1, reading.input_size)
        if image is not None:
            padded = (image[0], image[1] * self.channels)
        given = Input(IMAGE, (0, padded[0]), (0, padded[1]), max(1, self.channels))
        straight = image is None and self._is_straight
        sizes = shapes((given, *self.wiring), network_layers)
        outputs = min(prod(sizes[end.value]) for end in self.ends)
        return Network(
            "the model", network_layers, min(CLASSES, outputs), padded, padded,
            widths=numbers.widths, coded=numbers.coded, underflow=numbers.underflow,
            wiring=() if straight else (given, *self.wiring),
            results=tuple(end.value for end in self.ends) if len(self.ends) > 1 else (),
            tokens=tokens,
        )  # fmt: skip


def _operation(node: Value) -> str:
    if isinstance(node, Map):
        return node.function.definition.name
    if isinstance(node, Pool):
        return "average pool" if node.function is None else "max pool"
    return type(node).__name__.lower()


def network_layer(layer: ProgramLayer, use: Use) -> Layer:
    """Return the network's description of a layer."""
    return replace(
        layer.layer,
        relu=use.relu,
        bias=layer.bias is not None,
        window=window_of(layer) if isinstance(layer, TTConv2d) else None,
        leading=use.leading,
    )


def window_of(layer: TTConv2d) -> Window:
    """Return the windows of a convolution; ``NetworkError`` for windows the accelerator lacks."""
    if isinstance(layer.padding, str) or layer.padding_mode != "zeros":
        raise NetworkError("the accelerator pads both ends of an axis alike, with zeros")
    return Window(layer.kernel_size, layer.stride, layer.padding)


def options_of(layer: ProgramLayer) -> tuple[object, ...]:
    """Return what users may change in a compiled layer next to ranks and numbers."""
    if not isinstance(layer, TTConv2d):
        return (layer.bias is None,)
    return layer.bias is None, layer.kernel_size, layer.stride, layer.padding


def pair_of(value: Any) -> tuple[int, int]:
    """Return a number or a sequence of one or two numbers as a pair, as torch reads them."""
    part = (value, value) if isinstance(value, int) else tuple(value)
    return (part[0], part[0]) if len(part) == 1 else part


def applied(
    name: str, sources: tuple[str, ...], layer: ProgramLayer, place: int
) -> tuple[Value, ...]:
    """Return the values of a network that a layer makes, the last one called ``name``.

    ``place`` is the layer's among the layers of the program.
    """
    if not isinstance(layer, TTLayerNorm):
        return (Apply(name, sources, place),)
    normal = f"{name}.normal"
    return Norm(normal, sources), Apply(name, (normal,), place)

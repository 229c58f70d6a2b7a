"""Networks: layers, the graph that they are applied in, and number formats."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from math import prod
from typing import Any, TypeVar

from trainwright.formats import Format
from trainwright.functions import Function, definition_of, function_of
from trainwright.network.errors import require, row
from trainwright.network.layer import MOST_SIZE, Layer
from trainwright.network.nodes import (
    Apply,
    Attention,
    Dropout,
    Input,
    Map,
    Node,
    Norm,
    Pool,
    Positions,
    Shape,
    Sum,
    TokenPool,
    arranged,
    of_sequences,
    shapes,
    straight_line,
)
from trainwright.network.numbers import FIXED, FLOAT32, Formatted, Widths
from trainwright.network.tables import items
from trainwright.network.window import Window
from trainwright.support.text import amount, shown

L = TypeVar("L", bound=Any)

MOST_LAYERS = 64
MOST_DROPPED = 0.99
"""Greatest probability of a dropout: kept values are then multiplied by 100."""
LEAST_WIDTH = 4
"""Bits of a tensor that is no factor, at least."""
MOST_WORD = 16
"""Bits of the widest word."""


def holds_padding(widths: Widths, window: Window) -> bool:
    """Return whether a kernel may read windows: a bit above activations tells padding apart."""
    return window.padding == (0, 0) or widths.is_float or widths.activation < MOST_WORD


def factor_name(layer: int, index: int) -> str:
    """Return the name of a factor; layer and factor are counted from 0."""
    return f"l{layer + 1}.G{index + 1}"


@dataclass(frozen=True)
class Network(Formatted):
    """Layers in a graph, with the input image, classes and number formats.

    The layers hold the parameters; ``nodes`` say to which value each layer is applied. The ``main``
    head classifies, others help while training: the loss is a sum over all heads.
    """

    name: str
    layers: tuple[Layer, ...]
    classes: int
    """Outputs of each head that count; 1: a regression, whose only output is the number. A head of
    sequences next to heads of tokens may have fewer."""
    image: tuple[int, int]
    """Rows and columns of an input image as the data set has it."""
    padded: tuple[int, int]
    """Rows and columns after zero padding at the bottom and the right."""
    widths: Widths = FIXED
    dataset: str = ""
    """Data set of a training run that names none."""
    coded: tuple[tuple[str, Format], ...] = ()
    """Formats of classes of tensors (``trainwright.formats.CLASSES``); all other classes are fixed
    point of ``widths`` bits."""
    underflow: str = "gradients"
    """Which coded tensors may become 0 where they underflow, one of ``UNDERFLOW_RULES``."""
    singles: tuple[tuple[str, Format], ...] = ()
    """Formats of single tensors, by name; of ``nameable`` ones."""
    wiring: tuple[Node, ...] = ()
    """Values, each with its operands; empty if each layer reads the previous one."""
    results: tuple[str, ...] = ()
    """Values that are logits; empty if only the last value is."""
    tokens: int = 1
    """Tokens of a sample; a sample of more than 1 is a sequence. Each token reads an image, and has
    values of its own, which only attention mixes."""
    padding: bool = False
    """Whether tokens of zeros are padding, which attention and pools over tokens omit."""

    def __post_init__(self) -> None:
        count = amount(len(self.layers), "layer") if self.layers else "no layers"
        require(
            1 <= len(self.layers) <= MOST_LAYERS,
            f"network {self.name!r} has {count}, there can be from 1 to {MOST_LAYERS}",
        )
        require(
            all(p >= i >= 1 for p, i in zip(self.padded, self.image, strict=True)),
            f"padded image {row(self.padded)} is smaller than the image {row(self.image)}",
        )
        require(
            max(self.padded) <= MOST_SIZE,
            f"an image of {row(self.padded)} pixels is over {MOST_SIZE} on a side",
        )
        require(
            1 <= self.tokens <= MOST_SIZE,
            f"tokens of a sequence are from 1 to {MOST_SIZE}, not {shown(self.tokens)}",
        )
        for what, kind, given in (
            ("attention is over", Attention, False),
            ("positions are of", Positions, False),
            ("padding and over_tokens are of", TokenPool, self.padding),
        ):
            require(
                self.tokens > 1 or not (given or any(isinstance(n, kind) for n in self.nodes)),
                f"{what} the tokens of a sequence: give the network tokens = 2 or more",
            )
        for name in self.heads:
            self._check_head(name)
        _ = self.functions
        self.check_formats()
        for name, fmt in self.singles:
            require(name in self.nameable, f"formats: no tensor {name!r}")
            require(
                self.nameable[name] == "factor" or fmt.width >= LEAST_WIDTH,
                f"formats: {name} must have {LEAST_WIDTH} bits at least, not {fmt}",
            )

    def _check_head(self, name: str) -> None:
        node = next(node for node in self.nodes if node.name == name)
        relu = (isinstance(node, Sum) and node.relu) or (
            isinstance(node, Apply) and self.layers[node.layer].relu
        )
        what = "the last layer" if self.is_straight else repr(name)
        require(not relu, f"{what} gives the logits and has no relu")
        size = prod(self.shapes[name])
        if self.is_joint and name in self.of_sequences and self.classes > 1:
            require(size > 1, f"{name!r} of sequences has 1 output: give it one for each class")
            return
        require(
            1 <= self.classes <= size,
            f"classes must be from 1 (a regression) to the {amount(size, 'output')} of {what}, "
            f"not {shown(self.classes)}",
        )

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """The values, in an order in which they can be computed. Raises ``NetworkError``."""
        if not self.wiring:
            return straight_line(self.layers, self.padded)
        return arranged(self.wiring, self.results or (self.wiring[-1].name,))

    @cached_property
    def functions(self) -> tuple[Function, ...]:
        """The functions that values are made by, on the vector engine."""
        functions: dict[Function, None] = {}
        for node in self.nodes:
            applied = isinstance(node, Map | Norm | Dropout)
            if applied or (isinstance(node, Pool) and node.function):
                functions[self.function_at(node)] = None
        return tuple(functions)

    @property
    def needs_vector_engine(self) -> bool:
        """Whether a part of the network is computed by the vector engine alone."""
        return bool(self.functions) or any(layer.diagonal for layer in self.layers)

    def function_at(self, node: Map | Norm | Pool | Dropout) -> Function:
        """Return the function of a node; one over axes for the size of their groups.

        Raises ``NetworkError`` for an axis that the value does not have.
        """
        if isinstance(node, Pool):
            assert node.function
            require(
                holds_padding(self.widths, node.window),
                f"{node.name}: padding of {node.function.text} takes a bit more than activations "
                f"have: give them {MOST_WORD - 1} bits at most, not {self.widths.activation}, or "
                "omit padding",
            )
            return node.function.sized(node.window.size)
        if isinstance(node, Map):
            over = node.function.over
            require(
                not (self.padding and "tokens" in over),
                f"{node.name}: {node.function.text} is over tokens and would count padding: omit "
                "padding, or the function",
            )
            return node.function.sized(self._group(node, over)) if over else node.function
        if isinstance(node, Dropout):
            require(
                0 <= node.probability <= MOST_DROPPED,
                f"{node.name}: dropout is a probability from 0 to {MOST_DROPPED}, not "
                f"{shown(node.probability)}",
            )
            return definition_of("dropout").make(float(node.probability))
        size = prod(self.shapes[node.name])
        if isinstance(node, Attention):
            scale = (size // node.heads) ** -0.5
            masked = self.padding or node.causal or node.masked
            name = "masked_softmax" if masked else "softmax"
            return definition_of(name).make(scale).sized(self.tokens)
        return function_of("layer_norm").sized(size)

    def writes_out(self, node: Pool) -> bool:
        """Return whether a pool writes its windows out: a function reads them, and no view does."""
        below = self.shapes[node.sources[0]]
        return node.function is not None and not node.window.divides(*below[:2])

    def _group(self, node: Map, over: Sequence[str]) -> int:
        """Return the size of a group over some axes of the value of a node."""
        shape = self.shapes[node.sources[0]]
        names = ("rows", "columns", "channels") if len(shape) == 3 else ("features",)
        sizes: dict[str, int] = dict(zip(names, shape, strict=True))
        sizes |= {"tokens": self.tokens} if self.tokens > 1 else {}
        if "features" in over:
            sizes["features"] = prod(shape)
            over = [axis for axis in over if axis in ("features", "tokens")]
        for axis in over:
            require(
                axis in sizes,
                f"{node.name}: {node.function.definition.place}: {node.function.text} is over the "
                f"axis {axis!r}; {node.sources[0]!r} has {', '.join(sizes)}",
            )
        return prod(sizes[axis] for axis in over)

    def gain(self, layer: int) -> float:
        """Return the factor of the variance of a layer's initial weights that keeps sizes.

        The factor is 2 before a ReLU, and 1 if no function follows; ``layer`` is counted from 0.
        """
        if self.layers[layer].relu:
            return 2.0
        applied = {n.name for n in self.nodes if isinstance(n, Apply) and n.layer == layer}
        readers = (n for n in self.nodes if isinstance(n, Map) and n.sources[0] in applied)
        return max((node.function.gain for node in readers), default=1.0)

    @cached_property
    def of_sequences(self) -> frozenset[str]:
        """The values that a whole sequence has, and not each token. Raises ``NetworkError``."""
        return of_sequences(self.nodes)

    def rows_of(self, name: str) -> int:
        """Return how many rows of a value a sample has: one, or one for each token."""
        return 1 if name in self.of_sequences else self.tokens

    @property
    def main(self) -> str:
        """The head that classifies: the first one, or the first one of tokens where any is."""
        return max(self.heads, key=self.rows_of)

    @property
    def is_joint(self) -> bool:
        """Whether some heads are of tokens and others of whole sequences."""
        return len({self.rows_of(name) for name in self.heads}) > 1

    @property
    def labels(self) -> int:
        """Labels of a sample: one, or one for each token, or the sequence's and those of tokens."""
        return sum({self.rows_of(name) for name in self.heads})

    def labels_of(self, name: str, labels: L) -> L:
        """Return the labels of a head, (samples,) or (samples, tokens), of all labels of samples.

        Where the network ``is_joint``, the first label of a sample is that of the sequence.
        """
        if not self.is_joint:
            return labels
        return labels[:, 0] if name in self.of_sequences else labels[:, 1:]

    def classes_of(self, name: str) -> int:
        """Return how many outputs of a head count."""
        return min(self.classes, prod(self.shapes[name]))

    @property
    def sequence_head(self) -> str:
        """The first head of whole sequences, where there is one."""
        return min(self.heads, key=self.rows_of)

    @cached_property
    def shapes(self) -> dict[str, Shape]:
        """The shape of every value. Raises ``NetworkError`` where sizes do not fit."""
        return shapes(self.nodes, self.layers)

    @property
    def heads(self) -> tuple[str, ...]:
        """The values that give logits."""
        last = self.wiring[-1] if self.wiring else self.nodes[-1]
        return self.results or (last.name,)

    @property
    def is_straight(self) -> bool:
        """Whether the network is a stack of TTM layers without windows, one reading the other."""
        return self.is_line and not self.functions

    @property
    def is_line(self) -> bool:
        """Whether the network is a stack of TTM layers and functions, one reading the other."""
        image, *behind = self.nodes
        line = (image.name, *(node.name for node in behind))
        layers = [node.layer for node in behind if isinstance(node, Apply)]
        return (
            self.tokens == 1
            and not any(layer.window or layer.leading or layer.diagonal for layer in self.layers)
            and isinstance(image, Input)
            and (image.rows[1], image.columns[1]) == self.padded
            and all(isinstance(node, Apply | Map) for node in behind)
            and all(node.sources == (line[n],) for n, node in enumerate(behind))
            and layers == list(range(len(self.layers)))
            and self.heads == line[-1:]
        )

    @cached_property
    def prefixes(self) -> dict[str, str]:
        """The first part of the names of each value's tensors.

        ``l1`` .. where a layer is first applied, else the value's own name.
        """
        prefixes: dict[str, str] = {}
        done: set[int] = set()
        for node in self.nodes:
            prefixes[node.name] = node.name
            if isinstance(node, Apply) and node.layer not in done:
                done.add(node.layer)
                prefixes[node.name] = f"l{node.layer + 1}"
        return prefixes

    @cached_property
    def nameable(self) -> dict[str, str]:
        """The factors ``ln.Gk``, and ``NAME.a`` of values that are neither input nor logits."""
        factors = {
            factor_name(n, k): "factor"
            for n, layer in enumerate(self.layers)
            for k in range(layer.order)
        }
        values = (n.name for n in self.nodes if n.sources and n.name not in self.heads)
        return factors | {f"{self.prefixes[name]}.a": "activation" for name in values}

    def tensor_format(self, name: str, kind: str) -> Format:
        """Return the format of a tensor: its own, or else the format of its class."""
        return dict(self.singles).get(name) or self.format(kind)

    def factor_format(self, layer: int, index: int) -> Format:
        """Return the format of a factor; layer and factor are counted from 0."""
        return self.tensor_format(factor_name(layer, index), "factor")

    def factor_formats(self, layer: int) -> tuple[Format, ...]:
        """Return the formats of a layer's factors; layers are counted from 0."""
        return tuple(self.factor_format(layer, n) for n in range(self.layers[layer].order))

    @property
    def factor_width(self) -> int:
        """Bits of the widest factor."""
        return max(max(self._factor_bits(layer)) for layer in range(len(self.layers)))

    def _factor_bits(self, layer: int) -> list[int]:
        """Return the bits of an element of each factor of a layer."""
        if self.widths.is_float:
            return [self.widths.factor] * self.layers[layer].order
        return [fmt.width for fmt in self.factor_formats(layer)]

    @property
    def is_regression(self) -> bool:
        """Whether the network predicts a number, and no class."""
        return self.classes == 1

    @property
    def input_size(self) -> int:
        """Pixels of the padded image, of all tokens of a sequence."""
        return prod(self.padded) * self.tokens

    @property
    def head_sizes(self) -> tuple[int, ...]:
        """Outputs of each head: of all tokens if the head has outputs for each."""
        return tuple(prod(self.shapes[name]) * self.rows_of(name) for name in self.heads)

    @property
    def output_size(self) -> int:
        """Outputs of all heads."""
        return sum(self.head_sizes)

    @property
    def parameters(self) -> int:
        """Elements of all factors and biases."""
        return sum(layer.factor_parameters + layer.bias_parameters for layer in self.layers)

    @property
    def model_bits(self) -> int:
        """Bits of the model as the paper counts them: factors and biases at their widths."""
        return sum(
            sum(prod(s) * bits for s, bits in zip(layer.factor_shapes, widths, strict=True))
            + layer.bias_parameters * self.widths.bias
            for layer, widths in zip(
                self.layers, map(self._factor_bits, range(len(self.layers))), strict=True
            )
        )

    @property
    def used_model_bits(self) -> int:
        """``model_bits`` without the last layer's rows beyond the classes, which nothing reads."""
        head = next(node for node in self.nodes if node.name == self.main)
        if not isinstance(head, Apply):
            return self.model_bits
        last = self.layers[head.layer]
        digits = list(product(*map(range, last.outputs)))[: self.classes]
        kept = [len(set(column)) for column in zip(*digits, strict=True)]
        factors = sum(
            (outputs - own) * left * inputs * right * bits
            for (left, outputs, inputs, right), own, bits in zip(
                last.factor_shapes, kept, self._factor_bits(head.layer), strict=True
            )
        )
        biases = last.output_size - self.classes if last.bias else 0
        return self.model_bits - factors - biases * self.widths.bias

    @property
    def used_reduction(self) -> float:
        """``reduction`` by ``used_model_bits``."""
        return self.dense_bits / self.used_model_bits

    @property
    def dense_bits(self) -> int:
        """Bits of the same network dense, in float32."""
        return 32 * sum(layer.matrix_parameters + layer.bias_parameters for layer in self.layers)

    @property
    def reduction(self) -> float:
        """Memory reduction of the model against the dense float32 network (the paper's Table 1)."""
        return self.dense_bits / self.model_bits

    @property
    def ranks(self) -> tuple[tuple[int, ...], ...]:
        """R_1..R_{d-1} of each layer."""
        return tuple(layer.ranks for layer in self.layers)

    def with_ranks(self, ranks: Sequence[Sequence[int]]) -> "Network":
        """Return the network with other ranks."""
        require(
            len(ranks) == len(self.layers),
            f"ranks for {amount(len(ranks), 'layer')}, network {self.name!r} has "
            f"{len(self.layers)}",
        )
        return replace(
            self,
            layers=tuple(
                replace(layer, ranks=tuple(r)) for layer, r in zip(self.layers, ranks, strict=True)
            ),
        )

    def in_float32(self) -> "Network":
        """Return the network in float32 numbers."""
        return replace(self, widths=FLOAT32, coded=(), singles=())

    def to_dict(self) -> dict[str, Any]:
        """Write the network as a plain dictionary, which ``network_from_dict`` reads back."""
        formats: dict[str, Any] = {name: str(fmt) for name, fmt in (*self.coded, *self.singles)}
        if self.underflow != "gradients":
            formats["underflow"] = self.underflow
        return {
            "name": self.name,
            "classes": self.classes,
            "image": list(self.image),
            "padded": list(self.padded),
            "dataset": self.dataset,
            **({"tokens": self.tokens} if self.tokens > 1 else {}),
            **({"padding": True} if self.padding else {}),
            "widths": dict(vars(self.widths)),
            **({"formats": formats} if formats else {}),
            **items(self),
        }

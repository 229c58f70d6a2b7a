"""Networks as data: tensor-train matrix (TTM) layers, their shapes, ranks and number formats."""

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from itertools import pairwise, product
from math import prod
from os.path import exists
from pathlib import Path
from typing import Any

from trainwright.formats import Posit
from trainwright.network.numbers import FIXED, FLOAT32, Formatted, NetworkError, Widths, require
from trainwright.support.text import shown

BUILT_IN = ("digits", "fashion")
_NAME = re.compile(r"\w([\w .+-]{0,62}[\w+-])?")
"""A name is part of paths: ``runs/NAME``."""
MOST_LAYERS = 64
MOST_FACTORS = 16
"""Of a layer."""
MOST_SIZE = 1 << 20
"""Outputs or inputs of a layer: ten times what the largest scratchpad could take."""
MOST_TEXT = 1 << 20
"""Bytes of a TOML file."""


def _row(sizes: Sequence[int]) -> str:
    return shown(list(sizes))


def rank_bounds(outputs: Sequence[int], inputs: Sequence[int]) -> tuple[int, ...]:
    """Greatest useful TT rank of each bond: the smaller side of the unfolding there."""
    sizes = [j * i for j, i in zip(outputs, inputs, strict=True)]
    return tuple(min(prod(sizes[:n]), prod(sizes[n:])) for n in range(1, len(sizes)))


@dataclass(frozen=True)
class Layer:
    """A TTM layer ``y = act(W x + b)``, W (J x I) as factors G_n (R_{n-1}, J_n, I_n, R_n).

    ``outputs`` are J_1..J_d, ``inputs`` I_1..I_d, ``ranks`` R_1..R_{d-1} (R_0 = R_d = 1).
    """

    outputs: tuple[int, ...]
    inputs: tuple[int, ...]
    ranks: tuple[int, ...]
    relu: bool = False
    bias: bool = True

    def __post_init__(self) -> None:
        order = len(self.outputs)
        require(order >= 2, f"a layer needs at least 2 factors, not outputs {_row(self.outputs)}")
        require(
            len(self.inputs) == order,
            f"outputs {_row(self.outputs)} and inputs {_row(self.inputs)} differ in length",
        )
        require(
            len(self.ranks) == order - 1,
            f"{order} factors have {order - 1} ranks, not {_row(self.ranks)}",
        )
        require(order <= MOST_FACTORS, f"a layer has at most {MOST_FACTORS} factors, not {order}")
        for size in (*self.outputs, *self.inputs, *self.ranks):
            require(
                isinstance(size, int) and 1 <= size <= MOST_SIZE,
                f"dimensions and ranks are from 1 to {MOST_SIZE}, not {shown(size)}",
            )
        for what, sizes in (("outputs", self.outputs), ("inputs", self.inputs)):
            require(
                prod(sizes) <= MOST_SIZE,
                f"{what} {_row(sizes)} multiply to {prod(sizes):,}, at most {MOST_SIZE:,} "
                "can be: make the layer smaller",
            )
        bounds = rank_bounds(self.outputs, self.inputs)
        for n, (rank, bound) in enumerate(zip(self.ranks, bounds, strict=True), 1):
            require(
                rank <= bound,
                f"rank R_{n} = {rank} is over its bound {bound} for outputs {_row(self.outputs)} "
                f"and inputs {_row(self.inputs)}",
            )

    @property
    def order(self) -> int:
        """Number of factors d."""
        return len(self.outputs)

    @property
    def output_size(self) -> int:
        """J."""
        return prod(self.outputs)

    @property
    def input_size(self) -> int:
        """I."""
        return prod(self.inputs)

    @property
    def bonds(self) -> tuple[int, ...]:
        """R_0 .. R_d."""
        return (1, *self.ranks, 1)

    @property
    def factor_shapes(self) -> tuple[tuple[int, int, int, int], ...]:
        """(R_{n-1}, J_n, I_n, R_n) of each factor."""
        return tuple(
            (left, j, i, right)
            for (left, right), j, i in zip(
                pairwise(self.bonds), self.outputs, self.inputs, strict=True
            )
        )

    @property
    def factor_parameters(self) -> int:
        """Elements of all factors."""
        return sum(prod(shape) for shape in self.factor_shapes)

    @property
    def bias_parameters(self) -> int:
        """Elements of the bias."""
        return self.output_size if self.bias else 0


@dataclass(frozen=True)
class Network(Formatted):
    """A stack of TTM layers with its input image, classes and number formats."""

    name: str
    layers: tuple[Layer, ...]
    classes: int
    image: tuple[int, int]
    """Rows and columns of an input image as the data set has it."""
    padded: tuple[int, int]
    """Rows and columns after zero padding at the bottom and the right."""
    widths: Widths = FIXED
    dataset: str = ""
    """Data set trained on where none is named."""
    posits: tuple[tuple[str, Posit], ...] = ()
    """Classes of tensors (``trainwright.formats.CLASSES``) that are posits, of ``widths`` bits."""
    underflow: str = "gradients"
    """Which posits may become 0 where they underflow, one of ``UNDERFLOW_RULES``."""

    def __post_init__(self) -> None:
        require(
            1 <= len(self.layers) <= MOST_LAYERS,
            f"network {self.name!r} has {len(self.layers) or 'no'} layers, "
            f"there can be from 1 to {MOST_LAYERS}",
        )
        first, last = self.layers[0], self.layers[-1]
        require(
            all(p >= i >= 1 for p, i in zip(self.padded, self.image, strict=True)),
            f"padded image {_row(self.padded)} is smaller than the image {_row(self.image)}",
        )
        require(
            max(self.padded) <= MOST_SIZE,
            f"an image of {_row(self.padded)} pixels is over {MOST_SIZE} on a side",
        )
        require(
            first.input_size == prod(self.padded),
            f"layer 1: inputs {_row(first.inputs)} multiply to {first.input_size}, the padded "
            f"image {_row(self.padded)} has {prod(self.padded)} pixels",
        )
        for n, (before, after) in enumerate(pairwise(self.layers), 2):
            require(
                before.output_size == after.input_size,
                f"layer {n}: inputs {_row(after.inputs)} multiply to {after.input_size}, layer "
                f"{n - 1} has {before.output_size} outputs",
            )
        require(not last.relu, "the last layer gives the logits and has no relu")
        require(
            2 <= self.classes <= last.output_size,
            f"classes must be from 2 to the {last.output_size} outputs of the last layer, "
            f"not {shown(self.classes)}",
        )
        self.check_formats()

    @property
    def parameters(self) -> int:
        """Elements of all factors and biases."""
        return sum(layer.factor_parameters + layer.bias_parameters for layer in self.layers)

    @property
    def model_bits(self) -> int:
        """Bits of the model as the paper counts them: factors and biases at their widths."""
        return sum(
            layer.factor_parameters * self.widths.factor + layer.bias_parameters * self.widths.bias
            for layer in self.layers
        )

    @property
    def used_model_bits(self) -> int:
        """``model_bits`` without what no class reads: rows of the last layer beyond the classes."""
        last = self.layers[-1]
        digits = list(product(*map(range, last.outputs)))[: self.classes]
        kept = [len(set(column)) for column in zip(*digits, strict=True)]
        factors = sum(
            (outputs - own) * left * inputs * right
            for (left, outputs, inputs, right), own in zip(last.factor_shapes, kept, strict=True)
        )
        biases = last.output_size - self.classes if last.bias else 0
        return self.model_bits - factors * self.widths.factor - biases * self.widths.bias

    @property
    def used_reduction(self) -> float:
        """``reduction`` by ``used_model_bits``."""
        return self.dense_bits / self.used_model_bits

    @property
    def dense_bits(self) -> int:
        """Bits of the same network dense, in float32."""
        return 32 * sum(
            layer.output_size * layer.input_size + layer.bias_parameters for layer in self.layers
        )

    @property
    def reduction(self) -> float:
        """Memory reduction of the model against the dense float32 network (the paper's Table 1)."""
        return self.dense_bits / self.model_bits

    @property
    def ranks(self) -> tuple[tuple[int, ...], ...]:
        """R_1..R_{d-1} of each layer."""
        return tuple(layer.ranks for layer in self.layers)

    def with_ranks(self, ranks: Sequence[Sequence[int]]) -> "Network":
        """The same network with other ranks."""
        require(
            len(ranks) == len(self.layers),
            f"ranks for {len(ranks)} layers, network {self.name!r} has {len(self.layers)}",
        )
        return replace(
            self,
            layers=tuple(
                replace(layer, ranks=tuple(r)) for layer, r in zip(self.layers, ranks, strict=True)
            ),
        )

    def in_float32(self) -> "Network":
        """The same network in float32 numbers."""
        return replace(self, widths=FLOAT32, posits=())

    def to_dict(self) -> dict[str, Any]:
        """A plain dictionary that ``network_from_dict`` reads back."""
        posits: dict[str, Any] = {name: str(fmt) for name, fmt in self.posits}
        if self.underflow != "gradients":
            posits["underflow"] = self.underflow
        return {
            "name": self.name,
            "classes": self.classes,
            "image": list(self.image),
            "padded": list(self.padded),
            "dataset": self.dataset,
            "widths": dict(vars(self.widths)),
            **({"formats": posits} if posits else {}),
            "layers": [
                {
                    "outputs": list(layer.outputs),
                    "inputs": list(layer.inputs),
                    "ranks": list(layer.ranks),
                    "relu": layer.relu,
                    "bias": layer.bias,
                }
                for layer in self.layers
            ],
        }


_KINDS = {
    int: "an integer",
    str: "a string",
    bool: "true or false",
    list: "a list",
    dict: "a table",
}


def _table(value: Any, where: str, known: Mapping[str, type], needed: Sequence[str]) -> dict:
    require(isinstance(value, Mapping), f"{where} must be a table, not {shown(value)}")
    for key, item in value.items():
        require(key in known, f"{where}: unknown key {shown(key)}; there are {', '.join(known)}")
        kind = known[key]
        right = isinstance(item, kind) and not (kind is int and isinstance(item, bool))
        require(right, f"{where}: {key} must be {_KINDS[kind]}, not {shown(item)}")
    for key in needed:
        require(key in value, f"{where}: {key!r} is missing")
    return dict(value)


_LAYER_KEYS = {"outputs": list, "inputs": list, "ranks": list, "relu": bool, "bias": bool}
_NETWORK_KEYS = {
    "name": str,
    "classes": int,
    "image": list,
    "padded": list,
    "dataset": str,
    "widths": dict,
    "formats": dict,
    "layers": list,
}
_WIDTH_KEYS: dict[str, type] = dict.fromkeys(
    ("factor", "bias", "activation", "gradient", "intermediate"), int
)


def _pair(value: Sequence[int], where: str) -> tuple[int, int]:
    require(
        len(value) == 2 and all(isinstance(v, int) for v in value),
        f"{where} must be two integers (rows, columns), not {_row(value)}",
    )
    return value[0], value[1]


def network_from_dict(description: Mapping[str, Any]) -> Network:
    """Build a network from plain data, as a TOML file gives it.

    Raises ``NetworkError`` naming the key and the value that is wrong.
    """
    top = _table(description, "network", _NETWORK_KEYS, ("classes", "image", "layers"))
    widths = _table(top.get("widths", {}), "widths", _WIDTH_KEYS, ())
    layers = []
    for n, item in enumerate(top["layers"], 1):
        keys = _table(item, f"layer {n}", _LAYER_KEYS, ("outputs", "inputs", "ranks"))
        try:
            layers.append(
                Layer(
                    tuple(keys["outputs"]),
                    tuple(keys["inputs"]),
                    tuple(keys["ranks"]),
                    relu=keys.get("relu", n < len(top["layers"])),
                    bias=keys.get("bias", True),
                )
            )
        except NetworkError as error:
            raise NetworkError(f"layer {n}: {error}") from None
    image = _pair(top["image"], "image")
    name = top.get("name", "network")
    require(
        _NAME.fullmatch(name) is not None,
        f"network: name {shown(name)} is not one: up to 64 letters, digits, spaces and any of "
        ". _ + -, the first a letter, a digit or _, the last no space and no dot",
    )
    network = Network(
        name=name,
        layers=tuple(layers),
        classes=top["classes"],
        image=image,
        padded=_pair(top.get("padded", image), "padded"),
        widths=Widths(**widths),
        dataset=top.get("dataset", ""),
    )
    return network.with_formats(top["formats"]) if top.get("formats") else network


def load_network(name: str) -> Network:
    """A built-in network by name, or one from the user's TOML file (``docs/networks.md``).

    Raises ``NetworkError`` for an unknown name, a file that cannot be read, or a description that
    is not a network.
    """
    if name in BUILT_IN:
        text = (files("trainwright") / "network" / "builtin" / f"{name}.toml").read_text()
    else:
        path = Path(name)
        if not path.suffix and not exists(name):
            raise NetworkError(
                f"unknown network {shown(name)}; built in are {', '.join(BUILT_IN)}, or give the "
                "path of a TOML file"
            )
        try:
            with path.open("rb") as file:
                content = file.read(MOST_TEXT + 1)
            text = content.decode()
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not a text file"
            raise NetworkError(f"cannot read network file {shown(name)}: {reason}") from None
        require(len(content) <= MOST_TEXT, f"{name}: over {MOST_TEXT:,} bytes are no network")
    try:
        description = tomllib.loads(text.replace("\r\n", "\n"))
    except RecursionError:
        raise NetworkError(f"{name}: not a TOML file: its brackets are nested too deep") from None
    except ValueError as error:  # also for numbers of thousands of digits
        raise NetworkError(f"{name}: not a TOML file: {error}") from None
    return network_from_dict(description)

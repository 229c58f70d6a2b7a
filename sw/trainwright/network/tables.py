"""Layers and the graph of a network as tables of plain data, as a TOML file has them, and back."""

import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from trainwright.formats import Format
from trainwright.functions import Function, function_of
from trainwright.network.errors import NetworkError, require, row
from trainwright.network.layer import MOST_SIZE, Layer
from trainwright.network.nodes import (
    IMAGE,
    Apply,
    Attention,
    Dropout,
    Input,
    Map,
    Node,
    Norm,
    Pool,
    Positions,
    Sum,
    TokenPool,
    layer_name,
)
from trainwright.network.window import Window
from trainwright.support.errors import errors_as
from trainwright.support.text import amount, shown, suggestion

if TYPE_CHECKING:
    from trainwright.network.network import Network

_KINDS = {
    int: "an integer",
    float: "a number",
    str: "a string",
    bool: "true or false",
    list: "a list",
    dict: "a table",
}
_VALUE_NAME = re.compile(r"(?!l\d+$)[A-Za-z_][\w-]{0,30}")

_WINDOW = {"kernel": list, "stride": list, "padding": list}
_KEYS: dict[str, dict[str, type]] = {
    "add": {"name": str, "add": list, "relu": bool},
    "pool": {
        "name": str, "from": str, "pool": list, "stride": list, "padding": list, "function": str,
    },
    "weights": {"name": str, "from": str, "weights": str},
    "norm": {"name": str, "from": str, "norm": str},
    "over_tokens": {"name": str, "from": str, "over_tokens": str},
    "scale": {"name": str, "from": str, "scale": int, "bias": bool, "relu": bool},
    "attention": {"name": str, "attention": list, "heads": int, "causal": bool},
    "dropout": {"name": str, "from": str, "dropout": float},
    "function": {"name": str, "from": str, "function": str},
    "layer": {
        "name": str, "from": str, "outputs": list, "inputs": list, "ranks": list, "relu": bool,
        "bias": bool, "leading": int, "product": list, **_WINDOW,
    },
}  # fmt: skip
"""Keys of a ``[[layers]]`` table, by its kind: the first of these keys that the table has."""
_READ_PLAIN = ("norm", "over_tokens", "attention", "function")
"""Kinds that read values without a ReLU, unless one is asked for."""


def table(value: Any, where: str, known: Mapping[str, type], needed: Sequence[str]) -> dict:
    """Check a table and its keys. Raises ``NetworkError``, which names the key."""
    require(isinstance(value, Mapping), f"{where} must be a table, not {shown(value)}")
    for key, item in value.items():
        if key not in known:  # no `require`: the suggestion takes longer than all other checks
            raise NetworkError(
                f"{where}: unknown key {shown(key)}; there are {', '.join(known)}"
                f"{suggestion(str(key), known)}"
            )
        kind = known[key]
        kinds = (int, float) if kind is float else kind
        right = isinstance(item, kinds) and (kind is bool or not isinstance(item, bool))
        require(right, f"{where}: {key} must be {_KINDS[kind]}, not {shown(item)}")
        # Python's True is an integer, but `true` in a list of sizes or ranks is a mistake.
        truth = isinstance(item, list) and any(isinstance(part, bool) for part in item)
        require(not truth, f"{where}: {key} has numbers or names, not {shown(item)}")
    for key in needed:
        require(key in value, f"{where}: {key!r} is missing")
    return dict(value)


def pair(value: Sequence[int], where: str) -> tuple[int, int]:
    """Check that a list holds two integers. Raises ``NetworkError``."""
    require(
        len(value) == 2 and all(isinstance(v, int) for v in value),
        f"{where} must be two integers (rows, columns), not {row(value)}",
    )
    return value[0], value[1]


def texts(value: Sequence[Any], where: str) -> tuple[str, ...]:
    """Check that a list holds names. Raises ``NetworkError``."""
    require(
        all(isinstance(v, str) for v in value), f"{where} must be a list of names, not {row(value)}"
    )
    return tuple(value)


@dataclass
class Wired:
    """Layers and nodes that the tables of a network describe."""

    layers: list[Layer] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    own: dict[str, int] = field(default_factory=dict)
    """Number of the layer that a value brings, by the value; other values may share its weights."""


def wired(
    tables: Sequence[Any], inputs: Sequence[Any], heads: Sequence[str], padded: tuple[int, int]
) -> Wired:
    """Read layers and nodes of ``[[layers]]`` and ``[[inputs]]``. Raises ``NetworkError``.

    A layer or a sum without the key ``relu`` has a ReLU unless it is a head, or one of
    ``_READ_PLAIN`` reads it. Without ``heads`` the last table is the head.
    """
    result = Wired()
    # Names of the values that have a ReLU only because the key is missing, and of those that are
    # read without one.
    by_default: set[str] = set()
    plain: set[str] = set()
    given = [_input(n, item, padded) for n, item in enumerate(inputs, 1)]
    if not any(isinstance(node, Input) for node in given):
        given.append(Input(IMAGE, (0, padded[0]), (0, padded[1])))
    # The first layer reads the last input by default: places come before.
    result.nodes += sorted(given, key=lambda node: isinstance(node, Input))
    shared: list[tuple[str, str, tuple[str, ...]]] = []
    for n, item in enumerate(tables, 1):
        require(isinstance(item, Mapping), f"layer {n} must be a table, not {shown(item)}")
        kind = next((kind for kind in _KEYS if kind in item), "layer")
        needed = {"layer": ("outputs", "inputs", "ranks"), "attention": ("attention", "heads")}
        keys = table(item, f"layer {n}", _KEYS[kind], needed.get(kind, (kind,)))
        default = layer_name(len(result.layers)) if kind in ("layer", "scale") else f"n{n}"
        name = _named(keys["name"], f"layer {n}") if "name" in keys else default
        sources = (keys.get("from", result.nodes[-1].name),)
        is_head = name in heads or (not heads and n == len(tables))
        # A layer that is applied again keeps the ReLU of its own table.
        by_default |= {name} if "relu" not in keys and kind != "weights" else set()
        if kind in ("layer", "scale"):
            if "product" in keys:
                require("from" not in keys, f"layer {n}: give product or from, not both")
                sources = texts(keys["product"], f"layer {n}: product")
            result.own[name] = len(result.layers)
            result.nodes.append(Apply(name, sources, len(result.layers)))
            relu = keys.get("relu", kind == "layer" and not is_head)
            result.layers.append(_layer(n, keys, relu=relu))
        elif kind == "weights":
            shared.append((name, keys["weights"], sources))
            result.nodes.append(Apply(name, sources, -1))
        else:
            if kind in ("attention", "add"):
                sources = texts(keys[kind], f"layer {n}: {kind}")
            result.nodes.append(_node(kind, n, keys, name, sources, relu=not is_head))
        plain |= {*sources} if kind in _READ_PLAIN else set()
    for name, weights, sources in shared:
        require(
            weights in result.own,
            f"{name}: weights: there is no layer {weights!r}; there are {', '.join(result.own)}",
        )
        place = next(k for k, node in enumerate(result.nodes) if node.name == name)
        result.nodes[place] = Apply(name, sources, result.own[weights])
    # Last, as tables may come in any order.
    _remove_relu(result, by_default & plain)
    return result


def _node(
    kind: str, n: int, keys: Mapping[str, Any], name: str, sources: tuple[str, ...], *, relu: bool
) -> Node:
    """Read the node of table ``n`` that is no layer; a sum has a ``relu`` by default."""
    match kind:
        case "norm":
            require(
                keys["norm"] == "layer", f'layer {n}: norm is "layer", not {shown(keys["norm"])}'
            )
            return Norm(name, sources)
        case "over_tokens":
            over, choices = keys["over_tokens"], " or ".join(map(repr, TokenPool.CHOICES))
            require(
                over in TokenPool.CHOICES, f"layer {n}: over_tokens is {choices}, not {shown(over)}"
            )
            return TokenPool(name, sources, over)
        case "attention":
            return Attention(name, sources, keys["heads"], keys.get("causal", False))
        case "add":
            return Sum(name, sources, keys.get("relu", relu))
        case "function":
            return Map(name, sources, _function(n, keys["function"]))
        case "dropout":
            return Dropout(name, sources, keys["dropout"])
        case _:
            window = _window(n, keys["pool"], keys, keys["pool"])
            function = _function(n, keys["function"], pools=True) if "function" in keys else None
            return Pool(name, sources, window, function)


def _function(n: int, text: str, *, pools: bool = False) -> Function:
    try:
        function = function_of(text)
    except ValueError as error:
        raise NetworkError(f"layer {n}: function: {error}") from error
    require(
        ("window" in function.over) == pools,
        f"layer {n}: function: {text} is {'not ' * pools}over a window: "
        f"{'omit pool' if pools else 'give the table pool = [rows, columns], its size'}",
    )
    return function


def _remove_relu(wired: Wired, names: Set[str]) -> None:
    """Remove the default ReLU of the layers and sums of these ``names``."""
    for place, node in enumerate(wired.nodes):
        if node.name not in names:
            continue
        if isinstance(node, Apply):
            wired.layers[node.layer] = replace(wired.layers[node.layer], relu=False)
        elif isinstance(node, Sum):
            wired.nodes[place] = replace(node, relu=False)


def _named(name: str, where: str) -> str:
    require(
        _VALUE_NAME.fullmatch(name) is not None,
        f"{where}: {shown(name)} is no name of a value: up to 31 letters, digits, _ and -, the "
        "first a letter or _; l1, l2 .. are the names of layers without a name",
    )
    return name


def _input(n: int, item: Any, padded: tuple[int, int]) -> Input | Positions:
    if isinstance(item, Mapping) and "positions" in item:
        return _positions(n, item)
    known = {"name": str, "rows": list, "columns": list, "channels": int}
    keys = table(item, f"input {n}", known, ("name",))
    name, spans = _named(keys["name"], f"input {n}"), []
    for what, size in zip(("rows", "columns"), padded, strict=True):
        lo, hi = pair(keys.get(what, [0, size]), f"input {n}: {what}")
        require(
            0 <= lo < hi <= size,
            f"input {n}: {what} {row([lo, hi])} must be the first and the one after the last "
            f"within {size}",
        )
        spans.append((lo, hi))
    channels, columns = keys.get("channels", 1), spans[1][1] - spans[1][0]
    require(
        channels >= 1 and columns % channels == 0,
        f"input {n}: channels must divide its {amount(columns, 'column')}, not {channels}",
    )
    return Input(name, spans[0], spans[1], channels)


def _positions(n: int, item: Mapping[str, Any]) -> Positions:
    where = f"input {n}"
    known = {"name": str, "positions": str, "size": int, "every": int}
    keys = table(item, where, known, ("name", "size"))
    kind, size, every = keys["positions"], keys["size"], keys.get("every", 1)
    require(
        kind in Positions.CHOICES,
        f"{where}: positions are {' or '.join(map(repr, Positions.CHOICES))}, not {shown(kind)}",
    )
    for key, value in (("size", size), ("every", every)):
        require(
            1 <= value <= MOST_SIZE,
            f"{where}: {key} is from 1 to {MOST_SIZE}, not {shown(value)}",
        )
    require(
        every == 1 or kind == "one-hot",
        f"{where}: every only applies to one-hot positions: omit it with {shown(kind)}",
    )
    return Positions(_named(keys["name"], where), kind, size, every)


def _window(n: int, kernel: list, keys: Mapping[str, Any], stride: list) -> Window:
    where = f"layer {n}"
    try:
        return Window(
            pair(kernel, f"{where}: kernel"),
            pair(keys.get("stride", stride), f"{where}: stride"),
            pair(keys.get("padding", [0, 0]), f"{where}: padding"),
        )
    except NetworkError as error:
        text = str(error)
        raise NetworkError(text if text.startswith(where) else f"{where}: {text}") from None


def _layer(n: int, keys: Mapping[str, Any], *, relu: bool) -> Layer:
    window = _window(n, keys["kernel"], keys, [1, 1]) if "kernel" in keys else None
    require(
        window is not None or not {"stride", "padding"} & set(keys),
        f"layer {n}: stride and padding are of a convolution: give it a kernel",
    )
    if "scale" in keys:
        keys = {**keys, "outputs": [keys["scale"]], "inputs": [keys["scale"]], "ranks": []}
    with errors_as(f"layer {n}", NetworkError, NetworkError):
        return Layer(
            tuple(keys["outputs"]),
            tuple(keys["inputs"]),
            tuple(keys["ranks"]),
            relu=relu,
            diagonal="scale" in keys,
            bias=keys.get("bias", True),
            window=window,
            leading=keys.get("leading", 0),
        )


def _window_keys(window: Window | None, kernel: str) -> dict[str, Any]:
    if window is None:
        return {}
    return {
        kernel: list(window.kernel),
        "stride": list(window.stride),
        "padding": list(window.padding),
    }


def items(network: "Network") -> dict[str, Any]:
    """Write the tables that ``wired`` reads: ``layers``, ``inputs`` and ``heads`` where needed."""
    wiring = network.wiring or network.nodes
    result: dict[str, Any] = {"layers": list(_layer_tables(network, wiring))}
    used = (node.function for node in wiring if isinstance(node, Map | Pool))
    sources = [function.definition.source for function in used if function]
    sources += [fmt.source for fmt in _formats(network)]
    if files := dict.fromkeys(filter(None, sources)):
        result["kernels"] = list(files)
    if digests := kernel_digests(network):
        result["kernel_digests"] = digests
    if digests := format_digests(network):
        result["format_digests"] = digests
    given = [node for node in wiring if isinstance(node, Input | Positions)]
    first = given[0]
    default = isinstance(first, Input) and (first.name, first.channels) == (IMAGE, 1)
    if not default or len(given) > 1:
        result["inputs"] = [_input_keys(node) for node in given]
    return result | ({"heads": list(network.results)} if network.results else {})


def _layer_tables(network: "Network", wiring: Sequence[Node]) -> Iterator[dict[str, Any]]:
    """Yield the ``[[layers]]`` table of each node; a straight line needs no names."""
    done: set[int] = set()
    owners = {node.layer: node.name for node in reversed(wiring) if isinstance(node, Apply)}
    named = bool(network.wiring)
    for node in wiring:
        if isinstance(node, Input | Positions):
            continue
        is_default = isinstance(node, Apply) and node.name == layer_name(len(done))
        label = {"name": node.name} if named and not is_default else {}
        link = {**label, "from": node.sources[0]} if named else label
        if isinstance(node, Apply) and len(node.sources) > 1:
            link = {**label, "product": list(node.sources)}
        match node:
            case Apply() if node.layer in done:
                yield {**link, "weights": owners[node.layer]}
            case Apply():
                done.add(node.layer)
                layer = network.layers[node.layer]
                scale = {"scale": layer.output_size, "relu": layer.relu, "bias": layer.bias}
                yield {**link, **(scale if layer.diagonal else _layer_keys(layer))}
            case Sum():
                yield {**label, "add": list(node.sources), "relu": node.relu}
            case Pool():
                own = {"function": node.function.text} if node.function else {}
                yield {**link, **_window_keys(node.window, "pool"), **own}
            case Map():
                yield {**link, "function": node.function.text}
            case Dropout():
                yield {**link, "dropout": node.probability}
            case Attention():
                own = {"causal": True} if node.causal else {}
                yield {**label, "attention": list(node.sources), "heads": node.heads, **own}
            case Norm():
                yield {**link, "norm": "layer"}
            case TokenPool():
                yield {**link, "over_tokens": node.over}


def kernel_digests(network: "Network") -> dict[str, str]:
    """Return a digest of what each function from a file of ``kernels`` computes, by its text."""
    own = (function for function in network.functions if function.definition.source)
    return {function.text: function.digest for function in own}


def format_digests(network: "Network") -> dict[str, str]:
    """Return the digest of each format of the user's own, by its name."""
    return {str(fmt): fmt.own_digest for fmt in _formats(network) if fmt.own_digest}


def _formats(network: "Network") -> list[Format]:
    return [fmt for _, fmt in (*network.coded, *network.singles)]


def _input_keys(node: Input | Positions) -> dict[str, Any]:
    if isinstance(node, Positions):
        own = {"every": node.every} if node.every > 1 else {}
        return {"name": node.name, "positions": node.kind, "size": node.size, **own}
    own = {"channels": node.channels} if node.channels > 1 else {}
    return {"name": node.name, "rows": list(node.rows), "columns": list(node.columns), **own}


def _layer_keys(layer: Layer) -> dict[str, Any]:
    return {
        "outputs": list(layer.outputs),
        "inputs": list(layer.inputs),
        "ranks": list(layer.ranks),
        "relu": layer.relu,
        "bias": layer.bias,
        **({"leading": layer.leading} if layer.leading else {}),
        **_window_keys(layer.window, "kernel"),
    }

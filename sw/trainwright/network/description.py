"""Networks from TOML files, and those that are built in."""

import re
import tomllib
from collections.abc import Mapping
from importlib.resources import files
from os.path import exists
from pathlib import Path
from typing import Any

from trainwright.functions import read_kernels
from trainwright.network.errors import NetworkError, require
from trainwright.network.network import Network
from trainwright.network.nodes import straight_line
from trainwright.network.numbers import Widths
from trainwright.network.tables import format_digests, kernel_digests, pair, table, texts, wired
from trainwright.support.arguments import plain_data
from trainwright.support.text import shown, suggestion

BUILT_IN = (
    "digits",
    "fashion",
    "fashion-conv",
    "encoder-64",
    "encoder-768",
    "tagger-64",
    "intent-64",
)
_NAME = re.compile(r"\w([\w .+-]{0,62}[\w+-])?")
"""A name is part of paths: ``runs/NAME``."""
MOST_TEXT = 1 << 20
"""Bytes of a TOML file."""

_NETWORK_KEYS = {
    "name": str,
    "classes": int,
    "image": list,
    "padded": list,
    "dataset": str,
    "widths": dict,
    "formats": dict,
    "layers": list,
    "inputs": list,
    "heads": list,
    "tokens": int,
    "kernels": list,
    "kernel_digests": dict,
    "format_digests": dict,
    "padding": bool,
}
_WIDTH_KEYS: dict[str, type] = dict.fromkeys(
    ("factor", "bias", "activation", "gradient", "intermediate"), int
)


def network_from_dict(description: Mapping[str, Any], folder: Path | None = None) -> Network:
    """Build a network from plain data, as a TOML file gives it.

    Files of ``kernels``, which are executed, are looked up in ``folder``. Raises ``NetworkError``
    naming the key and the value that is wrong.
    """
    top = table(plain_data(description), "network", _NETWORK_KEYS, ("classes", "image", "layers"))
    widths = table(top.get("widths", {}), "widths", _WIDTH_KEYS, ())
    image = pair(top["image"], "image")
    name = top.get("name", "network")
    require(
        _NAME.fullmatch(name) is not None,
        f"network: name {shown(name)} is not one: up to 64 letters, digits, spaces and any of "
        ". _ + -, the first a letter, a digit or _, the last no space and no dot",
    )
    padded = pair(top.get("padded", image), "padded")
    heads = texts(top.get("heads", []), "heads")
    require(
        len(set(heads)) == len(heads), f"heads {shown(list(heads))} has a name twice: name it once"
    )
    for file in texts(top.get("kernels", []), "kernels"):
        try:
            read_kernels(str((folder or Path()) / file))
        except ValueError as error:
            raise NetworkError(f"kernels: {error}") from error
    wiring = wired(top["layers"], top.get("inputs", []), heads, padded)
    line = straight_line(wiring.layers, padded) == tuple(wiring.nodes) and not heads
    network = Network(
        name=name,
        layers=tuple(wiring.layers),
        classes=top["classes"],
        image=image,
        padded=padded,
        widths=Widths(**widths),
        dataset=top.get("dataset", ""),
        wiring=() if line else tuple(wiring.nodes),
        results=heads,
        tokens=top.get("tokens", 1),
        padding=top.get("padding", False),
    )
    _check_kernels(network, top.get("kernel_digests", {}))
    return _coded(network, top, widths) if top.get("formats") else network


def _coded(network: Network, top: Mapping[str, Any], widths: Mapping[str, int]) -> Network:
    """Return a network with the ``formats`` of its description, whose ``widths`` must agree."""
    coded = network.with_formats(top["formats"])
    _check_formats(coded, top.get("format_digests", {}))
    for key, width in widths.items():
        bits = getattr(coded.widths, key)
        require(
            bits == width,
            f"formats: {key} has {bits} bits and [widths] says {width}: omit one of them",
        )
    return coded


def _check_kernels(network: Network, expected: Mapping[str, Any]) -> None:
    """Raise ``NetworkError`` where a kernel computes something else than it did for a stored model.

    The factors of the model were trained with the kernel as it was.
    """
    for text, digest in kernel_digests(network).items():
        source = next(f.definition.source for f in network.functions if f.text == text)
        require(
            expected.get(text, digest) == digest,
            f"kernels: {text} of {source} computes something else than when the model was trained: "
            "restore the file as it was then, or train anew",
        )


def _check_formats(network: Network, expected: Mapping[str, Any]) -> None:
    """Raise ``NetworkError`` where a format has other words than it had for a stored model."""
    for text, digest in format_digests(network).items():
        require(
            expected.get(text, digest) == digest,
            f"formats: {text} has other words than when the model was trained: restore its class "
            "as it was then, or train anew",
        )


def load_network(name: str) -> Network:
    """Load a built-in network by name, or a network from a TOML file (``docs/guide/networks.md``).

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
                f"path of a TOML file{suggestion(name, BUILT_IN)}"
            )
        try:
            with path.open("rb") as file:
                content = file.read(MOST_TEXT + 1)
            text = content.decode("utf-8-sig")  # editors of Windows write a mark in front
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
    return network_from_dict(description, None if name in BUILT_IN else Path(name).parent)

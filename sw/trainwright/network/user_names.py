"""Names of tensors and axes in the user's words, by the layer names of a TOML file or a module."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from trainwright.network.nodes import IMAGE, Input

if TYPE_CHECKING:
    from trainwright.network.network import Network

_NOUNS = {"x": "input", "y": "sums", "a": "output", "b": "bias", "share": "averaging weights"}
_AXES = {
    "s": "samples", "pixel": "pixels", "h": "rows", "w": "columns", "oh": "output rows",
    "ow": "output columns", "kh": "kernel rows", "kw": "kernel columns",
}  # fmt: skip
_NUMBERED_AXES = {"j": "outputs", "i": "inputs", "r": "rank"}
_NUMBERED = re.compile(r"l\d+")


@dataclass(frozen=True)
class UserNames:
    """Translator of the names inside programs to the user's words.

    A program names a tensor ``PREFIX.PART``, or ``PREFIX.PART.PART..`` for a product: the prefix of
    a layer or value, then a part for each factor of the product. ``layers`` maps prefixes to the
    user's names.
    """

    layers: Mapping[str, str]

    @classmethod
    def of_network(cls, network: "Network") -> "UserNames":
        """Return the names of a TOML file; a layer without a name is called ``layer 2``."""
        names: dict[str, str] = {}
        for node in network.nodes:
            prefix = network.prefixes[node.name]
            named = node.name if not _NUMBERED.fullmatch(node.name) else f"layer {node.name[1:]}"
            if isinstance(node, Input):
                named = "input" if node.name == IMAGE else f"input {node.name}"
            names[prefix] = named
        return cls(names)

    def description(self, text: str) -> str:
        """Replace ``layer 2`` and ``'l2'`` in an error about a network's description."""

        def named(match: re.Match[str]) -> str:
            number, value = match.groups()
            own = self.layers.get(value or f"l{number}")
            return match[0] if own is None else f"'{own}'" if value else own

        return re.sub(r"\blayer (\d+)\b|'([\w.]+)'", named, text)

    def layer(self, site: str) -> str:
        """Name a layer, or the input gradient of a convolution (``l2.dx``)."""
        prefix, _, rest = site.partition(".")
        own = self.layers.get(prefix, prefix)
        return f"{own}: {self._part(rest)}" if rest else own

    def tensor(self, name: str) -> str:
        """Name a tensor: ``l1.dG2`` is ``fc1: gradient of factor G2``."""
        if name.endswith(" copy"):
            return f"copy of {self.tensor(name.removesuffix(' copy'))}"
        if name.startswith("ones "):
            return "ones"
        prefix, _, rest = name.partition(".")
        if not rest and prefix[:1] == "d" and prefix[1:] in self.layers:
            return f"gradient of the {self.layers[prefix[1:]]}"
        if prefix not in self.layers:
            return name
        return f"{self.layers[prefix]}: {self._whole(rest)}" if rest else self.layers[prefix]

    def short(self, name: str) -> str:
        """Name a tensor for a table, by symbols: ``l1.G1.G2`` is ``fc1 G1*G2``."""
        if name.endswith(" copy"):
            return f"{self.short(name.removesuffix(' copy'))} copy"
        if name.startswith("ones "):
            return "ones"
        prefix, _, rest = name.partition(".")
        return f"{self.layers.get(prefix, prefix)} {self.symbol(name)}" if rest else name

    @staticmethod
    def symbol(name: str) -> str:
        """Name a tensor within its layer: ``l1.G1.G2`` is ``G1*G2``."""
        if name.startswith("ones "):
            return "ones"
        prefix, _, rest = name.partition(".")
        leaves, numbered = _parts(rest)
        if len(leaves) > 1 and leaves[0] == "dx":
            return f"{'*'.join(leaves[1:])} for dx{numbered}"
        return "*".join(leaves) + numbered if rest else prefix

    def axis(self, name: str) -> str:
        """Name an axis: ``l2.oh`` is ``output rows of conv2``, ``s`` is ``samples``."""
        prefix, _, letter = name.rpartition(".")
        own = _AXES.get(letter)
        if own is None and letter[:1] in _NUMBERED_AXES and letter[1:].isdigit():
            own = f"{_NUMBERED_AXES[letter[0]]} {letter[1:]}"
        if own is None:
            return name
        return f"{own} of {self.layers.get(prefix, prefix)}" if prefix else own

    def slice(self, axis: str, count: int, layer: str = "") -> str:
        """Name values of an axis, ``4 of outputs 1 of fc1``; ``layer``, a prefix, is not named."""
        named = self.axis(axis.removeprefix(f"{layer}."))
        return f"{count} {named}" if named in _AXES.values() else f"{count} of {named}"

    def message(self, text: str) -> str:
        """Replace each name of a tensor in a message."""
        return self._names.sub(lambda name: self.tensor(name[0]), text)

    @cached_property
    def _names(self) -> re.Pattern[str]:
        prefixes = "|".join(sorted(map(re.escape, self.layers), key=len, reverse=True))
        leaf, number = r"(?:d?G\d+|d?[xyab]w?|share)", r"(?:\.(?:sum)?\d+)"
        return re.compile(rf"(?<![\w.])(?:{prefixes})(?:\.{leaf})+{number}*(?: copy)?(?!\w)")

    def _whole(self, rest: str) -> str:
        leaves, numbered = _parts(rest)
        if len(leaves) == 1:
            return self._part(leaves[0]) + numbered
        if leaves[0] == "dx":  # partial results of the input gradient of a convolution
            return f"{self._product(leaves[1:])}, for the gradient of the input{numbered}"
        return self._product(leaves) + numbered

    def _product(self, leaves: list[str]) -> str:
        if len(leaves) == 1:
            return self._part(leaves[0])
        named = list(map(self._part, leaves))
        return f"product of {', '.join(named[:-1])} and {named[-1]}"

    def _part(self, part: str) -> str:
        if part[:1] == "d" and len(part) > 1:
            if part.endswith("w"):
                return f"windows of the {self._part(part[:-1])}"
            inner = self._part(part[1:])
            return f"gradient of {inner}" if part[1] == "G" else f"gradient of the {inner}"
        if part.endswith("w") and part[:-1] in _NOUNS:
            return f"windows of the {_NOUNS[part[:-1]]}"
        if part[:1] == "G" and part[1:].isdigit():
            return f"factor {part}"
        return _NOUNS.get(part, part)


def _parts(rest: str) -> tuple[list[str], str]:
    """Cut a name into its parts and, in words, the number of a part or of a sum of parts."""
    leaves, numbered = rest.split("."), ""
    while len(leaves) > 1 and (leaves[-1].isdigit() or leaves[-1].startswith("sum")):
        last = leaves.pop()
        numbered = f" (part {last})" if last.isdigit() else f" (sum of {last[3:]} parts)"
    return leaves, numbered

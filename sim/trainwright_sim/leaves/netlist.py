"""What models of leaf blocks are connected to: ports of the flattened design, other models."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from trainwright.accelerator import AcceleratorError
from trainwright_hw.build.convert import TOP
from trainwright_sim.leaves.catalogue import COMBINATIONAL, SETTLED
from trainwright_sim.leaves.leaf import PREFIX

SEPARATOR = "__"
EVERT = f"expose -evert -sep {SEPARATOR} t:{PREFIX}*"
"""Makes ports of a flattened design's top module of what is connected to models."""

_NAME = rf"\\((?:\S+\.)?({PREFIX}\w+?){SEPARATOR}(\w+))"
_PORT = re.compile(rf"^  wire (?:width (\d+) )?(input|output) \d+ {_NAME}$", re.MULTILINE)
_SLICE = re.compile(r"(\S+) \[(\d+)(?::(\d+))?\]")
_CONNECT = re.compile(r"^  connect (\S+|\{.*?\}|\S+ \[.*?\]) (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Link:
    """An output of a model: its cell and port; where not all of it, the lowest bit and how many."""

    cell: str
    port: str
    lowest: int = 0
    width: int | None = None


@dataclass
class Placed:
    """A model in a design; its ports by name, those of the design's top module."""

    cell: str
    """Its path."""
    model: str
    """The type of its cell."""
    inputs: dict[str, tuple[str, int]] = field(default_factory=dict)
    """What drives it: a port and its width."""
    outputs: dict[str, tuple[str, int]] = field(default_factory=dict)
    links: dict[str, Link] = field(default_factory=dict)
    """Inputs that are outputs of another model."""

    def kind(self, kinds: Sequence[str]) -> str:
        """Which of ``kinds`` it is."""
        return next(one for one in kinds if self.model.startswith(f"{PREFIX}{one}_"))

    def struct(self, kinds: Sequence[str]) -> str:
        """``leaf::drain<16>`` for a cell of type ``leaf_drain_16``."""
        kind = self.kind(kinds)
        arguments = self.model.removeprefix(f"{PREFIX}{kind}_").split("_")
        return f"leaf::{kind}<{', '.join(arguments)}>"


def top_text(flat: str) -> str:
    """The top module of a flattened design."""
    text = flat[flat.index(f"\nmodule \\{TOP}\n") :]
    return text[: text.index("\nend\n")]


def placed(top: str, kinds: Sequence[str]) -> list[Placed]:
    """The models of a design of which ``EVERT`` made ports, in the order of ``kinds``.

    An output that is connected to inputs of models alone is not among ``outputs``. Inputs that
    have the same driver, as every model's reset has, share a port.
    """
    found: dict[str, Placed] = {}
    where: dict[str, tuple[Placed, str]] = {}
    for width, direction, name, model, port in _PORT.findall(top):
        cell = name.removesuffix(f"{SEPARATOR}{port}")
        one = found.setdefault(cell, Placed(cell, model))
        ports = one.inputs if direction == "output" else one.outputs
        ports[port] = (name, int(width or 1))
        where[name] = one, port
    connected = _CONNECT.findall(top)
    nets = {source[1:]: net for net, source in connected if source[1:] in where}
    _join(connected, nets, where)
    for one in found.values():
        for port, (name, _) in list(one.outputs.items()):
            if not _taken(top, nets[name], one, port, found):
                del one.outputs[port]
    return sorted(found.values(), key=lambda one: (kinds.index(one.kind(kinds)), one.cell))


def _join(
    connected: Sequence[tuple[str, str]],
    nets: dict[str, str],
    where: dict[str, tuple[Placed, str]],
) -> None:
    """Links between models, and inputs that have their driver in common."""
    givers = {net: where[name] for name, net in nets.items()}
    first: dict[str, str] = {}
    for to, net in connected:
        if to[1:] not in where or to[1:] in nets:
            continue
        one, port = where[to[1:]]
        whole, part = net, _SLICE.fullmatch(net)
        if part is not None:
            whole = part[1]
        if whole in givers:
            giver, of = givers[whole]
            one.links[port] = _link(giver.cell, of, part)
            del one.inputs[port]
        else:
            one.inputs[port] = first.setdefault(net, to[1:]), one.inputs[port][1]


def _link(cell: str, port: str, part: re.Match[str] | None) -> Link:
    if part is None:
        return Link(cell, port)
    highest, lowest = int(part[2]), int(part[3] or part[2])
    return Link(cell, port, lowest, highest - lowest + 1)


def _taken(top: str, net: str, one: Placed, port: str, found: dict[str, Placed]) -> bool:
    """Whether anything but models takes what drives a net."""
    links = sum(
        (link.cell, link.port) == (one.cell, port)
        for other in found.values()
        for link in other.links.values()
    )
    if re.search(rf"^  wire .*output \d+ {re.escape(net)}$", top, re.MULTILINE):
        return True
    # where it is declared, driven and linked
    return top.count(f"{net} ") + top.count(f"{net}\n") > 2 + links


def member(name: str) -> str:
    """A port of a model as a port of what is compiled."""
    return re.sub(r"\W|__", "_", name)  # two would be renamed


def header(models: Sequence[Placed], kinds: Sequence[str]) -> str:
    """``leaves.h``: the models of a design, and how they are connected to what is compiled.

    Raises ``AcceleratorError`` where one gives outputs in the cycle of inputs, and these outputs or
    inputs (``SETTLED``, ``COMBINATIONAL``) are not those of models.
    """
    number = {one.cell: f"leaf{n}_" for n, one in enumerate(models)}
    before, settle, after = [], [], []
    for one in models:
        name, links = number[one.cell], {}
        for port, link in one.links.items():
            bits = "" if link.width is None else f"<{link.lowest}, {link.width}>"
            links[port] = f"leaf::link{bits}({name}.{port}, {number[link.cell]}.{link.port});"
        early = _settled(one, kinds)
        for port, (outer, width) in one.inputs.items():
            before.append(f"leaf::load<{width}>({name}.{port}, top.{member(outer)});")
        before += [line for port, line in links.items() if port not in early]
        (settle if early else before).extend([*(links[port] for port in early), f"{name}.comb();"])
        for port, (outer, width) in one.outputs.items():
            if port in COMBINATIONAL.get(one.kind(kinds), ()):
                raise AcceleratorError(f"{one.cell}: what is no model takes {port}")
            after.append(f"leaf::store<{width}>(top.{member(outer)}, {name}.{port});")
    clocks = [f"{name}.clock();" for name in number.values()]
    return "\n".join(
        (
            "#pragma once",
            *(f'#include "leaves/{kind}.h"' for kind in kinds),
            "namespace trainwright {",
            "struct Leaves {",
            *(f"    {one.struct(kinds)} {number[one.cell]};" for one in models),
            "    // What they get is that before a clock edge, and what they give that after it.",
            "    template <typename Top>",
            "    void clock(Top &top) {",
            *(f"        {line}" for line in (*before, *clocks, *settle, *after)),
            "    }",
            "};",
            "}  // namespace trainwright\n",
        )
    )


def _settled(one: Placed, kinds: Sequence[str]) -> list[str]:
    """Inputs of a model that its outputs of the same cycle depend on."""
    prefixes = SETTLED.get(one.kind(kinds), ())
    names = [port for port in (*one.inputs, *one.links) if port.startswith(tuple(prefixes))]
    if missing := set(names) & set(one.inputs):
        raise AcceleratorError(f"{one.cell}: {min(missing)} does not come from a model")
    return names

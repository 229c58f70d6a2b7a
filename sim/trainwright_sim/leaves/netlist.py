"""Find what models of leaf blocks are connected to: design ports or other models."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from trainwright.accelerator import AcceleratorError
from trainwright_hw.build.convert import TOP
from trainwright_sim.leaves.catalogue import COMBINATIONAL, SETTLED
from trainwright_sim.leaves.leaf import PREFIX

SEPARATOR = "__"
EVERT = f"expose -evert -sep {SEPARATOR} t:{PREFIX}*"
"""Command of yosys that turns the pins of models into ports of a flattened design's top module."""

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
    """Path of the cell in the design."""
    model: str
    """The type of its cell."""
    inputs: dict[str, tuple[str, int]] = field(default_factory=dict)
    """For each input, the port that drives it and its width."""
    outputs: dict[str, tuple[str, int]] = field(default_factory=dict)
    links: dict[str, Link] = field(default_factory=dict)
    """Inputs that are outputs of another model."""

    def kind(self, kinds: Sequence[str]) -> str:
        """Return the kind of the model, one of ``kinds``."""
        return next(kind for kind in kinds if self.model.startswith(f"{PREFIX}{kind}_"))

    def struct(self, kinds: Sequence[str]) -> str:
        """Return ``leaf::drain<16>`` for a cell of type ``leaf_drain_16``."""
        kind = self.kind(kinds)
        arguments = self.model.removeprefix(f"{PREFIX}{kind}_").split("_")
        return f"leaf::{kind}<{', '.join(arguments)}>"


def top_text(flat: str) -> str:
    """Return the text of the top module of a flattened design."""
    text = flat[flat.index(f"\nmodule \\{TOP}\n") :]
    return text[: text.index("\nend\n")]


def placed(top: str, kinds: Sequence[str]) -> list[Placed]:
    """Return the models of a design whose pins ``EVERT`` turned into ports, ordered by ``kinds``.

    An output that is connected only to inputs of models is not in ``outputs``. Inputs with the same
    driver, such as the reset of every model, share a port.
    """
    cells: dict[str, Placed] = {}
    where: dict[str, tuple[Placed, str]] = {}
    for width, direction, name, model, port in _PORT.findall(top):
        cell = name.removesuffix(f"{SEPARATOR}{port}")
        model = cells.setdefault(cell, Placed(cell, model))
        ports = model.inputs if direction == "output" else model.outputs
        ports[port] = (name, int(width or 1))
        where[name] = model, port
    connected = _CONNECT.findall(top)
    nets = {source[1:]: net for net, source in connected if source[1:] in where}
    _join(connected, nets, where)
    for model in cells.values():
        for port, (name, _) in list(model.outputs.items()):
            if not _taken(top, nets[name], model, port, cells):
                del model.outputs[port]
    return sorted(cells.values(), key=lambda model: (kinds.index(model.kind(kinds)), model.cell))


def _join(
    connected: Sequence[tuple[str, str]],
    nets: dict[str, str],
    where: dict[str, tuple[Placed, str]],
) -> None:
    """Link models that are connected to each other, and let inputs with one driver share a port."""
    givers = {net: where[name] for name, net in nets.items()}
    first: dict[str, str] = {}
    for to, net in connected:
        if to[1:] not in where or to[1:] in nets:
            continue
        model, port = where[to[1:]]
        whole, part = net, _SLICE.fullmatch(net)
        if part is not None:
            whole = part[1]
        if whole in givers:
            giver, taker = givers[whole]
            model.links[port] = _link(giver.cell, taker, part)
            del model.inputs[port]
        else:
            model.inputs[port] = first.setdefault(net, to[1:]), model.inputs[port][1]


def _link(cell: str, port: str, part: re.Match[str] | None) -> Link:
    if part is None:
        return Link(cell, port)
    highest, lowest = int(part[2]), int(part[3] or part[2])
    return Link(cell, port, lowest, highest - lowest + 1)


def _taken(top: str, net: str, model: Placed, port: str, cells: dict[str, Placed]) -> bool:
    """Return whether anything other than a model reads the driver of a net."""
    links = sum(
        (link.cell, link.port) == (model.cell, port)
        for other in cells.values()
        for link in other.links.values()
    )
    if re.search(rf"^  wire .*output \d+ {re.escape(net)}$", top, re.MULTILINE):
        return True
    # where it is declared, driven and linked
    return top.count(f"{net} ") + top.count(f"{net}\n") > 2 + links


def member(name: str) -> str:
    """Return the name that the compiled design gives to the port of a model."""
    return re.sub(r"\W|__", "_", name)  # Verilator renames two underscores in a row


def header(models: Sequence[Placed], kinds: Sequence[str]) -> str:
    """Return ``leaves.h``: the models and how they are connected to the compiled design.

    Raises ``AcceleratorError`` where outputs of one model depend on inputs of the same cycle
    (``SETTLED``, ``COMBINATIONAL``) and either side is connected to anything but models.
    """
    number = {model.cell: f"leaf{n}_" for n, model in enumerate(models)}
    before, settle, after = [], [], []
    for model in models:
        name, links = number[model.cell], {}
        for port, link in model.links.items():
            bits = "" if link.width is None else f"<{link.lowest}, {link.width}>"
            links[port] = f"leaf::link{bits}({name}.{port}, {number[link.cell]}.{link.port});"
        early = _settled(model, kinds)
        for port, (outer, width) in model.inputs.items():
            before.append(f"leaf::load<{width}>({name}.{port}, top.{member(outer)});")
        before += [line for port, line in links.items() if port not in early]
        (settle if early else before).extend([*(links[port] for port in early), f"{name}.comb();"])
        for port, (outer, width) in model.outputs.items():
            if port in COMBINATIONAL.get(model.kind(kinds), ()):
                raise AcceleratorError(
                    f"{model.cell}: logic outside of models takes {port}, which depends on inputs "
                    "of the same cycle"
                )
            after.append(f"leaf::store<{width}>(top.{member(outer)}, {name}.{port});")
    clocks = [f"{name}.clock();" for name in number.values()]
    return "\n".join(
        (
            "#pragma once",
            *(f'#include "leaves/{kind}.h"' for kind in kinds),
            "namespace trainwright {",
            "struct Leaves {",
            *(f"    {model.struct(kinds)} {number[model.cell]};" for model in models),
            "    // Inputs are those before a clock edge, outputs those after it.",
            "    template <typename Top>",
            "    void clock(Top &top) {",
            *(f"        {line}" for line in (*before, *clocks, *settle, *after)),
            "    }",
            "};",
            "}  // namespace trainwright\n",
        )
    )


def _settled(model: Placed, kinds: Sequence[str]) -> list[str]:
    """Return the model's inputs that outputs of the same cycle depend on."""
    prefixes = SETTLED.get(model.kind(kinds), ())
    names = [port for port in (*model.inputs, *model.links) if port.startswith(tuple(prefixes))]
    if missing := set(names) & set(model.inputs):
        raise AcceleratorError(f"{model.cell}: {min(missing)} does not come from a model")
    return names

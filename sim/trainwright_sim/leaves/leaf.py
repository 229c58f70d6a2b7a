"""A leaf block that a C++ model may stand for, and designs with such instead of blocks."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from amaranth.hdl import Cat, Elaboratable, Fragment, Instance, Module, ResetSignal, Signal, Value
from amaranth.lib.wiring import Component, Out, Signature

PREFIX = "leaf_"
"""Start of the type of a cell that stands for a model; the name of its C++ struct follows."""


@dataclass(frozen=True, kw_only=True)
class Leaf:
    """A block, and the template of its model ``native/leaves/*.h``."""

    block: type[Elaboratable]
    model: str
    """The C++ struct."""
    arguments: Callable[[Any], Mapping[str, int] | None]
    """The template arguments for a block, in order; ``None`` if the model does not cover it."""
    ports: Callable[[Any], tuple[Mapping[str, Value], Mapping[str, Value]]]
    """Inputs and outputs of a block that the model has, but for the reset."""
    fields: frozenset[str] = frozenset()
    """Fields of the block's ``command`` that the model reads."""


def flat(value: Any) -> Value:
    """Return a port as one value; the elements of an array are concatenated."""
    if isinstance(value, Sequence):
        return Cat(*(flat(element) for element in value))
    return Value.cast(value)


def members(block: Component) -> tuple[Mapping[str, Value], Mapping[str, Value]]:
    """Return the input and output ports of a component.

    Names of nested ports are joined with ``_``, and each array is one port.
    """
    ports: tuple[dict[str, Value], dict[str, Value]] = ({}, {})

    def collect(signature: Signature, interface: Any, prefix: str, outward: bool) -> None:
        for name, member in signature.members.items():
            value, out = getattr(interface, name), (member.flow == Out) == outward
            if member.is_signature:
                collect(member.signature, value, f"{prefix}{name}_", out)
            else:
                ports[out][f"{prefix}{name}"] = flat(value)

    collect(block.signature, block, "", True)
    return ports


class _Recorder:
    """A command that notes which of its fields are read."""

    def __init__(self, command: Any):
        self._command = command
        self.read: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self.read.add(name)
        return self._command[name]

    __getattr__ = __getitem__


def _check_fields(leaf: Leaf, block: Any, elaborate: Callable[[Any, Any], Any]) -> None:
    """Raise ``ValueError`` where ``block`` reads a field of its command that the model ignores.

    The block is elaborated to find out: its logic is the only list of what it reads, and a model
    that passes over a field computes something else without a word.
    """
    command = getattr(block, "command", None)
    if command is None:
        return
    recorder = _Recorder(command)
    block.command = recorder
    try:
        Fragment.get(elaborate(block, None), None)  # all of it: what is left over would warn
    finally:
        block.command = command
    if unknown := sorted(recorder.read - leaf.fields):
        raise ValueError(
            f"{leaf.block.__name__} reads {', '.join(unknown)} of its command, which its model "
            f"native/leaves/{leaf.model}.h does not know: implement it there and name it in "
            "leaves/catalogue.py, or simulate with --engine verilator"
        )


def _declaration(name: str, inputs: Mapping[str, Value], outputs: Mapping[str, Value]) -> str:
    """Return the RTLIL of a black-box module, which has ports and no content."""
    ports = [("input", port, value) for port, value in inputs.items()]
    ports += [("output", port, value) for port, value in outputs.items()]
    lines = [
        f"  wire width {len(value)} {direction} {number} \\{port}"
        for number, (direction, port, value) in enumerate(ports, 1)
    ]
    return "\n".join(("attribute \\blackbox 1", f"module \\{name}", *lines, "end", ""))


def _instance(
    leaf: Leaf, block: Any, arguments: Mapping[str, int], declared: dict[str, str]
) -> Module:
    """Return a module in which a cell stands for the block, and declare the cell's module.

    The cell's type encodes the arguments of the C++ template.
    """
    m = Module()
    inputs, outputs = leaf.ports(block)
    name = "_".join((f"{PREFIX}{leaf.model}", *map(str, arguments.values())))
    declared[name] = _declaration(name, {"rst": Signal(), **inputs}, outputs)
    m.submodules[name] = Instance(
        name,
        i_rst=ResetSignal(),
        **{f"i_{name}": value for name, value in inputs.items()},
        **{f"o_{name}": value for name, value in outputs.items()},
    )
    return m


@contextmanager
def replaced(leaves: Sequence[Leaf], uncovered: set[str] | None = None) -> Iterator[dict[str, str]]:
    """Replace blocks that have models by cells, while designs are converted to RTLIL.

    The context yields the RTLIL modules of these cells by name; they must be added to the design's
    RTLIL. Blocks of ``leaves`` that stay as they are, since no model covers their parameters, are
    added to ``uncovered``.
    """
    declared: dict[str, str] = {}
    originals = {leaf.block: leaf.block.elaborate for leaf in leaves}

    def elaborate_of(leaf: Leaf) -> Callable[[Any, Any], Any]:
        original = originals[leaf.block]

        def elaborate(self: Any, platform: Any) -> Any:
            arguments = leaf.arguments(self)
            if arguments is None and uncovered is not None:
                uncovered.add(leaf.block.__name__)
            if platform is not None or arguments is None:
                return original(self, platform)
            _check_fields(leaf, self, original)
            return _instance(leaf, self, arguments, declared)

        return elaborate

    for leaf in leaves:
        leaf.block.elaborate = elaborate_of(leaf)
    try:
        yield declared
    finally:
        for block, original in originals.items():
            block.elaborate = original

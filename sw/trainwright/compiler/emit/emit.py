"""Emit the descriptors of one program, with the engines that each has to wait for.

This module makes transfers, ``trainwright.compiler.forms.nests`` loop nests. Shifts stay 0: they
follow from exponents when a program is bound (``base.compiled``).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from trainwright.compiler.base.commands import Commands
from trainwright.compiler.base.digits import most_bits
from trainwright.compiler.base.limits import require_accumulator
from trainwright.compiler.base.memory import Buffer
from trainwright.compiler.base.rules import COPIES
from trainwright.compiler.forms.calls import (
    ArrayCall,
    Call,
    Clear,
    Contract,
    Move,
    PassCall,
)
from trainwright.compiler.forms.layout import Addresses, Part, RowLevel, joined_levels
from trainwright.compiler.forms.nests import address_of, fitted, nests, whole_and_rest
from trainwright.compiler.tile.tile import Lowered
from trainwright.graph.ir import Graph
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import (
    Compute,
    Descriptor,
    Halt,
    Transfer,
    TransferLevel,
)
from trainwright.program.fields import Operation


@dataclass(frozen=True)
class Product:
    """Tensor that a descriptor makes."""

    tensor: str
    exact: bool = False
    """Whether the descriptor copies the tensor, or adds two parts of it: then no exponent moves."""


class Emitter:
    """Emitter of the descriptors of one program."""

    def __init__(self, graph: Graph, p: AcceleratorParameters, buffers: Mapping[str, Buffer]):
        self.graph, self.p, self.buffers = graph, p, buffers
        self._commands = Commands(p)
        self.descriptors = self._commands.descriptors
        self.products: dict[int, Product] = {}
        """Tensor that each descriptor makes, by the descriptor's index."""
        self.slots: dict[str, int] = {}

    def run(self, calls: Sequence[Call], at: Addresses) -> None:
        """Emit all commands and the end of the program; ``at`` has the rows of their pieces."""
        for call in calls:
            match call:
                case ArrayCall():
                    if isinstance(call, Contract):
                        self._check(call)
                    for d in nests(call, self.p, at):
                        self._compute(d, call)
                case PassCall():
                    self._passes(call, at)
                case Move():
                    self._move(call, at)
                case Clear():
                    self._clear(call, at)
        self.descriptors.append(Halt())

    def _check(self, call: Contract) -> None:
        operands = self.graph.tensors[call.impl.x].format, self.graph.tensors[call.impl.g].format
        x, z = call.reads[0].counts, call.writes[0].counts
        terms = prod(count for axis, count in x.items() if axis not in z)
        # Count the terms of this command only: each part of a sum in parts is rounded by itself.
        require_accumulator(terms, operands, self.p, call.op.out)

    def _passes(self, call: PassCall, at: Addresses) -> None:
        slot = 0
        if call.passes.automatic:
            self.slots.setdefault(COPIES, len(self.slots))  # keep slot 0, of passes without counts
            slot = self.slots.setdefault(call.op.out, len(self.slots))
        z, *joined = call.writes
        bases = [address_of(part, at) for part in (*call.reads, z)]
        scratch = address_of(joined[0], at) if joined else 0
        for code, d in call.passes.vectors(bases, scratch):
            entry = self._commands.hold(code.instructions)
            self.products[len(self.descriptors)] = Product(call.op.out)
            self._commands.add(replace(d, entry=entry, slot=slot))

    def _format(self, operand: Part) -> int:
        """Return the number of an operand's format; constants, 0, are in fixed point."""
        tensor = self.graph.tensors.get(operand.piece.tensor)
        return self.p.format_number(tensor.format) if tensor else 0

    def _compute(self, d: Compute, call: ArrayCall) -> None:
        """Emit a loop nest, which is a command of an array or a part of one."""
        (x, g), (z,) = call.reads, call.writes
        name = z.piece.tensor
        tensor, label, width = self.graph.tensors[name], name, self.graph.tensors[name].format.width
        # A product with a constant is a copy: of rows, or of values in another number of digits.
        if not {x.piece.tensor, g.piece.tensor} <= self.graph.tensors.keys():
            label, again = f"{name} copy", max(x.digits, g.digits) != z.digits
            width = most_bits(z.digits, self.p) if again else self.p.word_width
        # Slots are numbered as tensors appear. A program of more slots than the accelerator has is
        # executed in several runs (``program.segments``).
        slot = self.slots.setdefault(name if call.counted else COPIES, len(self.slots))
        d = replace(
            d,
            tensor=label,
            slot=slot,
            out_width=width,
            x_format=self._format(x),
            g_format=self._format(g),
            z_format=self._format(z),
            underflow_zero=tensor.zero,
        )
        for part in fitted(d, self.p.nest_levels):
            self.products[len(self.descriptors)] = Product(name, call.exact)
            self._commands.add(part)

    def _move(self, call: Move, at: Addresses) -> None:
        """Emit the transfers of a piece, in as few bursts as its two layouts allow."""
        (part,), outer = call.writes or call.reads, call.outer
        source = Part(outer.piece, part.ranges)
        levels, run = _runs(part, source)
        row_bytes, buffer = outer.element_bytes * self.p.lanes, self.buffers[outer.name]
        first = buffer.address + source.offset * row_bytes
        reach = sum((level.count - 1) * level.steps[1] for level in levels) + run
        # A transfer beyond its buffer would overwrite another tensor without any error.
        assert first + reach * row_bytes <= buffer.stop, (outer.name, first, reach, buffer)
        steps = [TransferLevel(n.count, n.steps[1] * row_bytes, n.steps[0]) for n in levels]
        self._commands.move(
            Operation.LOAD if call.writes else Operation.STORE, outer.tensor, first,
            address_of(part, at), run, outer.element_bytes, steps,
        )  # fmt: skip

    def _clear(self, call: Clear, at: Addresses) -> None:
        buffer, lanes = self.buffers["zeros"], self.p.lanes
        # Zeros are loaded from one block of ``lanes`` rows in memory, again and again.
        base = at[call.targets[0]] + call.first
        for first, times, rows in whole_and_rest(call.rows, lanes):
            counts = ((call.times, call.step), (times, lanes))
            levels = tuple(TransferLevel(n, 0, by) for n, by in counts if n > 1)
            self._commands.add(
                Transfer(
                    operation=Operation.LOAD,
                    address=buffer.address,
                    local=base + first * lanes,
                    beats=rows,
                    levels=levels,
                    element_bytes=1,
                    tensor="zeros",
                )
            )


def _runs(part: Part, source: Part) -> tuple[list[RowLevel], int]:
    """Return the loops over the runs of a transfer, and the rows of a run.

    Rows of a run are contiguous both in the scratchpad (``part``) and in its buffer (``source``).
    Each level steps through the scratchpad and through the buffer.
    """
    piece, stored = part.piece, source.piece
    # If both sides have the same rows, padding included, one run moves the whole piece.
    same = piece.steps is None and stored.rows == piece.rows and source.offset == 0
    local_layout, stored_layout = piece.layout, stored.layout
    same &= local_layout.rows == stored_layout.rows and local_layout.padded == stored_layout.padded
    if same and part.counts == dict(piece.counts):
        levels = [RowLevel(stored.rows, (1, 1))]
    else:
        # In the order of the rows in the scratchpad, so that inner levels can join to a run.
        levels = [
            RowLevel(part.counts[axis], (part.stride(axis), source.stride(axis)))
            for axis in local_layout.rows
        ]
        levels.append(RowLevel(part.blocks * part.digits, (1, 1)))
    levels, run = joined_levels(levels), 1
    # Innermost levels that are contiguous on both sides become one run, as each run costs a burst.
    while levels and levels[-1].steps == (run, run):
        run *= levels.pop().count
    return levels, run


@dataclass(frozen=True)
class Emitted:
    """Emitted program: descriptors without shifts, and the tensors that they make."""

    lowered: Lowered
    descriptors: tuple[Descriptor, ...]
    products: Mapping[int, Product]
    """Tensor that each descriptor makes, by its index."""
    slots: tuple[str, ...]
    """Tensor of each statistics slot; ``COPIES`` stands for all copies."""
    address: int


def emitted(
    lowered: Lowered, p: AcceleratorParameters, buffers: Mapping[str, Buffer], program: str = ""
) -> Emitted:
    """Emit a placed program; ``buffers`` has its tensors, and, named ``program``, the program."""
    emitter = Emitter(lowered.graph, p, buffers)
    emitter.run(lowered.calls, lowered.addresses)
    descriptors, slots = tuple(emitter.descriptors), tuple(emitter.slots)
    address = buffers[program].address if program else 0
    return Emitted(lowered, descriptors, emitter.products, slots, address)

"""Emit the descriptors of one program, with the engines that each has to wait for.

Transfers are made here, loop nests in ``trainwright.compiler.forms.nests``. Shifts are left out:
they follow from exponents when a program is bound (``base.compiled``).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from trainwright.compiler.base.commands import Commands
from trainwright.compiler.base.digits import most_bits
from trainwright.compiler.base.limits import MOST_COUNT, require_accumulator
from trainwright.compiler.base.memory import Buffer, largest_divisor
from trainwright.compiler.base.rules import COPIES
from trainwright.compiler.forms.calls import (
    ArrayCall,
    Call,
    Clear,
    Contract,
    Move,
    PassCall,
)
from trainwright.compiler.forms.external import External
from trainwright.compiler.forms.layout import Addresses, Part
from trainwright.compiler.forms.nests import address_of, fitted, nests
from trainwright.compiler.forms.passes import pass_vectors
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
from trainwright.program.fields import TRANSFER_LEVELS, Operation


@dataclass(frozen=True)
class Product:
    """Tensor that a descriptor makes; operations' own tensors are in the graph."""

    tensor: str
    exact: bool = False
    """Whether it is a copy of the tensor, or two parts of it added: both at its exponent."""


class Emitter:
    """Descriptors of one program."""

    def __init__(self, graph: Graph, p: AcceleratorParameters, buffers: Mapping[str, Buffer]):
        self.graph, self.p, self.buffers = graph, p, buffers
        self._commands = Commands(p)
        self.descriptors = self._commands.descriptors
        self.products: dict[int, Product] = {}
        """Tensor that each descriptor makes, by the descriptor's index."""
        self.slots: dict[str, int] = {}

    def run(self, calls: Sequence[Call], at: Addresses) -> None:
        """Emit all commands, whose pieces lie ``at`` these rows, and the end of the program."""
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
        # By the terms of this command: a sum in parts is checked part by part, as each part is
        # rounded.
        require_accumulator(terms, operands, self.p, call.op.out)

    def _passes(self, call: PassCall, at: Addresses) -> None:
        slot = 0
        if call.passes.kernel.automatic:
            self.slots.setdefault(COPIES, len(self.slots))  # slot 0 says that a pass counts nothing
            slot = self.slots.setdefault(call.op.out, len(self.slots))
        for code, d in pass_vectors(call, at):
            entry = self._commands.hold(code.instructions)
            self.products[len(self.descriptors)] = Product(call.op.out)
            self._commands.add(replace(d, entry=entry, slot=slot))

    def _format(self, operand: Part) -> int:
        """Return the number of an operand's format; constants are in fixed point."""
        tensor = self.graph.tensors.get(operand.piece.tensor)
        return self.p.format_number(tensor.format) if tensor else 0

    def _compute(self, d: Compute, call: ArrayCall) -> None:
        """Emit a nest of a command of an array."""
        (x, g), (z,) = call.reads, call.writes
        name = z.piece.tensor
        tensor, label, width = self.graph.tensors[name], name, self.graph.tensors[name].format.width
        # A sum or a product with a constant is a copy: of rows, or of values that are cut anew.
        if not {x.piece.tensor, g.piece.tensor} <= self.graph.tensors.keys():
            label, again = f"{name} copy", max(x.digits, g.digits) != z.digits
            width = most_bits(z.digits, self.p) if again else self.p.word_width
        # Slots are numbered as tensors appear; a program with more of them than the accelerator has
        # is executed in several runs (``program.segments``).
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
        (part,), outer = call.writes or call.reads, call.outer
        operation = Operation.LOAD if call.writes else Operation.STORE
        buffer = self.buffers[outer.name]
        # Runs of rows go between the buffer and the piece.
        placed, source = outer.piece, Part(outer.piece, part.ranges)
        row_bytes = outer.element_bytes * self.p.lanes
        # The same rows on both sides, padding included: one run moves all of them.
        same = part.piece.steps is None and placed.rows == part.piece.rows and source.offset == 0
        same &= (placed.layout.rows, placed.layout.padded) == (
            part.piece.layout.rows,
            part.piece.layout.padded,
        )
        if same and part.counts == dict(part.piece.counts):
            axes = [(placed.rows, 1, 1)]
        else:
            axes = [
                (part.counts[a], source.stride(a), part.stride(a)) for a in part.piece.layout.rows
            ]
            axes.append((part.blocks * part.digits, 1, 1))
        # Innermost axes that are contiguous on both sides become one run of beats: each run costs a
        # burst.
        run = 1
        axes = [axis for axis in axes if axis[0] > 1]
        # By the stride in the scratchpad, so that the innermost axis is the one that can join a
        # run.
        axes.sort(key=lambda axis: -axis[2])
        while axes and axes[-1][1] == axes[-1][2] == run:
            run *= axes.pop()[0]
        axes = _joined(axes)
        first = source.offset
        # A count has 16 bits; a longer run is split evenly, so that one level of the transfer does
        # it.
        most = largest_divisor(run, MOST_COUNT // outer.element_bytes)
        if most != run:
            axes.append((run // most, most, most))
            run = most
        self._runs(operation, buffer, outer, axes, run, row_bytes, first, address_of(part, at))

    def _runs(
        self,
        operation: Operation,
        buffer: Buffer,
        outer: External,
        axes: list[tuple[int, int, int]],
        run: int,
        row_bytes: int,
        first: int,
        local: int,
    ) -> None:
        # More axes than a transfer has levels: unroll the one with the largest stride.
        if len(axes) > TRANSFER_LEVELS:
            count, far, near = axes[0]
            for n in range(count):
                self._runs(
                    operation, buffer, outer, axes[1:], run, row_bytes,
                    first + n * far, local + n * near,
                )  # fmt: skip
            return
        address = buffer.address + first * row_bytes
        reach = sum((count - 1) * far for count, far, _ in axes) + run
        stop = address + reach * row_bytes
        # A transfer beyond its buffer would overwrite another tensor without any error.
        assert stop <= buffer.stop, (outer.name, stop, buffer)
        self._commands.add(
            Transfer(
                operation=operation,
                address=address,
                local=local,
                beats=run * outer.element_bytes,
                levels=tuple(TransferLevel(n, far * row_bytes, near) for n, far, near in axes),
                element_bytes=outer.element_bytes,
                tensor=outer.tensor,
            )
        )

    def _clear(self, call: Clear, at: Addresses) -> None:
        buffer, lanes = self.buffers["zeros"], self.p.lanes
        # Zeros are loaded from one block of ``lanes`` rows in memory, again and again.
        base = at[call.targets[0]] + call.first
        whole, rest = divmod(call.rows, lanes)
        for start, times, rows in ((0, whole, lanes), (whole * lanes, 1, rest)):
            if times and rows:
                counts = ((call.times, call.step), (times, lanes))
                levels = tuple(TransferLevel(n, 0, by) for n, by in counts if n > 1)
                self._commands.add(
                    Transfer(
                        operation=Operation.LOAD,
                        address=buffer.address,
                        local=base + start,
                        beats=rows,
                        levels=levels,
                        element_bytes=1,
                        tensor="zeros",
                    )
                )


def _joined(axes: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Join adjacent axes where both addresses go on evenly."""
    joined: list[tuple[int, int, int]] = []
    for count, far, near in axes:
        if joined and joined[-1][1] == count * far and joined[-1][2] == count * near:
            joined[-1] = (joined[-1][0] * count, far, near)
        else:
            joined.append((count, far, near))
    return joined


@dataclass(frozen=True)
class Emitted:
    """Program: descriptors without shifts, and what each of them makes."""

    lowered: Lowered
    descriptors: tuple[Descriptor, ...]
    products: Mapping[int, Product]
    """Tensor that each descriptor makes, by its index."""
    slots: tuple[str, ...]
    """Names of the tensors counted in each statistics slot; ``copies`` for transposed copies."""
    address: int


def emitted(
    lowered: Lowered, p: AcceleratorParameters, buffers: Mapping[str, Buffer], program: str = ""
) -> Emitted:
    """Emit a program that is placed, with its tensors and itself in ``buffers``."""
    emitter = Emitter(lowered.graph, p, buffers)
    emitter.run(lowered.calls, lowered.addresses)
    descriptors, slots = tuple(emitter.descriptors), tuple(emitter.slots)
    address = buffers[program].address if program else 0
    return Emitted(lowered, descriptors, emitter.products, slots, address)

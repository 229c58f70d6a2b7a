"""Check how far a program reaches: every address that it forms, and all the work that it does.

Loops have fixed counts and registers fixed steps, so addresses and work follow without executing
anything: a register that a loop moves takes values from its first to its last iteration's.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Compute, Descriptor, End, Loop, Set, Transfer
from trainwright.program.errors import ProgramError
from trainwright.program.exponents import MoveScales
from trainwright.program.fields import REGISTERS
from trainwright.program.footprint import external, footprint
from trainwright.program.samples import Samples
from trainwright.program.table import name_of
from trainwright.program.vector import Vector

MOST_STEPS = 1 << 32
"""Limit of a program's steps: tiles x terms of computations, and beats of transfers."""
MOST_EXECUTED = 1 << 20
"""Limit of the descriptors that a program executes, with loops unrolled."""


@dataclass(frozen=True)
class Span:
    """Range of an address register's values; ``whole``: all of them are multiples of a beat."""

    low: int = 0
    high: int = 0
    whole: bool = True


@dataclass(frozen=True)
class Change:
    """Change of a register by a stretch of a program.

    The register becomes ``value`` + ``step``, or grows by ``step`` where ``value`` is None.
    """

    value: int | None = None
    step: int = 0


@dataclass
class Block:
    """The body of a loop, or a whole program."""

    iterations: int
    parts: list["tuple[int, Descriptor] | Block"] = field(default_factory=list)
    """Descriptors with their numbers, and loops."""
    steps: tuple[tuple[int, int], ...] = ()

    def changes(self) -> list[Change]:
        """Return the change of each register in an iteration."""
        changes = [Change()] * REGISTERS
        for part in self.parts:
            if isinstance(part, Block):
                changes = [
                    inner if inner.value is not None
                    else Change(outer.value, outer.step + part.iterations * inner.step)
                    for outer, inner in zip(changes, part.changes(), strict=True)
                ]  # fmt: skip
            elif isinstance(part[1], Set):
                for register, value in part[1].values:
                    changes[register] = Change(value)
        for register, step in self.steps:
            changes[register] = Change(changes[register].value, changes[register].step + step)
        return changes


def _nested(body: Sequence[Descriptor], most: int) -> Block:
    """Return the loops of a program; raise ``ProgramError`` where they do not match."""
    inside = [Block(1)]
    for number, d in enumerate(body):
        if isinstance(d, Loop):
            if len(inside) > most:
                raise ProgramError(
                    f"descriptor {number}: loops nested {len(inside)} deep, the accelerator takes "
                    f"{most}; use one with a larger loop_depth"
                )
            inside.append(Block(d.iterations))
            inside[-2].parts.append(inside[-1])
        elif isinstance(d, End):
            if len(inside) == 1:
                raise ProgramError(f"descriptor {number}: an END has no LOOP")
            inside.pop().steps = d.steps
        else:
            inside[-1].parts.append((number, d))
    if len(inside) > 1:
        raise ProgramError("a LOOP has no END before HALT")
    return inside[0]


@dataclass
class _Walk:
    """Walk over a program that visits each descriptor once, with every value of its registers.

    Within a loop a register's span covers all iterations.
    """

    p: AcceleratorParameters
    memory_bytes: int
    registers: list[Span] = field(default_factory=lambda: [Span()] * REGISTERS)
    steps: int = 0
    executed: int = 0

    def block(self, block: Block, times: int) -> None:
        times *= block.iterations
        self._count(times)  # LOOP, END
        changes = block.changes()
        before = self.registers
        self.registers = [
            self._within(span, change, block.iterations)
            for span, change in zip(before, changes, strict=True)
        ]
        for part in block.parts:
            if isinstance(part, Block):
                self.block(part, times)
            else:
                self._descriptor(*part, times)
        self.registers = [
            self._after(span, change, block.iterations)
            for span, change in zip(before, changes, strict=True)
        ]

    def _whole(self, value: int) -> bool:
        return value % self.p.beat_bytes == 0

    def _within(self, span: Span, change: Change, iterations: int) -> Span:
        """Return the span of a register at the start of any iteration."""
        if iterations == 1:
            return span
        if change.value is not None:
            again = change.value + change.step
            whole = span.whole and self._whole(again)
            return Span(min(span.low, again), max(span.high, again), whole)
        far = (iterations - 1) * change.step
        whole = span.whole and self._whole(change.step)
        return Span(span.low + min(far, 0), span.high + max(far, 0), whole)

    def _after(self, span: Span, change: Change, iterations: int) -> Span:
        """Return the span of a register after the last iteration."""
        if change.value is not None:
            value = change.value + change.step
            return Span(value, value, self._whole(value))
        moved = iterations * change.step
        return Span(span.low + moved, span.high + moved, span.whole and self._whole(moved))

    def _descriptor(self, number: int, d: Descriptor, times: int) -> None:
        if isinstance(d, Set):
            for register, value in d.values:
                self.registers[register] = Span(value, value, self._whole(value))
            self._count(times)
        elif isinstance(d, MoveScales):
            self._count(times, times * len(d.entries))
        elif isinstance(d, Compute | Transfer | Samples | Vector):
            if isinstance(d, Samples):
                steps = d.samples * d.record_beats
            else:
                steps = d.runs * d.beats if isinstance(d, Transfer) else d.steps
            self._count(times, times * steps)
            named = f"descriptor {number}: {name_of(d)}"
            self._inside(d, named)
            if isinstance(d, Transfer | Samples):
                self._outside(d, named)

    def _count(self, executed: int, steps: int = 0) -> None:
        self.executed += executed
        self.steps += steps
        for count, most, what in (
            (self.executed, MOST_EXECUTED, "descriptors"),
            (self.steps, MOST_STEPS, "steps"),
        ):
            if count > most:
                raise ProgramError(
                    f"the program executes at least {count:,} {what}, at most {most:,} can be; "
                    "give its loops smaller counts"
                )

    def _inside(self, d: Compute | Transfer | Samples | Vector, named: str) -> None:
        low, high = (footprint(self._moved(d, end), self.p) for end in ("low", "high"))
        for least, most in zip(low, high, strict=True):
            if least.start < 0 or most.stop > self.p.scratchpad_rows:
                raise ProgramError(
                    f"{named} {'writes' if least.write else 'reads'} "
                    f"{least.space}[{least.start}] to [{most.stop - 1}]; it has "
                    f"{self.p.scratchpad_rows} rows"
                )

    def _moved(
        self, d: Compute | Transfer | Samples | Vector, end: str
    ) -> Compute | Transfer | Samples | Vector:
        """Add the ``low`` or ``high`` ``end`` of registers' spans to ``d``'s addresses of rows."""

        def at(base: int, register: int) -> int:
            return base + getattr(self.registers[register], end)

        if isinstance(d, Vector):  # no register moves its streams
            return d
        if isinstance(d, Transfer | Samples):
            return replace(d, local=at(d.local, d.local_register))
        x, g, z = at(d.x, d.x_register), at(d.g, d.g_register), at(d.z, d.z_register)
        return replace(d, x=x, g=g, z=z)

    def _outside(self, d: Transfer | Samples, named: str) -> None:
        span = self.registers[d.address_register]
        if not span.whole:
            raise ProgramError(
                f"{named}: R{d.address_register} is not always a multiple of the "
                f"{self.p.beat_bytes} bytes of a beat"
            )
        low, high = external(d, self.p)
        low, high = low + span.low, high + span.high
        if low < 0 or high > self.memory_bytes:
            raise ProgramError(
                f"{named}: bytes {low} to {high - 1} are outside of a memory of "
                f"{self.memory_bytes} bytes"
            )


def check_reach(body: Sequence[Descriptor], p: AcceleratorParameters, memory_bytes: int) -> None:
    """Raise ``ProgramError`` where descriptors, each of them valid, reach too far together.

    Loops must match and nest no deeper than ``loop_depth``. Addresses must be inside the memories,
    those of external memory at a beat. ``MOST_STEPS`` and ``MOST_EXECUTED`` limit the work.
    """
    _Walk(p, memory_bytes).block(_nested(body, p.loop_depth), 1)

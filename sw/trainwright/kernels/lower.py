"""Turn a traced kernel into instructions of the vector engine.

Passes, in order: drop unused values; merge a step into its only user; predicate the steps of
``where``; fold reads and writes of memory into instructions; assign registers by linear scan;
number streams and constants.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from trainwright.kernels.trace import (
    Body,
    Constant,
    Effect,
    GivenShift,
    KernelError,
    Op,
    Value,
    trace,
)
from trainwright.program.vector import (
    CODE_DEPTH,
    CONSTANTS,
    REGISTERS,
    STREAMS,
    WIDTH,
    Addend,
    Instruction,
    Kind,
    Memory,
    Rounding,
    ShiftBy,
    Stream,
    Total,
    Vector,
    When,
)

COMMUTATIVE = (Kind.PRODUCT, Kind.MAXIMUM, Kind.MINIMUM, Kind.AND)
"""Kinds whose two operands may be exchanged."""


@dataclass(frozen=True)
class VectorPass:
    """Instructions of a kernel, with the constants and streams that its VECTOR descriptor needs."""

    instructions: tuple[Instruction, ...]
    constants: tuple[int, ...]
    streams: tuple[str, ...]
    """Names of the streams, by number."""
    reads: int
    """Mask of the streams that are read."""
    writes: int
    """Mask of the streams that are written."""

    def vector(self, streams: Mapping[str, Stream], **fields: Any) -> Vector:
        """Make the descriptor of this pass over ``streams``, with further ``fields``."""
        return Vector(
            entry=0, length=len(self.instructions), reads=self.reads, writes=self.writes,
            streams=tuple(streams[name] for name in self.streams), constants=self.constants,
            **fields,
        )  # fmt: skip


def lower_body(body: Body) -> VectorPass:
    """Compile a traced body. Raises ``KernelError`` like `lower`."""
    return _Lowering(body).run()


@lru_cache(512)
def _lowered(kernel: Callable[..., None], options: tuple[tuple[str, Any], ...]) -> VectorPass:
    return lower_body(trace(kernel, **dict(options)))


def lower(kernel: Callable[..., None], **options: Any) -> VectorPass:
    """Compile a kernel with hashable ``options``, or return the pass of an equal earlier call.

    Raises ``KernelError`` if the kernel needs more registers, streams, constants or
    instructions than the engine has.
    """
    return _lowered(kernel, tuple(sorted(options.items())))


@dataclass(eq=False)
class _Slot:
    """Instruction under construction, around the step that gives its result."""

    v: Value
    order: int
    """Place of the step or effect in the text of the kernel."""
    memory: Memory = Memory.NONE
    stream: str = ""
    total: Total = Total.NONE
    condition: Value | None = None
    when: When = When.ALWAYS
    old: "Value | None" = None
    keeps: list[int] = field(default_factory=list)
    """Registers that the result must end in."""

    @property
    def operands(self) -> list[Value]:
        """Values that the instruction reads from registers."""
        own = [v for v in self.v.operands if self.memory is not Memory.READ or v is not self.v.a]
        return [*own, *(v for v in (self.condition, self.old) if v is not None)]


class _Lowering:
    """State of a lowering; each method is one pass over the instructions in ``slots``."""

    def __init__(self, body: Body) -> None:
        self.body = body
        self.steps = list(body.steps)
        self.slots: list[_Slot] = []
        self.slot_of: dict[Value, _Slot] = {}

    def run(self) -> VectorPass:
        """Run the passes in order."""
        self._drop_unused()
        self._merge()
        self._predicate()
        self._fold_reads()
        self._place_effects()
        self.slots.sort(key=lambda slot: slot.order)
        return self._number(_Allocation(self).run())

    # -- values --------------------------------------------------------------------------------
    def _uses(self) -> dict[Value, list[Value | Effect]]:
        uses: dict[Value, list[Value | Effect]] = {}
        for step in self.steps:
            for v in step.operands if isinstance(step, Value) else (step.value,):
                uses.setdefault(v, []).append(step)
        return uses

    def _drop_unused(self) -> None:
        needed = {step.value for step in self.steps if isinstance(step, Effect)}
        for step in reversed(self.steps):
            if isinstance(step, Value) and step in needed:
                needed.update(step.operands)
        self.steps = [s for s in self.steps if isinstance(s, Effect) or s in needed]

    def _merge(self) -> None:
        """Merge values into the addition, shift or fit that is their only user."""
        for step in [s for s in self.steps if isinstance(s, Value)]:
            if step.kind is Kind.PASS and not self._absorb(step) and _is_plain_sum(step):
                step.a, step.c = step.c, step.a  # the sum of both, in the other order
                if not self._absorb(step):
                    step.a, step.c = step.c, step.a

    def _absorb(self, step: Value) -> bool:
        # An instruction applies its kind to two operands, adds an addend, shifts, and fits to a
        # width. A chain of steps in this order becomes one instruction, unless another step reads
        # an intermediate value.
        producer = step.a
        if producer is None or isinstance(producer.kind, Op):
            return False
        if self._uses()[producer] != [step] or not _can_join(producer, step):
            return False
        adds = step.c is not None or step.k is not None
        # Let the step do the work of its producer: the users of the step then need not change.
        step.kind, step.a, step.s, step.table = (
            producer.kind,
            producer.a,
            producer.s,
            producer.table,
        )
        if not adds:
            step.c, step.sign, step.k = producer.c, producer.sign, producer.k
        # A shift of 0 has a rounding, too: k.fixed of a value in the result's units.
        if not step.is_shifted and (producer.is_shifted or step.rounding is Rounding.FLOOR):
            step.shift, step.rounding = producer.shift, producer.rounding
        if producer.width < WIDTH or producer.wraps:
            step.width, step.wraps = producer.width, producer.wraps
        self.steps.remove(producer)
        return True

    def _predicate(self) -> None:
        """Make every ``where`` an instruction that computes its new value in some lanes only."""
        uses = self._uses()
        for order, step in enumerate(self.steps):
            if not isinstance(step, Value) or step.kind in (Op.READ, Op.HELD):
                continue
            slot = _Slot(step, order)
            if step.kind is Op.WHERE:
                assert step.a is not None
                slot = self._predicated(step, order, alone=uses[step.a] == [step])
            self.slots.append(slot)
            self.slot_of[step] = slot
        # A new value that its ``where`` computes has a second instruction, for all lanes: drop it.
        hidden = {slot.v for slot in self.slots if slot.v not in self.slot_of}
        self.slots = [s for s in self.slots if not (s.v in hidden and s.when is When.ALWAYS)]

    def _predicated(self, step: Value, order: int, *, alone: bool) -> _Slot:
        new, condition = step.a, step.condition
        assert new is not None and condition is not None
        # The field c of an instruction is addend, shift and condition: join only if one value
        # serves for all. Otherwise compute the new value in all lanes, and copy it in some.
        joins = (
            alone
            and not isinstance(new.kind, Op)
            and (new.c is None or new.c is condition.value)
            and (not isinstance(new.shift, Value) or new.shift is condition.value)
        )
        v = new if joins else Value(body=self.body, a=new, low=new.low, high=new.high)
        if joins:
            del self.slot_of[new]
        return _Slot(v, order, condition=condition.value, when=condition.when, old=step.old)

    # -- memory --------------------------------------------------------------------------------
    def _fold_reads(self) -> None:
        """Let the only user of a word read it from memory, as its first operand."""
        uses = self._uses()
        for order, read in enumerate(self.steps):
            if not isinstance(read, Value) or read.kind is not Op.READ:
                continue
            users = [slot for slot in self.slots if read in slot.operands]
            values = [s for s in uses[read] if isinstance(s, Value)]
            # A word with several users, or whose user cannot read it, goes to a register first.
            if len(users) == 1 and len(values) == len(uses[read]) and self._takes(users[0], read):
                users[0].memory, users[0].stream = Memory.READ, read.stream
                continue
            v = Value(body=self.body, a=read, low=read.low, high=read.high)
            self.slot_of[read] = _Slot(v, order, memory=Memory.READ, stream=read.stream)
            self.slots.append(self.slot_of[read])

    @staticmethod
    def _takes(slot: _Slot, read: Value) -> bool:
        v = slot.v
        if slot.memory is not Memory.NONE:
            return False
        # Only the first operand can come from memory: exchange operands if the kind allows.
        if v.s is read and v.a is not read and v.kind in COMMUTATIVE:
            assert v.a is not None
            v.a, v.s = read, v.a
        if v.c is read and v.a is not read and _is_plain_sum(v):
            v.a, v.c = read, v.a
        return [operand for operand in slot.operands if operand is read] == [read] and v.a is read

    def _place_effects(self) -> None:
        """Attach writes, totals and kept registers to instructions, or to additional ones."""
        for order, step in enumerate(self.steps):
            if not isinstance(step, Effect):
                continue
            slot = self.slot_of.get(step.value)
            # Memory and totals take whole rows, but a predicated instruction gives some lanes only.
            free = slot is not None and slot.when is When.ALWAYS
            if step.stream and slot and free and slot.memory is Memory.NONE:
                slot.memory, slot.stream = Memory.WRITE, step.stream
            elif step.total and slot and free and slot.total is Total.NONE:
                slot.total = step.total
            elif step.register and slot:
                slot.keeps.append(step.register.number)
            else:
                self._add_effect(step, order)

    def _add_effect(self, step: Effect, order: int) -> None:
        v = Value(body=self.body, a=step.value, low=step.value.low, high=step.value.high)
        slot = _Slot(v, order, total=step.total)
        if step.stream:
            slot.memory, slot.stream = Memory.WRITE, step.stream
        if step.register:
            slot.keeps.append(step.register.number)
            self.slot_of[v] = slot  # its register may still be read: treat the copy as a value
        self.slots.append(slot)

    # -- registers -----------------------------------------------------------------------------
    def _number(self, instructions: list["_Draft"]) -> VectorPass:
        """Number streams in the order of the text, and constants."""
        names = [s.stream for s in self.steps if s.stream]
        streams = tuple(dict.fromkeys(names))
        if len(streams) > STREAMS:
            raise KernelError(f"{len(streams)} streams; the engine has {STREAMS}: use fewer")
        constants = _Constants(instructions, self.body.reserved)
        code = tuple(
            draft.finish(streams.index(draft.stream) if draft.stream else 0, constants)
            for draft in instructions
        )
        if len(code) >= CODE_DEPTH:
            raise KernelError(
                f"{len(code)} instructions; a pass has at most {CODE_DEPTH - 1}: cut the kernel"
            )
        masks = {
            memory: sum(1 << i.stream for i in code if i.memory is memory)
            for memory in (Memory.READ, Memory.WRITE)
        }
        return VectorPass(code, constants.values, streams, masks[Memory.READ], masks[Memory.WRITE])


def _is_plain_sum(v: Value) -> bool:
    return v.kind is Kind.PASS and v.c is not None and v.sign > 0


def _can_join(producer: Value, step: Value) -> bool:
    """Return whether one instruction does both: kind, addend, shift and fit, in this order."""
    adds = step.c is not None or step.k is not None
    shifts = step.is_shifted
    fitted = producer.width < WIDTH or producer.wraps
    shifted = producer.is_shifted
    # An instruction fits once, and adds before it shifts.
    if fitted or (shifted and (adds or shifts)):
        return False
    if adds and (producer.c is not None or producer.k is not None or producer.kind is Kind.TABLE):
        return False
    # An instruction has one constant.
    if step.k is not None and isinstance(producer.s, Constant) and producer.s != step.k:
        return False
    shift = step.shift if shifts else producer.shift
    addend = producer.c if step.c is None else step.c
    return not (isinstance(shift, Value) and addend is not None and addend is not shift)


@dataclass
class _Draft:
    """Instruction whose stream and constants have no numbers yet."""

    fields: dict[str, Any]
    stream: str = ""
    constant: Constant | None = None

    def finish(self, stream: int, constants: "_Constants") -> Instruction:
        """Make the instruction."""
        k = constants.number(self.constant) if self.constant else 0
        return Instruction(**self.fields, stream=stream, k=k)


class _Constants:
    """Constants of a pass: given ones (from exponents) at fixed places, literals at free places."""

    def __init__(self, drafts: list[_Draft], reserved: int) -> None:
        asked = list(dict.fromkeys(d.constant for d in drafts if d.constant))
        self._places = {c: c.given for c in asked if c.given is not None}
        # Given constants have fixed places, because a program is bound without knowing its kernels.
        taken = {*self._places.values(), *range(reserved)}
        literals = [c for c in asked if c.given is None]
        free = [n for n in range(len(literals) + len(taken)) if n not in taken]
        self._places |= dict(zip(literals, free, strict=False))
        size = max(self._places.values(), default=-1) + 1
        if size > CONSTANTS:
            raise KernelError(f"{size} constants; the engine has {CONSTANTS}: use fewer")
        values = [0] * size
        for constant, place in self._places.items():
            values[place] = constant.value
        self.values = tuple(values)

    def number(self, constant: Constant) -> int:
        """Return the place of a constant."""
        return self._places[constant]


class _Allocation:
    """Registers by linear scan over the instructions of a kernel."""

    def __init__(self, work: _Lowering) -> None:
        self.work, self.slots = work, work.slots
        self.step_of = {id(slot): step for step, slot in work.slot_of.items()}
        held = [s for s in work.steps if isinstance(s, Value) and s.kind is Op.HELD]
        self.register: dict[Value, int] = {v: v.register.number for v in held if v.register}
        self.last: dict[Value, int] = {}
        for n, slot in enumerate(self.slots):
            for v in slot.operands:
                self.last[v] = n
        self.keeps = {number for slot in self.slots for number in slot.keeps}
        self.pinned = {number for v, number in self.register.items()} - work.body.taken
        for v, number in self.register.items():
            if number in self.keeps or number in work.body.taken:
                self.last.setdefault(v, -1)
        busy = {*self.register.values(), *work.body.preserved}
        self.free = [n for n in range(REGISTERS) if n not in busy]
        # Prefer registers that no value must end in, so that the others are free when their value
        # is computed.
        self.free.sort(key=lambda number: (number in self.keeps, number))
        self.drafts: list[_Draft] = []

    def run(self) -> list[_Draft]:
        """Assign registers and write the instructions."""
        moves: list[tuple[int, Value]] = []
        for n, slot in enumerate(self.slots):
            step = self.step_of.get(id(slot))
            d = self._destination(n, slot, step)
            source = {v: self.register[v] for v in slot.operands}
            # An instruction reads before it writes, so an operand that dies frees its register at
            # once, unless the result has just taken it.
            self._release(n, slot, d)
            if d is not None and step is not None:
                self.register[step] = d
            self._write(slot, source, d)
            for number in slot.keeps:
                if number == d:
                    self.pinned.add(number)
                else:
                    assert step is not None
                    self.last[step] = len(self.slots)  # keep its register until the move
                    moves.append((number, step))
        # Move values that were not computed in the register in which they must end.
        while moves:
            # A move goes before one that overwrites its source.
            sources = [self.register[step] for _, step in moves]
            ready = [n for n, (number, _) in enumerate(moves)
                     if number not in sources[:n] + sources[n + 1 :]]  # fmt: skip
            if not ready:
                raise KernelError(
                    "registers exchange their values, so that any move would overwrite one: keep a "
                    "value in another register"
                )
            number, step = moves.pop(ready[0])
            self.drafts.append(_Draft({"a": self.register[step], "keep": True, "d": number}))
        return self.drafts

    def _destination(self, n: int, slot: _Slot, step: Value | None) -> int | None:
        target = next((k for k in slot.keeps if self._is_free_after(k, n)), None)
        if slot.old is not None:
            return self._in_place(n, slot, slot.old)
        if target is not None:
            if target in self.free:
                self.free.remove(target)
            return target
        if step is None or (step not in self.last and not slot.keeps):
            return None
        # Reuse the register of an operand that is not read again.
        dying = [self.register[v] for v in slot.operands if self._dies(v, n)]
        if dying:
            return min(dying, key=lambda number: (number in self.keeps, number))
        return self._take()

    def _take(self) -> int:
        if not self.free:
            raise KernelError(
                f"more than {REGISTERS} values are needed at the same time; cut the kernel in two, "
                "or read rows later"
            )
        return self.free.pop(0)

    def _is_free_after(self, number: int, n: int) -> bool:
        """Return whether instruction n may write a register that is to be kept."""
        owners = [v for v, own in self.register.items() if own == number]
        return all(self.last.get(v, -1) <= n for v in owners)

    def _dies(self, v: Value, n: int) -> bool:
        return self.last.get(v) == n and self.register[v] not in self.pinned

    def _in_place(self, n: int, slot: _Slot, old: Value) -> int:
        """Return the register of the value that a predicated instruction changes in some lanes."""
        own = self.register[old]
        # Lanes without the condition keep the old value, so the result must be in the register of
        # the old value, or of a copy if the old value is still needed.
        if self.last[old] == n and (own not in self.pinned or own in slot.keeps):
            return own
        d = self._take()
        self.drafts.append(_Draft({"a": own, "keep": True, "d": d}))
        return d

    def _release(self, n: int, slot: _Slot, d: int | None) -> None:
        for v in dict.fromkeys(slot.operands):
            number = self.register[v]
            if self._dies(v, n) and number != d and number not in self.free:
                self.free.append(number)
                self.free.sort(key=lambda number: (number in self.keeps, number))

    def _write(self, slot: _Slot, register: dict[Value, int], d: int | None) -> None:
        v = slot.v
        fields: dict[str, Any] = {
            "kind": v.kind, "memory": slot.memory, "rounding": v.rounding, "width": v.width,
            "wrap": v.wraps, "total": slot.total,
        }  # fmt: skip
        constant = None
        if v.a is not None and slot.memory is not Memory.READ:
            fields["a"] = register[v.a]
        if isinstance(v.s, Value):
            fields["b"] = register[v.s]
        elif v.s is not None:
            constant, fields["use_k"] = v.s, True
        if v.kind is Kind.TABLE:
            fields["b"] = v.table
        if v.c is not None:
            fields |= {"c": register[v.c], "addend": Addend.PLUS if v.sign > 0 else Addend.MINUS}
        elif v.k is not None:
            constant, fields["addend"] = v.k, Addend.CONSTANT
        if slot.condition is not None:
            fields |= {"c": register[slot.condition], "when": slot.when}
        if isinstance(v.shift, GivenShift):
            fields |= {"shift": v.shift.number, "shift_by": ShiftBy.SCALAR}
        elif isinstance(v.shift, Value):
            fields |= {"c": register[v.shift], "shift_by": ShiftBy.C}
        else:
            fields["shift"] = v.shift
        if d is not None:
            fields |= {"keep": True, "d": d}
        self.drafts.append(_Draft(fields, slot.stream, constant))

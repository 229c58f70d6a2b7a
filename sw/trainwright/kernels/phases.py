"""Cut a kernel with reductions into passes of the vector engine.

A group is the values that one reduction combines, such as the logits of a sample. A *sweep* is a
pass over the rows of a group; a *finish* is a pass over one block of rows without streams.
Reductions that depend on each other take a sweep each, in order, and a last sweep computes the
results. Finishes and sweeps alternate:

1. finish 0 gives the accumulators of the first reductions their start values;
2. sweep n computes the operands of the reductions of depth n + 1, and accumulates them in
   registers;
3. finish n + 1 completes these sums and computes the values that all rows of a group share.

Registers carry sums and shared values from pass to pass. A value that is needed both before and
after a reduction is computed twice, unless the kernel stores the value. If the rows of a group
belong to several threads of the engine, two *joins* between a sweep and its finish add the sums of
the threads: the first join writes each thread's sums to scratch rows, 16 bits a row, and the second
join reads the scratch rows of every thread.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache, partial
from typing import Any

from trainwright.kernels.lower import VectorPass, lower_body
from trainwright.kernels.trace import (
    REDUCTIONS,
    STORED,
    WIDTH,
    WORD_WIDTH,
    Body,
    Condition,
    Effect,
    KernelError,
    Op,
    Register,
    Value,
    fits,
    trace,
    trace_groups,
    where,
)
from trainwright.program.vector import CODE_DEPTH, FACTOR_WIDTH, REGISTERS

SCRATCH = "scratch"
"""First part of the names of streams of scratch rows, one for each word of a sum."""


class Role(Enum):
    """Kind of a pass, by the rows that the pass runs over."""

    FINISH = "finish"
    """A row of every thread, no streams."""
    SWEEP = "sweep"
    """Rows of a group."""
    JOIN_OUT = "join out"
    """A row of every thread, with a scratch row for every stream and thread."""
    JOIN_IN = "join in"
    """The scratch rows of all threads, each read by every thread."""


@dataclass(frozen=True)
class GroupPass:
    """Pass of a kernel with reductions."""

    role: Role
    code: VectorPass
    tail: VectorPass | None = None
    """For a sweep, the code for a group's last row if its last lanes hold no value."""


@dataclass(frozen=True)
class GroupLayout:
    """Layout of groups in rows, lanes and threads, which decides the passes of a kernel."""

    across: bool
    """Whether a group spans the lanes of a row; otherwise each lane belongs to another group."""
    joined: bool
    """Whether the rows of a group belong to several threads."""
    tail: int = 0
    """Lanes of the last row of a group that hold values; 0: all lanes."""


@lru_cache(512)
def _phases(
    kernel: Callable[..., None],
    group: int,
    layout: GroupLayout,
    options: tuple[tuple[str, Any], ...],
) -> tuple[GroupPass, ...]:
    # First with constants in registers; if registers run out, every row makes its constants.
    traced = partial(trace_groups, kernel, group) if group else partial(trace, kernel)
    with suppress(KernelError):
        return _Cut(traced(**dict(options)), layout).run()
    if not group:
        return tuple(GroupPass(Role.SWEEP, code) for code in lower_rows(traced(**dict(options))))
    return _Cut(trace_groups(kernel, group, **dict(options)), layout, constants=False).run()


def lower_groups(
    kernel: Callable[..., None], group: int, layout: GroupLayout, **options: Any
) -> tuple[GroupPass, ...]:
    """Compile a kernel over groups of ``group`` values to its passes, in order; 0: element-wise.

    Raises ``KernelError`` where a pass needs more registers, constants or instructions than the
    engine has.
    """
    return _phases(kernel, group, layout, tuple(sorted(options.items())))


def scratch_streams(phases: Iterable[GroupPass]) -> int:
    """Return the number of scratch streams: each has a row for every thread."""
    names = {name for phase in phases for name in phase.code.streams if name.startswith(SCRATCH)}
    return len(names)


def lower_in_parts(body: Body) -> tuple[VectorPass, ...]:
    """Compile a body without streams to one pass, or to two if one needs too many constants.

    Raises ``KernelError`` if no cut in two makes passes that the engine can execute.
    """
    if not body.steps:
        return ()
    # Lowering merges steps in place, so each attempt gets a copy.
    parts, size = (_part(body, 0, len(body.steps)),), len(body.steps)
    try:
        return tuple(lower_body(part) for part in parts)
    except KernelError as error:
        first = error
    for at in sorted(range(1, size), key=lambda at: abs(2 * at - size)):
        try:
            return tuple(lower_body(part) for part in _cut_in_two(body, at))
        except KernelError:
            continue
    raise first


MOST_CUTS = 6
"""Cuts of a body to try, at most: each cut asks for cuts of the steps behind it."""
MOST_STEPS = 4 * CODE_DEPTH
"""Steps of a pass above which no lowering is tried: one instruction does at most four steps, a
product, a sum, a shift and a saturation."""


def lower_rows(body: Body) -> tuple[VectorPass, ...]:
    """Compile a body that writes ``z`` to one pass, or to several if it is too large for one.

    Each pass but the last stores one value of 16 bits in the rows of the result. The next pass
    reads that value, and computes all other values that it needs again. Raises ``KernelError`` if
    no such cut makes passes that the engine can execute.
    """
    first: KernelError | None = None
    # The order of the text first: it decides the instructions of kernels that fit.
    for copy in (_whole, _ordered_by_need):
        try:
            return (lower_body(copy(body)),)
        except KernelError as error:
            first = first or error
    body = _ordered_by_need(body)
    cuts = [
        v
        for v in body.steps
        if isinstance(v, Value) and v.kind is not Op.READ and fits((v.low, v.high), WORD_WIDTH)
    ]
    # The first pass does as much as it can, so that few passes follow.
    rests = sorted(
        ((rest, v) for v in cuts if (rest := _rest(body, v)) is not None),
        key=lambda cut: len(cut[0].steps),
    )
    tries = 0
    for rest, v in rests:
        code = _piece(body, v) if tries < MOST_CUTS else None
        if code is not None:
            tries += 1
            with suppress(KernelError):
                return code, *lower_rows(rest)
    raise KernelError(f"{first}; no value of at most {WORD_WIDTH} bits cuts it in two: clip one")


def _whole(body: Body) -> Body:
    return _part(body, 0, len(body.steps))


def _ordered_by_need(body: Body) -> Body:
    """Copy a body with each step as late as possible, before the first step that needs it.

    Few values then wait in registers. The operand that takes most steps comes first.
    """
    new, known, size = Body(reserved=body.reserved), dict[Value, Value](), dict[Value, int]()
    for step in body.steps:
        if isinstance(step, Value):
            size[step] = 1 + sum(size[v] for v in step.operands)
    for effect in (step for step in body.steps if isinstance(step, Effect)):
        pending = [effect.value]
        while pending:
            v = pending[-1]
            missing = [o for o in v.operands if o not in known]
            if missing:
                pending.append(max(missing, key=size.__getitem__))
                continue
            pending.pop()
            if v not in known:
                known[v] = _copied(new, v, known.__getitem__)
        new.steps.append(replace(effect, value=known[effect.value]))
    return new


def _piece(body: Body, at: Value) -> VectorPass | None:
    """Compile a pass that computes and writes one value; None if it has too many steps."""
    needed = _closure(body, [at])
    if len(needed) > MOST_STEPS:
        return None
    piece, known = Body(reserved=body.reserved), dict[Value, Value]()
    for v in body.steps:
        if v in needed:
            assert isinstance(v, Value)
            known[v] = _copied(piece, v, known.__getitem__)
    piece.write("z", known[at])
    try:
        return lower_body(_ordered_by_need(piece))
    except KernelError:
        return None


def _rest(body: Body, at: Value) -> Body | None:
    """Return the body that reads ``at`` from the rows of the result in place of computing it.

    None if that body is not smaller, or needs a value that an earlier pass stored: the rows of the
    result hold one value only.
    """
    ends = [step.value for step in body.steps if isinstance(step, Effect)]
    needed = _closure(body, ends, at)
    stale = any(v.stream == STORED for v in needed - {at} if isinstance(v, Value))
    if stale or len(needed) >= sum(isinstance(step, Value) for step in body.steps):
        return None
    rest, known = Body(reserved=body.reserved), dict[Value, Value]()
    for step in body.steps:
        if isinstance(step, Effect):
            rest.steps.append(replace(step, value=known[step.value]))
        elif step is at:
            known[step] = rest.read(STORED, at.low, at.high)
        elif step in needed:
            known[step] = _copied(rest, step, known.__getitem__)
    return rest


def _closure(body: Body, roots: Iterable[Value], known: Value | None = None) -> set[Value]:
    """Return ``roots`` and all steps that they need, directly or not, except through ``known``."""
    needed = set(roots)
    for v in reversed(body.steps):
        if isinstance(v, Value) and v in needed and v is not known:
            needed.update(v.operands)
    return needed


def _part(body: Body, first: int, last: int) -> Body:
    """Copy steps ``first`` to ``last`` - 1 of a body; their operands must be among these steps."""
    new = Body(preserved=set(body.preserved), taken=set(body.taken), reserved=body.reserved)
    known: dict[Value, Value] = {}
    for step in body.steps[first:last]:
        if isinstance(step, Value):
            known[step] = _copied(new, step, known.__getitem__)
        else:
            new.steps.append(replace(step, value=known[step.value]))
    return new


def _cut_in_two(body: Body, at: int) -> tuple[Body, Body]:
    """Cut a body before step ``at``; registers carry values from the first pass to the second.

    All effects are in the second pass, because its steps may still read the old values of
    registers.
    """
    first, second = (Body(preserved=set(body.preserved), reserved=body.reserved) for _ in range(2))
    early, rest = dict[Value, Value](), dict[Value, Value]()
    held = {s.register.number for s in body.steps if isinstance(s, Value) and s.register}
    free = [n for n in range(REGISTERS) if n not in held | body.preserved]
    later: set[int] = set()

    def operand(v: Value) -> Value:
        if v not in rest:
            if v.register:
                rest[v] = second.held(v.register)
                later.add(v.register.number)
            else:
                if not free:
                    raise KernelError(
                        f"{v.line}: no register is free for a value that the second pass needs: "
                        "keep fewer registers"
                    )
                register = Register(free.pop(0), v.low, v.high)
                first.keep(register, early[v])
                rest[v] = second.take(register)
        return rest[v]

    for number, step in enumerate(body.steps):
        if isinstance(step, Effect):
            second.steps.append(replace(step, value=operand(step.value)))
        elif number < at:
            early[step] = _copied(first, step, early.__getitem__)
        elif step.register:
            operand(step)
        else:
            rest[step] = _copied(second, step, operand)
    first.preserve(*(Register(n) for n in later))
    first.taken |= body.taken - later
    second.taken |= body.taken & later
    return first, second


ACCUMULATED, FINISHED = -1, -2
"""Uses of a register: ACCUMULATED holds a reduction so far; FINISHED holds a value for all later
stages. A use of 0 or more is the number of the only sweep that reads the register."""
Key = tuple[Value, int]
"""Value that a register holds, and the use of the register."""


class _Registers:
    """Registers of the values that pass from stage to stage, in the order of the stages."""

    def __init__(self) -> None:
        self.free = list(range(REGISTERS))
        self.numbers: dict[Key, Register] = {}

    def take(self, key: Key, line: str) -> None:
        """Give a value a register."""
        if not self.free:
            raise KernelError(
                f"{line}: a kernel keeps more than {REGISTERS} values from one reduction to the "
                "next; compute fewer of them"
            )
        v = key[0]
        self.numbers[key] = Register(self.free.pop(0), v.low, v.high)

    def release(self, key: Key) -> None:
        """Release the register of a value."""
        self.free.append(self.numbers[key].number)
        self.free.sort()


class _Cut:
    """Traced kernel that is cut into stages, with the depth of each of its values."""

    def __init__(self, body: Body, layout: GroupLayout, *, constants: bool = True) -> None:
        """Sort the values by depth; without ``constants``, sweeps make constants in every row."""
        self.body, self.layout = body, layout
        self.values = [step for step in body.steps if isinstance(step, Value)]
        self.effects = [step for step in body.steps if isinstance(step, Effect)]
        self.depth: dict[Value, int] = {}
        self.varies: dict[Value, bool] = {}
        for v in self.values:
            reduces = v.kind in REDUCTIONS
            self.depth[v] = max((self.depth[o] for o in v.operands), default=0) + reduces
            own = v.kind in (Op.READ, Op.STORED)
            own = own or not (constants or v.operands)
            self.varies[v] = not reduces and (own or any(self.varies[o] for o in v.operands))
        self.last = max(self.depth[effect.value] for effect in self.effects)
        self.sizes = [
            Value(body=body, low=0, high=(1 << (WIDTH - 5)) - 1, line=effect.value.line)
            for effect in self.effects
            if effect.counted
        ]
        """Sums of |result| of each lane, for statistics: a sum of 16 lanes fits a register, too."""
        # The host binds a program by its first constants, which all passes of a kernel share.
        self.reserved = body.reserved
        needed = _closure(body, (effect.value for effect in self.effects))
        self.values = [v for v in self.values if v in needed]

    # -- what stages need ----------------------------------------------------------------------
    def _reduced(self, sweep: int) -> list[Value]:
        """List the reductions that a sweep accumulates."""
        return [v for v in self.values if v.kind in REDUCTIONS and self.depth[v] == sweep + 1]

    def _started(self, sweep: int) -> list[Value]:
        """List the sums that start before a sweep."""
        return [*self._reduced(sweep), *(self.sizes if sweep == self.last else ())]

    def _stored(self, sweep: int) -> list[Value]:
        return [v for v in self.values if v.kind is Op.STORED and self.depth[v] == sweep]

    def _written(self, sweep: int) -> list[Effect]:
        return [effect for effect in self.effects if self.depth[effect.value] == sweep]

    def _held_by_sweep(self, sweep: int) -> set[Value]:
        """Return the values shared by a whole group that a sweep reads from registers."""
        held: set[Value] = set()
        # From the values that the sweep computes for its reductions and effects to their operands.
        pending = [v.a for v in self._reduced(sweep) if v.a is not None]
        pending += [*self._stored(sweep), *(effect.value for effect in self._written(sweep))]
        while pending:
            v = pending.pop()
            if not self.varies[v]:
                held.add(v)
            elif not (v.kind is Op.STORED and self.depth[v] < sweep):
                pending += v.operands
        return held

    def _held_by_finish(self, finish: int, roots: Iterable[Value]) -> set[Value]:
        """Return the values of earlier finishes that a finish needs to compute ``roots``."""
        held: set[Value] = set()
        pending = list(roots)
        while pending:
            v = pending.pop()
            if 0 < self.depth[v] < finish:
                held.add(v)
            elif v.kind not in REDUCTIONS:
                pending += v.operands
        return held

    def _plan(self) -> None:
        """Find the values that every finish computes, and the last stage that holds each value.

        Stage 2 n is finish n; stage 2 n + 1 is sweep n.
        """
        self.computed: dict[int, set[Key]] = {n: set() for n in range(self.last + 1)}
        self.until: dict[Key, int] = {}
        for n in range(self.last, -1, -1):
            for v in self._held_by_sweep(n):
                if self.depth[v]:
                    self._hold(v, 2 * n + 1)
                else:  # without reductions: few instructions compute it again for each sweep
                    self.computed[n].add((v, n))
                    self.until[v, n] = 2 * n + 1
            for v in self._held_by_finish(n, [v for v, _ in self.computed[n]]):
                self._hold(v, 2 * n)
            for v in self._started(n):
                self.until[v, ACCUMULATED] = 2 * n + 2

    def _hold(self, v: Value, stage: int) -> None:
        self.computed[self.depth[v]].add((v, FINISHED))
        self.until[v, FINISHED] = max(stage, self.until.get((v, FINISHED), 0))

    # -- stages --------------------------------------------------------------------------------
    def run(self) -> tuple[GroupPass, ...]:
        """Make the passes of all stages."""
        self._plan()
        self.registers = _Registers()
        self.live: set[Key] = set()
        phases: list[GroupPass] = []
        for n in range(self.last + 1):
            phases += self._finish(n)
            tail = None
            if self.layout.tail:
                tail = lower_body(self._sweep(n, self.layout.tail))
            phases.append(GroupPass(Role.SWEEP, lower_body(self._sweep(n, 0)), tail))
            self._end(2 * n + 1)
            if self.layout.joined and self._reduced(n):
                phases += self._joins(n)
        if self.sizes:
            # A sum over the lanes takes an instruction: once for all rows, not in every row.
            body = Body(reserved=self.reserved)
            key, stage = (self.sizes[0], ACCUMULATED), 2 * self.last + 2
            body.total(self._held(body, key, stage).sum_lanes())
            phases.append(GroupPass(Role.FINISH, lower_body(body)))
        return tuple(phases)

    def _end(self, stage: int) -> None:
        """Release the registers of values that no later stage holds."""
        for key in [key for key in self.live if self.until[key] <= stage]:
            self.live.remove(key)
            self.registers.release(key)

    def _held(self, body: Body, key: Key, stage: int) -> Value:
        register = self.registers.numbers[key]
        if self.until[key] <= stage:
            return body.take(register)
        return body.held(register)

    def _preserve(self, body: Body) -> None:
        body.preserve(*(self.registers.numbers[key] for key in self.live))

    def _finish(self, n: int) -> list[GroupPass]:
        body, stage = Body(reserved=self.reserved), 2 * n
        known: dict[Value, Value] = {}
        # Release first: a value that begins here may take the register of a value that ends here.
        self._end(stage)
        self._preserve(body)
        keys = sorted(self.computed[n], key=lambda key: (self.values.index(key[0]), key[1]))
        results = [(key, self._completed(body, key[0], stage, known)) for key in keys]
        starts = self._started(n)
        for key, result in results:
            self._begin(key, body, result)
        zero = body.constant(0) if starts else None
        for v in starts:
            assert zero is not None
            start = _least(zero, v.low) if v.kind is Op.GREATEST else zero
            self._begin((v, ACCUMULATED), body, start)
        return [GroupPass(Role.FINISH, code) for code in lower_in_parts(body)]

    def _begin(self, key: Key, body: Body, value: Value) -> None:
        self.registers.take(key, key[0].line)
        self.live.add(key)
        body.keep(self.registers.numbers[key], value)

    def _completed(self, body: Body, v: Value, stage: int, known: dict[Value, Value]) -> Value:
        """Return a value that a whole group shares, computed in a finish or held in a register."""
        if v in known:
            return known[v]
        if 0 < 2 * self.depth[v] < stage:
            held = self._held(body, (v, FINISHED), stage)
        elif v.kind in REDUCTIONS:
            held = self._held(body, (v, ACCUMULATED), stage)
            if self.layout.across:
                # Lanes hold parts of the group, but the proved range is that of the whole group.
                whole = held.greatest_lane() if v.kind is Op.GREATEST else _lane_sum(held)
                held = whole.within(v.low, v.high)
        else:
            held = _copied(body, v, lambda o: self._completed(body, o, stage, known))
        known[v] = held
        return held

    def _sweep(self, n: int, tail: int) -> Body:
        body = Body(reserved=self.reserved)
        self._preserve(body)
        known: dict[Value, Value] = {}

        def taken(v: Value) -> Value:
            if v not in known:
                known[v] = self._swept(body, v, n, taken)
            return known[v]

        def inside(value: Value, other: int) -> Value:
            """Set lanes without a value to ``other``; next to the use, which saves registers."""
            if not tail:
                return value
            return where((body.lane() + (1 - tail)).positive, other, value)

        for v in self._reduced(n):
            assert v.a is not None
            part, key = taken(v.a), (v, ACCUMULATED)
            if self.layout.across:
                part = inside(part, v.low if v.kind is Op.GREATEST else 0)
            total = body.held(self.registers.numbers[key])
            if v.kind is Op.SUM:
                body.keep(self.registers.numbers[key], _sum(total, part).within(v.low, v.high))
            else:
                body.keep(self.registers.numbers[key], part.at_least(total).within(v.low, v.high))
        for v in self._stored(n):
            body.write(v.stream, taken(v))
        for effect in self._written(n):
            value = inside(taken(effect.value), 0)
            body.steps.append(replace(effect, value=value))
            if effect.counted:
                register = self.registers.numbers[self.sizes[0], ACCUMULATED]
                sizes = body.held(register) + value.at_least(value * -1)
                body.keep(register, sizes.within(register.low, register.high))
        return body

    def _swept(self, body: Body, v: Value, n: int, taken: Callable[[Value], Value]) -> Value:
        if not self.varies[v]:
            # Every row of the sweep reads the value, so no row may reuse its register.
            return body.held(self.registers.numbers[v, FINISHED if self.depth[v] else n])
        if v.kind is Op.STORED:
            assert v.a is not None
            return body.read(v.stream, v.low, v.high) if self.depth[v] < n else taken(v.a)
        return _copied(body, v, taken)

    # -- joins ---------------------------------------------------------------------------------
    def _joins(self, n: int) -> list[GroupPass]:
        """Add the sums of all threads by scratch rows."""
        out, back = Body(reserved=self.reserved), Body(reserved=self.reserved)
        for body in (out, back):
            self._preserve(body)
        count = 0
        for v in self._reduced(n):
            register = self.registers.numbers[v, ACCUMULATED]
            rest, words = out.held(register), list[Value]()
            if not fits((v.low, v.high), 2 * WORD_WIDTH):
                raise KernelError(
                    f"{v.line}: sums from {v.low} to {v.high} of several threads cannot be added, "
                    f"they have more than {2 * WORD_WIDTH} bits; shift what is summed"
                )
            while not fits((rest.low, rest.high), WORD_WIDTH):
                # The lowest word is read back as a signed number: the rest is rounded half up.
                words.append(rest)
                rest = (rest + (1 << (WORD_WIDTH - 1))) >> WORD_WIDTH
            for word in (*words, rest):
                out.write(f"{SCRATCH}{count}", word)
                count += 1
            start = out.constant(0)
            out.keep(register, _least(start, v.low) if v.kind is Op.GREATEST else start)
            part = back.read(f"{SCRATCH}{count - 1}", rest.low, rest.high)
            for number in range(len(words)):
                low = back.read(f"{SCRATCH}{count - 2 - number}")
                part = part * (1 << WORD_WIDTH) + low
            part = part.within(v.low, v.high)
            total = back.held(register)
            joined = part.at_least(total) if v.kind is Op.GREATEST else _sum(total, part)
            back.keep(register, joined.within(v.low, v.high))
        return [
            GroupPass(Role.JOIN_OUT, lower_body(out)),
            GroupPass(Role.JOIN_IN, lower_body(back)),
        ]


def _least(zero: Value, low: int) -> Value:
    """Return ``low`` in all lanes, made of two constants if one has too few bits."""
    shift = max(0, low.bit_length() + 1 - FACTOR_WIDTH)
    if not shift:
        return zero + low
    return (zero + (low >> shift)) * (1 << shift) + (low & (1 << shift) - 1)


def _sum(total: Value, part: Value) -> Value:
    """Add a part to a total whose proved range covers the sum of all parts."""
    low, high = total.low, total.high
    # Otherwise interval arithmetic would count the part once more than there are parts.
    total.low, total.high = min(0, low - part.low), max(0, high - part.high)
    result = part + total
    total.low, total.high = low, high
    return result


def _lane_sum(v: Value) -> Value:
    """Sum lanes that hold parts of one sum: the range of ``v`` covers the whole sum."""
    low, high = v.low, v.high
    v.low, v.high = low // v.body.lanes, -(-high // v.body.lanes)
    result = v.sum_lanes()
    v.low, v.high = low, high
    return result


def _copied(body: Body, v: Value, operand: Callable[[Value], Value]) -> Value:
    """Copy a step into another body; ``operand`` maps operands to that body."""

    def taken(part: Any) -> Any:
        return operand(part) if isinstance(part, Value) else part

    condition = v.condition
    if condition is not None:
        condition = Condition(operand(condition.value), condition.when)
    copied = replace(
        v, body=body, a=taken(v.a), s=taken(v.s), c=taken(v.c), shift=taken(v.shift),
        condition=condition, old=taken(v.old),
    )  # fmt: skip
    body.steps.append(copied)
    return copied


assert WORD_WIDTH + 1 < FACTOR_WIDTH, "the highest word of a sum is multiplied by 2^WORD_WIDTH"

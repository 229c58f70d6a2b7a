"""The golden model: interprets a program in exact integers, loops in one go where it may.

An innermost loop whose iterations do not depend on each other is executed for all iterations at
once, the iteration being a batch dimension; any other loop is executed one iteration at a time.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from ttforge.golden.compute import Bases, Result, compute
from ttforge.golden.independence import independent
from ttforge.golden.scratchpad import Scratchpad
from ttforge.golden.transfer import Bytes, is_store, load_rows, load_store, store_rows
from ttforge.parameters import AcceleratorParameters
from ttforge.program.descriptors import (
    Compute,
    Descriptor,
    End,
    Halt,
    Loop,
    Set,
    Transfer,
)
from ttforge.program.encoding import ProgramError
from ttforge.program.fields import ENGINE_OF, REGISTERS, Operation, Target


@dataclass
class TraceEntry:
    """Rows that one descriptor wrote, for ``n`` iterations: (count,) and (n, count, lanes)."""

    tensor: str
    addresses: torch.Tensor
    rows: torch.Tensor


@dataclass
class State:
    """Everything a program changes."""

    memory: Bytes
    parameters: AcceleratorParameters
    scratchpad: Scratchpad
    stores: dict[Operation, torch.Tensor]
    sums: list[int]
    saturations: list[int]
    registers: list[int] = field(default_factory=lambda: [0] * REGISTERS)
    bytes_read: int = 0
    bytes_written: int = 0
    trace: dict[str, list[list[TraceEntry]]] | None = None
    """By engine: groups of entries; within a group iterations are the outer order."""

    @classmethod
    def fresh(cls, memory: Bytes, p: AcceleratorParameters, *, trace: bool) -> "State":
        """State at the start of a program."""
        return cls(
            memory=memory,
            parameters=p,
            scratchpad=Scratchpad(p.scratchpad_rows, p.lanes),
            stores={
                Operation.PE1: torch.zeros(p.pe1_store_depth, p.lanes),
                Operation.PE2: torch.zeros(p.pe2_store_depth, p.pe2_rows),
            },
            sums=[0] * p.statistics_depth,
            saturations=[0] * p.statistics_depth,
            trace=defaultdict(list) if trace else None,
        )


def matching_end(program: Sequence[Descriptor], start: int) -> int:
    """Index of the ``End`` of the ``Loop`` at ``start``."""
    depth = 0
    for index in range(start, len(program)):
        if isinstance(program[index], Loop):
            depth += 1
        elif isinstance(program[index], End):
            depth -= 1
            if not depth:
                return index
    raise ProgramError("a LOOP has no END")


def _resolved(state: State, d: Compute, steps: dict[int, int]) -> Bases:
    registers = state.registers
    return Bases(
        x=d.x + registers[d.x_register],
        g=d.g + registers[d.g_register],
        z=d.z + registers[d.z_register],
        x_step=steps.get(d.x_register, 0),
        g_step=steps.get(d.g_register, 0),
        z_step=steps.get(d.z_register, 0),
    )


def _transfer(state: State, d: Transfer, n: int, steps: dict[int, int]) -> list[TraceEntry]:
    address = d.address + state.registers[d.address_register]
    step = steps.get(d.address_register, 0)
    local = d.local + state.registers[d.local_register]
    size = n * d.runs * d.beats * state.parameters.beat_bytes
    where = (state.memory, state.scratchpad, state.parameters)
    if d.operation is Operation.STORE:
        state.bytes_written += size
        store_rows(d, address, step, n, local, *where)
        return []
    state.bytes_read += size
    if d.target is Target.SCRATCHPAD:
        addresses, rows = load_rows(d, address, step, n, local, *where)
        return [TraceEntry(d.tensor, addresses, rows)]
    if not is_store(d.target):
        raise ProgramError(f"{d.tensor}: a program cannot load into {d.target.name}")
    store = state.stores[Operation.PE1 if d.target is Target.PE1_STORE else Operation.PE2]
    load_store(d, address, local, state.memory, store, state.parameters)
    return []


def _execute_compute(state: State, d: Compute, n: int, steps: dict[int, int]) -> list[TraceEntry]:
    trace = state.trace is not None
    done: Result = compute(
        d,
        _resolved(state, d, steps),
        n,
        state.scratchpad,
        state.stores,
        state.parameters,
        trace=trace,
    )
    state.sums[d.slot] += done.total
    state.saturations[d.slot] += done.saturations
    if not trace or done.addresses is None or done.rows is None:
        return []
    return [TraceEntry(d.tensor, done.addresses, done.rows)]


def _execute_body(state: State, body: Sequence[Descriptor], n: int, steps: dict[int, int]) -> None:
    """Descriptors without loops, for ``n`` iterations at once."""
    groups: dict[str, list[TraceEntry]] = defaultdict(list)
    for d in body:
        if isinstance(d, Compute):
            entries = _execute_compute(state, d, n, steps)
        elif isinstance(d, Transfer):
            entries = _transfer(state, d, n, steps)
        elif isinstance(d, Set):
            for register, value in d.values:
                state.registers[register] = value
            continue
        else:
            raise ProgramError(f"unexpected {d.operation.name}")
        engine = ENGINE_OF[d.operation]
        groups[(engine.name or "").lower()] += entries
    if state.trace is not None:
        for engine, entries in groups.items():
            state.trace[engine].append(entries)


def execute(state: State, program: Sequence[Descriptor]) -> None:
    """Execute ``program`` on ``state``.

    Raises ``ProgramError`` for accesses outside the memories, rows read before they are written,
    and the few access patterns that are not supported.
    """
    index = 0
    while index < len(program):
        d = program[index]
        if isinstance(d, Halt):
            return
        if not isinstance(d, Loop):
            if isinstance(d, End):
                raise ProgramError("an END has no LOOP")
            _execute_body(state, [d], 1, {})
            index += 1
            continue
        end = matching_end(program, index)
        closing = program[end]
        assert isinstance(closing, End)
        body, steps = program[index + 1 : end], dict(closing.steps)
        if independent(body, steps, d.iterations, state.parameters):
            _execute_body(state, body, d.iterations, steps)
            state.scratchpad.keep_last_iteration()
            for register, step in steps.items():
                state.registers[register] += step * d.iterations
        else:
            for _ in range(d.iterations):
                execute(state, body)
                for register, step in steps.items():
                    state.registers[register] += step
        index = end + 1

"""Loads and stores of the golden model, between a byte array and scratchpad or factor stores."""

import numpy as np

from trainwright.golden.compute import offsets
from trainwright.golden.state import Addresses, State, Words, check_entries
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Level, Transfer
from trainwright.program.encoding import ProgramError
from trainwright.program.fields import Operation, Target
from trainwright.program.packing import unpack


def _runs(d: Transfer, base: int, stride: str, size: int) -> Addresses:
    """Addresses of ``size`` consecutive places for every run, in the order of transfer."""
    levels = [Level(level.count) for level in d.levels]
    starts = base + offsets(levels, [getattr(level, stride) for level in d.levels])
    return (starts[:, None] + np.arange(size)).ravel()


def _bytes(d: Transfer, state: State, beat_bytes: int) -> Addresses:
    """Addresses of the bytes outside, in the order of transfer."""
    address = d.address + state.registers[d.address_register]
    where = _runs(d, address, "address", d.beats * beat_bytes)
    low, high = int(where.min()), int(where.max())
    if low < 0 or high >= state.memory.size:
        raise ProgramError(
            f"{d.tensor}: bytes {low} to {high} of a memory of {state.memory.size} bytes"
        )
    return where


def _local(d: Transfer, state: State, item_bits: int, p: AcceleratorParameters) -> Addresses:
    """Rows or entries inside, each of ``item_bits`` outside, in the order of transfer."""
    run_bits = d.beats * p.data_width
    if not item_bits or run_bits % item_bits:
        raise ProgramError(
            f"{d.tensor}: a run of {d.beats} beats is not a whole number of rows or entries"
        )
    base = d.local + state.registers[d.local_register]
    return _runs(d, base, "local", run_bits // item_bits)


def transfer(d: Transfer, state: State, p: AcceleratorParameters) -> tuple[Addresses, Words] | None:
    """Execute ``d`` on ``state``; gives the scratchpad rows that it wrote, in order."""
    kind = np.dtype(np.int8 if d.element_bytes == 1 else "<i2")
    row_bits = 8 * p.lanes * d.element_bytes
    if d.operation is Operation.STORE:
        words = state.read(_local(d, state, row_bits, p))
        where = _bytes(d, state, p.beat_bytes)
        state.memory[where] = words.astype(kind).view(np.uint8).ravel()
        state.bytes_written += where.size
        return None
    where = _bytes(d, state, p.beat_bytes)
    state.bytes_read += where.size
    if d.target is Target.SCRATCHPAD:
        local = _local(d, state, row_bits, p)
        rows = state.memory[where].view(kind).astype(np.int16).reshape(-1, p.lanes)
        state.write(local, rows)
        return local, rows
    if d.target not in state.stores:
        raise ProgramError(f"{d.tensor}: a program cannot load into {d.target.name}")
    store = state.stores[d.target]
    entries = _local(d, state, store.shape[1] * p.factor_storage_width, p)
    check_entries(d.tensor, entries, len(store))
    values = unpack(state.memory[where], p.factor_width, p.factor_storage_width)
    store[entries] = values.reshape(-1, store.shape[1])
    return None

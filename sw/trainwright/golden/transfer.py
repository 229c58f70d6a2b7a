"""Loads and stores of the golden model, between a byte array and the scratchpad."""

import numpy as np

from trainwright.golden.compute import offsets
from trainwright.golden.state import Addresses, MachineState, Words
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Level, Transfer
from trainwright.program.fields import Operation
from trainwright.program.footprint import rows_of_run


def _runs(d: Transfer, base: int, stride: str, size: int) -> Addresses:
    """List the addresses of ``size`` consecutive places for every run, in the order of transfer."""
    levels = [Level(level.count) for level in d.levels]
    starts = base + offsets(levels, [getattr(level, stride) for level in d.levels])
    return (starts[:, None] + np.arange(size)).ravel()


def _bytes(d: Transfer, state: MachineState, beat_bytes: int) -> Addresses:
    """List the addresses of the bytes outside, in the order of transfer."""
    address = d.address + state.registers[d.address_register]
    return _runs(d, address, "address", d.beats * beat_bytes)


def _local(d: Transfer, state: MachineState, p: AcceleratorParameters) -> Addresses:
    """List the rows inside, in the order of transfer."""
    base = d.local + state.registers[d.local_register]
    return _runs(d, base, "local", rows_of_run(d, p))


def transfer(
    d: Transfer, state: MachineState, p: AcceleratorParameters
) -> tuple[Addresses, Words] | None:
    """Execute ``d`` on ``state``; gives the scratchpad rows that it wrote, in order."""
    # int8 sign-extends: a value of one byte is the same number in the scratchpad's 16 bits.
    kind = np.dtype(np.int8 if d.element_bytes == 1 else "<i2")
    where, local = _bytes(d, state, p.beat_bytes), _local(d, state, p)
    if d.operation is Operation.STORE:
        words = state.read(local)
        # Where two runs write the same bytes the later run wins, as its beats come later.
        state.memory[where] = words.astype(kind).view(np.uint8).ravel()
        state.bytes_written += where.size
        return None
    state.bytes_read += where.size
    rows = state.memory[where].view(kind).astype(np.int16).reshape(-1, p.lanes)
    state.write(local, rows)
    return local, rows

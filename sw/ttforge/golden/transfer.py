"""Loads and stores of the golden model, between a byte array and scratchpad or factor stores."""

import numpy as np
import numpy.typing as npt
import torch

from ttforge.golden.scratchpad import Scratchpad
from ttforge.parameters import AcceleratorParameters
from ttforge.program.descriptors import Transfer
from ttforge.program.encoding import ProgramError
from ttforge.program.fields import Target

Bytes = npt.NDArray[np.uint8]


def _runs(d: Transfer, address: int, step: int, n: int, memory: Bytes, beat: int) -> Bytes:
    """Strided view (n, *counts, run bytes) of the external memory."""
    size = d.beats * beat
    strides = [level.address for level in d.levels]
    reach = [(level.count - 1) * level.address for level in d.levels] + [step * (n - 1)]
    low = address + sum(min(r, 0) for r in reach)
    high = address + sum(max(r, 0) for r in reach) + size
    if low < 0 or high > memory.size:
        raise ProgramError(
            f"{d.tensor}: bytes {low} to {high - 1} of a memory of {memory.size} bytes"
        )
    return np.lib.stride_tricks.as_strided(
        memory[address:],
        shape=(n, *(level.count for level in d.levels), size),
        strides=(step, *strides, 1),
    )


def _local(d: Transfer, base: int, run: int) -> npt.NDArray[np.int64]:
    """Local address of every row or entry, in the order of transfer."""
    address = np.array([base], dtype=np.int64)
    for level in d.levels:
        address = (address[:, None] + np.arange(level.count) * level.local).ravel()
    return (address[:, None] + np.arange(run)).ravel()


def unpack(data: Bytes, width: int, storage: int) -> npt.NDArray[np.int64]:
    """Signed ``width``-bit integers from ``storage``-bit fields (4, 8 or 16), lowest first.

    ``data`` (..., bytes) gives (..., elements).
    """
    if storage == 4:
        fields = np.stack([data & 15, data >> 4], axis=-1).reshape(*data.shape[:-1], -1)
    else:
        fields = np.ascontiguousarray(data).view(np.uint8 if storage == 8 else "<u2")
    wide = fields.astype(np.int64) & ((1 << width) - 1)
    return wide - ((wide >> (width - 1)) << width)


def pack(values: npt.NDArray[np.int64], width: int, storage: int) -> Bytes:
    """Inverse of ``unpack``: signed ``width``-bit integers, a whole number of bytes a last row."""
    masked = values & ((1 << width) - 1)
    if storage == 4:
        pairs = masked.reshape(*values.shape[:-1], -1, 2)
        return (pairs[..., 0] | pairs[..., 1] << 4).astype(np.uint8)
    return masked.astype(np.uint8 if storage == 8 else "<u2", order="C").view(np.uint8)


def load_rows(
    d: Transfer,
    address: int,
    step: int,
    n: int,
    local: int,
    memory: Bytes,
    pad: Scratchpad,
    p: AcceleratorParameters,
) -> tuple[torch.Tensor, torch.Tensor]:
    """A load into the scratchpad; returns local addresses and rows (n, count, lanes)."""
    runs = _runs(d, address, step, n, memory, p.beat_bytes)
    words = np.ascontiguousarray(runs).view(np.int8 if d.element_bytes == 1 else "<i2")
    rows = torch.from_numpy(words.astype(np.float32).reshape(n, -1, p.lanes))
    where = _local(d, local, d.beats // d.element_bytes)
    start, count = int(where.min()), int(where.max() - where.min()) + 1
    if count == rows.shape[1] and np.all(np.diff(where) == 1):
        pad.write(start, rows)
    elif count == len(set(where.tolist())):
        ordered = torch.empty_like(rows)
        ordered[:, torch.from_numpy(where - start)] = rows
        pad.write(start, ordered)
    else:
        raise ProgramError(f"{d.tensor}: a load must fill its rows without gaps")
    return torch.from_numpy(where), rows


def store_rows(
    d: Transfer,
    address: int,
    step: int,
    n: int,
    local: int,
    memory: Bytes,
    pad: Scratchpad,
    p: AcceleratorParameters,
) -> None:
    """A store from the scratchpad."""
    where = _local(d, local, d.beats // d.element_bytes)
    start, stop = int(where.min()), int(where.max()) + 1
    rows, first = pad.read(start, stop)
    data = rows[:, torch.from_numpy(where - first)].expand(n, -1, -1)
    words = data.numpy().astype(np.int8 if d.element_bytes == 1 else "<i2")
    runs = _runs(d, address, step, n, memory, p.beat_bytes)
    runs[...] = words.reshape(n, -1).view(np.uint8).reshape(runs.shape)


def load_store(
    d: Transfer,
    address: int,
    local: int,
    memory: Bytes,
    store: torch.Tensor,
    p: AcceleratorParameters,
) -> None:
    """A load into a factor store (entries, width), in place."""
    runs = _runs(d, address, 0, 1, memory, p.beat_bytes)
    values = unpack(np.ascontiguousarray(runs), p.factor_width, p.factor_storage_width)
    entries = torch.from_numpy(values.reshape(-1, store.shape[1]))
    where = _local(d, local, entries.shape[0] // d.runs)
    if where.min() < 0 or where.max() >= store.shape[0]:
        raise ProgramError(
            f"{d.tensor}: factor store entries {where.min()} to {where.max()} of {store.shape[0]}"
        )
    store[torch.from_numpy(where)] = entries.to(store.dtype)


def is_store(target: Target) -> bool:
    """Whether a load's target is a factor store."""
    return target in (Target.PE1_STORE, Target.PE2_STORE)

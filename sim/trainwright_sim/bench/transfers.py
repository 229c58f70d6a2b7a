"""Random loads and stores, and what they must do, from the golden model."""

from collections.abc import Sequence
from random import Random

import numpy as np
import numpy.typing as npt

from trainwright.golden.state import MachineState
from trainwright.golden.transfer import transfer
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Transfer, TransferLevel
from trainwright.program.encoding import encode_descriptor
from trainwright.program.fields import LOCAL_WIDTH, Operation, Target
from trainwright_hw.control.engine_ports import TRANSFER_LAYOUT

Bytes = npt.NDArray[np.uint8]
MEMORY_BYTES = 1 << 15


def command_bits(d: Transfer) -> int:
    """Encode a descriptor as the payload of an engine's command stream."""
    word = int.from_bytes(encode_descriptor(d), "little")
    return word & ((1 << TRANSFER_LAYOUT.size) - 1)


def random_memory(random: Random) -> Bytes:
    """Fill external memory with random bytes."""
    return np.frombuffer(random.randbytes(MEMORY_BYTES), np.uint8).copy()


def random_transfer(
    operation: Operation, target: Target, p: AcceleratorParameters, random: Random, size: int
) -> Transfer:
    """Draw a transfer of up to three levels; ``size`` is the local memory's.

    Runs fill local memory without gaps, in any order; outside they may be anywhere, forwards and
    backwards, and in a load also on top of each other.
    """
    element_bytes = random.choice((1, 2)[: p.word_width // 8])
    beats = element_bytes if target is Target.SCRATCHPAD else 1  # of a row, or of a program
    length = random.choice((1, 1, 2, random.randint(1, 20)))
    counts = [random.choice((1, 2, 3, 5)) for _ in range(random.randint(0, 3))]
    local, span = [0] * len(counts), length
    for level in random.sample(range(len(counts)), len(counts)):
        local[level] = span
        span *= counts[level]
    outside, reach = [0] * len(counts), beats * length
    for level in random.sample(range(len(counts)), len(counts)):
        stride = reach + random.choice((0, 0, 1, random.randrange(8)))
        if operation is Operation.LOAD and random.random() < 0.2:
            stride = random.randrange(reach)
        outside[level] = stride * random.choice((1, 1, -1))
        reach += (counts[level] - 1) * stride
    low = sum(min(0, (count - 1) * s) for count, s in zip(counts, outside, strict=True))
    if span > size or reach * p.beat_bytes > MEMORY_BYTES:
        return random_transfer(operation, target, p, random, size)
    start = random.randrange(MEMORY_BYTES // p.beat_bytes - reach + 1) - low
    return Transfer(
        operation=operation,
        target=target,
        element_bytes=element_bytes,
        address=start * p.beat_bytes,
        local=random.randrange(size - span + 1),
        beats=beats * length,
        levels=tuple(
            TransferLevel(count, step * p.beat_bytes, place)
            for count, step, place in zip(counts, outside, local, strict=True)
        ),
    )


FAR = (((700, 1, 1), 1), ((1, 700, 1), 1), ((1, 1, 700), 1), ((2, 3, 2), 150))
"""Counts of the levels and beats of a run: long in each of them."""


def far_transfer(
    operation: Operation,
    p: AcceleratorParameters,
    random: Random,
    counts: Sequence[int],
    beats: int,
) -> Transfer:
    """Draw a transfer of bytes to or from the scratchpad with any addresses and steps."""
    steps = [
        TransferLevel(count, random.getrandbits(26) * p.beat_bytes, random.getrandbits(LOCAL_WIDTH))
        for count in counts
    ]
    return Transfer(
        operation=operation, address=random.getrandbits(32) // p.beat_bytes * p.beat_bytes,
        local=random.getrandbits(LOCAL_WIDTH), beats=beats, element_bytes=1, levels=tuple(steps),
    )  # fmt: skip


def walk(d: Transfer) -> list[tuple[int, int]]:
    """List the byte address and local address of every run, in order; both wrap."""
    places = [(d.address, d.local)]
    for level in d.levels:
        places = [
            (outside + n * level.address, inside + n * level.local)
            for outside, inside in places
            for n in range(level.count)
        ]
    return [(outside % (1 << 32), inside % (1 << LOCAL_WIDTH)) for outside, inside in places]


def walked_items(d: Transfer) -> list[int]:
    """List the local address of every item of bytes, in order."""
    return [(start + n) % (1 << LOCAL_WIDTH) for _, start in walk(d) for n in range(d.beats)]


def walked_bursts(d: Transfer, p: AcceleratorParameters) -> list[tuple[int, int]]:
    """List address and beats of every burst, in order, split at multiples of the longest burst."""
    bursts = []
    for start, _ in walk(d):
        beat, left = start // p.beat_bytes, d.beats
        while left:
            size = min(left, p.burst_beats - beat % p.burst_beats)
            bursts.append((beat * p.beat_bytes % (1 << 32), size))
            beat, left = beat + size, left - size
    return bursts


def transfer_beats(d: Transfer, memory: Bytes, p: AcceleratorParameters) -> list[int]:
    """List a load's beats in the order in which they are read."""
    addresses = np.array([d.address])
    for level in d.levels:
        addresses = (addresses[:, None] + np.arange(level.count) * level.address).ravel()
    size = p.beat_bytes
    return [
        int.from_bytes(memory[at + n * size : at + (n + 1) * size].tobytes(), "little")
        for at in addresses.tolist()
        for n in range(d.beats)
    ]


Writes = list[tuple[int, list[int]]]


def loaded_rows(d: Transfer, memory: Bytes, p: AcceleratorParameters) -> Writes:
    """List address and words of each row that a load writes to the scratchpad, in order."""
    written = transfer(d, MachineState.fresh(memory, p), p)
    assert written is not None
    return list(zip(*(array.tolist() for array in written), strict=True))


def stored(d: Transfer, rows: npt.NDArray[np.int64], memory: Bytes, p) -> None:
    """Store from scratchpad ``rows`` to ``memory``, in place."""
    state = MachineState.fresh(memory, p)
    state.pad, state.known = rows.astype(np.int16), np.ones(len(rows), np.bool_)
    transfer(d, state, p)

"""One bit flipped between two descriptors of a program, on any accelerator that executes programs.

What a row of the scratchpad, or an entry of a factor store, holds between two descriptors is found
by the descriptors before it. The program then gets a LOAD there that puts the same words back, but
for one bit. So golden model, simulation and boards take the flip alike, and what follows it is what
follows a particle in the block RAM. External memory is changed before a run.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import numpy.typing as npt

from trainwright.accelerator import Accelerator
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import (
    Compute,
    Descriptor,
    Halt,
    Program,
    Transfer,
)
from trainwright.program.errors import ProgramError
from trainwright.program.fields import Engine, Operation, Target
from trainwright.program.footprint import PAD, Touch, footprint, items_of_run

SPARE_BYTES = 4096
"""At the end of external memory, which no program uses: what the flips are made from."""
MOST_FLIPS = 32
"""Of a program: each has spare bytes of its own."""
Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Flip:
    """Bit ``bit`` of row or entry ``item`` of ``target``, just before descriptor ``before``."""

    target: Target
    before: int
    item: int
    bit: int


def item_bits(target: Target, p: AcceleratorParameters) -> int:
    """Bits of a row of the scratchpad or of an entry of a factor store, as they are stored."""
    if target is Target.SCRATCHPAD:
        return p.lanes * p.word_width
    return (p.lanes if target is Target.PE1_STORE else p.pe2_rows) * p.factor_width


def items(target: Target, p: AcceleratorParameters) -> int:
    """Rows or entries of a memory."""
    return {
        Target.SCRATCHPAD: p.scratchpad_rows,
        Target.PE1_STORE: p.pe1_store_depth,
        Target.PE2_STORE: p.pe2_store_depth,
    }[target]


def _byte_of(bit: int, width: int, storage: int) -> tuple[int, int]:
    """Byte and mask of a bit, of fields of ``width`` bits stored in ``storage`` bits each."""
    place = bit // width * storage + bit % width
    return place // 8, 1 << place % 8


def _require_straight(program: Program) -> None:
    for d in program.descriptors:
        if not isinstance(d, Compute | Transfer | Halt):
            name = d.operation.name
            raise ValueError(f"flips are for programs without loops and registers, not {name}")


def _touched(d: Descriptor, p: AcceleratorParameters) -> tuple[Touch, ...]:
    return footprint(d, p) if isinstance(d, Compute | Transfer) else ()


def _places(d: Transfer, p: AcceleratorParameters) -> Iterator[tuple[int, int]]:
    """First address and first row or entry of each run of a transfer."""
    for index in product(*(range(level.count) for level in d.levels)):
        address, local = d.address, d.local
        for n, level in zip(index, d.levels, strict=True):
            address, local = address + n * level.address, local + n * level.local
        yield address, local


def _source(
    descriptors: tuple[Descriptor, ...], target: Target, entry: int, p: AcceleratorParameters
) -> tuple[int, int] | None:
    """Number of the last LOAD that brought an entry of a factor store, and the address of its
    first byte; none where nothing did."""
    width = p.lanes if target is Target.PE1_STORE else p.pe2_rows
    size = width * p.factor_storage_width // 8
    for number in range(len(descriptors) - 1, -1, -1):
        d = descriptors[number]
        if not isinstance(d, Transfer) or d.operation is not Operation.LOAD or d.target != target:
            continue
        count = items_of_run(d, p)
        found = [(a, local) for a, local in _places(d, p) if local <= entry < local + count]
        if found:
            address, local = found[-1]
            return number, address + (entry - local) * size
    return None


class Injector:
    """Puts flips into programs; ``accelerator`` finds what the memories hold.

    Its external memory is as before after each call, but for the last ``SPARE_BYTES``, which are
    the injector's own.
    """

    def __init__(self, accelerator: Accelerator):
        self._accelerator = accelerator
        self._p = accelerator.parameters
        self._spare = accelerator.memory_bytes

    def flipped(self, program: Program, flip: Flip, number: int = 0) -> Program | None:
        """The program with a flip, its ``number``-th; what it needs is put into the spare bytes.

        ``None`` where nothing was written there yet: whoever reads it writes it first. Raises
        ``ValueError`` for a program with loops or registers, or with too many flips.
        """
        _require_straight(program)
        if number >= MOST_FLIPS:
            raise ValueError(f"a program has at most {MOST_FLIPS} flips")
        self._spare = self._accelerator.memory_bytes - SPARE_BYTES // MOST_FLIPS * (number + 1)
        if not 0 < flip.before < len(program.descriptors):
            raise ValueError(f"there is no descriptor {flip.before} with one before it")
        if flip.target is Target.SCRATCHPAD:
            held = self._row(program, flip)
            first, load = flip.item, self._load(flip.target, flip.item, 2)
        else:
            first, load = self._group(flip)
            held = self._entries(program, flip, first, items_of_run(load, self._p))
        if held is None:
            return None
        size = held.size // items_of_run(load, self._p)
        width, storage = self._widths(flip.target)
        byte, mask = _byte_of(flip.bit, width, storage)
        held[(flip.item - first) * size + byte] ^= mask
        before, after = program.descriptors[: flip.before], program.descriptors[flip.before :]
        # whatever follows must see the flip: it waits, which changes no bit
        resumed = after[0] if isinstance(after[0], Halt) else replace(after[0], wait=Engine.ALL)
        self._accelerator.write(self._spare, held)
        return Program((*before, load, resumed, *after[1:]), program.fingerprint)

    def _widths(self, target: Target) -> tuple[int, int]:
        p = self._p
        if target is Target.SCRATCHPAD:
            return p.word_width, p.word_width
        return p.factor_width, p.factor_storage_width

    def _load(self, target: Target, local: int, beats: int) -> Transfer:
        p = self._p
        to_pad = target is Target.SCRATCHPAD
        element_bytes = p.word_width // 8 if to_pad else 0
        beats = 8 * p.lanes * element_bytes // p.data_width if to_pad else beats
        return Transfer(
            operation=Operation.LOAD, target=target, address=self._spare, local=local, beats=beats,
            element_bytes=element_bytes, wait=Engine.ALL, tensor="flip",
        )  # fmt: skip

    def _group(self, flip: Flip) -> tuple[int, Transfer]:
        """The LOAD of the fewest entries with the flip's among them, and the first of these."""
        beats = 1
        while not (count := items_of_run(self._load(flip.target, 0, beats), self._p)):
            beats += 1
        first = flip.item - flip.item % count
        return first, self._load(flip.target, first, beats)

    def _after(self, descriptors: tuple[Descriptor, ...], fingerprint: int) -> Bytes | None:
        """External memory after a program; none where it reads rows that nothing wrote."""
        accelerator = self._accelerator
        before = accelerator.read(0, accelerator.memory_bytes)
        try:
            accelerator.run(Program((*descriptors, Halt()), fingerprint), 0)
            return accelerator.read(0, accelerator.memory_bytes)
        except ProgramError:
            return None
        finally:
            accelerator.write(0, before)

    def _row(self, program: Program, flip: Flip) -> Bytes | None:
        """A row of the scratchpad as it is before the flip."""
        touched = [t for d in program.descriptors[: flip.before] for t in _touched(d, self._p)]
        if not any(t.write and t.start <= flip.item < t.stop for t in touched if t.space == PAD):
            return None
        load = self._load(Target.SCRATCHPAD, flip.item, 2)
        store = replace(load, operation=Operation.STORE)
        memory = self._after((*program.descriptors[: flip.before], store), program.fingerprint)
        if memory is None:
            return None
        return memory[self._spare : self._spare + load.beats * self._p.beat_bytes].copy()

    def _entries(self, program: Program, flip: Flip, first: int, count: int) -> Bytes | None:
        """Entries of a factor store as they are before the flip; those that nobody loaded are 0."""
        before = program.descriptors[: flip.before]
        if _source(before, flip.target, flip.item, self._p) is None:
            return None
        width = self._p.lanes if flip.target is Target.PE1_STORE else self._p.pe2_rows
        size = width * self._p.factor_storage_width // 8
        held = np.zeros(count * size, np.uint8)
        for n in range(count):
            found = _source(before, flip.target, first + n, self._p)
            if found is None:
                continue
            number, address = found
            memory = self._after(before[:number], program.fingerprint)
            assert memory is not None
            held[n * size : (n + 1) * size] = memory[address : address + size]
        return held

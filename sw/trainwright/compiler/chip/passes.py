"""Build programs that have passes of the vector engine, and products and transposes of PE1.

``Passes`` wraps a ``Builder`` with what all programs of ``chip`` share: rows by bank, constants,
transfers by buffer, the engine's instructions, and the stream of random bits.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from enum import IntEnum
from typing import Any

from trainwright.compiler.base.code import CodeStore
from trainwright.compiler.base.memory import Buffer, Region, largest_divisor
from trainwright.compiler.base.names import IDENTITY, ZEROS
from trainwright.compiler.chip.builder import Builder
from trainwright.compiler.chip.exponents import ExponentSlots
from trainwright.compiler.chip.memory import ChipMemory
from trainwright.kernels import VectorPass
from trainwright.onchip.layout import LANES
from trainwright.program.descriptors import (
    Compute,
    Level,
    Program,
    Set,
    Transfer,
    TransferLevel,
)
from trainwright.program.fields import Operation
from trainwright.program.vector import THREADS, Stream, Vector

COPY_SLOT = 1
"""Statistics slot of copies by PE1."""


class Bank(IntEnum):
    """Bank of the scratchpad, by what is in it."""

    STATE = 0
    FACTORS = 1
    GRADIENTS = 2
    COLUMNS = 3
    IMAGES = 2
    CONSTANTS = 1


class Passes:
    """Program under construction, and the instructions that the engine holds."""

    def __init__(
        self, memory: ChipMemory, slots: ExponentSlots | None = None, *, seed: int | None = None
    ) -> None:
        """Begin a program whose passes draw random bits from the stream of ``seed``.

        With ``slots`` exponents come from the file, and statistics are counted behind those of
        forward and backward pass.
        """
        self.memory, self.slots, self._seed = memory, slots, seed
        self._first = slots.statistics if slots else 0
        # A command of PE1 moves the stream on, so the next pass has to set it again.
        self._moved = True
        self.b = Builder(memory.step.parameters)
        self._code = CodeStore()
        self._constants: dict[str, Region] = {}

    def rows(self, name: str, count: int, bank: int) -> Region:
        """Allocate ``count`` rows of the scratchpad, in a bank if it has room for them.

        Each bank serves one reader and one writer a cycle, so what different engines work on lies
        in different banks.
        """
        return self.b.pad.allocate(name, count, within=self._bank(bank))

    def _bank(self, bank: int) -> range:
        p = self.b.p
        size = p.scratchpad_rows // p.scratchpad_banks
        # Accelerators with fewer banks share them: then engines may wait for each other, but
        # nothing breaks.
        first = bank % p.scratchpad_banks * size
        return range(first, first + size)

    @property
    def freest_bank(self) -> int:
        """Bank with the most rows left."""
        banks = range(self.b.p.scratchpad_banks)
        return max(banks, key=lambda bank: self.b.pad.free_rows(self._bank(bank)))

    def buffer(self, name: str) -> Buffer:
        """Return a buffer of the step, or of its loss and update."""
        return self.memory.everything[name]

    def load(self, name: str, *, first: int = 0, rows: int = 0, to: Region | None = None,
             levels: Sequence[TransferLevel] = ()) -> Region:  # fmt: skip
        """Load ``rows`` rows of a buffer from ``first`` on (0: all of them)."""
        buffer = self.buffer(name)
        row_bytes = buffer.element_bytes * LANES
        rows = rows or buffer.size // row_bytes
        region = to or self.b.pad.allocate(name, rows)
        moved = replace(buffer, address=buffer.address + first * row_bytes)
        self.b.load(moved, region, rows, levels=levels)
        return region

    def constant(self, name: str, bank: int = Bank.CONSTANTS) -> Region:
        """Return a buffer whose rows stay in the scratchpad, loaded when first asked for."""
        if name not in self._constants:
            buffer = self.buffer(name)
            count = buffer.size // (buffer.element_bytes * LANES)
            self._constants[name] = self.load(name, to=self.rows(name, count, bank))
        return self._constants[name]

    def store(
        self, name: str, source: int, rows: int, levels: Sequence[TransferLevel] = (), *,
        first: int = 0,
    ) -> None:  # fmt: skip
        """Store rows from ``source`` on to the rows of a buffer from ``first`` on."""
        buffer = self.buffer(name)
        to = replace(buffer, address=buffer.address + first * buffer.element_bytes * LANES)
        self.b.store(to, Region(name, source, rows), rows, levels=levels)

    @contextmanager
    def in_one_of(self, steps: int, number: int) -> Iterator[None]:
        """Execute what is added within the block in one of ``steps`` steps only.

        That is the step of this number modulo ``steps``, which is 1, 2, 4 or 8. Instructions are
        still put into the engine in every step, as later passes may rely on them.
        """
        first = len(self.b.descriptors)
        yield
        # ``eighth`` holds the interval and the number in one field: 8 + n for one step in eight.
        self.b.descriptors[first:] = [
            replace(d, eighth=steps + number if steps > 1 else 0)
            if isinstance(d, Transfer | Vector)
            else d
            for d in self.b.descriptors[first:]
        ]

    def zeros(self, first: int, rows: int) -> None:
        """Load rows of zeros."""
        buffer = self.buffer(ZEROS)
        run = largest_divisor(rows, LANES)
        levels = [TransferLevel(rows // run, 0, run)]
        self.b.load(buffer, Region(buffer.name, first, run), run, levels=levels)

    def run(
        self, kernel: VectorPass, streams: Mapping[str, Stream] | None = None, *, outer: int = 1,
        inner: int = THREADS, slot: int = 0, **fields: Any,
    ) -> None:  # fmt: skip
        """Emit a pass over rows of ``streams``, and load its instructions where that is needed."""
        entry, code = self._code.place(kernel.instructions)
        self.b.descriptors += code
        if self._moved and self._seed is not None:
            self.b.descriptors.append(Set(values=(), seed=self._seed))
            self._moved = False
        fields |= {"slot": self._first + slot, "outer": outer, "inner": inner}
        self.b.emit(replace(kernel.vector(streams or {}, **fields), entry=entry))

    def products(self, x: int, g: int, z: int, rows: int, *, levels: Sequence[Level] = (),
                 summed: Sequence[Level] = (), steps: tuple[int, int, int] = (1, 1, 1),
                 tensor: str) -> None:  # fmt: skip
        """Emit z[r][l] = sum of x[r][k] * g[l][k] over k.

        There are ``rows`` rows for every index of ``levels``. ``steps`` are the rows from one x, g
        and z to the next; the sum is also taken over ``summed``.
        """
        # Products draw from the same stream of random bits, which a later pass has to set again.
        self._moved = True
        tile = min(self.b.p.pe1_rows, rows)
        tiles = -(-rows // tile)
        self.b.emit(
            Compute(
                operation=Operation.PE4,
                levels=(*levels, Level(tiles, x=tile * steps[0], z=tile * steps[2]), *summed),
                x=x, g=g, z=z, tile_level=len(levels), last_rows=rows - (tiles - 1) * tile,
                reduce_levels=len(summed),
                x_row_stride=steps[0], g_row_stride=steps[1], z_row_stride=steps[2],
                slot=self._first + COPY_SLOT, tensor=tensor,
            )
        )  # fmt: skip

    def transpose(
        self, x: int, z: int, *, blocks: int, source: tuple[int, int], to: tuple[int, int],
        rows: int = LANES, tensor: str,
    ) -> None:  # fmt: skip
        """Emit ``blocks`` transposes of 16 x 16 words, of which ``rows`` rows are written.

        Row r of block n is z + n * to[0] + r * to[1]; its word l is word r of row x + n * source[0]
        + l * source[1].
        """
        levels = (Level(blocks, g=source[0], z=to[0]),)
        self.transposes(x, z, levels, source=source[1], to=to[1], rows=rows, tensor=tensor)

    def transposes(self, x: int, z: int, levels: Sequence[Level], *, source: int, to: int,
                   rows: int = LANES, tensor: str) -> None:  # fmt: skip
        """Emit a transpose for every index of ``levels``, whose g steps over x and z over z."""
        identity = self.constant(IDENTITY)
        self.products(
            identity.start, x, z, rows, levels=levels, steps=(1, source, to), tensor=tensor
        )

    def finish(self, which: str) -> Program:
        """End the program, named ``which`` in messages, and return it."""
        self.b.halt(which)
        return Program(tuple(self.b.descriptors), self.b.p.fingerprint)

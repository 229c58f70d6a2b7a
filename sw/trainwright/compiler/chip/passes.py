"""Build programs that have passes of the vector engine, and products and transposes of PE1.

``Passes`` adds to ``base.commands`` what all programs of ``chip`` share: rows by bank, constants,
and transfers by buffer.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from enum import IntEnum
from typing import Any

from trainwright.compiler.base.commands import Commands
from trainwright.compiler.base.limits import STREAMED
from trainwright.compiler.base.memory import Buffer, LocalMemory, Region, largest_divisor
from trainwright.compiler.base.names import IDENTITY, ZEROS
from trainwright.compiler.chip.exponents import COPY_SLOT, ExponentSlots
from trainwright.compiler.chip.memory import ChipMemory
from trainwright.kernels import VectorPass
from trainwright.program.descriptors import Compute, Halt, Level, Program, Transfer, TransferLevel
from trainwright.program.engines import TRANSPOSER
from trainwright.program.fields import Operation
from trainwright.program.vector import THREADS, Stream, Vector
from trainwright.support.memo import CachedMethod


class Bank(IntEnum):
    """Bank of the scratchpad, by what is in it."""

    STATE = 0
    FACTORS = 1
    GRADIENTS = 2
    COLUMNS = 3
    IMAGES = 2
    CONSTANTS = 1
    SAMPLES = 3


class Passes:
    """Program under construction, and the instructions that the engine holds."""

    def __init__(
        self, memory: ChipMemory, slots: ExponentSlots | None = None, avoid: Sequence[Region] = ()
    ) -> None:
        """Begin a program that does not use the rows of the scratchpad in ``avoid``.

        With ``slots`` exponents come from the file, and statistics are counted behind those of
        forward and backward pass.
        """
        self.memory, self.slots = memory, slots
        self._first = slots.statistics if slots else 0
        self.p = memory.step.parameters
        self.pad, self.commands = LocalMemory(self.p), Commands(self.p)
        self.pad.avoid(avoid)
        self._constants: dict[str, Region] = {}

    def rows(self, name: str, count: int, bank: int | None = None) -> Region:
        """Allocate ``count`` rows of the scratchpad, in a ``bank`` if it has room for them.

        Each bank serves one reader and one writer a cycle, so what different engines work on lies
        in different banks. Without a bank these are the first free rows.
        """
        p, within = self.p, None
        if bank is not None:
            # Accelerators with fewer banks share them: then engines may wait for each other, but
            # nothing breaks.
            first = bank % p.scratchpad_banks * p.bank_rows
            within = range(first, first + p.bank_rows)
        return self.pad.allocate(name, count, within=within)

    def buffer(self, name: str) -> Buffer:
        """Return a buffer of the step, or of its loss and update."""
        return self.memory.everything[name]

    def _move(
        self, operation: Operation, name: str, first: int, local: int, rows: int,
        levels: Sequence[TransferLevel],
    ) -> None:  # fmt: skip
        """Move runs of ``rows`` rows between a buffer, from row ``first`` on, and ``local``."""
        buffer = self.buffer(name)
        size = buffer.element_bytes
        address = buffer.address + first * size * self.p.lanes
        self.commands.move(operation, name, address, local, rows, size, levels)

    def load(self, name: str, *, first: int = 0, rows: int = 0, to: Region | None = None,
             bank: int | None = None, levels: Sequence[TransferLevel] = ()) -> Region:  # fmt: skip
        """Load ``rows`` rows (0: all) of a buffer from row ``first`` on; return their region.

        The region is ``to``, or new rows in a ``bank``.
        """
        rows = rows or self.buffer(name).size // (self.buffer(name).element_bytes * self.p.lanes)
        region = to or self.rows(name, rows, bank)
        self._move(Operation.LOAD, name, first, region.start, rows, levels)
        return region

    def constant(self, name: str, bank: int | None = Bank.CONSTANTS) -> Region:
        """Return a buffer whose rows stay in the scratchpad, loaded when first asked for.

        They lie in a ``bank`` if it has room, or in the first free rows where it is None.
        """
        if name not in self._constants:
            self._constants[name] = self.load(name, bank=bank)
        return self._constants[name]

    @CachedMethod
    def first_lanes(self, count: int) -> Region:
        """Return a matrix that keeps the first ``count`` lanes of a product and clears the rest."""
        region = self.rows(f"{count} lanes", self.p.lanes, Bank.CONSTANTS)
        self.load(IDENTITY, rows=count, to=region)
        self.clear(region.stop, self.p.lanes - count)
        return region

    def store(
        self, name: str, source: int, rows: int, levels: Sequence[TransferLevel] = (), *,
        first: int = 0,
    ) -> None:  # fmt: skip
        """Store rows from ``source`` on to the rows of a buffer from ``first`` on."""
        self._move(Operation.STORE, name, first, source, rows, levels)

    @contextmanager
    def in_one_of(self, steps: int, number: int) -> Iterator[None]:
        """Execute what is added within the block in one of ``steps`` steps only.

        That is the step of this number modulo ``steps``, which is 1, 2, 4 or 8. Instructions are
        still put into the engine in every step, as later passes may rely on them.
        """
        first = len(self.commands.descriptors)
        yield
        # ``eighth`` holds the interval and the number in one field: 8 + n for one step in eight.
        self.commands.descriptors[first:] = [
            replace(d, eighth=steps + number if steps > 1 else 0)
            if isinstance(d, Transfer | Vector)
            else d
            for d in self.commands.descriptors[first:]
        ]

    def clear(self, stop: int, rows: int) -> None:
        """Load zeros to the last ``rows`` rows before ``stop``, which may be none."""
        if rows:
            run = largest_divisor(rows, self.p.lanes)
            levels = [TransferLevel(rows // run, 0, run)]
            self._move(Operation.LOAD, ZEROS, 0, stop - rows, run, levels)

    def run(
        self, kernel: VectorPass, streams: Mapping[str, Stream] | None = None, *, outer: int = 1,
        inner: int = THREADS, slot: int = 0, **fields: Any,
    ) -> None:  # fmt: skip
        """Emit a pass over rows of ``streams``, and load its instructions where that is needed."""
        fields |= {"outer": outer, "inner": inner}
        self.issue(kernel, kernel.vector(streams or {}, **fields), slot=slot)

    def issue(self, kernel: VectorPass, vector: Vector, *, slot: int = 0) -> None:
        """Emit a pass whose rows are known; ``slot`` counts from the first of a loop's own."""
        entry = self.commands.hold(kernel.instructions)
        self.commands.add(replace(vector, entry=entry, slot=self._first + slot))

    def products(self, x: int, g: int, z: int, rows: int, *, levels: Sequence[Level] = (),
                 summed: Sequence[Level] = (), steps: tuple[int, int, int] = (1, 1, 1),
                 tensor: str, **rounding: Any) -> None:  # fmt: skip
        """Emit z[r][l] = sum of x[r][k] * g[l][k] over k.

        There are ``rows`` rows for every index of ``levels``. ``steps`` are the rows from one x, g
        and z to the next; the sum is also taken over ``summed``. ``rounding`` are further fields of
        the descriptor, such as its shift and width.
        """
        tile = min(TRANSPOSER.rows(self.p), rows)
        tiles = -(-rows // tile)
        self.commands.add(
            Compute(
                operation=TRANSPOSER.contraction,
                levels=(*levels, Level(tiles, x=tile * steps[0], z=tile * steps[2]), *summed),
                x=x, g=g, z=z, tile_level=len(levels), last_rows=rows - (tiles - 1) * tile,
                reduce_levels=len(summed),
                x_row_stride=steps[0], g_row_stride=steps[1], z_row_stride=steps[2],
                slot=self._first + COPY_SLOT, tensor=tensor, **rounding,
            )
        )  # fmt: skip

    def transpose(self, x: int, z: int, levels: Sequence[Level], *, source: int, to: int,
                  rows: int = 0, tensor: str) -> None:  # fmt: skip
        """Emit a transpose of a row a lane for every index of ``levels``.

        Their g steps over x and their z over z. Of each block ``rows`` rows (0: all) are written, r
        at z + r * to; its word l is word r of row x + l * source.
        """
        identity, rows = self.constant(IDENTITY), rows or self.p.lanes
        self.products(
            identity.start, x, z, rows, levels=levels, steps=(1, source, to), tensor=tensor
        )

    def finish(self, which: str) -> Program:
        """End the program, named ``which`` in messages, and return it."""
        descriptors = (*self.commands.descriptors, Halt())
        # Without loops a program longer than the program memory is loaded as it goes on.
        STREAMED.require(len(descriptors), self.p, which)
        return Program(descriptors, self.p.fingerprint)

"""Programs as one matrix of integers, as the native executor reads them (``native/machine.h``)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Compute, Descriptor, End, Loop, Set, Transfer
from trainwright.program.exponents import ENTRIES, MoveScales
from trainwright.program.fields import ENGINE_OF, Operation
from trainwright.program.footprint import result_digits
from trainwright.program.sample_order import order_mask
from trainwright.program.samples import Samples
from trainwright.program.validation import has_seed, has_shifts
from trainwright.program.vector import Code, Instruction, Vector, encode_instruction
from trainwright.program.vector_rules import has_constants, has_field_shifts

MOST_LEVELS = 16
_HEAD = 35
WORDS = _HEAD + 4 * MOST_LEVELS
"""Integers of a descriptor."""
_SHIFTS = (13, 17, 18)
"""Where ``shift``, ``x_shift`` and ``g_shift`` of a ``Compute`` lie: what changes from step to
step."""
OVERLAPS, REPEATS, X_WIDTH, G_WIDTH = range(25, 29)
_FOUND = (0, 0, 0, 0)
"""These four, before validation."""
_LATER, _LAST, _EIGHTH = 29, 30, 33
"""Where these of transfers and passes lie, and ``last`` of a CODE."""
_SEED = _HEAD + 1
"""Where the seed of a SET lies: the value of register 0."""
_CONSTANTS = slice(_HEAD, _HEAD + 4 * 8, 4)
"""Where those of a VECTOR lie."""
TRACED = ("load", "pe1", "pe2")
"""Engines that write to the scratchpad."""


def _compute(d: Compute) -> list[int]:
    words = [
        d.operation, d.x, d.x_register, d.g, d.g_register, d.z, d.z_register,
        d.reduce_levels, d.tile_level, d.last_rows, d.x_row_stride, d.z_row_stride, d.g_row_stride,
        d.shift, d.out_width, d.slot, d.relu, d.x_shift, d.g_shift, d.stochastic,
        d.x_format, d.g_format, d.z_format, d.underflow_zero, d.digits, *_FOUND,
        d.x_exponent, d.g_exponent, d.z_exponent, d.exact, d.grows, len(d.levels),
    ]  # fmt: skip
    for level in d.levels:
        words += (level.count, level.x, level.g, level.z)
    return words


def _transfer(d: Transfer) -> list[int]:
    words = [
        d.operation, d.address, d.address_register, d.beats, 0, d.local, d.local_register,
        0, 0, 0, 0, 0, 0, d.element_bytes, 0, 0, 0, 0, 0, 0,
        0, 0, 0, 0, 0, *_FOUND, d.later, d.last, 0, 0, d.eighth, len(d.levels),
    ]  # fmt: skip
    for level in d.levels:
        words += (level.count, level.address, 0, level.local)
    return words


def _update(d: End | Set) -> list[int]:
    words = [0] * (_HEAD + 4 * 8)
    pairs = d.steps if isinstance(d, End) else d.values
    words[0], words[3] = d.operation, sum(1 << register for register, _ in pairs)
    for register, value in pairs:
        words[_HEAD + 4 * register + 1] = value
    if isinstance(d, Set) and d.seed is not None:
        words[3] |= 1
        words[1], words[_SEED] = d.by_step, d.seed
    return words


def _pass(d: Vector) -> list[int]:
    """A VECTOR; ``native/pass.h`` has the names."""
    words = [0] * WORDS
    words[:9] = (
        d.operation, d.entry, d.outer, d.length, d.inner, d.key, d.reads, d.writes, len(d.scalars)
    )  # fmt: skip
    words[15], words[_EIGHTH], words[_LATER], words[_LAST] = d.slot, d.eighth, d.later, d.last
    for n, one in enumerate(d.streams):
        words[_HEAD + 4 * n + 1 : _HEAD + 4 * n + 4] = one.base, one.outer, one.inner
    words[_CONSTANTS] = (*d.constants, *(0,) * (8 - len(d.constants)))
    for n, one in enumerate(d.scalars):
        place = _HEAD + 4 * (8 + n)
        words[place : place + 4] = one.kind, one.plus, one.minus, one.offset
        words[place + 16 : place + 18] = one.to, one.strict
    return words


def _code(d: Code) -> list[int]:
    words = [0] * WORDS
    words[0], words[1], words[3] = d.operation, d.first, len(d.instructions)
    words[_LAST] = d.last
    for n, one in enumerate(d.instructions):
        words[_HEAD + 4 * (n % MOST_LEVELS) + 1 + n // MOST_LEVELS] = encode_instruction(one)
    return words


def _samples(d: Samples) -> list[int]:
    """A SAMPLES; ``native/samples.h`` has the names."""
    return [
        d.operation, d.address, d.address_register, d.record_beats, d.stride, d.local,
        d.local_register, d.samples, d.targets, d.local_step, d.total, order_mask(d.total),
        d.order_first, d.pixels, d.input_bits, 0, d.drawn, d.order_length,
    ]  # fmt: skip


def _scales(d: MoveScales) -> list[int]:
    """A SCALES; ``native/exponents.h`` has the names."""
    words = [0] * WORDS
    words[0], words[3] = d.operation, len(d.entries)
    for n, one in enumerate(d.entries):
        place = _HEAD + 4 * n
        words[place : place + 4] = one.exponent, one.statistics, one.low, one.high
        words[place + 4 * ENTRIES] = one.copy
    return words


def flattened(d: Descriptor) -> list[int]:
    """The integers of a descriptor, at most ``WORDS``."""
    if isinstance(d, Compute):
        return _compute(d)
    if isinstance(d, Transfer):
        return _transfer(d)
    if isinstance(d, End | Set):
        return _update(d)
    if isinstance(d, Vector):
        return _pass(d)
    if isinstance(d, Code):
        return _code(d)
    if isinstance(d, Samples):
        return _samples(d)
    if isinstance(d, MoveScales):
        return _scales(d)
    return [d.operation, d.iterations] if isinstance(d, Loop) else [d.operation]


@dataclass
class Flat:
    """A program, flattened and validated; its shifts and its seed may be replaced."""

    descriptors: tuple[Descriptor, ...]
    words: npt.NDArray[np.int64]
    """(descriptors, WORDS)."""
    rows: npt.NDArray[np.int64]
    """(3,) rows that each engine of ``TRACED`` writes."""
    valid: bool = False

    @classmethod
    def of(cls, descriptors: tuple[Descriptor, ...]) -> "Flat":
        """Flatten a program."""
        words = np.zeros((len(descriptors), WORDS), np.int64)
        for row, d in zip(words, descriptors, strict=True):
            integers = flattened(d)
            row[: len(integers)] = integers
        return cls(descriptors, words, np.zeros(len(TRACED), np.int64))

    def become(self, descriptors: tuple[Descriptor, ...], p: AcceleratorParameters) -> bool:
        """Take other shifts and seeds from ``descriptors``; false, without effect, if more differs.

        False also where one is out of range: such a program is a new one, to be validated.
        """
        if descriptors is self.descriptors:
            return True
        if len(descriptors) != len(self.descriptors):
            return False
        changed: dict[int, tuple[Any, Any]] = {}
        for index, (old, new) in enumerate(zip(self.descriptors, descriptors, strict=True)):
            if old is new:
                continue
            same: Descriptor = new
            if isinstance(old, Compute) and isinstance(new, Compute) and has_shifts(new, p):
                same = replace(new, shift=old.shift, x_shift=old.x_shift, g_shift=old.g_shift)
                changed[index] = _SHIFTS, (new.shift, new.x_shift, new.g_shift)
            elif isinstance(old, Set) and isinstance(new, Set) and has_seed(old) and has_seed(new):
                same = replace(new, seed=old.seed)
                changed[index] = _SEED, new.seed
            elif isinstance(old, Vector) and isinstance(new, Vector) and has_constants(new):
                same = replace(new, constants=old.constants)
                changed[index] = slice(None), _pass(new)
            elif isinstance(old, Code) and isinstance(new, Code) and has_field_shifts(new, p):
                same = replace(new, instructions=_with_shifts(new, old))
                changed[index] = slice(None), _code(new)
            if same != old:
                return False
        for index, (places, values) in changed.items():
            self.words[index, places] = values
        self.descriptors = descriptors
        return True


def _with_shifts(new: Code, old: Code) -> tuple[Instruction, ...]:
    """The instructions of ``new``, with the shifts of ``old`` where there are as many."""
    if len(new.instructions) != len(old.instructions):
        return new.instructions
    pairs = zip(new.instructions, old.instructions, strict=True)
    return tuple(a if a == b else replace(a, shift=b.shift) for a, b in pairs)


def executed(
    descriptors: Sequence[Descriptor],
) -> Iterator[tuple[int, Compute | Transfer | Samples | Vector]]:
    """Yield what engines execute, with its number, loops unrolled; loops match."""
    open_loops: list[list[int]] = []
    at = 0
    while at < len(descriptors):
        d = descriptors[at]
        at += 1
        if isinstance(d, Loop):
            open_loops.append([at, d.iterations])
        elif isinstance(d, End):
            open_loops[-1][1] -= 1
            if open_loops[-1][1]:
                at = open_loops[-1][0]
            else:
                open_loops.pop()
        elif isinstance(d, Compute | Transfer | Samples | Vector):
            yield at - 1, d
        elif not isinstance(d, Set | Code | MoveScales):
            return


def rows_of(d: Compute | Transfer | Samples, rows: int, p: AcceleratorParameters) -> int:
    """Rows of the scratchpad that an execution of ``d`` writes; ``rows`` are those of a tile."""
    if isinstance(d, Samples):
        return d.samples * (d.rows + 1)
    if isinstance(d, Transfer):
        return d.runs * d.beats // d.element_bytes if d.operation is Operation.LOAD else 0
    short = d.tiles // d.levels[d.tile_level].count
    return ((d.tiles - short) * rows + short * d.last_rows) * result_digits(d, p)


def engine_of(d: Compute | Transfer | Samples | Vector) -> str:
    """The name of the engine that executes ``d``."""
    return (ENGINE_OF[d.operation].name or "").lower()

"""Programs as one matrix of integers, as the native executor reads them (``native/isa.h``)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Compute, Descriptor, End, Loop, Set, Transfer
from trainwright.program.engines import SPEC_OF, TRACED
from trainwright.program.exponents import MoveScales
from trainwright.program.records import KINDS, record, record_column, record_type
from trainwright.program.samples import Samples
from trainwright.program.validation import SHIFTS, has_seed, has_shifts
from trainwright.program.vector import Code, Instruction, Vector
from trainwright.program.vector_rules import has_constants, has_field_shifts

WORDS = max(record_type(kind).itemsize for kind in KINDS) // np.dtype(np.int64).itemsize
"""Integers of the longest record, and so of a descriptor."""
_SHIFTS = [record_column(Compute, name) for name in SHIFTS]
_SEED = record_column(Set, "value")
"""Integer of a SET that holds the seed: the value of register 0."""


@dataclass
class Flat:
    """A program, flattened and validated; its shifts and its seed may be replaced."""

    descriptors: tuple[Descriptor, ...]
    words: npt.NDArray[np.int64]
    """(descriptors, WORDS)."""
    rows: npt.NDArray[np.int64]
    """Rows that each engine of ``TRACED`` writes."""
    valid: bool = False

    @classmethod
    def of(cls, descriptors: tuple[Descriptor, ...]) -> "Flat":
        """Flatten a program."""
        words = np.zeros((len(descriptors), WORDS), np.int64)
        for row, d in zip(words, descriptors, strict=True):
            integers = record(d)
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
        # Training changes shifts (exponents moved), seeds and constants from step to step; anything
        # else makes another program, whose addresses and loops have to be checked again.
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
                changed[index] = _whole(new)
            elif isinstance(old, Code) and isinstance(new, Code) and has_field_shifts(new, p):
                same = replace(new, instructions=_with_shifts(new, old))
                changed[index] = _whole(new)
            if same != old:
                return False
        # Only after every descriptor has been compared: a program that differs at its end must not
        # leave half of its shifts here.
        for index, (places, values) in changed.items():
            self.words[index, places] = values
        self.descriptors = descriptors
        return True


def _whole(d: Descriptor) -> tuple[slice, list[int]]:
    """Return the places of a whole record, and its integers."""
    integers = record(d)
    return slice(len(integers)), integers


def _with_shifts(new: Code, old: Code) -> tuple[Instruction, ...]:
    """Return the instructions of ``new``, with the shifts of ``old`` where there are as many."""
    if len(new.instructions) != len(old.instructions):
        return new.instructions
    # More or fewer instructions: the comparison after this call then finds a difference.
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


def engine_of(d: Compute | Transfer | Samples | Vector) -> str:
    """Return the name of the engine that executes ``d``."""
    return SPEC_OF[d.operation].unit

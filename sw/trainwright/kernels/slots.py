"""The tables of the vector engine by their numbers, and their words as its memory has them."""

from enum import IntEnum
from functools import cache

import numpy as np

from trainwright.kernels import functions
from trainwright.kernels.tables import ENTRIES, FunctionTable


class Slot(IntEnum):
    """Number of a table of 64 entries."""

    EXP2 = 0
    RECIPROCAL = 1
    ROOT = 2
    """Reciprocal root of mantissas in [1, 2)."""
    ROOT_ABOVE = 3
    """Reciprocal root of mantissas in [2, 4), for odd exponents."""
    LOG2 = 4
    NORMAL = 5
    """Share of the normal distribution below x."""
    GELU_SLOPE = 6


SLOTS = 8
"""Tables in an engine; slots without a function are 0."""


@cache
def table_of(number: int) -> FunctionTable:
    """Return the table of a slot; zeros where the slot has no function."""
    root = functions.root_table()
    tables = {
        Slot.EXP2: functions.exp2_table(),
        Slot.RECIPROCAL: functions.reciprocal_table(),
        Slot.ROOT: FunctionTable(root.bases[:ENTRIES], root.slopes[:ENTRIES]),
        Slot.ROOT_ABOVE: FunctionTable(root.bases[ENTRIES:], root.slopes[ENTRIES:]),
        Slot.LOG2: functions.log2_table(),
        Slot.NORMAL: functions.normal_table(),
        Slot.GELU_SLOPE: functions.gelu_slope_table(),
    }
    nothing = np.zeros(ENTRIES, np.int64)
    return {int(slot): table for slot, table in tables.items()}.get(
        number, FunctionTable(nothing, nothing)
    )


def table_words() -> list[tuple[int, int]]:
    """List (base, slope) of every entry of every slot."""
    tables = [table_of(number) for number in range(SLOTS)]
    return [
        (int(base), int(slope))
        for table in tables
        for base, slope in zip(table.bases, table.slopes, strict=True)
    ]

"""Ports of arrays to the write-back unit: one for each kind of array."""

from amaranth.hdl import signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from trainwright.parameters import AcceleratorParameters
from trainwright.program.engines import ARRAYS, EngineSpec
from trainwright.program.fields import LOCAL_WIDTH
from trainwright_hw.arith.format import LaneFormat
from trainwright_hw.control.engine_ports import COMPUTE_LAYOUT

KINDS = ("columns", "rows")
"""Kinds of arrays in the order of the bit that tells them apart: tiles come by columns, or by rows.

Ports of the write-back unit have these names.
"""

ROWS_WIDTH = 5
"""Bits of a number of rows, 1 to 16."""

TILE_LAYOUT = data.StructLayout({"z": LOCAL_WIDTH, "rows": ROWS_WIDTH, "final": 1, "context": 1})
"""Destination of a tile's rows, how many are written, and their command.

``final`` marks the command's last rows, ``context`` is the command's context.
"""

PLAN_AHEAD = 3
"""Cycles by which a tile of columns starts earlier before its first value than a tile of rows."""


def kind_of(array: EngineSpec) -> str:
    """Return the kind of an array: sums along the lanes are complete a column at a time."""
    return KINDS[0] if array.along_lanes else KINDS[1]


def tallest_tile(parameters: AcceleratorParameters, kind: str) -> int:
    """Return the rows of the tallest tile that an array of a kind delivers."""
    return max(array.rows(parameters) for array in ARRAYS.values() if kind_of(array) == kind)


def row_lead(arithmetic: LaneFormat) -> int:
    """Return the minimum cycles from the start of a tile to the values of its first row."""
    return 3 + arithmetic.decode_cycles + arithmetic.product_cycles


def column_lead(arithmetic: LaneFormat) -> int:
    """Return the cycles from the start of a tile to the first value of its first column."""
    return PLAN_AHEAD + row_lead(arithmetic)


def _common(parameters: AcceleratorParameters, units: int) -> dict:
    """Return the members of both ports."""
    random = {"stream": Out(32)} if parameters.stochastic_rounding else {}
    return {
        "configure": Out(1),
        "configure_context": Out(1),
        "command": Out(COMPUTE_LAYOUT),
        **random,
        "start": Out(1),
        "tile": Out(TILE_LAYOUT),
        "value": Out(signed(parameters.vector_width)).array(units),
        "final_row": In(1),
        "item": In(1),
        "back_pressured": In(1),
    }


class ColumnPort(wiring.Signature):
    """Port of an array whose tiles come column by column and cannot wait.

    A cycle of ``configure`` takes the settings of ``command`` (shift, width, slot, stride and
    rounding; with stochastic rounding also ``stream``) for ``configure_context``. A tile is
    announced by ``start`` with ``tile``, at least ``lanes`` cycles apart; ``credit`` must have been
    high in the cycle before. Column n is due n cycles after the first, which is ``column_lead``
    cycles after ``start``, and ``value[r]``, up to ``rows`` of them, r cycles after ``value[0]``.
    ``final_row``: the last row of a command is written; ``item``: its statistics are delivered;
    ``back_pressured``: in the cycle before, the oldest row was this array's and waited for the
    scratchpad.
    """

    def __init__(self, parameters: AcceleratorParameters, *, rows: int):
        common = _common(parameters, rows)
        super().__init__({**common, "credit": In(1)})


class RowPort(wiring.Signature):
    """Port of an array whose tiles come row by row, and can wait.

    Like ``ColumnPort``, except: a tile may ``start`` while ``ready``. Its row ``next_row`` is due
    in the cycle after a cycle of ``next_due`` (with ``next_context``), the first row ``row_lead``
    cycles after ``start`` or later, and ``value[n]`` n cycles after ``value[0]``; values that are
    not due are 0. ``prompt``: the first row of a tile that starts now is due as early as possible;
    values that cannot be buffered start only then. ``offered``: there is a tile to start.
    """

    def __init__(self, parameters: AcceleratorParameters):
        super().__init__(
            {
                **_common(parameters, parameters.lanes),
                "offered": Out(1),
                "ready": In(1),
                "prompt": In(1),
                "next_due": In(1),
                "next_row": In(ROWS_WIDTH),
                "next_context": In(1),
            }
        )

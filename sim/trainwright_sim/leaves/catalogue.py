"""The blocks that have a C++ model, and for which of their parameters."""

from collections.abc import Mapping
from typing import Any

from amaranth.hdl import Value

from trainwright.program.descriptors import DIGIT_WIDTH
from trainwright.program.fields import Operation
from trainwright_hw.arith.fixed import FixedArithmetic
from trainwright_hw.compute.pe1.dot_array import DotProductArray
from trainwright_hw.compute.pe2.drain import Drain
from trainwright_hw.compute.pe2.outer_array import OuterProductArray
from trainwright_hw.compute.pe2.vector import VectorUnit
from trainwright_hw.writeback.lanes import EncodedLanes
from trainwright_sim.leaves.leaf import Leaf

MOST_LANES = 16


def _lanes(lanes: int) -> bool:
    return lanes <= MOST_LANES and lanes & (lanes - 1) == 0


def _array(block: Any) -> Mapping[str, int] | None:
    """Integers of up to 16 bits."""
    arithmetic, members = block._arithmetic, block.signature.members
    if not isinstance(arithmetic, FixedArithmetic) or not _lanes(block._lanes):
        return None
    if arithmetic.left_width != arithmetic.right_width or arithmetic.left_width > 16:
        return None
    return {
        "rows": block._rows,
        "lanes": block._lanes,
        "word": arithmetic.left_width,
        "sum": arithmetic.accumulator_width,
        "digit": DIGIT_WIDTH if "digit" in members else 0,
    }


def _vector(block: Any) -> Mapping[str, int] | None:
    """Whole words in fixed point."""
    arithmetic = block._arithmetic
    if not isinstance(arithmetic, FixedArithmetic) or block._by_digits or not _lanes(block._lanes):
        return None
    return {
        "lanes": block._lanes,
        "word": arithmetic.left_width,
        "value": len(block.value[0]),
        "factor": block._factor_width,
        "bias": Operation.BIAS,
        "mask": Operation.MASK,
    }


def _vector_inputs(block: Any) -> Mapping[str, Value]:
    plain = ("valid", "context", "configure", "configure_context", "x_row", "g_row")
    fields = ("operation", "relu", "x_shift", "g_shift")
    return {
        **{name: Value.cast(getattr(block, name)) for name in plain},
        **{name: Value.cast(block.command[name]) for name in fields},
    }


def _encoded(block: Any) -> Mapping[str, int] | None:
    """Fixed point, rounded to nearest."""
    p = block._parameters
    if not isinstance(block._arithmetic, FixedArithmetic) or p.stochastic_rounding:
        return None
    if not _lanes(p.lanes) or p.pe1_rows & (p.pe1_rows - 1):
        return None
    return {
        "rows": p.pe1_rows,
        "lanes": p.lanes,
        "value": p.vector_width,
        "word": p.result_width,
    }


DOT_ARRAY = Leaf(block=DotProductArray, model="dot_array", arguments=_array)
OUTER_ARRAY = Leaf(block=OuterProductArray, model="outer_array", arguments=_array)
VECTOR_UNIT = Leaf(
    block=VectorUnit, model="vector_unit", arguments=_vector, inputs=_vector_inputs
)
DRAIN = Leaf(
    block=Drain,
    model="drain",
    arguments=lambda block: {"lanes": block._lanes} if _lanes(block._lanes) else None,
)
ENCODED_LANES = Leaf(block=EncodedLanes, model="encoded_lanes", arguments=_encoded)

LEAVES = (DOT_ARRAY, OUTER_ARRAY, VECTOR_UNIT, DRAIN, ENCODED_LANES)
"""In the order in which what they give without a clock is passed on."""
KINDS = tuple(leaf.model for leaf in LEAVES)

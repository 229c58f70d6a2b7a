"""The blocks that have a C++ model, and for which of their parameters."""

from collections.abc import Mapping
from typing import Any

from amaranth.hdl import Value

from trainwright.program.descriptors import DIGIT_WIDTH
from trainwright.program.fields import NEST_LEVELS, Operation
from trainwright_hw.arith.fixed import FixedArithmetic
from trainwright_hw.arith.lanes import lane_format
from trainwright_hw.compute.loop_nest import LoopNest
from trainwright_hw.compute.pe1.dot_array import DotProductArray
from trainwright_hw.compute.pe2.drain import Drain
from trainwright_hw.compute.pe2.operands import Operands
from trainwright_hw.compute.pe2.outer_array import OuterProductArray
from trainwright_hw.compute.pe2.vector import VectorUnit
from trainwright_hw.storage.banks import Banks
from trainwright_hw.storage.ports import ROW_LATENCY
from trainwright_hw.storage.scratchpad import Scratchpad
from trainwright_hw.stream.registered_queue import RegisteredQueue
from trainwright_hw.writeback.lanes import EncodedLanes
from trainwright_hw.writeback.row_sums import RowSums
from trainwright_sim.leaves.leaf import Leaf, members

MOST_LANES = 16
MOST_READERS, MOST_WRITERS = 8, 4
LEAST_QUEUE = 1
"""Bits of a word for which a model of a queue is faster than its registers."""


def _lanes(lanes: int) -> bool:
    return lanes <= MOST_LANES and lanes & (lanes - 1) == 0


def _array(block: Any) -> Mapping[str, int] | None:
    """Return the model's arguments for integers of up to 16 bits."""
    arithmetic, members = block._arithmetic, block.signature.members
    if not isinstance(arithmetic, FixedArithmetic) or not _lanes(block._lanes):
        return None
    if arithmetic.left_width != arithmetic.right_width or arithmetic.left_width > 16:
        return None
    if block._rows > MOST_LANES:
        return None
    return {
        "rows": block._rows,
        "lanes": block._lanes,
        "word": arithmetic.left_width,
        "sum": arithmetic.accumulator_width,
        "digit": DIGIT_WIDTH if "digit" in members else 0,
    }


def _outer(block: Any) -> Mapping[str, int] | None:
    """Return the arguments as ``_array`` does, if the rounding needs no random bits."""
    return None if getattr(block._arithmetic, "with_random", False) else _array(block)


def _drain(block: Drain) -> Mapping[str, int] | None:
    """Return the arguments for fixed point that is rounded to nearest."""
    p = block._parameters
    if p.stochastic_rounding or p.formats or not _lanes(p.lanes):
        return None
    return {"lanes": p.lanes}


def _vector(block: Any) -> Mapping[str, int] | None:
    """Return the arguments for fixed-point lanes that multiply whole words at once."""
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


_VECTOR_FIELDS = ("operation", "relu", "x_shift", "g_shift")


def _vector_ports(block: Any) -> tuple[Mapping[str, Value], Mapping[str, Value]]:
    """Return the ports, with only those fields of the command that the model reads."""
    inputs, outputs = members(block)
    plain = {name: value for name, value in inputs.items() if name != "command"}
    command = {name: Value.cast(block.command[name]) for name in _VECTOR_FIELDS}
    return {**plain, **command}, outputs


_LEVEL_FIELDS = ("count", "x_delta", "g_delta", "z_delta")
_NEST_FIELDS = frozenset(
    ("x_base", "g_base", "z_base", "reduce_levels", "tile_level", "digits", "underflow_zero")
) | {f"{name}{level}" for name in _LEVEL_FIELDS for level in range(NEST_LEVELS)}


def _nest(block: Any) -> Mapping[str, int] | None:
    """Return the arguments; the model covers every loop nest."""
    p = block._parameters
    return {"levels": p.nest_levels, "digits": p.narrow + p.narrow * p.wide_tensors}


def _queue(block: RegisteredQueue) -> Mapping[str, int] | None:
    """Return the arguments for a queue with at most eight flags."""
    if block.width < LEAST_QUEUE or len(block._flags) > 8:
        return None
    return {
        "width": block.width,
        "depth": block.depth,
        "counted": int(block.counted),
        "flags": len(block._flags),
    }


def _queue_ports(block: RegisteredQueue) -> tuple[Mapping[str, Value], Mapping[str, Value]]:
    inputs, outputs = ("w_en", "w_data", "r_en"), ("w_rdy", "r_rdy", "r_data", "level")
    return {n: getattr(block, n) for n in inputs}, {n: getattr(block, n) for n in outputs}


def _encoded(block: Any) -> Mapping[str, int] | None:
    """Return the arguments for fixed point that is rounded to nearest."""
    p, rows = block._parameters, len(block.column)
    if not isinstance(block._arithmetic, FixedArithmetic) or p.stochastic_rounding:
        return None
    if not _lanes(p.lanes) or rows & (rows - 1):
        return None
    return {
        "rows": rows,
        "lanes": p.lanes,
        "value": p.vector_width,
        "word": p.result_width,
    }


def _banks(block: Banks) -> Mapping[str, int] | None:
    """Return the arguments for banks with a limited number of readers and writers."""
    p = block._parameters
    if block._readers > MOST_READERS or block._writers > MOST_WRITERS:
        return None
    return {
        "count": p.scratchpad_banks,
        "depth": p.bank_rows,
        "row": p.lanes * p.word_width,
        "readers": block._readers,
        "writers": block._writers,
    }


def _scratchpad(block: Scratchpad) -> Mapping[str, int] | None:
    """Return the arguments for a scratchpad whose requests come from queues, unchecked."""
    p, readers, writers = block.parameters, len(block.read), len(block.write)
    if p.vector_engine or p.address_checks or readers > MOST_READERS or writers > MOST_WRITERS:
        return None
    return {
        "count": p.scratchpad_banks,
        "depth": p.bank_rows,
        "row": p.lanes * p.word_width,
        "readers": readers,
        "writers": writers,
        "latency": ROW_LATENCY,
    }


def _scratchpad_ports(block: Scratchpad) -> tuple[Mapping[str, Value], Mapping[str, Value]]:
    inputs: dict[str, Value] = {}
    outputs: dict[str, Value] = {}
    for n, port in enumerate(block.read):
        inputs |= {f"read_valid{n}": port.request.valid}
        inputs |= {f"read_address{n}": port.request.payload}
        outputs |= {f"read_ready{n}": port.request.ready}
        outputs |= {f"row_valid{n}": port.valid, f"row{n}": Value.cast(port.row)}
    for n, port in enumerate(block.write):
        inputs |= {f"write_banks{n}": port.banks, f"write_address{n}": port.request.payload}
        inputs |= {f"write_row{n}": Value.cast(port.row)}
        outputs |= {f"write_ready{n}": port.request.ready}
    return inputs, outputs


def _sums(block: RowSums) -> Mapping[str, int] | None:
    """Return the arguments for row sums in fixed point."""
    if not isinstance(block._arithmetic, FixedArithmetic) or not _lanes(block._lanes):
        return None
    return {"lanes": block._lanes, "word": block._word_width}


def _operands(block: Operands) -> Mapping[str, int] | None:
    """Return the arguments for operands in fixed point."""
    p = block._parameters
    if not isinstance(lane_format(p), FixedArithmetic):
        return None
    return {"rows": p.pe2_rows, "lanes": p.lanes, "word": p.word_width}


BANKS = Leaf(block=Banks, model="banks", arguments=_banks, ports=members)
SCRATCHPAD = Leaf(
    block=Scratchpad, model="scratchpad", arguments=_scratchpad, ports=_scratchpad_ports
)
ROW_SUMS = Leaf(block=RowSums, model="row_sums", arguments=_sums, ports=members)
OPERANDS = Leaf(block=Operands, model="operands", arguments=_operands, ports=members)
DOT_ARRAY = Leaf(block=DotProductArray, model="dot_array", arguments=_array, ports=members)
OUTER_ARRAY = Leaf(block=OuterProductArray, model="outer_array", arguments=_outer, ports=members)
VECTOR_UNIT = Leaf(
    block=VectorUnit,
    model="vector_unit",
    arguments=_vector,
    ports=_vector_ports,
    fields=frozenset(_VECTOR_FIELDS),
)
DRAIN = Leaf(block=Drain, model="drain", arguments=_drain, ports=members)
ENCODED_LANES = Leaf(block=EncodedLanes, model="encoded_lanes", arguments=_encoded, ports=members)

LOOP_NEST = Leaf(
    block=LoopNest, model="loop_nest", arguments=_nest, ports=members, fields=_NEST_FIELDS
)
REGISTERED_QUEUE = Leaf(
    block=RegisteredQueue, model="registered_queue", arguments=_queue, ports=_queue_ports
)

LEAVES = (
    LOOP_NEST,
    REGISTERED_QUEUE,
    BANKS,
    SCRATCHPAD,
    ROW_SUMS,
    OPERANDS,
    DOT_ARRAY,
    OUTER_ARRAY,
    VECTOR_UNIT,
    DRAIN,
    ENCODED_LANES,
)
"""Leaf blocks, each after those whose outputs it needs in the same cycle."""
KINDS = tuple(leaf.model for leaf in LEAVES)
SETTLED = {"scratchpad": ("read_valid", "read_address", "write_banks")}
"""Inputs, by the begin of their names, that decide outputs of the same cycle which RTL reads, too.

Models must drive these inputs, so that their values after a clock are known.
"""
COMBINATIONAL = {"outer_array": ("value",), "drain": ("value",)}
"""Outputs that depend on inputs of the same cycle: models alone may take them."""

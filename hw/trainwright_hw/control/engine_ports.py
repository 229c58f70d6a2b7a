"""Ports between the sequencer and the engines: commands, status, and statistics of results."""

from amaranth.hdl import Module, Value, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from trainwright.accelerator.registers import PAGE_SHIFT
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Compute, Transfer
from trainwright.program.fields import (
    EXPONENT_SLOT_WIDTH,
    ORDER_WIDTH,
    REGISTER_WIDTH,
    SLOT_WIDTH,
)
from trainwright.program.table import Field

SUM_WIDTH = 48
"""Bits of a sum of |q|."""
EXPONENT_WIDTH = 8
"""Bits of an exponent in the file."""
SCALAR_WIDTH = 10
"""Bits of the difference of two exponents plus an offset of 7 bits."""
SATURATIONS_WIDTH = 32
"""Bits of a count of saturations or of underflows."""


def command_layout(fields: tuple[Field, ...]) -> data.StructLayout:
    """Lay out a descriptor's fields as a structure: the same bits as in memory.

    Fields of the exponent file, which engines do not see, are left out. Raises ``ValueError`` if
    another field follows them, because the structure would move its bits.
    """
    # Engines see a prefix of the descriptor: the layout is a cast of the memory's bits, without a
    # rewiring.
    seen = {field.name: field.width for field in fields if not field.resident}
    for field, kept in zip(fields, seen, strict=False):
        if field.name != kept:
            raise ValueError(
                f"field {kept} is behind {field.name}, which engines do not see: put it before "
                "the fields of the exponent file, or mark it as resident"
            )
    return data.StructLayout(seen)


def whole_layout(fields: tuple[Field, ...]) -> data.StructLayout:
    """Lay out all fields of a descriptor as a structure."""
    return data.StructLayout({field.name: field.width for field in fields})


COMPUTE_LAYOUT = command_layout(Compute.layout)
TRANSFER_LAYOUT = command_layout(Transfer.layout)


def totals_layout(parameters: AcceleratorParameters) -> data.StructLayout:
    """Lay out the counts of results; underflows only with posits."""
    # Fixed point never underflows: the count would be a constant that the host would have to read.
    counts = ("saturations", *(["underflows"] if parameters.formats else []))
    return data.StructLayout({"sum": SUM_WIDTH, **dict.fromkeys(counts, SATURATIONS_WIDTH)})


def slot_width(parameters: AcceleratorParameters) -> int:
    """Return the bits of the number of a statistics slot, as engines and the host's side carry it.

    Accelerators of up to 256 slots carry 8 bits, whatever their number of slots.
    """
    return max(8, exact_log2(parameters.statistics_depth))


def used_bits(parameters: AcceleratorParameters) -> dict[str, int]:
    """Return the bits of COMPUTE's fields, the low ones, where engines do not use all of them."""
    p = parameters
    absent = {
        "x_format": not p.formats,
        "g_format": not p.formats,
        "z_format": not p.formats,
        "digits": not p.narrow,
        "stochastic": not p.stochastic_rounding,
    }
    slot = {"slot": exact_log2(p.statistics_depth)}
    return slot | {name: 0 for name, is_absent in absent.items() if is_absent}


def window_layout(parameters: AcceleratorParameters) -> data.StructLayout:
    """Lay out the first and last page of the external memory that programs may touch."""
    # Pages, not bytes: a comparison of few bits fits into the cycle of a burst's address.
    width = parameters.address_width - PAGE_SHIFT
    return data.StructLayout({"first": width, "last": width})


class StatisticsPort(wiring.Signature):
    """Stream of items, one per command, that are added to statistics slots."""

    def __init__(self, parameters: AcceleratorParameters):
        slot = slot_width(parameters)
        layout = data.StructLayout({"slot": slot, **totals_layout(parameters).members})
        super().__init__({"item": Out(stream.Signature(layout))})


class EngineStatus(wiring.Signature):
    """Status of an engine for the sequencer and the counters, in each cycle.

    ``busy``: from the cycle after a command is taken until its last effect is done (rows written,
    statistics delivered). ``older``: a command before the last one is not done (where an engine
    cannot tell, the same as ``busy``). ``stall_operand``: busy, and waiting for an operand.
    ``stall_result``: busy, and waiting for credit for a result.
    """

    def __init__(self):
        super().__init__(
            {"busy": Out(1), "older": Out(1), "stall_operand": Out(1), "stall_result": Out(1)}
        )


class ComputeEngine(wiring.Signature):
    """Side of an array that faces the sequencer.

    Bases in ``command`` are already resolved (registers added). Accelerators with stochastic
    rounding also have ``stream``, the command's stream of random bits; accelerators with posits
    also have ``invalid``, high for a cycle where a word of an operand stands for no number.
    """

    def __init__(self, parameters: AcceleratorParameters):
        super().__init__(
            {
                "command": In(stream.Signature(COMPUTE_LAYOUT)),
                "status": Out(EngineStatus()),
                **({"stream": In(32)} if parameters.stochastic_rounding else {}),
                **({"invalid": Out(1)} if parameters.formats else {}),
            }
        )


class OrderPort(wiring.Signature):
    """Host's access to the generator's registers (``trainwright.program.sample_order``).

    ``write`` has a bit for each of ``next``, ``increment`` and ``left``: the register takes the
    bytes of ``value`` outside ``keep``. Not allowed while samples are drawn.
    """

    def __init__(self):
        super().__init__(
            {
                "next": Out(ORDER_WIDTH),
                "increment": Out(REGISTER_WIDTH),
                "left": Out(ORDER_WIDTH),
                "write": In(3),
                "keep": In(REGISTER_WIDTH),
                "value": In(REGISTER_WIDTH),
            }
        )


class HostSlot(wiring.Signature):
    """Host's access to the exponent file, between two descriptors.

    ``read`` is held until ``done``, in whose first cycle ``value`` is the exponent of ``slot`` in
    the previous cycle, and then withdrawn for a cycle. ``write`` stores ``data`` in ``slot`` and
    marks the exponent as not known to be above its floor; it is not allowed while a program runs.
    """

    def __init__(self):
        super().__init__(
            {
                "slot": In(EXPONENT_SLOT_WIDTH),
                "read": In(1),
                "done": Out(1),
                "value": Out(signed(EXPONENT_WIDTH)),
                "write": In(1),
                "data": In(signed(EXPONENT_WIDTH)),
            }
        )


class TakenSum(wiring.Signature):
    """Access of SCALES to a statistics slot.

    While ``take`` is high, ``total`` is the sum of ``slot`` from the first cycle of ``there`` on;
    ``zero`` sets it to 0.
    """

    def __init__(self):
        super().__init__(
            {
                "take": Out(1),
                "slot": Out(SLOT_WIDTH),
                "there": In(1),
                "total": In(SUM_WIDTH),
                "zero": Out(1),
            }
        )


class StepPort(wiring.Signature):
    """Sequencer's side of the repetition of programs.

    ``times`` is how often a start runs a program; ``step`` is the present step's number, which the
    host may ``write`` between runs, with the bytes of ``value`` outside ``keep``.
    """

    def __init__(self):
        super().__init__(
            {
                "times": In(REGISTER_WIDTH),
                "step": Out(REGISTER_WIDTH),
                "write": In(1),
                "keep": In(REGISTER_WIDTH),
                "value": In(REGISTER_WIDTH),
            }
        )


def write_bytes(m: Module, write: Value, register: Value, keep: Value, value: Value) -> None:
    """Write the bytes of ``value`` outside ``keep`` to a register in a cycle of ``write``.

    All bits of ``keep`` within a byte are equal.
    """
    for first in range(0, len(register), 8):
        with m.If(write & ~keep[first]):
            m.d.sync += register[first : first + 8].eq(value[first : first + 8])

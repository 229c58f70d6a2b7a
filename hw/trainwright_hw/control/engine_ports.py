"""Between the sequencer and the engines: commands, status, and the statistics of results."""

from amaranth.hdl import Module, Value, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from trainwright.accelerator.registers import PAGE_SHIFT
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Compute, Transfer
from trainwright.program.fields import (
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
"""Bits of the difference of two exponents, and an offset of 7 bits."""
SATURATIONS_WIDTH = 32
"""Bits of a count of saturations, or of underflows."""


def command_layout(fields: tuple[Field, ...]) -> data.StructLayout:
    """A descriptor's fields as a structure: the same bits as in memory.

    Those of the exponent file, which engines do not see, are left out. They are the last ones:
    raises ``ValueError`` for a field behind them, which the structure would put in another place.
    """
    seen = {field.name: field.width for field in fields if not field.resident}
    for field, kept in zip(fields, seen, strict=False):
        if field.name != kept:
            raise ValueError(
                f"field {kept} is behind {field.name}, which engines do not see: put it before "
                "the fields of the exponent file, or mark it as resident"
            )
    return data.StructLayout(seen)


def whole_layout(fields: tuple[Field, ...]) -> data.StructLayout:
    """All fields of a descriptor as a structure."""
    return data.StructLayout({field.name: field.width for field in fields})


COMPUTE_LAYOUT = command_layout(Compute.layout)
TRANSFER_LAYOUT = command_layout(Transfer.layout)


def totals_layout(parameters: AcceleratorParameters) -> data.StructLayout:
    """What is counted of results: underflows where there are posits."""
    counts = ("saturations", *(["underflows"] if parameters.formats else []))
    return data.StructLayout({"sum": SUM_WIDTH, **dict.fromkeys(counts, SATURATIONS_WIDTH)})


def window_layout(parameters: AcceleratorParameters) -> data.StructLayout:
    """The part of the external memory that programs may touch: its first and its last page."""
    width = parameters.address_width - PAGE_SHIFT
    return data.StructLayout({"first": width, "last": width})


class StatisticsPort(wiring.Signature):
    """What one command adds to its statistics slot; a stream, one item a command."""

    def __init__(self, parameters: AcceleratorParameters):
        layout = data.StructLayout({"slot": 8, **totals_layout(parameters).members})
        super().__init__({"item": Out(stream.Signature(layout))})


class EngineStatus(wiring.Signature):
    """What an engine tells the sequencer and the counters, each cycle.

    ``busy``: from the cycle after a command is taken until its last effect is done (rows written,
    statistics handed over). ``older``: a command before the last one is not done (where that is not
    known, the same as ``busy``). ``stall_operand``: busy, and waiting for an operand.
    ``stall_result``: busy, and waiting for credit for a result.
    """

    def __init__(self):
        super().__init__(
            {"busy": Out(1), "older": Out(1), "stall_operand": Out(1), "stall_result": Out(1)}
        )


class ComputeEngine(wiring.Signature):
    """The side of PE1 and PE2 that faces the sequencer.

    ``command``'s bases are already resolved (registers added). Accelerators with stochastic
    rounding have ``stream`` too, that of the command; those with posits ``invalid``, high for a
    cycle where a word of an operand stands for no number.
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
    """The generator's registers (``trainwright.program.sample_order``), to the host.

    ``write`` has a bit for each of ``next``, ``increment`` and ``left``: it takes the bytes of
    ``value`` that ``keep`` has not. Not while samples are drawn.
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
    """The file's side of the host's accesses, between two descriptors.

    ``read`` is held until ``done``, in whose first cycle ``value`` is that of ``slot`` as it was in
    the one before, and then withdrawn for a cycle; ``write`` puts ``data`` there, which is not
    known to be above its floor then, and not while a program runs.
    """

    def __init__(self):
        super().__init__(
            {
                "slot": In(SLOT_WIDTH),
                "read": In(1),
                "done": Out(1),
                "value": Out(signed(EXPONENT_WIDTH)),
                "write": In(1),
                "data": In(signed(EXPONENT_WIDTH)),
            }
        )


class TakenSum(wiring.Signature):
    """SCALES' side of a statistics slot: while ``take`` is high, ``total`` is the sum of ``slot``
    from the cycle on in which ``there`` is; ``zero`` makes it 0.
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
    """The sequencer's side of the repetition of programs.

    ``times`` that a start runs one; ``step``, the number of the present step, which the host may
    ``write`` between runs: with the bytes of ``value`` that ``keep`` has not.
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
    """In a cycle of ``write`` a register takes the bytes of ``value`` that ``keep`` has not, whose
    bits are equal within each.
    """
    for first in range(0, len(register), 8):
        with m.If(write & ~keep[first]):
            m.d.sync += register[first : first + 8].eq(value[first : first + 8])

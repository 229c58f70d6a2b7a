"""Ports of the scratchpad, and the mapping of addresses to bank and row."""

from amaranth.hdl import Cat, Const, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from trainwright.parameters import AcceleratorParameters
from trainwright.program.fields import LOCAL_WIDTH


def row_layout(parameters: AcceleratorParameters) -> data.ArrayLayout:
    """Lay out a scratchpad row: ``lanes`` words, word 0 in the lowest bits, signed when used."""
    return data.ArrayLayout(parameters.word_width, parameters.lanes)


class ReadPort(wiring.Signature):
    """Client's read port of the scratchpad.

    Members: ``request``, a stream of row addresses from the client; ``valid`` and ``row`` to the
    client: rows in the order of the requests, at most one per cycle, ``ROW_LATENCY`` cycles after
    the request was taken. Rows are never back-pressured: the client requests only rows that it can
    take.
    """

    def __init__(self, parameters: AcceleratorParameters):
        super().__init__(
            {
                "request": Out(stream.Signature(LOCAL_WIDTH)),
                "valid": In(1),
                "row": In(row_layout(parameters)),
            }
        )


ROW_LATENCY = 4
"""Cycles from an accepted scratchpad request to its row."""


class WritePort(wiring.Signature):
    """Client's write port of the scratchpad.

    Members, all from the client: ``request``, a stream of row addresses; ``banks``, one bit per
    bank, the address's bank while a request is valid and otherwise none (from registers, because
    the arbiters see only these bits); ``row``, the data, in the cycle after a request was taken,
    which gives the client a cycle to bring it.
    """

    def __init__(self, parameters: AcceleratorParameters):
        super().__init__(
            {
                "request": Out(stream.Signature(LOCAL_WIDTH)),
                "banks": Out(parameters.scratchpad_banks),
                "row": Out(row_layout(parameters)),
            }
        )


def bank_and_row(parameters: AcceleratorParameters, address: Value) -> tuple[Value, Value]:
    """Return the bank of a scratchpad address, its top bits, and the row within the bank.

    Bits above the address range are ignored.
    """
    row_width = exact_log2(parameters.bank_rows)
    bank_width = exact_log2(parameters.scratchpad_banks)
    bank = address[row_width : row_width + bank_width] if bank_width else Const(0, 1)
    return bank, address[:row_width]


def banks_asked(parameters: AcceleratorParameters, valid: Value, address: Value) -> Value:
    """Return one bit per bank: the bank of ``address``, if the request is ``valid``."""
    bank, _ = bank_and_row(parameters, address)
    return Cat(valid & (bank == number) for number in range(parameters.scratchpad_banks))


def outside_member(parameters: AcceleratorParameters) -> dict[str, wiring.Member]:
    """Return the member that reports accesses outside of a memory, with ``address_checks``."""
    return {"outside": Out(1)} if parameters.address_checks else {}

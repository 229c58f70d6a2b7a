"""Ports of the scratchpad, and how an address names bank and row."""

from amaranth.hdl import Cat, Const, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from trainwright.parameters import AcceleratorParameters
from trainwright.program.fields import LOCAL_WIDTH


def row_layout(parameters: AcceleratorParameters) -> data.ArrayLayout:
    """A scratchpad row: ``lanes`` words, word 0 in the lowest bits. Words are signed when used."""
    return data.ArrayLayout(parameters.word_width, parameters.lanes)


class ReadPort(wiring.Signature):
    """A client's read port of the scratchpad.

    Members: ``request``, a stream of row addresses out of the client; ``valid`` and ``row`` into
    it: the rows in the order of the requests, one a cycle at most, ``ROW_LATENCY`` cycles after
    the request was taken, and never back-pressured: the client asks only for what it can take.
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
    """A client's write port of the scratchpad.

    Members, out of the client: ``request``, a stream of row addresses; ``banks``, one bit a bank,
    that of the address set while a request is valid, and otherwise none: it comes from registers,
    and a request is nothing else to the arbiters; ``row``, in the cycle after a request was taken,
    what is written there. So the client, too, has a cycle to bring it.
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
    """Bank of an address of the scratchpad, its top bits, and row within the bank.

    Bits above the address range are ignored.
    """
    row_width = exact_log2(parameters.bank_rows)
    bank_width = exact_log2(parameters.scratchpad_banks)
    bank = address[row_width : row_width + bank_width] if bank_width else Const(0, 1)
    return bank, address[:row_width]


def banks_asked(parameters: AcceleratorParameters, valid: Value, address: Value) -> Value:
    """One bit a bank: what a request for ``address`` asks for, if it is ``valid``."""
    bank, _ = bank_and_row(parameters, address)
    return Cat(valid & (bank == number) for number in range(parameters.scratchpad_banks))


def outside_member(parameters: AcceleratorParameters) -> dict[str, wiring.Member]:
    """With ``address_checks``, the member with which a memory tells of accesses outside of it."""
    return {"outside": Out(1)} if parameters.address_checks else {}

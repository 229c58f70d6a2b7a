"""Banks of the scratchpad: block RAMs, and the registers of rows around them."""

from amaranth.hdl import Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from trainwright.parameters import AcceleratorParameters
from trainwright_hw.storage.ports import row_layout


class Banks(wiring.Component):
    """Array of ``scratchpad_banks`` memories with one read and one write port each.

    Write: ``granted[n]`` has a bit for each writer, of which at most one is set. In that cycle bank
    n takes ``write_place{writer}`` and ``write_row{writer}``; the row is stored two cycles later.

    Read: in a cycle of ``read[n]`` bank n reads ``read_place[n]``; two cycles later the row is in a
    register of the bank. In that cycle ``source{reader}`` names the bank whose row the reader gets,
    a cycle later, as ``row{reader}``.
    """

    def __init__(self, parameters: AcceleratorParameters, *, readers: int, writers: int):
        self._parameters = parameters
        self._readers, self._writers = readers, writers
        banks, row = parameters.scratchpad_banks, row_layout(parameters)
        place = exact_log2(parameters.bank_rows)
        super().__init__(
            {
                "granted": In(writers).array(banks),
                "read": In(1).array(banks),
                "read_place": In(place).array(banks),
                **{f"write_place{n}": In(place) for n in range(writers)},
                **{f"write_row{n}": In(row) for n in range(writers)},
                **{f"source{n}": In(max(1, exact_log2(banks))) for n in range(readers)},
                **{f"row{n}": Out(row) for n in range(readers)},
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        p = self._parameters
        given = []
        for bank in range(p.scratchpad_banks):
            # No initial contents: a program writes each row before it reads it, and zeros would be
            # megabytes of text for the tools.
            memory = Memory(shape=p.lanes * p.word_width, depth=p.bank_rows, init=[])
            m.submodules[f"bank{bank}"] = memory
            self._write(m, bank, memory.write_port())
            port = memory.read_port()
            given.append(Signal.like(port.data, name=f"given{bank}", reset_less=True))
            # A second register behind the block RAM's own: the wires to the readers are long.
            m.d.sync += given[-1].eq(port.data)
            m.d.comb += [port.en.eq(self.read[bank]), port.addr.eq(self.read_place[bank])]
        for reader in range(self._readers):
            row = getattr(self, f"row{reader}")
            taken = Signal.like(row, name=f"taken{reader}", reset_less=True)
            m.d.comb += row.eq(taken)
            # Every reader has a multiplexer over all banks, and knows the bank since its request.
            with m.Switch(getattr(self, f"source{reader}")):
                for number, of_bank in enumerate(given):
                    with m.Case(number):
                        m.d.sync += taken.eq(of_bank)
        return m

    def _write(self, m: Module, bank: int, port) -> None:
        chosen, writers = self.granted[bank], range(self._writers)
        enable = Signal(name=f"write_enable{bank}")
        address = Signal.like(port.addr, name=f"write_address{bank}", reset_less=True)
        row = Signal.like(port.data, name=f"write_row{bank}", reset_less=True)
        places = [getattr(self, f"write_place{n}") for n in writers]
        rows = [getattr(self, f"write_row{n}").as_value() for n in writers]
        # The row is written a cycle after its grant. What a read of this row returns meanwhile is
        # unspecified: the waits of descriptors keep readers and writers of a row apart.
        m.d.sync += [
            enable.eq(chosen.any()),
            address.eq(granted(chosen, places)),
            row.eq(granted(chosen, rows)),
        ]
        m.d.comb += [port.en.eq(enable), port.addr.eq(address), port.data.eq(row)]


def granted(grant: Value, values: list[Value]) -> Value:
    """Return the value whose bit of ``grant`` is set, or 0; at most one bit may be set."""
    # AND and OR instead of a multiplexer: the grants are one-hot, so nothing has to be decoded.
    chosen = [value & bit.replicate(len(value)) for value, bit in zip(values, grant, strict=True)]
    while len(chosen) > 1:
        chosen = [
            *(a | b for a, b in zip(chosen[::2], chosen[1::2], strict=False)),
            *(chosen[-1:] if len(chosen) % 2 else []),
        ]
    return chosen[0]

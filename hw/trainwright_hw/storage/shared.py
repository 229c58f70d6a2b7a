"""Ports of the scratchpad that two clients have in common: each port costs a selector of banks."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from trainwright.parameters import AcceleratorParameters
from trainwright_hw.storage.ports import ReadPort, WritePort


class ReadInTurn(wiring.Component):
    """A read port of two clients that never ask at the same time.

    ``seconds``: the turn is the second client's. It may change only while no rows are on their way.
    """

    def __init__(self, parameters: AcceleratorParameters):
        super().__init__(
            {
                "clients": In(ReadPort(parameters)).array(2),
                "port": Out(ReadPort(parameters)),
                "seconds": In(1),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        first, second = self.clients
        turns: list[Value] = [~self.seconds, self.seconds]
        m.d.comb += [
            self.port.request.valid.eq(
                Mux(self.seconds, second.request.valid, first.request.valid)
            ),
            self.port.request.payload.eq(
                Mux(self.seconds, second.request.payload, first.request.payload)
            ),
        ]
        for client, turn in zip(self.clients, turns, strict=True):
            m.d.comb += [
                client.request.ready.eq(self.port.request.ready & turn),
                client.valid.eq(self.port.valid & turn),
                client.row.eq(self.port.row),
            ]
        return m


class WriteByEither(wiring.Component):
    """A write port of two clients: the second one's requests wait for those of the first."""

    def __init__(self, parameters: AcceleratorParameters):
        super().__init__(
            {
                "clients": In(WritePort(parameters)).array(2),
                "port": Out(WritePort(parameters)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        first, second = self.clients
        waits, of_first = first.request.valid, Signal()
        m.d.sync += of_first.eq(waits)  # the row comes in the cycle after its request
        m.d.comb += [
            self.port.request.valid.eq(first.request.valid | second.request.valid),
            self.port.request.payload.eq(Mux(waits, first.request.payload, second.request.payload)),
            self.port.banks.eq(Mux(waits, first.banks, second.banks)),
            self.port.row.eq(Mux(of_first, first.row, second.row)),
            first.request.ready.eq(self.port.request.ready & waits),
            second.request.ready.eq(self.port.request.ready & ~waits),
        ]
        return m

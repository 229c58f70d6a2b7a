"""Ports of the scratchpad shared by two clients, because each port costs a selector of banks."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from trainwright.parameters import AcceleratorParameters
from trainwright_hw.storage.ports import ReadPort, WritePort


class ReadInTurn(wiring.Component):
    """Read port of two clients that never make requests at the same time.

    ``seconds``: the second client uses the port. It may change only while no rows are in flight.
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
        for client, active in zip(self.clients, turns, strict=True):
            m.d.comb += [
                client.request.ready.eq(self.port.request.ready & active),
                client.valid.eq(self.port.valid & active),
                client.row.eq(self.port.row),
            ]
        return m


class WriteByEither(wiring.Component):
    """Write port of two clients, of which the first has priority."""

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

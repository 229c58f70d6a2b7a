"""Who may go: a round-robin arbiter."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out


class RoundRobin(wiring.Component):
    """Grants one of ``clients`` requests in the same cycle, the next after the last one first.

    A grant counts as used. Members: ``requests`` and ``grant``, one bit a client; ``grant`` has at
    most one bit set, and one whenever there is a request.
    """

    def __init__(self, clients: int):
        if clients < 1:
            raise ValueError(f"clients must be at least 1, not {clients!r}")
        self.clients = clients
        super().__init__({"requests": In(clients), "grant": Out(clients)})

    def elaborate(self, platform):
        m = Module()
        behind = Signal(self.clients)  # clients after the one granted last
        favoured = Signal(self.clients)
        candidates = Signal(self.clients)
        m.d.comb += [
            favoured.eq(self.requests & behind),
            candidates.eq(Mux(favoured.any(), favoured, self.requests)),
            self.grant.eq(candidates & (~candidates + 1)),  # the lowest one
        ]
        with m.If(self.requests.any()):
            m.d.sync += behind.eq(~((self.grant << 1) - 1))
        return m

"""Who may go: a round-robin arbiter."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
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
        m.d.comb += favoured.eq(self.requests & behind)
        # both choices at once, without a carry: they are the beginning of long paths
        chosen = [lowest(value, self.clients) for value in (favoured, self.requests)]
        m.d.comb += self.grant.eq(Mux(favoured.any(), *chosen))
        with m.If(self.requests.any()):
            m.d.sync += behind.eq(Cat(self.grant[:n].any() for n in range(self.clients)))
        return m


def lowest(value: Value, width: int) -> Value:
    """The lowest bit that is set, alone."""
    return Cat(value[n] & ~value[:n].any() for n in range(width))

"""A round-robin arbiter."""

from itertools import combinations

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out


class RoundRobin(wiring.Component):
    """Arbiter that grants one of ``clients`` requests in the same cycle, in round-robin order.

    A grant counts as used. Members: ``requests`` and ``grant``, one bit per client; ``grant`` has
    at most one bit set, and exactly one if there is a request.
    """

    def __init__(self, clients: int):
        if clients < 1:
            raise ValueError(f"clients must be at least 1, not {clients!r}")
        self.clients = clients
        super().__init__({"requests": In(clients), "grant": Out(clients)})

    def elaborate(self, platform):
        m = Module()
        # Pairwise priorities are registered, because requests begin long paths. Client a precedes a
        # later client b unless a, or a client between them, was granted last.
        first = {
            (a, b): Signal(name=f"first_{a}_{b}", init=1)
            for a, b in combinations(range(self.clients), 2)
        }
        for client in range(self.clients):
            rivals = [self.requests[a] & first[a, client] for a in range(client)] + [
                self.requests[b] & ~first[client, b] for b in range(client + 1, self.clients)
            ]
            m.d.comb += self.grant[client].eq(self.requests[client] & ~Cat(rivals).any())
        with m.If(self.requests.any()):
            m.d.sync += [before.eq(~self.grant[a:b].any()) for (a, b), before in first.items()]
        return m

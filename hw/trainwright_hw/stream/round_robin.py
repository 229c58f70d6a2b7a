"""A round-robin arbiter."""

from itertools import combinations

from amaranth.hdl import Cat, Module, Signal
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
        # Who goes before whom is known before the requests: they begin long paths. A client goes
        # before a later one unless it, or one between them, was granted last.
        first = {
            (a, b): Signal(name=f"first_{a}_{b}", init=1)
            for a, b in combinations(range(self.clients), 2)
        }
        for client in range(self.clients):
            others = [self.requests[a] & first[a, client] for a in range(client)] + [
                self.requests[b] & ~first[client, b] for b in range(client + 1, self.clients)
            ]
            m.d.comb += self.grant[client].eq(self.requests[client] & ~Cat(others).any())
        with m.If(self.requests.any()):
            m.d.sync += [before.eq(~self.grant[a:b].any()) for (a, b), before in first.items()]
        return m

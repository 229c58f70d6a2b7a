"""The round-robin arbiter: one grant, and nobody waits for ever."""

from typing import Any

from amaranth.hdl import Mux, Signal

from trainwright_hw.stream.round_robin import RoundRobin
from trainwright_sim.formal.bench import ProofBench
from trainwright_sim.formal.mutant import Mutant
from trainwright_sim.formal.opened import Opened
from trainwright_sim.formal.proof import Proof

CLIENTS = (1, 2, 3, 5)


def last_granted(bench: ProofBench, dut: Any, inside: Opened) -> Signal:
    """Return the last client granted, with the lemma that the arbiter's registers agree."""
    clients = dut.clients
    last = Signal(range(clients), init=clients - 1)
    for client in range(clients):
        with bench.m.If(dut.grant[client]):
            bench.m.d.sync += last.eq(client)
    bench.lemma(last < clients)
    for (a, b), before in inside["first"].items():
        bench.lemma(before == ~((last >= a) & (last < b)))
    return last


def one_hot(bench: ProofBench, block: Any) -> None:
    """Claim exactly one grant while there are requests, and only to a client with one."""
    for clients in CLIENTS:
        dut = block(clients)
        last_granted(bench, dut, bench.add(dut, f"of_{clients}"))
        bench.goal((dut.grant & (dut.grant - 1)[:clients]) == 0)
        bench.goal((dut.grant & ~dut.requests) == 0)
        bench.goal(dut.grant.any() == dut.requests.any())


def fair(bench: ProofBench, block: Any) -> None:
    """Claim that a waiting client sees each other client granted at most once."""
    for clients in CLIENTS:
        dut = block(clients)
        last = last_granted(bench, dut, bench.add(dut, f"of_{clients}"))
        for client in range(clients):
            waited = Signal(4)
            asking = dut.requests[client] & ~dut.grant[client]
            bench.m.d.sync += waited.eq(Mux(asking, waited + 1, 0))
            bench.goal(waited < clients)
            for number in range(clients):
                between = (client - number - 1) % clients
                bench.lemma((last != number) | (waited <= clients - 1 - between))


PROOFS = (
    Proof(
        name="round-robin.one-hot",
        claim="one grant while there is a request, and only to a client that asks",
        block=RoundRobin,
        build=one_hot,
        mutant=Mutant("~first[client, b]", "first[client, b]"),
    ),
    Proof(
        name="round-robin.fair",
        claim="a client that keeps asking waits for one grant of each other client at most",
        block=RoundRobin,
        build=fair,
        mutant=Mutant(
            "with m.If(self.requests.any()):", "with m.If(self.requests.any() & ~self.grant[-1]):"
        ),
    ),
)

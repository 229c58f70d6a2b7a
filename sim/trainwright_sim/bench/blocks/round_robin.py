"""The arbiter against its definition: who asks and comes next after the last one is granted."""

import cocotb

from trainwright_sim.bench.designs import CLIENTS
from trainwright_sim.bench.testbench import TestBench


class ArbiterBench(TestBench):
    """Random requests; every grant is compared."""

    def __init__(self, dut, seed: object):
        super().__init__(dut, seed)
        self.set(requests=0)
        self._last = CLIENTS - 1  # so that client 0 is first
        self.agents.append(self)

    def cycle(self) -> None:
        asking = self.get("requests")
        order = [(self._last + 1 + n) % CLIENTS for n in range(CLIENTS)]
        first = next((client for client in order if asking >> client & 1), None)
        assert self.get("grant") == (0 if first is None else 1 << first)
        self._last = self._last if first is None else first


@cocotb.test()
@cocotb.parametrize(seed=range(2), chance=(0.1, 0.5, 0.9))
async def random_requests(dut, seed: int, chance: float):
    """Make requests from few clients, from some, and from nearly all."""
    tb = ArbiterBench(dut, f"{seed} {chance}")
    await tb.start()
    for _ in range(400):
        bits = sum((tb.random.random() < chance) << client for client in range(CLIENTS))
        tb.set(requests=bits)
        await tb.run()

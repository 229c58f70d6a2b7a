"""The skid buffer: items in order, none lost, each offered in the cycle in which it comes."""

import cocotb

from trainwright_sim.bench.designs import QUEUE_WIDTH
from trainwright_sim.bench.streams import StreamSink, StreamSource
from trainwright_sim.bench.testbench import STALLS, TestBench


class SkidBench(TestBench):
    """Compares every output of every cycle with what an item that is held, or none, makes it."""

    def __init__(self, dut, seed: object):
        super().__init__(dut, seed)
        self._held: int | None = None
        self.agents.append(self)

    def cycle(self) -> None:
        held, offered = self._held, self.get("i_valid")
        valid, payload = self.get("o_valid"), self.get("o_payload")
        assert self.get("holding") == (held is not None) == (not self.get("i_ready"))
        assert valid == (offered or held is not None)
        if valid:
            assert payload == (self.get("i_payload") if held is None else held)
        waits = valid and not self.get("o_ready") and not self.get("rst")
        self._held = payload if waits else None


@cocotb.test()
@cocotb.parametrize(offered=STALLS[:4], taken=STALLS)
async def items_in_order(dut, offered: str, taken: str):
    """Combine every pattern of offering with every pattern of taking."""
    tb = SkidBench(dut, f"{offered} {taken}")
    items = [tb.random.getrandbits(QUEUE_WIDTH) for _ in range(200)]
    StreamSource(tb, "i", stall=offered, items=items)
    sink = StreamSink(tb, "o", stall=taken)
    await tb.start()
    await tb.until(lambda: len(sink.items) == len(items))
    await tb.run(3)
    assert sink.items == items


@cocotb.test()
async def reset_while_holding(dut):
    """Reset while an item is held: the item must be forgotten."""
    tb = SkidBench(dut, "reset")
    tb.set(i_valid=0, i_payload=0, o_ready=0)
    await tb.start()
    tb.set(i_valid=1, i_payload=5)
    await tb.run(3)
    assert tb.get("holding")
    tb.set(i_valid=0)
    dut.rst.value = 1
    await tb.run(2)
    dut.rst.value = 0
    await tb.run(3)
    assert not tb.get("holding")

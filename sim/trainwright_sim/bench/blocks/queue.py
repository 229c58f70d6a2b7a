"""The registered queue against a list: words, level and flags, cycle by cycle."""

import cocotb

from trainwright_sim.bench.designs import QUEUE_DEPTH, QUEUE_WIDTH
from trainwright_sim.bench.testbench import TestBench


class QueueBench(TestBench):
    """Holds what the queue should; compares every cycle."""

    def __init__(self, dut, seed: object):
        super().__init__(dut, seed)
        self.set(w_en=0, w_data=0, r_en=0)
        self.words: list[int] = []
        self.agents.append(self)

    def cycle(self) -> None:
        assert self.get("level") == len(self.words)
        assert self.get("r_rdy") == bool(self.words)
        assert self.get("w_rdy") == (len(self.words) < QUEUE_DEPTH)
        writes = self.get("w_en") and len(self.words) < QUEUE_DEPTH
        if self.words:
            assert self.get("r_data") == self.words[0]
            if self.get("r_en"):
                self.words.pop(0)
        if writes:
            self.words.append(self.get("w_data"))


@cocotb.test()
@cocotb.parametrize((("write", "read"), [(0.5, 0.5), (0.9, 0.3), (0.3, 0.9), (1.0, 1.0)]))
async def random_words(dut, write: float, read: float):
    """Write and read at random: mostly empty, mostly full, and straight through."""
    tb = QueueBench(dut, f"{write} {read}")
    await tb.start()
    for _ in range(600):
        w_en, r_en = tb.random.random() < write, tb.random.random() < read
        tb.set(w_en=w_en, w_data=tb.random.getrandbits(QUEUE_WIDTH), r_en=r_en)
        await tb.run()

"""FactorStore: contents, latency, and the entry held until the next read."""

import cocotb

from trainwright.program.fields import LOCAL_WIDTH
from trainwright_hw.storage.ports import ENTRY_LATENCY
from trainwright_sim.bench.testbench import TestBench


@cocotb.test()
@cocotb.parametrize(seed=range(3))
async def random_accesses(dut, seed: int):
    """Reads and writes in any mixture; a read in the cycle of its write gives either entry."""
    tb = TestBench(dut, seed)
    p = tb.parameters
    bits = p.factor_width * p.lanes
    depth = p.pe1_store_depth
    model = [tb.random.getrandbits(bits) for _ in range(depth)]
    tb.set(read_enable=0, read_address=0, write_request_valid=0, write_request_payload=0)
    await tb.start()
    for row, entry in enumerate(model):
        tb.set(write_request_valid=1, write_request_payload=entry << LOCAL_WIDTH | row)
        await tb.run()
    tb.set(write_request_valid=0)
    shown: list[set[int] | None] = [None] * ENTRY_LATENCY  # what the output may be, cycle by cycle
    for _ in range(1500):
        row, above = tb.random.randrange(depth), tb.random.getrandbits(4) * depth
        write = tb.random.random() < 0.4
        entry, place = tb.random.getrandbits(bits), tb.random.choice((row, (row + 1) % depth))
        read = tb.random.random() < 0.6
        tb.set(
            read_enable=int(read),
            read_address=row + above,
            write_request_valid=int(write),
            write_request_payload=entry << LOCAL_WIDTH | above + place,
        )
        await tb.run()
        assert shown[0] is None or tb.get("read_entry") in shown[0]
        due = shown[-1]
        if read:
            due = {model[row], entry} if write and place == row else {model[row]}
        elif due is not None and len(due) > 1:
            due = None  # unspecified once, unspecified until the next read
        shown = [*shown[1:], due]
        if write:
            model[place] = entry

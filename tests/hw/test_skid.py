from random import Random

import pytest
from amaranth.sim import Simulator

from trainwright_hw.stream.skid_buffer import SkidBuffer


@pytest.mark.parametrize("offered", (0.3, 1.0))
@pytest.mark.parametrize("taken", (0.3, 0.7, 1.0))
def test_items_pass_at_once_and_none_is_lost(offered, taken):
    """``i`` is a source that must not know ``ready`` before it offers."""
    random = Random(f"skid {offered} {taken}")
    dut = SkidBuffer(16)
    items = [random.getrandbits(16) for _ in range(300)]

    async def testbench(ctx):
        left, got, wait = list(items), [], False
        while len(got) < len(items):
            offers = bool(left) and (wait or random.random() < offered)
            takes = random.random() < taken
            holding = ctx.get(dut.holding)
            ctx.set(dut.i.valid, offers)
            ctx.set(dut.i.payload, left[0] if offers else random.getrandbits(16))
            ctx.set(dut.o.ready, takes)
            assert ctx.get(dut.i.ready) == (not holding)
            assert ctx.get(dut.o.valid) == (offers or holding)
            if ctx.get(dut.o.valid) and takes:
                got.append(ctx.get(dut.o.payload))
            # what is offered shows in the same cycle, unless an older one is held
            if offers and not holding:
                assert ctx.get(dut.o.payload) == left.pop(0)
                wait = False
            else:
                wait = offers
            await ctx.tick()
        assert got == items
        assert not left

    simulator = Simulator(dut)
    simulator.add_clock(1e-8)
    simulator.add_testbench(testbench)
    simulator.run()

from random import Random

import pytest
from amaranth.sim import Simulator

from trainwright.fixed.random_bits import mixed, unit_bytes
from trainwright_hw.arith.random_bits import KEY_WIDTH, RANDOM_CYCLES, RandomBits


@pytest.mark.parametrize("units", (2, 8, 16))
def test_against_definition(units):
    """A key a cycle, of either context, while the other context's stream changes."""
    random = Random(f"random bits {units}")
    dut = RandomBits(units=units)

    async def testbench(ctx):
        streams, expected = [0, 0], [None] * RANDOM_CYCLES
        for cycle in range(400):
            context, key = random.randrange(2), random.getrandbits(KEY_WIDTH)
            configured = random.random() < 0.2
            stream = random.choice((0, 1, (1 << 32) - 1, random.getrandbits(32)))
            ctx.set(dut.configure, configured)
            ctx.set(dut.configure_context, 1 - context)
            ctx.set(dut.stream, stream)
            ctx.set(dut.context, context)
            ctx.set(dut.key, key)
            expected.append(unit_bytes(mixed(streams[context], [key]), units)[0].tolist())
            if want := expected.pop(0):
                assert [ctx.get(byte) for byte in dut.random] == want, cycle
            await ctx.tick()
            if configured:
                streams[1 - context] = stream

    simulator = Simulator(dut)
    simulator.add_clock(1e-8)
    simulator.add_testbench(testbench)
    simulator.run()

from random import Random

import pytest
from amaranth.sim import Simulator

from trainwright.fixed.random_bits import mixed, unit_bytes
from trainwright_hw.arith.random_bits import KEY_WIDTH, RANDOM_CYCLES, RandomBits


@pytest.mark.parametrize("units", (2, 8, 16))
def test_against_definition(units):
    """A key and a stream a cycle."""
    random = Random(f"random bits {units}")
    dut = RandomBits(units=units)

    async def testbench(ctx):
        expected = [None] * RANDOM_CYCLES
        for cycle in range(400):
            key = random.getrandbits(KEY_WIDTH)
            stream = random.choice((0, 1, (1 << 32) - 1, random.getrandbits(32)))
            ctx.set(dut.stream, stream)
            ctx.set(dut.key, key)
            expected.append(unit_bytes(mixed(stream, [key]), units)[0].tolist())
            if want := expected.pop(0):
                assert [ctx.get(byte) for byte in dut.random] == want, cycle
            await ctx.tick()

    simulator = Simulator(dut)
    simulator.add_clock(1e-8)
    simulator.add_testbench(testbench)
    simulator.run()

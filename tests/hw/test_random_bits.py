from random import Random

import pytest
from amaranth.hdl import C
from amaranth.sim import Simulator

from trainwright.fixed.random_bits import UNITS, mixed, unit_bytes
from trainwright_hw.arith.random_bits import (
    KEY_WIDTH,
    RANDOM_CYCLES,
    RandomBits,
    RandomState,
    unit_byte,
)


@pytest.mark.parametrize("units", (2, 8, 16))
def test_random_bits_match_definition(units):
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


@pytest.mark.parametrize("cycles", (2, 4, 8))
def test_random_bits_of_serial_key_match_definition(cycles):
    """A key takes ``cycles`` cycles or more; its bytes, for any lanes, last until the next one."""
    random = Random(f"in turn {cycles}")
    dut = RandomState(cycles=cycles)
    widths = [1 << n for n in range(5)]

    async def testbench(ctx):
        want = None
        for _ in range(60):
            key, stream = random.getrandbits(KEY_WIDTH), random.getrandbits(32)
            steps = random.choice((cycles, 2 * cycles))
            for step in range(steps):
                ctx.set(dut.step, step)
                ctx.set(dut.stream, stream if step == 0 else random.getrandbits(32))
                ctx.set(dut.key, key if step == 0 else random.getrandbits(KEY_WIDTH))
                if step == cycles:
                    want = unit_bytes(mixed(stream, [key]), UNITS)[0].tolist()
                if want:
                    width = random.choice(widths)
                    lane, place = random.randrange(width), random.randrange(UNITS // width)
                    place_bits = C(place, (UNITS // width - 1).bit_length())
                    byte = ctx.get(unit_byte(dut.state, lane, width, place_bits))
                    assert byte == want[lane + width * place]
                await ctx.tick()
            if steps == cycles:
                want = unit_bytes(mixed(stream, [key]), UNITS)[0].tolist()

    simulator = Simulator(dut)
    simulator.add_clock(1e-8)
    simulator.add_testbench(testbench)
    simulator.run()

"""Addresses of exponents in the register map, for files of every size."""

import pytest
from kept import simulated

from trainwright.accelerator.registers import EXPONENTS_BASE, STATISTICS_BASE, STEP
from trainwright.parameters import AcceleratorParameters
from trainwright_hw.control.csr import Registers


@pytest.mark.parametrize("slots", (16, 256, 512))
def test_exponent_write_reaches_its_slot_and_no_other_address_does(slots):
    top = simulated(Registers, AcceleratorParameters(exponents=slots))
    stop = EXPONENTS_BASE + 4 * slots
    assert stop <= STATISTICS_BASE
    # Slots on either side of each carry, and addresses on either side of the array.
    inside = [n for bit in range(10) for n in ((1 << bit) - 1, 1 << bit) if n < slots]
    outside = (STEP, EXPONENTS_BASE - 4, stop, stop + 4, EXPONENTS_BASE + 0x1000, 0xFFFC)

    async def test(ctx):
        bus, file = top.design.bus, top.design.exponents
        for address in (*(EXPONENTS_BASE + 4 * n for n in inside), *outside):
            ctx.set(bus.write_address, address >> 2)
            ctx.set(bus.write_mask, 0xFFFFFFFF)
            ctx.set(bus.write, 1)
            await ctx.tick()
            ctx.set(bus.write, 0)
            written = EXPONENTS_BASE <= address < stop
            assert ctx.get(file.write) == written, hex(address)
            if written:
                assert ctx.get(file.slot) == (address - EXPONENTS_BASE) // 4
            ctx.set(bus.read_address, address >> 2)
            ctx.set(bus.read, 1)
            await ctx.tick()
            assert ctx.get(file.read) == written, hex(address)
            if written:
                assert ctx.get(file.slot) == (address - EXPONENTS_BASE) // 4
            ctx.set(file.done, 1)
            await ctx.tick().repeat(2)
            ctx.set(file.done, 0)
            ctx.set(bus.read, 0)
            await ctx.tick().repeat(2)

    top.run(test)

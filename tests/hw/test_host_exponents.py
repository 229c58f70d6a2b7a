"""Addresses of exponents in the register map, for files of every size."""

import pytest
from kept import simulated

from trainwright.accelerator.registers import STEP, exponents_base, statistics_base
from trainwright.parameters import AcceleratorParameters
from trainwright_hw.control.csr import Registers


@pytest.mark.parametrize("slots", (16, 256, 512, 1024))
def test_exponent_write_reaches_its_slot_and_no_other_address_does(slots):
    p = AcceleratorParameters(exponents=slots)
    top, base = simulated(Registers, p), exponents_base(p)
    stop = base + 4 * slots
    # Slots on either side of each carry, and addresses on either side of the array.
    inside = [n for bit in range(11) for n in ((1 << bit) - 1, 1 << bit) if n < slots]
    outside = (STEP, base - 4, stop, stop + 4, base + 0x1000, 0x1000, 0xFFFC)

    async def test(ctx):
        bus, file = top.design.bus, top.design.exponents
        for address in (*(base + 4 * n for n in inside), *outside):
            ctx.set(bus.write_address, address >> 2)
            ctx.set(bus.write_mask, 0xFFFFFFFF)
            ctx.set(bus.write, 1)
            await ctx.tick()
            ctx.set(bus.write, 0)
            written = base <= address < stop
            assert ctx.get(file.write) == written, hex(address)
            if written:
                assert ctx.get(file.slot) == (address - base) // 4
            ctx.set(bus.read_address, address >> 2)
            ctx.set(bus.read, 1)
            await ctx.tick()
            assert ctx.get(file.read) == written, hex(address)
            if written:
                assert ctx.get(file.slot) == (address - base) // 4
            ctx.set(file.done, 1)
            await ctx.tick().repeat(2)
            ctx.set(file.done, 0)
            ctx.set(bus.read, 0)
            await ctx.tick().repeat(2)

    top.run(test)


@pytest.mark.parametrize("slots", (64, 256, 512, 1024))
def test_statistics_read_looks_up_its_slot_and_no_other_address_does(slots):
    p = AcceleratorParameters(exponents=1024, statistics_depth=slots)
    top, base = simulated(Registers, p), statistics_base(p)
    stop = base + 16 * slots
    inside = [n for bit in range(11) for n in ((1 << bit) - 1, 1 << bit) if n < slots]
    outside = (STEP, base - 4, stop, base + 0x8000, exponents_base(p), exponents_base(p) + 0xFFC)

    async def test(ctx):
        bus = top.design.bus
        for address in (*(base + 16 * n + 4 for n in inside), *outside):
            ctx.set(bus.read_address, address >> 2)
            ctx.set(bus.read, 1)
            assert ctx.get(top.design.read) == (base <= address < stop), hex(address)
            if ctx.get(top.design.read):
                assert ctx.get(top.design.slot) == (address - base) // 16
            ctx.set(bus.read, 0)

    top.run(test)

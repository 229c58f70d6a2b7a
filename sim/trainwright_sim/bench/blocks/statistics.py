"""Statistics: the slots of all engines' items, cleared and read at any time."""

import cocotb

from trainwright_hw.control.engine_ports import SATURATIONS_WIDTH, SUM_WIDTH
from trainwright_sim.bench.items import SLOT_WIDTH, statistics_bits, statistics_fields
from trainwright_sim.bench.streams import StreamSource
from trainwright_sim.bench.testbench import TestBench

ENGINES = 2
ITEMS = 60


class StatisticsBench(TestBench):
    """Items at every port; the slots as they must be."""

    def __init__(self, dut, seed: object, stall: str):
        super().__init__(dut, seed)
        self.set(clear=0, read=0, slot=0)
        self.depth = self.parameters.statistics_depth
        self.slots = [(0, 0, 0)] * self.depth
        self.ports = [StreamSource(self, f"ports_{n}_item", stall=stall) for n in range(ENGINES)]

    def item(self) -> int:
        """Draw an item, sometimes of maximum size; its slot may have bits above the depth."""
        slot = self.random.randrange(1 << SLOT_WIDTH)
        bits = self.random.choice((4, 20, SUM_WIDTH))
        total = self.random.getrandbits(bits)
        saturations = self.random.getrandbits(min(bits, SATURATIONS_WIDTH))
        underflows = self.random.getrandbits(min(bits, SATURATIONS_WIDTH))
        posits = bool(self.parameters.formats)
        return statistics_bits(slot, total, saturations, underflows if posits else 0)

    def count(self, bits: int) -> None:
        """Add an item to the expected slots."""
        slot, total, saturations, underflows = statistics_fields(bits)
        slot %= self.depth
        before = self.slots[slot]
        self.slots[slot] = (
            (before[0] + total) % (1 << SUM_WIDTH),
            (before[1] + saturations) % (1 << SATURATIONS_WIDTH),
            (before[2] + underflows) % (1 << SATURATIONS_WIDTH),
        )

    async def settle(self) -> None:
        """Wait until all items are in the slots."""
        await self.until(lambda: all(port.idle for port in self.ports))
        await self.run()
        await self.until(lambda: not self.get("busy"))

    async def read(self, slot: int) -> tuple[int, ...]:
        self.set(read=1, slot=slot)
        await self.run()
        await self.until(lambda: self.get("read_done"), most=4 * 3 * ENGINES * ITEMS)
        bits = self.get("totals")
        self.set(read=0)
        await self.run()
        return statistics_fields(bits << SLOT_WIDTH)[1:]

    async def check(self) -> None:
        for slot, expected in enumerate(self.slots):
            assert await self.read(slot) == expected, slot

    async def clear(self) -> None:
        self.set(clear=1)
        await self.run()
        self.set(clear=0)
        self.slots = [(0, 0, 0)] * self.depth


@cocotb.test()
@cocotb.parametrize(seed=range(2), stall=("none", "some", "most"))
async def random_items(dut, seed: int, stall: str):
    """Send runs of items between two clears; read slots meanwhile, and at the end."""
    tb = StatisticsBench(dut, f"{seed} {stall}", stall)
    await tb.start()
    for _ in range(3):
        await tb.clear()
        await tb.check()
        for port in tb.ports:
            items = [tb.item() for _ in range(ITEMS)]
            port.items.extend(items)
            for bits in items:
                tb.count(bits)
        for _ in range(10):  # while items come: the answers are of no use, but must come
            await tb.read(tb.random.randrange(tb.depth))
        await tb.settle()
        await tb.check()


@cocotb.test()
async def same_slot(dut):
    """Send items of both engines to one slot, back to back."""
    tb = StatisticsBench(dut, "same slot", "none")
    await tb.start()
    await tb.clear()
    for port in tb.ports:
        items = [statistics_bits(3, n + 1, 0, 0) for n in range(40)]
        port.items.extend(items)
        for bits in items:
            tb.count(bits)
    await tb.settle()
    await tb.check()


@cocotb.test()
async def reset_clears(dut):
    """Check that every slot is 0 after a reset, whatever it held."""
    tb = StatisticsBench(dut, "reset", "none")
    await tb.start()
    tb.ports[0].items.extend(statistics_bits(slot, slot + 1, 1, 0) for slot in range(tb.depth))
    await tb.settle()
    dut.rst.value = 1
    await tb.run(2)
    dut.rst.value = 0
    await tb.run()
    await tb.check()


@cocotb.test()
async def the_other_one_goes_first(dut):
    """Send two items at once: the engine whose item was not the last one must go first.

    That holds even if there were no items for a while.
    """
    tb = StatisticsBench(dut, "turns", "none")
    await tb.start()
    for last in (0, 1):
        tb.ports[last].items.append(tb.item())
        await tb.settle()
        await tb.run(5)
        for port in tb.ports:
            port.items.append(tb.item())
        await tb.until(lambda: any(port.idle for port in tb.ports))
        assert tb.ports[1 - last].idle
        assert not tb.ports[last].idle
        await tb.settle()

"""The host's side (AXI4-Lite, registers, counters, slots) with cocotbext-axi's manager."""

import cocotb

from trainwright.program.fields import NUMBER_WIDTH
from trainwright_hw.bus.axi import LITE_ADDRESS_WIDTH
from trainwright_hw.control import csr as registers
from trainwright_hw.control.counters import COUNTERS
from trainwright_hw.control.csr import ENGINES
from trainwright_sim.bench.axi import Host
from trainwright_sim.bench.items import statistics_bits
from trainwright_sim.bench.streams import StreamSource
from trainwright_sim.bench.testbench import TestBench


class HostBench(TestBench):
    """The host at one side, the sequencer's and the engines' signals at the other."""

    def __init__(self, dut, seed: object, stall: str):
        super().__init__(dut, seed)
        Host.idle(self, "lite")
        self.set(running=0, finished=0, error=0, descriptor=0, hung=0)
        self.set(**{f"last_{n}": 0 for n in range(ENGINES)})
        self.set(**{f"events_{name}": 0 for name in COUNTERS})
        self.ports = [StreamSource(self, f"ports_{n}_item") for n in range(2)]
        self.starts = 0
        self._stall = stall
        self.agents.append(self)

    def cycle(self) -> None:
        self.starts += self.get("start")

    async def start(self) -> None:
        await super().start()
        self.host = Host(self, "lite", stall=self._stall)

    async def finish(self, error: int, descriptor: int) -> None:
        """End a run as the sequencer does."""
        self.set(error=error, descriptor=descriptor, finished=1, running=0)
        await self.run()
        self.set(finished=0)
        await self.run()


class Eager:
    """A channel of AXI4-Lite that offers ``items`` (payloads by name) as early as it may.

    A new one as soon as the last was taken, or after a pause now and then.
    """

    def __init__(self, tb: TestBench, channel: str, items: list[dict[str, int]]):
        self._tb, self._channel = tb, f"lite_{channel}"
        self.items = list(items)
        self._offered = False
        self._offer()
        tb.agents.append(self)

    def _offer(self) -> None:
        self._offered = bool(self.items) and self._tb.random.random() < 0.8
        self._tb.set(**{f"{self._channel}valid": int(self._offered)})
        # what is offered without being valid must not matter
        noise = {name: self._tb.random.getrandbits(4) for name in (self.items or [{}])[0]}
        values = self.items[0] if self._offered else noise
        self._tb.set(**{f"lite_{name}": value for name, value in values.items()})

    def cycle(self) -> None:
        if self._offered and self._tb.get(f"{self._channel}ready"):
            self.items.pop(0)
            self._offered = False
        if not self._offered:
            self._offer()


class Answers:
    """Takes the answers of a channel now and then: what ``name`` was at each."""

    def __init__(self, tb: TestBench, channel: str, name: str):
        self._tb, self._channel, self._name = tb, f"lite_{channel}", f"lite_{name}"
        self.taken: list[int] = []
        self._ready = False
        tb.agents.append(self)

    def cycle(self) -> None:
        if self._ready and self._tb.get(f"{self._channel}valid"):
            self.taken.append(self._tb.get(self._name))
        self._ready = self._tb.random.random() < 0.5
        self._tb.set(**{f"{self._channel}ready": int(self._ready)})


@cocotb.test()
@cocotb.parametrize(seed=range(3))
async def eager_host(dut, seed: int):
    """Make every offer as early as possible: each write must take effect once, in order.

    Offers start before the end of reset, addresses before data and data before addresses, and the
    next offer comes while the last has no answer. Each read must return its own register.
    """
    tb = HostBench(dut, f"eager {seed}", "none")
    tb.agents.clear()
    wanted = [tb.random.getrandbits(32) for _ in range(20)]
    Eager(tb, "aw", [{"awaddr": registers.PROGRAM_LENGTH}] * len(wanted))
    Eager(tb, "w", [{"wdata": value, "wstrb": 15} for value in wanted])
    constants = {registers.IDENTITY: registers.IDENTITY_VALUE, 0x800: 0,
                 registers.FINGERPRINT: tb.parameters.fingerprint}  # fmt: skip
    asked = [tb.random.choice(list(constants)) for _ in range(20)]
    Eager(tb, "ar", [{"araddr": address} for address in asked])
    written, read = Answers(tb, "b", "bresp"), Answers(tb, "r", "rdata")
    seen = []
    await TestBench.start(tb)
    for _ in range(400):
        if not seen or tb.get("length") != seen[-1]:
            seen.append(tb.get("length"))
        await tb.run()
    assert seen == [0, *wanted]
    assert written.taken == [0] * len(wanted)
    assert read.taken == [constants[address] for address in asked]


STALLED = ("none", "some", "bursts")


@cocotb.test()
@cocotb.parametrize(stall=STALLED)
async def plain_registers(dut, stall: str):
    """Check identity, values that read back, byte strobes, and unused addresses."""
    tb = HostBench(dut, f"plain {stall}", stall)
    await tb.start()
    assert await tb.host.read(registers.IDENTITY) == registers.IDENTITY_VALUE
    assert await tb.host.read(registers.FINGERPRINT) == tb.parameters.fingerprint
    for register, port in (
        (registers.PROGRAM_ADDRESS, "address"),
        (registers.PROGRAM_LENGTH, "length"),
        (registers.WATCHDOG, "watchdog"),
    ):
        for _ in range(4):
            value = tb.random.getrandbits(32)
            await tb.host.write(register, value)
            assert await tb.host.read(register) == value == tb.get(port)
            byte, place = tb.random.getrandbits(8), tb.random.randrange(4)
            await tb.host.write(register + place, byte, size=1)
            value = value & ~(0xFF << 8 * place) | byte << 8 * place
            assert await tb.host.read(register) == value == tb.get(port)
    known = {registers.IDENTITY, registers.FINGERPRINT, registers.PROGRAM_ADDRESS,
             registers.PROGRAM_LENGTH, registers.WATCHDOG}  # fmt: skip
    for address in (0x28, 0x3C, 0x40 + 8 * len(COUNTERS), 0x800, 0xFFC, 0x2000, 0xFFFC):
        assert address not in known
        await tb.host.write(address, 0xFFFFFFFF)
        assert await tb.host.read(address) == 0
    await tb.host.write(registers.IDENTITY, 0)
    assert await tb.host.read(registers.IDENTITY) == registers.IDENTITY_VALUE
    assert tb.starts == 0


@cocotb.test()
async def every_bit_of_an_address(dut):
    """Check that a register is at its address and at no other."""
    tb = HostBench(dut, "addresses", "none")
    await tb.start()
    value = tb.random.getrandbits(32)
    await tb.host.write(registers.PROGRAM_LENGTH, value)
    await tb.host.write(registers.CONTROL, 1)
    slots = registers.STATISTICS_BYTES * tb.parameters.statistics_depth
    base = registers.statistics_base(tb.parameters)
    counters = registers.COUNTER_OFFSETS
    used = {*range(counters[-1] + 8), *range(base, base + slots)}
    tb.set(**{f"events_{name}": 1 for name in COUNTERS})
    await tb.run()
    for bit in range(2, LITE_ADDRESS_WIDTH):
        for counter in range(counters[0], base, 8):
            if (register := counter ^ 1 << bit) not in used and counter in used:
                assert await tb.host.read(register) == 0
        other, start = registers.PROGRAM_LENGTH ^ 1 << bit, registers.CONTROL ^ 1 << bit
        if other not in used:
            await tb.host.write(other, ~value & 0xFFFFFFFF)
            assert tb.get("length") == value
            assert await tb.host.read(other) == 0
        if start not in used:
            await tb.host.write(start, 1)
            assert tb.starts == 1


@cocotb.test()
async def bytes_of_flags(dut):
    """Write bytes next to a flag's: the flag must not change, and nothing may start."""
    tb = HostBench(dut, "bytes", "none")
    await tb.start()
    await tb.finish(128, 1)  # a code of the highest bit alone is an error, too
    for enable in (1, 0):
        await tb.host.write(registers.INTERRUPT_ENABLE, enable)
        for place in (1, 2, 3):
            for byte in (0, 0xFF):
                await tb.host.write(registers.INTERRUPT_ENABLE + place, byte, size=1)
                assert await tb.host.read(registers.INTERRUPT_ENABLE) == enable
                assert tb.get("interrupt") == enable
                await tb.host.write(registers.CONTROL + place, byte, size=1)
                assert await tb.host.read(registers.STATUS) == 4 | 128 << 8 | 1 << 16
    assert tb.starts == 0


@cocotb.test()
@cocotb.parametrize(error=(0, 1), bits=(0, 2))
async def ends_while_the_host_writes(dut, error: int, bits: int):
    """End a run in the cycle of a write to CONTROL: the host must still see the end."""
    tb = HostBench(dut, f"ends {error} {bits}", "none")
    await tb.start()
    for wait in range(8):
        write = tb.host.begin_write(registers.CONTROL, bits)
        await tb.run(wait)
        tb.set(error=error, finished=1)
        await tb.run()
        tb.set(finished=0)
        await tb.until(write.done, most=2000)
        status = await tb.host.read(registers.STATUS)
        flag = 4 if error else 2
        assert status & 6 in {flag} | ({0} if bits else set())
        await tb.host.write(registers.CONTROL, 2)
        assert await tb.host.read(registers.STATUS) & 6 == 0
        await tb.finish(error, 0)
        assert await tb.host.read(registers.STATUS) & 6 == flag


@cocotb.test()
@cocotb.parametrize(stall=STALLED)
async def runs(dut, stall: str):
    """Start once, not while running; done, error and interrupt until cleared or started again."""
    tb = HostBench(dut, f"runs {stall}", stall)
    await tb.start()
    for error, enable in ((0, 1), (3, 1), (0, 0), (5, 0), (255, 1)):
        await tb.host.write(registers.INTERRUPT_ENABLE, enable)
        assert await tb.host.read(registers.INTERRUPT_ENABLE) == enable
        before = tb.starts
        await tb.host.write(registers.CONTROL, 1)
        assert tb.starts == before + 1
        assert not tb.get("interrupt")
        tb.set(running=1, descriptor=7)
        await tb.run()
        assert await tb.host.read(registers.STATUS) == 1 | 7 << 16
        await tb.host.write(registers.CONTROL, 1)
        assert tb.starts == before + 1
        last = [tb.random.getrandbits(NUMBER_WIDTH) for _ in range(ENGINES)]
        tb.set(**{f"last_{n}": number for n, number in enumerate(last)})
        await tb.finish(error, 0xABC)
        words = await tb.host.read_words(registers.LAST, 2)
        assert words == [last[0] | last[1] << 16, last[2] | last[3] << 16]
        tb.set(hung=9)
        await tb.run()
        assert await tb.host.read(registers.STATUS) >> 4 & 15 == 9
        tb.set(hung=0)
        flags = 4 if error else 2
        assert await tb.host.read(registers.STATUS) == flags | error << 8 | 0xABC << 16
        assert tb.get("interrupt") == enable
        await tb.host.write(registers.CONTROL, 0)
        assert await tb.host.read(registers.STATUS) == flags | error << 8 | 0xABC << 16
        if error != 3:  # a start clears as well as the bit that is made for it
            await tb.host.write(registers.CONTROL, 2)
            assert await tb.host.read(registers.STATUS) == 0xABC << 16
            assert not tb.get("interrupt")


@cocotb.test()
async def flags_stay_until_a_reset(dut):
    """Write other registers: flags must stay until a reset clears them and the interrupt enable."""
    tb = HostBench(dut, "flags", "none")
    await tb.start()
    for error in (0, 1, 0):
        assert await tb.host.read(registers.STATUS) & 0xFFFF == 0
        assert await tb.host.read(registers.INTERRUPT_ENABLE) == 0
        await tb.host.write(registers.INTERRUPT_ENABLE, 1)
        await tb.finish(error, 5)
        for register in (registers.IDENTITY, registers.PROGRAM_ADDRESS, registers.PROGRAM_LENGTH,
                         registers.WATCHDOG):  # fmt: skip
            await tb.host.write(register, 0xFFFFFFFF)
            flags = 4 if error else 2
            assert await tb.host.read(registers.STATUS) == flags | error << 8 | 5 << 16
        assert tb.get("interrupt")
        await tb.reset()
        assert not tb.get("interrupt")


@cocotb.test()
async def counters(dut):
    """Check that each counter counts its event, that starts clear it, that beats read as bytes."""
    tb = HostBench(dut, "counters", "none")
    await tb.start()
    await tb.host.write(registers.CONTROL, 1)
    assert await tb.host.read_counters() == [0] * len(COUNTERS)
    expected: dict[str, int] = dict.fromkeys(COUNTERS, 0)
    for _ in range(300):
        events = {name: tb.random.getrandbits(1) for name in COUNTERS}
        tb.set(**{f"events_{name}": value for name, value in events.items()})
        await tb.run()
        expected = {name: expected[name] + value for name, value in events.items()}
    tb.set(**{f"events_{name}": 0 for name in COUNTERS})
    await tb.run()
    for name in ("beats_read", "beats_written"):
        expected[name] *= tb.parameters.beat_bytes
    assert await tb.host.read_counters() == list(expected.values())
    await tb.host.write(registers.CONTROL, 1)
    assert await tb.host.read_counters() == [0] * len(COUNTERS)


@cocotb.test()
async def counters_in_reset(dut):
    """Raise events in a reset: none may be counted."""
    tb = HostBench(dut, "counters in reset", "none")
    await tb.start()
    tb.dut.rst.value = 1
    tb.set(**{f"events_{name}": 1 for name in COUNTERS})
    await tb.run(3)
    tb.dut.rst.value = 0
    tb.set(**{f"events_{name}": 0 for name in COUNTERS})
    await tb.run(3)
    assert await tb.host.read_counters() == [0] * len(COUNTERS)


@cocotb.test()
@cocotb.parametrize(stall=STALLED)
async def slots(dut, stall: str):
    """Check that each slot shows its sum, saturations and underflows; a start must clear them."""
    tb = HostBench(dut, f"slots {stall}", stall)
    await tb.start()
    await tb.host.write(registers.CONTROL, 1)
    depth = tb.parameters.statistics_depth
    expected: list[tuple[int, ...]] = [(0, 0, 0)] * depth
    for slot in 4 * list(range(depth)):
        total, saturations = tb.random.getrandbits(46), tb.random.getrandbits(30)
        underflows = tb.random.getrandbits(30) if tb.parameters.formats else 0
        item = (total, saturations, underflows)
        sums = zip(expected[slot], item, strict=True)
        expected[slot] = tuple(old + new for old, new in sums)
        tb.ports[tb.random.randrange(2)].items.append(statistics_bits(slot, *item))
    await tb.until(lambda: all(port.idle for port in tb.ports))
    await tb.run(8)
    for slot, (total, saturations, underflows) in enumerate(expected):
        at = registers.statistics_base(tb.parameters) + registers.STATISTICS_BYTES * slot
        words = await tb.host.read_words(at, 4)
        assert words == [total & 0xFFFFFFFF, total >> 32, saturations, underflows]
    await tb.host.write(registers.CONTROL, 1)
    assert await tb.host.read(registers.statistics_base(tb.parameters)) == 0


@cocotb.test()
async def some_slots(dut):
    """Fill some slots: every slot without an item must read 0, whatever it held before."""
    tb = HostBench(dut, "some slots", "none")
    await tb.start()
    depth = tb.parameters.statistics_depth
    for _ in range(6):
        await tb.host.write(registers.CONTROL, 1)
        expected = [0] * depth
        for slot in 2 * tb.random.sample(range(depth), depth // 2):
            expected[slot] += (total := tb.random.getrandbits(20) | 1)
            tb.ports[tb.random.randrange(2)].items.append(statistics_bits(slot, total, 0, 0))
        await tb.until(lambda: all(port.idle for port in tb.ports))
        await tb.run(8)
        for slot, total in enumerate(expected):
            at = registers.statistics_base(tb.parameters) + registers.STATISTICS_BYTES * slot
            assert await tb.host.read(at) == total


@cocotb.test()
@cocotb.parametrize(seed=range(2))
async def both_directions(dut, seed: int):
    """Read and write at the same time: neither may disturb the other."""
    tb = HostBench(dut, f"both {seed}", "some")
    await tb.start()
    await tb.host.write(registers.PROGRAM_LENGTH, 12345)
    for _ in range(20):
        value = tb.random.getrandbits(32)
        write = tb.host.begin_write(registers.PROGRAM_ADDRESS, value)
        assert await tb.host.read(registers.PROGRAM_LENGTH) == 12345
        await tb.until(write.done, most=2000)
        assert await tb.host.read(registers.PROGRAM_ADDRESS) == value

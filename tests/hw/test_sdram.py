"""The SDRAM controller against the model of a chip that checks every command."""

from functools import partial
from random import Random

import pytest
from amaranth.sim import Simulator

from trainwright.parameters import AcceleratorParameters
from trainwright_hw.external.sdram.controller import SdramMemory
from trainwright_hw.external.sdram.timing import SdramTiming
from trainwright_sim.sdram import PINS, SdramChip

P = {lanes: AcceleratorParameters(lanes=lanes, pe1_rows=2, pe2_rows=2) for lanes in (4, 8, 16)}
SHORT = SdramTiming(power_up_ns=2000)
"""A power-up that a bench has the time for."""
ROW_BYTES = 1024
SETTLE_CYCLES = 100
"""Cycles until the last write, which was answered already, is in the chip."""


class Bench:
    """A controller, its chip, an AXI4 master and a host; ``stall`` is a chance of each channel."""

    def __init__(self, lanes=8, clock_hz=45e6, *, timing=SHORT, stall=0.0, seed=0):
        self.parameters = P[lanes]
        self.beat = self.parameters.beat_bytes
        self.dut = SdramMemory(self.parameters, timing=timing, cycles=timing.cycles(clock_hz))
        self.chip = SdramChip(clock_hz, power_up_ns=timing.power_up_ns)
        self.random, self.stall = Random(seed), stall
        self.cycles = 0
        self.moved: list[int] = []
        """Cycle of each command of the chip that reads or writes."""

    def run(self, *processes) -> None:
        """Run processes (functions of the simulator's context) side by side, to their end."""
        simulator = Simulator(self.dut)
        simulator.add_clock(1e-8)
        simulator.add_testbench(self._chip, background=True)
        left = len(processes)

        async def tracked(ctx, process):
            nonlocal left
            await process(ctx)
            left -= 1

        async def settle(ctx):
            while left:
                await ctx.tick()
            await ctx.tick().repeat(SETTLE_CYCLES)

        for process in processes:
            simulator.add_testbench(partial(tracked, process=process))
        simulator.add_testbench(settle)
        simulator.run()
        assert self.chip.fault == ""

    async def _chip(self, ctx):
        pins = [getattr(self.dut.pins, name) for name in PINS]
        while True:
            _, _, *values = await ctx.tick().sample(*pins)
            self.cycles += 1
            ctx.set(self.dut.pins.dq_i, self.chip.step(values))
            assert self.chip.fault == ""
            if self.chip.counts["reads"] + self.chip.counts["writes"] > len(self.moved):
                self.moved.append(self.cycles)

    def _go(self) -> bool:
        return self.random.random() >= self.stall

    async def _handshake(self, ctx, name: str) -> None:
        """Offer a request with its payload until the request is taken."""
        while not self._go():
            await ctx.tick()
        valid = getattr(self.dut.axi, f"{name}valid")
        ctx.set(valid, 1)
        await ctx.tick().until(getattr(self.dut.axi, f"{name}ready"))
        ctx.set(valid, 0)

    async def ask(self, ctx, bursts) -> None:
        """Read addresses of (address, beats)."""
        for address, beats in bursts:
            ctx.set(self.dut.axi.araddr, address)
            ctx.set(self.dut.axi.arlen, beats - 1)
            await self._handshake(ctx, "ar")

    async def take(self, ctx, bursts) -> list[tuple[bytes, int]]:
        """Return data and response of each requested burst."""
        axi, bursts_read = self.dut.axi, []
        for _, beats in bursts:
            data, responses = [], set()
            while len(data) < beats:
                ctx.set(axi.rready, self._go())
                _, _, taken, value, last, response = await ctx.tick().sample(
                    axi.rvalid & axi.rready, axi.rdata, axi.rlast, axi.rresp
                )
                if taken:
                    data.append(value.to_bytes(self.beat, "little"))
                    responses.add(response)
                    assert last == (len(data) == beats)
            assert len(responses) == 1
            bursts_read.append((b"".join(data), responses.pop()))
        ctx.set(axi.rready, 0)
        return bursts_read

    async def name(self, ctx, bursts) -> None:
        """Write addresses of (address, data, strobes)."""
        for address, data, _ in bursts:
            ctx.set(self.dut.axi.awaddr, address)
            ctx.set(self.dut.axi.awlen, len(data) // self.beat - 1)
            await self._handshake(ctx, "aw")

    async def fill(self, ctx, bursts) -> None:
        """Send the data of the bursts."""
        axi = self.dut.axi
        for _, data, strobes in bursts:
            beats = len(data) // self.beat
            for n in range(beats):
                ctx.set(
                    axi.wdata, int.from_bytes(data[n * self.beat : (n + 1) * self.beat], "little")
                )
                ctx.set(axi.wstrb, strobes[n])
                ctx.set(axi.wlast, n == beats - 1)
                await self._handshake(ctx, "w")

    async def confirm(self, ctx, bursts) -> list[int]:
        """Receive the responses of the bursts."""
        axi, responses = self.dut.axi, []
        while len(responses) < len(bursts):
            ctx.set(axi.bready, self._go())
            _, _, taken, response = await ctx.tick().sample(axi.bvalid & axi.bready, axi.bresp)
            if taken:
                responses.append(response)
        ctx.set(axi.bready, 0)
        return responses

    async def host(self, ctx, address: int, value: int | None = None) -> int:
        """Access a word as the host does."""
        host = self.dut.host
        ctx.set(host.address, address // 4)
        ctx.set(host.write, value is not None)
        ctx.set(host.write_data, value or 0)
        ctx.set(host.request, 1)
        (word,) = await ctx.tick().sample(host.read_data).until(host.done)
        ctx.set(host.request, 0)
        await ctx.tick()
        return word

    def reads(self, bursts, data: list) -> list:
        """Return processes that read bursts and append the data to ``found``."""

        async def ask(ctx):
            await self.ask(ctx, bursts)

        async def take(ctx):
            data.extend(await self.take(ctx, bursts))

        return [ask, take]

    def writes(self, bursts, responses: list) -> list:
        """Return processes that write bursts and append the responses to ``found``."""

        async def name(ctx):
            await self.name(ctx, bursts)

        async def fill(ctx):
            await self.fill(ctx, bursts)

        async def confirm(ctx):
            responses.extend(await self.confirm(ctx, bursts))

        return [name, fill, confirm]


def random_burst(random: Random, beat: int, low: int, high: int) -> tuple[int, int]:
    """Draw address and beats of a burst within [low, high) that crosses no 4 KiB."""
    address = random.randrange(low, high, beat)
    most = min(16, (high - address) // beat, (4096 - address % 4096) // beat)
    return address, random.choice((1, most, random.randint(1, most)))


def random_write(random: Random, beat: int, low: int, high: int) -> tuple[int, bytes, list[int]]:
    address, beats = random_burst(random, beat, low, high)
    whole = (1 << beat) - 1
    strobes = [random.choice((whole, whole, random.getrandbits(beat))) for _ in range(beats)]
    return address, random.randbytes(beats * beat), strobes


def apply(memory: bytearray, beat: int, bursts) -> None:
    """Apply writes to a memory."""
    for address, data, strobes in bursts:
        for n, value in enumerate(data):
            if strobes[n // beat] >> n % beat & 1:
                memory[address + n] = value


@pytest.mark.parametrize(
    "lanes, clock_hz, stall, seed",
    [
        pytest.param(8, 45e6, 0.0, 1, marks=pytest.mark.slow),
        pytest.param(8, 45e6, 0.3, 2, marks=pytest.mark.slow),
        pytest.param(8, 100e6, 0.1, 3, marks=pytest.mark.slow),
        pytest.param(4, 66e6, 0.2, 4, marks=pytest.mark.slow),
        (16, 130e6, 0.1, 5),
    ],
)
def test_random_bursts_are_as_a_bytearray_has_them(lanes, clock_hz, stall, seed):
    """Reads of one area beside writes to another one, and the host in a third; then they change.

    The areas are rows apart and a row, so that all banks and several rows of each are used.
    """
    bench = Bench(lanes, clock_hz, stall=stall, seed=seed)
    random, beat, area = bench.random, bench.beat, 6 * ROW_BYTES
    size = 3 * area
    memory = bytearray(random.randbytes(size))
    bench.chip.memory[:size] = list(memory)
    for rotation in range(3):
        areas = [(n + rotation) % 3 * area for n in range(3)]
        before = bytes(memory)
        asked = [random_burst(random, beat, areas[0], areas[0] + area) for _ in range(12)]
        written = [random_write(random, beat, areas[1], areas[1] + area) for _ in range(12)]
        read, responses = [], []

        async def host(ctx, low=areas[2]):
            for _ in range(12):
                address = random.randrange(low, low + area, 4)
                if random.random() < 0.5:
                    word = random.getrandbits(32)
                    await bench.host(ctx, address, word)
                    memory[address : address + 4] = word.to_bytes(4, "little")
                else:
                    word = await bench.host(ctx, address)
                    assert memory[address : address + 4] == word.to_bytes(4, "little")

        bench.chip.reset()
        bench.run(*bench.reads(asked, read), *bench.writes(written, responses), host)
        apply(memory, beat, written)
        assert read == [(before[a : a + n * beat], 0) for a, n in asked]
        assert responses == [0] * len(written)
        assert bytes(bench.chip.memory[:size]) == bytes(memory)
        assert not bench.chip.memory[size:].any()
    assert bench.chip.counts["refreshes"] > 3 * SHORT.power_up_refreshes


def test_sdram_write_response_guarantees_visibility():
    bench = Bench(seed=6)
    random, memory = bench.random, bytearray(4 * ROW_BYTES)

    async def master(ctx):
        ctx.set(bench.dut.axi.rready, 1)
        for _ in range(15):
            write = random_write(random, bench.beat, 0, len(memory))
            await bench.name(ctx, [write])
            await bench.fill(ctx, [write])
            assert await bench.confirm(ctx, [write]) == [0]
            apply(memory, bench.beat, [write])
            address, beats = write[0], len(write[1]) // bench.beat
            await bench.ask(ctx, [(address, beats)])
            read = await bench.take(ctx, [(address, beats)])
            assert read == [(bytes(memory[address : address + beats * bench.beat]), 0)]
            word = await bench.host(ctx, address)
            assert word.to_bytes(4, "little") == memory[address : address + 4]

    bench.run(master)


@pytest.mark.parametrize("address", [SHORT.memory_bytes, 1 << 31, (1 << 32) - 128])
def test_outside_is_an_error_and_changes_nothing(address):
    bench = Bench(seed=7)
    read, responses = [], []
    good = (64, bytes(range(64)), [255] * 8)
    bench.run(
        *bench.writes([good, (address, bytes(64), [255] * 8), good], responses),
        *bench.reads([(address, 3), (1 << 20, 2), (address, 16)], read),
    )
    assert responses == [0, 3, 0]
    assert [response for _, response in read] == [3, 0, 3]
    assert bytes(bench.chip.memory[64:128]) == good[1]
    assert not bench.chip.memory[:64].any() and not bench.chip.memory[128:].any()


def test_sdram_last_byte_is_writable():
    bench = Bench()
    last = SHORT.memory_bytes - 16 * bench.beat
    data = bench.random.randbytes(16 * bench.beat)
    responses = []
    bench.run(*bench.writes([(last, data, [255] * 16)], responses))
    assert responses == [0]
    assert bytes(bench.chip.memory[last:]) == data


@pytest.mark.parametrize("kind, least", [("read", 1.85), ("write", 1.85), ("both", 1.55)])
@pytest.mark.parametrize("clock_hz", [45e6, pytest.param(100e6, marks=pytest.mark.slow)])
def test_long_sequences_take_the_bandwidth(kind, least, clock_hz):
    """Refreshes, rows and changes of direction take the rest of 2 bytes a cycle.

    Cycles are counted at the chip, from the first command that moves data to the last: the master
    is answered before the last data are in the chip, and its first data wait during power-up.
    """
    bench = Bench(clock_hz=clock_hz)
    count, size = 24, 16 * bench.beat
    random = bench.random
    data = random.randbytes(count * size)
    half = 8 << 20
    bench.chip.memory[: count * size] = list(data)
    asked = [(n * size, 16) for n in range(count)] if kind != "write" else []
    written = [(half + n * size, data[n * size : (n + 1) * size], [255] * 16) for n in range(count)]
    written = written if kind != "read" else []
    read, responses = [], []
    bench.run(*bench.reads(asked, read), *bench.writes(written, responses))
    assert b"".join(part for part, _ in read) == (data if asked else b"")
    assert bytes(bench.chip.memory[half : half + len(data)]) == (
        data if written else bytes(len(data))
    )
    commands = len(bench.moved)
    size_of_command = (len(asked) + len(written)) * size / commands
    speed = (commands - 1) * size_of_command / (bench.moved[-1] - bench.moved[0])
    print(f"{kind} at {clock_hz / 1e6:g} MHz: {speed:.3f} bytes a cycle")
    assert least < speed < 2

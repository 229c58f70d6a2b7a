"""Peers of the accelerator's ports for Amaranth's own simulator: memory, host, descriptors.

The simulator is slow (some thousand cycles a second), but needs nothing besides Amaranth, and runs
single blocks as well as the whole accelerator.
"""

from collections import deque
from random import Random

from trainwright.program.table import encoded_fields

BURST_INCR = 1
BOUNDARY_BYTES = 4096
SLAVE_ERROR = 2


def fields_of(command, port) -> dict[str, int]:
    """Return the fields of a command that a port has, by name."""
    fields = encoded_fields(command)
    return {name: fields[name] for name, _ in port.shape()}


async def execute(ctx, engine, commands) -> int:
    """Execute transfers on an engine of the DMA, and return the cycles from first to last."""
    cycles = 0
    for command in commands:
        ctx.set(engine.command.payload, fields_of(command, engine.command.payload))
        ctx.set(engine.command.valid, 1)
        ready = False
        while not ready:
            _, _, ready = await ctx.tick().sample(engine.command.ready)
            cycles += 1
        ctx.set(engine.command.valid, 0)
    busy = True
    assert ctx.get(engine.status.busy)
    while busy:
        _, _, busy = await ctx.tick().sample(engine.status.busy)
        cycles += 1
    return cycles


class AxiMemory:
    """AXI4 memory that answers in order, ``latency`` cycles after a request at the earliest.

    In each cycle each channel stalls with probability ``stall``. Reads and writes of a beat whose
    byte address is in ``faults`` get an error response. Violations of the protocol fail an
    assertion: bursts that are not INCR, are not whole beats, cross 4 KiB or leave the memory, and
    requests that change or vanish before they are taken.

    ``read_bursts`` and ``write_bursts`` list (address, beats) of every burst.
    """

    def __init__(
        self,
        axi,
        memory: bytearray,
        *,
        latency: int = 4,
        stall: float = 0.0,
        seed: int = 0,
        faults: frozenset[int] = frozenset(),
    ):
        self.axi = axi
        self.memory = memory
        self.latency = latency
        self.stall = stall
        self.random = Random(seed)
        self.faults = faults
        self.read_bursts: list[tuple[int, int]] = []
        self.write_bursts: list[tuple[int, int]] = []

    def _proceeds(self) -> bool:
        return self.random.random() >= self.stall

    def _check_burst(self, width: int, address: int, length: int, size: int, burst: int) -> None:
        assert burst == BURST_INCR
        assert 1 << size == width and address % width == 0
        last = address + (length + 1) * width - 1
        assert address // BOUNDARY_BYTES == last // BOUNDARY_BYTES
        assert last < len(self.memory)

    async def read_side(self, ctx) -> None:
        """Serve the read channels, as a background process."""
        axi, beats, cycle = self.axi, deque(), 0
        width = len(axi.rdata) // 8
        address_channel = (axi.araddr, axi.arlen, axi.arsize, axi.arburst)
        waiting = None
        while True:
            ready = self._proceeds()
            ctx.set(axi.arready, ready)
            if not ctx.get(axi.rvalid) and beats and beats[0][0] <= cycle and self._proceeds():
                _, data, fault, last = beats.popleft()
                ctx.set(axi.rvalid, 1)
                ctx.set(axi.rdata, data)
                ctx.set(axi.rresp, SLAVE_ERROR * fault)
                ctx.set(axi.rlast, last)
            _, _, valid, taken, *request = await ctx.tick().sample(
                axi.arvalid, axi.rvalid & axi.rready, *address_channel
            )
            cycle += 1
            if taken:
                ctx.set(axi.rvalid, 0)
            assert waiting is None or (valid and request == waiting), "a read request was not held"
            waiting = request if valid and not ready else None
            if valid and ready:
                address, length = request[:2]
                self._check_burst(width, *request)
                self.read_bursts.append((address, length + 1))
                for beat in range(length + 1):
                    start = address + beat * width
                    data = int.from_bytes(self.memory[start : start + width], "little")
                    due = cycle + self.latency - 1
                    beats.append((due, data, start in self.faults, beat == length))

    async def write_side(self, ctx) -> None:
        """Serve the write channels, as a background process."""
        axi, addresses, answers, cycle = self.axi, deque(), deque(), 0
        width = len(axi.wdata) // 8
        address_channel = (axi.awaddr, axi.awlen, axi.awsize, axi.awburst)
        data_channel = (axi.wdata, axi.wstrb, axi.wlast)
        asked = filled = None
        burst = []
        while True:
            ready, room = self._proceeds(), self._proceeds() and bool(addresses)
            ctx.set(axi.awready, ready)
            ctx.set(axi.wready, room)
            if not ctx.get(axi.bvalid) and answers and answers[0][0] <= cycle and self._proceeds():
                ctx.set(axi.bvalid, 1)
                ctx.set(axi.bresp, SLAVE_ERROR * answers.popleft()[1])
            _, _, valid, full, answered, *rest = await ctx.tick().sample(
                axi.awvalid, axi.wvalid, axi.bvalid & axi.bready, *address_channel, *data_channel
            )
            request, beat = rest[:4], rest[4:]
            cycle += 1
            if answered:
                ctx.set(axi.bvalid, 0)
            assert asked is None or (valid and request == asked), "a write request was not held"
            assert filled is None or (full and beat == filled), "a beat was not held"
            asked = request if valid and not ready else None
            filled = beat if full and not room else None
            if full and room:
                data, strobes, last = beat
                assert strobes == (1 << width) - 1
                burst.append(data.to_bytes(width, "little"))
                assert last == (len(burst) == addresses[0][1] + 1)
                if last:
                    start = addresses.popleft()[0]
                    self.memory[start : start + len(burst) * width] = b"".join(burst)
                    fault = any(start + n * width in self.faults for n in range(len(burst)))
                    answers.append((cycle + self.latency - 1, fault))
                    burst = []
            if valid and ready:
                self._check_burst(width, *request)
                self.write_bursts.append((request[0], request[1] + 1))
                addresses.append(request)


class LiteHost:
    """Register accesses over AXI4-Lite, one at a time."""

    def __init__(self, lite):
        self.lite = lite

    async def write(self, ctx, address: int, value: int, *, strobes: int = 0xF) -> None:
        """Write one register."""
        lite = self.lite
        ctx.set(lite.awaddr, address)
        ctx.set(lite.wdata, value)
        ctx.set(lite.wstrb, strobes)
        ctx.set(lite.awvalid, 1)
        ctx.set(lite.wvalid, 1)
        ctx.set(lite.bready, 1)
        answered = False
        while not answered:
            _, _, addressed, filled, answered = await ctx.tick().sample(
                lite.awvalid & lite.awready, lite.wvalid & lite.wready, lite.bvalid
            )
            if addressed:
                ctx.set(lite.awvalid, 0)
            if filled:
                ctx.set(lite.wvalid, 0)

    async def read(self, ctx, address: int) -> int:
        """Read one register."""
        lite = self.lite
        ctx.set(lite.araddr, address)
        ctx.set(lite.arvalid, 1)
        ctx.set(lite.rready, 1)
        while True:
            _, _, addressed, valid, value = await ctx.tick().sample(
                lite.arvalid & lite.arready, lite.rvalid, lite.rdata
            )
            if addressed:
                ctx.set(lite.arvalid, 0)
            if valid:
                return value

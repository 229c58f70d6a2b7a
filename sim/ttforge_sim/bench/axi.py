"""cocotbext-axi's memory beside a design, with stalls, and the rules its bursts must keep."""

from collections.abc import Callable, Iterator

from cocotbext.axi import AxiReadBus, AxiSlaveRead, AxiSlaveWrite, AxiWriteBus

from ttforge_hw.axi import BURST_BOUNDARY_BYTES, BURST_INCR
from ttforge_sim.bench.testbench import Stalls, TestBench

_READ_INPUTS = ("arready", "rid", "rdata", "rresp", "rlast", "rvalid")
_WRITE_INPUTS = ("awready", "wready", "bid", "bresp", "bvalid")


class MemoryFault(Exception):
    """What the memory raises where it is told to fail; cocotbext-axi answers SLVERR."""


class ByteMemory:
    """A target of cocotbext-axi: ``data``, and ``faults``, beat addresses that fail."""

    def __init__(self, data: bytearray):
        self.data = data
        self.faults: set[int] = set()
        self.beats_read = 0
        self.beats_written = 0

    def _check(self, address: int, length: int) -> None:
        assert 0 <= address <= address + length <= len(self.data), f"access to {address:#x}"
        if address in self.faults:
            raise MemoryFault

    async def read(self, address: int, length: int, **_) -> bytes:
        self.beats_read += 1
        self._check(address, length)
        return bytes(self.data[address : address + length])

    async def write(self, address: int, data: bytes, **_) -> None:
        self.beats_written += 1
        self._check(address, len(data))
        self.data[address : address + len(data)] = data


def _pauses(stalls: Stalls) -> Iterator[bool]:
    while True:
        yield not stalls.go()


class BurstRules:
    """Address channel ``ar`` or ``aw``: whole beats, INCR, 4 KiB, length; offers are held."""

    def __init__(self, tb: TestBench, prefix: str):
        self._tb, self._prefix = tb, prefix
        self._held: tuple[int, ...] | None = None
        self.beats = 0
        tb.agents.append(self)

    def cycle(self) -> None:
        tb, prefix = self._tb, self._prefix
        names = ("addr", "len", "size", "burst", "id")
        offered = None
        if tb.get(f"{prefix}valid"):
            offered = tuple(tb.get(f"{prefix}{name}") for name in names)
        assert self._held in (None, offered), f"{prefix}: an offer was withdrawn or changed"
        self._held = offered
        if offered is None or not tb.get(f"{prefix}ready"):
            return
        self._held = None
        address, length, size, burst, _ = offered
        p, count = tb.parameters, length + 1
        assert 1 << size == p.beat_bytes and burst == BURST_INCR
        assert address % p.beat_bytes == 0 and count <= p.burst_beats
        last = address + count * p.beat_bytes - 1
        assert address // BURST_BOUNDARY_BYTES == last // BURST_BOUNDARY_BYTES
        self.beats += count


class WriteDataRules:
    """Data channel: every strobe set; an offer is held."""

    def __init__(self, tb: TestBench, prefix: str):
        self._tb, self._prefix = tb, prefix
        self._held: tuple[int, ...] | None = None
        tb.agents.append(self)

    def cycle(self) -> None:
        tb, prefix = self._tb, self._prefix
        offered = None
        if tb.get(f"{prefix}_wvalid"):
            offered = tuple(tb.get(f"{prefix}_{name}") for name in ("wdata", "wstrb", "wlast"))
            assert offered[1] == (1 << tb.parameters.beat_bytes) - 1
        assert self._held in (None, offered), "write data was withdrawn or changed"
        self._held = None if tb.get(f"{prefix}_wready") else offered


def idle_inputs(tb: TestBench, prefix: str, *, read: bool = True, write: bool = True) -> None:
    """Drive the inputs of a manager's port before reset: cocotbext-axi comes only after it."""
    names = (_READ_INPUTS if read else ()) + (_WRITE_INPUTS if write else ())
    tb.set(**{f"{prefix}_{name}": 0 for name in names})


def _channels(slave, stall: Callable[[], Stalls], *names: str) -> None:
    for name in names:
        getattr(slave, name).log.setLevel("WARNING")
        getattr(slave, name).set_pause_generator(_pauses(stall()))


def attach_read(tb: TestBench, prefix: str, memory: ByteMemory, stall: str) -> None:
    """Let ``memory`` answer the read channels of a manager; after ``start``."""
    bus = AxiReadBus.from_prefix(tb.dut, prefix)
    bus.ar._entity._log.setLevel("WARNING")
    slave = AxiSlaveRead(bus, tb.dut.clk, tb.dut.rst, target=memory)
    slave.log.setLevel("ERROR")
    _channels(slave, lambda: tb.stalls(stall), "ar_channel", "r_channel")


def attach_write(tb: TestBench, prefix: str, memory: ByteMemory, stall: str) -> None:
    """Let ``memory`` answer the write channels of a manager; after ``start``."""
    bus = AxiWriteBus.from_prefix(tb.dut, prefix)
    slave = AxiSlaveWrite(bus, tb.dut.clk, tb.dut.rst, target=memory)
    slave.log.setLevel("ERROR")
    _channels(slave, lambda: tb.stalls(stall), "aw_channel", "w_channel", "b_channel")

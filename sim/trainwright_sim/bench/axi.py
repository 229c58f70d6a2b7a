"""cocotbext-axi's memory and host beside a design, with stalls, and the rules of its bursts."""

import logging
from collections.abc import Iterator
from typing import Any

import cocotb
from cocotb.task import Task
from cocotbext.axi import (
    AxiLiteBus,
    AxiLiteMaster,
    AxiReadBus,
    AxiResp,
    AxiSlaveRead,
    AxiSlaveWrite,
    AxiWriteBus,
)

from trainwright.accelerator.registers import COUNTER_OFFSETS
from trainwright_hw.bus.axi import BURST_BOUNDARY_BYTES, BURST_INCR
from trainwright_sim.bench.testbench import Stalls, TestBench

_READ_INPUTS = ("arready", "rid", "rdata", "rresp", "rlast", "rvalid")
_WRITE_INPUTS = ("awready", "wready", "bid", "bresp", "bvalid")
_ADDRESSES = 64
"""Bursts that the memory takes ahead: more than the design may have open, so it must stop first."""


ERRORS = (AxiResp.SLVERR, AxiResp.DECERR)


class MemoryFault(Exception):
    """Exception that the memory raises to fail an access; cocotbext-axi answers SLVERR."""


class ByteMemory:
    """Target of cocotbext-axi with ``data``; accesses to the beat addresses in ``faults`` fail.

    ``answer``: response to accesses that fail, SLVERR or DECERR. ``wraps``: addresses beyond the
    end begin at 0 again; otherwise they fail an assertion.
    """

    def __init__(self, data: bytearray):
        self.data = data
        self.faults: set[int] = set()
        self.answer = AxiResp.SLVERR
        self.wraps = False
        self.beats_read = 0
        self.beats_written = 0

    def _check(self, address: int, length: int) -> int:
        address = address % len(self.data) if self.wraps else address
        assert 0 <= address <= address + length <= len(self.data), f"access to {address:#x}"
        if address in self.faults:
            raise MemoryFault
        return address

    async def read(self, address: int, length: int, **_) -> bytes:
        self.beats_read += 1
        address = self._check(address, length)
        return bytes(self.data[address : address + length])

    async def write(self, address: int, data: bytes, **_) -> None:
        self.beats_written += 1
        address = self._check(address, len(data))
        self.data[address : address + len(data)] = data


def _pauses(stalls: Stalls) -> Iterator[bool]:
    while True:
        yield not stalls.go()


class BurstRules:
    """Address channel ``ar`` or ``aw``: whole beats, INCR, 4 KiB, length; offers are held.

    ``beats`` were asked for so far, in ``bursts`` (address and beats); no more than
    ``outstanding_bursts`` of them are open.
    """

    def __init__(self, tb: TestBench, port: str, channel: str):
        self._tb, self._prefix = tb, f"{port}_{channel}"
        self._held: tuple[int, ...] | None = None
        end = ("rvalid", "rready", "rlast") if channel == "ar" else ("bvalid", "bready")
        self._end = tuple(f"{port}_{name}" for name in end)
        self._open = 0
        self.beats = 0
        self.bursts: list[tuple[int, int]] = []
        tb.agents.append(self)

    def cycle(self) -> None:
        tb, prefix = self._tb, self._prefix
        if tb.get("rst"):
            self._held, self._open = None, 0
            return
        self._open -= all(tb.get(name) for name in self._end)
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
        self.bursts.append((address, count))
        self._open += 1
        assert self._open <= p.outstanding_bursts


class WriteDataRules:
    """Data channel: every strobe set; an offer is held."""

    def __init__(self, tb: TestBench, prefix: str):
        self._tb, self._prefix = tb, prefix
        self._held: tuple[int, ...] | None = None
        tb.agents.append(self)

    def cycle(self) -> None:
        tb, prefix = self._tb, self._prefix
        if tb.get("rst"):
            self._held = None
            return
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


def _attach(tb: TestBench, model: type, bus_type: type, prefix: str, **options):
    """Attach a model of cocotbext-axi to a port, silencing its log and its deprecation warnings."""
    logging.getLogger(f"cocotb.{tb.dut._name}").setLevel("ERROR")
    logging.getLogger("py.warnings").setLevel("ERROR")
    return model(bus_type.from_prefix(tb.dut, prefix), tb.dut.clk, tb.dut.rst, **options)


def _stall_channels(tb: TestBench, interface, stall: str, *names: str) -> None:
    for name in names:
        getattr(interface, f"{name}_channel").set_pause_generator(_pauses(tb.stalls(stall)))


def _answer(channel: Any, name: str, memory: ByteMemory) -> None:
    """Let a channel answer faults as ``memory`` says: the model knows only SLVERR."""
    send = channel.send

    async def answered(item: Any) -> None:
        if getattr(item, name) == AxiResp.SLVERR:
            setattr(item, name, memory.answer)
        await send(item)

    channel.send = answered


def attach_read(tb: TestBench, prefix: str, memory: ByteMemory, stall: str) -> None:
    """Let ``memory`` answer the read channels of a manager; after ``start``."""
    slave = _attach(tb, AxiSlaveRead, AxiReadBus, prefix, target=memory)
    slave.ar_channel.queue_occupancy_limit = _ADDRESSES
    _answer(slave.r_channel, "rresp", memory)
    _stall_channels(tb, slave, stall, "ar", "r")


def attach_write(tb: TestBench, prefix: str, memory: ByteMemory, stall: str) -> None:
    """Let ``memory`` answer the write channels of a manager; after ``start``."""
    slave = _attach(tb, AxiSlaveWrite, AxiWriteBus, prefix, target=memory)
    slave.aw_channel.queue_occupancy_limit = _ADDRESSES
    _answer(slave.b_channel, "bresp", memory)
    _stall_channels(tb, slave, stall, "aw", "w", "b")


class Host:
    """The host at an AXI4-Lite port: whole accesses, which let the bench's cycles pass.

    ``idle`` first, to drive the inputs before reset; make a host after ``start``.
    """

    _INPUTS = "awaddr awprot awvalid wdata wstrb wvalid bready araddr arprot arvalid rready"

    def __init__(self, tb: TestBench, prefix: str, *, stall: str = "none"):
        self._tb = tb
        self._master = _attach(tb, AxiLiteMaster, AxiLiteBus, prefix)
        _stall_channels(tb, self._master.write_if, stall, "aw", "w", "b")
        _stall_channels(tb, self._master.read_if, stall, "ar", "r")

    @classmethod
    def idle(cls, tb: TestBench, prefix: str) -> None:
        """Drive the port's inputs."""
        tb.set(**{f"{prefix}_{name}": 0 for name in cls._INPUTS.split()})

    async def _finish(self, task: Task) -> Any:
        await self._tb.until(task.done, most=5000)
        answer = task.result()
        assert answer.resp == 0
        return answer

    def begin_write(self, address: int, value: int, size: int = 4) -> Task:
        """Start a write of ``size`` bytes; it goes on while cycles pass."""
        return cocotb.start_soon(self._master.write(address, value.to_bytes(size, "little")))

    async def write(self, address: int, value: int, size: int = 4) -> None:
        """Write ``size`` bytes."""
        await self._finish(self.begin_write(address, value, size))

    async def read(self, address: int) -> int:
        """Read a word."""
        answer = await self._finish(cocotb.start_soon(self._master.read(address, 4)))
        return int.from_bytes(answer.data, "little")

    async def read_words(self, address: int, count: int) -> list[int]:
        """Read words one after the other."""
        return [await self.read(address + 4 * n) for n in range(count)]

    async def read_counters(self) -> list[int]:
        """Read every counter, in the order of ``COUNTERS``."""
        pairs = [await self.read_words(offset, 2) for offset in COUNTER_OFFSETS]
        return [low | high << 32 for low, high in pairs]

"""STORE's engine with cocotbext-axi as the memory, against the golden model."""

import cocotb
import numpy as np
from cocotbext.axi import AxiResp

from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Transfer, TransferLevel
from trainwright.program.fields import Operation, Target
from trainwright_sim.bench.axi import (
    ERRORS,
    BurstRules,
    ByteMemory,
    WriteDataRules,
    attach_write,
    idle_inputs,
)
from trainwright_sim.bench.memories import RowReadPeer
from trainwright_sim.bench.streams import StreamSource
from trainwright_sim.bench.testbench import STALLS, TestBench
from trainwright_sim.bench.transfers import (
    FAR,
    command_bits,
    far_transfer,
    random_memory,
    random_transfer,
    stored,
    walked_bursts,
    walked_items,
)


class StoreBench(TestBench):
    """The engine between a scratchpad and a memory."""

    def __init__(self, dut, seed: object, *, memory_stall: str, row_stall: str):
        super().__init__(dut, seed)
        p = self.parameters
        numbers = np.random.default_rng(self.random.getrandbits(32))
        # values that fit a byte: what a narrow store does with others is not the golden model's
        self.rows = numbers.integers(-128, 128, (p.scratchpad_rows, p.lanes))
        self.expected = random_memory(self.random)
        self.memory = ByteMemory(bytearray(self.expected.tobytes()))
        stall = "none" if row_stall == "late" else row_stall
        self.commands = StreamSource(self, "command", stall=stall)
        self.asked = RowReadPeer(self, "scratchpad", self.rows, stall=row_stall).asked
        self.bursts = BurstRules(self, "axi", "aw")
        WriteDataRules(self, "axi")
        self._stall = memory_stall
        self.errors = 0
        idle_inputs(self, "axi", read=False)
        self.agents.append(self)

    def cycle(self) -> None:
        self.errors += self.get("error")

    async def start(self) -> None:
        await super().start()
        attach_write(self, "axi", self.memory, self._stall)

    def add(self, d: Transfer) -> None:
        """Queue a command and execute it by the golden model."""
        stored(d, self.rows, self.expected, self.parameters)
        self.commands.items.append(command_bits(d))

    async def finish(self) -> None:
        """Wait until every command is executed, then compare the memory."""
        await self.until(lambda: self.commands.idle)
        await self.run()
        await self.until(lambda: not self.get("status_busy"))
        got = np.frombuffer(self.memory.data, np.uint8)
        assert np.array_equal(got, self.expected), np.flatnonzero(got != self.expected)[:8]
        assert self.bursts.beats == self.memory.beats_written


def whole_words(p: AcceleratorParameters, rows: int) -> Transfer:
    """Build a store of ``rows`` rows, from the first row on, to address 0."""
    size = p.word_width // 8
    return Transfer(
        operation=Operation.STORE, address=0, local=0, beats=rows * size, element_bytes=size
    )


@cocotb.test()
@cocotb.parametrize(memory_stall=STALLS[:4], row_stall=STALLS)
async def random_commands(dut, memory_stall: str, row_stall: str):
    """Store bytes and words, back to back."""
    seed = f"{memory_stall} {row_stall}"
    tb = StoreBench(dut, seed, memory_stall=memory_stall, row_stall=row_stall)
    p = tb.parameters
    await tb.start()
    for _ in range(8):
        tb.add(random_transfer(Operation.STORE, Target.SCRATCHPAD, p, tb.random, p.scratchpad_rows))
    await tb.finish()
    assert not tb.errors


@cocotb.test()
async def boundaries(dut):
    """Run transfers that begin and end around 4 KiB, of every length up to about two bursts."""
    tb = StoreBench(dut, "boundaries", memory_stall="none", row_stall="none")
    await tb.start()
    p = tb.parameters
    for beats in range(1, 2 * p.burst_beats + 4):
        for offset in (-beats, -1, 0, 1 - beats):
            tb.add(
                Transfer(
                    operation=Operation.STORE, address=4096 + offset * p.beat_bytes,
                    local=tb.random.randrange(100), beats=beats, element_bytes=1,
                    levels=(TransferLevel(2, 4096, beats),),
                )
            )  # fmt: skip
    await tb.finish()


@cocotb.test()
@cocotb.parametrize((("counts", "beats"), (*FAR, ((129, 1, 1), 1))))
async def far(dut, counts: tuple[int, ...], beats: int):
    """Use addresses of all bits and large counts: requests must match the descriptor."""
    tb = StoreBench(dut, f"far {counts}", memory_stall="none", row_stall="some")
    tb.memory.wraps = True
    await tb.start()
    d = far_transfer(Operation.STORE, tb.parameters, tb.random, counts, beats)
    tb.commands.items.append(command_bits(d))
    await tb.until(lambda: tb.commands.idle)
    await tb.run()
    await tb.until(lambda: not tb.get("status_busy"))
    assert tb.asked == walked_items(d)
    assert tb.bursts.bursts == walked_bursts(d, tb.parameters)


@cocotb.test()
@cocotb.parametrize((("idle_port", "operand", "result"), [("rows", 100, 0), ("memory", 0, 100)]))
async def what_it_waits_for(dut, idle_port: str, operand: int, result: int):
    """Withhold rows, or block the memory: only the matching stall may be high."""
    stalls = {
        "memory_stall": "none",
        "row_stall": "none",
        f"{idle_port.removesuffix('s')}_stall": "late",
    }
    tb = StoreBench(dut, f"waits for {idle_port}", **stalls)
    flags = ("status_stall_operand", "status_stall_result", "status_busy")
    await tb.start()
    assert await tb.share(flags, 20) == [0, 0, 0]
    tb.add(Transfer(operation=Operation.STORE, address=0, local=0, beats=24, element_bytes=1))
    await tb.run(60)
    assert await tb.share(flags, 100) == [operand, result, 100]
    await tb.finish()
    assert await tb.share(flags, 20) == [0, 0, 0]


@cocotb.test()
@cocotb.parametrize(memory_stall=("none", "most"))
async def slow_rows(dut, memory_stall: str):
    """Store many bursts of one beat, whose addresses run ahead of their rows."""
    tb = StoreBench(dut, f"slow rows {memory_stall}", memory_stall=memory_stall, row_stall="most")
    await tb.start()
    levels = (TransferLevel(60, 3 * tb.parameters.beat_bytes, 1),)
    for address in (0, 4096):
        tb.add(
            Transfer(
                operation=Operation.STORE, address=address, local=0, beats=1, element_bytes=1,
                levels=levels,
            )
        )  # fmt: skip
    await tb.finish()


@cocotb.test()
async def words(dut):
    """Store words of any value, and the low byte of words stored as bytes."""
    tb = StoreBench(dut, "words", memory_stall="some", row_stall="some")
    p = tb.parameters
    most = 1 << p.word_width - 1
    tb.rows[:32] = np.random.default_rng(1).integers(-most, most, (32, p.lanes))
    await tb.start()
    tb.add(whole_words(p, 32))
    d = Transfer(operation=Operation.STORE, address=1024, local=0, beats=32, element_bytes=1)
    tb.commands.items.append(command_bits(d))
    low = tb.rows[:32].astype(np.uint64).astype(np.uint8).ravel()
    tb.expected[1024 : 1024 + low.size] = low
    await tb.finish()


@cocotb.test()
@cocotb.parametrize((("seed", "answer"), list(enumerate(ERRORS))))
async def errors(dut, seed: int, answer: AxiResp):
    """Answer bursts with errors: ``error`` must be high a cycle for each; the store must finish."""
    tb = StoreBench(dut, f"errors {seed}", memory_stall="some", row_stall="some")
    await tb.start()
    tb.memory.answer = answer
    p = tb.parameters
    burst = p.burst_beats * p.beat_bytes
    bursts = range(0, 32 * burst, burst)
    tb.memory.faults = set(tb.random.sample(bursts, 5))
    tb.add(whole_words(p, 32 * p.burst_beats // (p.word_width // 8)))
    for address in tb.memory.faults:
        lost = slice(address, address + p.beat_bytes)
        tb.expected[lost] = np.frombuffer(tb.memory.data, np.uint8)[lost]
    await tb.finish()
    await tb.run(2)
    assert tb.errors == 5


@cocotb.test()
@cocotb.parametrize(answer=ERRORS)
async def an_error_at_each_beat(dut, answer: AxiResp):
    """Fail each beat of two bursts in turn: one cycle of ``error`` for its burst."""
    tb = StoreBench(dut, f"beats {answer}", memory_stall="none", row_stall="none")
    await tb.start()
    p = tb.parameters
    tb.memory.answer = answer
    for beat in range(2 * p.burst_beats):
        address = beat * p.beat_bytes
        tb.memory.faults = {address}
        tb.add(whole_words(p, 2 * p.burst_beats // (p.word_width // 8)))
        lost = slice(address, address + p.beat_bytes)
        tb.expected[lost] = np.frombuffer(tb.memory.data, np.uint8)[lost]
        await tb.finish()
        await tb.run(2)
        assert tb.errors == beat + 1

"""LOAD's engine with cocotbext-axi as the memory, against the golden model."""

import cocotb
from cocotbext.axi import AxiResp

from trainwright.program.descriptors import Transfer, TransferLevel
from trainwright.program.fields import COUNT_WIDTH, Operation, Target
from trainwright_hw.bus.axi_reader import FIFO_BEATS
from trainwright_sim.bench.axi import ERRORS, BurstRules, ByteMemory, attach_read, idle_inputs
from trainwright_sim.bench.blocks.unpack import Targets
from trainwright_sim.bench.streams import StreamSource
from trainwright_sim.bench.testbench import STALLS, TestBench
from trainwright_sim.bench.transfers import (
    FAR,
    MEMORY_BYTES,
    command_bits,
    far_transfer,
    random_memory,
    random_transfer,
    walked_bursts,
    walked_items,
)


class LoadBench(TestBench):
    """The engine between a memory and its targets."""

    def __init__(self, dut, seed: object, *, memory_stall: str, target_stall: str):
        super().__init__(dut, seed)
        self.data = random_memory(self.random)
        self.memory = ByteMemory(bytearray(self.data.tobytes()))
        stall = "none" if target_stall == "late" else target_stall
        self.commands = StreamSource(self, "command", stall=stall)
        self.targets = Targets(self, stall=target_stall)
        self.bursts = BurstRules(self, "axi", "ar")
        self._stall = memory_stall
        self.errors = 0
        idle_inputs(self, "axi", write=False)
        self.agents.append(self)

    def cycle(self) -> None:
        self.errors += self.get("error")

    async def start(self) -> None:
        await super().start()
        attach_read(self, "axi", self.memory, self._stall)

    async def finish(self) -> None:
        """Wait until every command is executed."""
        await self.until(lambda: self.commands.idle)
        await self.run()
        await self.until(lambda: not self.get("status_busy"))

    def random_command(self) -> Transfer:
        target = self.random.choice(list(Target))
        size = self.targets.size(target)
        return random_transfer(Operation.LOAD, target, self.parameters, self.random, size)


class PatientMemory:
    """Memory that gives ARREADY only to an address that it has seen."""

    def __init__(self, tb: LoadBench):
        self._tb, self._beats = tb, list[tuple[int, bool]]()
        tb.agents.append(self)

    def cycle(self) -> None:
        tb, size = self._tb, self._tb.parameters.beat_bytes
        if tb.get("axi_rvalid"):  # RREADY is always high
            self._beats.pop(0)
        offered = tb.get("axi_arvalid")
        if offered and tb.get("axi_arready"):
            first, count = tb.get("axi_araddr"), tb.get("axi_arlen") + 1
            self._beats += [(first + n * size, n == count - 1) for n in range(count)]
            offered = 0
        address, last = self._beats[0] if self._beats else (0, False)
        beat = int.from_bytes(tb.data[address : address + size].tobytes(), "little")
        tb.set(axi_arready=offered, axi_rvalid=int(bool(self._beats)), axi_rdata=beat,
               axi_rlast=int(last))  # fmt: skip


@cocotb.test()
async def patient_memory(dut):
    """Offer every address before ARREADY: AXI lets a memory wait for it."""
    tb = LoadBench(dut, "patient memory", memory_stall="none", target_stall="none")
    PatientMemory(tb)
    await TestBench.start(tb)
    beats = 3 * tb.parameters.burst_beats
    d = Transfer(operation=Operation.LOAD, address=0, local=0, beats=beats, element_bytes=1)
    tb.targets.expect(d, tb.data)
    tb.commands.items.append(command_bits(d))
    await tb.finish()
    tb.targets.check()


@cocotb.test()
@cocotb.parametrize(memory_stall=STALLS[:4], target_stall=STALLS)
async def random_commands(dut, memory_stall: str, target_stall: str):
    """Load into every target, back to back."""
    tb = LoadBench(
        dut, f"{memory_stall} {target_stall}", memory_stall=memory_stall, target_stall=target_stall
    )
    await tb.start()
    for _ in range(8):
        d = tb.random_command()
        tb.targets.expect(d, tb.data)
        tb.commands.items.append(command_bits(d))
    await tb.finish()
    tb.targets.check()
    assert tb.bursts.beats == tb.memory.beats_read
    assert not tb.errors


@cocotb.test()
async def boundaries(dut):
    """Run transfers that begin and end around 4 KiB, of every length up to about two bursts."""
    tb = LoadBench(dut, "boundaries", memory_stall="none", target_stall="none")
    await tb.start()
    p = tb.parameters
    for beats in range(1, 2 * p.burst_beats + 4):
        for offset in (-beats, -1, 0, 1 - beats):
            d = Transfer(
                operation=Operation.LOAD, address=4096 + offset * p.beat_bytes, local=5,
                beats=beats, element_bytes=1, levels=(TransferLevel(2, 4096, beats),),
            )  # fmt: skip
            tb.targets.expect(d, tb.data)
            tb.commands.items.append(command_bits(d))
    await tb.finish()
    tb.targets.check()


@cocotb.test()
@cocotb.parametrize((("counts", "beats"), FAR))
async def far(dut, counts: tuple[int, ...], beats: int):
    """Use addresses of all bits and large counts: requests must match the descriptor."""
    tb = LoadBench(dut, f"far {counts}", memory_stall="none", target_stall="some")
    tb.memory.wraps = True
    await tb.start()
    d = far_transfer(Operation.LOAD, tb.parameters, tb.random, counts, beats)
    tb.commands.items.append(command_bits(d))
    await tb.finish()
    assert [address for address, _ in tb.targets.rows] == walked_items(d)
    assert tb.bursts.bursts == walked_bursts(d, tb.parameters)


@cocotb.test()
@cocotb.parametrize(more=(5, 20))
async def long_runs(dut, more: int):
    """Use lengths slightly above a power of two: the transfer must go on past it, until a reset."""
    tb = LoadBench(dut, f"long {more}", memory_stall="none", target_stall="none")
    tb.memory.wraps = True
    await tb.start()
    for bit in range(6, COUNT_WIDTH):
        d = Transfer(
            operation=Operation.LOAD, address=0, local=0, beats=more + (1 << bit), element_bytes=1
        )
        tb.bursts.bursts.clear()
        tb.commands.items.append(command_bits(d))
        await tb.run(50)
        assert tb.get("status_busy")
        assert tb.bursts.bursts == walked_bursts(d, tb.parameters)[: len(tb.bursts.bursts)]
        assert len(tb.bursts.bursts) > 4
        await tb.reset()
        assert not tb.get("status_busy")


@cocotb.test()
@cocotb.parametrize(
    (
        ("idle_port", "operand", "result", "asked"),
        [("memory", 100, 0, 0), ("target", 0, 100, FIFO_BEATS)],
    )
)
async def what_it_waits_for(dut, idle_port: str, operand: int, result: int, asked: int):
    """Starve the load of beats, or block the scratchpad: only the matching stall may be high.

    ``asked`` beats are requested meanwhile.
    """
    stalls = {"memory_stall": "none", "target_stall": "none", f"{idle_port}_stall": "late"}
    tb = LoadBench(dut, f"waits for the {idle_port}", **stalls)
    flags = ("status_stall_operand", "status_stall_result", "status_busy")
    await tb.start()
    assert await tb.share(flags, 20) == [0, 0, 0]
    d = Transfer(operation=Operation.LOAD, address=0, local=0, beats=200, element_bytes=1)
    tb.targets.expect(d, tb.data)
    tb.commands.items.append(command_bits(d))
    await tb.run(200)
    assert await tb.share(flags, 100) == [operand, result, 100]
    assert tb.bursts.beats == asked
    await tb.finish()
    tb.targets.check()
    assert await tb.share(flags, 20) == [0, 0, 0]


@cocotb.test()
async def throughput(dut):
    """Check a beat per cycle from a memory without stalls, across runs and commands.

    The first row is offered four cycles after its first beat came.
    """
    tb = LoadBench(dut, "throughput", memory_stall="none", target_stall="none")
    await tb.start()
    levels = (TransferLevel(8, 64 * tb.parameters.beat_bytes, 32),)
    d = Transfer(operation=Operation.LOAD, address=0, local=0, beats=64, levels=levels)
    before = tb.cycles
    for _ in range(4):
        tb.targets.expect(d, tb.data)
        tb.commands.items.append(command_bits(d))
    await tb.until(lambda: tb.get("axi_rvalid"))
    assert await tb.share(("scratchpad_request_valid",), 4) == [1]
    await tb.finish()
    tb.targets.check()
    # cocotbext-axi pauses for a cycle or two between bursts
    bursts = 4 * 8 * 64 // tb.parameters.burst_beats
    assert tb.cycles - before <= 4 * 8 * 64 + 2 * bursts + 60


@cocotb.test()
async def slow_target(dut):
    """Load much more than the engine can hold into a scratchpad that is much slower."""
    tb = LoadBench(dut, "slow target", memory_stall="none", target_stall="most")
    await tb.start()
    d = Transfer(operation=Operation.LOAD, address=0, local=0, beats=600, element_bytes=1)
    tb.targets.expect(d, tb.data)
    tb.commands.items.append(command_bits(d))
    await tb.finish()
    tb.targets.check()


@cocotb.test()
@cocotb.parametrize((("seed", "answer"), list(enumerate(ERRORS))))
async def errors(dut, seed: int, answer: AxiResp):
    """Answer beats with errors: ``error`` must be high a cycle for each; the load must finish."""
    tb = LoadBench(dut, f"errors {seed}", memory_stall="some", target_stall="some")
    await tb.start()
    tb.memory.answer = answer
    p = tb.parameters
    beats = list(range(0, MEMORY_BYTES, p.beat_bytes))
    tb.memory.faults = set(tb.random.sample(beats, 20)) | {0}
    d = Transfer(operation=Operation.LOAD, address=0, local=0, beats=1024, element_bytes=1)
    tb.commands.items.append(command_bits(d))
    await tb.finish()
    assert tb.errors == sum(address < 1024 * p.beat_bytes for address in tb.memory.faults)
    assert len(tb.targets.rows) == 1024


@cocotb.test()
@cocotb.parametrize(answer=ERRORS)
async def an_error_at_each_beat(dut, answer: AxiResp):
    """Fail each beat of two bursts in turn: one cycle of ``error``, and all beats are taken."""
    tb = LoadBench(dut, f"beats {answer}", memory_stall="none", target_stall="none")
    await tb.start()
    p = tb.parameters
    tb.memory.answer = answer
    beats = 2 * p.burst_beats
    for beat in range(beats):
        tb.memory.faults = {beat * p.beat_bytes}
        d = Transfer(operation=Operation.LOAD, address=0, local=0, beats=beats, element_bytes=1)
        tb.commands.items.append(command_bits(d))
        await tb.finish()
        assert tb.errors == beat + 1
        assert len(tb.targets.rows) == beats * (beat + 1)

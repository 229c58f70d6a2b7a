"""The whole accelerator in a bench, and as the driver sees it."""

import numpy as np
import numpy.typing as npt
from cocotb.task import resume

from trainwright.accelerator import AcceleratorError, Counters, Run, Trace
from trainwright.program.descriptors import Program
from trainwright.program.encoding import encode_descriptors
from trainwright.program.engines import TRACED
from trainwright_hw.control import csr as registers
from trainwright_sim.bench.axi import (
    BurstRules,
    ByteMemory,
    Host,
    WriteDataRules,
    attach_read,
    attach_write,
    idle_inputs,
)
from trainwright_sim.bench.testbench import TestBench, unpack

ERROR = 4
"""The bit of STATUS."""


class AcceleratorBench(TestBench):
    """The accelerator between cocotbext-axi's memory and host.

    ``execute`` runs a program for coroutines; ``Bridged`` is the accelerator for the driver.
    """

    def __init__(self, dut, seed: object, *, memory_bytes: int, stall: str):
        super().__init__(dut, seed)
        self.memory_bytes = memory_bytes
        self.memory = ByteMemory(bytearray(memory_bytes))
        self.traces: dict[str, list[tuple[int, list[int]]]] = {e: [] for e in TRACED}
        self._stall = stall
        idle_inputs(self, "m_axi")
        Host.idle(self, "s_axil")
        self.reads, self.writes = BurstRules(self, "m_axi", "ar"), BurstRules(self, "m_axi", "aw")
        WriteDataRules(self, "m_axi")
        self.agents.append(self)

    def cycle(self) -> None:
        p = self.parameters
        for engine, rows in self.traces.items():
            if self.get(f"trace_{engine}_valid"):
                words = unpack(self.get(f"trace_{engine}_row"), p.word_width, p.lanes)
                rows.append((self.get(f"trace_{engine}_address"), words))

    async def start(self) -> None:
        await super().start()
        await self.run(3)  # the reset is registered
        attach_read(self, "m_axi", self.memory, self._stall)
        attach_write(self, "m_axi", self.memory, self._stall)
        self.host = Host(self, "s_axil")

    async def begin(self, program: Program, address: int) -> None:
        """Start a program."""
        body = encode_descriptors(program)
        self.memory.data[address : address + len(body)] = body
        await self.host.write(registers.PROGRAM_ADDRESS, address)
        await self.host.write(registers.PROGRAM_LENGTH, len(program.descriptors))
        await self.host.write(registers.INTERRUPT_ENABLE, 1)
        await self.host.write(registers.CONTROL, 1)

    async def execute(self, program: Program, address: int, *, most: int = 200_000) -> int:
        """Run a program and wait for the interrupt; gives STATUS."""
        await self.begin(program, address)
        limit = self.cycles + most
        while not self.get("interrupt"):
            assert self.cycles < limit, f"no interrupt after {most} cycles"
            await self.run()
        return await self.host.read(registers.STATUS)

    async def measure(self, program: Program, address: int) -> Run:
        """Run a program; gives what the driver wants to know of it, traces included."""
        for rows in self.traces.values():
            rows.clear()
        status = await self.execute(program, address)
        if status & ERROR:
            raise AcceleratorError(f"STATUS is {status:#x}")
        counters = Counters(*await self.host.read_counters())
        slots = self.parameters.statistics_depth
        words = await self.host.read_words(registers.statistics_base(self.parameters), 4 * slots)
        await self.host.write(registers.CONTROL, 2)
        assert not self.get("interrupt")
        return Run(
            sums=np.array([words[4 * n] | words[4 * n + 1] << 32 for n in range(slots)]),
            saturations=np.array(words[2::4]),
            underflows=np.array(words[3::4]),
            counters=counters,
            traces={engine: self._trace(engine) for engine in self.traces},
        )

    def _trace(self, engine: str) -> Trace:
        rows = self.traces[engine]
        return Trace(
            np.array([address for address, _ in rows], np.int64),
            np.array([words for _, words in rows], np.int16).reshape(-1, self.parameters.lanes),
        )


class Bridged:
    """A bench as ``trainwright.accelerator.Accelerator``, for code under ``bridge``."""

    def __init__(self, bench: AcceleratorBench):
        self._bench = bench
        self.parameters = bench.parameters
        self.memory_bytes = bench.memory_bytes

    def write(self, address: int, data: npt.NDArray[np.uint8]) -> None:
        self._bench.memory.data[address : address + data.size] = data.tobytes()

    def read(self, address: int, size: int) -> npt.NDArray[np.uint8]:
        return np.frombuffer(bytes(self._bench.memory.data[address : address + size]), np.uint8)

    def run(self, program: Program, address: int, *, trace: bool = False) -> Run:
        return resume(self._bench.measure)(program, address)

    def close(self) -> None:
        """Do nothing: a bridged accelerator holds no resources."""

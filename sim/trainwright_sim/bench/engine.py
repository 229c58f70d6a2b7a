"""What the benches of PE1 and PE2 share: an engine with its memories, against the golden model."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trainwright.golden.compute import compute
from trainwright.golden.state import State
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Compute
from trainwright.program.fields import Operation, Target
from trainwright_sim.bench.commands import SPACE, Operands, command_bits, random_compute
from trainwright_sim.bench.items import statistics_fields
from trainwright_sim.bench.memories import EntryReadPeer, RowReadPeer, RowWritePeer
from trainwright_sim.bench.streams import StreamSink, StreamSource
from trainwright_sim.bench.testbench import TestBench


@dataclass(frozen=True)
class Expected:
    """What the golden model says of one command: rows in the order of writing, statistics."""

    written: list[tuple[int, list[int]]]
    total: int
    saturations: int


def golden(d: Compute, operands: Operands, p: AcceleratorParameters) -> Expected:
    """Execute ``d`` by the golden model; ``operands`` stay as they are."""
    state = State(
        memory=np.zeros(0, np.uint8),
        pad=operands.rows.astype(np.int16),
        known=np.ones(SPACE, np.bool_),
        stores={
            target: operands.entries.astype(np.int16)
            for target in (Target.PE1_STORE, Target.PE2_STORE)
        },
    )
    done = compute(d, state, p)
    written = list(zip(done.addresses.tolist(), done.rows.tolist(), strict=True))
    return Expected(written, done.total, done.saturations)


class EngineBench(TestBench):
    """Runs commands one after the other; compares every row written and every statistic.

    ``stalled`` names the ports that stall as ``stall`` says; the others never do.
    """

    readers: tuple[str, ...]
    """The engine's read ports."""

    def __init__(self, dut, seed: object, stall: str, *, stalled: Sequence[str] = ("x", "g", "z")):
        super().__init__(dut, seed)
        self.operands = Operands.random(self.parameters, self.random, *self.store_shape())

        def kind(port: str) -> str:
            return stall if port in stalled else "none"

        self.commands = StreamSource(self, "command", stall="none" if stall == "late" else stall)
        for name in self.readers:
            RowReadPeer(self, name, self.operands.rows, stall=kind(name))
        EntryReadPeer(self, "store", self.operands.entries)
        self.results = RowWritePeer(self, "z", stall=kind("z"))
        self.items = StreamSink(self, "statistics_item", stall=kind("z"))

    def store_shape(self) -> tuple[int, int]:
        """Entries of the engine's factor store, and elements of one."""
        raise NotImplementedError

    def random_command(self, operation: Operation) -> Compute:
        depth = len(self.operands.entries)
        return random_compute(operation, self.parameters, self.random, depth)

    async def check(self, commands: Sequence[Compute]) -> int:
        """Execute ``commands``; gives the cycles from the first to the end of the last."""
        expected = [golden(d, self.operands, self.parameters) for d in commands]
        before = self.cycles
        self.commands.items.extend(command_bits(d) for d in commands)
        await self.until(
            lambda: len(self.items.items) == len(commands) and not self.get("status_busy")
        )
        await self.run(2)
        assert self.results.written == [row for e in expected for row in e.written]
        items = [statistics_fields(bits) for bits in self.items.items]
        assert items == [
            (d.slot, e.total, e.saturations) for d, e in zip(commands, expected, strict=True)
        ]
        self.results.written.clear()
        self.items.items.clear()
        return self.cycles - before

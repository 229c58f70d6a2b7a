"""What the benches of PE1 and PE2 share: an engine with its memories, against the golden model."""

from collections.abc import Sequence
from dataclasses import dataclass

from trainwright.golden.compute import compute
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Compute
from trainwright.program.encoding import ProgramError
from trainwright.program.fields import Operation
from trainwright_sim.bench.commands import Operands, command_bits, random_compute
from trainwright_sim.bench.items import statistics_fields
from trainwright_sim.bench.memories import EntryReadPeer, RowReadPeer, RowWritePeer
from trainwright_sim.bench.streams import StreamSink, StreamSource
from trainwright_sim.bench.testbench import TestBench
from trainwright_sim.bench.valid_words import fit, reads_of, state_of


@dataclass(frozen=True)
class Expected:
    """What the golden model says of one command: rows in the order of writing, statistics."""

    written: list[tuple[int, list[int]]]
    total: int
    saturations: int
    underflows: int


def golden(d: Compute, operands: Operands, p: AcceleratorParameters) -> Expected:
    """Execute ``d`` by the golden model; ``operands`` stay as they are."""
    done = compute(d, state_of(operands), p)
    written = list(zip(done.addresses.tolist(), done.rows.tolist(), strict=True))
    return Expected(written, done.total, done.saturations, done.underflows)


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
        self.invalid = 0
        """Cycles in which a word of an operand was said to stand for no number."""
        if self.parameters.formats:
            self.agents.append(self)

    def cycle(self) -> None:
        self.invalid += self.get("invalid")

    def store_shape(self) -> tuple[int, int]:
        """Entries of the engine's factor store, and elements of one."""
        raise NotImplementedError

    def random_command(self, operation: Operation) -> Compute:
        depth = len(self.operands.entries)
        return random_compute(operation, self.parameters, self.random, depth)

    async def check_no_numbers(self, operation: Operation) -> None:
        """Words that are no numbers are told where they are operands, and only there."""
        if not self.parameters.formats:
            return
        await self.start()
        found = []
        for _ in range(24):
            d = self.random_command(operation)
            if d.x_format or d.g_format:
                found.append(await self.check_invalid(d))
        assert len(set(found)) == 2

    async def check(self, commands: Sequence[Compute]) -> int:
        """Execute ``commands``; gives the cycles from the first to the end of the last."""
        fit(self.operands, commands, self.parameters)
        expected = [golden(d, self.operands, self.parameters) for d in commands]
        before = self.cycles
        self.invalid = 0
        self.commands.items.extend(command_bits(d) for d in commands)
        await self.until(
            lambda: len(self.items.items) == len(commands) and not self.get("status_busy")
        )
        await self.run(2)
        assert self.results.written == [row for e in expected for row in e.written]
        items = [statistics_fields(bits) for bits in self.items.items]
        assert items == [
            (d.slot, e.total, e.saturations, e.underflows)
            for d, e in zip(commands, expected, strict=True)
        ]
        assert not self.invalid
        self.results.written.clear()
        self.items.items.clear()
        return self.cycles - before

    async def check_invalid(self, d: Compute) -> bool:
        """Execute ``d`` with NaR in a word that it may read: said to be none where the golden model
        says so. Gives whether it is."""
        p, random = self.parameters, self.random
        fit(self.operands, [d], p)
        read = reads_of(self.operands, d, p)
        # of the narrowest format, so that others read it as a number
        width = min(p.number_formats[n].width for n in (d.x_format, d.g_format) if n)
        words, places = self.operands.rows, read[0]
        if len(read[1]) and width <= p.factor_width and random.random() < 0.5:
            words, places = self.operands.entries, read[1]
        near = int(random.choice(places)) + random.choice((0, 0, 0, 1, 2))
        where = near % len(words), random.randrange(words.shape[1])
        kept, words[where] = int(words[where]), -1 << (width - 1)
        try:
            golden(d, self.operands, p)
            expected = False
        except ProgramError:
            expected = True
        self.invalid = 0
        self.commands.items.append(command_bits(d))
        await self.until(lambda: self.items.items and not self.get("status_busy"))
        await self.run(2)
        assert bool(self.invalid) == expected
        words[where] = kept
        self.results.written.clear()
        self.items.items.clear()
        return expected

"""Unpack and its gearbox: beats to rows, entries and program beats, against the golden model."""

import cocotb

from trainwright.program.descriptors import Transfer
from trainwright.program.fields import LOCAL_WIDTH, Operation, Target
from trainwright_sim.bench.memories import RowWritePeer
from trainwright_sim.bench.streams import StreamSource
from trainwright_sim.bench.testbench import STALLS, TestBench
from trainwright_sim.bench.transfers import (
    command_bits,
    loaded_entries,
    loaded_rows,
    random_memory,
    random_transfer,
    transfer_beats,
)


class Targets:
    """What a load writes: rows in order, contents of the stores, beats of the program."""

    def __init__(self, tb: TestBench, *, stall: str):
        p = tb.parameters
        self._tb = tb
        self.rows = RowWritePeer(tb, "scratchpad", stall=stall).written
        self.stores = {
            Target.PE1_STORE: [0] * p.pe1_store_depth,
            Target.PE2_STORE: [0] * p.pe2_store_depth,
        }
        self.program: list[tuple[int, int]] = []
        self.expected_rows: list[tuple[int, list[int]]] = []
        self.expected_stores = {target: list(store) for target, store in self.stores.items()}
        self.expected_program: list[tuple[int, int]] = []
        tb.agents.append(self)

    def cycle(self) -> None:
        for target, store in self.stores.items():
            name = f"{target.name.lower()}_request"
            if self._tb.get(f"{name}_valid"):
                bits = self._tb.get(f"{name}_payload")
                store[bits & ((1 << LOCAL_WIDTH) - 1)] = bits >> LOCAL_WIDTH
        if self._tb.get("program_request_valid"):
            bits = self._tb.get("program_request_payload")
            self.program.append((bits & ((1 << LOCAL_WIDTH) - 1), bits >> LOCAL_WIDTH))

    def size(self, target: Target) -> int:
        """Rows, entries or beats of a target."""
        p = self._tb.parameters
        if target is Target.SCRATCHPAD:
            return p.scratchpad_rows
        if target is Target.PROGRAM:
            return 128
        return len(self.stores[target])

    def expect(self, d: Transfer, memory) -> None:
        """Add what ``d`` writes to what is expected."""
        p = self._tb.parameters
        if d.target is Target.SCRATCHPAD:
            self.expected_rows += loaded_rows(d, memory, p)
        elif d.target is Target.PROGRAM:
            places = [d.local]
            for level in d.levels:
                places = [place + n * level.local for place in places for n in range(level.count)]
            numbers = [place + n for place in places for n in range(d.beats)]
            beats = transfer_beats(d, memory, p)
            self.expected_program += list(zip(numbers, beats, strict=True))
        else:
            loaded_entries(d, memory, self.expected_stores[d.target], p)

    def check(self) -> None:
        """Compare."""
        assert self.rows == self.expected_rows
        assert self.program == self.expected_program
        assert self.stores == self.expected_stores


@cocotb.test()
@cocotb.parametrize(seed=range(2), stall=STALLS)
async def random_commands(dut, seed: int, stall: str):
    """Loads into every target, back to back; beats come with gaps, the scratchpad stalls."""
    tb = TestBench(dut, f"{seed} {stall}")
    memory = random_memory(tb.random)
    commands, beats = StreamSource(tb, "command"), StreamSource(tb, "beats", stall=stall)
    targets = Targets(tb, stall=stall)
    await tb.start()
    for _ in range(12):
        target = tb.random.choice(list(Target))
        size = targets.size(target)
        d = random_transfer(Operation.LOAD, target, tb.parameters, tb.random, size)
        targets.expect(d, memory)
        commands.items.append(command_bits(d))
        beats.items.extend(transfer_beats(d, memory, tb.parameters))
    await tb.until(lambda: commands.idle and beats.idle)
    await tb.run()
    await tb.until(lambda: not tb.get("busy"))
    targets.check()

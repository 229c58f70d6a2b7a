"""Unpack and its gearbox: beats to rows and program beats, against the golden model."""

import cocotb

from trainwright.program.descriptors import Transfer, TransferLevel
from trainwright.program.fields import COUNT_WIDTH, LOCAL_WIDTH, Operation, Target
from trainwright_sim.bench.memories import RowWritePeer
from trainwright_sim.bench.streams import StreamSource
from trainwright_sim.bench.testbench import STALLS, TestBench, pack
from trainwright_sim.bench.transfers import (
    FAR,
    command_bits,
    far_transfer,
    loaded_rows,
    random_memory,
    random_transfer,
    transfer_beats,
    walked_items,
)


class Targets:
    """Records of a load's writes: rows in order, beats of the program."""

    def __init__(self, tb: TestBench, *, stall: str):
        self._tb = tb
        self.rows = RowWritePeer(tb, "scratchpad", stall=stall).written
        self.program: list[tuple[int, int]] = []
        self.expected_rows: list[tuple[int, list[int]]] = []
        self.expected_program: list[tuple[int, int]] = []
        tb.agents.append(self)

    def cycle(self) -> None:
        self._check_banks()
        if self._tb.get("program_request_valid"):
            bits = self._tb.get("program_request_payload")
            self.program.append((bits & ((1 << LOCAL_WIDTH) - 1), bits >> LOCAL_WIDTH))

    def _check_banks(self) -> None:
        """Check that an offered row requests its bank alone, and that nothing else does."""
        p, asked = self._tb.parameters, 0
        if self._tb.get("scratchpad_request_valid"):
            row = self._tb.get("scratchpad_request_payload") % p.scratchpad_rows
            asked = 1 << row // p.bank_rows
        assert self._tb.get("scratchpad_banks") == asked or self._tb.get("rst")

    def size(self, target: Target) -> int:
        """Return the rows or beats of a target."""
        return 128 if target is Target.PROGRAM else self._tb.parameters.scratchpad_rows

    def expect(self, d: Transfer, memory) -> None:
        """Add what ``d`` writes to what is expected."""
        p = self._tb.parameters
        if d.target is Target.SCRATCHPAD:
            self.expected_rows += loaded_rows(d, memory, p)
            return
        places = [d.local]
        for level in d.levels:
            places = [place + n * level.local for place in places for n in range(level.count)]
        numbers = [place + n for place in places for n in range(d.beats)]
        beats = transfer_beats(d, memory, p)
        self.expected_program += list(zip(numbers, beats, strict=True))

    def check(self) -> None:
        """Compare."""
        assert self.rows == self.expected_rows
        assert self.program == self.expected_program


@cocotb.test()
@cocotb.parametrize(seed=range(2), stall=STALLS)
async def random_commands(dut, seed: int, stall: str):
    """Load into every target back to back, with gaps between beats and a stalling scratchpad."""
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


@cocotb.test()
@cocotb.parametrize((("counts", "beats"), (*FAR, ((1, 1, 2054), 1), ((1, 1, 1), 2054))))
async def far(dut, counts: tuple[int, ...], beats: int):
    """Use addresses of all bits and large counts: rows must go where the descriptor says."""
    tb = TestBench(dut, f"far {counts}")
    commands, source = StreamSource(tb, "command"), StreamSource(tb, "beats")
    targets = Targets(tb, stall="some")
    await tb.start()
    d = far_transfer(Operation.LOAD, tb.parameters, tb.random, counts, beats)
    places = walked_items(d)
    commands.items.append(command_bits(d))
    source.items.extend(tb.random.getrandbits(8) for _ in places)
    await tb.until(lambda: commands.idle and source.idle)
    await tb.run()
    await tb.until(lambda: not tb.get("busy"))
    assert [address for address, _ in targets.rows] == places


@cocotb.test()
@cocotb.parametrize(level=(0, 1, 2, "beats"), few=(1, 3))
async def long_counts(dut, level: int | str, few: int):
    """Use counts just above a power of two in each field: the walk must go on, until a reset."""
    tb = TestBench(dut, f"long {level} {few}")
    commands, source = StreamSource(tb, "command"), StreamSource(tb, "beats")
    targets = Targets(tb, stall="none")
    await tb.start()
    for bit in range(1, COUNT_WIDTH):
        count = few + (1 << bit)
        counts = [count if n == level else 1 for n in range(3)]
        steps = tuple(TransferLevel(count, 0, 7 + n) for n, count in enumerate(counts))
        beats = count if level == "beats" else 1
        d = Transfer(
            operation=Operation.LOAD, address=0, local=bit, beats=beats, element_bytes=1,
            levels=steps,
        )  # fmt: skip
        commands.items.append(command_bits(d))
        source.items.extend([1] * min(count, 40))
        targets.rows.clear()
        await tb.run(60)
        step = 1 if level == "beats" else 7 + int(level)
        got = [address for address, _ in targets.rows]
        assert got == [bit + step * n for n in range(min(count, 40))]
        assert tb.get("busy") == (count > 40)
        await tb.reset()
        assert not tb.get("busy")


@cocotb.test()
async def what_it_waits_for(dut):
    """Withhold beats, then block the scratchpad: only the matching flag may be high.

    ``busy`` is high from the cycle after a command.
    """
    tb = TestBench(dut, "waits")
    flags = ("starved", "blocked", "busy")
    commands, source = StreamSource(tb, "command"), StreamSource(tb, "beats")
    targets = Targets(tb, stall="late")
    await tb.start()
    assert await tb.share(flags, 10) == [0, 0, 0]
    d = Transfer(operation=Operation.LOAD, address=0, local=3, beats=30, element_bytes=1)
    commands.items.append(command_bits(d))
    await tb.until(lambda: commands.idle)
    assert await tb.share(("busy",), 10) == [10]
    assert await tb.share(flags, 50) == [50, 0, 50]
    beats = [pack([n, -n, n + 1, 5], 8) for n in range(30)]
    source.items.extend(beats)
    await tb.run(20)
    assert await tb.share(flags, 50) == [0, 50, 50]
    await tb.until(lambda: source.idle)
    await tb.run()
    await tb.until(lambda: not tb.get("busy"))
    assert targets.rows == [(3 + n, [n, -n, n + 1, 5]) for n in range(30)]
    assert await tb.share(flags, 10) == [0, 0, 0]


@cocotb.test()
async def nothing_to_wait_for(dut):
    """Deliver a beat in every cycle and take every row: neither flag may be high."""
    tb = TestBench(dut, "no waits")
    beats = [pack([n, 1, -n, 2], 8) for n in range(30)]
    commands = StreamSource(tb, "command")
    StreamSource(tb, "beats", items=beats)
    targets = Targets(tb, stall="none")
    await tb.start()
    d = Transfer(operation=Operation.LOAD, address=0, local=3, beats=30, element_bytes=1)
    commands.items.append(command_bits(d))
    starved, blocked, busy = await tb.share(("starved", "blocked", "busy"), 60)
    assert (starved, blocked) == (0, 0)
    assert 30 < busy < 40
    assert targets.rows == [(3 + n, [n, 1, -n, 2]) for n in range(30)]

"""OperandFetch: both operands of each step, in order, whatever the memories and the array do."""

from collections import deque
from dataclasses import replace

import cocotb

from trainwright.program.descriptors import Compute, Level
from trainwright.program.fields import LOCAL_WIDTH, Operation
from trainwright_hw.compute.pe2.fetch import OPERAND_CYCLES
from trainwright_sim.bench.blocks.nest import walk
from trainwright_sim.bench.commands import SPACE, command_bits, random_compute, random_rows
from trainwright_sim.bench.memories import RowReadPeer
from trainwright_sim.bench.testbench import STALLS, TestBench, unpack

OPERATIONS = (Operation.PE3, Operation.BIAS, Operation.MASK)


class FetchBench(TestBench):
    """Answers reads as the memories on one side; takes and compares the steps on the other."""

    def __init__(self, dut, seed: object, stall: str):
        super().__init__(dut, seed)
        self.rows = random_rows(self.parameters, self.random)
        self.set(o_load=0, o_command=0, o_command_context=0, o_ready=0)
        self.peers = [RowReadPeer(self, name, self.rows, stall=stall) for name in ("x", "g")]
        self._stalls = self.stalls(stall)
        self._expected: list[dict] = []
        self.asked: list[list[int]] = [[], []]
        """Addresses that the steps need, of x and of g."""
        # of the steps that were taken: the operands of each are due some cycles later
        self._operands: deque[dict | None] = deque([None] * OPERAND_CYCLES)
        self._held: list[int] | None = None
        self._ready = False
        self.agents.append(self)

    _OUTPUTS = ("first", "last", "final", "z", "rows", "context")

    def cycle(self) -> None:
        seen = taken = None
        if self.get("o_valid"):
            seen = [self.get(f"o_{name}") for name in self._OUTPUTS]
            assert self._held in (None, seen), "a step was changed before it was taken"
            if self._ready:
                taken = self._expected.pop(0)
                assert seen == [taken[name] for name in self._OUTPUTS]
                seen = None
        else:
            assert self._held is None, "a step was withdrawn"
        self._operands.append(taken)
        if (due := self._operands.popleft()) is not None:
            self._compare(due)
        self._held = seen
        self._ready = self._stalls.go(wanted=seen is not None)
        self.set(o_ready=int(self._ready))

    def _compare(self, want: dict) -> None:
        p = self.parameters
        for name in ("x_operand", "g_operand"):
            got = unpack(self.get(f"o_{name}"), p.word_width, p.lanes)
            assert got[: len(want[name])] == want[name]

    def _steps(self, d: Compute, context: int) -> list[dict]:
        p, steps = self.parameters, []
        rows, groups = self.rows, p.lanes // p.pe2_rows
        tile_rows = p.pe2_rows if d.operation is Operation.PE3 else 1
        for x, g, z, first, last, tile_last, final in walk(d, p):
            if d.operation is Operation.PE3:
                place, start = g // groups, g % groups * p.pe2_rows
                second = rows[place % SPACE][start : start + p.pe2_rows]
            else:
                place, second = g, rows[g % SPACE]
            self.asked[0].append(x)
            self.asked[1].append(place)
            count = d.last_rows if tile_last and tile_rows > 1 else tile_rows
            step = {"first": first, "last": last, "final": final, "z": z, "rows": count}
            step |= {
                "context": context,
                "x_operand": rows[x % SPACE].tolist(),
                "g_operand": second.tolist(),
            }
            steps.append(step)
        return steps

    async def check(self, commands: list[Compute]) -> None:
        """Send commands, each as soon as a context is free, alternating between the contexts."""
        for number, d in enumerate(commands):
            await self.until(lambda: self.get("o_free"))
            context = number % 2
            self._expected += self._steps(d, context)
            self.set(o_load=1, o_command=command_bits(d), o_command_context=context)
            await self.run()
            self.set(o_load=0, o_command_context=self.random.randrange(2))
            await self.run()
        await self.until(lambda: not self._expected and not any(self._operands))


@cocotb.test()
@cocotb.parametrize(seed=range(2), stall=STALLS)
async def random_commands(dut, seed: int, stall: str):
    """Run commands of every operation, back to back."""
    tb = FetchBench(dut, f"{seed} {stall}", stall)
    await tb.start()
    await tb.check(
        [random_compute(tb.random.choice(OPERATIONS), tb.parameters, tb.random) for _ in range(12)]
    )


@cocotb.test()
async def wild(dut):
    """Use bases and strides of all bits: requests must match the command."""
    tb = FetchBench(dut, "wild", "some")
    draw = tb.random.getrandbits
    await tb.start()
    commands = []
    for operation in OPERATIONS * 3:
        d = random_compute(operation, tb.parameters, tb.random)
        summed = len(d.levels) - d.reduce_levels
        levels = (
            Level(
                level.count, draw(LOCAL_WIDTH), draw(LOCAL_WIDTH), draw(LOCAL_WIDTH) * (n < summed)
            )
            for n, level in enumerate(d.levels)
        )
        bases = {name: draw(LOCAL_WIDTH) for name in "xgz"}
        commands.append(replace(d, **bases, levels=tuple(levels)))
    await tb.check(commands)
    assert [peer.asked for peer in tb.peers] == tb.asked

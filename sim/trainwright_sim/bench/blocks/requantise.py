"""Requantiser against ``trainwright.fixed.requantise``: every shift and width, ties, extremes."""

from collections import deque
from collections.abc import Sequence

import cocotb
import torch

from trainwright.fixed.requantise import requantise
from trainwright_hw.arith.requantiser import requantise_cycles
from trainwright_sim.bench.testbench import TestBench

WIDTHS = range(4, 17)
SHIFTS = range(64)


class RequantiserBench(TestBench):
    """Feeds values with gaps, each lane a cycle after the one before, and compares words and flags
    ``requantise_cycles`` later."""

    def __init__(self, dut, seed: object, stall: str):
        super().__init__(dut, seed)
        self.lanes, self.width = self.parameters.lanes, self.parameters.vector_width
        self._values = [self.handle(f"value_{lane}") for lane in range(self.lanes)]
        self._words = [self.handle(f"word_{lane}") for lane in range(self.lanes)]
        self._saturated = [self.handle(f"saturated_{lane}") for lane in range(self.lanes)]
        self._stalls = self.stalls(stall)
        self._expected: deque[list[tuple[int, int]] | None] = deque(
            [None] * requantise_cycles(self.lanes)
        )
        self.set(valid=0, context=0, configure=0, configure_context=0, shift=0, out_width=16)
        self._context = 0
        self._rows: deque[Sequence[int]] = deque([[0] * self.lanes] * self.lanes, self.lanes)

    async def _cycle(
        self, expected: list[tuple[int, int]] | None, row: Sequence[int] | None = None
    ) -> None:
        """One cycle, ``row`` beginning with the value of lane 0; checks what is due."""
        self._expected.append(expected)
        self._rows.appendleft(row or [self.random.getrandbits(16) for _ in range(self.lanes)])
        for lane, handle in enumerate(self._values):
            handle.value = self._rows[lane][lane]
        await self.run()
        due = self._expected.popleft()
        assert self.get("result_valid") == (due is not None)
        if due is not None:
            words = [handle.value.to_signed() for handle in self._words]
            flags = [int(handle.value) for handle in self._saturated]
            assert list(zip(words, flags, strict=True)) == due

    async def command(self, values: list[list[int]], shift: int, out_width: int) -> None:
        """Configure, then requantise sets of ``lanes`` values."""
        words, flags = requantise(torch.tensor(values), shift, out_width)
        self._context ^= 1
        self.set(configure=1, configure_context=self._context, shift=shift, out_width=out_width)
        await self._cycle(None)
        # what the settings are now must not matter
        other = {"shift": self.random.choice(SHIFTS), "out_width": self.random.choice(WIDTHS)}
        self.set(configure=0, **other)
        await self._cycle(None)
        self.set(context=self._context)  # it goes ahead by a cycle
        await self._cycle(None)
        results = zip(values, words.tolist(), flags.int().tolist(), strict=True)
        for row, word, flag in results:
            while not self._stalls.go():
                self.set(valid=0)
                await self._cycle(None)
            self.set(valid=1)
            await self._cycle(list(zip(word, flag, strict=True)), row)
        self.set(valid=0)  # the next command comes while the last values are on their way

    def corner(self, shift: int, out_width: int) -> int:
        """A value near a tie, a limit of ``out_width`` or one of the input."""
        least, greatest = -(1 << (self.width - 1)), (1 << (self.width - 1)) - 1
        step, half = 1 << shift, (1 << shift) >> 1
        limit = 1 << (out_width - 1)
        quotient = self.random.choice((0, 1, 2, 3, limit - 1, limit, limit // 2))
        value = quotient * step + self.random.choice((0, half)) + self.random.choice((-1, 0, 1))
        value = self.random.choice((value, value - 1, -value, least, greatest, 0))
        return max(least, min(greatest, value))


@cocotb.test()
@cocotb.parametrize(seed=range(2), stall=("none", "some"))
async def corners(dut, seed: int, stall: str):
    """Every shift, with widths in turn: ties, limits, extremes."""
    tb = RequantiserBench(dut, f"corners {seed} {stall}", stall)
    await tb.start()
    for shift in SHIFTS:
        out_width = WIDTHS[(shift + 5 * seed) % len(WIDTHS)]
        rows = [[tb.corner(shift, out_width) for _ in range(tb.lanes)] for _ in range(8)]
        await tb.command(rows, shift, out_width)


@cocotb.test()
@cocotb.parametrize(seed=range(2))
async def random_values(dut, seed: int):
    """Random magnitudes, shifts and widths."""
    tb = RequantiserBench(dut, f"random {seed}", "some")
    await tb.start()
    for _ in range(30):
        shift, out_width = tb.random.choice(SHIFTS), tb.random.choice(WIDTHS)
        rows = [
            [
                tb.random.getrandbits(tb.width) - (1 << (tb.width - 1)) >> tb.random.randrange(40)
                for _ in range(tb.lanes)
            ]
            for _ in range(16)
        ]
        await tb.command(rows, shift, out_width)

"""Requantiser against ``trainwright.formats.rounding``: every shift and width, ties, extremes."""

from collections import deque
from collections.abc import Sequence

import cocotb
import numpy as np

from trainwright.formats.rounding import requantise
from trainwright_hw.arith.requantiser import LANE_CYCLES
from trainwright_sim.bench.testbench import TestBench

SHIFTS = range(64)


class RequantiserBench(TestBench):
    """Bench that feeds rows, each lane a cycle after the previous lane.

    Words and flags are compared ``LANE_CYCLES`` after their values.
    """

    def __init__(self, dut, seed: object):
        super().__init__(dut, seed)
        self.lanes, self.width = self.parameters.lanes, self.parameters.vector_width
        self.widths = range(4, self.parameters.word_width + 1)
        self._values = [self.handle(f"value_{lane}") for lane in range(self.lanes)]
        self._words = [self.handle(f"word_{lane}") for lane in range(self.lanes)]
        self._saturated = [self.handle(f"saturated_{lane}") for lane in range(self.lanes)]
        for handle in self._values:
            handle.value = 0
        self.set(shift=0, out_width=self.parameters.word_width)
        self._rows: deque[Sequence[int]] = deque([[0] * self.lanes] * self.lanes, self.lanes)
        self._expected: deque[list[tuple[int, int]]] = deque(maxlen=self.lanes + LANE_CYCLES + 2)

    async def command(self, values: list[list[int]], shift: int, out_width: int) -> None:
        """Requantise sets of ``lanes`` values; the first one of the next command follows."""
        words, flags = requantise(np.array(values), shift, out_width)
        for row, word, flag in zip(values, words.tolist(), flags.tolist(), strict=True):
            self.set(shift=shift, out_width=out_width)  # in the cycle before that of value 0
            for lane, handle in enumerate(self._values):
                handle.value = self._rows[lane][lane]
            self._rows.appendleft(row)
            self._expected.appendleft(list(zip(word, flag, strict=True)))
            await self.run()
            # the cycle that has just passed was that of value 0 of the row before
            for lane in range(self.lanes):
                if lane + LANE_CYCLES + 1 < len(self._expected):
                    got = self._words[lane].value.to_signed(), int(self._saturated[lane].value)
                    assert got == self._expected[lane + LANE_CYCLES + 1][lane]

    def corner(self, shift: int, out_width: int) -> int:
        """Draw a value near a tie, a limit of ``out_width`` or a limit of the input."""
        least, greatest = -(1 << (self.width - 1)), (1 << (self.width - 1)) - 1
        step, half = 1 << shift, (1 << shift) >> 1
        limit = 1 << (out_width - 1)
        quotient = self.random.choice((0, 1, 2, 3, limit - 1, limit, limit // 2))
        value = quotient * step + self.random.choice((0, half)) + self.random.choice((-1, 0, 1))
        value = self.random.choice((value, value - 1, -value, least, greatest, 0))
        return max(least, min(greatest, value))


@cocotb.test()
@cocotb.parametrize(seed=range(2))
async def corners(dut, seed: int):
    """Run every shift, with widths in turn: ties, limits, extremes."""
    tb = RequantiserBench(dut, f"corners {seed}")
    await tb.start()
    for shift in SHIFTS:
        out_width = tb.widths[(shift + 5 * seed) % len(tb.widths)]
        rows = [[tb.corner(shift, out_width) for _ in range(tb.lanes)] for _ in range(24)]
        await tb.command(rows, shift, out_width)


@cocotb.test()
async def every_bit_of_a_value(dut):
    """Set and clear each bit alone, with either sign, at every shift.

    Each such bit decides a tie, the rounded word or its saturation.
    """
    tb = RequantiserBench(dut, "bits")
    await tb.start()
    for shift in SHIFTS:
        rows = []
        for bit in range(tb.width - 1):
            single, half = 1 << bit, (1 << shift) >> 1
            near = (
                single,
                -single,
                ~single,
                single - 1,
                single | half,
                half - single,
                3 * half ^ single,
            )
            values = [n for n in near if -(1 << (tb.width - 1)) <= n < 1 << (tb.width - 1)]
            rows.append([tb.random.choice(values) for _ in range(tb.lanes)])
            rows.append([single | half if single | half in values else -single] * tb.lanes)
        await tb.command(rows, shift, tb.widths[shift % len(tb.widths)])
        await tb.command(rows, shift, tb.widths[-1])


@cocotb.test()
@cocotb.parametrize(seed=range(2))
async def random_values(dut, seed: int):
    """Run random magnitudes, shifts and widths."""
    tb = RequantiserBench(dut, f"random {seed}")
    await tb.start()
    for _ in range(30):
        shift, out_width = tb.random.choice(SHIFTS), tb.random.choice(tb.widths)
        rows = [
            [
                tb.random.getrandbits(tb.width) - (1 << (tb.width - 1)) >> tb.random.randrange(40)
                for _ in range(tb.lanes)
            ]
            for _ in range(16)
        ]
        await tb.command(rows, shift, out_width)

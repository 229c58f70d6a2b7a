from collections import deque
from random import Random

import pytest
from amaranth.sim import Simulator

from trainwright.parameters import AcceleratorParameters
from trainwright_hw.arith.lanes import lane_format
from trainwright_hw.arith.requantiser import LANE_CYCLES, Requantiser
from trainwright_hw.writeback.statistics_accumulator import StatisticsAccumulator

LANES = 4


def corners(width: int, shift: int, random: Random) -> list[int]:
    """Return values around ties, the ends of each output width, and the ends of the input."""
    least, greatest = -(1 << (width - 1)), (1 << (width - 1)) - 1
    half = (1 << shift) >> 1
    near = [
        sign * ((multiple << shift) + half) + off
        for multiple in (0, 1, 2, 3, 7, 8, 127, 128, 32767, 32768)
        for sign in (1, -1)
        for off in (-1, 0, 1)
    ]
    anywhere = [random.getrandbits(width) + least >> random.randrange(width) for _ in range(40)]
    return [v for v in (least, greatest, *near, *anywhere) if least <= v <= greatest]


def simulate(dut, testbench) -> None:
    simulator = Simulator(dut)
    simulator.add_clock(1e-8)
    simulator.add_testbench(testbench)
    simulator.run()


SLOW = pytest.mark.slow


@pytest.mark.parametrize("with_random", (False, True), ids=("nearest", "stochastic"))
@pytest.mark.parametrize(
    ("width", "word_width"),
    [(28, 8), *(pytest.param(n, 16, marks=SLOW) for n in (24, 32, 48))],
)
def test_requantiser_matches_definition(engines, width, word_width, with_random):
    """With random bits now one rounding and now the other, command by command."""
    random = Random(f"requantise {width}")
    dut = Requantiser(
        lanes=LANES, value_width=width, word_width=word_width, with_random=with_random
    )
    settings = [
        (shift, random.choice((4, 8, word_width, random.randint(4, word_width))))
        for shift in range(64)
    ]
    if with_random:
        settings += settings

    def wanted(value: int, shift: int, out_width: int, byte: int | None) -> tuple[int, bool]:
        if byte is None:
            return engines.requantise(value, shift, out_width)
        return engines.stochastically(value, shift, out_width, byte)

    async def testbench(ctx):
        # of the rows of the last cycles: values, settings, random bytes; lane n is n cycles behind
        rows = deque([None] * (LANES + LANE_CYCLES), maxlen=LANES + LANE_CYCLES)
        expected = deque(rows, maxlen=len(rows))
        for number, (shift, out_width) in enumerate(settings):
            values = corners(width, shift, random)
            stochastic = with_random and (number + number // 64) % 2 == 0
            for _ in range(len(values) // (4 if with_random else 2)):
                # those of the row that comes in the next cycle
                ctx.set(dut.shift, shift)
                ctx.set(dut.out_width, out_width)
                if with_random:
                    ctx.set(dut.stochastic, stochastic)
                draw = (0, 255, random.getrandbits(8))
                due = [random.choice(draw) if stochastic else None for _ in range(LANES)]
                row = [random.choice(values) for _ in range(LANES)]
                for lane in range(LANES):
                    case = rows[lane]
                    ctx.set(dut.value[lane], case[0][lane] if case else 0)
                if with_random:  # a cycle after the lane's value
                    for lane in range(LANES):
                        byte = rows[1 + lane][1][lane] if rows[1 + lane] else None
                        ctx.set(dut.random[lane], random.getrandbits(8) if byte is None else byte)
                await ctx.delay(1e-9)
                for lane in range(LANES):
                    if want := expected[LANE_CYCLES + lane]:
                        got = ctx.get(dut.word[lane]), ctx.get(dut.saturated[lane])
                        assert got == want[lane], (shift, out_width, lane)
                rows.appendleft((row, due))
                expected.appendleft(
                    [wanted(v, shift, out_width, b) for v, b in zip(row, due, strict=True)]
                )
                await ctx.tick()

    simulate(dut, testbench)


@pytest.mark.parametrize("formats", ((), ("posit(8,0)",)), ids=("fixed", "posits"))
@pytest.mark.parametrize("lanes", (4, 16))
def test_statistics_unit_sums_rows_by_command(lanes, formats):
    """Rows of both engines' commands in any order; an engine's items are taken late."""
    random = Random(f"statistics {lanes}")
    parameters = AcceleratorParameters(lanes=lanes, pe1_rows=4, pe2_rows=4, formats=formats)
    dut = StatisticsAccumulator(parameters, arithmetic=lane_format(parameters))
    flags = ("saturated", "underflow") if formats else ("saturated",)
    wanted, got = ([], []), ([], [])
    left = [list(range(9)), list(range(9, 20))]  # commands to come, by their slots
    running: list[list | None] = [None, None]

    def row(ctx, engine: int) -> None:
        if running[engine] is None:
            running[engine] = [left[engine].pop(), random.choice((1, 1, 5, 40)), 0]
            running[engine] += [0] * len(flags)
        command = running[engine]
        command[1] -= 1
        for lane in range(lanes):
            word = random.choice((-32768, 32767, random.randint(-9, 9)))
            ctx.set(dut.word[lane], word)
            command[2] += abs(word)
            for number, name in enumerate(flags, 3):
                flag = random.getrandbits(1)
                ctx.set(getattr(dut, name)[lane], flag)
                command[number] += flag
        ctx.set(dut.valid, 1)
        ctx.set(dut.kind, engine)
        ctx.set(dut.final, command[1] == 0)
        ctx.set(dut.slot, command[0] if command[1] == 0 else random.randrange(256))
        if command[1] == 0:
            wanted[engine].append((command[0], *command[2:]))
            running[engine] = None

    async def testbench(ctx):
        item = dut.port.item
        while any(left) or any(running) or len(got[0] + got[1]) < len(wanted[0] + wanted[1]):
            ctx.set(dut.valid, 0)
            ctx.set(dut.final, random.getrandbits(1))
            may = [
                number
                for number in range(2)
                if (running[number] or left[number])
                and (running[number] or len(wanted[number]) - len(got[number]) < 2)
            ]
            if may and random.random() < 0.7:
                row(ctx, random.choice(may))
            ready = random.random() < 0.3
            ctx.set(item.ready, ready)
            taken = [ctx.get(bit) for bit in dut.taken]
            assert sum(taken) == (ready and ctx.get(item.valid))
            if any(taken):
                fields = (ctx.get(item.payload[name]) for name in item.payload.shape().members)
                got[taken.index(1)].append(tuple(fields))
            await ctx.tick()
        assert got == wanted

    simulate(dut, testbench)

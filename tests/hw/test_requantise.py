from collections import deque
from random import Random

import pytest
from amaranth.sim import Simulator

from trainwright_hw.arith.requantiser import Requantiser, requantise_cycles
from trainwright_hw.writeback.statistics_accumulator import StatisticsAccumulator

LANES = 4


def corners(width: int, shift: int, random: Random) -> list[int]:
    """Values around ties, the ends of every output width, and the ends of the input."""
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


@pytest.mark.parametrize("with_random", (False, True), ids=("nearest", "stochastic"))
@pytest.mark.parametrize("width", (24, 32, 48))
def test_against_definition(engines, width, with_random):
    """With random bits now one rounding and now the other, command by command."""
    random = Random(f"requantise {width}")
    dut = Requantiser(lanes=LANES, value_width=width, with_random=with_random)
    settings = [(shift, random.choice((4, 8, 16, random.randint(4, 16)))) for shift in range(64)]
    if with_random:
        settings += settings

    def wanted(value: int, shift: int, out_width: int, byte: int | None) -> tuple[int, bool]:
        if byte is None:
            return engines.requantise(value, shift, out_width)
        return engines.stochastically(value, shift, out_width, byte)

    async def testbench(ctx):
        expected, due = [None] * requantise_cycles(LANES), None
        given_rows = deque([None] * LANES, maxlen=LANES)  # lane n is n cycles after lane 0
        for number, (shift, out_width) in enumerate(settings):
            values = corners(width, shift, random)
            rows = [[random.choice(values) for _ in range(LANES)] for _ in range(len(values) // 2)]
            # the values of the context before are still on their way
            ctx.set(dut.configure, 1)
            ctx.set(dut.configure_context, number % 2)
            ctx.set(dut.shift, shift)
            ctx.set(dut.out_width, out_width)
            stochastic = with_random and (number + number // 64) % 2 == 0
            if with_random:
                ctx.set(dut.stochastic, stochastic)
            rows += [None, None, None]
            while rows:
                row = rows.pop() if rows[-1] is None or random.random() < 0.8 else None
                ctx.set(dut.valid, row is not None)
                ctx.set(dut.context, number % 2 if rows else random.randrange(2))
                given_rows.appendleft(row)
                for lane, its in enumerate(given_rows):
                    ctx.set(dut.value[lane], its[lane] if its else random.randrange(1 << 20))
                if with_random:  # those of the values of the cycle before
                    for lane in range(LANES):
                        ctx.set(dut.random[lane], due[lane] if due else random.getrandbits(8))
                draw = (0, 255, random.getrandbits(8))
                due = [random.choice(draw) if stochastic else None for _ in range(LANES)]
                given = row and zip(row, due, strict=True)
                expected.append(row and [wanted(v, shift, out_width, byte) for v, byte in given])
                due = due if stochastic else None
                want = expected.pop(0)
                assert ctx.get(dut.result_valid) == (want is not None)
                if want:
                    got = [(ctx.get(dut.word[i]), ctx.get(dut.saturated[i])) for i in range(LANES)]
                    assert got == want, (shift, out_width)
                await ctx.tick()
                ctx.set(dut.configure, 0)
                ctx.set(dut.shift, random.randrange(64))
                if with_random:
                    ctx.set(dut.stochastic, random.getrandbits(1))

    simulate(dut, testbench)


@pytest.mark.parametrize("lanes", (2, 4, 16))
def test_statistics(lanes):
    """Commands one after the other; an item is taken before the second command after it ends."""
    random = Random(f"statistics {lanes}")
    dut = StatisticsAccumulator(lanes=lanes)
    wanted, got = [], []

    async def cycle(ctx) -> None:
        item = dut.port.item
        ready = random.random() < 0.3
        ctx.set(item.ready, ready)
        if ready and ctx.get(item.valid):
            got.append(tuple(ctx.get(item.payload[n]) for n in ("slot", "sum", "saturations")))
        await ctx.tick()

    async def command(ctx, slot: int) -> None:
        total, saturations, rows = 0, 0, random.choice((1, 1, 5, 40))
        while rows:
            valid = random.random() < 0.7
            rows -= valid
            words = [random.choice((-32768, 32767, random.randint(-9, 9))) for _ in range(lanes)]
            flags, enable = random.getrandbits(lanes), random.getrandbits(lanes)
            final = valid and not rows
            ctx.set(dut.valid, valid)
            ctx.set(dut.final, final)
            ctx.set(dut.slot, slot if final else random.randrange(256))
            ctx.set(dut.enable, enable)
            for lane, word in enumerate(words):
                ctx.set(dut.word[lane], word)
                ctx.set(dut.saturated[lane], flags >> lane & 1)
                if valid and enable >> lane & 1:
                    total += abs(word)
                    saturations += flags >> lane & 1
            await cycle(ctx)
        ctx.set(dut.valid, 0)
        wanted.append((slot, total, saturations))

    async def testbench(ctx):
        for number, slot in enumerate((0, 255, 7, 7, 1, 2, 3, 4, 5)):
            while len(got) < number - 1:
                await cycle(ctx)
            await command(ctx, slot)
        while len(got) < len(wanted):
            await cycle(ctx)
        assert got == wanted

    simulate(dut, testbench)

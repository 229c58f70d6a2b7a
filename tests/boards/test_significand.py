"""The multiply-accumulator that shifts significands is exact: what is compared is no worse."""

import random

import pytest
from amaranth.sim import Simulator

from trainwright.formats import Posit
from trainwright_boards.lanes.significand import SignificandMac, quire_width, significand_width


def taken_apart(value: int, fmt: Posit) -> tuple[int, int]:
    """Split an integer in units of 2^-S into significand and exponent."""
    fraction = significand_width(fmt) - 1
    if value == 0:
        return 0, 0
    exponent = abs(value).bit_length() - 1
    significand = (abs(value) << fraction) >> exponent
    assert significand << exponent == abs(value) << fraction, "more digits than a significand has"
    return (significand if value > 0 else -significand), exponent


@pytest.mark.parametrize("fmt", (Posit(8, 0), Posit(8, 1), Posit(8, 2)), ids=str)
def test_sums_are_exact(fmt):
    draw = random.Random(str(fmt))
    words = [w for w in range(-(1 << 7) + 1, 1 << 7)]
    values = [int(v) for v in fmt.decode(words)]
    largest = max(values)
    sums = [[(largest, largest)] * 600, [(largest, -largest)] * 600, [(1, 1)]]
    sums += [[(draw.choice(values), draw.choice(values)) for _ in range(40)] for _ in range(60)]
    sums += [[(a, draw.choice(values)) for a in values]]
    mac = SignificandMac(fmt)

    async def bench(ctx):
        for terms in sums:
            ctx.set(mac.first, 1)
            ctx.set(mac.valid, 0)
            await ctx.tick()
            ctx.set(mac.first, 0)
            for cycle in range(len(terms) + 3):
                left, right = terms[cycle] if cycle < len(terms) else (largest, largest)
                for side, value in (("left", left), ("right", right)):
                    significand, exponent = taken_apart(value, fmt)
                    ctx.set(getattr(mac, side), significand)
                    ctx.set(getattr(mac, f"{side}_exponent"), exponent)
                ctx.set(mac.valid, int(cycle >= 3))
                await ctx.tick()
            assert ctx.get(mac.total) == sum(a * b for a, b in terms)
            assert len(mac.total) == quire_width(fmt)

    simulator = Simulator(mac)
    simulator.add_clock(1e-8)
    simulator.add_testbench(bench)
    simulator.run()

"""The encoder against ``trainwright.formats``: words, ties, neighbours, sums; modes, shifts."""

from collections import deque
from collections.abc import Sequence
from random import Random

import numpy as np
import pytest
from amaranth.sim import Simulator
from format_kinds import BYTES, sums_near
from kept import Inputs
from slowly import mostly_slow

from trainwright.formats import Fixed, Format, Posit, parse_format
from trainwright_hw.arith.encoder import LANE_CYCLES, Encoder, check_encoder

LANES = 4
PLAIN, CLAMPED = parse_format("posit(8,0)"), parse_format("posit(8,1)c")
SETS = {
    "the accelerator's": (PLAIN, CLAMPED),
    "of 18 bits": (Posit(10, 0), Posit(6, 1), Posit(4, 2)),
    "whole": (Posit(8, 1), Posit(5, 2)),  # whose exponents are cut off by more than a bit
    "one": (Posit(3, 0),),
    "ends at a power of two": (Posit(5, 2, True), Posit(3, 4, True)),
    **{f"samples of {kind.__name__}": formats for kind, formats in BYTES.items()},
    "a sample of each class": tuple(formats[0] for formats in BYTES.values()),
}
SAMPLES = {kind for kind in SETS if kind.startswith("samples of")}
LARGE = {"of 18 bits", "whole", "the accelerator's"} | SAMPLES
"""Sets whose words are slow tests: random sums of the first three are in the default suite."""
WIDTHS = {"whole": 44}
SHIFTS = {"the accelerator's": (0, 1, 7), "of 18 bits": (3,), "a sample of each class": (2,)}


def near(fmt: Format, shift: int, width: int) -> list[int]:
    """Return words, ties, powers of two and neighbours of both signs, and ends of ``width``."""
    if fmt.coded:
        return sums_near(fmt, shift, width)
    most = fmt.largest
    places = {0, 1, 2, 3, most // 2, most - 1, most, most + 1, 2 * most, 2 * most + 2}
    sizes = {place << shift for place in places}
    sizes |= {(place << shift) + ((1 << shift) >> 1) for place in places}
    sizes |= {0, *(1 << place for place in range(width))}
    limit = 1 << (width - 1)
    sums = {sign * size + off for size in sizes for sign in (1, -1) for off in (-1, 0, 1)}
    sums |= {-limit, limit - 1, 1 - limit}
    return sorted(value for value in sums if -limit <= value < limit)


def random_sums(fmt: Format, width: int, random: np.random.Generator) -> list[int]:
    """Return sums of 1 to 512 products of the format's words, and values of all sizes."""
    sums = []
    for terms in (1, 2, 9, 64, 512):
        reach = random.integers(1, fmt.largest + 1, size=(8, 1))
        x, g = (fmt.decode(random.integers(-reach, reach + 1, size=(8, terms))) for _ in range(2))
        sums += (x * g).sum(axis=1).tolist()
    limit = 1 << (width - 1)
    sums += (random.integers(-limit, limit, 40) >> random.integers(0, width, 40)).tolist()
    return [max(-limit, min(limit - 1, value)) for value in sums]


def run(dut: Encoder, commands: Sequence[tuple[int, Format, int, bool, list[int]]]) -> None:
    """Run commands of format number, format, shift, rule and values.

    Settings belong to the row of the next cycle; some cycles have none.
    """
    random = Random(1)
    inputs = Inputs(dut.shift, dut.out_width, dut.format, dut.zero, *dut.value)

    def rows():
        for select, fmt, shift, zero, values in commands:
            padded = np.array([*values, *([0] * (-len(values) % LANES))]).reshape(-1, LANES)
            width = fmt.width if select == 0 else random.randint(4, 16)
            results = fmt.encode(padded, shift, underflow="zero" if zero else "never")
            for row, *wanted in zip(padded.tolist(), *(r.tolist() for r in results), strict=True):
                yield (shift, width, select, zero), row, list(zip(*wanted, strict=True))
                if random.random() < 0.03:
                    yield None
        for _ in range(LANES + LANE_CYCLES):
            yield None

    async def testbench(ctx):
        # lane n is n cycles behind
        under_way: deque = deque([None] * (LANES + LANE_CYCLES + 1), maxlen=LANES + LANE_CYCLES + 1)
        for item in rows():
            settings = item[0] if item else (random.randrange(64), 16, 0, 0)
            values = [
                case[1][lane] if (case := under_way[lane]) else random.randrange(1 << 20)
                for lane in range(LANES)
            ]
            inputs.set(ctx, *settings, *values)
            for lane in range(LANES):
                if due := under_way[lane + LANE_CYCLES]:
                    got = tuple(
                        ctx.get(each[lane]) for each in (dut.word, dut.saturated, dut.underflow)
                    )
                    assert got == due[2][lane], (due[0], due[1][lane])
            under_way.appendleft(item)
            await ctx.tick()

    simulator = Simulator(dut)
    simulator.add_clock(1e-8)
    simulator.add_testbench(testbench)
    simulator.run()


@mostly_slow("kind", SETS, lambda kind: kind not in LARGE)
def test_words_ties_and_neighbours(kind):
    formats, width = SETS[kind], WIDTHS.get(kind, 40)
    commands = [
        (number, fmt, shift, zero, near(fmt, shift, width))
        for number, fmt in enumerate(formats, 1)
        for shift in SHIFTS.get(kind, (1, 6))
        for zero in (False, True)
    ]
    run(Encoder(lanes=LANES, value_width=width, formats=formats), commands)


@pytest.mark.parametrize(
    "width",
    [pytest.param(n, marks=pytest.mark.slow) for n in (24, 40, 48)],
)
def test_posit_encoder_rounds_at_every_shift(width):
    """Some values of each width and format, at every shift."""
    formats = SETS["the accelerator's"]
    random, commands = Random(width), []
    for shift in range(64):
        commands.append((0, Fixed(random.randint(4, 16)), shift, bool(shift % 2), None))
        commands.append((0, Fixed(4 + shift % 13), shift, bool(shift % 2), None))
        commands += [(n, fmt, shift, bool(shift % 2), None) for n, fmt in enumerate(formats, 1)]
    commands = [
        (n, fmt, shift, zero, near(fmt, shift, width)[:: 31 if n else 3])
        for n, fmt, shift, zero, _ in commands
    ]
    run(Encoder(lanes=LANES, value_width=width, formats=formats), commands)


@mostly_slow("kind", SETS, lambda kind: kind not in SAMPLES | {"ends at a power of two"})
def test_posit_encoder_rounds_random_sums(kind):
    formats, width = SETS[kind], WIDTHS.get(kind, 40)
    random = np.random.default_rng(len(kind))
    commands = [
        (number, fmt, int(shift), bool(repeat % 2), random_sums(fmt, width, random))
        for repeat in range(4)
        for number, fmt in enumerate([Fixed(8), *formats])
        for shift in random.integers(0, 24, size=3)
    ]
    run(Encoder(lanes=LANES, value_width=width, formats=formats), commands)


def test_posit_encoder_rejects_bad_widths():
    with pytest.raises(ValueError, match="without coded formats is a Requantiser"):
        check_encoder(40, ())
    with pytest.raises(ValueError, match="value_width must be from 18 to 64, not 17"):
        check_encoder(17, (CLAMPED,))
    with pytest.raises(ValueError, match="value_width must be from 26 to 64, not 65"):
        check_encoder(65, (Posit(8, 1),))

"""PE1's engine (PE4) against the golden model."""

import cocotb
from cocotb.triggers import RisingEdge

from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Compute, Level
from trainwright.program.fields import Operation
from trainwright_hw.compute.pe1.entry_fetch import LEAST_DEPTH
from trainwright_hw.compute.readers import FETCH_DEPTH
from trainwright_sim.bench.commands import RESULTS, SPACE
from trainwright_sim.bench.engine import EngineBench
from trainwright_sim.bench.testbench import STALLS


@cocotb.test()
@cocotb.parametrize(seed=range(2), stall=STALLS)
async def random_commands(dut, seed: int, stall: str):
    """Run commands back to back, with every port stalled alike."""
    tb = EngineBench(dut, f"random {seed} {stall}", stall)
    await tb.start()
    await tb.check([tb.random_command(Operation.PE4) for _ in range(16)])


@cocotb.test()
@cocotb.parametrize(port=("x", "g", "z"), stall=("most", "bursts"))
async def one_port_stalled(dut, port: str, stall: str):
    """Stall each port alone: the other runs ahead as far as it can."""
    tb = EngineBench(dut, f"{port} {stall}", stall, stalled=(port,))
    await tb.start()
    await tb.check([tb.random_command(Operation.PE4) for _ in range(8)])


@cocotb.test()
async def far(dut):
    """Use addresses of all bits for operands and results."""
    tb = EngineBench(dut, "far", "none")
    await tb.start()
    for _ in range(12):
        await tb.check_far(tb.random_command(Operation.PE4))
    p = tb.parameters
    for _ in range(0 if p.formats or p.narrow else 6):  # there what is asked for is not so plain
        await tb.check_wild(tb.random_command(Operation.PE4))


def _many_tiles(parameters: AcceleratorParameters, tiles: int = 80) -> Compute:
    """Build tiles of one step each, more than there is credit for: 80, or as many as fit."""
    rows = parameters.pe1_rows
    tiles = min(tiles, (SPACE - RESULTS) // rows)
    return Compute(
        operation=Operation.PE4, levels=(Level(tiles, x=rows, z=rows), Level(1)),
        x=0, g=256, z=RESULTS, reduce_levels=1, last_rows=rows, x_row_stride=1, z_row_stride=1,
        shift=2, out_width=parameters.word_width,
    )  # fmt: skip


@cocotb.test()
@cocotb.parametrize(
    (
        ("idle_port", "tiles", "expected"),
        [("x", 80, [100, 0, 100]), ("z", 80, [0, 100, 100]), ("z", 1, [0, 100, 100])],
    )
)
async def what_it_waits_for(dut, idle_port: str, tiles: int, expected: list[int]):
    """Withhold an operand, or take no results (the last ones too): the matching stall must show."""
    tb = EngineBench(dut, f"waits for {idle_port} {tiles}", "late", stalled=(idle_port,))
    await tb.start()
    await tb.check_waits(_many_tiles(tb.parameters, tiles), idle_port, expected)


@cocotb.test()
async def throughput(dut):
    """Check that a step takes ``lanes`` cycles without stalls, for any length of reduction."""
    tb = EngineBench(dut, "throughput", "none")
    await tb.start()
    p, tiles, latency = tb.parameters, 20, 60
    for reduction in (1, 2, 5):
        levels = (Level(tiles, x=p.pe1_rows, z=p.pe1_rows), Level(reduction, x=50, g=p.lanes))
        d = Compute(
            operation=Operation.PE4, levels=levels, x=0, g=256, z=512, reduce_levels=1,
            last_rows=p.pe1_rows, x_row_stride=1, z_row_stride=1, g_row_stride=1, shift=4,
            out_width=p.word_width,
        )  # fmt: skip
        assert await tb.check([d]) <= tiles * reduction * p.lanes + latency


@cocotb.test()
async def full_queue(dut):
    """Start more tiles than there is credit for before the first row is taken."""
    tb = EngineBench(dut, "full queue", "late", stalled=("z",))
    await tb.start()
    await tb.check([_many_tiles(tb.parameters)])


@cocotb.test()
async def offered_in_a_reset(dut):
    """Offer a command in a reset: it must not be taken."""
    tb = EngineBench(dut, "offered in a reset", "none")
    await tb.start()
    await tb.check_reset(tb.random_command(Operation.PE4))


@cocotb.test()
async def extremes(dut):
    """Use the most negative operands everywhere, and every shift that matters for their sums."""
    tb = EngineBench(dut, "extremes", "some")
    p = tb.parameters
    tb.rows[:256] = -(1 << (p.word_width - 1))
    await tb.start()
    commands = [
        Compute(
            operation=Operation.PE4, levels=(Level(1), Level(4, x=1, g=1)), x=0, g=0, z=600,
            reduce_levels=1, x_row_stride=4, z_row_stride=1, shift=shift, out_width=width,
        )
        for shift in (0, 1, 6, 7, 8, 18, 19, 20, 31, 34, 35, 36, 63)
        for width in (4, p.word_width)
    ]  # fmt: skip
    await tb.check(commands)


@cocotb.test()
@cocotb.parametrize(width=(4, 7))
async def rounding_at_its_edges(dut, width: int):
    """Round sums next to the largest and smallest word, and ties between words, in every lane."""
    tb = EngineBench(dut, f"edges {width}", "none")
    p, shift = tb.parameters, 8 - width
    values, factors = tb.edges(width, shift), (0, p.word_width - 2)
    tb.rows[:256] = 0
    tb.rows[: len(values), 0] = values
    tb.rows[256 : 256 + len(factors), 0] = [1 << factor for factor in factors]
    await tb.start()
    whole, rest = divmod(len(values), p.pe1_rows)
    levels = (Level(whole + (rest != 0), x=p.pe1_rows, z=p.pe1_rows), Level(1))
    commands = [
        Compute(
            operation=Operation.PE4, levels=levels, x=0, g=256 + n, z=512, reduce_levels=1,
            last_rows=rest or p.pe1_rows, x_row_stride=1, z_row_stride=1,
            shift=shift + factor, out_width=width, z_format=z_format,
        )
        for n, factor in enumerate(factors)
        for z_format in range(len(p.number_formats))
    ]  # fmt: skip
    await tb.check(commands)


@cocotb.test()
@cocotb.parametrize(idle_port=("x", "g"))
async def rows_asked_for_ahead(dut, idle_port: str):
    """Withhold the other operand: rows must be requested ahead, up to the available room."""
    tb = EngineBench(dut, f"ahead of {idle_port}", "late", stalled=(idle_port,))
    await tb.start()
    p = tb.parameters
    task = cocotb.start_soon(tb.check([_many_tiles(p)]))
    for _ in range(200):
        await RisingEdge(dut.clk)
    steps = -(-FETCH_DEPTH // p.pe1_rows)  # those whose rows are asked for
    entries = min(steps * p.lanes, max(2 * p.lanes, LEAST_DEPTH))
    asked = [len(tb.read[name].asked) for name in "xg"]
    assert asked == ([0, entries] if idle_port == "x" else [FETCH_DEPTH + p.pe1_rows, 0])
    await task


@cocotb.test()
async def words_that_are_no_numbers(dut):
    """Check that NaR is reported where it is an operand, and nowhere else."""
    await EngineBench(dut, "invalid", "some").check_no_numbers(Operation.PE4)

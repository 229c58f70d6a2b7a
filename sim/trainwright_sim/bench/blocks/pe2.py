"""PE2's engine (PE3, BIAS, MASK) against the golden model."""

import cocotb
from cocotb.triggers import RisingEdge

from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Compute, Level
from trainwright.program.fields import Operation
from trainwright_sim.bench.commands import RESULTS, SPACE
from trainwright_sim.bench.engine import EngineBench
from trainwright_sim.bench.testbench import STALLS

OPERATIONS = (Operation.PE3, Operation.BIAS, Operation.MASK)


@cocotb.test()
@cocotb.parametrize(seed=range(2), stall=STALLS)
async def random_commands(dut, seed: int, stall: str):
    """Run commands of every operation back to back, with every port stalled alike."""
    tb = EngineBench(dut, f"random {seed} {stall}", stall)
    await tb.start()
    await tb.check([tb.random_command(tb.random.choice(OPERATIONS)) for _ in range(12)])


@cocotb.test()
@cocotb.parametrize(port=("x", "g", "z"), stall=("most", "bursts"))
async def one_port_stalled(dut, port: str, stall: str):
    """Stall each port alone: the others run ahead as far as they can."""
    tb = EngineBench(dut, f"{port} {stall}", stall, stalled=(port,))
    await tb.start()
    await tb.check([tb.random_command(operation) for operation in OPERATIONS * 3])


@cocotb.test()
@cocotb.parametrize(operation=OPERATIONS)
async def far(dut, operation: Operation):
    """Use addresses of all bits for operands and results."""
    tb = EngineBench(dut, f"far {operation}", "none")
    await tb.start()
    for _ in range(10):
        await tb.check_far(tb.random_command(operation))
    p = tb.parameters
    for _ in range(0 if p.formats or p.narrow else 6):  # there what is asked for is not so plain
        await tb.check_wild(tb.random_command(operation))


def _many_tiles(parameters: AcceleratorParameters, tiles: int = 80) -> Compute:
    """Build tiles of one step each, more than there is credit for: 80, or as many as fit."""
    rows = parameters.pe2_rows
    tiles = min(tiles, (SPACE - RESULTS) // rows)
    return Compute(
        operation=Operation.PE3, levels=(Level(tiles, x=0, z=rows), Level(1)),
        x=0, g=0, z=512, reduce_levels=1, last_rows=rows, z_row_stride=1, shift=2,
        out_width=parameters.word_width,
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
    """Check a step per cycle without stalls, or a row per cycle if steps are fewer than rows."""
    tb = EngineBench(dut, "throughput", "none")
    await tb.start()
    rows, latency, tiles = tb.parameters.pe2_rows, 36 + tb.parameters.lanes, 30
    for reduction in (1, rows - 1, rows, rows + 1, 3 * rows):
        levels = (Level(tiles, z=rows), Level(reduction, x=1, g=1))
        d = Compute(
            operation=Operation.PE3, levels=levels, x=0, g=256 * tb.parameters.lanes // rows,
            z=512, reduce_levels=1, last_rows=rows, z_row_stride=1, shift=6,
            out_width=tb.parameters.word_width,
        )  # fmt: skip
        assert await tb.check([d]) <= tiles * max(reduction, rows) + latency


@cocotb.test()
async def short_reductions(dut):
    """Run tiles of fewer steps than rows: each must wait for the previous tile's rows.

    The wait is reported as a result stall, although the scratchpad takes a row per cycle.
    """
    tb = EngineBench(dut, "short reductions", "none")
    await tb.start()
    task = cocotb.start_soon(tb.check([_many_tiles(tb.parameters)]))
    for _ in range(60):
        await RisingEdge(dut.clk)
    waited = 0
    for _ in range(10 * tb.parameters.pe2_rows):
        await RisingEdge(dut.clk)
        waited += tb.get("status_stall_result")
    assert waited == 10 * (tb.parameters.pe2_rows - 1)
    await task


@cocotb.test()
async def alignments(dut):
    """Add words shifted by every number of bits, on either side."""
    tb = EngineBench(dut, "alignments", "none")
    await tb.start()
    await tb.check(
        [
            Compute(
                operation=Operation.BIAS, levels=(Level(4, x=1, g=1, z=1),), x=256, g=300, z=600,
                x_shift=x_shift, g_shift=g_shift, shift=shift, out_width=tb.parameters.word_width,
            )
            for n in range(tb.parameters.most_alignment + 1)
            for x_shift, g_shift in ((n, 0), (0, n))
            for shift in (0, n)
        ]
    )  # fmt: skip


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
    await tb.check_reset(tb.random_command(OPERATIONS[0]))


@cocotb.test()
async def extremes(dut):
    """Use the most negative operands everywhere, and every shift that matters for their sums."""
    tb = EngineBench(dut, "extremes", "some")
    p = tb.parameters
    tb.rows[:256] = -(1 << (p.word_width - 1))
    await tb.start()
    for operation in OPERATIONS:
        elementwise = operation is not Operation.PE3
        sums = [Level(4, x=1, g=1), Level(16, x=1, g=1)]  # of 2^32 and of 2^34
        commands = [
            Compute(
                operation=operation, levels=(Level(1), *levels), x=0, g=0, z=600,
                reduce_levels=0 if elementwise else 1, z_row_stride=1, shift=shift,
                out_width=width, x_shift=p.most_alignment, g_shift=p.most_alignment,
            )
            for levels in ([()] if elementwise else [(level,) for level in sums])
            for shift in (0, 1, 14, 15, 16, 17, 18, 20, 31, 32, 33, 63)
            for width in (4, p.word_width)
        ]  # fmt: skip
        await tb.check(commands)


@cocotb.test()
@cocotb.parametrize(width=(4, 7))
async def rounding_at_its_edges(dut, width: int):
    """Round sums next to the largest and smallest word, and ties between words, in every lane."""
    tb = EngineBench(dut, f"edges {width}", "none")
    p, shift = tb.parameters, 8 - width
    values = tb.edges(width, shift)
    tb.rows[:300] = 0
    tb.rows[: len(values)] = [[value] * p.lanes for value in values]
    await tb.start()
    commands = [
        Compute(
            operation=Operation.BIAS, levels=(Level(len(values), x=1, z=1),), x=0, g=256, z=512,
            x_shift=factor, shift=shift + factor, out_width=width, z_format=z_format,
        )
        for factor in (0, p.most_alignment)
        for z_format in range(len(p.number_formats))
    ]  # fmt: skip
    await tb.check(commands)


@cocotb.test()
async def masks_of_one_bit(dut):
    """Mask with single bits: a word passes where its mask is positive, by any bit."""
    tb = EngineBench(dut, "masks", "none")
    p = tb.parameters
    masks = [sign << n for n in range(p.word_width - 1) for sign in (1, -1)]
    tb.rows[: len(masks)] = [[mask] * p.lanes for mask in masks]
    await tb.start()
    levels = (Level(len(masks), g=1, z=1),)
    d = Compute(operation=Operation.MASK, levels=levels, x=256, g=0, z=512, out_width=p.word_width)
    await tb.check([d])


@cocotb.test()
@cocotb.parametrize(operation=OPERATIONS)
async def words_that_are_no_numbers(dut, operation: Operation):
    """Check that NaR is reported where it is an operand, and nowhere else."""
    await EngineBench(dut, f"invalid {operation}", "some").check_no_numbers(operation)

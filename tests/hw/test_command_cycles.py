"""Cycles of a command that is alone, with and without posits: the cycle model beside the arrays."""

from dataclasses import replace
from itertools import product
from random import Random

from slowly import mostly_slow

from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Compute, Level
from trainwright.program.fields import Operation
from trainwright.timing.commands import work_of
from trainwright_sim.bench import designs

FIXED = AcceleratorParameters(lanes=4, pe1_rows=4, pe2_rows=4)
ACCELERATORS = (
    FIXED,
    replace(FIXED, pe1_rows=2, pe2_rows=2),
    AcceleratorParameters(lanes=8, pe1_rows=4, pe2_rows=8),
    replace(FIXED, formats="posit(8,0),posit(8,1)c"),
    replace(FIXED, formats="posit(10,0)"),
)
CASES = {Operation.PE4: [(2, 1), (9, 2)], Operation.PE3: [(2, 1), (9, 2)], Operation.BIAS: [(1, 1)]}
"""Steps of a tile, and rows of the last one."""
DESIGNS = {designs.pe1: [Operation.PE4], designs.pe2: [Operation.PE3, Operation.BIAS]}


# The last ones have the sizes of the first, whose commands the next two have.
QUICK = [
    *((p, designs.pe1) for p in (ACCELERATORS[1], ACCELERATORS[3])),
    *((p, designs.pe2) for p in (ACCELERATORS[1], ACCELERATORS[2], ACCELERATORS[4])),
]


@mostly_slow("p, make", product(ACCELERATORS, DESIGNS), QUICK)
def test_command_alone_takes_cycles_of_model(engines, p, make):
    """Tiles of few and of many steps, of all and of fewer rows; decoders by tables and shifts."""
    for operation in DESIGNS[make]:  # by one simulator, which takes longer to build than to run
        cases = CASES[operation]
        for steps, rows in cases[-1:] if p.formats else cases:  # decoders take long to simulate
            summed = (Level(steps, x=1, g=4),) if steps > 1 else ()
            d = Compute(
                operation=operation, levels=(Level(3, x=32, z=16), *summed), x=0, g=2048, z=512,
                reduce_levels=len(summed), last_rows=rows, x_row_stride=1, z_row_stride=1,
                g_row_stride=1, shift=9,
            )  # fmt: skip
            pad = engines.Scratchpad.random(p, Random("cycles"))
            pad.rows = [[word >> 2 for word in row] for row in pad.rows]
            measured = engines.check(make, p, [d], pad, random=Random("stalls"))
            work = work_of(d, p)
            # The bench does not count the cycle in which the array takes the command.
            assert measured.cycles == work.start + work.cycles + work.finish - 1, (p, steps, rows)

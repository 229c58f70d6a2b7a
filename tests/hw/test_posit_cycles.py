"""How much longer commands take where there are posits: what the cycle model says."""

from dataclasses import replace
from random import Random

import pytest

from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Compute, Level
from trainwright.program.engines import ENGINE_OF
from trainwright.program.fields import Operation
from trainwright.timing.commands import finish
from trainwright_sim.bench import designs

FIXED = AcceleratorParameters(lanes=4, pe1_rows=4, pe2_rows=4)
OPERATIONS = {
    Operation.PE4: designs.pe1,
    Operation.PE3: designs.pe2,
    Operation.BIAS: designs.pe2,
}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_posit_command_latency_matches_cycle_model(engines, operation):
    """By tables and by shifts; the words are fixed point."""
    rows = operation is Operation.BIAS
    levels = (Level(3, x=4, z=4),) if rows else (Level(3, x=4, z=4), Level(2, x=1, g=4))
    d = Compute(
        operation=operation, levels=levels, x=0, g=0, z=512, reduce_levels=0 if rows else 1,
        last_rows=1 if rows else 4, x_row_stride=1, z_row_stride=1, shift=9,
    )  # fmt: skip
    pad = engines.Scratchpad.random(FIXED, Random("posit cycles"))
    pad.rows = [[word >> 2 for word in row] for row in pad.rows]
    cycles = {}
    for p in (
        FIXED,
        replace(FIXED, formats="posit(8,0),posit(8,1)c"),
        replace(FIXED, formats="posit(10,0)"),
    ):
        make = OPERATIONS[operation]
        cycles[p] = engines.check(make, p, [d], pad, random=Random("stalls")).cycles
    for p, measured in cycles.items():
        engine = ENGINE_OF[operation]
        assert measured - cycles[FIXED] == finish(engine, p) - finish(engine, FIXED)

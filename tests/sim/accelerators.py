"""Accelerators that several files of tests share: each is compiled once, in half a minute."""

from trainwright.parameters import AcceleratorParameters

BUSY = AcceleratorParameters(
    lanes=8, pe1_rows=4, pe2_rows=8, scratchpad_rows=1024, program_depth=64, statistics_depth=64,
    address_checks=True,
)  # fmt: skip
"""Small memories, which random programs fill."""
RESIDENT = AcceleratorParameters(
    vector_engine=1, engine_lanes=2, exponents=16, stochastic_rounding=1, lanes=4, pe1_rows=2,
    pe2_rows=2, scratchpad_rows=512, program_depth=32, statistics_depth=16, nest_levels=6,
)  # fmt: skip
"""A vector engine of half the lanes, and an exponent file."""
BOARD = AcceleratorParameters(
    lanes=4, pe1_rows=2, pe2_rows=2, scratchpad_rows=4096, program_depth=128
)
"""Of the simulated boards, with an SDRAM."""

"""Accelerators that several files of tests share: each is compiled once, in half a minute."""

from trainwright.accelerator import Run
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Program
from trainwright_sim.backend import RtlAccelerator

BUSY = AcceleratorParameters(
    lanes=8, pe1_rows=4, pe2_rows=8, scratchpad_rows=1024, program_depth=64, statistics_depth=64,
    address_checks=True, vector_engine=1, engine_lanes=4, exponents=16, stochastic_rounding=1,
)  # fmt: skip
"""Small memories, which random programs fill, a vector engine of half the lanes, an exponent file.

Tests of programs, of what the file does to them, of passes and of random bits share it."""
ALONE = AcceleratorParameters(
    lanes=8, pe1_rows=2, pe2_rows=2, vector_engine=1, exponents=64, sample_loads=1,
    formats=("float(2,1)", "float(2,3)", "float(4,3)"),
)  # fmt: skip
"""Computes whole steps of the networks that ship, also in the coded formats of
``test_coded_functions.FLOATS``. ``BUSY`` and ``test_power_up`` have vector engines without
coded formats."""
BOARD = AcceleratorParameters(
    lanes=4, pe1_rows=2, pe2_rows=2, scratchpad_rows=4096, program_depth=128
)
"""Accelerator of the simulated boards with an SDRAM."""
NARROW_SIZES = {
    "lanes": 4, "pe1_rows": 2, "pe2_rows": 2, "word_width": 8, "factor_width": 8,
    "wide_tensors": 1, "scratchpad_rows": 8192,
}  # fmt: skip
NARROW = AcceleratorParameters(**NARROW_SIZES)
"""Words of a byte, which wide tensors have several of."""
SHARED = BUSY, ALONE, NARROW


class Untraced:
    """An accelerator as a board is: a run leaves memory, statistics and counters."""

    def __init__(self, inner: RtlAccelerator):
        self._inner = inner

    def __getattr__(self, name: str):
        return getattr(self._inner, name)

    def __setattr__(self, name: str, value: object) -> None:
        if name == "_inner":
            object.__setattr__(self, name, value)
        else:  # exponents
            setattr(self._inner, name, value)

    def run(self, program: Program, address: int, *, trace: bool = False) -> Run:
        return self._inner.run(program, address)

    def repeat(
        self, program: Program, times: int, *, address: int, step: int = 0, trace: bool = False
    ) -> Run:
        return self._inner.repeat(program, times, address=address, step=step)

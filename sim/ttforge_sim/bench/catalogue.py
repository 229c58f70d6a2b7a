"""The benches: what each builds, and with which parameters."""

from collections.abc import Callable
from dataclasses import dataclass

from amaranth.lib import wiring

from ttforge.parameters import AcceleratorParameters
from ttforge_hw.nest import LoopNest
from ttforge_hw.pe1 import Pe1
from ttforge_hw.pe2 import Pe2
from ttforge_sim.bench import designs


@dataclass(frozen=True)
class Bench:
    """One design under test."""

    name: str
    module: str
    """Name of the tests' module in ``ttforge_sim.bench.blocks``."""
    parameters: AcceleratorParameters
    design: Callable[[AcceleratorParameters], wiring.Component]
    slow: bool = False
    """Left out unless asked for."""


_SIZES = {
    "scratchpad_rows": 1024,
    "pe1_store_depth": 64,
    "pe2_store_depth": 64,
    "program_depth": 32,
    "statistics_depth": 16,
    "burst_beats": 8,
    "outstanding_bursts": 4,
}
SMALL = AcceleratorParameters(lanes=4, pe1_rows=2, pe2_rows=2, **_SIZES)
SQUARE = AcceleratorParameters(
    lanes=4, pe1_rows=4, pe2_rows=4, factor_width=7, accumulator_width=48, nest_levels=7, **_SIZES
)
DEFAULT = AcceleratorParameters(scratchpad_rows=1024, scratchpad_banks=4)


_ALL = (
    Bench("requantise-32", "requantise", SMALL, designs.requantiser),
    Bench("requantise-48", "requantise", SQUARE, designs.requantiser),
    Bench("nest", "nest", SMALL, LoopNest),
    Bench("nest-7", "nest", SQUARE, LoopNest),
    Bench("fetch", "fetch", SMALL, designs.Fetch),
    Bench("fetch-square", "fetch", SQUARE, designs.Fetch),
    Bench("pe1", "pe1", SMALL, Pe1),
    Bench("pe1-square", "pe1", SQUARE, Pe1),
    Bench("pe1-default", "pe1", DEFAULT, Pe1, slow=True),
    Bench("pe2", "pe2", SMALL, Pe2),
    Bench("pe2-square", "pe2", SQUARE, Pe2),
    Bench("pe2-default", "pe2", DEFAULT, Pe2, slow=True),
)
BENCHES = {bench.name: bench for bench in _ALL}

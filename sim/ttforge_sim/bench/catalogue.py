"""The benches: what each builds, and with which parameters."""

from collections.abc import Callable
from dataclasses import dataclass

from amaranth.lib import wiring

from ttforge.parameters import AcceleratorParameters
from ttforge_hw.requantise import Requantiser


@dataclass(frozen=True)
class Bench:
    """One design under test."""

    name: str
    module: str
    """Name of the tests' module in ``ttforge_sim.bench.blocks``."""
    parameters: AcceleratorParameters
    design: Callable[[], wiring.Component]


SMALL = AcceleratorParameters(lanes=4, pe1_rows=2, pe2_rows=2)

_ALL = (
    Bench("requantise", "requantise", SMALL, lambda: Requantiser(lanes=4, value_width=32)),
)
BENCHES = {bench.name: bench for bench in _ALL}

"""The benches: what each builds, and with which parameters."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from amaranth.lib import wiring

from trainwright.parameters import AcceleratorParameters
from trainwright_hw.build.convert import component_to_rtlil, to_rtlil
from trainwright_hw.compute.loop_nest import LoopNest
from trainwright_hw.control.sequencer import Sequencer
from trainwright_hw.control.statistics_slots import StatisticsSlots
from trainwright_hw.dma.load import LoadEngine
from trainwright_hw.dma.store import StoreEngine
from trainwright_hw.dma.unpack import Unpack
from trainwright_hw.storage.scratchpad import Scratchpad
from trainwright_sim.bench import designs

Convert = Callable[[AcceleratorParameters, bool], str]


@dataclass(frozen=True)
class Bench:
    """Design under test, with its parameters and its tests' module."""

    name: str
    module: str
    """Name of the tests' module in ``trainwright_sim.bench.blocks``."""
    parameters: AcceleratorParameters
    convert: Convert
    """Converts the parameters to the design; the flag adds the source of each cell."""
    simulators: tuple[str, ...] = ("verilator", "icarus")

    def rtlil(self, *, sources: bool = False) -> str:
        """Convert the design; ``sources`` adds the file and line of each cell."""
        return self.convert(self.parameters, sources)


def _of(design: Callable[[AcceleratorParameters], wiring.Component]) -> Convert:
    def convert(parameters: AcceleratorParameters, sources: bool) -> str:
        component = design(parameters)
        flat = component if isinstance(component, designs.Flat) else designs.Flat(component)
        return component_to_rtlil(flat, sources=sources)

    return convert


def _traced_top(parameters: AcceleratorParameters, sources: bool) -> str:
    return to_rtlil(parameters, trace=True, sources=sources)


_SIZES: dict[str, Any] = {
    "scratchpad_rows": 1024,
    "program_depth": 32,
    "statistics_depth": 16,
    "burst_beats": 8,
    "outstanding_bursts": 4,
}
SMALL = AcceleratorParameters(lanes=4, pe1_rows=2, pe2_rows=2, **_SIZES)
SQUARE = AcceleratorParameters(
    lanes=4, pe1_rows=4, pe2_rows=4, accumulator_width=48, nest_levels=7, **_SIZES
)
POSITS = replace(SMALL, formats="posit(8,0),posit(8,1)c", accumulator_width=44)
NARROW = replace(SMALL, word_width=8, accumulator_width=48)
DIGITS = replace(NARROW, wide_tensors=True)
"""Results of up to 16 bits on words of 8."""
BYTES = replace(POSITS, word_width=8)
"""Posits in words of 8 bits, on multipliers of 18."""
SHIFTED = replace(SQUARE, formats="posit(10,0),posit(6,1),posit(8,1)c", pe1_rows=2)
"""Posits that no block RAM holds the tables of."""
TOP = replace(SMALL, scratchpad_rows=256, program_depth=128, statistics_depth=64)
DEFAULT = AcceleratorParameters(scratchpad_rows=1024, scratchpad_banks=4)


_VERILATOR = ("verilator",)
_ALL = (
    Bench("queue", "queue", SMALL, _of(designs.queue)),
    Bench("skid", "skid", SMALL, _of(designs.skid)),
    Bench("round-robin", "round_robin", SMALL, _of(designs.round_robin)),
    Bench("requantise-32", "requantise", SMALL, _of(designs.requantiser)),
    Bench("requantise-48", "requantise", SQUARE, _of(designs.requantiser)),
    Bench("requantise-narrow", "requantise", NARROW, _of(designs.requantiser)),
    Bench("nest", "nest", SMALL, _of(LoopNest)),
    Bench("nest-7", "nest", SQUARE, _of(LoopNest)),
    Bench("nest-digits", "nest", DIGITS, _of(LoopNest)),
    Bench("fetch", "fetch", SMALL, _of(designs.fetch)),
    Bench("fetch-square", "fetch", SQUARE, _of(designs.fetch)),
    Bench("pe1", "pe1", SMALL, _of(designs.pe1)),
    Bench("pe1-square", "pe1", SQUARE, _of(designs.pe1)),
    Bench("pe1-posits", "pe1", POSITS, _of(designs.pe1)),
    Bench("pe1-shifted", "pe1", SHIFTED, _of(designs.pe1)),
    Bench("pe1-narrow", "pe1", NARROW, _of(designs.pe1)),
    Bench("pe1-digits", "pe1", DIGITS, _of(designs.pe1)),
    Bench("pe1-bytes", "pe1", BYTES, _of(designs.pe1)),
    Bench("pe1-default", "pe1", DEFAULT, _of(designs.pe1), simulators=_VERILATOR),
    Bench("pe2", "pe2", SMALL, _of(designs.pe2)),
    Bench("pe2-square", "pe2", SQUARE, _of(designs.pe2)),
    Bench("pe2-posits", "pe2", POSITS, _of(designs.pe2)),
    Bench("pe2-shifted", "pe2", SHIFTED, _of(designs.pe2)),
    Bench("pe2-narrow", "pe2", NARROW, _of(designs.pe2)),
    Bench("pe2-digits", "pe2", DIGITS, _of(designs.pe2)),
    Bench("pe2-bytes", "pe2", BYTES, _of(designs.pe2)),
    Bench("pe2-default", "pe2", DEFAULT, _of(designs.pe2), simulators=_VERILATOR),
    Bench("scratchpad", "scratchpad", SMALL, _of(Scratchpad)),
    Bench("unpack", "unpack", SMALL, _of(Unpack)),
    Bench("unpack-narrow", "unpack", NARROW, _of(Unpack)),
    Bench("load", "load", SMALL, _of(LoadEngine)),
    Bench("store", "store", SMALL, _of(StoreEngine)),
    Bench("store-narrow", "store", NARROW, _of(StoreEngine)),
    Bench("statistics", "statistics", SMALL, _of(StatisticsSlots)),
    Bench("statistics-posits", "statistics", POSITS, _of(StatisticsSlots)),
    Bench("host", "host", SMALL, _of(designs.HostInterface)),
    Bench("host-posits", "host", POSITS, _of(designs.HostInterface)),
    Bench("sequencer", "sequencer", SMALL, _of(Sequencer)),
    Bench("sequencer-posits", "sequencer", POSITS, _of(Sequencer)),
    Bench("top", "top", TOP, _traced_top, simulators=_VERILATOR),
)
BENCHES = {bench.name: bench for bench in _ALL}

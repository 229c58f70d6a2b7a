"""Energy of a step as a model: counted events times published energies, always a range.

Sources and what the model leaves out: docs/reference/energy.md.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainwright.accelerator import CommandRecord
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Compute, Descriptor, Transfer
from trainwright.program.fields import DESCRIPTOR_BYTES, Operation
from trainwright.program.footprint import footprint, rows_written
from trainwright.program.samples import Samples
from trainwright.program.vector import Vector
from trainwright.timing.commands import bytes_moved, work_of

_FACTOR = re.compile(r"\.G\d+$")
"""Names of factors: external memory holds their words of ``factor_width`` bits in whole bytes."""


@dataclass(frozen=True)
class EventEnergy:
    """Published energy of a bit, or of a product of two bits, in pJ of the source's own process."""

    low: float
    high: float
    in_logic: bool
    """Whether an FPGA may build the operation from LUTs, so that ``LOGIC_FACTOR`` applies."""
    on_chip: bool = True
    """Whether ``NODE_FACTOR`` scales the energy."""


ENERGIES = {
    "multiply": EventEnergy(3.1 / 1024, 0.2 / 64, in_logic=True),
    "add": EventEnergy(0.1 / 32, 0.03 / 8, in_logic=True),
    "register": EventEnergy(0.1 / 32, (0.2 + 0.03) * 4 / 16, in_logic=False),
    "scratchpad": EventEnergy(10 / 64, 100 / 64, in_logic=False),
    "external": EventEnergy(1300 / 64, 2600 / 64, in_logic=False, on_chip=False),
}
"""Energies by event.

From Horowitz, ISSCC 2014, 45 nm, 0.9 V: products of 8 and 32 bits 0.2 and 3.1 pJ; sums of 8 and 32
bits 0.03 and 0.1 pJ; 64 bits of a cache of 8 KB and of 1 MB 10 and 100 pJ; 64 bits of DRAM 1.3 to
2.6 nJ. A register's bit takes at least the energy of a sum's bit. At most it takes a 16th of an
access to a register file, which costs as much as a 16-bit multiply-accumulate (Chen et al., ISCA
2016), taken as four 8-bit ones.
"""
LOGIC_FACTOR = 1.0, 14.0
"""Ratio of an FPGA's dynamic power to an ASIC's: hard blocks, LUTs only (Kuon and Rose, 2007)."""
NODE_FACTOR = 16 / 45 * (0.85 / 0.9) ** 2, 1.0
"""Factors from 45 nm and 0.9 V to 16 nm and 0.85 V (a ZU3EG) by C V^2; an ECP5 is not scaled, 1."""

SOURCES = {
    "Horowitz, ISSCC 2014": "multiply, add, scratchpad and external: its table, as two works quote "
    "it",
    "Kuon and Rose, IEEE TCAD 26(2), 2007": "the factor of 14: its abstract",
    "Chen, Emer and Sze, ISCA 2016, table IV": "the high energy of a register: unconfirmed, cited "
    "from memory",
}
"""Events whose energy a source gives, and where the figures were read, by source."""

PAPER_WATTS, PAPER_SECONDS, PAPER_HZ = 1.2, 0.09, 100e6
"""Estimate of the paper for its accelerator, forward and backward of 64 samples of `fashion`."""
EMBEDDED_WATTS, EMBEDDED_SECONDS = 2.5, 5.34
"""Estimate of the paper for the same step on a Raspberry Pi 3B."""


@dataclass(frozen=True)
class EnergyLine:
    """Energy of one kind of event in a step."""

    event: str
    count: int
    """Events: multiplications, sums, registers, rows of the scratchpad, external bytes."""
    joules: tuple[float, float]
    """Low and high estimate."""


@dataclass(frozen=True)
class ToggleEnergy:
    """Energy of a multiplication by toggles in the cells of a liberty file."""

    liberty: Path
    joules: tuple[float, float]
    """Low and high."""
    cells: int
    operands: int
    """Multiplications whose toggles were counted."""
    saif: tuple[str, ...] = ()
    """SAIF files, one for each array."""

    @property
    def source(self) -> str:
        """Sentence on how the energy was found."""
        low, high = (1e12 * joules for joules in self.joules)
        return (
            f"{low:.3f} to {high:.3f} pJ each, toggles of {self.cells:,} cells in "
            f"{self.operands:,} multiplications, without wires, glitches and factors"
        )


class EnergyModel:
    """Counter of events over the programs of a step.

    ``toggles`` replaces the published energy of a multiplication.
    """

    def __init__(
        self,
        parameters: AcceleratorParameters,
        factor_width: int,
        toggles: ToggleEnergy | None = None,
    ):
        self.parameters, self.factor_width = parameters, factor_width
        self._multiply_joules = toggles.joules if toggles else None
        self.sources = dict(SOURCES)
        """Sources of energies, as in ``SOURCES``."""
        if toggles:
            self.sources[f"{toggles.liberty}, multiply"] = toggles.source
        saif = toggles.saif if toggles else ()
        self.files = {f"multiplier{n}.saif": text for n, text in enumerate(saif, 1)}
        """Files that the energy of a multiplication was counted from."""
        self._counts: dict[str, float] = defaultdict(float)
        self._joules: dict[str, tuple[float, float]] = {}

    def _add(self, event: str, count: float, low_units: float, high_units: float, label: str = ""):
        """Count events, each of ``low_units`` to ``high_units`` units of energy."""
        energy = ENERGIES[event]
        logic = LOGIC_FACTOR if energy.in_logic else (1.0, 1.0)
        node = NODE_FACTOR if energy.on_chip else (1.0, 1.0)
        self._note(
            f"{event} {label}".strip(),
            count,
            low_units * energy.low * logic[0] * node[0] * 1e-12,
            high_units * energy.high * logic[1] * node[1] * 1e-12,
        )

    def _note(self, name: str, count: float, low_joules: float, high_joules: float) -> None:
        self._counts[name] += count
        low, high = self._joules.get(name, (0.0, 0.0))
        self._joules[name] = low + count * low_joules, high + count * high_joules

    def add_program(
        self, descriptors: Sequence[Descriptor], commands: Iterable[CommandRecord], steps: int = 1
    ) -> None:
        """Count the events of a run of ``steps`` steps, and add the mean of a step."""
        executions = Counter(command.number for command in commands)
        widths = self._operand_widths(descriptors)
        # A program that the program memory holds is loaded once for all steps of a start.
        loads = 1 if len(descriptors) <= self.parameters.program_depth else steps
        self._add("external", len(descriptors) * DESCRIPTOR_BYTES * loads / steps, 8, 8)
        executions.pop(-1, None)  # the load of the program, which predictions omit
        for number, times in executions.items():
            self._add_execution(descriptors[number], times / steps, widths.get(number))

    def _add_execution(self, d: Any, times: float, widths: tuple[int, int] | None) -> None:
        p = self.parameters
        row_bits = p.lanes * p.word_width
        work = work_of(d, p)
        rows = sum(read.rate * work.cycles for read in work.reads)
        self._add("external", times * bytes_moved(d, p), 8, 8)
        if isinstance(d, Vector):
            rows += d.rows * (len(d.users(d.reads)) + len(d.users(d.writes)))
        elif isinstance(d, Compute | Transfer | Samples):
            rows += rows_written(d, p)
        self._add("scratchpad", times * rows, row_bits, row_bits)
        if not work.macs:
            return
        assert widths is not None
        x, g = widths
        macs, array = times * work.macs, p.word_width
        if self._multiply_joules is not None:
            self._note(f"multiply {x} x {g} bits", macs, *self._multiply_joules)
        else:
            self._add("multiply", macs, x * g, array * array, f"{x} x {g} bits")
        self._add("add", macs, x + g, p.accumulator_width)
        # both operands and the sum are each stored in a register
        self._add("register", macs, x + g, 2 * array + p.accumulator_width)

    def _operand_widths(self, descriptors: Sequence[Descriptor]) -> dict[int, tuple[int, int]]:
        """Return the bits of both operands of each contraction, by the last writer of their rows.

        Each descriptor is read once, in order, so all iterations of a loop have the widths of the
        first.
        """
        p, written, widths = self.parameters, [], {}
        for number, d in enumerate(descriptors):
            if not isinstance(d, Compute | Transfer | Samples | Vector):
                continue
            touches = footprint(d, p)
            reads = [touch for touch in touches if not touch.write]
            if isinstance(d, Compute) and work_of(d, p).macs:
                x, g = (
                    next((w for t, w in reversed(written) if t.meets(read)), p.word_width)
                    for read in reads[:2]
                )
                widths[number] = x, g
            written += [(touch, self._width(d)) for touch in touches if touch.write]
        return widths

    def _width(self, d: Compute | Transfer | Samples | Vector) -> int:
        """Return the bits of the values that a descriptor writes to the scratchpad."""
        p = self.parameters
        if isinstance(d, Compute):
            return p.number_formats[d.z_format].width if d.z_format else d.out_width
        if isinstance(d, Samples):
            return d.input_bits + 1  # the sign, which is 0
        if isinstance(d, Transfer) and d.operation is Operation.LOAD:
            return self.factor_width if _FACTOR.search(d.tensor) else 8 * d.element_bytes
        return p.word_width

    def lines(self) -> list[EnergyLine]:
        """Return a line for each kind of event, and their total."""
        rows = [
            EnergyLine(name, round(count), self._joules[name])
            for name, count in self._counts.items()
        ]
        low, high = (sum(line.joules[end] for line in rows) for end in (0, 1))
        return [*sorted(rows, key=lambda line: line.event), EnergyLine("total", 0, (low, high))]


def references(cycles: int) -> dict[str, float]:
    """Return energies to compare a step of ``cycles`` with: power, static included, times time."""
    return {
        "the paper's 1.2 W for these cycles at 100 MHz": PAPER_WATTS * cycles / PAPER_HZ,
        "the paper's step of fashion, 1.2 W x 0.09 s": PAPER_WATTS * PAPER_SECONDS,
        "its Raspberry Pi 3B, 2.5 W x 5.34 s": EMBEDDED_WATTS * EMBEDDED_SECONDS,
    }

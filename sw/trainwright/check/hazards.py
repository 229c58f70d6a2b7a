"""Programs in which every wait counts: without it a command meets rows that are still in use.

A step of a network hides most races: its commands are rarely close enough. Here one long command
writes or reads a region, and the next command touches the rows that the first one reaches last. So
a wait that the hardware or the scheduler leaves out changes a row, for each pair of engines.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from trainwright.accelerator import Accelerator, Run
from trainwright.check.comparison import Comparison, RunProgram, compare_runs
from trainwright.compiler.hazards import exact_hazards
from trainwright.golden.backend import GoldenAccelerator
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Compute, Halt, Level, Program, Transfer
from trainwright.program.fields import Engine, Operation
from trainwright.program.footprint import Touch, external, footprint

Bytes = npt.NDArray[np.uint8]

MOST_ROWS = 64
"""Rows of a region: a command takes longer than the memory's latency, and a program is quick."""
REGIONS = ("shared", "first", "second", "result", "older", "late")
"""Rows that both commands touch; operands; results of the long command, of the one behind it, and
of the last one."""
ARRAYS = (Engine.PE1, Engine.PE2)
READERS, WRITERS = (Engine.STORE, *ARRAYS), (Engine.LOAD, *ARRAYS)
PROGRAM = 1 << 14
"""Bytes of external memory that a program has, before the regions."""


@dataclass(frozen=True)
class Hazard:
    """Two commands that meet in a region."""

    before: Engine
    """Engine of the long command."""
    writes: bool
    """Whether the long command writes the region, or reads it."""
    after: Engine
    writes_after: bool
    older: bool = False
    """Whether another command of the first engine is between both."""
    external: bool = False
    """Whether the region is in external memory, and not in the scratchpad."""

    @property
    def name(self) -> str:
        """Text that tells the hazard apart, as `write PE1, read STORE`."""
        first, second = (
            "write" if writes else "read" for writes in (self.writes, self.writes_after)
        )
        between = ", another" if self.older else ""
        where = " of memory" if self.external else ""
        return f"hazard{where} {first} {self.before.name}{between}, {second} {self.after.name}"


def hazards() -> Iterator[Hazard]:
    """Yield every pair that the engines do not keep in order by themselves.

    An engine does its commands in order, but an array reads operands of a command while it writes
    the last results of the one before.
    """
    for writes, writes_after in ((True, False), (False, True), (True, True)):
        for before in WRITERS if writes else READERS:
            for after in WRITERS if writes_after else READERS:
                if before is after and (writes_after or before not in ARRAYS):
                    continue
                yield Hazard(before, writes, after, writes_after)
                if before in ARRAYS and after is not before:
                    yield Hazard(before, writes, after, writes_after, older=True)
    yield Hazard(Engine.STORE, True, Engine.LOAD, False, external=True)
    yield Hazard(Engine.LOAD, False, Engine.STORE, True, external=True)


class _Machine:
    """Commands on the regions of one accelerator."""

    def __init__(self, p: AcceleratorParameters) -> None:
        self.p = p
        self.rows = min(MOST_ROWS, p.scratchpad_rows // len(REGIONS) // p.lanes * p.lanes)
        self.tail = max(p.pe1_rows, p.pe2_rows)
        """Rows at the end of the region that the second command touches."""
        self.row_bytes = p.lanes * p.word_width // 8
        # products of such operands, summed over the lanes, fit an accumulator
        spare = p.accumulator_width - 1 - (p.lanes - 1).bit_length()
        self.bits = min(p.word_width, spare // 2 + 1)
        self.region_bytes = self.rows * self.row_bytes

    def at(self, region: str) -> int:
        """Return the first row of a region."""
        return REGIONS.index(region) * self.rows

    def address(self, region: str, copy: int = 0) -> int:
        """Return where a region's rows are in memory: given, loaded later, or stored."""
        return PROGRAM + (REGIONS.index(region) + copy * len(REGIONS)) * self.region_bytes

    def move(
        self, operation: Operation, region: str, copy: int, first: int, name: str, local: str = ""
    ) -> Transfer:
        """Load or store the rows of a region from row ``first`` on, or those of ``local`` there."""
        return Transfer(
            operation=operation,
            address=self.address(region, copy) + first * self.row_bytes,
            local=self.at(local or region) + first,
            beats=(self.rows - first) * self.row_bytes // self.p.beat_bytes,
            element_bytes=self.p.word_width // 8,
            tensor=name,
        )

    def compute(self, engine: Engine, x: int, z: int, rows: int, name: str) -> Compute:
        """Compute ``rows`` rows from row ``x`` on into those from ``z`` on."""
        by_entries = engine is Engine.PE1
        tile = self.p.pe1_rows if by_entries else 1
        # of a product's bits the upper ones are left, so that few results saturate
        shift = self.bits + 2 if by_entries else 1
        return Compute(
            operation=Operation.PE4 if by_entries else Operation.BIAS,
            levels=(Level(rows // tile, tile, 0, tile),),
            x=x, g=self.at("second"), z=z, last_rows=tile, shift=shift, out_width=self.bits,
            x_row_stride=int(by_entries), z_row_stride=1, g_row_stride=int(by_entries),
            tensor=name,
        )  # fmt: skip

    def external(self, engine: Engine, first: int, name: str) -> Transfer:
        """Load or store the shared region of external memory from row ``first`` on."""
        operation = Operation.LOAD if engine is Engine.LOAD else Operation.STORE
        local = "late" if engine is Engine.LOAD else "first"
        return self.move(operation, "shared", 1, first, name, local)

    def touched(self, command: Compute | Transfer) -> tuple[Touch, ...]:
        """Return what a command touches in both memories."""
        touched = footprint(command, self.p)
        if not isinstance(command, Transfer):
            return touched
        start, stop = external(command, self.p)
        writes = command.operation is Operation.STORE
        return (*touched, Touch("memory", start, stop, writes))

    def command(
        self, engine: Engine, writes: bool, first: int, result: str, name: str
    ) -> Compute | Transfer:
        """Write or read the shared region from row ``first`` on."""
        if engine is Engine.LOAD:
            return self.move(Operation.LOAD, "shared", 1, first, name)
        if engine is Engine.STORE:
            return self.move(Operation.STORE, "shared", 1, first, name)
        rows, shared = self.rows - first, self.at("shared") + first
        operand = self.at("first") + first if writes else shared
        return self.compute(engine, operand, shared if writes else self.at(result), rows, name)


def hazard_program(hazard: Hazard, p: AcceleratorParameters) -> Program:
    """Return the program of a hazard: regions are loaded, two or three commands meet, all stored.

    The waits of the last of them are those of ``compiler.hazards``, as in any program.
    """
    machine, name = _Machine(p), hazard.name
    given = [machine.move(Operation.LOAD, region, 0, 0, f"{region} rows") for region in REGIONS]
    tail = machine.rows - machine.tail
    if hazard.external:
        long = machine.external(hazard.before, 0, f"{name}: first")
        last = machine.external(hazard.after, tail, f"{name}: last")
    else:
        long = machine.command(hazard.before, hazard.writes, 0, "result", f"{name}: first")
        last = machine.command(hazard.after, hazard.writes_after, tail, "late", f"{name}: last")
    middle = [
        machine.compute(hazard.before, machine.at("first"), machine.at("older"), machine.rows,
                        f"{name}: between")
    ] if hazard.older else []  # fmt: skip
    waits = exact_hazards()
    for command in (long, *middle):
        waits.issue(hazard.before, machine.touched(command))
    wait, wait_older = waits.waits(hazard.after, machine.touched(last))
    stores = [machine.move(Operation.STORE, region, 2, 0, f"{region} rows") for region in REGIONS]
    descriptors = (
        *given,
        replace(long, wait=Engine.ALL),
        *middle,
        replace(last, wait=wait, wait_older=wait_older),
        replace(stores[0], wait=Engine.ALL),
        *stores[1:],
        Halt(),
    )
    return Program(descriptors, p.fingerprint)


def has_room(p: AcceleratorParameters, memory_bytes: int) -> bool:
    """Return whether the programs fit an accelerator and its external memory."""
    machine = _Machine(p)
    end = PROGRAM + 3 * len(REGIONS) * machine.region_bytes
    return machine.rows > machine.tail and end <= memory_bytes


def given_rows(p: AcceleratorParameters, seed: int) -> Bytes:
    """Return random rows for the regions, those that are loaded later, and zeros for the rest."""
    machine = _Machine(p)
    count = len(REGIONS) * machine.rows * p.lanes
    low, high = -(1 << machine.bits - 1), 1 << machine.bits - 1
    values = np.random.default_rng([seed, 2]).integers(low, high, 2 * count)
    kind = "<i2" if p.word_width > 8 else np.int8
    return np.concatenate([values, np.zeros(count, np.int64)]).astype(kind).view(np.uint8)


def check_hazards(accelerator: Accelerator, seed: int = 0) -> Comparison:
    """Compare every hazard's program on the golden model and on an accelerator.

    Where it is simulated they run under several timings of its memory (``timings``).
    """
    p, comparison = accelerator.parameters, Comparison()
    if not has_room(p, accelerator.memory_bytes):
        return comparison
    given = given_rows(p, seed)
    programs = [hazard_program(hazard, p) for hazard in hazards()]
    with GoldenAccelerator(p, memory_bytes=PROGRAM + given.size) as golden:
        wanted = [_run(golden, program, given) for program in programs]
    timings = getattr(accelerator, "timings", None)
    for timing in timings() if timings else ("",):
        name = f"hazard ({timing} memory)" if timing else "hazard"
        for program, (ours, memory) in zip(programs, wanted, strict=True):
            run, stored = _run(accelerator, program, given)
            ran = RunProgram(name, program.descriptors, p)
            comparison.merge(compare_runs(ours, run, ("hazards",), ran))
            last = program.descriptors[-len(REGIONS) - 2]
            assert isinstance(last, Compute | Transfer)
            label = f"{last.tensor}, in memory"
            comparison.add_arrays(label, memory, stored, p.lanes)
            if (at := comparison.places.get(label)) and at.address is None:
                assert at.row is not None and at.lane is not None
                at = replace(at, what="byte", address=PROGRAM + at.row * p.lanes + at.lane)
                comparison.places[label] = ran.stored(at, run)
    return comparison


def _run(accelerator: Accelerator, program: Program, given: Bytes) -> tuple[Run, Bytes]:
    """Run a program; return the run, traced, and the memory of the regions."""
    accelerator.write(PROGRAM, given)
    run = accelerator.run(program, 0, trace=True)
    return run, accelerator.read(PROGRAM, given.size)

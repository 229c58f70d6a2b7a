"""Programs in which every wait counts: without it a command meets rows that are still in use.

A step of a network hides most races: its commands are rarely close enough. Here one long command
writes or reads a region, and the next command touches the rows that the first one reaches last. So
a wait that the hardware or the scheduler leaves out changes a row, for each pair of engines. The
vector engine and loads of samples have commands of their own, behind the queues of PE2 and LOAD.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from trainwright.accelerator import Accelerator, Run
from trainwright.check.comparison import Comparison, RunProgram, compare_runs
from trainwright.compiler.base.hazards import Hazards, touches
from trainwright.golden.backend import GoldenAccelerator
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Compute, Halt, Level, Program, Transfer
from trainwright.program.engines import ARRAYS, ENGINE_OF, SPEC_OF, contraction_of, tile_rows
from trainwright.program.fields import Engine, Operation
from trainwright.program.samples import Samples
from trainwright.program.vector import Code, Instruction, Memory, Stream, Vector
from trainwright.support.arguments import require_seed

Bytes = npt.NDArray[np.uint8]

MOST_ROWS = 64
"""Rows of a region: a command takes longer than the memory's latency, and a program is quick."""
REGIONS = ("shared", "first", "second", "result", "older", "late")
"""Regions: rows that both commands touch (``shared``), two operands, and the results of the long
command, of the command after it (``older``) and of the last command (``late``)."""
BY_ARRAYS = [
    operations[0]
    for spec in ARRAYS.values()
    if (operations := [o for o in spec.operations if spec.along_lanes or o is not spec.contraction])
]
"""Operation of each array that takes whole rows of both operands, if it has one."""
READERS = (Operation.STORE, *BY_ARRAYS, Operation.VECTOR)
WRITERS = (Operation.LOAD, *BY_ARRAYS, Operation.VECTOR, Operation.SAMPLES)


def _is_in(operation: Operation, p: AcceleratorParameters) -> bool:
    """Return whether an accelerator has such commands."""
    needed = {Operation.VECTOR: p.vector_engine, Operation.SAMPLES: p.sample_loads}
    return bool(needed.get(operation, True))


def named(operation: Operation) -> str:
    """Return the name of such commands: their engine's, or their own if the engine has others."""
    return SPEC_OF[operation].name if operation in BY_ARRAYS else operation.name


COPY = (
    Instruction(memory=Memory.READ, stream=0, keep=True, d=1),
    Instruction(memory=Memory.WRITE, stream=1, a=1, width=16),
)
"""Instructions of a pass that copies rows."""
PROGRAM = 1 << 14
"""Bytes of external memory that a program has, before the regions."""


@dataclass(frozen=True)
class Hazard:
    """Two commands that meet in a region."""

    before: Operation
    """Kind of the long command."""
    writes: bool
    """Whether the long command writes the region, or reads it."""
    after: Operation
    writes_after: bool
    older: bool = False
    """Whether another command of the first engine is between both."""
    external: bool = False
    """Whether the region is in external memory, and not in the scratchpad."""

    @property
    def name(self) -> str:
        """Name of the hazard, such as `hazard write PE1, read STORE`."""
        first, second = (
            "write" if writes else "read" for writes in (self.writes, self.writes_after)
        )
        between = ", another" if self.older else ""
        where = " of memory" if self.external else ""
        return f"hazard{where} {first} {named(self.before)}{between}, {second} {named(self.after)}"


def hazards(p: AcceleratorParameters) -> Iterator[Hazard]:
    """Yield every pair that the engines of an accelerator do not keep in order by themselves.

    An engine executes its commands in order, but an array reads operands of a command while it
    writes the last results of the command before.
    """
    readers, writers = (
        [worker for worker in workers if _is_in(worker, p)] for workers in (READERS, WRITERS)
    )
    for writes, writes_after in ((True, False), (False, True), (True, True)):
        for before in writers if writes else readers:
            for after in writers if writes_after else readers:
                engine = ENGINE_OF[before]
                array, same = engine in ARRAYS, engine is ENGINE_OF[after]
                if same and (writes_after or not array):
                    continue
                yield Hazard(before, writes, after, writes_after)
                if array and not same:
                    yield Hazard(before, writes, after, writes_after, older=True)
    for loads in (Operation.LOAD, Operation.SAMPLES):
        if _is_in(loads, p):
            yield Hazard(Operation.STORE, True, loads, False, external=True)
            yield Hazard(loads, False, Operation.STORE, True, external=True)


Command = Compute | Transfer | Samples | Vector


class _Machine:
    """Commands on the regions of one accelerator."""

    def __init__(self, p: AcceleratorParameters) -> None:
        self.p = p
        self.rows = min(MOST_ROWS, p.scratchpad_rows // len(REGIONS) // p.lanes * p.lanes)
        self.tail = max(spec.rows(p) for spec in ARRAYS.values())
        """Rows at the end of the region that the second command touches."""
        self.row_bytes = p.lanes * p.word_width // 8
        # products of such operands, summed over the lanes, fit an accumulator
        spare = p.accumulator_width - 1 - (p.lanes - 1).bit_length()
        self.bits = min(p.word_width, spare // 2 + 1)
        # a record of SAMPLES: a beat of pixels, which is a row, and one of targets
        self.record_bytes = 2 * p.beat_bytes
        self.region_bytes = self.rows * max(self.row_bytes, self.record_bytes * p.sample_loads)

    def at(self, region: str) -> int:
        """Return the first row of a region."""
        return REGIONS.index(region) * self.rows

    def address(self, region: str, copy: int = 0) -> int:
        """Return the memory address of a copy of a region.

        Copy 0 has the first rows, copy 1 the rows that the commands load, copy 2 what is stored.
        """
        return PROGRAM + (REGIONS.index(region) + copy * len(REGIONS)) * self.region_bytes

    def move(
        self, operation: Operation, region: str, copy: int, first: int, name: str, local: str = ""
    ) -> Transfer:
        """Move rows from ``first`` on between a copy of a region and the scratchpad.

        The rows of the scratchpad are those of the region ``local``, by default the same region.
        """
        return Transfer(
            operation=operation,
            address=self.address(region, copy) + first * self.row_bytes,
            local=self.at(local or region) + first,
            beats=(self.rows - first) * self.row_bytes // self.p.beat_bytes,
            element_bytes=self.p.word_width // 8,
            tensor=name,
        )

    def compute(self, operation: Operation, x: int, z: int, rows: int, name: str) -> Compute:
        """Compute ``rows`` rows from row ``x`` on into those from ``z`` on."""
        by_entries, tile = contraction_of(operation) is not None, tile_rows(operation, self.p)
        # keep the upper bits of a product, so that few results saturate
        shift = self.bits + 2 if by_entries else 1
        return Compute(
            operation=operation,
            levels=(Level(rows // tile, tile, 0, tile),),
            x=x, g=self.at("second"), z=z, last_rows=tile, shift=shift, out_width=self.bits,
            x_row_stride=int(by_entries), z_row_stride=1, g_row_stride=int(by_entries),
            tensor=name,
        )  # fmt: skip

    def vector(self, x: int, z: int, rows: int, name: str) -> Vector:
        """Copy ``rows`` rows from row ``x`` on to those from ``z`` on."""
        return Vector(
            entry=0, length=len(COPY), outer=1, inner=rows, reads=1, writes=2,
            streams=(Stream(x, 0, 1), Stream(z, 0, 1)), tensor=name,
        )  # fmt: skip

    def samples(self, first: int, result: str, name: str) -> Samples:
        """Load a sample for each row of the shared region, and targets into region ``result``."""
        count = self.rows - first
        return Samples(
            address=self.address("shared", 1) + first * self.record_bytes,
            local=self.at("shared") + first, local_step=1, samples=count, total=count,
            beats=1, stride=self.record_bytes, targets=self.at(result) + first,
            input_bits=min(7, self.bits - 1), tensor=name,
        )  # fmt: skip

    def external(self, worker: Operation, first: int, name: str) -> Transfer | Samples:
        """Load or store the shared region of external memory from row ``first`` on."""
        if worker is Operation.SAMPLES:
            return replace(self.samples(first, "late", name), local=self.at("result") + first)
        local = "late" if worker is Operation.LOAD else "first"
        return self.move(worker, "shared", 1, first, name, local)

    def command(
        self, worker: Operation, writes: bool, first: int, result: str, name: str
    ) -> Command:
        """Write or read the shared region from row ``first`` on."""
        if worker is Operation.SAMPLES:
            return self.samples(first, result, name)
        if worker in (Operation.LOAD, Operation.STORE):
            return self.move(worker, "shared", 1, first, name)
        rows, shared = self.rows - first, self.at("shared") + first
        operand = self.at("first") + first if writes else shared
        return self.work(worker, operand, shared if writes else self.at(result), rows, name)

    def work(self, worker: Operation, x: int, z: int, rows: int, name: str) -> Compute | Vector:
        """Compute ``rows`` rows by an array, or copy them by the vector engine."""
        if worker is Operation.VECTOR:
            return self.vector(x, z, rows, name)
        return self.compute(worker, x, z, rows, name)


def hazard_program(hazard: Hazard, p: AcceleratorParameters) -> Program:
    """Return the program of a hazard: regions are loaded, two or three commands meet, all stored.

    The last command has the waits of ``compiler.base.hazards``, as in any program.
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
        machine.work(hazard.before, machine.at("first"), machine.at("older"), machine.rows,
                     f"{name}: between")
    ] if hazard.older else []  # fmt: skip
    waits = Hazards()
    for command in (long, *middle):
        waits.issue(ENGINE_OF[hazard.before], touches(command, p))
    wait, wait_older = waits.waits(ENGINE_OF[hazard.after], touches(last, p))
    stores = [machine.move(Operation.STORE, region, 2, 0, f"{region} rows") for region in REGIONS]
    code = [Code(first=0, instructions=COPY)] if p.vector_engine else []
    descriptors = (
        *code,
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
    """Return random rows for regions given or loaded later, zeros for regions that are stored."""
    machine = _Machine(p)
    count = len(REGIONS) * machine.region_bytes * 8 // p.word_width
    low, high = -(1 << machine.bits - 1), 1 << machine.bits - 1
    values = np.random.default_rng([seed, 2]).integers(low, high, 2 * count)
    kind = "<i2" if p.word_width > 8 else np.int8
    return np.concatenate([values, np.zeros(count, np.int64)]).astype(kind).view(np.uint8)


def check_hazards(accelerator: Accelerator, seed: int = 0) -> Comparison:
    """Compare every hazard's program on the golden model and on an accelerator.

    Where it is simulated they run under several timings of its memory (``timings``).
    """
    p, comparison, seed = accelerator.parameters, Comparison(), require_seed(seed)
    if not has_room(p, accelerator.memory_bytes):
        return comparison
    given = given_rows(p, seed)
    programs = [hazard_program(hazard, p) for hazard in hazards(p)]
    with GoldenAccelerator(p, memory_bytes=PROGRAM + given.size) as golden:
        wanted = [_run(golden, program, given) for program in programs]
    timings = getattr(accelerator, "timings", None)
    for timing in timings() if timings else ("",):
        name = f"hazard ({timing} memory)" if timing else "hazard"
        for program, (ours, memory) in zip(programs, wanted, strict=True):
            run, stored = _run(accelerator, program, given)
            ran = RunProgram(name, program.descriptors, p)
            single = compare_runs(ours, run, ("hazards",), ran)
            last = program.descriptors[-len(REGIONS) - 2]
            assert isinstance(last, Compute | Transfer | Samples | Vector)
            label = f"{last.tensor}, in memory"
            single.add_arrays(label, memory, stored, p.lanes, PROGRAM, what="byte")
            if at := single.places.get(label):
                single.places[label] = ran.stored(at, run)
            comparison.merge(single)
    return comparison


def _run(accelerator: Accelerator, program: Program, given: Bytes) -> tuple[Run, Bytes]:
    """Run a program; return the run, traced, and the memory of the regions."""
    accelerator.write(PROGRAM, given)
    run = accelerator.run(program, 0, trace=True)
    return run, accelerator.read(PROGRAM, given.size)

"""Engines: one record each, with every property that programs, models and the compiler share.

A property of a single layer is in a table by ``Engine`` of that layer: latencies in
``trainwright.timing.commands``, loop nests of contractions in ``trainwright.compiler.forms.nests``,
classes of arrays in ``trainwright_hw.compute.arrays``.
"""

from dataclasses import dataclass

from trainwright.parameters import AcceleratorParameters
from trainwright.program.fields import Engine, Operation
from trainwright.program.vector import THREADS


@dataclass(frozen=True)
class EngineSpec:
    """Engine of the accelerator, which executes its operations one after the other."""

    engine: Engine
    operations: tuple[Operation, ...]
    """Operations; the first one of an array sums products."""
    writes: bool = True
    """Whether the engine writes rows to the scratchpad, at most one a cycle."""
    rows_parameter: str = ""
    """Parameter of accelerators that gives the rows of the array, and of a tile; empty: the engine
    has no array of multipliers."""
    along_lanes: bool = False
    """Whether sums run along the lanes of both operands. Then the second operand is read entry by
    entry, one a lane of the result; else by groups of words, one a row of the tile."""

    @property
    def name(self) -> str:
        """Name of the engine."""
        return self.engine.name or ""

    @property
    def unit(self) -> str:
        """Name of the engine in names of signals, counters and traces."""
        return self.name.lower()

    @property
    def contraction(self) -> Operation:
        """Operation of an array that sums products."""
        return self.operations[0]

    def rows(self, p: AcceleratorParameters) -> int:
        """Return the rows of the array."""
        return getattr(p, self.rows_parameter)

    def depth(self, p: AcceleratorParameters) -> int:
        """Return the products that a step adds to each sum, which are also the step's cycles."""
        # Along the lanes a step lasts until the entries of all lanes are read, a row a cycle.
        return p.lanes if self.along_lanes else 1

    def rates(self, p: AcceleratorParameters) -> tuple[float, float]:
        """Return the rows a cycle that the array reads of the first and the second operand."""
        return (self.rows(p) / p.lanes if self.along_lanes else 1.0), 1.0

    def cycles(
        self,
        tiles: float,
        steps: float,
        digits: int,
        p: AcceleratorParameters,
        rows: int | None = None,
    ) -> float:
        """Return the cycles of a contraction, from its first step to its last.

        A tile takes its ``steps``, or, where those are fewer, as long as its results need to leave
        the array: a row a cycle, and as many rows as each result has ``digits``. ``rows`` of a tile
        are written, all if None.
        """
        return tiles * max(steps * self.depth(p), (rows or self.rows(p)) * digits)


def pass_cycles(rows: int, instructions: int, p: AcceleratorParameters) -> int:
    """Return the cycles of a pass of the vector engine: each block of rows takes a whole one's."""
    return -(-rows // THREADS) * THREADS * instructions * p.engine_parts


PE1 = EngineSpec(Engine.PE1, (Operation.PE4,), rows_parameter="pe1_rows", along_lanes=True)
PE2 = EngineSpec(
    Engine.PE2,
    (Operation.PE3, Operation.BIAS, Operation.MASK, Operation.VECTOR, Operation.CODE),
    rows_parameter="pe2_rows",
)
ENGINES = (
    EngineSpec(Engine.LOAD, (Operation.LOAD, Operation.SAMPLES)),
    EngineSpec(Engine.STORE, (Operation.STORE,), writes=False),
    PE1,
    PE2,
)
"""Engines of an accelerator, in the order of their bits."""
ARRAYS = {spec.engine: spec for spec in ENGINES if spec.rows_parameter}
"""Records of the arrays; that which transposes comes first."""
EVERY_ENGINE, EVERY_ARRAY = tuple([spec.engine for spec in ENGINES]), tuple(ARRAYS)
TRACED = tuple([spec.unit for spec in ENGINES if spec.writes])
"""Engines that write to the scratchpad."""
TRANSPOSER = next(spec for spec in ARRAYS.values() if spec.along_lanes)
"""Array that transposes, by products with the identity."""
SPEC_OF = {
    operation: spec for operation in Operation for spec in ENGINES if operation in spec.operations
}
"""The engine's record of each operation; the sequencer executes the others itself."""
ENGINE_OF = {operation: spec.engine for operation, spec in SPEC_OF.items()}
"""The engine of each operation; the sequencer executes the others itself."""


def rivals(spec: EngineSpec) -> list[EngineSpec]:
    """Return the other arrays whose tiles come from the same direction.

    Such arrays share a port of the write-back unit: an array takes a command only while its rivals
    are idle.
    """
    arrays = ARRAYS.values() if spec.rows_parameter else ()
    return [a for a in arrays if a is not spec and a.along_lanes == spec.along_lanes]


def transpose_cycles(rows: float, p: AcceleratorParameters) -> float:
    """Return the cycles in which ``TRANSPOSER`` writes transposed rows."""
    return TRANSPOSER.cycles(rows / TRANSPOSER.rows(p), 1, 1, p)


def contraction_of(operation: Operation) -> EngineSpec | None:
    """Return the record of the array that contracts by this operation; None: it sums nothing."""
    spec = SPEC_OF[operation]
    return spec if spec.rows_parameter and operation is spec.contraction else None


def sums_lanes(operation: Operation) -> bool:
    """Return whether the operation sums products along the lanes."""
    return (array := contraction_of(operation)) is not None and array.along_lanes


def tile_rows(operation: Operation, p: AcceleratorParameters) -> int:
    """Return the rows of a tile."""
    array = contraction_of(operation)
    return array.rows(p) if array else 1

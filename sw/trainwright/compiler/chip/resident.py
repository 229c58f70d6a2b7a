"""A whole step as one program that is the same in every step: forward, loss, backward, update,
samples and exponents of the next step; shifts from the exponent file, rates from a table.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from trainwright.compiler.base.compiled import CompiledProgram, CompiledStep
from trainwright.compiler.base.errors import CompileError
from trainwright.compiler.chip.cuts import Looks
from trainwright.compiler.chip.exponents import (
    Slots,
    moment_name,
    older_name,
    require_one_floor,
    scales,
    with_slots,
)
from trainwright.compiler.chip.loss import LOSS_SLOT, counting_program
from trainwright.compiler.chip.memory import ChipMemory
from trainwright.compiler.chip.passes import COPY_SLOT
from trainwright.compiler.chip.phases import (
    ResidentRun,
    StepPhases,
    by_logits,
    counted_from,
    deferred_parts,
    work_in,
)
from trainwright.compiler.chip.samples import DataSet, samples_program
from trainwright.compiler.chip.update import gradient_of
from trainwright.compiler.chip.weave import Phase, can_weave, woven
from trainwright.fixed.scale import ScaleRanges
from trainwright.onchip.rates import RateTable
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Descriptor, Halt, Program, Set, Transfer
from trainwright.program.fields import EIGHTH, REGISTERS, Engine
from trainwright.program.vector import Vector
from trainwright.timing.timeline import predict


@dataclass(frozen=True)
class Resident:
    """The program of a step, the slots of its exponents, and the statistics slot of the loss."""

    program: Program
    slots: Slots
    loss_slot: int

    def predicted_cycles(self, parameters: AcceleratorParameters) -> int:
        """Return the cycles of a step between others that renews no coefficients, by the model."""
        step = EIGHTH // 2 + 1
        return predict(self.program.descriptors, parameters, step=step, again=True).cycles


def _begin() -> Set:
    """Between two parts of a step: as at the start of a program, when all engines are idle."""
    zeros = tuple((register, 0) for register in range(1, REGISTERS))
    return Set(values=zeros, seed=0, wait=Engine.ALL)


def _one_after_the_other(phases: Sequence[Phase]) -> list[Descriptor]:
    """Where loops or address registers say what follows what."""
    found: list[Descriptor] = []
    for phase in phases:
        for d in (_begin(), *map(_in_every_step, phase.descriptors)):
            if isinstance(d, Vector) and phase.stream and found[-1] != phase.stream:
                found.append(phase.stream)
            found.append(d)
    return found[1:]


def _in_one_order(phases: Sequence[Phase], step: CompiledStep) -> list[Descriptor]:
    if can_weave(phases):
        return woven(phases, step.parameters)
    return _one_after_the_other(phases)


def _in_every_step(d: Descriptor) -> Descriptor:
    """A phase's own waits are right where all of it is executed."""
    return replace(d, eighth=0) if isinstance(d, Transfer | Vector) else d


def resident_step(
    memory: ChipMemory,
    ranges: ScaleRanges | None,
    seed: int,
    table: RateTable,
    *,
    pulled: bool = False,
    looks: Looks | None = None,
    data: DataSet | None = None,
    loss: str = "cross-entropy",
    optimiser: str = "esgd",
) -> Resident:
    """The step of ``memory``; scales are frozen where ``ranges`` is None.

    ``seed`` is that of the run, ``table`` its schedule, ``pulled`` whether there is a prior, which
    cuts columns itself where there are ``looks``.
    The next step's samples are those of ``data``, and the first step's are there when it begins;
    where it is None the host writes them. Parts of later layers are deferred where that is
    predicted to take fewer cycles. Raises ``CompileError`` where the accelerator has too few slots,
    of exponents or of statistics.
    """
    chosen = _Run(
        memory=memory, seed=seed, table=table, pulled=pulled, looks=looks, data=data, loss=loss,
        optimiser=optimiser, ranges=ranges,
    )  # fmt: skip
    require_one_floor(chosen.programs)
    found = chosen.resident(())
    if later := deferred_parts(memory):
        try:
            other = chosen.resident(later)
        except CompileError:  # it has more slots
            return found
        return min(other, found, key=chosen.cycles)
    return found


@dataclass(frozen=True, kw_only=True)
class _Run(ResidentRun):
    """Scales are frozen where ``ranges`` is None."""

    ranges: ScaleRanges | None

    @property
    def programs(self) -> tuple[CompiledProgram, CompiledProgram]:
        """Forward and backward pass."""
        return self.memory.step.forward, self.memory.step.backward

    def cycles(self, found: Resident) -> int:
        """Return the cycles by which programs are compared."""
        return found.predicted_cycles(self.memory.step.parameters)

    def resident(self, later: Sequence[int]) -> Resident:
        """With the parts of numbers ``later`` deferred. Raises ``CompileError``."""
        memory, step = self.memory, self.memory.step
        p, programs = step.parameters, self.programs
        parts = memory.layout.parts
        late = [parts[n].name for n in later]
        names = [*(moment_name(part.name) for part in parts), *map(older_name, late)]
        slots = Slots.of(programs, names, p)
        tensors = [len(one.tensors) for one in programs]
        extra = sum(tensors)
        if extra + 2 > p.statistics_depth:
            raise CompileError(
                f"the step counts in {extra + 2} statistics slots, the accelerator has "
                f"{p.statistics_depth}; use one with more statistics_depth"
            )
        moments = {gradient_of(part): part.name for part in parts}
        phases = StepPhases(run=self, slots=slots, first=extra, later=later)
        descriptors = [
            *_in_one_order(phases.phases(), step),
            *scales(programs, slots, self.ranges, moments, late, extra + COPY_SLOT),
            Halt(),
        ]
        counted = [t.name for one in programs for t in one.tensors]
        program = Program(tuple(descriptors), p.fingerprint, tuple(counted))
        return Resident(program, slots, extra + LOSS_SLOT)


def resident_evaluation(
    memory: ChipMemory, resident: Resident, test: DataSet, loss: str
) -> Program:
    """A batch of a ``test`` set by the exponents of ``resident``: losses and correct samples in its
    slot of the loss. What it changes in memory the next step makes anew.
    """
    step, slots, first = memory.step, resident.slots, resident.loss_slot - LOSS_SLOT
    phases = [
        Phase("samples", counted_from(first, work_in(samples_program(memory, test)))),
        Phase("forward", with_slots(step.forward, slots, 0)),
        Phase("loss", by_logits(memory, slots, first, counting_program(memory, loss), loss)),
    ]
    p = step.parameters
    return Program((*_in_one_order(phases, step), Halt()), p.fingerprint)

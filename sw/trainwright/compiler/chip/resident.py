"""Compile a whole step as one program that is the same in every step.

It has forward pass, loss, backward pass, update, the next step's samples, and the exponents of the
next step; shifts come from the exponent file, rates from a table in memory. In: ``ChipMemory`` and
the settings of a run. Out: ``Resident``, which ``driver.resident`` starts once for many steps.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from trainwright.compiler.base.compiled import CompiledProgram, CompiledStep
from trainwright.compiler.base.errors import CompileError
from trainwright.compiler.chip.cuts import CutRule
from trainwright.compiler.chip.exponents import (
    ExponentSlots,
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
from trainwright.compiler.chip.samples import SampleRecords, samples_program
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
    slots: ExponentSlots
    loss_slot: int

    def predicted_cycles(self, parameters: AcceleratorParameters) -> int:
        """Return the cycles of a step between others that renews no coefficients, by the model."""
        # Step 5 of eight: neither a renewal nor a step before one, as most steps are.
        step = EIGHTH // 2 + 1
        return predict(self.program.descriptors, parameters, step=step, again=True).cycles


def _begin() -> Set:
    """Return the command between phases that makes all engines idle, as at a start."""
    zeros = tuple((register, 0) for register in range(1, REGISTERS))
    return Set(values=zeros, seed=0, wait=Engine.ALL)


def _one_after_the_other(phases: Sequence[Phase]) -> list[Descriptor]:
    """Join phases whose loops or address registers fix their order."""
    descriptors: list[Descriptor] = []
    for phase in phases:
        for d in (_begin(), *map(_in_every_step, phase.descriptors)):
            if isinstance(d, Vector) and phase.stream and descriptors[-1] != phase.stream:
                descriptors.append(phase.stream)
            descriptors.append(d)
    return descriptors[1:]


def _in_one_order(phases: Sequence[Phase], step: CompiledStep) -> list[Descriptor]:
    if can_weave(phases):
        return woven(phases, step.parameters)
    return _one_after_the_other(phases)


def _in_every_step(d: Descriptor) -> Descriptor:
    """Return a command without its own choice of steps.

    The waits within a phase are right only if all of the phase is executed.
    """
    return replace(d, eighth=0) if isinstance(d, Transfer | Vector) else d


def resident_step(
    memory: ChipMemory,
    ranges: ScaleRanges | None,
    seed: int,
    table: RateTable,
    *,
    pulled: bool = False,
    cut_rule: CutRule | None = None,
    data: SampleRecords | None = None,
    loss: str = "cross-entropy",
    optimiser: str = "esgd",
) -> Resident:
    """Return the step of ``memory``; scales are frozen where ``ranges`` is None.

    ``seed`` belongs to the run, ``table`` is its schedule. With ``pulled`` there is a rank prior,
    which cuts columns itself where there is a ``cut_rule``. The next step's samples come from
    ``data``, and the first step's are there when it begins; where ``data`` is None the host writes
    them. Parts of later layers are deferred where that is predicted to take fewer cycles. Raises
    ``CompileError`` where the accelerator has too few slots, of exponents or of statistics.
    """
    chosen = _Run(
        memory=memory, seed=seed, table=table, pulled=pulled, cut_rule=cut_rule, data=data,
        loss=loss, optimiser=optimiser, ranges=ranges,
    )  # fmt: skip
    require_one_floor(chosen.programs)
    immediate = chosen.resident(())
    # Deferring pays where the forward pass pauses for long enough, which only the predicted cycles
    # of the whole step tell.
    if later := deferred_parts(memory):
        try:
            other = chosen.resident(later)
        except CompileError:  # it has more slots
            return immediate
        return min(other, immediate, key=chosen.cycles)
    return immediate


@dataclass(frozen=True, kw_only=True)
class _Run(ResidentRun):
    """Settings of a run; scales are frozen where ``ranges`` is None."""

    ranges: ScaleRanges | None

    @property
    def programs(self) -> tuple[CompiledProgram, CompiledProgram]:
        """Forward and backward program."""
        return self.memory.step.forward, self.memory.step.backward

    def cycles(self, step: Resident) -> int:
        """Return the cycles by which programs are compared."""
        return step.predicted_cycles(self.memory.step.parameters)

    def resident(self, later: Sequence[int]) -> Resident:
        """Return the step with the parts of numbers ``later`` deferred. Raises ``CompileError``."""
        memory, step = self.memory, self.memory.step
        p, programs = step.parameters, self.programs
        parts = memory.layout.parts
        deferred = [parts[n].name for n in later]
        names = [*(moment_name(part.name) for part in parts), *map(older_name, deferred)]
        slots = ExponentSlots.of(programs, names, p)
        tensors = [len(program.tensors) for program in programs]
        extra = sum(tensors)
        # Two slots in addition to those of tensors: one of the loss, one of copies.
        if extra + 2 > p.statistics_depth:
            raise CompileError(
                f"the step counts in {extra + 2} statistics slots, the accelerator has "
                f"{p.statistics_depth}; use one with more statistics_depth"
            )
        moments = {gradient_of(part): part.name for part in parts}
        phases = StepPhases(run=self, slots=slots, first=extra, later=later)
        descriptors = [
            *_in_one_order(phases.phases(), step),
            *scales(programs, slots, self.ranges, moments, deferred, extra + COPY_SLOT),
            Halt(),
        ]
        counted = [t.name for program in programs for t in program.tensors]
        program = Program(tuple(descriptors), p.fingerprint, tuple(counted))
        return Resident(program, slots, extra + LOSS_SLOT)


def resident_evaluation(
    memory: ChipMemory, resident: Resident, test: SampleRecords, loss: str
) -> Program:
    """Return the program of one batch of a ``test`` set, by the exponents of ``resident``.

    Losses and correct samples are counted in its slot of the loss. What the program changes in
    memory, the next step computes anew.
    """
    step, slots, first = memory.step, resident.slots, resident.loss_slot - LOSS_SLOT
    phases = [
        Phase("samples", counted_from(first, work_in(samples_program(memory, test)))),
        Phase("forward", with_slots(step.forward, slots, 0)),
        Phase("loss", by_logits(memory, slots, first, counting_program(memory, loss), loss)),
    ]
    p = step.parameters
    return Program((*_in_one_order(phases, step), Halt()), p.fingerprint)

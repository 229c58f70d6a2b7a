"""Compile a whole step as one program that is the same in every step.

It has the masks of dropout, forward pass, loss, backward pass, update, the next step's samples, and
the exponents of the next step; shifts come from the exponent file, rates from a table in memory.
In: ``ChipMemory`` and the settings of a run. Out: ``Resident``, which ``driver.resident`` starts
once for many steps. ``weave`` orders the commands of all phases.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from trainwright.compiler.base.limits import STREAMED
from trainwright.compiler.base.rules import Written
from trainwright.compiler.chip.beside import Beside
from trainwright.compiler.chip.exponents import (
    LOSS_SLOT,
    ExponentSlots,
    idle_row,
    moment_name,
    require_one_floor,
    scales,
    with_slots,
)
from trainwright.compiler.chip.loss import loss_program
from trainwright.compiler.chip.masks import masks_program
from trainwright.compiler.chip.memory import ChipMemory, gradient_of
from trainwright.compiler.chip.prior import renewal_program
from trainwright.compiler.chip.samples import SampleRecords, samples_program
from trainwright.compiler.chip.update import UpdateRule
from trainwright.compiler.schedule.weave import Phase, woven
from trainwright.fixed.scale import ScaleRanges
from trainwright.onchip.mask_pass import mask_seed
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Descriptor, Halt, Program, Set
from trainwright.program.fields import EIGHTH
from trainwright.timing.timeline import predict_steps


@dataclass(frozen=True)
class Resident:
    """The program of a step, the slots of its exponents, and the statistics slot of the loss."""

    program: Program
    slots: ExponentSlots
    loss_slot: int

    def predicted_cycles(self, parameters: AcceleratorParameters) -> int:
        """Return the cycles of a step by the model: the mean of the first steps of a start.

        A descriptor executes in every step or in some of eight, so eight steps are a whole period.
        """
        steps = predict_steps(self.program.descriptors, parameters, range(EIGHTH))
        return round(sum(timeline.cycles for timeline in steps) / EIGHTH)


def resident_step(
    memory: ChipMemory,
    ranges: ScaleRanges | None,
    seed: int,
    rule: UpdateRule,
    *,
    data: SampleRecords | None,
    loss: str,
    occupied: Callable[[Written], int],
) -> Resident:
    """Return the step of ``memory``; scales are frozen where ``ranges`` is None.

    ``seed`` belongs to the run. The next step's samples come from ``data``, and the first step's
    are there when it begins; where ``data`` is None the host writes them. Exponents follow the mean
    over the values that ``occupied`` counts. Raises ``CompileError`` where the accelerator has too
    few slots, of exponents or of statistics.
    """
    step, parts = memory.step, memory.layout.parts
    p, programs = step.parameters, (step.forward, step.backward)
    require_one_floor(programs)
    slots = ExponentSlots.of(programs, [moment_name(part.name) for part in parts], p)
    row = idle_row(programs, p)
    forward = with_slots(step.forward, slots, 0, row, p)
    backward = with_slots(step.backward, slots, len(step.forward.tensors), row, p)
    middle = loss_program(memory, loss, slots).descriptors[:-1]
    beside = Beside(memory, slots, (*forward, *middle, *backward), len(forward))
    # Samples first: the update then avoids their rows where there is room for both.
    samples = beside.samples(data) if data else ()
    update = beside.update(rule, samples)
    renewal: Sequence[Descriptor] = ()
    if rule.pulled:
        renewal = beside.earliest(
            lambda rows: renewal_program(memory, rule.table, rule.cut_rule, rows, slots)
        )
    masks = beside.earliest(lambda rows: masks_program(memory, rows, slots=slots, drawn=True))
    # Coefficients and samples come behind what they serve or follow, although most of their
    # commands are executed earlier: a phase is as urgent as its place says.
    phases = [
        Phase("masks", masks, Set(values=(), seed=mask_seed(seed), by_step=True)),
        Phase("forward", forward),
        Phase("renewal", renewal),
        Phase("loss", middle),
        Phase("backward", backward),
        Phase("update", update, Set(values=(), seed=seed, by_step=True)),
        Phase("samples", samples),
    ]
    # Before the commands are ordered, which takes minutes where there are too many.
    length = sum(len(phase.descriptors) for phase in phases)
    STREAMED.require(length, p, f"{step.network.name}: a step on the chip")
    moments = {gradient_of(part): part.name for part in parts}
    descriptors = (*woven(phases, p), *scales(programs, slots, ranges, moments, occupied), Halt())
    counted = [t.name for program in programs for t in program.tensors]
    program = Program(descriptors, p.fingerprint, tuple(counted))
    return Resident(program, slots, slots.statistics + LOSS_SLOT)


def resident_evaluation(
    memory: ChipMemory, resident: Resident, test: SampleRecords, loss: str
) -> Program:
    """Return the program of one batch of a ``test`` set, by the exponents of ``resident``.

    Losses and correct samples are counted in its slot of the loss. What the program changes in
    memory, the next step computes anew.
    """
    step, slots = memory.step, resident.slots
    p = step.parameters
    row = idle_row((step.forward,), p)
    phases = [
        Phase("masks", masks_program(memory, slots=slots, drawn=False).descriptors[:-1]),
        Phase("samples", samples_program(memory, test, slots=slots).descriptors[:-1]),
        Phase("forward", with_slots(step.forward, slots, 0, row, p)),
        Phase("loss", loss_program(memory, loss, slots, counting=True).descriptors[:-1]),
    ]
    return Program((*woven(phases, p), Halt()), p.fingerprint)

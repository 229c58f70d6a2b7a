"""A whole step as one program that is the same in every step: samples, forward, loss, backward,
update and the exponents of the next step; shifts from the exponent file, rates from a table."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from trainwright.compiler.chip.cuts import Looks
from trainwright.compiler.chip.exponents import (
    Slots,
    moment_name,
    require_one_floor,
    scales,
    with_slots,
)
from trainwright.compiler.chip.loss import LOSS_SLOT, counting_program, loss_program
from trainwright.compiler.chip.memory import ChipMemory
from trainwright.compiler.chip.prior import pulls_of
from trainwright.compiler.chip.samples import DataSet, samples_program
from trainwright.compiler.chip.update import gradient_of, update_program
from trainwright.compiler.errors import CompileError
from trainwright.compiler.names import activation_name
from trainwright.fixed.scale import ScaleRanges
from trainwright.onchip import prior_pass, update_pass
from trainwright.onchip.layout import Part
from trainwright.onchip.loss_pass import loss_scalars
from trainwright.onchip.rates import RateTable
from trainwright.onchip.state import BIAS_RATE_SHIFT, momentum_offset
from trainwright.onchip.update_pass import PartUpdate
from trainwright.program.descriptors import Compute, Descriptor, Halt, Program, Set
from trainwright.program.exponents import Scalar, ScalarKind
from trainwright.program.fields import REGISTERS, Engine
from trainwright.program.vector import Vector


@dataclass(frozen=True)
class Resident:
    """The program of a step, the slots of its exponents, and the statistics slot of the loss."""

    program: Program
    slots: Slots
    loss_slot: int


def _begin() -> Set:
    """Between two parts of a step: as at the start of a program, when all engines are idle."""
    zeros = tuple((register, 0) for register in range(1, REGISTERS))
    return Set(values=zeros, seed=0, wait=Engine.ALL)


def _counted_from(slot: int, descriptors: Iterable[Descriptor]) -> list[Descriptor]:
    return [
        replace(d, slot=d.slot + slot) if isinstance(d, Compute | Vector) else d
        for d in descriptors
    ]


def _update_scalars(part: Part, slots: Slots, *, momentum: bool) -> tuple[Scalar, ...]:
    """The moved exponent of a part's pass, and by what ``momentum`` shifts its rate."""
    now, before = slots[gradient_of(part)], slots[moment_name(part.name)]
    kind, offset = ScalarKind, momentum_offset(part)
    moved = (
        Scalar(kind.POWER, update_pass.MOVED_CONSTANT, before, now),
        Scalar(kind.SHIFT, update_pass.MOVED_SHIFT, now, before),
    )
    rate = Scalar(kind.VALUE, update_pass.RATE_CONSTANT, minus=now, offset=offset)
    return (*moved, rate) if momentum else moved


def _pull_scalars(part: Part, slots: Slots) -> tuple[Scalar, ...]:
    """Minus the exponent of a part's gradient."""
    minus = slots[gradient_of(part)]
    return (Scalar(ScalarKind.VALUE, prior_pass.MINUS_GRADIENT, minus=minus),)


def _loss(memory: ChipMemory, slots: Slots, first: int, loss: str) -> list[Descriptor]:
    return _by_logits(memory, slots, first, loss_program(memory, loss, None), loss)


def _by_logits(
    memory: ChipMemory, slots: Slots, first: int, program: Program, loss: str
) -> list[Descriptor]:
    """A program of a loss, whose passes go by the exponent of the logits."""
    by = loss_scalars(loss, slots[activation_name(len(memory.step.network.layers))])
    found = _counted_from(first, program.descriptors[:-1])
    return [replace(d, scalars=by) if isinstance(d, Vector) else d for d in found]


def _samples(memory: ChipMemory, data: DataSet | None, first: int) -> list[Descriptor]:
    if data is None:
        return []
    return [*_counted_from(first, samples_program(memory, data).descriptors[:-1]), _begin()]


def _update(
    memory: ChipMemory, slots: Slots, first: int, seed: int, table: RateTable, *, pulled: bool,
    looks: Looks | None, optimiser: str,
) -> list[Descriptor]:  # fmt: skip
    momentum = optimiser == "momentum"
    bonds = memory.layout.bonds if pulled else ()
    left = {bond.right.part for bond in bonds}
    right = {bond.left.part for bond in bonds}
    parts = memory.layout.parts
    given = [
        PartUpdate(
            hidden=part.hidden, rate=0, momentum=momentum,
            rate_shift=BIAS_RATE_SHIFT * (part.index < 0),
            left=n in left, right=n in right, nibbles=memory.needs_nibbles(part), resident=True,
            cuts=looks is not None,
        )
        for n, part in enumerate(parts)
    ]  # fmt: skip
    by = {part.name: _update_scalars(part, slots, momentum=momentum) for part in parts}
    by |= {pulls_of(part): _pull_scalars(part, slots) for part in parts}
    program = update_program(memory, given, seed, table, looks)
    found = _counted_from(first, program.descriptors[:-1])
    return [
        replace(d, scalars=by[d.tensor]) if isinstance(d, Vector) and d.tensor in by else d
        for d in found
    ]


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
    Samples are those of ``data``; where it is None the host writes them. Raises ``CompileError``
    where the accelerator has too few slots, of exponents or of statistics.
    """
    step = memory.step
    p, programs = step.parameters, (step.forward, step.backward)
    require_one_floor(programs)
    parts = memory.layout.parts
    slots = Slots.of(programs, [moment_name(part.name) for part in parts], p)
    tensors = [len(one.tensors) for one in programs]
    extra = sum(tensors)
    if extra + 2 > p.statistics_depth:
        raise CompileError(
            f"the step counts in {extra + 2} statistics slots, the accelerator has "
            f"{p.statistics_depth}; use one with more statistics_depth"
        )
    moments = {gradient_of(part): part.name for part in parts}
    descriptors = [
        *_samples(memory, data, extra),
        *with_slots(step.forward, slots, 0),
        _begin(),
        *_loss(memory, slots, extra, loss),
        _begin(),
        *with_slots(step.backward, slots, tensors[0]),
        _begin(),
        *_update(
            memory, slots, extra, seed, table, pulled=pulled, looks=looks, optimiser=optimiser
        ),
        *scales(programs, slots, ranges, moments),
        Halt(),
    ]
    names = [t.name for one in programs for t in one.tensors]
    program = Program(tuple(descriptors), p.fingerprint, tuple(names))
    return Resident(program, slots, extra + LOSS_SLOT)


def resident_evaluation(
    memory: ChipMemory, resident: Resident, test: DataSet, loss: str
) -> Program:
    """A batch of a ``test`` set by the exponents of ``resident``: losses and correct samples in its
    slot of the loss. What it changes in memory the next step makes anew."""
    step, slots, first = memory.step, resident.slots, resident.loss_slot - LOSS_SLOT
    descriptors = [
        *_samples(memory, test, first),
        *with_slots(step.forward, slots, 0),
        _begin(),
        *_by_logits(memory, slots, first, counting_program(memory, loss), loss),
        Halt(),
    ]
    return Program(tuple(descriptors), step.parameters.fingerprint)

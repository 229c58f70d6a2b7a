"""A whole step as one program that is the same in every step: forward, loss, backward, update,
samples and exponents of the next step; shifts from the exponent file, rates from a table."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from trainwright.compiler.chip.beside import Beside
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
from trainwright.compiler.chip.update import gradient_of
from trainwright.compiler.chip.weave import Phase, can_weave, woven
from trainwright.compiler.errors import CompileError
from trainwright.compiler.names import activation_name
from trainwright.compiler.step import CompiledStep
from trainwright.fixed.scale import ScaleRanges
from trainwright.onchip import prior_pass, update_pass
from trainwright.onchip.layout import Part
from trainwright.onchip.loss_pass import loss_scalars
from trainwright.onchip.rates import RateTable
from trainwright.onchip.state import BIAS_RATE_SHIFT, momentum_offset
from trainwright.onchip.update_pass import PartUpdate
from trainwright.program.descriptors import Compute, Descriptor, Halt, Program, Set, Transfer
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


def _by_logits(
    memory: ChipMemory, slots: Slots, first: int, program: Program, loss: str
) -> list[Descriptor]:
    """A program of a loss, whose passes go by the exponent of the logits."""
    by = loss_scalars(loss, slots[activation_name(len(memory.step.network.layers))])
    found = _counted_from(first, program.descriptors[:-1])
    return [replace(d, scalars=by) if isinstance(d, Vector) else d for d in found]


def _part_updates(
    memory: ChipMemory, *, pulled: bool, looks: Looks | None, optimiser: str
) -> list[PartUpdate]:
    momentum = optimiser == "momentum"
    bonds = memory.layout.bonds if pulled else ()
    left = {bond.right.part for bond in bonds}
    right = {bond.left.part for bond in bonds}
    return [
        PartUpdate(
            hidden=part.hidden, rate=0, momentum=momentum,
            rate_shift=BIAS_RATE_SHIFT * (part.index < 0),
            left=n in left, right=n in right, resident=True,
            cuts=looks is not None,
        )
        for n, part in enumerate(memory.layout.parts)
    ]  # fmt: skip


def _with_scalars(
    memory: ChipMemory, slots: Slots, descriptors: Sequence[Descriptor], optimiser: str
) -> list[Descriptor]:
    """Those of the update, with what the exponent file gives its passes."""
    parts, momentum = memory.layout.parts, optimiser == "momentum"
    by = {part.name: _update_scalars(part, slots, momentum=momentum) for part in parts}
    by |= {pulls_of(part): _pull_scalars(part, slots) for part in parts}
    return [
        replace(d, scalars=by[d.tensor]) if isinstance(d, Vector) and d.tensor in by else d
        for d in descriptors
    ]


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


def _phases(
    memory: ChipMemory,
    slots: Slots,
    first: int,
    seed: int,
    table: RateTable,
    *,
    pulled: bool,
    looks: Looks | None,
    data: DataSet | None,
    loss: str,
    optimiser: str,
) -> list[Phase]:
    """A step; statistics of forward and backward pass are counted before slot ``first``."""
    step = memory.step
    forward = with_slots(step.forward, slots, 0)
    backward = with_slots(step.backward, slots, len(step.forward.tensors))
    middle = _by_logits(memory, slots, first, loss_program(memory, loss, None), loss)
    beside = Beside(memory, (*forward, *middle, *backward), len(forward))
    samples = beside.samples(data) if data else None
    given = _part_updates(memory, pulled=pulled, looks=looks, optimiser=optimiser)
    update = _counted_from(first, _work(beside.update(given, seed, table, looks, samples)))
    stream = Set(values=(), seed=seed, by_step=True)
    phases = [
        Phase("forward", forward),
        Phase("loss", middle),
        Phase("backward", backward),
        Phase("update", _with_scalars(memory, slots, update, optimiser), stream),
    ]
    if pulled:
        renewal = Phase(
            "renewal", _counted_from(first, _work(beside.renewal(table, looks))), turn=1
        )
        phases.insert(0, renewal)
    if samples:
        phases.append(Phase("samples", _counted_from(first, _work(samples))))
    return phases


def _work(program: Program) -> list[Descriptor]:
    """What engines do in a program."""
    return [d for d in program.descriptors if not isinstance(d, Set | Halt)]


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
    where it is None the host writes them. Raises ``CompileError``
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
    phases = _phases(
        memory, slots, extra, seed, table,
        pulled=pulled, looks=looks, data=data, loss=loss, optimiser=optimiser,
    )  # fmt: skip
    descriptors = [
        *_in_one_order(phases, step),
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
    phases = [
        Phase("samples", _counted_from(first, _work(samples_program(memory, test)))),
        Phase("forward", with_slots(step.forward, slots, 0)),
        Phase("loss", _by_logits(memory, slots, first, counting_program(memory, loss), loss)),
    ]
    p = step.parameters
    return Program((*_in_one_order(phases, step), Halt()), p.fingerprint)

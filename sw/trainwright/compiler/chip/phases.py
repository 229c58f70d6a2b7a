"""The phases of a resident step: what it does, in the order in which values depend on one another.

Parts of later layers are *deferred*: the step that made their gradients leaves them to the next
one, which updates them while its forward pass is at the layers before. The last step of a run
leaves nothing.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from trainwright.compiler.base.memory import Region
from trainwright.compiler.base.names import activation_name
from trainwright.compiler.chip.beside import Beside
from trainwright.compiler.chip.cuts import Looks
from trainwright.compiler.chip.exponents import Slots, moment_name, older_name, with_slots
from trainwright.compiler.chip.loss import loss_program
from trainwright.compiler.chip.memory import ChipMemory
from trainwright.compiler.chip.prior import pulls_of, renewal_program
from trainwright.compiler.chip.samples import DataSet
from trainwright.compiler.chip.update import (
    gradient_of,
    is_moved,
    update_program,
)
from trainwright.compiler.chip.weave import Phase, can_weave
from trainwright.fixed.random_bits import STREAM_STEP
from trainwright.onchip import prior_pass, update_pass
from trainwright.onchip.layout import WeightPart
from trainwright.onchip.loss import loss_scalars
from trainwright.onchip.rates import RateTable
from trainwright.onchip.state import BIAS_RATE_SHIFT, momentum_offset
from trainwright.onchip.update_pass import PartUpdate
from trainwright.program.descriptors import Compute, Descriptor, Halt, Program, Set, Transfer
from trainwright.program.exponents import Scalar, ScalarKind
from trainwright.program.fields import REGISTER_WIDTH
from trainwright.program.vector import Code, Vector


def counted_from(slot: int, descriptors: Iterable[Descriptor]) -> list[Descriptor]:
    """With statistics from this slot on."""
    return [
        replace(d, slot=d.slot + slot) if isinstance(d, Compute | Vector) else d
        for d in descriptors
    ]


@dataclass(frozen=True)
class _Exponents:
    """Names of the slots of a part's exponents: of its moments and of its gradient."""

    before: str
    now: str

    @classmethod
    def of(cls, part: WeightPart, *, late: bool) -> "_Exponents":
        """In an update that may be that of the step before: the exponents have moved since."""
        moments = moment_name(part.name)
        return cls(older_name(part.name), moments) if late else cls(moments, gradient_of(part))


def _update_scalars(
    names: _Exponents, part: WeightPart, slots: Slots, *, momentum: bool
) -> tuple[Scalar, ...]:
    """The moved exponent of a part's pass, and by what ``momentum`` shifts its rate."""
    now, before = slots[names.now], slots[names.before]
    kind, offset = ScalarKind, momentum_offset(part)
    moved = (
        Scalar(kind.POWER, update_pass.MOVED_CONSTANT, before, now),
        Scalar(kind.SHIFT, update_pass.MOVED_SHIFT, now, before),
    )
    rate = Scalar(kind.VALUE, update_pass.RATE_CONSTANT, minus=now, offset=offset)
    return (*moved, rate) if momentum else moved


def _pull_scalars(names: _Exponents, slots: Slots) -> tuple[Scalar, ...]:
    """Minus the exponent of a part's gradient."""
    return (Scalar(ScalarKind.VALUE, prior_pass.MINUS_GRADIENT, minus=slots[names.now]),)


def by_logits(
    memory: ChipMemory, slots: Slots, first: int, program: Program, loss: str
) -> list[Descriptor]:
    """A program of a loss, whose passes go by the exponent of the logits."""
    by = loss_scalars(loss, slots[activation_name(len(memory.step.network.layers))])
    found = counted_from(first, program.descriptors[:-1])
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
    memory: ChipMemory, slots: Slots, descriptors: Sequence[Descriptor], optimiser: str, *,
    late: bool = False,
) -> list[Descriptor]:  # fmt: skip
    """Those of an update, which is that of the step before where it is ``late``, with what the
    exponent file gives its passes.
    """
    momentum = optimiser == "momentum"
    by: dict[str, tuple[Scalar, ...]] = {}
    for part in memory.layout.parts:
        if late and older_name(part.name) not in slots.numbers:
            continue
        names = _Exponents.of(part, late=late)
        by[part.name] = _update_scalars(names, part, slots, momentum=momentum)
        by[pulls_of(part)] = _pull_scalars(names, slots)
    return [
        replace(d, scalars=by[d.tensor]) if isinstance(d, Vector) and d.tensor in by else d
        for d in descriptors
    ]


def _stream_before(seed: int) -> int:
    """The stream that ``seed`` was in the step before."""
    return (seed - 2 * STREAM_STEP) % (1 << REGISTER_WIDTH)


def deferred_parts(memory: ChipMemory) -> list[int]:
    """Numbers of the parts that a step leaves to the next one: factors of all layers but the first,
    of which PE1 has nothing to move.
    """
    step = memory.step
    main = [*step.forward.descriptors[:-1], *step.backward.descriptors[:-1]]
    if not can_weave([Phase("step", main)]):
        return []
    return [
        n for n, part in enumerate(memory.layout.parts) if part.layer and not is_moved(memory, part)
    ]


def _only(descriptors: Sequence[Descriptor], **turn: bool) -> list[Descriptor]:
    """All but in the first step of a run (``later``), or in the ``last`` one alone; instructions
    are put into the engine in every step where others may follow them.
    """
    kinds = Transfer | Vector | Code if "last" in turn else Transfer | Vector
    assert not any(isinstance(d, Compute) for d in descriptors)
    return [replace(d, **turn) if isinstance(d, kinds) else d for d in descriptors]


def work_in(program: Program) -> list[Descriptor]:
    """What engines do in a program."""
    return [d for d in program.descriptors if not isinstance(d, Set | Halt)]


@dataclass(frozen=True, kw_only=True)
class ResidentRun:
    """What the steps of a run have in common, of ``memory`` and of a schedule of rates.

    ``seed`` is that of the run. ``pulled``: there is a prior, which cuts columns where there are
    ``looks``. Samples are those of ``data``, or written by the host.
    """

    memory: ChipMemory
    seed: int
    table: RateTable
    pulled: bool
    looks: Looks | None
    data: DataSet | None
    loss: str
    optimiser: str


@dataclass(frozen=True, kw_only=True)
class StepPhases:
    """A step of a ``run``. Statistics of forward and backward pass are counted before slot
    ``first``; the parts of numbers ``later`` are deferred.
    """

    run: ResidentRun
    slots: Slots
    first: int
    later: Sequence[int]

    def phases(self) -> list[Phase]:
        """All of it, in order."""
        memory, step = self.run.memory, self.run.memory.step
        forward = with_slots(step.forward, self.slots, 0)
        backward = with_slots(step.backward, self.slots, len(step.forward.tensors))
        loss = loss_program(memory, self.run.loss, None)
        middle = by_logits(memory, self.slots, self.first, loss, self.run.loss)
        beside = Beside(memory, (*forward, *middle, *backward), len(forward))
        samples = beside.samples(self.run.data) if self.run.data else None
        now = [n for n in range(len(memory.layout.parts)) if n not in self.later]
        update = beside.update(
            self._given, self.run.seed, self.run.table, self.run.looks, samples, now
        )
        phases = [
            *self._forward(beside, forward),
            Phase("loss", middle),
            Phase("backward", backward),
            Phase("update", self._scaled(update, late=False), self._stream(self.run.seed)),
        ]
        if samples:
            phases.append(Phase("samples", self._counted(samples)))
        if self.later:
            rest = self._scaled(self._deferred((), late=False), late=False)
            phases.append(Phase("rest", _only(rest, last=True), self._stream(self.run.seed)))
        return phases

    def _forward(self, beside: Beside, forward: Sequence[Descriptor]) -> list[Phase]:
        """With what the step before has left, and the prior's coefficients, in its pause."""
        if not self.later:
            pause = beside.beginning
            return [*self._renewal(beside, pause, ()), Phase("forward", forward)]
        pause = beside.pause(self._deferred((), late=True).descriptors)
        program = beside.within(pause, lambda rows: self._deferred(rows, late=True))
        late = self._scaled(program, late=True)
        return [
            Phase("forward", forward[: pause.start]),
            Phase(
                "deferred",
                _only(late, later=True),
                self._stream(_stream_before(self.run.seed)),
                waits=True,
            ),
            *self._renewal(beside, pause, program.descriptors),
            Phase("forward from the pause on", forward[pause.start :]),
        ]

    def _renewal(self, beside: Beside, pause: range, others: Sequence[Descriptor]) -> list[Phase]:
        if not self.run.pulled:
            return []
        program = beside.within(
            pause,
            lambda rows: renewal_program(self.run.memory, self.run.table, self.run.looks, rows),
            others,
        )
        return [Phase("renewal", self._counted(program), turn=1)]

    def _deferred(self, avoid: Sequence[Region], *, late: bool) -> Program:
        rows = dict.fromkeys(self.later, avoid)
        return update_program(
            self.run.memory, self._given, self.run.seed, self.run.table, self.run.looks, rows,
            of=self.later, deferred=True, late=late,
        )  # fmt: skip

    @property
    def _given(self) -> list[PartUpdate]:
        return _part_updates(
            self.run.memory,
            pulled=self.run.pulled,
            looks=self.run.looks,
            optimiser=self.run.optimiser,
        )

    def _stream(self, seed: int) -> Set:
        return Set(values=(), seed=seed, by_step=True)

    def _counted(self, program: Program) -> list[Descriptor]:
        return counted_from(self.first, work_in(program))

    def _scaled(self, update: Program, *, late: bool) -> list[Descriptor]:
        return _with_scalars(
            self.run.memory, self.slots, self._counted(update), self.run.optimiser, late=late
        )

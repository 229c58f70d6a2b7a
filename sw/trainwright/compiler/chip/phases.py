"""List the phases of a resident step, in the order in which values depend on one another.

Parts of later layers may be *deferred*: the step that computed their gradients leaves them to the
next one, which updates them while its forward pass is at the layers before. The last step of a run
leaves nothing. ``resident`` compiles the step with and without deferred parts, and ``weave`` orders
the commands of all phases.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from trainwright.compiler.base.memory import Region
from trainwright.compiler.base.names import activation_name
from trainwright.compiler.chip.beside import Beside
from trainwright.compiler.chip.cuts import CutRule
from trainwright.compiler.chip.exponents import ExponentSlots, moment_name, older_name, with_slots
from trainwright.compiler.chip.loss import loss_program
from trainwright.compiler.chip.memory import ChipMemory
from trainwright.compiler.chip.prior import pulls_of, renewal_program
from trainwright.compiler.chip.samples import SampleRecords
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
    """Return descriptors with statistics from this slot on."""
    return [
        replace(d, slot=d.slot + slot) if isinstance(d, Compute | Vector) else d
        for d in descriptors
    ]


@dataclass(frozen=True)
class _Exponents:
    """Slot names of a part's exponents: of its moments and of its gradient."""

    before: str
    now: str

    @classmethod
    def of(cls, part: WeightPart, *, previous: bool) -> "_Exponents":
        """Name the slots for an update.

        ``previous``: it belongs to the step before, whose exponents have moved since.
        """
        moments = moment_name(part.name)
        return cls(older_name(part.name), moments) if previous else cls(moments, gradient_of(part))


def _update_scalars(
    names: _Exponents, part: WeightPart, slots: ExponentSlots, *, momentum: bool
) -> tuple[Scalar, ...]:
    """Return the moved exponent of a part's pass, and with ``momentum`` the shift of its rate."""
    now, before = slots[names.now], slots[names.before]
    # The moments were stored at the exponent of the last gradient. Where the new gradient has
    # another one they are shifted by the difference: a multiplication for an exponent that fell, a
    # shift for one that rose.
    kind, offset = ScalarKind, momentum_offset(part)
    moved = (
        Scalar(kind.POWER, update_pass.MOVED_CONSTANT, before, now),
        Scalar(kind.SHIFT, update_pass.MOVED_SHIFT, now, before),
    )
    rate = Scalar(kind.VALUE, update_pass.RATE_CONSTANT, minus=now, offset=offset)
    return (*moved, rate) if momentum else moved


def _pull_scalars(names: _Exponents, slots: ExponentSlots) -> tuple[Scalar, ...]:
    """Return the scalar with minus the exponent of a part's gradient."""
    # A pull is computed in absolute units and added to a gradient's integers, so it is divided by
    # 2^exponent of the gradient.
    return (Scalar(ScalarKind.VALUE, prior_pass.MINUS_GRADIENT, minus=slots[names.now]),)


def by_logits(
    memory: ChipMemory, slots: ExponentSlots, first: int, program: Program, loss: str
) -> list[Descriptor]:
    """Return a loss program's descriptors, whose passes take the exponent of the logits."""
    scalars = loss_scalars(loss, slots[activation_name(len(memory.step.network.layers))])
    descriptors = counted_from(first, program.descriptors[:-1])
    return [replace(d, scalars=scalars) if isinstance(d, Vector) else d for d in descriptors]


def _part_updates(
    memory: ChipMemory, *, pulled: bool, cut_rule: CutRule | None, optimiser: str
) -> list[PartUpdate]:
    momentum = optimiser == "momentum"
    # A bond joins two parts: it is on the left of the part whose first axis it is, and on the right
    # of the part that has it along the lanes.
    bonds = memory.layout.bonds if pulled else ()
    left = {bond.right.part for bond in bonds}
    right = {bond.left.part for bond in bonds}
    return [
        PartUpdate(
            hidden=part.hidden, rate=0, momentum=momentum,
            rate_shift=BIAS_RATE_SHIFT * (part.index < 0),
            left=n in left, right=n in right, resident=True,
            cuts=cut_rule is not None,
        )
        for n, part in enumerate(memory.layout.parts)
    ]  # fmt: skip


def _with_scalars(
    memory: ChipMemory, slots: ExponentSlots, descriptors: Sequence[Descriptor], optimiser: str, *,
    previous: bool = False,
) -> list[Descriptor]:  # fmt: skip
    """Return an update's descriptors with what the exponent file gives its passes.

    ``previous``: the update belongs to the step before.
    """
    momentum = optimiser == "momentum"
    by: dict[str, tuple[Scalar, ...]] = {}
    for part in memory.layout.parts:
        # Only deferred parts have an older exponent; the rest were updated in their own step.
        if previous and older_name(part.name) not in slots.numbers:
            continue
        names = _Exponents.of(part, previous=previous)
        by[part.name] = _update_scalars(names, part, slots, momentum=momentum)
        by[pulls_of(part)] = _pull_scalars(names, slots)
    return [
        replace(d, scalars=by[d.tensor]) if isinstance(d, Vector) and d.tensor in by else d
        for d in descriptors
    ]


def _stream_before(seed: int) -> int:
    """Return the stream that ``seed`` was in the step before."""
    # A deferred update draws the random bits that it would have drawn in its own step, so that
    # deferring changes no bit. A step takes two streams.
    return (seed - 2 * STREAM_STEP) % (1 << REGISTER_WIDTH)


def deferred_parts(memory: ChipMemory) -> list[int]:
    """Return the numbers of the parts that a step may leave to the next one.

    These are parts of all layers but the first, for which PE1 has nothing to move: PE1 is the array
    that the forward pass keeps busy.
    """
    step = memory.step
    main = [*step.forward.descriptors[:-1], *step.backward.descriptors[:-1]]
    # Deferred commands have to go between others; loops and registers would fix the order.
    if not can_weave([Phase("step", main)]):
        return []
    return [
        n for n, part in enumerate(memory.layout.parts) if part.layer and not is_moved(memory, part)
    ]


def _only(descriptors: Sequence[Descriptor], **when: bool) -> list[Descriptor]:
    """Restrict descriptors to all steps but the first (``later``) or to the ``last`` one of a run.

    With ``later`` instructions are put into the engine in every step, as passes behind rely on
    them.
    """
    kinds = Transfer | Vector | Code if "last" in when else Transfer | Vector
    assert not any(isinstance(d, Compute) for d in descriptors)
    return [replace(d, **when) if isinstance(d, kinds) else d for d in descriptors]


def work_in(program: Program) -> list[Descriptor]:
    """Return the commands for engines of a program."""
    return [d for d in program.descriptors if not isinstance(d, Set | Halt)]


@dataclass(frozen=True, kw_only=True)
class ResidentRun:
    """Settings that all steps of a run share.

    ``seed`` belongs to the run. ``pulled``: there is a rank prior, which cuts columns where there
    is a ``cut_rule``. Samples come from ``data``, or are written by the host.
    """

    memory: ChipMemory
    seed: int
    table: RateTable
    pulled: bool
    cut_rule: CutRule | None
    data: SampleRecords | None
    loss: str
    optimiser: str


@dataclass(frozen=True, kw_only=True)
class StepPhases:
    """Phases of one step of a ``run``.

    Statistics of forward and backward pass are counted before slot ``first``; the parts with
    numbers ``later`` are deferred.
    """

    run: ResidentRun
    slots: ExponentSlots
    first: int
    later: Sequence[int]

    def phases(self) -> list[Phase]:
        """Return all phases, in order."""
        memory, step = self.run.memory, self.run.memory.step
        # Statistics slots: forward pass, backward pass, then loss and copies from ``first`` on.
        forward = with_slots(step.forward, self.slots, 0)
        backward = with_slots(step.backward, self.slots, len(step.forward.tensors))
        loss = loss_program(memory, self.run.loss, None)
        middle = by_logits(memory, self.slots, self.first, loss, self.run.loss)
        beside = Beside(memory, (*forward, *middle, *backward), len(forward))
        # Samples first: the update then avoids their rows where there is room for both.
        samples = beside.samples(self.run.data) if self.run.data else None
        now = [n for n in range(len(memory.layout.parts)) if n not in self.later]
        update = beside.update(
            self._given, self.run.seed, self.run.table, self.run.cut_rule, samples, now
        )
        phases = [
            *self._forward(beside, forward),
            Phase("loss", middle),
            Phase("backward", backward),
            Phase("update", self._scaled(update, previous=False), self._stream(self.run.seed)),
        ]
        # Behind the update in the order of values, although most of it is executed much earlier:
        # nothing in this step reads what it writes.
        if samples:
            phases.append(Phase("samples", self._counted(samples)))
        if self.later:
            # The last step of a run has no next step to leave work to, so it executes the same
            # update once more, in its own place; in every other step these commands are skipped.
            rest = self._scaled(self._deferred((), previous=False), previous=False)
            phases.append(Phase("rest", _only(rest, last=True), self._stream(self.run.seed)))
        return phases

    def _forward(self, beside: Beside, forward: Sequence[Descriptor]) -> list[Phase]:
        """Return the forward pass with the deferred parts and the prior's renewal in its pause."""
        if not self.later:
            pause = beside.beginning
            return [*self._renewal(beside, pause, ()), Phase("forward", forward)]
        # Compiled once without rows to avoid, only to know how much time the deferred passes need.
        pause = beside.pause(self._deferred((), previous=True).descriptors)
        program = beside.within(pause, lambda rows: self._deferred(rows, previous=True))
        previous = self._scaled(program, previous=True)
        return [
            Phase("forward", forward[: pause.start]),
            Phase(
                "deferred",
                _only(previous, later=True),
                self._stream(_stream_before(self.run.seed)),
                waits=True,
            ),
            *self._renewal(beside, pause, program.descriptors),
            Phase("forward from the pause on", forward[pause.start :]),
        ]

    def _renewal(
        self, beside: Beside, pause: range, neighbours: Sequence[Descriptor]
    ) -> list[Phase]:
        if not self.run.pulled:
            return []
        program = beside.within(
            pause,
            lambda rows: renewal_program(self.run.memory, self.run.table, self.run.cut_rule, rows),
            neighbours,
        )
        return [Phase("renewal", self._counted(program), delay=1)]

    def _deferred(self, avoid: Sequence[Region], *, previous: bool) -> Program:
        rows = dict.fromkeys(self.later, avoid)
        return update_program(
            self.run.memory, self._given, self.run.seed, self.run.table, self.run.cut_rule, rows,
            only=self.later, deferred=True, previous=previous,
        )  # fmt: skip

    @property
    def _given(self) -> list[PartUpdate]:
        return _part_updates(
            self.run.memory,
            pulled=self.run.pulled,
            cut_rule=self.run.cut_rule,
            optimiser=self.run.optimiser,
        )

    def _stream(self, seed: int) -> Set:
        return Set(values=(), seed=seed, by_step=True)

    def _counted(self, program: Program) -> list[Descriptor]:
        return counted_from(self.first, work_in(program))

    def _scaled(self, update: Program, *, previous: bool) -> list[Descriptor]:
        return _with_scalars(
            self.run.memory,
            self.slots,
            self._counted(update),
            self.run.optimiser,
            previous=previous,
        )

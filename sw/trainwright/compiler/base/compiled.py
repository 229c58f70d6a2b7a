"""Compiled programs of a training step, and how the driver binds them to exponents.

The compiler leaves shifts at 0, because exponents change from step to step.
``CompiledProgram.bind`` sets the shifts by the rules of ``base.rules``; the exponent file of the
hardware follows the same rules (``chip.exponents``).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from trainwright.compiler.base.memory import Buffer
from trainwright.compiler.base.rules import Rule, Written
from trainwright.fixed.align import Alignment, aligned
from trainwright.formats import Format
from trainwright.formats.rounding import MAX_SHIFT
from trainwright.graph.casts import WORD
from trainwright.network import Network
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Descriptor, Program, Set
from trainwright.program.vector import Vector
from trainwright.timing import MemoryTiming, Timeline, predict

AUTO = "auto"
"""Plan that searches contraction order, layouts and tiling."""
PAPER = "paper"
"""Plan with the contraction order of the paper's equations 8 to 19; layouts and tiling are
searched."""
SMALL = "small"
"""Plan whose backward pass computes products of the forward pass again, which ``AUTO`` stores.

A step then needs less external memory (``trainwright.graph.remake``).
"""
PLANS = (AUTO, PAPER, SMALL)
"""Names of the plans that a user can ask for."""
IN_ROWS = {AUTO: "in-rows", SMALL: "small-in-rows"}
"""Variants of plans for training on the chip: programs use the rows of the state there."""
FOLLOWED = {in_rows: plan for plan, in_rows in IN_ROWS.items()}
"""Plan of which each plan in rows is a variant."""


@dataclass(frozen=True)
class Bound:
    """Program with shifts, and the exponents of its tensors.

    ``exponents`` has every operand and every tensor that the program writes. ``floors`` has, for
    every tensor that it writes, the exponent of the exact sum, which is the least possible
    exponent.
    """

    program: Program
    exponents: dict[str, int]
    floors: dict[str, int]


@dataclass
class _Last:
    """Arguments and result of the last binding, to reuse where exponents did not change."""

    asked: tuple[dict[str, int], dict[str, int], bool] | None = None
    """Exponents wanted and given, and whether results are rounded stochastically."""
    bound: Bound | None = None
    """Result, without a seed."""
    descriptors: dict[int, Descriptor] = field(default_factory=dict)
    """Descriptors bound last, by index."""


@dataclass(frozen=True)
class CompiledProgram:
    """Descriptors without shifts, and the rules that give them."""

    descriptors: tuple[Descriptor, ...]
    rules: dict[int, Rule]
    tensors: tuple[Written, ...]
    images: tuple[Buffer, ...]
    """Buffers of factors in the layouts that the program reads, and of constants."""
    macs: int
    address: int
    """Address of the program in external memory."""
    fingerprint: int
    most_alignment: int
    """Most bits by which a BIAS descriptor can shift an operand to the left."""
    constants: Mapping[str, int] = field(default_factory=dict)
    """Exponents of the constants that the program reads."""
    _last: _Last = field(default_factory=_Last, compare=False, repr=False)

    @property
    def program(self) -> Program:
        """The program with shifts of 0."""
        return Program(self.descriptors, self.fingerprint, tuple(t.name for t in self.tensors))

    def _with(self, index: int, **fields: Any) -> Descriptor:
        """Return a descriptor with these fields; the object bound last, if its fields are equal."""
        d = self._last.descriptors.get(index, self.descriptors[index])
        if any(getattr(d, name) != value for name, value in fields.items()):
            d = self._last.descriptors[index] = replace(d, **fields)
        return d

    @cached_property
    def uncounted(self) -> frozenset[str]:
        """Names of tensors whose saturated values are not counted: passes count sums alone."""
        return frozenset(rule.z.name for rule in self.rules.values() if rule.kernel is not None)

    @cached_property
    def coarsest(self) -> dict[str, int]:
        """Greatest exponents that tensors may have where functions take no greater one as it is."""
        read = (
            (rule.x, rule.kernel.coarsest)
            for rule in self.rules.values()
            if rule.kernel is not None
        )
        return {self.makers.get(x, x): most for x, most in read if most is not None}

    @cached_property
    def makers(self) -> dict[str, str]:
        """Tensor that gives each written tensor its exponent: itself, or the source of a copy."""
        passed = {rule.z.name: rule.x for rule in self.rules.values() if rule.keeps_exponent}
        return {rule.z.name: passed.get(rule.z.name, rule.z.name) for rule in self.rules.values()}

    def bind(
        self,
        wanted: Mapping[str, int],
        operands: Mapping[str, int],
        *,
        seed: int | None = None,
    ) -> Bound:
        """Set every shift so that tensors get their ``wanted`` exponents.

        ``operands`` are the exponents of the tensors that the program reads: inputs, factors,
        biases, and results of the program before. A tensor gets its wanted exponent, or its floor
        when the floor is larger, as shifts go to the right only. Operands of a sum can be at most
        ``most_alignment`` apart, and a running sum at most as far above its parts: exponents are
        raised until that holds, and the result has the exponents as raised. With a ``seed`` (32
        bits) results are rounded stochastically, and the program begins with a SET of the seed.
        """
        # Most steps ask for the same exponents as the step before: return the same result.
        asked = dict(wanted), {**self.constants, **operands}, seed is not None
        bound = self._last.bound
        if bound is None or self._last.asked != asked:
            # Aligning the operands of a sum can raise exponents of tensors bound earlier, so
            # ``aligned`` binds again until no exponent moves.
            bound = aligned(lambda w, g: self._bound(w, g, stochastic=asked[2]), *asked[:2])
            self._last.asked, self._last.bound = asked, bound
        program = bound.program
        if seed is not None:
            seeded = (Set(values=(), seed=seed), *program.descriptors)
            program = replace(program, descriptors=seeded)
        return Bound(program, dict(bound.exponents), dict(bound.floors))

    def _bound(
        self, wanted: Mapping[str, int], operands: Mapping[str, int], *, stochastic: bool
    ) -> Bound:
        exponents, floors = dict(operands), {}
        alignment = Alignment(self.makers, exponents, self.most_alignment)
        descriptors = list(self.descriptors)
        for index, rule in self.rules.items():
            z, d = rule.z.name, descriptors[index]
            read = [name for name in (rule.x, rule.g) if name is not None]
            # The kernel of a pass decides the exponent of the result.
            if rule.kernel is not None:
                assert isinstance(d, Vector)
                each = [exponents[name] for name in read]
                scale = rule.kernel.bound(each, rule.z.width, wanted.get(z))
                # The first constants are those that change with exponents; the rest belong to the
                # kernel.
                constants = (*scale.constants, *d.constants[len(scale.constants) :])
                descriptors[index] = self._with(index, constants=constants)
                rounded, most = rule.kernel.automatic, scale.floor + MAX_SHIFT
            else:
                by = rule.exponents
                # Align first, as an earlier sum may have raised an exponent. z is a running sum
                # (grows) if this program made the part that is added.
                if by.adds and rule.g is not None:
                    alignment.align(rule.x, rule.g)
                    by = replace(by, grows=rule.g in floors)
                other = rule.other
                g = exponents[other] if other is not None else 0
                scale = by.scaled(exponents[rule.x], g, wanted.get(z), self.most_alignment)
                shifts, rounded, most = scale.shifts, not by.exact, scale.most
                if (
                    rule.g and most < scale.floor + MAX_SHIFT
                ):  # the running sum alone sets this limit
                    read = [rule.g]
                descriptors[index] = self._with(
                    index, shift=shifts.result, x_shift=shifts.x, g_shift=shifts.g,
                    stochastic=stochastic and rounded,
                )  # fmt: skip
            exponents[z], floors[z] = scale.exponent, scale.floor
            if rounded:
                alignment.limit(z, most, read)
        names = tuple(tensor.name for tensor in self.tensors)
        return Bound(Program(tuple(descriptors), self.fingerprint, names), exponents, floors)


@dataclass(frozen=True)
class CompiledStep:
    """The two programs of a training step, and the buffers of their tensors."""

    network: Network
    batch: int
    parameters: AcceleratorParameters
    plan: str
    inputs: tuple[str, ...]
    """Buffers that the host writes the inputs to."""
    buffers: dict[str, Buffer]
    memory_bytes: int
    """Bytes of external memory used."""
    forward: CompiledProgram
    backward: CompiledProgram
    results: tuple[str, ...]
    """Buffers of the logits of each head."""
    uppers: tuple[str, ...]
    """Buffers that the host writes the gradients of the logits to."""
    input_gradients: tuple[str, ...] = ()
    """Buffers of the gradients to the inputs; empty if the step computes none."""
    aliases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Buffers of each tensor that the host writes in several layouts."""

    @property
    def upper_format(self) -> Format:
        """Format in which programs read the gradients of the logits."""
        return WORD if self.plan in FOLLOWED else self.network.format("gradient")

    @property
    def programs(self) -> dict[str, CompiledProgram]:
        """Both programs by name."""
        return {"forward": self.forward, "backward": self.backward}

    @cached_property
    def everything(self) -> dict[str, Buffer]:
        """Buffers and images of both programs by name; views share an address."""
        images = (*self.forward.images, *self.backward.images)
        return {**{image.name: image for image in images}, **self.buffers}

    @property
    def tensors(self) -> list[Written]:
        """Tensors that both programs write, in the order of their statistics."""
        return [*self.forward.tensors, *self.backward.tensors]

    @cached_property
    def predicted_cycles(self) -> int:
        """Cycles of a step by the cycle model, with the default memory of the simulation."""
        return self.cycles_with(MemoryTiming.of(self.parameters))

    def cycles_with(self, timing: MemoryTiming) -> int:
        """Return the cycles of a step by the cycle model, with a memory of this ``timing``."""
        return sum(timeline.cycles for timeline in self._timelines(timing))

    @cached_property
    def bytes_moved(self) -> int:
        """Bytes that a step reads from and writes to external memory, its programs among them."""
        return sum(timeline.bytes_moved for timeline in self._timelines(MemoryTiming()))

    def _timelines(self, timing: MemoryTiming) -> list[Timeline]:
        programs = self.programs.values()
        return [predict(each.descriptors, self.parameters, timing) for each in programs]

    @cached_property
    def macs(self) -> int:
        """Multiply-accumulates of a step, padding not counted."""
        return self.forward.macs + self.backward.macs

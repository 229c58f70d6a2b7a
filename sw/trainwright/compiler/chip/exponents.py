"""Give names slots of the exponent file, and descriptors slots in place of shifts.

The hardware keeps every tensor's exponent in a file and derives shifts from it, so that one program
serves all steps. ``with_slots`` replaces what ``CompiledProgram.bind`` would compute;
``require_one_floor`` refuses programs for which the two would differ; ``scales`` moves exponents at
the end of a step.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from trainwright.compiler.base.compiled import CompiledProgram
from trainwright.compiler.base.errors import CompileError
from trainwright.compiler.base.hazards import rows_of, touches
from trainwright.compiler.base.limits import EXPONENTS, STATISTICS
from trainwright.compiler.base.rules import COPIES, Rule, Written
from trainwright.fixed.scale import ScaleRanges, sum_limits
from trainwright.formats.exponents import ExponentRule
from trainwright.functions import FunctionKernel, scalars_of
from trainwright.functions.scalars import ExponentSum
from trainwright.graph.ir import Alias, Kernel
from trainwright.graph.step import step_graph
from trainwright.network import Network
from trainwright.onchip.layout import LANES
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Compute, Descriptor, Level
from trainwright.program.exponents import ENTRIES, MoveScales, Scalar, ScalarKind, ScaleEntry
from trainwright.program.fields import Operation, Target
from trainwright.program.footprint import Touch
from trainwright.program.vector import Vector

ZERO = "0"
"""Name of the first slot, which always holds 0."""
LOSS_SLOT = 0
"""Statistics slot of losses and correct samples, from the first slot of a loop's own programs."""
COPY_SLOT = 1
"""Statistics slot of copies, from the first slot of a loop's own programs."""
LOCAL = Target.SCRATCHPAD.name
REACH = 64
"""Bounds of constants below this are checked; others are never reached."""
EXACT = ExponentRule(exact=True)
NEVER = (1 << 48) - 1
"""Sum of |q| that none exceeds: an exponent with this limit never moves."""


def moment_name(part: str) -> str:
    """Return the slot name of the exponent of a part's moments."""
    return f"{part} moments"


@dataclass(frozen=True)
class FunctionExponents:
    """Exponents that a function's passes need, by name, and its constants made of these names."""

    fixed: Mapping[str, int]
    """Exponents that never move."""
    sums: tuple[Rule, ...]
    """Additions of two exponents. One that is not exact gives the least value of the result."""
    constants: tuple[tuple[str, str, ExponentSum], ...]
    """Names of the exponents to add and to subtract, and the rule of each constant."""

    @classmethod
    @lru_cache(512)
    def of(cls, rule: Rule) -> "FunctionExponents":
        """Return the exponents of a function.

        Raises ``FunctionError`` if a constant or the result's exponent is no sum of exponents.
        """
        assert rule.kernel is not None
        rules = scalars_of(rule.kernel, rule.z.width)
        names = [name for name in (rule.x, rule.g) if name is not None][: rule.kernel.operands]
        fixed, sums = dict[str, int](), list[Rule]()

        def total(signs: Sequence[int], wanted: int) -> str:
            """Return the name of the sum of all exponents of a sign."""
            terms = zip((*names, rule.z.name), signs, strict=True)
            chosen = [name for name, sign in terms if sign == wanted] or [ZERO]
            while len(chosen) > 1:
                first, second, *rest = chosen
                name = f"{first} + {second}"
                sums.append(Rule(first, second, replace(rule.z, name=name), EXACT))
                chosen = [name, *rest]
            return chosen[0]

        if not rule.keeps_exponent:
            by = rules.exponent
            if any(by.signs):
                more = f"2^{by.offset}"
                fixed[more] = by.offset
                exponents = ExponentRule() if rule.kernel.automatic else EXACT
                sums.append(Rule(total(by.signs, 1), more, rule.z, exponents))
            else:
                fixed[rule.z.name] = by.offset
        constants = list[tuple[str, str, ExponentSum]]()
        for by in rules.constants:
            added, subtracted = total(by.signs, 1), total(by.signs, -1)
            if by.least == 0 and any(by.signs) and not by.signs[-1]:
                # Hold the difference at 0 or above, as a host does: a product is rounded to the
                # exponent that its slot has, but to none below its own.
                more = f"2^{by.offset}"
                held = replace(rule.z, name=f"{subtracted} or {more}")
                fixed[more] = by.offset
                sums += [Rule(added, more, held, EXACT), Rule(subtracted, None, held)]
                added, by = held.name, replace(by, offset=0)
            constants.append((added, subtracted, by))
        return cls(fixed, tuple(sums), tuple(constants))

    def scalars(self, slots: "ExponentSlots") -> Iterator[Scalar]:
        """Yield the scalars that give a pass its constants."""
        # A strict scalar below 0 is an error: a constant that is out of range. Those that only
        # check a bound come before the constant.
        for to, (added, subtracted, by) in enumerate(self.constants):
            plus, minus = slots[added], slots[subtracted]
            if abs(by.most) < REACH:
                yield Scalar(ScalarKind.VALUE, to, minus, plus, by.most - by.offset, strict=True)
            if by.least and abs(by.least) < REACH:
                yield Scalar(ScalarKind.VALUE, to, plus, minus, by.offset - by.least, strict=True)
            yield Scalar(ScalarKind.VALUE, to, plus, minus, by.offset, strict=by.least == 0)


@dataclass(frozen=True)
class ExponentSlots:
    """Number of each name's slot, and the first statistics slot of the loop's own programs."""

    numbers: Mapping[str, int]
    statistics: int
    """Slots that forward and backward pass count in."""
    fixed: Mapping[str, int] = field(default_factory=dict)
    """Exponents that never move: of results of functions, and of numbers added to exponents."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """Operand whose exponent the result of a function has, by the result."""

    @classmethod
    def of(
        cls, programs: Sequence[CompiledProgram], more: Sequence[str], p: AcceleratorParameters
    ) -> "ExponentSlots":
        """Return slots for all tensors of ``programs``, and for the names in ``more``.

        Raises ``CompileError`` where the file is too small, or there are too few statistics slots.
        """
        # A dict keeps the order of insertion, so that slots, and with them programs, are
        # reproducible.
        names = [ZERO]
        rules = [rule for program in programs for rule in program.rules.values()]
        fixed = dict[str, int]()
        # The result of a function that keeps the exponent of its operand has the operand's slot.
        sources = {rule.z.name: rule.x for rule in rules if rule.kernel and rule.keeps_exponent}
        for rule in rules:
            names += [name for name in (rule.x, rule.g, rule.z.name) if name is not None]
            if rule.kernel:
                function = FunctionExponents.of(rule)
                fixed |= function.fixed
                names += [*function.fixed, *(own_sum.z.name for own_sum in function.sums)]
        # Added to the exponent of one operand of a sum, the least exponent of the other.
        reach = {-program.most_alignment for program in programs if _added(program)}
        fixed |= {f"2^{exponent}": exponent for exponent in reach}
        names += [f"2^{exponent}" for exponent in reach]
        names = dict.fromkeys((*(name for name in names if name not in sources), *more))
        statistics = sum(len(program.tensors) for program in programs)
        EXPONENTS.require(len(names), p, "a step on the chip")
        # Two slots in addition to those of tensors: one of the loss, one of copies.
        STATISTICS.require(statistics + 2, p, "a step on the chip")
        numbers = {name: number for number, name in enumerate(names)}
        return cls(numbers, statistics, fixed, sources)

    def __getitem__(self, name: str | None) -> int:
        if name is None:
            return 0
        return self[self.sources[name]] if name in self.sources else self.numbers[name]

    def named(self, message: str) -> str:
        """Return a message with the names of tensors in place of "slot" and their numbers."""
        names = {f"slot {number}": name for name, number in self.numbers.items()}
        return re.sub(r"\bslot \d+", lambda match: names.get(match[0], match[0]), message)


def slots_expected(network: Network) -> tuple[int, int]:
    """Return the exponents and the statistics slots that a step of a network takes, or a few more.

    They are counted before contraction orders are known: n operands take n - 2 products on the way
    to the result and as many on the way back, whatever their order.
    """
    step = step_graph(network, LANES, passes=True)
    ops = [op for op in step.whole.ops if not isinstance(op, Alias)]
    aliases = len(step.whole.ops) - len(ops)
    kernels = [op.body for op in ops if isinstance(op, Kernel)]
    functions = sum(
        1 + (body.coarsest is not None) for body in kernels if isinstance(body, FunctionKernel)
    )
    products = sum(2 * max(len(site[0].operands) - 2, 0) + 1 for site in step.sites.values())
    parts = sum(layer.order + layer.bias for layer in network.layers)
    # A function has the sum of two exponents, or a constant; a softmax has two of them. Five more:
    # slot 0, copies, the operands that sum biases, the reach of sums; and four of statistics:
    # copies of two programs, loss, copies of a loop.
    exponents = len(step.whole.tensors) - aliases + parts + functions + products + 5
    return exponents, len(ops) + products + 4


def slots_lacking(network: Network, sizes: Mapping[str, int]) -> dict[str, int]:
    """Return the sizes that an accelerator needs for the slots of a network and lacks.

    ``sizes`` are those of the accelerator where they are not the defaults. A network that needs
    more slots than there can be is given the most.
    """
    most = {limit.parameter: limit.greatest for limit in (EXPONENTS, STATISTICS)}
    needed = (1 << (count - 1).bit_length() for count in slots_expected(network))
    present = {name: getattr(AcceleratorParameters, name) for name in most} | dict(sizes)
    slots = {name: min(size, most[name]) for name, size in zip(most, needed, strict=True)}
    return {name: size for name, size in slots.items() if size > present[name]}


def _floor(rule: Rule, sources: Mapping[str, str]) -> tuple[str, ...]:
    """Return the tensors whose exponents give the floor of a result.

    Results with equal tuples have equal floors.
    """
    operands = [name for name in (rule.x, rule.g) if name is not None]
    if rule.exponents.adds:  # a sum that grows has at most the exponent of its parts
        operands = list(dict.fromkeys(name for name in operands if name != rule.z.name))
    return tuple(sorted(sources.get(name, name) for name in operands))


def require_one_floor(programs: Sequence[CompiledProgram]) -> None:
    """Raise ``CompileError`` where a tensor is written at several floors.

    The file has one exponent of a tensor; ``CompiledProgram.bind`` would give each write its own
    shift.
    """
    sources: dict[str, str] = {}
    floors: dict[str, tuple[str, ...]] = {}
    for program in programs:
        for rule in program.rules.values():
            # Copies are of many tensors, and nothing reads the slot. A function has one floor.
            if rule.z.name == COPIES or rule.kernel:
                continue
            floor = _floor(rule, sources)
            # A copy has the exponent of its source: follow it, so that two names of one exponent
            # compare equal.
            if rule.exponents.exact and len(set(floor)) == 1:
                sources[rule.z.name] = floor[0]
            if floors.setdefault(rule.z.name, floor) != floor:
                raise CompileError(
                    f"{rule.z.name} is written from {' and '.join(floor)} and from "
                    f"{' and '.join(floors[rule.z.name])}: an exponent file has one exponent of a "
                    "tensor; use exponents=0"
                )


def idle_row(programs: Sequence[CompiledProgram], p: AcceleratorParameters) -> int:
    """Return a row of the scratchpad that no command of a step touches; -1 where there is none."""
    last = rows_of([d for program in programs for d in program.descriptors], p)[-1]
    return (last.start if last.stop == p.scratchpad_rows else p.scratchpad_rows) - 1


def with_slots(
    program: CompiledProgram,
    slots: ExponentSlots,
    first_slot: int,
    row: int,
    p: AcceleratorParameters,
) -> list[Descriptor]:
    """Return the descriptors before HALT, with statistics from slot ``first_slot`` on.

    ``row`` is an idle row for commands that only compute exponents. If there is none (-1), these
    commands write a row that the result itself overwrites.
    """
    descriptors: list[Descriptor] = []
    written: set[str] = set()
    added, reach = _added(program), f"2^{-program.most_alignment}"
    for index, unbound in enumerate(program.descriptors[:-1]):
        d = unbound
        if rule := program.rules.get(index):
            # Before a tensor is computed, raise its exponent to where BIAS can align it with what
            # it is added to: a product is rounded to no exponent below its own.
            sums = [Rule(other, reach, rule.z) for other in added.get(rule.z.name, ())]
            if isinstance(unbound, Vector):
                function = FunctionExponents.of(rule)
                sums += function.sums
                slot = unbound.slot and unbound.slot + first_slot
                d = replace(unbound, scalars=tuple(function.scalars(slots)), slot=slot)
            else:
                assert isinstance(unbound, Compute)
                d = replace(
                    unbound,
                    **_exponents(rule, slots),
                    grows=rule.exponents.adds and rule.g in written,
                    slot=unbound.slot + first_slot,
                )
            if sums and rule.z.name not in written:
                to = row if row >= 0 else _row_written(program, rule, p)
                descriptors += _sums(sums, slots, _row_read(program, rule), to)
            written.add(rule.z.name)
        descriptors.append(d)
    return descriptors


def _added(program: CompiledProgram) -> dict[str, list[str]]:
    """Return the tensors that each tensor is added to, by name, if its exponent can move."""
    makers = program.makers
    rules = {rule.z.name: rule for rule in program.rules.values()}
    movable = {
        name for name, rule in rules.items()
        if (rule.kernel.automatic if rule.kernel else not rule.exponents.exact)
    }  # fmt: skip
    added = dict[str, list[str]]()
    for rule in program.rules.values():
        if rule.exponents.adds and rule.g is not None:
            pair = makers.get(rule.x, rule.x), makers.get(rule.g, rule.g)
            for name, other in (pair, pair[::-1]):
                if name in movable and other not in (name, *added.get(name, ())):
                    added.setdefault(name, []).append(other)
    return added


def _exponents(rule: Rule, slots: ExponentSlots) -> dict[str, Any]:
    """Return the fields of a descriptor that gets its shifts from the file by a rule."""
    return {
        "x_exponent": slots[rule.x],
        "g_exponent": slots[rule.other],
        "z_exponent": slots[rule.z.name],
        "exact": rule.exponents.exact,
    }


def _row_read(program: CompiledProgram, rule: Rule) -> int:
    """Return a row that the commands of a result read, and that is written before them."""
    for number, other in program.rules.items():
        d = program.descriptors[number]
        if other.z == rule.z and isinstance(d, Compute):
            return d.x
        if other.z == rule.z and isinstance(d, Vector) and d.reads:
            return d.streams[d.users(d.reads)[0]].base
    raise AssertionError(f"no command of {rule.z.name} reads a row")


def _row_written(program: CompiledProgram, rule: Rule, p: AcceleratorParameters) -> int:
    """Return a row that the commands of a result write before they read it, or -1 for none."""
    reads: list[Touch] = []
    for number, other in program.rules.items():
        if other.z != rule.z:
            continue
        local = [t for t in touches(program.descriptors[number], p) if t.space == LOCAL]
        reads += [t for t in local if not t.write]
        for write in local:
            if write.write and not any(t.start <= write.start < t.stop for t in reads):
                return write.start
    return -1


def _sums(sums: Sequence[Rule], slots: ExponentSlots, source: int, row: int) -> list[Compute]:
    """Return commands that add exponents.

    The file adds exponents where it finds those of products, so each command makes a product of
    row ``source``, which nothing reads; a mask takes one cycle.
    """
    if sums and row < 0:
        raise CompileError(
            f"{sums[-1].z.name}: its exponent takes an idle row of the scratchpad, all are in use; "
            "use a smaller --batch, or more scratchpad_rows"
        )
    return [
        Compute(
            operation=Operation.MASK, levels=(Level(1),), x=source, g=source, z=row,
            slot=slots.statistics + COPY_SLOT, tensor=f"exponent of {added.z.name}",
            **_exponents(added, slots),
        )
        for added in sums
    ]  # fmt: skip


def scales(
    programs: Sequence[CompiledProgram],
    slots: ExponentSlots,
    ranges: ScaleRanges | None,
    moments: Mapping[str, str],
    occupied: Callable[[Written], int],
) -> list[MoveScales]:
    """Return the end of a step: every tensor's exponent moves, or none where ``ranges`` is None.

    Exponents follow the mean over the values that ``occupied`` counts. If several programs write a
    tensor, the statistics of the last one count. ``moments`` names for a gradient the part whose
    moments get its exponent.
    """
    tensors = [t for program in programs for t in program.tensors]
    last, entries = {t.name: place for place, t in enumerate(tensors)}, []
    for place, t in enumerate(tensors):
        mine = t.counted and last[t.name] == place
        low, high = 0, NEVER
        if mine and ranges is not None:
            limits = sum_limits(ranges.of(t.kind, t.format), occupied(t), t.width)
            low, high = limits.low, limits.high
        copy = slots[moment_name(moments[t.name])] if t.name in moments else 0
        entries.append(ScaleEntry(slots[t.name] if mine else 0, place, low, high, copy))
    return [
        MoveScales(entries=tuple(entries[start : start + ENTRIES]))
        for start in range(0, len(entries), ENTRIES)
    ]

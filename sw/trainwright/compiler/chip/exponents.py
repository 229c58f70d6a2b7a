"""Give names slots of the exponent file, and descriptors slots in place of shifts.

The hardware keeps every tensor's exponent in a file and derives shifts from it, so that one program
serves all steps. ``with_slots`` replaces what ``CompiledProgram.bind`` would compute;
``require_one_floor`` refuses programs for which the two would differ; ``scales`` moves exponents at
the end of a step.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from trainwright.compiler.base.compiled import CompiledProgram
from trainwright.compiler.base.errors import CompileError
from trainwright.compiler.base.rules import COPIES, Rule
from trainwright.fixed.scale import ScaleRanges, sum_limits
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Compute, Descriptor
from trainwright.program.exponents import ENTRIES, MoveScales, ScaleEntry

ZERO = "0"
"""Name of the first slot, which always holds 0."""
NEVER = (1 << 48) - 1
"""Sum of |q| that none exceeds: an exponent with this limit never moves."""


def moment_name(part: str) -> str:
    """Return the slot name of the exponent of a part's moments."""
    return f"{part} moments"


@dataclass(frozen=True)
class ExponentSlots:
    """Number of each name's slot, and the first statistics slot of the loop's own programs."""

    numbers: Mapping[str, int]
    statistics: int
    """Slots that forward and backward pass count in."""

    @classmethod
    def of(
        cls, programs: Sequence[CompiledProgram], more: Sequence[str], p: AcceleratorParameters
    ) -> "ExponentSlots":
        """Return slots for all tensors of ``programs``, and for the names in ``more``.

        Raises ``CompileError`` where the file is too small, or there are too few statistics slots.
        """
        # A dict keeps the order of insertion, so that slots, and with them programs, are
        # reproducible.
        names = dict.fromkeys((ZERO,))
        for program in programs:
            for rule in program.rules.values():
                names |= dict.fromkeys(n for n in (rule.x, rule.g, rule.z.name) if n is not None)
        names |= dict.fromkeys(more)
        if len(names) > p.exponents:
            raise CompileError(
                f"the step has {len(names)} exponents, the accelerator's file {p.exponents} slots; "
                f"use one with exponents={1 << (len(names) - 1).bit_length()}"
            )
        statistics = sum(len(program.tensors) for program in programs)
        # Two slots in addition to those of tensors: one of the loss, one of copies.
        if statistics + 2 > p.statistics_depth:
            raise CompileError(
                f"the step counts in {statistics + 2} statistics slots, the accelerator has "
                f"{p.statistics_depth}; use one with more statistics_depth"
            )
        return cls({name: number for number, name in enumerate(names)}, statistics)

    def __getitem__(self, name: str | None) -> int:
        return 0 if name is None else self.numbers[name]


def _floor(rule: Rule, sources: Mapping[str, str]) -> tuple[str, ...]:
    """Return the tensors whose exponents give the floor of a result; equal where floors are."""
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
            if rule.z.name == COPIES:  # of many tensors; nothing reads the slot
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


def with_slots(program: CompiledProgram, slots: ExponentSlots, first_slot: int) -> list[Descriptor]:
    """Return the descriptors before HALT, with statistics from slot ``first_slot`` on."""
    descriptors: list[Descriptor] = list(program.descriptors[:-1])
    written: set[str] = set()
    for index, rule in program.rules.items():
        d = descriptors[index]
        assert isinstance(d, Compute)
        descriptors[index] = replace(
            d,
            x_exponent=slots[rule.x],
            g_exponent=slots[rule.g],
            z_exponent=slots[rule.z.name],
            exact=rule.exponents.exact,
            grows=rule.exponents.adds and rule.g in written,
            slot=d.slot + first_slot,
        )
        written.add(rule.z.name)
    return descriptors


def scales(
    programs: Sequence[CompiledProgram],
    slots: ExponentSlots,
    ranges: ScaleRanges | None,
    moments: Mapping[str, str],
) -> list[MoveScales]:
    """Return the end of a step: every tensor's exponent moves, or none where ``ranges`` is None.

    If several programs write a tensor, the statistics of the last one count. ``moments`` names for
    a gradient the part whose moments get its exponent.
    """
    last = {t.name: number for number, program in enumerate(programs) for t in program.tensors}
    entries, first = [], 0
    for number, program in enumerate(programs):
        for place, t in enumerate(program.tensors):
            mine = t.counted and last[t.name] == number
            low, high = 0, NEVER
            if mine and ranges is not None:
                allowed = ranges.of(t.kind, t.format)
                limits = sum_limits(allowed, t.count, t.width)
                low, high = limits.low, limits.high
            copy = slots[moment_name(moments[t.name])] if t.name in moments else 0
            entries.append(ScaleEntry(slots[t.name] if mine else 0, first + place, low, high, copy))
        first += len(program.tensors)
    return [
        MoveScales(entries=tuple(entries[start : start + ENTRIES]))
        for start in range(0, len(entries), ENTRIES)
    ]

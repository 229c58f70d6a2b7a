"""Slots of the exponent file, and the descriptors of a step with slots in the place of shifts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from trainwright.compiler.base.compiled import CompiledProgram
from trainwright.compiler.base.errors import CompileError
from trainwright.compiler.base.rules import COPIES, Rule
from trainwright.fixed.scale import ScaleRanges, window
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Compute, Descriptor
from trainwright.program.exponents import ENTRIES, MoveScales, ScaleEntry

ZERO = "0"
"""The first slot."""
NEVER = (1 << 48) - 1
"""No sum of |q| is over it."""


def moment_name(part: str) -> str:
    """Slot of the exponent that a part's moments have."""
    return f"{part} moments"


def older_name(part: str) -> str:
    """Slot of the exponent that the moments of a deferred part had a step before."""
    return f"{part} older moments"


@dataclass(frozen=True)
class Slots:
    """Slot of each name."""

    numbers: Mapping[str, int]

    @classmethod
    def of(
        cls, programs: Sequence[CompiledProgram], others: Sequence[str], p: AcceleratorParameters
    ) -> "Slots":
        """Slots of all that ``programs`` read and write, and of ``others``.

        Raises ``CompileError`` where the file is too small.
        """
        names = dict.fromkeys((ZERO,))
        for program in programs:
            for rule in program.rules.values():
                names |= dict.fromkeys(n for n in (rule.x, rule.g, rule.z.name) if n is not None)
        names |= dict.fromkeys(others)
        if len(names) > p.exponents:
            raise CompileError(
                f"the step has {len(names)} exponents, the accelerator's file {p.exponents} slots; "
                f"use one with exponents={1 << (len(names) - 1).bit_length()}"
            )
        return cls({name: number for number, name in enumerate(names)})

    def __getitem__(self, name: str | None) -> int:
        return 0 if name is None else self.numbers[name]


def _floor(rule: Rule, sources: Mapping[str, str]) -> tuple[str, ...]:
    """Return the tensors whose exponents give the floor of a result; equal where floors are."""
    operands = [name for name in (rule.x, rule.g) if name is not None]
    if rule.exponents.adds:  # a sum that grows has at most the exponent of its parts
        operands = list(dict.fromkeys(name for name in operands if name != rule.z.name))
    return tuple(sorted(sources.get(name, name) for name in operands))


def require_one_floor(programs: Sequence[CompiledProgram]) -> None:
    """Raise ``CompileError`` where a tensor is written at several floors: its slot would not be
    what ``CompiledProgram.bind`` gives.
    """
    sources: dict[str, str] = {}
    floors: dict[str, tuple[str, ...]] = {}
    for program in programs:
        for rule in program.rules.values():
            if rule.z.name == COPIES:  # of many tensors; nothing reads the slot
                continue
            floor = _floor(rule, sources)
            if rule.exponents.exact and len(set(floor)) == 1:
                sources[rule.z.name] = floor[0]
            if floors.setdefault(rule.z.name, floor) != floor:
                raise CompileError(
                    f"{rule.z.name} is written from {' and '.join(floor)} and from "
                    f"{' and '.join(floors[rule.z.name])}: an exponent file has one exponent of a "
                    "tensor; use exponents=0"
                )


def with_slots(program: CompiledProgram, slots: Slots, first_slot: int) -> list[Descriptor]:
    """The descriptors before HALT, their statistics from slot ``first_slot`` on."""
    found: list[Descriptor] = list(program.descriptors[:-1])
    made: set[str] = set()
    for index, rule in program.rules.items():
        d = found[index]
        assert isinstance(d, Compute)
        found[index] = replace(
            d,
            x_exponent=slots[rule.x],
            g_exponent=slots[rule.g],
            z_exponent=slots[rule.z.name],
            exact=rule.exponents.exact,
            grows=rule.exponents.adds and rule.g in made,
            slot=d.slot + first_slot,
        )
        made.add(rule.z.name)
    return found


def scales(
    programs: Sequence[CompiledProgram],
    slots: Slots,
    ranges: ScaleRanges | None,
    moments: Mapping[str, str],
    deferred: Sequence[str] = (),
    unused: int = 0,
) -> list[MoveScales]:
    """The end of a step: every tensor's exponent moves, none where ``ranges`` is None.

    Of a tensor that several programs write the last one's statistics count. ``moments`` names for a
    gradient the part whose moments get its exponent. That of a ``deferred`` part's moments is kept
    before; nothing reads the statistics of slot ``unused``, which such a move takes.
    """
    last = {t.name: number for number, one in enumerate(programs) for t in one.tensors}
    entries, first = [], 0
    for part in deferred:
        now, older = slots[moment_name(part)], slots[older_name(part)]
        entries.append(ScaleEntry(now, unused, 0, NEVER, older))
    for number, program in enumerate(programs):
        for place, t in enumerate(program.tensors):
            mine = t.counted and last[t.name] == number
            low, high = 0, NEVER
            if mine and ranges is not None:
                allowed = ranges.of(t.kind, t.format)
                limits = window(allowed, t.count, t.width)
                low, high = limits.low, limits.high
            copy = slots[moment_name(moments[t.name])] if t.name in moments else 0
            entries.append(ScaleEntry(slots[t.name] if mine else 0, first + place, low, high, copy))
        first += len(program.tensors)
    return [
        MoveScales(entries=tuple(entries[start : start + ENTRIES]))
        for start in range(0, len(entries), ENTRIES)
    ]

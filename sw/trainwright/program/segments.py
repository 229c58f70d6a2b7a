"""Programs that count more tensors than there are statistics slots, executed in several runs.

A run clears the statistics and nothing else: what lies in the scratchpad stays there. So a program
is divided before the descriptor that needs a slot too many, and the statistics of a tensor are the
sums over all runs.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeGuard

from trainwright.program.descriptors import Compute, Descriptor, End, Halt, Loop, Program, Set
from trainwright.program.errors import ProgramError
from trainwright.program.vector import Vector

SEEDS = 1 << 32
"""Number of different seeds."""


@dataclass(frozen=True)
class ProgramSegment:
    """Part of a program that is executed in one run."""

    program: Program
    numbers: tuple[int, ...]
    """Place of each descriptor in the whole program; -1 for an added descriptor."""
    slots: tuple[int, ...]
    """Slot in the whole program of each slot of the segment."""


def needed(descriptors: Sequence[Descriptor]) -> int:
    """Count the statistics slots in which descriptors count."""
    return 1 + max((d.slot for d in descriptors if counts(d)), default=-1)


def counts(d: Descriptor) -> TypeGuard[Compute | Vector]:
    """Return whether a descriptor counts: passes that count nothing name slot 0."""
    return isinstance(d, Compute) or (isinstance(d, Vector) and d.slot > 0)


def segments(program: Program, depth: int, stream_step: int = 0) -> tuple[ProgramSegment, ...]:
    """Cut a program into as few segments as count at most ``depth`` tensors each.

    ``stream_step`` is the advance of the stream of random bits with every compute descriptor: the
    bits are those of the whole program. Raises ``ProgramError`` for programs with loops or address
    registers, which keep state that a run does not.
    """
    ds = program.descriptors
    if needed(ds) <= depth:
        return (ProgramSegment(program, tuple(range(len(ds))), tuple(range(depth))),)
    if any(isinstance(d, Loop | End) or (isinstance(d, Set) and d.values) for d in ds):
        raise ProgramError(
            f"a program with loops or address registers counts {needed(ds)} tensors, this "
            f"accelerator has {depth} statistics slots; use one with more statistics_depth, or "
            "--plan auto"
        )
    done: list[ProgramSegment] = []
    cut = _Cut(program, [], [], {})
    seed: int | None = None
    for number, d in enumerate(ds):
        if counts(d):
            if d.slot not in cut.slots and len(cut.slots) == depth:
                done.append(cut.segment())
                cut = _Cut(program, [], [], {})
                if seed is not None:
                    cut.add(Set(values=(), seed=seed), -1)
            slot = cut.slots.setdefault(d.slot, len(cut.slots))
            cut.add(replace(d, slot=slot), number)
            if isinstance(d, Compute):
                seed = None if seed is None else (seed + stream_step) % SEEDS
            continue
        if isinstance(d, Set) and d.seed is not None:
            seed = d.seed
        cut.add(d, number)
    return (*done, cut.segment())


def require_one_run(program: Program, depth: int) -> None:
    """Raise ``ProgramError`` where a program counts too many tensors to be repeated.

    A repeated program is one run: it cannot be cut into segments of ``depth`` tensors.
    """
    if needed(program.descriptors) > depth:
        raise ProgramError(
            f"a program that is repeated counts {needed(program.descriptors)} tensors, this "
            f"accelerator has {depth} statistics slots; use one with more statistics_depth"
        )


@dataclass
class _Cut:
    whole: Program
    descriptors: list[Descriptor]
    numbers: list[int]
    slots: dict[int, int]

    def add(self, d: Descriptor, number: int) -> None:
        self.descriptors.append(d)
        self.numbers.append(number)

    def segment(self) -> ProgramSegment:
        if not self.descriptors or not isinstance(self.descriptors[-1], Halt):
            self.add(Halt(), -1)
        names = tuple(self.whole.slots[slot : slot + 1] for slot in self.slots)
        labels = tuple(name for own in names for name in own)
        program = replace(self.whole, descriptors=tuple(self.descriptors), slots=labels)
        return ProgramSegment(program, tuple(self.numbers), tuple(self.slots))

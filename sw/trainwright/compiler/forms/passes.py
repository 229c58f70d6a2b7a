"""Turn kernels into passes of the vector engine.

``tile`` asks for a kernel's instructions, ``emit`` for the descriptors of its passes. A pass has
two nested levels of rows, and row n belongs to thread n modulo THREADS, which matters where a
kernel works on groups of values. Rows of one group lie in one of two ways:

- *apart*: THREADS groups side by side are the inner level, the rows of a group the outer one. Each
  thread has a group. The last THREADS groups overlap those before where the count is no multiple.
- *joined*: the rows of one group follow each other, so that each thread has some of them, and
  scratch rows join the sums of all threads.

Levels of rows beyond two become passes of their own: registers carry sums from pass to pass.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import product
from math import prod

from trainwright.compiler.base.errors import CompileError, ResourceError
from trainwright.compiler.base.estimates import PASS_START
from trainwright.compiler.forms.impls import up
from trainwright.compiler.forms.layout import (
    Axes,
    Layout,
    Part,
    Piece,
    RowLevel,
    Storage,
    counts_of,
    joined_levels,
)
from trainwright.graph.ir import Kernel, Tensor
from trainwright.kernels import KernelError, VectorPass
from trainwright.kernels.phases import (
    SCRATCH,
    STORED,
    GroupLayout,
    GroupPass,
    Role,
    scratch_streams,
)
from trainwright.parameters import AcceleratorParameters
from trainwright.program.elementwise import ArrayBody
from trainwright.program.engines import pass_cycles
from trainwright.program.vector import THREADS, Stream, Vector


def require_engine(op: Kernel, p: AcceleratorParameters) -> None:
    """Raise ``ResourceError`` where an accelerator cannot execute a kernel."""
    # An accelerator with an engine has fixed point in words of 16 bits alone: no digits, no codes.
    if not p.vector_engine and not isinstance(op.body, ArrayBody):
        what = f"{op.out.partition('.')[0]}: {op.body.text}"
        raise ResourceError(
            f"{what} is computed by the vector engine, which this accelerator lacks",
            "use one with vector_engine=1",
        )


def may_lie(op: Kernel, tensors: Mapping[str, Tensor], lanes: Axes) -> bool:
    """Return whether a kernel over groups may have these axes along the lanes."""
    every = [set(tensors[name].axes) for name in (*op.operands, op.out)]
    # A lane holds values of one group: sums over lanes take all of them, and a tensor without the
    # axes of groups cannot have them along its lanes.
    inside = set(lanes) <= set(op.over)
    return all(set(lanes) <= axes for axes in every) and (inside or not set(lanes) & set(op.over))


@dataclass(frozen=True)
class GroupBlock:
    """Part of the rows of a kernel: groups that lie alike."""

    kept: tuple[RowLevel, ...]
    """Levels of rows of different groups."""
    reduced: tuple[RowLevel, ...]
    """Levels of rows of one group; a group that spans lanes has its last row apart."""
    first: int
    """First row, from the start of each part."""
    last: int | None
    """Row of a group, from the block's first one, that is not full; None: all rows are full."""
    tail: bool
    """Whether the last lanes of every row belong to no group."""

    def __post_init__(self) -> None:
        assert self.last is None or not self.tail


class PassPlan:
    """Passes of a kernel over parts whose layouts are given."""

    def __init__(
        self, name: str, lowered: Callable[[GroupLayout], tuple[GroupPass, ...]], over: Axes,
        parts: Sequence[Part], p: AcceleratorParameters, *, automatic: bool, masked: bool,
    ) -> None:  # fmt: skip
        """Plan the passes of a kernel on ``parts``: its operands, then its result.

        ``lowered`` returns the passes of a group of values along the axes ``over``. ``automatic``
        passes collect statistics, so no two of them may compute the same group. ``masked`` passes
        write 0 to lanes that belong to no value and would not stay 0 otherwise.
        """
        self.name, self.lowered, self.over, self.automatic = name, lowered, over, automatic
        self.p, self.parts, self.z = p, tuple(parts), parts[-1]
        self.whole = max(reversed(parts), key=lambda part: len(part.piece.layout.rows))
        """Part with all axes: a result may lack those of a group, and a gradient to it."""
        lanes = self.z.piece.layout.lanes
        self.across = set(lanes) <= set(over)
        values = prod(self.z.counts[a] for a in lanes)
        self.full, self.rest = divmod(values, p.lanes)
        if self.rest and not masked:
            self.full, self.rest = self.full + 1, 0

    @classmethod
    def of(
        cls, op: Kernel, tensors: Mapping[str, Tensor], parts: Sequence[Part],
        p: AcceleratorParameters,
    ) -> "PassPlan":  # fmt: skip
        """Plan the passes of a node. Raises ``CompileError`` where lanes split its groups."""
        assert not isinstance(op.body, ArrayBody)
        lanes = parts[-1].piece.layout.lanes
        if not may_lie(op, tensors, lanes):
            raise CompileError(f"{op.out}: lanes {lanes} belong to groups over {op.over} in part")
        widths = tuple(tensors[name].width for name in op.operands)
        lowered = partial(op.body.passes, widths, tensors[op.out].width)
        return cls(
            op.out, lowered, op.over, parts, p, automatic=op.body.automatic,
            masked=op.body.group > 0,
        )  # fmt: skip

    def phases(self, *, joined: bool) -> tuple[GroupPass, ...]:
        """Return the passes of a group. Raises ``KernelError`` where there are none."""
        return self.lowered(GroupLayout(self.across, joined, self.rest))

    def _levels(self, axes: Axes) -> list[RowLevel]:
        counts, parts = self.whole.counts, self.parts
        return [RowLevel(counts[a], tuple(part.stride(a) for part in parts)) for a in axes]

    @cached_property
    def blocks(self) -> tuple[GroupBlock, ...]:
        """The rows in blocks: those whose lanes are all in use, then the others."""
        rows = self.whole.piece.layout.rows
        kept = self._levels(tuple(a for a in rows if a not in self.over))
        reduced = self._levels(tuple(a for a in rows if a in self.over))
        lanes = RowLevel(self.full, (1,) * len(self.parts))
        if self.across:
            last = self.full if self.rest else None
            level = [lanes] if self.full else []
            return (
                GroupBlock(tuple(joined_levels(kept)), tuple([*reduced, *level]), 0, last, False),
            )
        # Lanes without a value hold 0 and stay 0, as sums over samples read them. Only passes over
        # such rows pay for the mask.
        parts = [([*kept, lanes], 0, False)] if self.full else []
        parts += [(kept, self.full, True)] if self.rest else []
        blocks = []
        for levels, first, tail in parts:
            # No value of an element-wise kernel waits for another one: a pass takes all rows.
            groups = tuple(joined_levels(levels)) if self.over else ()
            within = reduced if self.over else levels
            blocks.append(GroupBlock(groups, tuple(within), first, None, tail))
        return tuple(blocks)

    def inner(self, block: GroupBlock) -> int | None:
        """Return the level whose groups are the threads; None: threads are joined."""
        fitting = {
            n: self._cycles(block, n)
            for n, level in enumerate(block.kept)
            if level.count >= THREADS
            # A row that two passes write would be counted twice.
            and not (self.automatic and level.count % THREADS)
        }
        # Few groups side by side leave threads idle, which costs more than to join their sums: 300
        # cycles a sum and group.
        joined = self._cycles(block, None)
        best = min(fitting, key=fitting.__getitem__, default=None)
        if best is None and joined == float("inf"):
            self.phases(joined=True)  # raises the error
        return best if best is not None and fitting[best] <= joined else None

    def sweeps(
        self, block: GroupBlock, phase: GroupPass
    ) -> list[tuple[tuple[RowLevel, ...], int, bool]]:
        """List the levels of a sweep's rows, its first row, and whether its rows have tails."""
        # One value for a whole group, made of what registers hold, is written once.
        alone = self.z is not self.whole and not phase.code.reads
        rows = () if alone else block.reduced
        if block.last is None:
            return [(rows, 0, block.tail)]
        # The level of full rows along the lanes is the last one, where there is one.
        levels = rows[:-1] if self.full else rows
        full = [(rows, 0, False)] if self.full else []
        return [*full, (levels, block.last, True)]

    def _cycles(self, block: GroupBlock, inner: int | None) -> float:
        """Estimate the cycles of a block."""
        joined = inner is None
        try:
            phases = self.phases(joined=joined)
        except KernelError:
            # A sum too long to be joined, say: the other way may do.
            return float("inf")
        groups = prod(level.count for level in block.kept)
        if inner is not None:
            count = block.kept[inner].count
            groups = groups // count * up(count, THREADS)
        total = 0.0
        for phase in phases:
            length = len(phase.code.instructions)
            if phase.role is not Role.SWEEP:
                # Every thread reads the scratch rows of all threads.
                rows = THREADS * (THREADS if phase.role is Role.JOIN_IN else 1)
                total += PASS_START + pass_cycles(rows, length, self.p)
                continue
            for levels, _, tail in self.sweeps(block, phase):
                code = phase.tail if tail and phase.tail else phase.code
                nests = joined_levels(levels)
                rows = prod(level.count for level in nests)
                # Threads apart take the inner level of a nest; joined, a group has both.
                each = prod(level.count for level in nests[: -2 if joined else -1])
                rows = rows // each * (1 if joined else THREADS)
                cycles = pass_cycles(rows, len(code.instructions), self.p)
                total += each * (PASS_START + cycles)
        return groups * total

    @property
    def cycles(self) -> float:
        """Estimate the cycles of all passes."""
        return sum(self._cycles(block, self.inner(block)) for block in self.blocks)

    @property
    def scratch_rows(self) -> int:
        """Rows that join the sums of threads."""
        joined = any(self.inner(block) is None for block in self.blocks)
        return THREADS * scratch_streams(self.phases(joined=True)) if joined else 0

    def vectors(
        self, bases: Sequence[int], scratch: int
    ) -> Iterator[tuple[VectorPass, Vector]]:  # fmt: skip
        """Make the passes, each with its instructions, in order.

        ``bases`` has the first row of each part, ``scratch`` is the first of ``scratch_rows``.
        """
        for block in self.blocks:
            inner = self.inner(block)
            outer = [level for n, level in enumerate(block.kept) if n != inner]
            for first in _starts(bases, outer, block.first):
                if inner is None:
                    yield from self._group(block, first, None, scratch)
                    continue
                level = block.kept[inner]
                for start in range(0, level.count, THREADS):
                    # Groups that two passes compute are written twice, with the same words.
                    start = min(start, level.count - THREADS)
                    rows = [
                        base + start * step for base, step in zip(first, level.steps, strict=True)
                    ]
                    yield from self._group(block, rows, replace(level, count=THREADS), scratch)

    def _group(
        self, block: GroupBlock, bases: Sequence[int], threads: RowLevel | None, scratch: int
    ) -> Iterator[tuple[VectorPass, Vector]]:
        """Make the passes of THREADS groups side by side; of a group where threads are joined."""
        once = RowLevel(1, (0,) * len(bases))
        for phase in self.phases(joined=threads is None):
            if phase.role is Role.FINISH:
                yield phase.code, phase.code.vector({}, outer=1, inner=THREADS, tensor=self.name)
            elif phase.role is not Role.SWEEP:
                outer, steps = (THREADS, (1, 0)) if phase.role is Role.JOIN_IN else (1, (0, 1))
                streams = {
                    name: Stream(scratch + THREADS * int(name.removeprefix(SCRATCH)), *steps)
                    for name in phase.code.streams
                }
                vector = phase.code.vector(streams, outer=outer, inner=THREADS, tensor=self.name)
                yield phase.code, vector
            else:
                for levels, row, tail in self.sweeps(block, phase):
                    code = phase.tail if tail and phase.tail else phase.code
                    nests = joined_levels(levels)
                    inner = threads or (nests.pop() if nests else once)
                    outer = nests.pop() if nests else once
                    counts = {"outer": outer.count, "inner": inner.count}
                    parts = [(name, _part_of(name)) for name in code.streams]
                    for starts in _starts(bases, nests, row):
                        streams = {
                            name: Stream(starts[n], outer.steps[n], inner.steps[n])
                            for name, n in parts
                        }
                        yield code, code.vector(streams, **counts, tensor=self.name)


def _starts(bases: Sequence[int], levels: Sequence[RowLevel], row: int) -> Iterator[list[int]]:
    """Yield the first row of each part in every iteration of levels, from ``row`` on."""
    for index in product(*(range(level.count) for level in levels)):
        moves = list(zip(levels, index, strict=True))
        yield [
            base + row + sum(level.steps[n] * times for level, times in moves)
            for n, base in enumerate(bases)
        ]


def _part_of(stream: str) -> int:
    """Return the part whose rows a stream reads or writes, by its place; the result is the last."""
    return -1 if stream in ("z", STORED) else int(stream.removeprefix("x"))


def estimated_cycles(
    op: Kernel, tensors: Mapping[str, Tensor], sizes: Mapping[str, int], lanes: Axes,
    p: AcceleratorParameters,
) -> float:  # fmt: skip
    """Estimate the cycles of a kernel with some axes along the lanes; infinite: it cannot be."""
    if not may_lie(op, tensors, lanes):
        return float("inf")

    def part(name: str) -> Part:
        axes = tensors[name].axes
        lying = Layout(tuple(a for a in axes if a not in lanes), lanes)
        counts = counts_of(axes, sizes, {})
        return Part(Piece(name, lying, counts, {}, p.lanes, Storage(name, 0)), {})

    parts = [part(name) for name in (*op.operands, op.out)]
    return PassPlan.of(op, tensors, parts, p).cycles

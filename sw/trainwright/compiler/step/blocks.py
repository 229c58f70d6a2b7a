"""Compile large batches: compute one block of samples, then the next, with the same body.

Arrays, layouts and slices are searched for a few blocks only, and the best body is repeated over
the batch. Arrays then always have work of the block before, so bodies are compared by the cycles of
a sample at full speed. A sum over samples is taken in parts, one or more for each block. ``lower``
tries this in addition to programs of all samples at once.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from trainwright.compiler.base.errors import CompileError, DoesNotFitError
from trainwright.compiler.base.progress import is_over, is_spent
from trainwright.compiler.base.tuning import TUNING
from trainwright.compiler.choose.choose import choose
from trainwright.compiler.choose.huge import sliced_axes
from trainwright.compiler.cut.slices import Block, Stage, block_axis
from trainwright.compiler.cut.stages import Stages
from trainwright.compiler.forms.choices import Chosen, ProgramSpec, SearchMode
from trainwright.compiler.forms.impls import up
from trainwright.compiler.schedule.place import lost, place
from trainwright.compiler.schedule.schedule import scheduled
from trainwright.compiler.step.drafts import Draft
from trainwright.compiler.tile.tile import Lowered, tiled
from trainwright.graph.ir import Graph
from trainwright.graph.network import SEQUENCES

MODES = (
    SearchMode(weight=0.1, due=False, apart=True, steady=True),
    SearchMode(weight=0.1, due=False, apart=False, steady=True),
)
"""Modes of the search for arrays and layouts."""


def blocks_of(batch: int, size: int) -> tuple[Block, ...]:
    """Return the blocks of a batch; the last one has what is left."""
    return tuple((lo, min(lo + size, batch)) for lo in range(0, batch, size))


@dataclass(frozen=True)
class Sections:
    """Results of operations that are computed before all blocks, in each block, and after all."""

    before: frozenset[str]
    inside: frozenset[str]
    after: frozenset[str]


def sections_of(graph: Graph) -> Sections | None:
    """Return when each operation is computed, or ``None``.

    ``None`` stands for a graph that blocks cannot compute: an operation on samples needs a sum over
    samples, which only exists after the last block, or a kernel works on groups of samples.
    """
    before, inside, after = set[str](), set[str](), set[str]()
    summed, along = set[str](), block_axis(graph)
    for op in graph.ops:
        axes = {axis for name in (op.out, *op.operands) for axis in graph.tensors[name].axes}
        # A group of samples spans several blocks.
        if along in op.over:
            return None
        if along in axes:
            if summed & set(op.operands):
                return None
            inside.add(op.out)
            if along not in graph.tensors[op.out].axes:
                summed.add(op.out)
        elif summed & set(op.operands):
            after.add(op.out)
            summed.add(op.out)
        else:
            before.add(op.out)
    return Sections(frozenset(before), frozenset(inside), frozenset(after))


@dataclass(frozen=True)
class _Body:
    """Computation of one block of ``size`` samples."""

    chosen: Chosen
    stages: tuple[Stage, ...]
    size: int
    room: float
    """Share of the scratchpad in use above which no array runs ahead of the other."""


class _Rated(NamedTuple):
    """Body with its cycles a sample. ``number`` breaks ties, so that bodies are never compared."""

    cycles: float
    number: int
    body: _Body


@dataclass
class Blocks:
    """Search for a program of blocks."""

    spec: ProgramSpec
    time: Callable[[Lowered], int]
    """Cycles of a program by the cycle model."""
    problems: list[CompileError] = field(default_factory=list)

    def best(self) -> Iterator[list[Draft]]:
        """Yield programs, the best body first, each body in several orders of issue."""
        graph = self.spec.graph
        along, sections = block_axis(graph), sections_of(graph)
        tune = TUNING.block
        batch, sizes = graph.sizes[along], tune.sizes[along]
        if batch <= tune.least_batch[along] or sections is None or not sections.inside:
            return
        # Searches of all sequences at once are faster where they are likely to find a program.
        if along == SEQUENCES and not sliced_axes(graph, self.spec.p, large=True):
            return
        if any(source.ranges for sources in self.spec.given.values() for source in sources):
            return  # tensors in parts fix where arrays divide them, so nothing can be balanced
        if self._is_hopeless(sections):
            return
        bodies = self._bodies(sections, [size for size in sizes if batch >= tune.more * size])
        for rate, _, body in self._timed(bodies[: tune.timed]):
            if rate == float("inf"):
                return
            # Commands of a few blocks tell how long the whole program would be.
            samples = tune.few * body.size
            few = self._draft(self._sized(samples), body).program.calls
            if len(few) * batch > tune.commands * samples:
                what = f"a program of {len(few) * batch // samples} commands"
                self.problems.append(
                    DoesNotFitError(f"{what} is longer than {tune.commands}", "use a smaller batch")
                )
                return
            rooms = tune.rooms if batch <= tune.many * body.size else (body.room,)
            try:
                yield [self._draft(self.spec, replace(body, room=room)) for room in rooms]
            except CompileError as error:
                self.problems.append(error)

    def _bodies(self, sections: Sections, sizes: Sequence[int]) -> list[_Rated]:
        """Return the bodies that fit, for blocks of these sizes, by their estimated cycles."""
        bodies: list[_Rated] = []
        try:
            every = choose(self.spec, MODES)
        except CompileError as error:  # there may be programs of all samples at once
            self.problems.append(error)
            return []
        for size in sizes:
            for chosen in every:
                if is_over(bodies):
                    break
                for stages in self._options(chosen, sections, size):
                    for room in TUNING.block.rooms:  # the first that fits: more room is faster
                        body = _Body(chosen, tuple(stages), size, room)
                        cycles = self._estimate(body)
                        if cycles is not None:
                            bodies.append(_Rated(cycles, len(bodies), body))
                            break
        return sorted(bodies)

    def _timed(self, bodies: Sequence[_Rated]) -> list[_Rated]:
        """Return bodies with their cycles by the cycle model, the fastest first."""
        timed: list[_Rated] = []
        for rated in bodies:
            timed.append(rated._replace(cycles=self._rate(rated.body)))
            if is_spent():
                break
        return sorted(timed)

    def _is_hopeless(self, sections: Sections) -> bool:
        """Return whether a tensor that all blocks share has more rows than the scratchpad.

        Blocks share results that are computed before them, and sums over samples: both stay in the
        scratchpad from block to block. Without this test `fashion` in 512 samples spent 16 s of 36
        on finding no blocks.
        """
        graph, p = self.spec.graph, self.spec.p
        read = {name for op in graph.ops if op.out in sections.inside for name in op.operands}
        shared = (sections.before & read) | {
            name for name in sections.inside if block_axis(graph) not in graph.tensors[name].axes
        }
        for name in shared - set(graph.windows):
            rows = up(graph.count(name), p.lanes) * graph.tensors[name].digits
            if rows > p.scratchpad_rows:
                return True
        return False

    def _estimate(self, body: _Body) -> float | None:
        """Estimate the cycles of a sample; ``None`` where the body does not fit."""
        try:
            samples = TUNING.block.few * body.size
            draft = self._draft(self._sized(samples), body)
            return (draft.cycles + lost(draft.issue, self.spec.p, stores=True)) / samples
        except CompileError as error:
            self.problems.append(error)
            return None

    def _rate(self, body: _Body) -> float:
        """Return the cycles of a sample by the cycle model.

        The difference of a program of ``more`` blocks and one of ``few`` leaves out start and end,
        which a long batch pays once.
        """
        few, more = TUNING.block.few, TUNING.block.more
        cycles = []
        for count in (few, more):
            try:
                draft = self._draft(self._sized(count * body.size), body)
                cycles.append(self.time(draft.placed(place(draft.issue, self.spec.p, stores=True))))
            except CompileError as error:
                self.problems.append(error)
                return float("inf")
        return (cycles[1] - cycles[0]) / ((more - few) * body.size)

    def _sized(self, batch: int) -> ProgramSpec:
        graph = self.spec.graph
        sizes = {**graph.sizes, block_axis(graph): batch}
        return replace(self.spec, graph=replace(graph, sizes=sizes))

    def _draft(self, spec: ProgramSpec, body: _Body) -> Draft:
        """Return a program of a body in an order of issue. Raises ``CompileError``."""
        blocks = blocks_of(spec.graph.sizes[block_axis(spec.graph)], body.size)
        program = tiled(spec, body.stages, body.chosen.pads, blocks=blocks)
        rows = round(body.room * spec.p.scratchpad_rows)
        issue = scheduled(program.calls, TUNING.block.lookahead, rows, freed=True)
        return Draft(issue.cycles, program, issue)

    def _options(self, chosen: Chosen, sections: Sections, size: int) -> Iterator[list[Stage]]:
        """Yield cuts of the stages before, in and after the blocks."""
        spec = self._sized(size)
        parts = [
            tuple(choice for choice in chosen.choices if choice.op.out in names)
            for names in (sections.before, sections.inside, sections.after)
        ]
        tried: set[tuple] = set()
        for part in TUNING.block.large_divisors:
            every = [
                Stages(spec, replace(chosen, choices=choices), large_divisor=part)
                if choices
                else None
                for choices in parts
            ]
            if any(stages.spilled for stages in every if stages):
                continue  # a spilled tensor would go through memory once a block
            # Stages outside the blocks take little time, so their first cut is good enough.
            fixed = [
                next(stages.options(), None) if stages else [] for stages in (every[0], every[2])
            ]
            if fixed[0] is None or fixed[1] is None:
                continue
            assert every[1]
            for option in every[1].options():
                key = tuple((stage.loops, stage.together) for stage in option)
                if key in tried:
                    continue
                tried.add(key)
                body = [replace(stage, blocked=True) for stage in option]
                yield [*fixed[0], *body, *fixed[1]]
                if len(tried) == TUNING.block.cuts:
                    return

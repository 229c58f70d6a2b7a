"""Programs of large batches: what is computed of one block of samples is computed of each in turn.

Arrays, layouts and slices are searched for a few blocks alone, and the best program of these is
made as long as the batch. A sum over samples is taken in parts, one or more for each block.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from trainwright.compiler.base.errors import CompileError
from trainwright.compiler.base.progress import is_spent
from trainwright.compiler.choose.choose import choose
from trainwright.compiler.cut.slices import Block, Stage
from trainwright.compiler.cut.stages import Stages
from trainwright.compiler.forms.choices import Choice, Chosen, Given, SearchMode, Stored
from trainwright.compiler.forms.impls import up
from trainwright.compiler.schedule.place import lost, place
from trainwright.compiler.schedule.schedule import scheduled
from trainwright.compiler.step.drafts import Draft, Lowered
from trainwright.compiler.tile.tile import Tiler
from trainwright.graph.ir import Graph
from trainwright.graph.network import SAMPLES
from trainwright.parameters import AcceleratorParameters

LEAST = 64
"""Samples of a batch that is computed in one block, at most."""
SIZES = (32, 16, 64)
"""Samples of a block."""
FEW, MORE = 3, 5
"""Blocks of the programs that are compared."""
TIMED = 8
"""Programs that are placed and timed by the cycle model: the best by the estimate."""
MODES = (SearchMode(0.1, False, True, steady=True), SearchMode(0.1, False, False, steady=True))
"""How arrays and layouts are chosen."""
MOST = 12
"""Ways to cut the stages that are compared for each choice of arrays."""
ROOMS = (1.0, 0.75, 0.5)
"""Parts of the scratchpad in use from which on no array runs ahead of the other."""
LOOKAHEAD = 16
"""Commands of an array among which it takes the next."""
RESIDENT = 4
"""Part of the scratchpad that a tensor may have that lies there for all blocks."""
PARTS = (4, 8)
"""Parts of the scratchpad from which a tensor is used up in slices."""


def blocks_of(batch: int, size: int) -> tuple[Block, ...]:
    """The blocks of a batch, the last one with what is left."""
    return tuple((lo, min(lo + size, batch)) for lo in range(0, batch, size))


@dataclass(frozen=True)
class Places:
    """Operations by when they are computed: before all blocks, in each, after all."""

    before: frozenset[str]
    inside: frozenset[str]
    after: frozenset[str]


def places_of(graph: Graph) -> Places | None:
    """When each operation is computed; ``None`` where something of samples needs a sum of them."""
    before, inside, after = set[str](), set[str](), set[str]()
    summed = set[str]()
    for op in graph.ops:
        axes = {axis for name in (op.out, *op.operands) for axis in graph.tensors[name].axes}
        # A group of samples is in several blocks.
        if SAMPLES in op.over:
            return None
        if SAMPLES in axes:
            if summed & set(op.operands):
                return None
            inside.add(op.out)
            if SAMPLES not in graph.tensors[op.out].axes:
                summed.add(op.out)
        elif summed & set(op.operands):
            after.add(op.out)
            summed.add(op.out)
        else:
            before.add(op.out)
    return Places(frozenset(before), frozenset(inside), frozenset(after))


@dataclass(frozen=True)
class _Body:
    """How one block is computed; ``size`` are its samples."""

    chosen: Chosen
    stages: tuple[Stage, ...]
    size: int
    room: float
    """Part of the scratchpad in use from which on no array runs ahead of the other."""


@dataclass
class Blocks:
    """Searches a program of blocks."""

    graph: Graph
    given: Mapping[str, Given]
    stored: Stored
    p: AcceleratorParameters
    time: Callable[[Lowered], int]
    """Cycles of a program by the cycle model."""
    problems: list[CompileError] = field(default_factory=list)

    def best(self) -> Iterator[list[Draft]]:
        """Programs of one way to compute a block, in several orders of issue, the best way by the
        cycle model first.
        """
        batch, places = self.graph.sizes[SAMPLES], places_of(self.graph)
        if batch <= LEAST or places is None or not places.inside:
            return
        parts = [part for one in self.given.values() for part in one.parts]
        if any(part.cut for part in parts):  # arrays cannot be balanced then
            return
        if self._is_hopeless(places):
            return
        found: list[tuple[float, int, _Body]] = []
        try:
            every = choose(self.graph, self.given, self.stored, self.p, MODES)
        except CompileError as error:  # there may be programs of all samples at once
            self.problems.append(error)
            return
        for size in (size for size in SIZES if batch >= MORE * size):
            for chosen in every:
                if found and is_spent():
                    break
                for stages in self._options(chosen, places, size):
                    for room in ROOMS:
                        body = _Body(chosen, tuple(stages), size, room)
                        cycles = self._estimate(body)
                        if cycles is not None:
                            found.append((cycles, len(found), body))
                            break
        found.sort(key=lambda one: one[:2])
        timed = [(self._rate(body), n, body) for _, n, body in found[:TIMED]]
        for rate, _, body in sorted(timed, key=lambda one: one[:2]):
            if rate == float("inf"):
                return
            try:
                yield [self._draft(self.graph, replace(body, room=room)) for room in ROOMS]
            except CompileError as error:
                self.problems.append(error)

    def _is_hopeless(self, places: Places) -> bool:
        """Return whether a tensor that all blocks share has more rows than the scratchpad.

        What is computed before all blocks for them, and sums over samples, stay there from block
        to block. Without this test `fashion` in 512 samples took 16 s of 36 to find no blocks.
        """
        graph = self.graph
        read = {name for op in graph.ops if op.out in places.inside for name in op.operands}
        shared = (places.before & read) | {
            name for name in places.inside if SAMPLES not in graph.tensors[name].axes
        }
        for name in shared - set(graph.windows):
            rows = up(graph.count(name), self.p.lanes) * graph.tensors[name].digits
            if rows > self.p.scratchpad_rows:
                return True
        return False

    def _estimate(self, body: _Body) -> float | None:
        """Cycles of a sample, by the estimate; ``None`` where it does not fit."""
        try:
            draft = self._draft(self._sized(FEW * body.size), body)
            return (draft.cycles + lost(draft.calls, self.p, stores=True)) / (FEW * body.size)
        except CompileError as error:
            self.problems.append(error)
            return None

    def _rate(self, body: _Body) -> float:
        """Cycles of a sample, by the cycle model: of what some blocks take more than fewer."""
        cycles = []
        for count in (FEW, MORE):
            try:
                draft = self._draft(self._sized(count * body.size), body)
                rows = place(draft.calls, self.p, stores=True)
                cycles.append(self.time(draft.lowered(rows)))
            except CompileError as error:
                self.problems.append(error)
                return float("inf")
        return (cycles[1] - cycles[0]) / ((MORE - FEW) * body.size)

    def _sized(self, batch: int) -> Graph:
        return replace(self.graph, sizes={**self.graph.sizes, SAMPLES: batch})

    def _draft(self, graph: Graph, body: _Body) -> Draft:
        """A program in an order of issue. Raises ``CompileError``."""
        blocks = blocks_of(graph.sizes[SAMPLES], body.size)
        pads, p = body.chosen.pads, self.p
        tiler = Tiler(graph, self.given, self.stored, pads, (), p, blocks=blocks)
        issue = scheduled(
            tiler.run(body.stages), LOOKAHEAD, round(body.room * p.scratchpad_rows), freed=True
        )
        return Draft(
            issue.cycles, tiler.graph, body.chosen, body.stages, issue, tiler.outer, tiler.macs
        )

    def _options(self, chosen: Chosen, places: Places, size: int) -> Iterator[list[Stage]]:
        """Ways to cut the stages."""
        graph = self._sized(size)
        parts = [
            tuple(choice for choice in chosen.choices if choice.op.out in names)
            for names in (places.before, places.inside, places.after)
        ]
        tried: set[tuple] = set()
        for part in PARTS:
            every = [self._stages(graph, chosen, choices, part) for choices in parts]
            if any(one.spilled for one in every if one):
                continue
            fixed = [next(one.options(), None) if one else [] for one in (every[0], every[2])]
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
                if len(tried) == MOST:
                    return

    def _stages(
        self, graph: Graph, chosen: Chosen, choices: tuple[Choice, ...], part: int
    ) -> Stages | None:
        if not choices:
            return None
        some = replace(chosen, choices=choices)
        large = self.p.scratchpad_rows // part
        return Stages(graph, self.given, some, self.stored, self.p, large=large)

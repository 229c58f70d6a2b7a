"""Draft programs of some choices: cut in many ways, tiled, issued, and estimated.

In: ``Chosen`` of ``choose``. Out: ``Draft``, the best first; ``lower`` places and times them. Every
cut is tiled and issued, some 5 ms each. What shared banks cost is estimated with pieces placed
once, some 30 ms, beginning with the fastest schedules, until no other can be better.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from trainwright.compiler.base.errors import CompileError, DoesNotFitError
from trainwright.compiler.base.progress import HOPELESS, count, is_spent
from trainwright.compiler.choose.divide import variants
from trainwright.compiler.cut.slices import Stage
from trainwright.compiler.cut.stages import Stages
from trainwright.compiler.forms.calls import Call, External
from trainwright.compiler.forms.choices import Choice, Chosen, Given, Stored
from trainwright.compiler.forms.layout import CutError
from trainwright.compiler.schedule.least import alive, held, require_rows
from trainwright.compiler.schedule.place import lost
from trainwright.compiler.schedule.schedule import Issue, scheduled
from trainwright.compiler.schedule.tight import tight
from trainwright.compiler.tile.tile import Tiler
from trainwright.graph.ir import Graph
from trainwright.parameters import AcceleratorParameters

ROOMS = (1.0, 0.8)
"""Shares of the scratchpad that may be in use before an array runs ahead of the other."""
LARGE = (4, 2, 1)
"""Parts of the scratchpad: a tensor larger than one part is used up in slices."""
LOOKAHEADS = (1, 16)
"""Commands of an array among which it takes the next: only the first, or any of many."""
MOST_DRAFTS = 4
"""Cuts that are estimated for each choice of arrays and layouts, the likely best first."""
MOST_COMBINED = 10
"""Limit in place of ``MOST_DRAFTS`` for programs with several stages that are cut."""
TIGHT = 0.95
"""Share of the scratchpad that may be in use where it is short; the rest is lost between pieces."""
EARLIER = (200, 1000)
"""Cycles by which loads come earlier than at the latest where rows are short."""
MOST_TIGHT = 16
"""Limit in place of ``MOST_DRAFTS`` where rows are short: the fewest slices come first."""
MOST_CHAINED = 2
"""Limit in place of ``MOST_DRAFTS`` for programs with all operations on samples in one stage."""
CLOSE = 1.0
"""Cycles of a schedule, relative to the best estimate, up to which it is placed, too.

At 1.0 nothing is lost: shared banks only add to the cycles of a schedule.
"""


@dataclass(frozen=True)
class Lowered:
    """Program without addresses: its operations, how they are computed, its commands."""

    graph: Graph
    choices: tuple[Choice, ...]
    stages: tuple[Stage, ...]
    calls: tuple[Call, ...]
    outer: Mapping[str, External]
    macs: int
    rows: int
    """Rows of the scratchpad in use."""


@dataclass(frozen=True)
class Draft:
    """Program whose pieces were placed in a hurry, with an estimate of its cycles."""

    cycles: float
    graph: Graph
    chosen: Chosen
    stages: tuple[Stage, ...]
    issue: Issue
    outer: Mapping[str, External]
    macs: int

    @property
    def calls(self) -> tuple[Call, ...]:
        """Commands in the order of issue, with their times."""
        return self.issue.timed()

    def lowered(self, rows: int) -> Lowered:
        """Return the program in so many rows of the scratchpad."""
        choices, calls = self.chosen.choices, self.calls
        return Lowered(self.graph, choices, self.stages, calls, self.outer, self.macs, rows)


@dataclass(frozen=True)
class _Program:
    """Program before it is issued."""

    graph: Graph
    chosen: Chosen
    stages: tuple[Stage, ...]
    calls: Sequence[Call]
    outer: Mapping[str, External]
    macs: int

    def draft(self, cycles: float, issue: Issue) -> Draft:
        """Return the program in an order of issue, with an estimate of its cycles."""
        return Draft(cycles, self.graph, self.chosen, self.stages, issue, self.outer, self.macs)


@dataclass
class Drafts:
    """Programs in orders of issue, compared by the cycles of the schedule."""

    graph: Graph
    given: Mapping[str, Given]
    stored: Stored
    p: AcceleratorParameters
    short: bool = False
    """Whether a tensor is many times as large as the scratchpad."""
    problems: list[CompileError] = field(default_factory=list)
    _issued: list[tuple[float, int, _Program, Issue]] = field(default_factory=list)

    def add(self, chosen: Chosen) -> None:
        """Cut, tile and issue programs of some choices."""
        for number, (stages, spilled) in enumerate(self._options(chosen)):
            # The first cut is always tried, so that a compilation out of effort still ends with a
            # program.
            if (self._issued and is_spent()) or (number and is_spent(HOPELESS)):
                break
            tiler = Tiler(
                self.graph, self.given, self.stored, chosen.pads, spilled, self.p, spare=True
            )
            try:
                calls = tiler.run(stages)
                count("tiled", len(calls))
                require_rows(held(calls), self.p)
            except (CutError, DoesNotFitError) as error:
                self.problems.append(error)
                continue
            program = _Program(tiler.graph, chosen, tuple(stages), calls, tiler.outer, tiler.macs)
            rows = round(TIGHT * self.p.scratchpad_rows)
            for issue in tight(calls, LOOKAHEADS[-1], rows, EARLIER) if self.short else ():
                try:
                    require_rows(alive(issue.calls), self.p)
                except DoesNotFitError as error:
                    self.problems.append(error)
                    break
                self._issued.append((issue.cycles, len(self._issued), program, issue))
            for lookahead in () if self.short else LOOKAHEADS:
                self._issue(program, lookahead, ROOMS[0])

    def _issue(self, program: _Program, lookahead: int, room: float) -> None:
        issue = scheduled(program.calls, lookahead, round(room * self.p.scratchpad_rows))
        # The number breaks ties: programs cannot be compared, and the first found stays first.
        self._issued.append((issue.cycles, len(self._issued), program, issue))

    def best(self) -> list[Draft]:
        """Return the programs with the best estimates, the best first.

        Programs are placed in the order of their schedules, until a schedule alone takes more
        cycles than the best estimate.
        """
        drafts: list[Draft] = []
        if self.short:
            return list(self._fitting())
        least = float("inf")
        waiting = sorted(self._issued, key=lambda entry: entry[:2])
        for cycles, _, program, issue in waiting:
            if cycles > CLOSE * least:
                break
            try:
                require_rows(alive(issue.calls), self.p)
                total = cycles + lost(issue.timed(), self.p)
            except DoesNotFitError as error:
                self.problems.append(error)
                # The order of issue keeps too many pieces alive: a second one in fewer rows, of
                # the same commands, costs little.
                issue = scheduled(
                    program.calls, issue.lookahead, round(ROOMS[1] * self.p.scratchpad_rows)
                )
                try:
                    require_rows(alive(issue.calls), self.p)
                except DoesNotFitError as error:
                    self.problems.append(error)
                    continue
                try:
                    total = issue.cycles + lost(issue.timed(), self.p)
                except DoesNotFitError as error:
                    self.problems.append(error)
                    total = float("inf")  # ``place`` tries more orders than ``lost`` does
            least = min(least, total)
            drafts.append(program.draft(total, issue))
        return sorted(drafts, key=lambda draft: draft.cycles)

    def _fitting(self) -> Iterator[Draft]:
        """Yield all programs, the best schedules first, without placing them.

        Where rows are short most cannot be placed at all, so estimates of shared banks would tell
        little.
        """
        for cycles, _, program, issue in sorted(self._issued, key=lambda entry: entry[:2]):
            yield program.draft(cycles, issue)

    def _options(self, chosen: Chosen) -> Iterator[tuple[list[Stage], set[str]]]:
        """Yield cuts of the stages, each with the tensors that go through external memory."""
        yield from self._usual(chosen)
        if not self.short:
            yield from self._chained(chosen)

    def _stages(self, chosen: Chosen, part: int, *, chained: bool = False) -> Stages:
        large = self.p.scratchpad_rows // part
        return Stages(
            self.graph,
            self.given,
            chosen,
            self.stored,
            self.p,
            large=large,
            deep=self.short,
            chained=chained,
        )

    def _chained(self, chosen: Chosen) -> Iterator[tuple[list[Stage], set[str]]]:
        """Yield cuts along samples of all operations on samples, joined to one stage."""
        for part in LARGE:
            stages = self._stages(chosen, part, chained=True)
            if stages.chain and not stages.spilled & chosen.apart:
                for option in islice(stages.options(), MOST_CHAINED):
                    yield option, stages.spilled
                return

    def _usual(self, chosen: Chosen) -> Iterator[tuple[list[Stage], set[str]]]:
        """Yield cuts of what is large."""
        tried: set[tuple] = set()
        apart = chosen.apart
        for part in LARGE:
            stages = self._stages(chosen, part)
            # A spilled tensor is stored in one layout, one in parts has two.
            if stages.spilled & apart:
                continue
            for option in stages.options():
                # Different bounds for "large" often lead to the same cut: tile and issue it once.
                key = tuple((stage.loops, stage.together, len(stage.choices)) for stage in option)
                if key not in tried:
                    tried.add(key)
                    every = variants(self.graph, option, self.p.lanes)
                    for variant in (option,) if self.short else every:
                        yield variant, stages.spilled
                sliced = sum(bool(stage.loops) for stage in option)
                most = MOST_DRAFTS if sliced < 2 else MOST_COMBINED
                if len(tried) >= (MOST_TIGHT if self.short else most):
                    return

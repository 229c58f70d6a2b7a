"""Programs of some choices of arrays and layouts: cut in many ways, issued, and estimated.

All are cut, tiled and issued. What shared banks cost is estimated with pieces placed, of those
with the fastest schedules, until no other can be better.
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
"""Parts of the scratchpad that may be in use before an array runs ahead of the other."""
LARGE = (4, 2, 1)
"""Parts of the scratchpad from which a tensor is used up in slices."""
LOOKAHEADS = (1, 16)
"""Commands of an array among which it takes the next."""
MOST_DRAFTS = 4
"""Programs that are estimated for each choice of arrays and layouts: the likely ones first."""
MOST_COMBINED = 10
"""As ``MOST_DRAFTS``, of programs of which several stages are cut."""
TIGHT = 0.95
"""Part of the scratchpad that may be in use where it is short."""
EARLIER = (200, 1000)
"""Cycles by which loads come earlier than at the latest there."""
MOST_TIGHT = 16
"""As ``MOST_DRAFTS`` where rows are short: the fewest slices first."""
MOST_CHAINED = 2
"""As ``MOST_DRAFTS``, of programs in which all that is computed of samples is one stage."""
CLOSE = 1.0
"""Of the best estimate, what the cycles of a schedule may be that is placed, too."""


@dataclass(frozen=True)
class Lowered:
    """One program without addresses: its operations, how they are computed, its commands."""

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
    """A program, its pieces placed in a hurry, and an estimate of its cycles."""

    cycles: float
    graph: Graph
    chosen: Chosen
    stages: tuple[Stage, ...]
    issue: Issue
    outer: Mapping[str, External]
    macs: int

    @property
    def calls(self) -> tuple[Call, ...]:
        """The commands in the order of issue, with their times."""
        return self.issue.timed()

    def lowered(self, rows: int) -> Lowered:
        """The program, in so many rows of the scratchpad."""
        choices, calls = self.chosen.choices, self.calls
        return Lowered(self.graph, choices, self.stages, calls, self.outer, self.macs, rows)


@dataclass(frozen=True)
class _Program:
    """A program before it is issued."""

    graph: Graph
    chosen: Chosen
    stages: tuple[Stage, ...]
    calls: Sequence[Call]
    outer: Mapping[str, External]
    macs: int


@dataclass
class Drafts:
    """Programs in orders of issue, by the cycles of the schedule alone."""

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
            one = _Program(tiler.graph, chosen, tuple(stages), calls, tiler.outer, tiler.macs)
            rows = round(TIGHT * self.p.scratchpad_rows)
            for issue in tight(calls, LOOKAHEADS[-1], rows, EARLIER) if self.short else ():
                try:
                    require_rows(alive(issue.calls), self.p)
                except DoesNotFitError as error:
                    self.problems.append(error)
                    break
                self._issued.append((issue.cycles, len(self._issued), one, issue))
            for lookahead in () if self.short else LOOKAHEADS:
                self._issue(one, lookahead, ROOMS[0])

    def _issue(self, one: _Program, lookahead: int, room: float) -> None:
        issue = scheduled(one.calls, lookahead, round(room * self.p.scratchpad_rows))
        self._issued.append((issue.cycles, len(self._issued), one, issue))

    def best(self) -> list[Draft]:
        """The programs with the best estimates, the best first.

        Those are placed of which the cycles of the schedule are not above the best estimate.
        """
        found: list[Draft] = []
        if self.short:
            return list(self._fitting())
        least = float("inf")
        waiting = sorted(self._issued, key=lambda one: one[:2])
        for cycles, _, one, issue in waiting:
            if cycles > CLOSE * least:
                break
            try:
                require_rows(alive(issue.calls), self.p)
                total = cycles + lost(issue.timed(), self.p)
            except DoesNotFitError as error:
                self.problems.append(error)
                issue = scheduled(
                    one.calls, issue.lookahead, round(ROOMS[1] * self.p.scratchpad_rows)
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
                    total = float("inf")
            least = min(least, total)
            found.append(
                Draft(total, one.graph, one.chosen, one.stages, issue, one.outer, one.macs)
            )
        return sorted(found, key=lambda draft: draft.cycles)

    def _fitting(self) -> Iterator[Draft]:
        """Those that can be placed, the best schedules first: rows are what decides."""
        for cycles, _, one, issue in sorted(self._issued, key=lambda one: one[:2]):
            yield Draft(cycles, one.graph, one.chosen, one.stages, issue, one.outer, one.macs)

    def _options(self, chosen: Chosen) -> Iterator[tuple[list[Stage], set[str]]]:
        """Ways to cut the stages, and what goes through the outer memory."""
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
        """Ways to cut all that is computed of samples along them alone."""
        for part in LARGE:
            stages = self._stages(chosen, part, chained=True)
            if stages.chain and not stages.spilled & chosen.apart:
                for option in islice(stages.options(), MOST_CHAINED):
                    yield option, stages.spilled
                return

    def _usual(self, chosen: Chosen) -> Iterator[tuple[list[Stage], set[str]]]:
        """Ways to cut what is large."""
        tried: set[tuple] = set()
        apart = chosen.apart
        for part in LARGE:
            stages = self._stages(chosen, part)
            if stages.spilled & apart:
                continue
            for option in stages.options():
                key = tuple((stage.loops, stage.together, len(stage.choices)) for stage in option)
                if key not in tried:
                    tried.add(key)
                    some = variants(self.graph, option, self.p.lanes)
                    for variant in (option,) if self.short else some:
                        yield variant, stages.spilled
                sliced = sum(bool(stage.loops) for stage in option)
                most = MOST_DRAFTS if sliced < 2 else MOST_COMBINED
                if len(tried) >= (MOST_TIGHT if self.short else most):
                    return

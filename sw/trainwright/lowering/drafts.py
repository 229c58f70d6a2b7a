"""Programs of some choices of arrays and layouts: cut in many ways, issued, and estimated.

A program is cut, tiled and issued; it is given up as soon as it cannot be better than the best ones
so far: by the cycles of its arrays, then by the schedule's, at last with what shared banks cost.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from trainwright.compiler.errors import CompileError, DoesNotFitError
from trainwright.graph.ir import Graph
from trainwright.lowering.calls import Call, External
from trainwright.lowering.choices import Choice, Chosen, Given
from trainwright.lowering.divide import variants
from trainwright.lowering.layout import CutError
from trainwright.lowering.place import fits, lost
from trainwright.lowering.schedule import ARRAYS, Issue, scheduled
from trainwright.lowering.stages import Stages
from trainwright.lowering.tile import Stage, Tiler
from trainwright.parameters import AcceleratorParameters

ROOMS = (1.0, 0.8)
"""Parts of the scratchpad that may be in use before an array runs ahead of the other."""
LARGE = (4, 2, 1)
"""Parts of the scratchpad from which a tensor is used up in slices."""
WINDOWS = (1, 16)
"""Commands of an array among which it takes the next."""
MOST_DRAFTS = 5
"""Programs that are estimated for each choice of arrays and layouts: the likely ones first."""
CLOSE = 1.08
"""Of the estimate of the best program, what another may have that is placed and timed, too."""


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


@dataclass
class Drafts:
    """The programs found so far."""

    graph: Graph
    given: Mapping[str, Given]
    stored: Sequence[str]
    p: AcceleratorParameters
    found: list[Draft] = field(default_factory=list)
    problems: list[CompileError] = field(default_factory=list)

    @property
    def most(self) -> float:
        """Cycles from which a program is not worth to be looked at."""
        return CLOSE * min((draft.cycles for draft in self.found), default=float("inf"))

    def add(self, chosen: Chosen) -> None:
        """Estimate programs of some choices."""
        for stages, spilled in self._options(chosen):
            tiler = Tiler(self.graph, self.given, self.stored, chosen.pads, spilled, self.p)
            try:
                calls = tiler.run(stages)
                for window in WINDOWS:
                    cycles, issue = self._issued(calls, window)
                    if issue:
                        done = tiler.graph, chosen, tuple(stages), issue, tiler.outer, tiler.macs
                        self.found.append(Draft(cycles, *done))
            except (CutError, DoesNotFitError) as error:
                self.problems.append(error)

    def best(self) -> list[Draft]:
        """The programs, the best first."""
        return sorted(self.found, key=lambda draft: draft.cycles)

    def _options(self, chosen: Chosen) -> Iterator[tuple[list[Stage], set[str]]]:
        """Ways to cut the stages, and what goes through the outer memory."""
        tried: set[tuple] = set()
        apart = chosen.apart
        for part in LARGE:
            large = self.p.scratchpad_rows // part
            stages = Stages(self.graph, self.given, chosen, self.stored, self.p, large=large)
            if stages.spilled & apart:
                continue
            for option in stages.options():
                key = tuple((stage.loops, stage.together, len(stage.choices)) for stage in option)
                if key not in tried:
                    tried.add(key)
                    for variant in variants(self.graph, option, self.p.lanes):
                        yield variant, stages.spilled
                if len(tried) >= MOST_DRAFTS:
                    return

    def _issued(self, calls: Sequence[Call], window: int) -> tuple[float, Issue | None]:
        """An estimate of the cycles of commands, infinite where they can only just be placed, and
        the order of issue; none where the estimate is too high."""
        most = self.most
        if max(sum(call.cycles for call in calls if call.engine is e) for e in ARRAYS) > most:
            return most, None
        problem: DoesNotFitError | None = None
        for room in ROOMS:
            issue = scheduled(calls, window, round(room * self.p.scratchpad_rows))
            if issue.cycles > most:
                return most, None
            try:
                return issue.cycles + lost(issue.timed(), self.p), issue
            except DoesNotFitError as error:
                problem = error
                if fits(issue.calls, self.p):
                    return float("inf"), issue
        assert problem
        raise problem

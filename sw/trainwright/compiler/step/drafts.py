"""Draft programs of given choices: cut in many ways, tiled, issued, and estimated.

Input: ``Chosen`` of ``choose``. Output: drafts, the best first, which ``lower`` places and times.
Every cut is tiled and issued, some 5 ms each. Then pieces are placed once, some 30 ms, to estimate
the cycles lost on shared banks: the fastest schedules first, until no other can be better.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import islice

from trainwright.compiler.base.errors import CompileError, DoesNotFitError
from trainwright.compiler.base.progress import count, is_over
from trainwright.compiler.base.tuning import TUNING
from trainwright.compiler.choose.divisions import variants
from trainwright.compiler.cut.slices import Stage
from trainwright.compiler.cut.stages import Stages
from trainwright.compiler.forms.choices import Chosen, ProgramSpec
from trainwright.compiler.forms.layout import Addresses, CutError
from trainwright.compiler.schedule.place import (
    Place,
    always_alive,
    at_fullest,
    fits,
    lost,
    places_of,
    require_rows,
)
from trainwright.compiler.schedule.schedule import Issue, scheduled
from trainwright.compiler.schedule.tight import tight
from trainwright.compiler.tile.tile import Lowered, tiled


@dataclass(frozen=True)
class Draft:
    """Program in an order of issue, with an estimate of its cycles."""

    cycles: float
    program: Lowered
    """Program with its commands in the order of the operations."""
    issue: Issue

    def placed(self, addresses: Addresses) -> Lowered:
        """Return the program with its pieces at these addresses."""
        return replace(self.program, calls=self.issue.calls, addresses=addresses)

    @property
    def fullest(self) -> list[Place]:
        """Places of the pieces that are in use when most rows are."""
        return at_fullest(places_of(self.issue.calls))


@dataclass
class Drafts:
    """Programs in orders of issue, compared by the cycles of the schedule."""

    spec: ProgramSpec
    short: bool = False
    """Whether the scratchpad is short: a tensor is many times as large."""
    problems: list[CompileError] = field(default_factory=list)
    _issued: list[Draft] = field(default_factory=list)
    _fits: bool = False
    """Whether an order of issue has rows for all of its pieces."""

    @property
    def is_over(self) -> bool:
        """Whether the effort for trying cuts is spent."""
        return is_over(self._fits)

    def add(self, chosen: Chosen) -> None:
        """Cut, tile and issue programs of some choices."""
        p = self.spec.p
        for number, (stages, spilled) in enumerate(self._options(chosen)):
            # Always try the first cut: a compilation that is out of effort still needs a program.
            if (number or self._issued) and self.is_over:
                break
            try:
                program = tiled(self.spec, stages, chosen.pads, spilled, spare=True)
                count("tiled", len(program.calls))
                require_rows(always_alive(program.calls), p)
            except (CutError, DoesNotFitError) as error:
                self.problems.append(error)
                continue
            if self.short:
                self._issue_tight(program)
            else:
                for lookahead in TUNING.draft.lookaheads:
                    draft = self._draft(program, lookahead, TUNING.draft.rooms[0])
                    self._issued.append(draft)
                    self._fits |= fits(draft.fullest, p)

    def _issue_tight(self, program: Lowered) -> None:
        """Add the orders of issue that have rows for all pieces, until one has not."""
        tune, p = TUNING.draft, self.spec.p
        rows = round(tune.tight_share * p.scratchpad_rows)
        for issue in tight(program.calls, tune.lookaheads[-1], rows, tune.tight_load_margins):
            draft = Draft(issue.cycles, program, issue)
            try:
                require_rows(draft.fullest, p)
            except DoesNotFitError as error:
                self.problems.append(error)
                return
            self._issued.append(draft)
            self._fits = True

    def _draft(self, program: Lowered, lookahead: int, room: float) -> Draft:
        issue = scheduled(program.calls, lookahead, round(room * self.spec.p.scratchpad_rows))
        return Draft(issue.cycles, program, issue)

    def best(self) -> list[Draft]:
        """Return the programs with the best estimates, the best first.

        Programs are placed in the order of their schedules, until a schedule alone takes more
        cycles than the best estimate.
        """
        # Drafts of equal cycles keep the order in which they were found.
        waiting = sorted(self._issued, key=lambda draft: draft.cycles)
        # If rows are short, most programs cannot be placed, so estimates of shared banks mean
        # little.
        if self.short:
            return waiting
        drafts: list[Draft] = []
        least = float("inf")
        for draft in waiting:
            if draft.cycles > TUNING.draft.placed_up_to * least:
                break
            # A search out of effort still returns its best draft with rows for all pieces.
            if (drafts or not self._fits) and is_over(drafts):
                break
            try:
                total = self._cycles(draft)
            except DoesNotFitError as error:
                self.problems.append(error)
                # The order of issue keeps too many pieces alive: issue the commands in fewer rows.
                draft = self._draft(draft.program, draft.issue.lookahead, TUNING.draft.rooms[1])
                try:
                    total = self._cycles(draft)
                except DoesNotFitError as error:
                    self.problems.append(error)
                    if not fits(draft.fullest, self.spec.p):
                        continue
                    total = float("inf")  # ``place`` tries more orders than ``lost`` does
            least = min(least, total)
            drafts.append(replace(draft, cycles=total))
        return sorted(drafts, key=lambda draft: draft.cycles)

    def _cycles(self, draft: Draft) -> float:
        """Estimate the cycles of a program, those lost on shared banks included.

        Raises ``DoesNotFitError``.
        """
        require_rows(draft.fullest, self.spec.p)
        return draft.cycles + lost(draft.issue, self.spec.p)

    def _options(self, chosen: Chosen) -> Iterator[tuple[list[Stage], set[str]]]:
        """Yield cuts of the stages, each with the tensors that go through external memory."""
        yield from self._usual(chosen)
        if not self.short:
            yield from self._chained(chosen)

    def _chained(self, chosen: Chosen) -> Iterator[tuple[list[Stage], set[str]]]:
        """Yield cuts along samples of all operations on samples, joined to one stage."""
        for part in TUNING.draft.large_divisors:
            stages = Stages(self.spec, chosen, large_divisor=part, chained=True)
            is_chain = any(group.chained for group in stages.groups)
            if is_chain and not stages.spilled & chosen.apart:
                for option in islice(stages.options(), TUNING.draft.chained_cuts):
                    yield option, stages.spilled
                return

    def _usual(self, chosen: Chosen) -> Iterator[tuple[list[Stage], set[str]]]:
        """Yield cuts of stages with large tensors."""
        tried: set[tuple] = set()
        apart = chosen.apart
        for part in TUNING.draft.large_divisors:
            # Stop before a further bound: a stage of many axes has 30,000 cuts to rank.
            if part != TUNING.draft.large_divisors[0] and self.is_over:
                return
            stages = Stages(self.spec, chosen, large_divisor=part, deep=self.short)
            # A spilled tensor is stored in one layout, so its parts must not have two.
            if stages.spilled & apart:
                continue
            for option in stages.options():
                # Different bounds for "large" often lead to the same cut: tile and issue it once.
                key = tuple((stage.loops, stage.together, len(stage.choices)) for stage in option)
                if key not in tried:
                    tried.add(key)
                    every = variants(self.spec.graph, option, self.spec.p.lanes)
                    for variant in (option,) if self.short else every:
                        yield variant, stages.spilled
                sliced = sum(bool(stage.loops) for stage in option)
                most = TUNING.draft.cuts if sliced < 2 else TUNING.draft.combined_cuts
                if len(tried) >= (TUNING.draft.tight_cuts if self.short else most):
                    return

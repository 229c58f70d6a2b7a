"""Progress of a compilation: its phase for a waiting user, its effort in counted alternatives."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from trainwright.compiler.base.tuning import TUNING

MOST_EFFORT = 250_000
"""Alternatives after which a compilation takes the best program so far.

A processor evaluates between 15,000 and 35,000 in a second, so that no network takes longer than
20 seconds. `fashion-conv` takes 256,000 in 7 s, as each program is finished once begun.
"""
COSTS = {"issued": 4, "timed": 3}
"""Weight of a kind of alternative in the effort: its time in units of 50 us; other kinds weigh 1.

Counted as one each, `fashion` in 1,024 samples took 40 s for 320,000 alternatives: mostly commands
that were issued, in programs of 10,000.
"""


class CompileProgress:
    """Phase that a compilation is in, and alternatives that it has evaluated.

    ``phase`` is read from the thread that writes the lines. ``counts`` has, by kind, what was
    evaluated: ``states`` (partial programs), ``cuts`` of stages, and commands that were
    ``tiled``, ``issued``, ``placed`` and ``timed``. Counts are the same on every machine.
    """

    def __init__(self) -> None:
        self.phase = ""
        self.counts: Counter[str] = Counter()
        self.begun = 0
        self.most: int | None = None
        """Effort at which the compilation began, and after which it ends."""
        self.hopeless = TUNING.effort.hopeless

    @property
    def effort(self) -> int:
        """Alternatives of all kinds, each by the time that it takes."""
        return sum(number * COSTS.get(kind, 1) for kind, number in self.counts.items())


_CURRENT: ContextVar[CompileProgress | None] = ContextVar("progress", default=None)
# A context variable and no argument: eight functions lie between the two ends, and compilations
# in other threads have progress of their own.


def enter_phase(phase: str) -> None:
    """Note the phase of the compilation under way, if a caller follows it."""
    if (progress := _CURRENT.get()) is not None:
        progress.phase = phase


def count(kind: str, number: int = 1) -> None:
    """Count evaluated alternatives of a kind."""
    if (progress := _CURRENT.get()) is not None:
        progress.counts[kind] += number


def is_spent() -> bool:
    """Return whether the compilation has evaluated the alternatives that it may."""
    progress = _CURRENT.get()
    # Nobody set a bound: tests and tools that compile a single program.
    if progress is None or progress.most is None:
        return False
    return progress.effort >= progress.most


def is_over(programs: object) -> bool:
    """Return whether a search ends: soon where it has ``programs``, else once it is hopeless."""
    progress = _CURRENT.get()
    if programs or progress is None or progress.most is None:
        return is_spent()
    return progress.effort - progress.begun >= progress.hopeless


def rest(part: float = 1.0) -> int | None:
    """Return a part of the alternatives that are left, if a caller bounds them."""
    progress = _CURRENT.get()
    if progress is None or progress.most is None:
        return None
    return max(1, round(part * (progress.most - progress.effort)))


@contextmanager
def followed(most: int | None = None, *, hopeless: int | None = None) -> Iterator[CompileProgress]:
    """Follow the compilation within the block, which ends soon after ``most`` alternatives.

    Without any program it ends after ``hopeless`` alternatives, by default those of ``TUNING``. A
    block within another one has the progress of that one.
    """
    outer = _CURRENT.get()
    progress = outer or CompileProgress()
    before = progress.begun, progress.most, progress.hopeless
    if most is not None:
        progress.begun = progress.effort
        progress.most = progress.effort + most
    progress.hopeless = hopeless or progress.hopeless
    token = _CURRENT.set(progress)
    try:
        yield progress
    finally:
        progress.begun, progress.most, progress.hopeless = before
        _CURRENT.reset(token)

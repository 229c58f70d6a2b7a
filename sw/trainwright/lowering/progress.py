"""Progress of a compilation: its phase for a waiting user, its effort in counted alternatives."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

MOST_EFFORT = 400_000
"""Alternatives after which a compilation takes the best program so far.

`fashion-conv` evaluates 131,000, `fashion` in 4,096 rows of the scratchpad 283,000, at about
20,000 in a second: no network takes much more than 20 s.
"""


class CompileProgress:
    """Phase that a compilation is in, and alternatives that it has evaluated.

    ``phase`` is read from the thread that writes the lines. ``counts`` has, by kind, what was
    evaluated: ``states`` (partial programs), and commands that were ``tiled``, ``issued``,
    ``placed`` and ``timed``. Counts are the same on every machine.
    """

    def __init__(self) -> None:
        self.phase = ""
        self.counts: Counter[str] = Counter()
        self.most: int | None = None

    @property
    def effort(self) -> int:
        """Alternatives of all kinds."""
        return self.counts.total()


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
    """Return whether the compilation has evaluated as many alternatives as it may."""
    progress = _CURRENT.get()
    return progress is not None and progress.most is not None and progress.effort >= progress.most


@contextmanager
def followed(most: int | None = None) -> Iterator[CompileProgress]:
    """Follow the compilation within the block, which ends soon after ``most`` alternatives.

    A block within another one has the progress of that one.
    """
    outer = _CURRENT.get()
    progress = outer or CompileProgress()
    before = progress.most
    if most is not None:
        progress.most = progress.effort + most
    token = _CURRENT.set(progress)
    try:
        yield progress
    finally:
        progress.most = before
        _CURRENT.reset(token)

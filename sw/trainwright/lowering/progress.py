"""Progress of a compilation, for the lines that a waiting user reads."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar


class CompilePhase:
    """Phase that a compilation is in, read from the thread that writes the lines."""

    def __init__(self) -> None:
        self.phase = ""


_CURRENT: ContextVar[CompilePhase | None] = ContextVar("progress", default=None)
# A context variable and no argument: eight functions lie between the two ends, and compilations
# in other threads have phases of their own.


def enter_phase(phase: str) -> None:
    """Note the phase of the compilation under way, if a caller follows it."""
    if (progress := _CURRENT.get()) is not None:
        progress.phase = phase


@contextmanager
def followed() -> Iterator[CompilePhase]:
    """Follow the phases of a compilation within the block."""
    progress = CompilePhase()
    token = _CURRENT.set(progress)
    try:
        yield progress
    finally:
        _CURRENT.reset(token)

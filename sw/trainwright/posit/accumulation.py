"""Accumulation mode of posit tensors: a setting of the process (``docs/reference/posit.md``)."""

from collections.abc import Iterator
from contextlib import contextmanager

from trainwright.posit.products import Mode, check_mode

_mode: Mode = "quire"


def get_accumulation() -> Mode:
    """Return the mode in force; ``quire`` unless set."""
    return _mode


def set_accumulation(mode: Mode) -> None:
    """Set the mode: ``sequential`` rounds every product and every sum, ``quire`` sums exactly.

    The setting holds for all threads, because autograd may run a backward pass in its own thread.
    Raises ``ValueError``.
    """
    global _mode
    check_mode(mode)
    _mode = mode


@contextmanager
def accumulation(mode: Mode) -> Iterator[None]:
    """Set the mode for a ``with`` block; a backward pass uses the mode of the block it runs in."""
    before = _mode
    set_accumulation(mode)
    try:
        yield
    finally:
        set_accumulation(before)

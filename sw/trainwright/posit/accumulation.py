"""How posit tensors accumulate sums of products: a setting of the process (``docs/posit.md``)."""

from collections.abc import Iterator
from contextlib import contextmanager

from trainwright.posit.products import Mode, check_mode

_mode: Mode = "quire"


def get_accumulation() -> Mode:
    """The mode in force; ``quire`` at first."""
    return _mode


def set_accumulation(mode: Mode) -> None:
    """``sequential``: every product and every sum is rounded; ``quire``: sums are exact.

    For all threads, for autograd may run in one of its own. Raises ``ValueError``.
    """
    global _mode
    check_mode(mode)
    _mode = mode


@contextmanager
def accumulation(mode: Mode) -> Iterator[None]:
    """``set_accumulation`` for a block; a backward pass has the mode of the block it runs in."""
    before = _mode
    set_accumulation(mode)
    try:
        yield
    finally:
        set_accumulation(before)

"""A host that looks on: what a board does alone, over a line that may be gone for a while."""

import time
from collections.abc import Callable
from contextlib import suppress

from trainwright.accelerator import AcceleratorError
from trainwright.link.host import HostLink, LinkError

SHARE = 64
"""Between two looks passes a part of the time that the run has taken so far, one of so many."""
MOST_SECONDS = 0.5
"""Between two looks, at most."""
LOST_SECONDS = 60.0
"""For which a line may be gone."""


def await_run(
    link: HostLink, is_busy: Callable[[], bool], *, seconds: float, lost_seconds: float
) -> None:
    """Look until ``is_busy`` is false, more and more seldom.

    Where the board does not answer the line is tried again. Raises ``LinkError`` after
    ``lost_seconds`` of that, ``AcceleratorError`` after ``seconds`` in all, and what ``is_busy``
    raises otherwise, ``AcceleratorReset`` among it.
    """
    begin = time.perf_counter()
    rested, lost = 0.0, 0.0
    while True:
        try:
            if not is_busy():
                return
            lost = 0.0
            pause = min(rested / SHARE + 1e-5, MOST_SECONDS)
            rested += pause
            link.rest(pause)
        except LinkError as error:
            lost = lost or time.perf_counter()
            _try_again(link, error, time.perf_counter() - lost, lost_seconds)
        if time.perf_counter() - begin > seconds:
            raise AcceleratorError(f"not done after {seconds:g} s")


def _try_again(link: HostLink, error: LinkError, gone: float, most: float) -> None:
    if gone >= most:
        raise LinkError(
            f"the board at {link.name} is out of reach for {gone:.2g} s ({error}); what it does it "
            "does without its host: plug it in, and run `trainwright train --resume` with the same "
            "--out"
        ) from error
    time.sleep(min(1.0, most / SHARE))
    with suppress(LinkError):  # the next look says so
        link.reopen()

"""Wait for a board that works without its host, over a line that may be unplugged for a while."""

import time
from collections.abc import Callable
from contextlib import suppress

from trainwright.accelerator import AcceleratorError
from trainwright.link.host import HostLink, LinkError

SHARE = 64
"""The pause before the next look is 1/SHARE of the pauses so far, up to ``MOST_SECONDS``."""
MOST_SECONDS = 0.5
"""Longest pause between two looks."""
LOST_SECONDS = 60.0
"""Longest time without an answer, by default."""


def await_run(
    link: HostLink, is_busy: Callable[[], bool], *, seconds: float, lost_seconds: float
) -> None:
    """Look until ``is_busy`` is false, more and more seldom.

    Where the board does not answer, the line is opened again. Raises ``LinkError`` after
    ``lost_seconds`` without an answer, ``AcceleratorError`` after ``seconds`` in all, and whatever
    else ``is_busy`` raises, such as ``AcceleratorReset``.
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
            raise AcceleratorError(f"the board at {link.name} is not done after {seconds:g} s")


def _try_again(link: HostLink, error: LinkError, gone: float, most: float) -> None:
    if gone >= most:
        raise LinkError(
            f"the board at {link.name} is out of reach for {gone:.2g} s ({error}), and goes on "
            "without its host: plug it in, and run `trainwright train --resume` with the same --out"
        ) from error
    time.sleep(min(1.0, most / SHARE))
    with suppress(LinkError):  # the next look fails then, and reports it
        link.reopen()

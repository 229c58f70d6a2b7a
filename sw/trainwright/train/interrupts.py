"""Ctrl-C and termination: finish the step, or abandon it, but never leave a partial one."""

import signal
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any, NoReturn

_USUAL = (signal.SIGINT, signal.SIGTERM)
SIGNALS = (*_USUAL, *(getattr(signal, name) for name in ("SIGHUP",) if hasattr(signal, name)))
"""Ctrl-C, ``kill``, and a terminal that is closed, which Windows has no signal for."""


class Interrupts:
    """Catches `SIGNALS` while it is entered; only in the main thread.

    SIGHUP stays ignored if it was ignored before: under ``nohup`` a run outlives its terminal.

    The first signal asks for a stop after the present step (``requested()``). A second one raises
    ``KeyboardInterrupt`` at once where ``abandonable()``, and otherwise waits as the first.
    """

    def __init__(self) -> None:
        self.signal: int | None = None
        """Signal that came first, or None."""
        self.abandonable: Callable[[], bool] = lambda: False
        self.on_request: Callable[[], None] = lambda: None
        """Called in the handler at the first signal, to tell the user."""
        self._previous: dict[int, Any] = {}

    def requested(self) -> bool:
        """Return whether the run is to stop after the present step."""
        return self.signal is not None

    def abandon(self) -> NoReturn:
        """End the command at once; as ``on_request``, while there is no step to finish."""
        raise KeyboardInterrupt(self.signal)

    @property
    def exit_status(self) -> int:
        """Status by the shell's convention, 130 after SIGINT."""
        return 128 + (self.signal or signal.SIGINT)

    def __enter__(self) -> "Interrupts":
        for number in SIGNALS:
            if number not in _USUAL and signal.getsignal(number) is signal.SIG_IGN:
                continue
            with suppress(ValueError):  # not the main thread
                self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous.clear()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.signal is None:
            self.signal = number
            self.on_request()
        elif self.abandonable():
            # Raising elsewhere could leave weights of one step with exponents of the next.
            raise KeyboardInterrupt

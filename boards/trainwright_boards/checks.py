"""Each change of a netlist is held to what was there before it: what is built is what was written.

Nothing here knows what a change was meant to do (``equivalence``).
"""

import time
from collections.abc import Mapping
from typing import Any

from trainwright.support.native.tools import Progress
from trainwright_boards.canonical import Machine
from trainwright_boards.equivalence import difference
from trainwright_boards.tools import BuildError

REMEDY = "Report it; --no-check builds without a check, and the report says so."


class Checks:
    """Of one netlist and its changes, one after the other.

    ``made``: of each change ``change``, ``check`` ("proof" or "none"), ``cells`` of the netlist
    after it and ``seconds`` of the check.
    """

    def __init__(self, progress: Progress, *, enabled: bool = True):
        self.made: list[dict[str, Any]] = []
        self._progress, self._enabled = progress, enabled
        self._last: Machine | None = None

    def begin(self, module: Mapping[str, Any]) -> None:
        """What the first change is held to: a module as ``canonical.Machine`` takes it."""
        self._last = Machine(module) if self._enabled else None

    def held(self, change: str, module: Mapping[str, Any]) -> None:
        """The module after a change, which the next one is held to.

        Raises ``BuildError`` with the first difference where it is not the same machine.
        """
        made: dict[str, Any] = {"change": change, "check": "none", "cells": len(module["cells"])}
        if self._enabled:
            assert self._last is not None
            begin = time.monotonic()
            try:
                now = Machine(module)
                found = difference(self._last, now)
            except ValueError as error:
                raise BuildError(f"{change}: {error}. {REMEDY}") from error
            if found:
                raise BuildError(f"{change}: not the same machine: {found}. {REMEDY}")
            self._last = now
            made |= {"check": "proof", "seconds": time.monotonic() - begin}
            self._progress(f"{change}: proved to be the same machine")
        self.made.append(made)

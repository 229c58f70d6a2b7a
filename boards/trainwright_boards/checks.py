"""Check that no change of a netlist changes the machine: what is built is what was written.

Nothing here knows what a change was meant to do (``equivalence``).
"""

import time
from collections.abc import Callable, Mapping
from typing import Any

from trainwright.support.native.tools import Progress
from trainwright_boards.canonical import Machine
from trainwright_boards.equivalence import difference
from trainwright_boards.tools import BuildError

REMEDY = "Report it; --no-check builds without a check, and the report says so."


class Checks:
    """Check that each change to a netlist leaves it the same machine.

    ``records`` lists each change: its name ``change``, the ``check`` ("proof" or "none"), the
    number of ``cells`` after it, and the ``seconds`` the check took.
    """

    def __init__(self, progress: Progress, *, enabled: bool = True):
        self.records: list[dict[str, Any]] = []
        self._progress, self._enabled = progress, enabled
        self._last: Machine | None = None

    def begin(self, module: Mapping[str, Any]) -> None:
        """Take the netlist that the first change is compared with."""
        self._last = Machine(module) if self._enabled else None

    def held(
        self,
        change: str,
        module: Mapping[str, Any],
        difference: Callable[[Machine, Machine], str | None] = difference,
    ) -> None:
        """Compare the netlist after a change with the one before, and keep it for the next change.

        Raises ``BuildError`` with the first difference where it is not the same machine.
        """
        record: dict[str, Any] = {"change": change, "check": "none", "cells": len(module["cells"])}
        if self._enabled:
            assert self._last is not None
            begin = time.monotonic()
            try:
                now = Machine(module)
                difference_found = difference(self._last, now)
            except ValueError as error:
                raise BuildError(f"{change}: {error}. {REMEDY}") from error
            if difference_found:
                raise BuildError(f"{change}: not the same machine: {difference_found}. {REMEDY}")
            self._last = now
            record |= {"check": "proof", "seconds": time.monotonic() - begin}
            self._progress(f"{change}: proved to be the same machine")
        self.records.append(record)

"""Cases of engines that wait for the memory."""

from collections.abc import Iterable
from itertools import product

import pytest

STALLS = (0, 0.4)
"""Shares of cycles in which the memory stalls."""


def stalled_cases(names: Iterable[str]) -> list:
    """List seeds, sizes by name, and stalls.

    In the default suite each size has one case: sizes take turns with and without stalls.
    """
    return [
        pytest.param(
            seed, name, stall, id=f"seed{seed}-{name}-stall{stall}",
            marks=[] if (seed, stall) == (0, STALLS[number % 2]) else [pytest.mark.slow],
        )
        for number, name in enumerate(names)
        for seed, stall in product((0, 1), STALLS)
    ]  # fmt: skip

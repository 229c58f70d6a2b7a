"""Remedies for a network that does not fit, each compiled before an error names it."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import islice

from trainwright.compiler.base.errors import CompileError, DoesNotFitError
from trainwright.compiler.base.limits import SCRATCHPAD
from trainwright.parameters import PRESETS, AcceleratorParameters, preset

TRIAL_EFFORT = 60_000
"""Alternatives that one remedy may take, three to six seconds of a processor.

A convolution of 16 to 32 channels on 28 x 28 pixels, which fits at no batch, took 61 s to refuse
with 160,000, two thirds of it in trials.
"""
MOST_BATCHES = 3
"""Smaller batches that are tried, each a quarter of the one before: 64 down to 1."""
MOST_PRESETS = 2
"""Presets that are tried, for an accelerator with a smaller scratchpad than theirs."""

Trial = Callable[[int, AcceleratorParameters], object]
"""Compile for a batch and an accelerator; raises ``CompileError`` where that does not fit."""


def _batches(batch: int, unit: int) -> Iterator[int]:
    """List smaller batches that are multiples of a unit."""
    for _ in range(MOST_BATCHES):
        batch = batch // 4 // unit * unit
        if not batch:
            return
        yield batch


def _sizes(p: AcceleratorParameters) -> Iterator[AcceleratorParameters]:
    """List accelerators with larger scratchpads."""
    larger = {min(4 * p.scratchpad_rows, SCRATCHPAD.greatest), SCRATCHPAD.greatest}
    for rows in sorted(larger - {p.scratchpad_rows}):
        yield replace(p, scratchpad_rows=rows)


def _presets(p: AcceleratorParameters) -> Iterator[str]:
    """List presets with larger scratchpads, the largest first, of equally large ones the first."""
    rows = {name: preset(name).scratchpad_rows for name in PRESETS}
    for most in sorted({r for r in rows.values() if r > p.scratchpad_rows}, reverse=True):
        yield next(name for name, r in rows.items() if r == most)


def with_remedies(
    error: DoesNotFitError, batch: int, p: AcceleratorParameters, trial: Trial, *, unit: int = 1
) -> DoesNotFitError:
    """Return the error with a batch, a scratchpad and a preset that were tried and do fit.

    Batches are multiples of ``unit``. What an error guesses from the rows that one tensor lacks
    is often wrong: other tensors grow with the batch, and slices with the scratchpad.
    """
    remedies: list[str] = []
    for smaller in _batches(batch, unit):
        with suppress(CompileError):
            trial(smaller, p)
            remedies.append(f"use a batch of {smaller}, which fits")
            break
    for larger in _sizes(p):
        with suppress(CompileError):
            trial(batch, larger)
            remedies.append(f"an accelerator with scratchpad_rows={larger.scratchpad_rows} fits")
            break
    for name in islice(_presets(p), MOST_PRESETS):
        with suppress(CompileError):
            trial(batch, preset(name))
            remedies.append(f"preset {name} fits")
            break
    remedy = (
        "; ".join(remedies) or "use smaller layers or ranks: no smaller batch that was tried fits"
    )
    return DoesNotFitError(error.reason, remedy)

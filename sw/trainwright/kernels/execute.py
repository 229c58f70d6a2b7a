"""Execute a kernel on an accelerator: golden model, simulated hardware or board."""

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np

from trainwright.accelerator import open_accelerator
from trainwright.kernels.evaluate import (
    PassResult,
    Words,
    evaluate,
    require_words,
    whole_words,
)
from trainwright.kernels.lower import lower
from trainwright.kernels.trace import LANES, Body, Value, trace
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import Halt, Program, Set, Transfer
from trainwright.program.fields import Engine, Operation
from trainwright.program.vector import CODE_WORDS, Code, Rounding, Stream

ROW_BYTES = 2 * LANES
BEAT_BYTES = 16
PROGRAM_BYTES = 1 << 14
"""Bytes kept for the program: instructions of a pass, and a load or store of every stream."""


def execute(
    kernel: Callable[..., None],
    rows: Mapping[str, Words],
    *,
    backend: str = "golden",
    parameters: AcceleratorParameters | None = None,
    seed: int = 0,
    **options: Any,
) -> PassResult:
    """Execute a kernel on integer ``rows`` (n, LANES) of 16 bits by one pass of the vector engine.

    Parameters
    ----------
    kernel
        Function of a `Body`, called with ``options``.
    rows
        Words of every stream that the kernel reads, all of the same number of rows.
    backend
        Name of a back end, as in ``trainwright check --backend``.
    parameters
        Sizes of the accelerator; by default the default sizes with a vector engine.
    seed
        Seed of a kernel that rounds by random bits.

    Returns
    -------
    PassResult
        Rows that the kernel wrote and both totals, as `evaluate` gives them.

    Raises
    ------
    ValueError
        If rows have another shape, fractions or values beyond 16 bits, or a stream has no rows.
    KernelError
        If a value is beyond the range that the kernel promises for it.
    """
    code, rows = lower(kernel, **options), whole_words(rows)
    count = _checked(rows, [n for b, n in enumerate(code.streams) if code.reads >> b & 1])
    _require_promises(trace(kernel, **options), rows)
    p = parameters or AcceleratorParameters(vector_engine=1)
    # Streams follow each other in the scratchpad, and in memory behind the program.
    places = {name: n * count for n, name in enumerate(code.streams)}
    data, size = PROGRAM_BYTES, max(1, len(places)) * count * ROW_BYTES

    def moved(operation: Operation, name: str) -> Transfer:
        return Transfer(
            operation=operation, address=data + places[name] * ROW_BYTES, local=places[name],
            beats=count * ROW_BYTES // BEAT_BYTES, wait=Engine.ALL, tensor=name,
        )  # fmt: skip

    written = [name for n, name in enumerate(code.streams) if code.writes >> n & 1]
    streams = {name: Stream(row, 0, 1) for name, row in places.items()}
    words = code.instructions
    title = getattr(kernel, "__name__", "kernel")  # functools.partial has none
    d = code.vector(streams, outer=1, inner=count, tensor=title)
    descriptors = (
        Set(values=(), seed=seed),
        *(moved(Operation.LOAD, name) for name in places if name in rows),
        *(Code(first=n, instructions=words[n : n + CODE_WORDS], wait=Engine.ALL)
          for n in range(0, len(words), CODE_WORDS)),
        replace(d, wait=Engine.ALL),
        *(moved(Operation.STORE, name) for name in written),
        Halt(wait=Engine.ALL),
    )  # fmt: skip
    with closing(open_accelerator(backend, p, memory_bytes=data + size)) as accelerator:
        for name, row in places.items():
            if name in rows:
                words16 = np.ascontiguousarray(rows[name], np.int16)
                accelerator.write(data + row * ROW_BYTES, words16.view(np.uint8).ravel())
        run = accelerator.run(Program(descriptors, p.fingerprint), 0)
        results = {
            name: accelerator.read(data + places[name] * ROW_BYTES, count * ROW_BYTES)
            .view(np.int16).reshape(count, LANES).astype(np.int64)
            for name in written
        }  # fmt: skip
    return PassResult(rows=results, total=int(run.sums[0]), count=int(run.saturations[0]))


def _checked(rows: Mapping[str, Words], needed: list[str]) -> int:
    """Return the number of rows; raise ``ValueError`` for rows that a pass cannot take."""
    if missing := [name for name in needed if name not in rows]:
        raise ValueError(f"the kernel reads {', '.join(missing)}, of which no rows are given")
    shapes = {name: np.shape(words) for name, words in rows.items()}
    counts = {shape[0] for shape in shapes.values() if len(shape) == 2 and shape[1] == LANES}
    if len(counts) != 1 or any(shape != (*counts, LANES) for shape in shapes.values()):
        raise ValueError(f"every stream has rows (n, {LANES}) of the same n, not {shapes}")
    for name, words in rows.items():
        low, high = int(np.min(words, initial=0)), int(np.max(words, initial=0))
        if not -(1 << 15) <= low <= high < 1 << 15:
            raise ValueError(f"words of {name} have 16 bits, not values from {low} to {high}")
    (count,) = counts
    if not count:
        raise ValueError("a pass takes at least one row")
    return count


def _require_promises(body: Body, rows: Mapping[str, Words]) -> None:
    """Check the ranges that a kernel states, by numpy: the engine computes on whatever comes."""
    values = [step for step in body.steps if isinstance(step, Value)]
    if body.asked:
        raise ValueError(f"{body.asked[min(body.asked)]}: execute has no k.given: write a number")
    # A register or a random bit is known to the engine alone; the words that it reads are not.
    hidden = any(v.register or v.rounding >= Rounding.RANDOM for v in values)
    if hidden or not any(v.stated for v in values):
        require_words(body, rows)
    else:
        evaluate(body, rows)

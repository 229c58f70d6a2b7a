"""Times of calls that are compared: in turns, so that clocks and neighbours touch all alike."""

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

Call = Callable[[], object]


@dataclass(frozen=True)
class Times:
    """Milliseconds of one call: the median of the rounds, the quickest and the slowest."""

    median: float
    least: float
    most: float


def measure(
    ways: Mapping[str, Call], device: torch.device, rounds: int = 7, least: float = 2.0
) -> dict[str, Times]:
    """Time every way in turns: warmed up, then ``rounds`` rounds of about ``least`` ms or a call.

    CUDA events on a GPU, wall time elsewhere.
    """
    inner: dict[str, int] = {}
    for name, way in ways.items():
        way()
        once = _milliseconds(way, 1, device)
        once = min(once, _milliseconds(way, 2, device) / 2)
        inner[name] = max(1, min(200, int(least / max(once, 1e-4))))
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            taken[name].append(_milliseconds(way, inner[name], device) / inner[name])
    return {
        name: Times(statistics.median(rows), min(rows), max(rows)) for name, rows in taken.items()
    }


def _milliseconds(way: Call, count: int, device: torch.device) -> float:
    if device.type != "cuda":
        begin = time.perf_counter()
        for _ in range(count):
            way()
        return 1e3 * (time.perf_counter() - begin)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    start.record()
    for _ in range(count):
        way()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end)


def rows(
    what: str, times: Mapping[str, Times], base: str, **more: object
) -> list[dict[str, object]]:
    """Return a row a way: its milliseconds, and how many times faster than ``base`` it is."""
    return [
        {
            "what": what,
            "way": name,
            "ms": found.median,
            "ms_least": found.least,
            "ms_most": found.most,
            "speedup": times[base].median / found.median,
            **more,
        }
        for name, found in times.items()
    ]

"""Cases: a computation on two devices, and how far the results may differ."""

import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

Put = Callable[[Any], Any]
"""Moves a tensor, module or pair of them to the device of a run."""


@dataclass(frozen=True)
class Case:
    """A computation with the largest relative difference between devices; 0 asks for equal bits."""

    library: str
    name: str
    run: Callable[[Put], Any]
    tolerance: float


@dataclass(frozen=True)
class Verdict:
    """The outcome of one case; ``difference`` is relative to the largest value of a tensor."""

    library: str
    name: str
    passed: bool
    seconds: float
    difference: float
    tensors: int
    message: str = ""


class Table:
    """Cases in order of their definition."""

    def __init__(self) -> None:
        self.cases: list[Case] = []

    def add(self, library: str, name: str, tolerance: float = 0.0) -> Callable[[Any], Any]:
        """Register the decorated function of ``put`` as a case."""

        def register(run: Callable[[Put], Any]) -> Callable[[Put], Any]:
            self.cases.append(Case(library, name, run, tolerance))
            return run

        return register


def leaves(found: Any) -> Iterator[Tensor]:
    """Yield the tensors of nested containers, numbers and truth values as tensors."""
    if isinstance(found, Tensor):
        yield found
    elif isinstance(found, dict):
        for key in sorted(found, key=str):
            yield from leaves(found[key])
    elif isinstance(found, (list, tuple)):
        for each in found:
            yield from leaves(each)
    elif isinstance(found, (bool, int, float)):
        yield torch.tensor(float(found), dtype=torch.float64)
    elif found is not None:
        raise TypeError(f"a case returns tensors and numbers, not {type(found).__name__}")


def difference(found: Tensor, wanted: Tensor) -> float:
    """Return the largest difference relative to the largest value; inf for another kind of tensor.

    Equal bits give 0, and so do two NaN; zeros of other signs give the least float64.
    """
    found, wanted = found.detach().cpu(), wanted.detach()
    if found.shape != wanted.shape or found.dtype is not wanted.dtype:
        return float("inf")
    if not found.numel():
        return 0.0
    if not wanted.is_floating_point():
        return 0.0 if torch.equal(found, wanted) else float("inf")
    x, y = found.to(torch.float64), wanted.to(torch.float64)
    same = (x == y) | (x.isnan() & y.isnan())
    if bool(same.all()):
        signs = torch.signbit(x) == torch.signbit(y)
        return 0.0 if bool((signs | x.isnan()).all()) else torch.finfo(torch.float64).tiny
    apart = (x - y).abs()[~same]
    if not bool(apart.isfinite().all()):
        return float("inf")
    largest = float(y[y.isfinite()].abs().amax()) if bool(y.isfinite().any()) else 1.0
    return float(apart.amax()) / (largest or 1.0)


def judge(case: Case, put: Put) -> Verdict:
    """Run a case on the CPU and with ``put``; failures of either are its message."""
    begin = time.perf_counter()
    worst, count = float("inf"), 0
    try:
        wanted = list(leaves(case.run(lambda x: x)))
        found = list(leaves(case.run(put)))
        count = len(wanted)
        if len(found) != count:
            message = f"{len(found)} tensors, on the CPU {count}"
        else:
            apart = [difference(x, y) for x, y in zip(found, wanted, strict=True)]
            worst = max(apart, default=float("inf"))
            off = [n for n, d in enumerate(apart) if not d <= case.tolerance]
            message = f"tensors {off} differ by up to {worst:.3g}" if off else ""
    except Exception:
        message = traceback.format_exc(limit=-12)
    seconds = time.perf_counter() - begin
    return Verdict(case.library, case.name, not message, seconds, worst, count, message)


def as_row(verdict: Verdict) -> dict[str, Any]:
    """Return a verdict as what JSON holds."""
    return asdict(verdict)

"""How long a call takes."""

import time
from collections.abc import Callable

import torch


def least_seconds(run: Callable[[], object], device: torch.device, repeats: int = 3) -> float:
    """Return the least seconds of a call, after a call that does not count.

    Processor seconds on a CPU, so that other processes count little; wall time on CUDA.
    """
    clock = time.perf_counter if device.type == "cuda" else time.process_time

    def whole() -> None:
        run()
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    whole()
    best = float("inf")
    for _ in range(repeats):
        begin = clock()
        whole()
        best = min(best, clock() - begin)
    return best

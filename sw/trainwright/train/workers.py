"""The processes that train together under ``torchrun``: who they are, sums over them, agreement.

There is one kind of message: a sum of int64 over all workers, which is the same on each of them
whatever the order of the additions. It also carries whether a worker was asked to stop, so that all
of them stop after the same step.
"""

import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch

from trainwright.accelerator import AcceleratorError
from trainwright.support.errors import errors_as

T = TypeVar("T")


class Workers:
    """Rank of this process among ``count`` workers; a single worker sends nothing."""

    def __init__(self, rank: int = 0, count: int = 1) -> None:
        self.rank, self.count = rank, count
        self.requested: Callable[[], bool] = lambda: False
        """Whether this worker was asked to stop."""
        self.stopping = False
        """Whether any was, by the last sum."""

    def total(self, values: torch.Tensor) -> torch.Tensor:
        """Return the sum of an int64 vector over all workers.

        ``AcceleratorError`` if one is gone.
        """
        if self.count == 1:
            return values
        # The request to stop rides on every sum: a message of its own would have to be awaited in
        # every step, and workers that learn of it in different steps would wait for each other for
        # ever.
        message = torch.cat([values, torch.tensor([int(self.requested())])])
        with errors_as(
            f"worker {self.rank} of {self.count} lost the others", AcceleratorError, RuntimeError
        ):
            torch.distributed.all_reduce(message)
        self.stopping = bool(message[-1])
        return message[:-1]

    def agree(self, what: str, data: bytes) -> None:
        """Raise ``AcceleratorError`` on every worker unless all have the same ``data``."""
        # A sum of one-hot vectors is a gather, without a second kind of message.
        own = torch.zeros(self.count, dtype=torch.int64)
        own[self.rank] = zlib.crc32(data)
        self.check_same(what, self.total(own))

    def check_same(self, what: str, sums: torch.Tensor) -> None:
        """Raise ``AcceleratorError`` unless all numbers, one a worker, are the same."""
        if bool((sums != sums[0]).any()):
            different = torch.nonzero(sums != sums[0]).ravel().tolist()
            raise AcceleratorError(f"workers {different} have another {what} than worker 0")

    def together(self, make: Callable[[], T]) -> T:
        """Call ``make()`` on every worker, on the first before the rest.

        Where the call fails on some workers, these raise the error, and the rest ``SystemExit``.
        """
        if self.count == 1:
            return make()
        result: list[T] = []
        error: Exception | None = None
        # The first worker goes ahead alone: it makes the folder of the run and fills the caches,
        # which the rest then find.
        for mine in (self.rank == 0, self.rank != 0):
            if mine:
                try:
                    result.append(make())
                except Exception as found:
                    error = found
            failed = self.total(torch.tensor([int(error is not None)]))
            if error is not None:
                raise error
            if failed[0]:
                raise SystemExit(2)
        return result[0]


@contextmanager
def joined() -> Iterator[Workers]:
    """Yield the workers that ``torchrun`` started, connected by gloo; a single one without it."""
    distributed = torch.distributed
    if not (distributed.is_available() and distributed.is_torchelastic_launched()):
        yield Workers()
        return
    distributed.init_process_group("gloo")
    try:
        yield Workers(distributed.get_rank(), distributed.get_world_size())
    finally:
        distributed.destroy_process_group()

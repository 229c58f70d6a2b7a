"""Peers of an engine: the scratchpad as it sees it."""

from collections import deque

import numpy as np
import numpy.typing as npt

from trainwright_hw.storage.ports import ROW_LATENCY
from trainwright_sim.bench.streams import StreamSink
from trainwright_sim.bench.testbench import TestBench, pack, unpack

Words = npt.NDArray[np.int64]


class RowReadPeer:
    """Answers a ``ReadPort`` from ``rows`` (n, lanes); addresses beyond wrap.

    ``asked``: the addresses so far.
    """

    def __init__(self, tb: TestBench, name: str, rows: Words, *, stall: str = "none"):
        self.asked: list[int] = []
        self._rows, self._width = rows, tb.parameters.word_width
        self._valid, self._row = tb.handle(f"{name}_valid"), tb.handle(f"{name}_row")
        self._taken: int | None = None
        self._due: deque[int | None] = deque([None] * (ROW_LATENCY - 1))
        self._valid.value = 0
        self._row.value = 0
        self.requests = StreamSink(tb, f"{name}_request", stall=stall, take=self._request)
        tb.agents.append(self)

    def _request(self, address: int) -> None:
        self._taken = address
        self.asked.append(address)

    def cycle(self) -> None:
        self._due.append(self._taken)
        self._taken = None
        address = self._due.popleft()
        self._valid.value = address is not None
        if address is not None:
            self._row.value = pack(self._rows[address % len(self._rows)], self._width)


class RowWritePeer:
    """Takes the rows of a ``WritePort`` into ``written``: (address, words) in order."""

    def __init__(self, tb: TestBench, name: str, *, stall: str = "none"):
        self.written: list[tuple[int, list[int]]] = []
        self._width, self._lanes = tb.parameters.word_width, tb.parameters.lanes
        self._row = tb.handle(f"{name}_row")
        self._taken: int | None = None
        tb.agents.append(self)  # before the requests: the row is that of the cycle before
        self.requests = StreamSink(tb, f"{name}_request", stall=stall, take=self._request)

    def _request(self, address: int) -> None:
        self._taken = address

    def cycle(self) -> None:
        if self._taken is not None:
            row = unpack(int(self._row.value), self._width, self._lanes)
            self.written.append((self._taken, row))
        self._taken = None
